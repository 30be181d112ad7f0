//! Memory that the program unmaps, replaces, empties or moves between two messages, while its registration is at hand for
//! the next: what lies there then is sent, and what comes then lies there.

mod common;

use std::ffi::c_void;
use std::ptr;

use common::program::Numbers;
use common::{Kind, run};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap};
use uvia_message::{Channel, ReceiveMode, SendMode};

const HALF: usize = 1 << 20;
const ALL: usize = 2 * HALF;

/// Pages of a test's own, of which one half is sent and the other received.
struct Pages(*mut c_void);

impl Pages {
    fn new() -> Self {
        Self::at(ptr::null_mut(), MapFlags::PRIVATE)
    }

    fn at(place: *mut c_void, flags: MapFlags) -> Self {
        // SAFETY: new memory, at a place of the kernel's choice or in place of pages of the caller's.
        Self(unsafe { mmap_anonymous(place, ALL, ProtFlags::READ | ProtFlags::WRITE, flags) }.expect("pages"))
    }

    fn halves(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: they are mapped, and borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast::<u8>(), ALL) }.split_at_mut(HALF)
    }

    /// What a program may do with its memory between two messages.
    fn changed(self, how: usize) -> Self {
        let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: pages of ours, without references; what is mapped in their place is theirs.
        unsafe {
            match how {
                0 => {
                    munmap(self.0, ALL).expect("unmaps");
                    // The kernel likes to put the next memory where there was some just now.
                    Self::new()
                }
                1 => Self::at(self.0, fixed),
                2 => Self::at(self.0, MapFlags::SHARED | MapFlags::FIXED),
                3 => {
                    madvise(self.0, ALL, Advice::LinuxDontNeed).expect("empties");
                    self
                }
                4 => {
                    let to = Self::new();
                    let flags = MremapFlags::MAYMOVE;
                    // Refused for memory of several mappings, with the other place unmapped all the same.
                    mremap_fixed(self.0, ALL, ALL, flags, to.0).map_or(self, Self)
                }
                5 => {
                    // One page of each half, and what is left of both is neighbours then.
                    for at in [HALF - 4096, HALF] {
                        let page = self.0.wrapping_byte_add(at);
                        let rights = ProtFlags::READ | ProtFlags::WRITE;
                        mmap_anonymous(page, 4096, rights, fixed).expect("replaces");
                    }
                    self
                }
                _ => self,
            }
        }
    }
}

/// Sends the first half, and receives into the second.
fn message(channel: &Channel, me: usize, other: usize, round: usize, pages: &mut Pages, len: usize) {
    let (out, into) = pages.halves();
    let image = |rank: usize, n: usize| (n >> 8) as u8 ^ (rank * 101 + round * 7) as u8;
    out.iter_mut().enumerate().for_each(|(n, byte)| *byte = image(me, n));
    into.fill(!image(other, 0));
    let (out, into) = (&out[..len], &mut into[HALF - len..]);
    match (round % 3, me) {
        (0, _) => channel.exchange(other, out, other, into).unwrap(),
        (_, 0) => {
            channel.send(other, |message| message.cheaper(out, ReceiveMode::Cheaper)).unwrap();
            channel.receive(other, |message| message.cheaper(into, SendMode::Cheaper)).unwrap();
        }
        _ => {
            channel.receive(other, |message| message.cheaper(into, SendMode::Cheaper)).unwrap();
            channel.send(other, |message| message.cheaper(out, ReceiveMode::Cheaper)).unwrap();
        }
    }
    assert!(into.iter().enumerate().all(|(n, byte)| *byte == image(other, n)), "rank {me}, round {round}");
}

#[test]
fn what_lies_there_now_is_sent_and_received() {
    for kinds in [&[Kind::Vi][..], &[Kind::Vi, Kind::Vi], &[Kind::Vi, Kind::Shared]] {
        for read in [1, uvia_message::Thresholds::NEVER] {
            let change = |options: &mut uvia_message::SessionOptions| {
                options.patience = None;
                options.thresholds.read = read;
            };
            run(2, kinds, change, |session| {
                let (me, other) = (session.rank(), 1 - session.rank());
                let channel = session.channel(0, &[]).unwrap();
                let mut numbers = Numbers(me as u64);
                let mut common = Numbers(7);
                let mut pages = Pages::new();
                for round in 0..60 {
                    let len = HALF - common.below(2) * 4096 * common.below(8);
                    message(&channel, me, other, round, &mut pages, len);
                    pages = pages.changed(numbers.below(8));
                }
            });
        }
    }
}
