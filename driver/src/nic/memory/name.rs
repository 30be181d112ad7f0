//! Names of segments.

use crate::{Error, Result};

/// What names of devices begin with that are segments of shared memory.
const PREFIX: &str = "shm:";
/// What loopback devices were called once, and the segment that is meant by it.
const LOOPBACK: &str = "/dev/via_lo";
const LOOPBACK_SEGMENT: &str = "via_lo";
/// Longest name, bytes.
const LONGEST: usize = 64;

/// The name of the segment that a device's name stands for: `shm:NAME`, or `/dev/via_lo`. `None` for names of other
/// devices.
///
/// # Errors
/// [`Error::Argument`] for a name that cannot be one of a segment.
pub(in crate::nic) fn segment_of(device: &str) -> Result<Option<&str>> {
    if device == LOOPBACK {
        return Ok(Some(LOOPBACK_SEGMENT));
    }
    let Some(name) = device.strip_prefix(PREFIX) else { return Ok(None) };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_plain) {
        return Err(Error::Argument {
            what: format!(
                "{device:?} names no shared memory: give {PREFIX}NAME, with 1 to {LONGEST} letters, digits, dots, \
                 dashes and underscores"
            ),
        });
    }
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_and_of_others() {
        assert_eq!(segment_of("shm:a.B-3_").unwrap(), Some("a.B-3_"));
        assert_eq!(segment_of("/dev/via_lo").unwrap(), Some("via_lo"));
        for other in ["0000:01:00.0", "vfio-user:/tmp/x", "", "shm"] {
            assert_eq!(segment_of(other).unwrap(), None);
        }
        let long = format!("shm:{}", "x".repeat(65));
        for bad in ["shm:", "shm:../x", "shm:a/b", "shm:a b", "shm:\u{e9}", &long] {
            let error = segment_of(bad).unwrap_err().to_string();
            assert!(error.contains("shm:NAME"), "{error}");
        }
    }
}
