//! Shows what a NIC can do.

fn main() {}
