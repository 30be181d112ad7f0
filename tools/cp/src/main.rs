//! Copies files between hosts by RDMA write.

fn main() {}
