//! When a rail dies: what was not known to have come goes once more, by another.
//!
//! Each rail carries the stream without a gap, from a packet on that the other end may have already. So who receives
//! takes the packet that it expects from whatever rail, and drops those that it had.

use super::Core;
use super::connection::{NO_RAIL, Way};
use super::stream::Open;
use crate::Result;
use crate::packet::{HEADER, Header};
use crate::port::LinkId;

impl Core {
    /// A link is gone.
    #[cold]
    pub(super) fn down(&mut self, rail: usize, id: LinkId, why: String) -> Result<()> {
        let connection = self.connection(id);
        let before = std::mem::replace(&mut connection.ways[rail], Way::Down);
        if before == Way::Down {
            return Ok(());
        }
        connection.set_plain(NO_RAIL);
        connection.dead |= 1 << rail;
        tracing::debug!(rank = connection.peer, channel = connection.channel, rail, "a link is gone: {why}");
        let next = connection.up().next();
        let waiting = connection.ways.contains(&Way::Asked);
        let was_active = connection.active == Some(rail);
        if was_active {
            connection.active = next;
        }
        self.puts_are_void(id, rail);
        if next.is_none() && !waiting {
            self.fail(id, &why);
            return Ok(());
        }
        let connection = self.connection(id);
        if was_active {
            connection.replaying = Some(connection.retained.len());
        }
        self.expose_anew(id)?;
        self.replay(id)?;
        if self.connection(id).active.is_some() {
            self.tell_now(id)?;
        }
        self.go_on(id)
    }

    /// The peer has left rails: we do too, before anything is made of what it says next.
    #[cold]
    pub(super) fn peer_left(&mut self, id: LinkId, dead: u8) -> Result<()> {
        for rail in 0..self.rails.len() {
            let way = self.connection(id).ways[rail];
            if dead & 1 << rail != 0 && way != Way::Down {
                self.rails[rail].port.leave(id);
                self.down(rail, id, "the other end left it".to_owned())?;
            }
        }
        self.connection(id).dead |= dead;
        Ok(())
    }

    /// Sends kept packets once more, by the rail that is used now.
    pub(super) fn replay(&mut self, id: LinkId) -> Result<()> {
        loop {
            let connection = self.connection(id);
            let Some(left) = connection.replaying else { return Ok(()) };
            if left == 0 {
                connection.replaying = None;
                return Ok(());
            }
            let Some(rail) = connection.active else { return Ok(()) };
            let at = connection.retained.len() - left;
            let Some(old) = connection.retained.get(at).copied() else {
                connection.replaying = None;
                return Ok(());
            };
            let Some(buffer) = self.rails[rail].port.buffer(id) else {
                self.stir(id);
                return Ok(());
            };
            // SAFETY: a kept buffer stays as it was sent until it is released, also when its link is gone.
            let header = unsafe { Header::read(old.span) };
            let used = old.span.len - HEADER;
            let open = Open { rail, buffer };
            // SAFETY: both are buffers of ours; the new one is not posted yet.
            unsafe { open.room(0).fill(old.span.skip(HEADER)) };
            let connection = self.connection(id);
            connection.replaying = Some(left - 1);
            if let Some(retained) = connection.retained.get_mut(at) {
                retained.rail = rail;
                retained.index = buffer.index;
                retained.span = buffer.span.first(HEADER + used);
            }
            self.rails[old.rail].port.release(id, old.index);
            self.send_packet(id, open, used, header.unwrap_or_default(), true)?;
        }
    }
}
