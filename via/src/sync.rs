//! What lock-free code stands on: `tests/loom` puts a model checker's in its place.

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::sync::atomic;
pub(crate) use std::thread::sleep;

pub(crate) use crossbeam::utils::Backoff;
