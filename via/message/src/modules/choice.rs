//! Which module: functions of lengths, modes, thresholds and what there is, and of nothing else.

use super::{Module, Thresholds};
use crate::SendMode;

/// What there is on a connection just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Means {
    /// Packets can take bytes from where they lie: the port can, and there is no other rail by which they might have to go
    /// once more.
    pub(crate) gathers: bool,
    /// The receiver can read the sender's memory: both ports can, and there is one rail.
    pub(crate) reads: bool,
}

/// How a piece goes. `is_expected`: the receiver has named its place already.
///
/// What the sender may change at once (`Safer`) is copied while it is short. A long one is written, since its sender is
/// there to do so as soon as the receiver names the place: it waits for that.
pub(crate) fn of_piece(
    len: usize,
    send: SendMode,
    is_expected: bool,
    thresholds: &Thresholds,
    means: Means,
) -> Module {
    let may_wait = send != SendMode::Safer;
    match len {
        _ if len >= thresholds.long && means.reads && may_wait && !is_expected && len >= thresholds.read => {
            Module::Read
        }
        _ if len >= thresholds.long => Module::Written,
        _ if len >= thresholds.gather && means.gathers && may_wait => Module::Gathered,
        _ => Module::Copied,
    }
}

/// From how many bytes on a piece may go otherwise than copied.
pub(crate) fn copied_below(thresholds: &Thresholds, means: Means) -> usize {
    if means.gathers { thresholds.long.min(thresholds.gather) } else { thresholds.long }
}

/// How a packet goes that is all in its buffer. `len`: with its header; `most`: what thresholds and the endpoint of class
/// Pio allow, 0 where none was granted; `is_behind_put`: it has to come behind what is being put.
#[inline]
pub(crate) fn of_packet(len: usize, most: usize, is_behind_put: bool) -> Module {
    if len <= most && !is_behind_put { Module::Inline } else { Module::Copied }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Module::{Copied, Gathered, Inline, Read, Written};
    use SendMode::{Cheaper, Later, Safer};

    const ALL: Means = Means { gathers: true, reads: true };
    const NONE: Means = Means { gathers: false, reads: false };

    #[test]
    fn the_module_of_a_piece_is_that_of_the_table() {
        let thresholds = Thresholds { inline: 128, gather: 4096, long: 16384, read: 65536 };
        let never = Thresholds { gather: Thresholds::NEVER, read: Thresholds::NEVER, ..thresholds };
        let low = Thresholds { gather: 64, long: 16, read: 1, ..thresholds };
        for (len, send, is_expected, thresholds, means, module) in [
            (0, Cheaper, false, thresholds, ALL, Copied),
            (4095, Cheaper, false, thresholds, ALL, Copied),
            (4096, Cheaper, false, thresholds, ALL, Gathered),
            (4096, Later, false, thresholds, ALL, Gathered),
            (4096, Safer, false, thresholds, ALL, Copied),
            (4096, Cheaper, false, thresholds, NONE, Copied),
            (4096, Cheaper, false, never, ALL, Copied),
            (16383, Later, true, thresholds, ALL, Gathered),
            (16384, Later, false, thresholds, ALL, Written),
            (16384, Safer, false, thresholds, NONE, Written),
            (65535, Cheaper, false, thresholds, ALL, Written),
            (65536, Cheaper, false, thresholds, ALL, Read),
            (65536, Later, false, thresholds, ALL, Read),
            (65536, Cheaper, true, thresholds, ALL, Written),
            (65536, Safer, false, thresholds, ALL, Written),
            (65536, Cheaper, false, thresholds, NONE, Written),
            (65536, Cheaper, false, never, ALL, Written),
            (16, Cheaper, false, low, ALL, Read),
            (15, Cheaper, false, low, ALL, Copied),
            (64, Safer, false, low, ALL, Written),
        ] {
            let found = of_piece(len, send, is_expected, &thresholds, means);
            assert_eq!(found, module, "{len} {send:?} {is_expected} {thresholds:?} {means:?}");
            if len < copied_below(&thresholds, means) {
                assert_eq!(module, Copied, "the short way copies");
            }
        }
    }

    #[test]
    fn the_module_of_a_packet_is_that_of_the_table() {
        for (len, most, is_behind_put, module) in [
            (88, 128, false, Inline),
            (128, 128, false, Inline),
            (129, 128, false, Copied),
            (24, 0, false, Copied),
            (88, 128, true, Copied),
        ] {
            assert_eq!(of_packet(len, most, is_behind_put), module, "{len} {most} {is_behind_put}");
        }
    }
}
