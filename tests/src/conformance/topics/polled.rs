//! The polled path and the kernel. For benches whose devices are reached by memory.

use uvia_driver::dma::DmaSegment;
use uvia_driver::nic::{Nic, NicConfig, TxFrame};

use super::super::frame::SHORTEST;
use super::super::{Bench, Pair};
use crate::sealed::{Sealed, end, without_system_calls};

/// Polls after which a frame is lost, where looking at the clock is forbidden.
const LOST: u64 = 200_000_000;
/// How the child ends that lost one.
const LOST_STATUS: i32 = 2;

/// Frames back and forth, in a child that a system call kills. It opens the NICs itself: a child does not get its
/// parent's DMA memory.
pub fn makes_no_system_call(bench: &dyn Bench) {
    let rounds = bench.effort().of(1000, 100, 2000);
    let outcome = without_system_calls(
        || {
            let mut pair = Pair::usual(bench);
            let segments = [pair.a.lasting(SHORTEST), pair.b.lasting(SHORTEST)];
            (pair, segments)
        },
        |(pair, [there, back])| {
            let whole = (0..rounds).all(|_| {
                leg(&mut *pair.a.nic, &mut *pair.b.nic, *there)
                    && leg(&mut *pair.b.nic, &mut *pair.a.nic, *back)
            });
            if !whole {
                end(LOST_STATUS);
            }
        },
    );
    assert_eq!(outcome.unwrap(), Sealed::Clean, "(a wait status of {} means a lost frame)", LOST_STATUS << 8);
    // The child let go of the devices.
    drop(bench.open(&NicConfig::default()).unwrap_or_else(|e| panic!("{e}")));
}

/// Whether a frame got from one to the other.
fn leg(from: &mut dyn Nic, to: &mut dyn Nic, segment: DmaSegment) -> bool {
    let sent = from.reclaim(&mut |_| ()).is_ok()
        && from.transmit(&TxFrame { segments: &[segment], token: 0 }).is_ok_and(|taken| taken)
        && from.flush().is_ok();
    sent && (0..LOST).any(|_| {
        std::hint::spin_loop();
        to.receive(1, &mut |_| ()).is_ok_and(|frames| frames == 1)
    })
}
