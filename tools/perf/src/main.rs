//! Latency and bandwidth of virtual interfaces and raw frames.

fn main() {}
