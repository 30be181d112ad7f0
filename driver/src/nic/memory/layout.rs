//! Where things lie in a segment.
//!
//! ```text
//! 0                 the segment's own words (see `Word`)
//! PORTS_AT          a block of words for each port
//! LANES_AT          the lane from port 0 to port 0, from 1 to 0, ... from 0 to 1, ...
//! ```
//!
//! Of a lane the control words come first, then the slots, then the bulk: what does not fit a slot lies there, one
//! frame behind the other. Memory that nobody has used costs nothing: a segment's file is sparse.

use super::ring::SLOTS;

/// Most ports of a segment: masks of ports are words.
pub(super) const PORTS: usize = 64;
/// Longest frame, with its Ethernet header.
pub(super) const MAX_FRAME: usize = 32 * 1024;
/// What all segments begin with: the layout's version.
pub(super) const MAGIC: u64 = 0x0001_6d68_7361_6976;

/// Bytes that processors pass to each other at a time.
pub(super) const LINE: usize = 64;
/// Bytes of a slot.
pub(super) const SLOT: usize = 256;
/// Of which so many are its header.
pub(super) const SLOT_HEADER: usize = 8;
/// Longest frame that lies in its slot.
pub(super) const INLINE: usize = SLOT - SLOT_HEADER;
/// Bytes of a lane's bulk; a power of two.
pub(super) const BULK: usize = 1 << 20;
/// Frames in the bulk begin at multiples of this.
pub(super) const BULK_ALIGN: usize = 64;

const PAGE: usize = 4096;
const PORTS_AT: usize = PAGE;
/// Bytes of a port's words: lines of their own, and their neighbours', which are prefetched with them.
const PORT: usize = 256;
const LANES_AT: usize = 64 * 1024;

/// A lane's parts, from its beginning.
pub(super) const LANE_SLOTS_AT: usize = PAGE;
/// See [`LANE_SLOTS_AT`].
pub(super) const LANE_BULK_AT: usize = LANE_SLOTS_AT + SLOTS as usize * SLOT;
/// Bytes of a lane.
pub(super) const LANE: usize = LANE_BULK_AT + BULK;

/// Bytes of a segment's beginning, which every process maps.
pub(super) const CONTROL: usize = LANES_AT;
/// Bytes of a segment.
pub(super) const SEGMENT: usize = LANES_AT + PORTS * PORTS * LANE;

const _: () = assert!(PORTS_AT + PORTS * PORT <= LANES_AT && LANE.is_multiple_of(PAGE));
const _: () = assert!(SLOT.is_multiple_of(LINE) && SLOT > LINE);
const _: () = assert!(MAX_FRAME <= u16::MAX as usize && MAX_FRAME * 2 <= BULK);

/// The segment's own words, by their offset.
pub(super) mod word {
    /// [`super::MAGIC`], stored last when a segment is made.
    pub const MAGIC: usize = 0;
    /// The generation that was last given to a port.
    pub const GENERATION: usize = 8;
    /// A mask of the ports that take frames which are not for them.
    pub const WATCHERS: usize = 16;
    /// A number that tells this segment from others.
    pub const SALT: usize = 24;
}

/// The words of a port, by their offset in its block.
pub(super) mod port {
    /// The station address of its owner, as a little-endian word; 0 when it has none.
    pub const MAC: usize = 0;
    /// Its owner's process, the pipe by which it is woken, as that process knows it, and the pipe's inode. 0 for a
    /// port that cannot be woken.
    pub const PID: usize = 8;
    /// See [`PID`].
    pub const PIPE: usize = 16;
    /// See [`PID`].
    pub const PIPE_INODE: usize = 24;
    /// Which frames it takes beside its own: bit 0 all, bit 1 those to groups.
    pub const FILTER: usize = 32;
    /// A mask of the ports that have opened a lane to it since it last looked.
    pub const OPENED: usize = 128;
    /// Not 0: its owner sleeps, and is to be woken.
    pub const ARMED: usize = 136;
}

/// The control words of a lane, by their offset in it; a line for each end.
pub(super) mod lane {
    /// The station address of its sender.
    pub const SENDER: usize = 0;
    /// How far its receiver has come: the generation of the sender that it listens to, and the number of the next frame.
    /// 0 as long as it has never listened, [`super::super::ring::BUSY`] while it turns to another sender.
    pub const TAKEN: usize = 128;
}

/// Where a word of a port lies.
pub(super) const fn port_word(port: usize, word: usize) -> usize {
    PORTS_AT + port * PORT + word
}

/// Where the lane between two ports begins.
pub(super) const fn lane_at(from: usize, to: usize) -> usize {
    LANES_AT + (to * PORTS + from) * LANE
}
