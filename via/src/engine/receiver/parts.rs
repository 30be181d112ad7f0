//! Frames that come in parts, since the way to here has come to carry less than it did: all parts of one have its number, and
//! only those of the frame that is next are taken, one behind the other. Of what was taken already a part, or the frame itself
//! should it come late, may be passed over.

use super::Piece;
use crate::engine::endpoint::Endpoint;
use crate::wire::data;

impl Endpoint {
    /// Cuts off what is here already of the next frame, of which parts have come: `from` is where its payload begins. False
    /// when nothing new is left, or what is before it has not come: it is to be forgotten then.
    #[cold]
    pub(super) fn pass_over(&mut self, piece: &mut Piece, from: &mut usize) -> bool {
        let (message, here) = if piece.flags & data::ANSWER != 0 {
            self.reads.expected()
        } else {
            (self.receiver.message, self.receiver.offset)
        };
        if piece.message != message {
            // No frame of this number is of another message: that is refused where pieces are taken.
            return true;
        }
        // Who sends it waits to be told what there is.
        self.receiver.owes |= piece.flags & data::MORE == 0;
        if piece.offset > here {
            return false;
        }
        let known = here - piece.offset;
        if known >= piece.len {
            // An empty frame is whole in any case.
            return piece.len == 0;
        }
        piece.offset = here;
        piece.len -= known;
        *from += known as usize;
        true
    }
}
