//! The receiver (8254x manual, 3.2).

use std::time::Duration;

use super::fcs::fcs;
use super::filter;
use super::regs::{self, Cause, Rctl};
use super::ring::{Direction, Ring};
use super::statistics::Statistics;
use crate::faults::{Completion, Completions, Lie};
use crate::model::Context;
use crate::port::Frame;
use crate::shared::SharedPages;

/// Bits of a descriptor's status (3.2.3.1).
const DD: u8 = 1 << 0;
const EOP: u8 = 1 << 1;
/// Checksums were not looked at.
const IXSM: u8 = 1 << 2;
/// A VLAN tag was taken out.
const VP: u8 = 1 << 3;

/// The longest frame without RCTL.LPE and with it, check sequence included (13.7.36).
const LONGEST_USUAL: usize = 1522;
const LONGEST_JUMBO: usize = 16384;
/// Bytes of the check sequence.
const FCS: usize = 4;
/// The shortest frame: the wire pads what is shorter.
const SHORTEST: usize = 60;

/// What the receiver keeps between frames.
#[derive(Debug, Default)]
pub struct Receiver {
    /// A frame that passed the filters and waits for descriptors, as they are to hold it; and its tag.
    waiting: Option<(Frame, Option<u16>)>,
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
    pub rctl: Rctl,
    /// CTRL.VME: tags are taken out.
    pub strip: bool,
    /// All registers but the rings'.
    pub registers: &'a [u32],
    pub cause: &'a mut Cause,
}

impl Receiver {
    /// As after power-on.
    pub fn reset(&mut self) {
        self.waiting = None;
        self.completions.clear();
        self.stuck = None;
    }

    /// The ring's registers or the receiver's were set: it tries again.
    pub fn unstick(&mut self) {
        self.stuck = None;
    }

    /// Takes up to `budget` frames; answers how many there were, and when the next late completion is due.
    pub fn work(
        &mut self,
        context: &mut Context<'_>,
        around: &mut Around<'_>,
        budget: usize,
    ) -> (usize, Option<Duration>) {
        let missed = context.port.missed();
        if missed > 0 {
            around.statistics.add(regs::MPC, missed);
            *around.cause |= Cause::RXO;
        }
        let due = self.completions.release(context.now, &mut self.out);
        if !around.rctl.contains(Rctl::EN) {
            self.out.clear();
            self.waiting = None;
            // A receiver that is off hears nothing.
            let deaf = std::iter::from_fn(|| context.port.receive()).take(budget).count();
            return (deaf, due);
        }
        let ring = Ring::load(around.pages, Direction::Receive).filter(|ring| self.stuck != Some(*ring));
        let Some(mut ring) = ring else {
            self.out.clear();
            return (0, due);
        };
        self.stuck = None;
        self.write_back(context, around, &ring);
        let mut done = 0;
        while done < budget {
            let frame = match self.waiting.take() {
                Some(frame) => frame,
                None => match self.next(context, around) {
                    Ok(frame) => frame,
                    Err(true) => {
                        done += 1;
                        continue;
                    }
                    Err(false) => break,
                },
            };
            let needed = frame.0.len().div_ceil(buffer_size(around.rctl)) as u32;
            if needed >= ring.size {
                // It never fits.
                around.statistics.add(regs::MPC, 1);
                done += 1;
                continue;
            }
            if needed > ring.available() {
                self.waiting = Some(frame);
                break;
            }
            done += 1;
            if !self.store(context, around, &mut ring, &frame.0, frame.1) {
                self.stuck = Some(ring);
                break;
            }
        }
        (done, due)
    }

    /// The next frame for us. Error: there was one, but not for us; or there was none.
    fn next(
        &mut self,
        context: &mut Context<'_>,
        around: &mut Around<'_>,
    ) -> Result<(Frame, Option<u16>), bool> {
        let mut frame = context.port.receive().ok_or(false)?;
        frame.resize(frame.len().max(SHORTEST), 0);
        around.statistics.arrived(frame.len());
        let read = |register: usize| around.registers.get(register / 4).copied().unwrap_or(0);
        if !filter::accepts(&frame, around.rctl, read) {
            return Err(true);
        }
        let tag = filter::tag(&frame, read(regs::VET));
        let longest = if around.rctl.contains(Rctl::LPE) { LONGEST_JUMBO } else { LONGEST_USUAL };
        if frame.len() + FCS > longest {
            around.statistics.add(regs::ROC, 1);
            return Err(true);
        }
        around.statistics.received(&frame);
        let tag = tag.filter(|_| around.strip);
        if tag.is_some() {
            frame.drain(12..16);
        }
        if !around.rctl.contains(Rctl::SECRC) {
            let fcs = fcs(&frame);
            frame.extend_from_slice(&fcs);
        }
        Ok((frame, tag))
    }

    /// Stores a frame that fits; false when a descriptor cannot be fetched.
    fn store(
        &mut self,
        context: &mut Context<'_>,
        around: &mut Around<'_>,
        ring: &mut Ring,
        frame: &[u8],
        tag: Option<u16>,
    ) -> bool {
        let mut left = frame;
        while !left.is_empty() {
            if ring.head == ring.tail {
                // Descriptors without a buffer used up those that were there: the rest is lost.
                return true;
            }
            let at = ring.head;
            let mut address = [0; 8];
            if context.bus.read(ring.descriptor(at), &mut address).is_err() {
                return false;
            }
            let address = u64::from_le_bytes(address);
            let mut part = &left[..0];
            if address != 0 {
                // One with a null address is passed over (3.2.5), and written back all the same.
                (part, left) = left.split_at(left.len().min(buffer_size(around.rctl)));
                let address = context.lies.storage(address);
                let _ = context.bus.write(address, part);
            }
            let end = left.is_empty() && !part.is_empty();
            let mut status = DD | IXSM;
            if end {
                status |= EOP;
            }
            if tag.is_some() {
                status |= VP;
            }
            let word = u64::from(status) << 32 | u64::from(tag.unwrap_or(0)) << 48;
            let completion = Completion { id: at, length: part.len() as u32, word };
            ring.advance(around.pages, Direction::Receive);
            self.completions.pass(context.lies, context.now, completion, &mut self.out);
            self.write_back(context, around, ring);
        }
        *around.cause |= Cause::RXT0;
        // RDMTS: a half, a quarter or an eighth of the ring is left.
        let threshold = ring.size >> (1 + (around.rctl.bits() >> 8 & 3)).min(3);
        if ring.available() <= threshold {
            *around.cause |= Cause::RXDMT0;
        }
        true
    }

    fn write_back(&mut self, context: &mut Context<'_>, around: &mut Around<'_>, ring: &Ring) {
        for completion in self.out.drain(..) {
            let word = completion.word | u64::from(completion.length & 0xffff);
            // A place that is not in the ring is a lie, and the bus's to judge.
            let _ = context.bus.write(ring.descriptor(completion.id).wrapping_add(8), &word.to_le_bytes());
            if context.lies.tells(Lie::BadIndex) {
                let other = context.lies.random().below(ring.size.into()) as u32;
                let word = u64::from(DD | EOP) << 32 | 60;
                let _ = context.bus.write(ring.descriptor(other).wrapping_add(8), &word.to_le_bytes());
            }
            if context.lies.tells(Lie::Garbage) {
                super::garbage(context, ring);
            }
            if context.lies.tells(Lie::SpuriousInterrupt) {
                *around.cause |= Cause::RXT0;
            }
        }
    }
}

/// Bytes of a buffer, by BSIZE and BSEX.
fn buffer_size(rctl: Rctl) -> usize {
    let size = 2048 >> (rctl.bits() >> 16 & 3);
    match (rctl.contains(Rctl::BSEX), size) {
        (false, size) => size,
        // Reserved.
        (true, 2048) => 2048,
        (true, size) => size * 16,
    }
}
