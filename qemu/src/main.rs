//! Builds a guest image and runs commands in QEMU guests.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The same program is process 1 of the guest: one thing to build, one thing to carry.
    if std::process::id() == 1 {
        uvia_vm::agent::main();
    }
    uvia_vm::cli::main()
}
