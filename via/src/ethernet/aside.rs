//! Frames that do not go by way of the header slots.

use uvia_driver::nic::Nic;

use super::{Due, Port};
use crate::{ViId, engine};

impl Port {
    /// Takes a frame that does not go by way of the header slots: none goes while an adapter's fault is to be told, those
    /// to our own station are kept, and those of class Pio lie in adapter memory. None for all others.
    #[cold]
    pub(super) fn aside(
        &mut self,
        adapter: &mut dyn Nic,
        header: &[u8],
        payload: &[engine::PayloadPart<'_>],
        token: engine::FrameToken,
    ) -> Option<engine::Sent> {
        if self.due.contains(Due::FAULT) {
            return Some(engine::Sent::Full);
        }
        if self.due.contains(Due::LOOPS)
            && let Some(sent) = self.loops(header, payload)
        {
            return Some(sent);
        }
        if !self.due.contains(Due::PIO) {
            return None;
        }
        Some(match self.pio.transmit(adapter, &mut self.transmitter, header, payload, token)? {
            Ok(sent) => {
                self.due |= Due::FLUSH;
                sent
            }
            Err(e) => self.fails(e),
        })
    }

    /// An interface is no more.
    #[cold]
    pub(super) fn forget(&mut self, vi: ViId) {
        self.pio.release(vi);
        self.due.set(Due::PIO, self.pio.is_in_use());
    }

    /// Keeps a frame to our own station; none for frames to others.
    fn loops(&mut self, header: &[u8], payload: &[engine::PayloadPart<'_>]) -> Option<engine::Sent> {
        if header.get(..6) != Some(&self.mac.0[..]) {
            return None;
        }
        let sent = self.loopback.keep(header, payload);
        self.due |= Due::LOOPED;
        if let Some(bell) = self.bell.as_ref().filter(|_| self.armed) {
            bell.ring();
        }
        Some(sent)
    }
}
