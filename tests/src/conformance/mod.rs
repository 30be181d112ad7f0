//! What every NIC has to do: one suite, over [`Nic`](uvia_driver::nic::Nic) and nothing else, that each driver passes
//! unchanged on each device and each way to it.
//!
//! A [`Bench`] hands out pairs of NICs on one wire. What is to be seen of a pair is in [`topics`], a file a topic. A
//! new NIC is one line with [`conformance!`](crate::conformance!) in `tests/tests/conformance.rs`, or none where a
//! guest's environment names it.

mod adapter_memory;
mod bench;
mod effort;
mod end;
mod frame;
mod pair;
pub mod topics;

pub use adapter_memory::Memory;
pub use bench::{Bench, Line, Opened};
pub use effort::Effort;
pub use end::End;
pub use pair::{PATIENCE, Pair};

/// Runs one topic on a bench, and then sees that nothing was left behind, and no memory touched that was not given.
///
/// # Panics
/// When the NIC does not do what it has to.
pub fn run(bench: &dyn Bench, topic: fn(&dyn Bench)) {
    topic(bench);
    if let Some(stray) = bench.stray() {
        assert_eq!(stray, 0, "a device reached for memory that was not mapped for it");
    }
    if let Some(mapped) = bench.mapped() {
        assert_eq!(mapped, 0, "memory is still mapped after all was closed");
    }
}

/// Makes a test of each topic, in a module of the bench's name.
///
/// `conformance!(name: BENCH)` for devices that are code in this process, `conformance!(name by shared memory: BENCH)` for
/// such whose driver makes no system call where it polls, `conformance!(name on one host: BENCH)` for those of which this is
/// true too, but which can neither lose their cable nor be removed, and `conformance!(name in a guest: BENCH)` for such
/// that are to be found in a guest only.
#[macro_export]
macro_rules! conformance {
    ($name:ident: $bench:expr) => {
        $crate::conformance! { @every $name () $bench;
            link::goes_and_comes
            removal::ends_in_errors_and_harms_nothing
        }
    };
    ($name:ident by shared memory: $bench:expr) => {
        $crate::conformance! { @every $name () $bench;
            link::goes_and_comes
            removal::ends_in_errors_and_harms_nothing
            polled::makes_no_system_call
        }
    };
    ($name:ident on one host: $bench:expr) => {
        $crate::conformance! { @every $name () $bench;
            polled::makes_no_system_call
        }
    };
    ($name:ident in a guest: $bench:expr) => {
        $crate::conformance! {
            @every $name (#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]) $bench;
            polled::makes_no_system_call
        }
    };
    (@every $name:ident $mark:tt $bench:expr; $($more:tt)*) => {
        mod $name {
            #[allow(unused_imports, reason = "the bench may need none of them")]
            use super::*;
            $crate::conformance! { @topics $mark $bench;
                bring_up::comes_up
                bring_up::takes_rings_of_any_size
                refusals::what_cannot_be_sent_is_refused
                refusals::limits_out_of_bounds_are_named
                sizes::every_size_arrives_whole
                sizes::the_longest_fill_every_buffer
                sizes::no_longer_than_was_asked_for
                gather::odd_splits_arrive_whole
                adapter_memory::frames_are_fetched_from_slots
                adapter_memory::a_reset_lets_go_of_slots
                transmit_ring::is_fetched_from_adapter_memory
                transmit_ring::is_emptied_by_a_reset
                transmit_ring::needs_windows
                bursts::bursts_of_all_lengths_cost_one_doorbell
                laps::many_laps_of_odd_rings
                full_ring::says_so_and_loses_nothing
                full_ring::every_token_comes_back_once
                empty_pool::what_there_are_buffers_for_waits
                empty_pool::a_flood_is_counted_or_lost_and_gone_afterwards
                statistics::counters_add_up
                filters::frames_for_others_come_only_when_asked_for
                interrupts::a_sleeper_is_woken_once
                interrupts::nobody_is_woken_who_is_not_armed
                interrupts::nothing_is_lost_between_arming_and_sleeping
                reset::in_the_middle_of_traffic
                reset::of_the_receiver
                close::with_frames_in_flight
                close::opens_and_closes_again_and_again
                $($more)*
            }
        }
    };
    (@topics $mark:tt $bench:expr; $($topic:ident :: $case:ident)*) => {
        $($crate::conformance!(@test $mark $bench; $topic $case);)*
    };
    (@test ($($mark:tt)*) $bench:expr; $topic:ident $case:ident) => {
        #[test]
        $($mark)*
        fn $case() {
            $crate::conformance::run(&$bench, $crate::conformance::topics::$topic::$case);
        }
    };
}
