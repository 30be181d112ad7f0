//! How long frames may be.

use std::ops::RangeInclusive;

use super::NicConfig;
use crate::{Error, Result};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_HEADER: usize = 14;
/// Bytes of a VLAN tag, which some back-ends leave in frames of the full length.
pub(super) const TAG: usize = 4;
/// Ethernet's payload: what every network of it carries.
pub(super) const MTU: usize = 1500;

/// The longest frame that is asked of an adapter: with its check sequence and a VLAN tag it fills 8 KiB, which is a size
/// of buffers that the 8254x have, and what their packet buffer is divided for at power-on.
const LONGEST: usize = 8188;

impl NicConfig {
    /// The limits that may be asked for by [`NicConfig::max_frame`]: from a frame of 1500 bytes of payload to a jumbo
    /// frame of 8174.
    pub const FRAMES: RangeInclusive<usize> = MTU + ETHERNET_HEADER..=LONGEST;

    /// The longest frame that is wanted.
    pub(super) fn longest_frame(&self) -> Result<usize> {
        match self.max_frame {
            None => Ok(LONGEST),
            Some(bytes) if Self::FRAMES.contains(&bytes) => Ok(bytes),
            Some(bytes) => Err(Error::Argument {
                what: format!(
                    "frames of at most {bytes} bytes cannot be asked for: the limit is {} to {}",
                    Self::FRAMES.start(),
                    Self::FRAMES.end()
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_and_named() {
        let wanted = |max_frame| NicConfig { max_frame, ..NicConfig::default() }.longest_frame();
        assert_eq!(wanted(None).unwrap(), 8188);
        for bytes in [1514, 4000, 8188] {
            assert_eq!(wanted(Some(bytes)).unwrap(), bytes);
        }
        for bytes in [0, 60, 1513, 8189, usize::MAX] {
            let said = wanted(Some(bytes)).unwrap_err().to_string();
            assert!(said.contains(&format!("{bytes} bytes")) && said.contains("1514 to 8188"), "{said}");
        }
    }
}
