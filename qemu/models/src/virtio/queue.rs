//! A queue with its registers: from what the driver writes into the common configuration to a ring.

use std::time::Duration;

use super::features::Features;
use super::packed::PackedRing;
use super::ring::{Areas, Chain, Ring, RingFault};
use super::split::SplitRing;
use crate::bus::Bus;
use crate::faults::{Completion, Completions, Lie};
use crate::model::Context;

/// VIRTIO_MSI_NO_VECTOR.
pub(super) const NO_VECTOR: u16 = 0xffff;

pub(super) struct Queue {
    /// Descriptors at most.
    most: u16,
    pub(super) size: u16,
    pub(super) vector: u16,
    pub(super) areas: Areas,
    ring: Option<Ring>,
    completions: Completions,
    out: Vec<Completion>,
    /// Something was given back, and the driver not yet asked whether it wants an interrupt.
    unsignalled: bool,
    /// A lie: an interrupt for nothing.
    spurious: bool,
    /// There may be chains that were not looked at.
    pub(super) awake: bool,
}

impl Queue {
    pub(super) fn new(most: u16) -> Self {
        Self {
            most,
            size: most,
            vector: NO_VECTOR,
            areas: Areas::default(),
            ring: None,
            completions: Completions::default(),
            out: Vec::new(),
            unsignalled: false,
            spurious: false,
            awake: false,
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.most);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.ring.is_some()
    }

    /// queue_size, which the driver may make smaller.
    pub(super) fn set_size(&mut self, size: u16, packed: bool) {
        if self.ring.is_none() && (1..=self.most).contains(&size) && (packed || size.is_power_of_two()) {
            self.size = size;
        }
    }

    /// queue_enable. A queue whose areas cannot be ones stays disabled.
    pub(super) fn enable(&mut self, features: Features) {
        if self.ring.is_some() {
            return;
        }
        let event_idx = features.contains(Features::RING_EVENT_IDX);
        self.ring = if features.contains(Features::RING_PACKED) {
            PackedRing::new(self.size, self.areas, event_idx).map(Ring::Packed)
        } else {
            SplitRing::new(self.size, self.areas, event_idx).map(Ring::Split)
        };
        self.awake = self.ring.is_some();
    }

    /// The next chain. With none, the driver is asked to notify.
    pub(super) fn pop(&mut self, bus: &mut dyn Bus, chain: &mut Chain) -> Result<bool, RingFault> {
        let Some(ring) = self.ring.as_mut().filter(|_| self.awake) else { return Ok(false) };
        if ring.pop(bus, chain)? {
            return Ok(true);
        }
        self.awake = ring.listen(bus)?;
        if self.awake { ring.pop(bus, chain) } else { Ok(false) }
    }

    /// The driver notified.
    pub(super) fn wake(&mut self, bus: &mut dyn Bus) -> Result<(), RingFault> {
        if let Some(ring) = self.ring.as_mut().filter(|_| !self.awake) {
            self.awake = true;
            ring.silence(bus)?;
        }
        Ok(())
    }

    /// Gives a chain back, unless a lie is told about it.
    pub(super) fn give_back(
        &mut self,
        context: &mut Context<'_>,
        id: u16,
        length: usize,
    ) -> Result<(), RingFault> {
        let completion = Completion { id: id.into(), length: length as u32, word: 0 };
        self.completions.pass(context.lies, context.now, completion, &mut self.out);
        self.write_out(context)
    }

    /// Gives back what was held until now; answers when the next is due.
    pub(super) fn release(&mut self, context: &mut Context<'_>) -> Result<Option<Duration>, RingFault> {
        let due = self.completions.release(context.now, &mut self.out);
        if !self.out.is_empty() {
            self.write_out(context)?;
        }
        Ok(due)
    }

    fn write_out(&mut self, context: &mut Context<'_>) -> Result<(), RingFault> {
        let Some(ring) = &mut self.ring else {
            self.out.clear();
            return Ok(());
        };
        for completion in self.out.drain(..) {
            ring.push(context.bus, completion)?;
            self.unsignalled = true;
            if context.lies.tells(Lie::BadIndex) {
                ring.mislead(context.bus, context.lies);
            }
            if context.lies.tells(Lie::Garbage) {
                ring.garble(context.bus, context.lies);
            }
            self.spurious |= context.lies.tells(Lie::SpuriousInterrupt);
        }
        Ok(())
    }

    /// Whether to interrupt now.
    pub(super) fn interrupts(&mut self, context: &mut Context<'_>) -> Result<bool, RingFault> {
        let spurious = std::mem::take(&mut self.spurious);
        match &mut self.ring {
            Some(ring) if std::mem::take(&mut self.unsignalled) => {
                Ok(ring.wants_interrupt(context.bus)? || spurious)
            }
            _ => Ok(spurious),
        }
    }
}
