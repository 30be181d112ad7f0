//! What goes wrong on purpose: on the wire, and in what a device says. All of it by a seed, so that a run can
//! be had again.

mod completions;
mod lies;
mod plan;
mod wire;

pub use completions::{Completion, Completions};
pub use lies::{Lie, Lies};
pub use plan::{LinkOutage, Plan, PlanError, When, WireFault, WireRule};
pub use wire::{Departure, FaultyWire};
