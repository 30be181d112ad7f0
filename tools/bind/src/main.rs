//! Attaches network functions to vfio-pci and gives them back.

fn main() {}
