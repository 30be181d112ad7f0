//! What the two ends tell each other with the connection request and its acceptance.
//!
//! Fixed layouts, little-endian, within the 64 bytes of private data; everything that is read is checked.

use uvia::{MemoryHandle, RemoteMemory};

use crate::cli::{Class, Cq, Level, Op, Wait};
use crate::load::Test;

/// Tells this layout from others: "UVP" and a version.
const MAGIC: u32 = u32::from_le_bytes(*b"UVP\x02");
/// No memory: handles are never 0.
pub const NOWHERE: RemoteMemory = RemoteMemory { address: 0, handle: MemoryHandle(0) };
const ORDER: usize = 56;
const READY: usize = 16;

/// How connections are used: the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    pub class: Class,
    pub level: Level,
    pub cq: Cq,
    pub wait: Wait,
    /// Connections, used in turn.
    pub vis: u16,
}

/// Most connections of a test.
const MOST_VIS: u16 = 1024;

/// What the asking end wants to be done over the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub test: Test,
    pub op: Op,
    pub manner: Manner,
    /// Whether another test follows.
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
            Op::Read => 2,
        };
        let Manner { class, level, cq, wait, vis } = self.manner;
        bytes[6] = match class {
            Class::Dma => 0,
            Class::Pio => 1,
        };
        bytes[7] = u8::from(self.more);
        bytes[8..10].copy_from_slice(&self.window.to_le_bytes());
        bytes[10] = match level {
            Level::Unreliable => 0,
            Level::Delivery => 1,
            Level::Reception => 2,
        };
        bytes[11] = match cq {
            Cq::On => 0,
            Cq::Off => 1,
        };
        bytes[12] = match wait {
            Wait::Poll => 0,
            Wait::Interrupt => 1,
            Wait::Async => 2,
        };
        bytes[14..16].copy_from_slice(&vis.to_le_bytes());
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
                2 => Op::Read,
                _ => return None,
            },
            manner: Manner {
                class: match bytes[6] {
                    0 => Class::Dma,
                    1 => Class::Pio,
                    _ => return None,
                },
                level: match bytes[10] {
                    0 => Level::Unreliable,
                    1 => Level::Delivery,
                    2 => Level::Reception,
                    _ => return None,
                },
                cq: match bytes[11] {
                    0 => Cq::On,
                    1 => Cq::Off,
                    _ => return None,
                },
                wait: match bytes[12] {
                    0 => Wait::Poll,
                    1 => Wait::Interrupt,
                    2 => Wait::Async,
                    _ => return None,
                },
                vis: u16::from_le_bytes([bytes[14], bytes[15]]),
            },
            more: bytes[7] == 1,
            window: u16::from_le_bytes([bytes[8], bytes[9]]),
            size: word(16),
            warmup: word(24),
            iterations: word(32),
            target: Ready::parse(&bytes[40..])?.0,
        };
        let sensible = (1..=1024).contains(&order.window)
            && (1..=MOST_VIS).contains(&order.manner.vis)
            && order.refusal().is_none()
            && order.size <= super::LARGEST as u64
            && order.iterations <= 1_000_000_000
            && order.warmup <= 1_000_000_000;
        sensible.then_some(order)
    }
}

impl Order {
    /// Why it cannot be carried out, if it cannot: what does not go together.
    pub fn refusal(&self) -> Option<&'static str> {
        let Manner { level, cq, wait, vis, .. } = self.manner;
        match (self.test, self.op, wait) {
            (_, Op::Read, _) if level == Level::Unreliable => {
                Some("reads need a reliable connection: not with --level unreliable")
            }
            (_, _, Wait::Interrupt | Wait::Async) if cq == Cq::Off => {
                Some("--wait interrupt and async wait at a completion queue: not with --cq off")
            }
            (Test::Latency, Op::Write, Wait::Interrupt | Wait::Async) => {
                Some("who is written has no completion to wait for: lat --op write can only poll")
            }
            (Test::Bandwidth, _, Wait::Interrupt | Wait::Async) if vis > 1 => Some(
                "one wait is for one connection's completions: bw --wait interrupt or async takes --vis 1",
            ),
            _ => None,
        }
    }

    /// Messages of connection `n`, where all connections have `total`.
    pub fn share(&self, total: u64, n: usize) -> u64 {
        let vis = u64::from(self.manner.vis);
        total / vis + u64::from((n as u64) < total % vis)
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
            manner: Manner {
                class: Class::Dma,
                level: Level::Reception,
                cq: Cq::Off,
                wait: Wait::Poll,
                vis: 300,
            },
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
        for (at, value) in [
            (0, 0),
            (3, 1),
            (4, 2),
            (5, 9),
            (6, 2),
            (9, 0xff),
            (10, 3),
            (11, 2),
            (12, 3),
            (15, 0xff),
            (20, 1),
            (38, 1),
        ] {
            let mut bytes = order().to_bytes();
            bytes[at] = value;
            assert_eq!(Order::parse(&bytes), None, "byte {at}");
        }
        assert_eq!(Order::parse(&Order { window: 0, ..order() }.to_bytes()), None);
        assert_eq!(Ready::parse(&[0; 15]), None);
    }

    #[test]
    fn what_does_not_go_together_is_refused_and_is_no_order() {
        let with = |change: &dyn Fn(&mut Order)| {
            let mut order = Order { manner: Manner { cq: Cq::On, vis: 1, ..order().manner }, ..order() };
            change(&mut order);
            assert_eq!(order.refusal().is_some(), Order::parse(&order.to_bytes()).is_none(), "{order:?}");
            order.refusal().is_some()
        };
        for wait in [Wait::Interrupt, Wait::Async] {
            assert!(!with(&|order| order.manner.wait = wait));
            assert!(with(&|order| (order.manner.wait, order.manner.cq) = (wait, Cq::Off)));
            assert!(with(&|order| (order.manner.wait, order.manner.vis) = (wait, 2)));
            assert!(with(&|order| (order.manner.wait, order.test) = (wait, Test::Latency)));
        }
        assert!(with(&|order| (order.op, order.manner.level) = (Op::Read, Level::Unreliable)));
        assert!(!with(&|order| order.manner.level = Level::Unreliable));
    }

    #[test]
    fn shares_add_up() {
        for total in [0, 1, 299, 300, 301, 10_000] {
            let shares: Vec<u64> = (0..300).map(|n| order().share(total, n)).collect();
            assert_eq!(shares.iter().sum::<u64>(), total);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
