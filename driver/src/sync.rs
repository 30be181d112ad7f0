//! What lock-free code stands on: `tests/loom` puts a model checker's in its place.

pub(crate) use std::sync::atomic;
