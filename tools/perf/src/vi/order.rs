//! What the two ends tell each other with the connection request and its acceptance.
//!
//! Fixed layouts, little-endian, within the 64 bytes of private data; everything that is read is checked.

use uvia::{MemoryHandle, RemoteMemory};

use crate::cli::{Class, Op};
use crate::load::Test;

/// Tells this layout from others: "UVP" and a version.
const MAGIC: u32 = u32::from_le_bytes(*b"UVP\x01");
/// No memory: handles are never 0.
pub const NOWHERE: RemoteMemory = RemoteMemory { address: 0, handle: MemoryHandle(0) };
const ORDER: usize = 56;
const READY: usize = 16;

/// What the asking end wants to be done over the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub test: Test,
    pub op: Op,
    pub class: Class,
    /// Whether another connection follows.
    pub more: bool,
    /// Bandwidth: messages under way at a time.
    pub window: u16,
    /// Payload of a message, bytes.
    pub size: u64,
    /// Messages before those that are measured.
    pub warmup: u64,
    /// Messages measured.
    pub iterations: u64,
    /// Where the asking end can be written.
    pub target: RemoteMemory,
}

/// The answer: where the listening end can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready(pub RemoteMemory);

impl Order {
    pub fn to_bytes(self) -> [u8; ORDER] {
        let mut bytes = [0; ORDER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = match self.test {
            Test::Latency => 0,
            Test::Bandwidth => 1,
        };
        bytes[5] = match self.op {
            Op::Send => 0,
            Op::Write => 1,
        };
        bytes[6] = match self.class {
            Class::Dma => 0,
            Class::Pio => 1,
        };
        bytes[7] = u8::from(self.more);
        bytes[8..10].copy_from_slice(&self.window.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.warmup.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.iterations.to_le_bytes());
        bytes[40..56].copy_from_slice(&Ready(self.target).to_bytes());
        bytes
    }

    /// `None` when it is no order of this version, or one that cannot be carried out.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ORDER] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        if bytes[..4] != MAGIC.to_le_bytes() {
            return None;
        }
        let order = Self {
            test: match bytes[4] {
                0 => Test::Latency,
                1 => Test::Bandwidth,
                _ => return None,
            },
            op: match bytes[5] {
                0 => Op::Send,
                1 => Op::Write,
                _ => return None,
            },
            class: match bytes[6] {
                0 => Class::Dma,
                1 => Class::Pio,
                _ => return None,
            },
            more: bytes[7] == 1,
            window: u16::from_le_bytes([bytes[8], bytes[9]]),
            size: word(16),
            warmup: word(24),
            iterations: word(32),
            target: Ready::parse(&bytes[40..])?.0,
        };
        let sensible = (1..=1024).contains(&order.window)
            && order.size <= super::LARGEST as u64
            && order.iterations <= 1_000_000_000
            && order.warmup <= 1_000_000_000;
        sensible.then_some(order)
    }
}

impl Ready {
    pub fn to_bytes(self) -> [u8; READY] {
        let mut bytes = [0; READY];
        bytes[..8].copy_from_slice(&self.0.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.0.handle.0.to_le_bytes());
        bytes
    }

    /// Any 16 bytes name memory; whether we may write there the other end decides.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; READY] = bytes.try_into().ok()?;
        let address = u64::from_le_bytes(std::array::from_fn(|n| bytes[n]));
        let handle = MemoryHandle(u32::from_le_bytes(std::array::from_fn(|n| bytes[8 + n])));
        Some(Self(RemoteMemory { address, handle }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            test: Test::Bandwidth,
            op: Op::Write,
            class: Class::Dma,
            more: true,
            window: 32,
            size: 1 << 20,
            warmup: 10,
            iterations: 1000,
            target: RemoteMemory { address: 0x7fff_1234_5678, handle: MemoryHandle(77) },
        }
    }

    #[test]
    fn orders_come_back() {
        assert_eq!(Order::parse(&order().to_bytes()), Some(order()));
        assert_eq!(Ready::parse(&Ready(order().target).to_bytes()), Some(Ready(order().target)));
    }

    #[test]
    fn garbage_is_no_order() {
        assert_eq!(Order::parse(&[]), None);
        assert_eq!(Order::parse(&[0xff; ORDER]), None);
        assert_eq!(Order::parse(&order().to_bytes()[1..]), None);
        for (at, value) in [(0, 0), (3, 2), (4, 2), (5, 9), (6, 2), (9, 0xff), (20, 1), (38, 1)] {
            let mut bytes = order().to_bytes();
            bytes[at] = value;
            assert_eq!(Order::parse(&bytes), None, "byte {at}");
        }
        assert_eq!(Order::parse(&Order { window: 0, ..order() }.to_bytes()), None);
        assert_eq!(Ready::parse(&[0; 15]), None);
    }
}
