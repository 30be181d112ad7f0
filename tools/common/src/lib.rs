//! What the command-line tools share: choosing a NIC, names, output, exit codes.
