//! The harness, and the tests that cross crates.
