//! Whether the two ends have the same length of a long piece. Its receiver names a place with its length, and its sender
//! offers one so: who hears of another length than its own puts or reads nothing, since that would go beyond what the other
//! end has, and maybe over memory that was never named. A sender says what it has instead, and gives its message up; so the
//! receiver can tell what was wrong.

use super::Core;
use super::connection::Connection;
use super::control::Control;
use super::long::{LongIn, LongOut};
use super::pull::Pull;
use crate::Error;
use crate::packet::{Grant, Length};
use crate::port::LinkId;

impl LongOut {
    /// Takes places on that a receiver has named. Answers whether that has to be told that ours has another length; what is
    /// offered it reads, and finds out by itself.
    pub(super) fn grant(&mut self, len: Length, grants: &[Grant], rails: usize) -> bool {
        if self.offer.is_none() && len.get() != self.span.len as u64 {
            return self.refuse();
        }
        for grant in grants {
            let known = self.grants.iter().any(|known| known.rail == grant.rail);
            if !known && (grant.rail.get() as usize) < rails {
                self.grants.push(*grant);
            }
        }
        false
    }
}

impl LongIn {
    /// The sender has it with so many bytes.
    fn is_packed_as(&mut self, len: Length) {
        if len.get() != self.span.len as u64 {
            self.packed = Some(len.get());
        }
    }

    /// Has it read, unless it is of another length.
    pub(super) fn pull_by(&mut self, mut pull: Pull) {
        self.is_packed_as(pull.len);
        if self.packed.is_some() {
            pull.stop();
        }
        self.pull = Some(pull);
    }

    /// What is wrong with it, if its sender has another length.
    fn mismatch(&self, rank: usize) -> Option<Error> {
        let describe = |len: u64| format!("a long piece of {len} bytes");
        let (position, unpacked) = (self.position, describe(self.span.len as u64));
        self.packed.map(|packed| Error::Mismatch { rank, position, packed: describe(packed), unpacked })
    }
}

impl Connection {
    /// Tells the receiver the length of a piece of the message that is packed, which has another one there.
    pub(super) fn tell_length(&mut self, number: u16) {
        if let Some(long) = self.longs_out.iter().find(|long| long.number == number) {
            let (message, len) = (long.message, long.span.len as u64);
            self.controls.push_back(Control::Length { message, long: number, len });
        }
    }

    /// The sender has another length of a piece that we have named a place for.
    pub(super) fn length_is(&mut self, message: u32, number: u16, len: Length) {
        if message == self.message_in
            && let Some(long) = self.longs_in.iter_mut().find(|long| long.number == number)
        {
            long.is_packed_as(len);
        }
    }

    /// A piece of the message that is being unpacked is of another length than its sender's: that one, or any.
    pub(super) fn find_mismatch(&self, number: Option<u16>) -> Option<Error> {
        let mut longs = self.longs_in.iter().filter(|long| number.is_none_or(|number| long.number == number));
        longs.find_map(|long| long.mismatch(self.peer))
    }
}

impl Core {
    /// Why the message that is being unpacked was given up by its sender.
    pub(crate) fn why_abandoned(&mut self, id: LinkId) -> Error {
        let connection = self.connection(id);
        connection.find_mismatch(None).unwrap_or(Error::Abandoned { rank: connection.peer })
    }
}
