//! From how many bytes on which module is taken.

use serde::{Deserialize, Serialize};

/// From how many bytes on which module is taken: what a session is opened with, what is written in its file
/// (`[thresholds]`, where some may be left out), or what `uvia-calibrate` has found of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Up to how many bytes, header included, a packet goes by [`Module::Inline`](crate::Module::Inline), where an endpoint
    /// of class Pio was granted; 0 for none.
    pub inline: usize,
    /// From how many bytes on a piece goes by [`Module::Gathered`](crate::Module::Gathered), if it is not long.
    pub gather: usize,
    /// From how many bytes on a piece is long: [`Module::Written`](crate::Module::Written), or read. The lower of two ranks'
    /// counts for what goes between them.
    pub long: usize,
    /// From how many bytes on a long piece goes by [`Module::Read`](crate::Module::Read), if the receiver does not expect it
    /// yet.
    pub read: usize,
}

impl Default for Thresholds {
    /// Up to 128 bytes inline; long from 16 KiB on; nothing read, which takes no less than writing over shared memory and a
    /// tenth more over adapters; and nothing gathered, since whoever packs would wait for its acknowledgement.
    fn default() -> Self {
        Self { inline: 128, gather: Self::NEVER, long: 16 << 10, read: Self::NEVER }
    }
}

impl Thresholds {
    /// From so many bytes on: never. It is the greatest number that a file can say.
    pub const NEVER: usize = i64::MAX as usize;

    /// What is wrong with them, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.long == 0 || self.gather == 0 || self.read == 0 {
            return Err("thresholds: a piece is long, gathered or read from 1 byte on at least".to_owned());
        }
        Ok(())
    }
}
