//! Errors that no descriptor tells of.

use super::Output;
use super::endpoint::Endpoint;
use super::receiver::Refusal;
use crate::{ConnectionLoss, ErrorCode};

impl Endpoint {
    /// A frame cannot be taken: tells what only this end knows of.
    #[cold]
    pub(super) fn report<O: Output + ?Sized>(&self, refusal: Refusal, out: &mut O) {
        let code = match refusal {
            Refusal::Empty => ErrorCode::ReceiveQueueEmpty,
            Refusal::RdmaWrite => ErrorCode::RdmaWriteProtection,
            Refusal::RdmaRead => ErrorCode::RdmaReadProtection,
            // Descriptors tell of the first two; the other is a lost connection like any.
            Refusal::Length | Refusal::Memory | Refusal::Protocol => return,
        };
        out.error(self.id, code);
    }

    /// The connection breaks: tells of it, and of transfers of the peer's that it cuts off, of which this end has no
    /// descriptor. Before it is forgotten what was under way.
    #[cold]
    pub(super) fn report_loss<O: Output + ?Sized>(&self, loss: ConnectionLoss, out: &mut O) {
        if self.receiver.is_within_write() && loss != ConnectionLoss::RdmaProtection {
            out.error(self.id, ErrorCode::RdmaWriteAbort);
        }
        if !self.reads.answers.is_empty() && self.has_unanswered() {
            out.error(self.id, ErrorCode::RdmaTransport);
        }
        out.error(self.id, ErrorCode::ConnectionLost);
    }

    /// Whether the peer has not all that it asked to read, as far as is known.
    fn has_unanswered(&self) -> bool {
        let (answers, una) = (&self.reads.answers, self.sender.acknowledged());
        let mut number = answers.head();
        while let Some(answer) = answers.get(number) {
            if !answer.has_arrived(una) {
                return true;
            }
            number = number.wrapping_add(1);
        }
        false
    }
}
