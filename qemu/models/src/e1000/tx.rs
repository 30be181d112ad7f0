//! The transmitter (8254x manual, 3.3).

use super::offload::{self, ChecksumPlace, Checksums, OffloadContext};
use super::regs::{self, Cause, Tctl};
use super::ring::{DESCRIPTOR, Direction, Ring};
use super::statistics::Statistics;
use crate::faults::{Completion, Completions, Lie};
use crate::model::Context;
use crate::port::LONGEST;
use crate::shared::SharedPages;

/// Bits of a descriptor's command byte, legacy and data (3.3.3, 3.3.7).
const EOP: u8 = 1 << 0;
const IC_OR_TSE: u8 = 1 << 2;
const RS: u8 = 1 << 3;
const RPS: u8 = 1 << 4;
const DEXT: u8 = 1 << 5;
const VLE: u8 = 1 << 6;
/// Bits of a context descriptor's command (3.3.6).
const TUCMD_TCP: u8 = 1 << 0;
const TUCMD_IP: u8 = 1 << 1;
/// Options of a data descriptor.
const IXSM: u8 = 1 << 0;
const TXSM: u8 = 1 << 1;
/// Descriptor done.
const DD: u32 = 1 << 0;

/// The most that is put together for segmentation: an IP packet, its headers, and room.
const LONGEST_SEGMENTED: usize = 0x1_0000 + 512;
/// The shortest frame that is not padded.
const SHORTEST: usize = 60;

/// What the transmitter keeps between descriptors.
#[derive(Debug, Default)]
pub struct Transmitter {
    context: OffloadContext,
    packet: Vec<u8>,
    /// The packet in the making cannot be sent: a fetch failed, or it is too long.
    spoilt: bool,
    checksums: Checksums,
    completions: Completions,
    out: Vec<Completion>,
    /// The ring, as it was when a descriptor could not be fetched: nothing more is done until it is another one, be it by
    /// its tail alone, or was set again.
    stuck: Option<Ring>,
}

/// What it needs of the chip.
pub struct Around<'a> {
    pub pages: &'a SharedPages,
    pub statistics: &'a mut Statistics,
    pub tctl: Tctl,
    /// CTRL.VME, and the ethertype of tags.
    pub tags: Option<u32>,
    pub cause: &'a mut Cause,
}

impl Transmitter {
    /// As after power-on.
    pub fn reset(&mut self) {
        self.packet.clear();
        self.completions.clear();
        (self.context, self.spoilt, self.stuck) = (OffloadContext::default(), false, None);
    }

    /// The ring's registers or the transmitter's were set: it tries again.
    pub fn unstick(&mut self) {
        self.stuck = None;
    }

    /// Works on up to `budget` descriptors; answers how many there were, and when the next late completion is
    /// due.
    pub fn work(
        &mut self,
        context: &mut Context<'_>,
        around: &mut Around<'_>,
        budget: usize,
    ) -> (usize, Option<std::time::Duration>) {
        let due = self.completions.release(context.now, &mut self.out);
        if !around.tctl.contains(Tctl::EN) {
            self.out.clear();
            return (0, due);
        }
        let mut done = 0;
        let ring = Ring::load(around.pages, Direction::Transmit).filter(|ring| self.stuck != Some(*ring));
        let Some(mut ring) = ring else {
            self.out.clear();
            return (0, due);
        };
        self.stuck = None;
        self.write_back(context, around, &ring);
        while done < budget && ring.head != ring.tail {
            let at = ring.head;
            let mut bytes = [0; DESCRIPTOR as usize];
            if context.bus.read(ring.descriptor(at), &mut bytes).is_err() {
                self.stuck = Some(ring);
                break;
            }
            let [a, b, c, d, e, f, g, h, lower @ .., i, j, k, l] = bytes;
            let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let (lower, upper) = (u32::from_le_bytes(lower), u32::from_le_bytes([i, j, k, l]));
            self.descriptor(context, around, address, lower, upper);
            done += 1;
            ring.advance(around.pages, Direction::Transmit);
            if (lower >> 24) as u8 & (RS | RPS) != 0 {
                let completion = Completion { id: at, length: lower & 0xffff, word: u64::from(upper | DD) };
                self.completions.pass(context.lies, context.now, completion, &mut self.out);
                self.write_back(context, around, &ring);
                *around.cause |= Cause::TXDW;
            }
        }
        if done > 0 && ring.head == ring.tail {
            *around.cause |= Cause::TXQE;
        }
        (done, due)
    }

    fn write_back(&mut self, context: &mut Context<'_>, around: &mut Around<'_>, ring: &Ring) {
        for completion in self.out.drain(..) {
            let word = (completion.word as u32).to_le_bytes();
            // A place that is not in the ring is a lie, and the bus's to judge.
            let _ = context.bus.write(ring.descriptor(completion.id).wrapping_add(12), &word);
            if context.lies.tells(Lie::BadIndex) {
                let other = context.lies.random().below(ring.size.into()) as u32;
                let _ = context.bus.write(ring.descriptor(other).wrapping_add(12), &DD.to_le_bytes());
            }
            if context.lies.tells(Lie::Garbage) {
                super::garbage(context, ring);
            }
            if context.lies.tells(Lie::SpuriousInterrupt) {
                *around.cause |= Cause::RXT0;
            }
        }
    }

    fn descriptor(
        &mut self,
        context: &mut Context<'_>,
        around: &mut Around<'_>,
        address: u64,
        lower: u32,
        upper: u32,
    ) {
        let command = (lower >> 24) as u8;
        let extended = command & DEXT != 0;
        if extended && lower >> 20 & 0xf == 0 {
            self.context = offload_context(address, lower, upper);
            around.statistics.add(regs::TSCTC, u64::from(command & IC_OR_TSE != 0));
            return;
        }
        let segmented = extended && command & IC_OR_TSE != 0;
        let length = if extended { lower & 0xf_ffff } else { lower & 0xffff } as usize;
        let most = if segmented { LONGEST_SEGMENTED } else { LONGEST };
        if self.packet.is_empty() {
            // Options count in a packet's first descriptor.
            let options = (upper >> 8) as u8;
            self.checksums =
                Checksums { ip: extended && options & IXSM != 0, transport: extended && options & TXSM != 0 };
        }
        let start = self.packet.len();
        if start + length > most {
            self.spoilt = true;
        } else if !self.spoilt && length > 0 {
            self.packet.resize(start + length, 0);
            self.spoilt = context.bus.read(address, &mut self.packet[start..]).is_err();
        }
        if command & EOP == 0 {
            return;
        }
        let mut packet = std::mem::take(&mut self.packet);
        if !std::mem::take(&mut self.spoilt) && !packet.is_empty() {
            let tag = around.tags.filter(|_| command & VLE != 0).map(|vet| (vet, (upper >> 16) as u16));
            let mut send = |frame| finish(context, around, tag, frame);
            if segmented {
                offload::segment(&packet, &self.context, self.checksums, &mut send);
            } else if extended {
                offload::checksums(&mut packet, &self.context, self.checksums);
                send(packet);
                return;
            } else {
                if command & IC_OR_TSE != 0 {
                    let place =
                        ChecksumPlace { start: (upper >> 8) as u8, offset: (lower >> 16) as u8, end: 0 };
                    place.put(&mut packet);
                }
                send(packet);
                return;
            }
        }
        // The allocation serves the next packet.
        packet.clear();
        self.packet = packet;
    }
}

/// The way of one packet to the wire: tag, padding, counting.
fn finish(context: &mut Context<'_>, around: &mut Around<'_>, tag: Option<(u32, u16)>, mut frame: Vec<u8>) {
    if let Some((vet, tag)) = tag
        && frame.len() >= 12
    {
        let [a, b] = (vet as u16).to_be_bytes();
        let [c, d] = tag.to_be_bytes();
        frame.splice(12..12, [a, b, c, d]);
    }
    if frame.len() < SHORTEST && around.tctl.contains(Tctl::PSP) {
        frame.resize(SHORTEST, 0);
    }
    around.statistics.sent(&frame);
    context.port.send(frame);
}

fn offload_context(address: u64, lower: u32, upper: u32) -> OffloadContext {
    let place =
        |bits: u32| ChecksumPlace { start: bits as u8, offset: (bits >> 8) as u8, end: (bits >> 16) as u16 };
    let command = (lower >> 24) as u8;
    OffloadContext {
        ip: place(address as u32),
        transport: place((address >> 32) as u32),
        header: (upper >> 8) as u8,
        mss: (upper >> 16) as u16,
        tcp: command & TUCMD_TCP != 0,
        ipv4: command & TUCMD_IP != 0,
    }
}
