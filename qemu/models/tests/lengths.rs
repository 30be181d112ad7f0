//! Frames of all lengths by what RCTL has of them: which are received, in how many buffers, and which are counted as too
//! long.

mod outside;

use outside::{Memory, RECEIVE, Wire, e1000, outside, set_ring, start};

/// A register of 82540EM, and bits of RCTL.
const ROC: u64 = 0x40ac;
const LPE: u32 = 1 << 5;
const BSIZE: u32 = 16;
const BSEX: u32 = 1 << 25;
const SECRC: u32 = 1 << 26;
const RING: usize = 0x1000;
const BUFFERS: usize = 0x8000;
const DESCRIPTORS: usize = 8;

/// What becomes of a frame of `len` bytes: the bytes in each descriptor that has some, and how many were too long.
fn received(rctl: u32, len: usize) -> (Vec<usize>, u32) {
    let mut function = e1000();
    let mut memory = Memory { bytes: vec![0; BUFFERS + DESCRIPTORS * 16384], away: false, missed: 0 };
    let mut wire = Wire::default();
    for n in 0..DESCRIPTORS {
        let at = RING + 16 * n;
        memory.bytes[at..at + 8].copy_from_slice(&((BUFFERS + 16384 * n) as u64).to_le_bytes());
    }
    set_ring(&function, RECEIVE, RING as u32, 7);
    start(&mut function, &mut outside(&mut memory, &mut wire, 1), rctl | SECRC);
    wire.arriving = vec![vec![0xff; len]];
    let mut outside = outside(&mut memory, &mut wire, 2);
    function.work(&mut outside, 64);
    let mut oversized = [0; 4];
    function.read(&mut outside, 0, ROC, &mut oversized);
    let word = |n: usize| {
        let at = RING + 16 * n + 8;
        u64::from_le_bytes(memory.bytes[at..at + 8].try_into().unwrap())
    };
    let done = (0..DESCRIPTORS).take_while(|n| word(*n) >> 32 & 1 == 1);
    let lengths: Vec<_> = done.map(|n| (word(n) & 0xffff) as usize).collect();
    for (n, part) in lengths.iter().enumerate() {
        let end = word(n) >> 32 & 2 != 0;
        assert_eq!(end, n + 1 == lengths.len(), "the end of the packet is in its last descriptor");
        let buffer = &memory.bytes[BUFFERS + 16384 * n..][..16384];
        assert!(buffer.iter().enumerate().all(|(at, byte)| (*byte == 0xff) == (at < *part)));
    }
    (lengths, u32::from_le_bytes(oversized))
}

#[test]
fn an_e1000_takes_long_packets_where_it_is_told_to() {
    let jumbo = LPE | BSEX | 2 << BSIZE;
    for (rctl, len, lengths, oversized) in [
        // 1522 bytes with the check sequence, and one more.
        (0, 1518, vec![1518], 0),
        (0, 1519, vec![], 1),
        (BSEX | 2 << BSIZE, 8188, vec![], 1),
        // Buffers of 2048 bytes, of 4096 and of 8192.
        (LPE, 2048, vec![2048], 0),
        (LPE, 2049, vec![2048, 1], 0),
        (LPE | BSEX | 3 << BSIZE, 4097, vec![4096, 1], 0),
        (jumbo, 1514, vec![1514], 0),
        (jumbo, 8188, vec![8188], 0),
        (jumbo, 8192, vec![8192], 0),
        (jumbo, 8193, vec![8192, 1], 0),
        // 16384 with the check sequence, and one more.
        (jumbo, 16380, vec![8192, 8188], 0),
        (jumbo, 16381, vec![], 1),
        (LPE | BSEX | 1 << BSIZE, 16380, vec![16380], 0),
    ] {
        assert_eq!(received(rctl, len), (lengths, oversized), "{rctl:#x}, {len} bytes");
    }
}
