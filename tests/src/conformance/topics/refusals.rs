//! What cannot be sent.

use uvia_driver::Error;
use uvia_driver::dma::{DmaMemory, Rights};
use uvia_driver::nic::{NicConfig, TxFrame};

use super::super::{Bench, Pair};

/// Frames without bytes, too long ones and those of too many parts are refused, are not sent, and harm nothing.
pub fn what_cannot_be_sent_is_refused(bench: &dyn Bench) {
    // Nothing but a NIC and memory of its own; the NIC is gone before the memory is.
    let ends = bench.open(&NicConfig::default()).unwrap_or_else(|e| panic!("{e}")).map(|opened| {
        let longest = opened.nic.properties().max_frame;
        let memory = DmaMemory::allocate(opened.domain, longest + 1, Rights::READ).unwrap();
        (opened.nic, memory)
    });
    for (mut nic, memory) in ends {
        let p = nic.properties().clone();
        let long = memory.segment(0..p.max_frame + 1).unwrap();
        let half = memory.segment(0..p.max_frame / 2 + 1).unwrap();
        let none = memory.segment(0..0).unwrap();
        let many = vec![memory.segment(0..4).unwrap(); p.max_segments + 1];
        for segments in [&[][..], &[none], &[none, none], &[long], &[half, half], &many] {
            let refused = nic.transmit(&TxFrame { segments, token: 9 });
            assert!(matches!(refused, Err(Error::Argument { .. })), "{} parts: {refused:?}", segments.len());
        }
        nic.flush().unwrap();
        nic.reclaim(&mut |token| panic!("token {token} of a frame that was refused")).unwrap();
        assert_eq!(nic.statistics().tx_frames, 0);
    }
    Pair::usual(bench).exchange();
}

/// A limit of frames that no adapter here can be asked for is an error that says what can be.
pub fn limits_out_of_bounds_are_named(bench: &dyn Bench) {
    let limits = NicConfig::FRAMES;
    for wanted in [0, limits.start() - 1, limits.end() + 1, usize::MAX] {
        let config = NicConfig { max_frame: Some(wanted), ..NicConfig::default() };
        let refused = Pair::try_open(bench, &config).map(drop);
        let Err(Error::Argument { what }) = refused else { panic!("{wanted}: {refused:?}") };
        assert!(what.contains(&format!("{} to {}", limits.start(), limits.end())), "{what}");
    }
}
