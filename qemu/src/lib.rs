//! Builds a guest image and runs commands in QEMU guests.
