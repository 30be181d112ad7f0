//! Engines joined by a simulated wire, in virtual time. Everything follows from a seed: one that fails is printed,
//! and runs again with `UVIA_SEED=n cargo test -p uvia --lib simulation::faults::replay`.

#![allow(clippy::vec_box)] // Descriptors are boxed when they are posted, and so they are kept.

mod adapter;
pub(crate) mod capture;
mod corpus;
mod dissected;
mod errors;
mod faults;
mod flips;
mod floods;
mod fuzz;
mod integrity;
mod leaving;
mod long;
mod not_ready;
mod pair;
mod parts;
mod path;
mod peers;
pub(crate) mod rng;
mod scenarios;
mod steady;
mod stream;
mod throughput;
mod turns;
mod unreliable;
mod world;
