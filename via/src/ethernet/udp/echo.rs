//! Answers to echo requests (RFC 792), so that a host over UDP can be found by `ping`.

use uvia_driver::nic::RxFrame;

use super::header::{IP, TIME_TO_LIVE, UDP, finish, sum};
use crate::MacAddress;

/// Longest frame that is answered.
pub(super) const LONGEST: usize = 1514;
const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// The answer to a frame whose datagram, for us and with a sound header, has `total` bytes; none when it is no request.
/// It goes back the way that the request came.
pub(super) fn answer(frame: &RxFrame<'_>, total: usize, own: MacAddress) -> Option<Vec<u8>> {
    let len = IP + total;
    if len > LONGEST {
        return None;
    }
    let mut bytes = vec![0; len];
    if !frame.read(0, &mut bytes) || bytes[UDP] != REQUEST || finish(sum(&bytes[UDP..])) != 0 {
        return None;
    }
    let station: [u8; 6] = std::array::from_fn(|n| bytes[6 + n]);
    if station[0] & 1 != 0 {
        return None;
    }
    bytes[..6].copy_from_slice(&station);
    bytes[6..12].copy_from_slice(&own.0);
    let (source, destination): ([u8; 4], [u8; 4]) =
        (std::array::from_fn(|n| bytes[26 + n]), std::array::from_fn(|n| bytes[30 + n]));
    bytes[26..30].copy_from_slice(&destination);
    bytes[30..34].copy_from_slice(&source);
    bytes[22] = TIME_TO_LIVE;
    bytes[UDP] = REPLY;
    for (at, range) in [(24, IP..UDP), (UDP + 2, UDP..len)] {
        bytes[at..at + 2].fill(0);
        let made = finish(sum(&bytes[range]));
        bytes[at..at + 2].copy_from_slice(&made.to_be_bytes());
    }
    Some(bytes)
}
