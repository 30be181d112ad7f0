//! Messages that are prebuilt in adapter memory, and sent again and again with a few bytes changed.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use uvia_driver::pio::SLOTS;

use super::{PostError, Vi};
use crate::pio::MTU;
use crate::{Descriptor, Error, MemoryRegion, Operation, Result, Segment, ViId, WorkQueue};

/// Bytes of a word, the least that is stored into adapter memory.
const WORD: usize = size_of::<u64>();
/// Words of the longest message.
const WORDS: usize = MTU / WORD;

const _: () = assert!(MTU.is_multiple_of(WORD) && WORDS <= u64::BITS as usize);

/// A message that lies prebuilt in the slots of an interface of class Pio. It is changed at any time, a few bytes at a
/// time, and sent as it is then: of what lies in a slot only the words that were changed are stored anew.
///
/// It is as many messages as the interface has slots: each that is sent stays as it was then, in the slot of its
/// descriptor, until it was acknowledged. Other messages may be sent in between; they cost the template the words that
/// they overwrite.
#[derive(Debug)]
pub struct Template {
    vi: ViId,
    image: Image,
    /// What the engine takes for the message's memory: bytes of nobody's, as many as the message has.
    region: MemoryRegion,
}

/// A message in the host's memory, and how it differs from what lies in slots.
#[derive(Debug)]
pub(crate) struct Image {
    number: u64,
    len: usize,
    words: Box<[[u8; WORD]; WORDS]>,
    /// By slot, a bit a word: it was changed since the message was put there.
    changed: [u64; SLOTS],
}

/// Numbers of images; 0 is nobody's.
static NUMBER: AtomicU64 = AtomicU64::new(1);

impl Image {
    fn new(bytes: &[u8]) -> Self {
        let mut words = Box::new([[0; WORD]; WORDS]);
        words.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        // Relaxed: only that they differ matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { number, len: bytes.len(), words, changed: [0; SLOTS] }
    }

    /// What no other image has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.words.as_flattened()[..self.len]
    }

    pub(crate) fn word(&self, n: usize) -> u64 {
        u64::from_le_bytes(self.words[n])
    }

    /// A bit for each of its words.
    pub(crate) fn all(&self) -> u64 {
        mask(0..self.len)
    }

    /// What was changed since it was put into a slot, which it is now.
    pub(crate) fn take_changed(&mut self, slot: usize) -> u64 {
        self.changed.get_mut(slot).map_or(u64::MAX, std::mem::take)
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        if at > self.len || bytes.len() > self.len - at {
            return Err(Error::Parameter(format!(
                "a patch of {} bytes at {at} does not lie within the template's {} bytes",
                bytes.len(),
                self.len
            )));
        }
        self.words.as_flattened_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        let touched = mask(at..at + bytes.len());
        for slot in &mut self.changed {
            *slot |= touched;
        }
        Ok(())
    }
}

/// A bit for each word that has some of these bytes.
fn mask(bytes: std::ops::Range<usize>) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    let (first, last) = (bytes.start / WORD, (bytes.end - 1) / WORD);
    u64::MAX >> (u64::BITS as usize - 1 - last) & u64::MAX << first
}

impl Template {
    /// Changes some bytes, for what is sent from now on.
    ///
    /// # Errors
    /// [`Error::Parameter`] when they do not lie within the message.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.image.patch(at, bytes)
    }
}

/// The message as it would be sent now.
impl Deref for Template {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.image.bytes()
    }
}

impl Vi {
    /// A message that is to be sent many times, as [`Template`].
    ///
    /// # Errors
    /// [`Error::NotInClass`] for an interface that is not of class Pio, [`Error::TooLong`] for more bytes than its maximum
    /// transfer size; [`Error::Resource`].
    pub fn template(&self, message: &[u8]) -> Result<Template> {
        self.check_injection(message.len())?;
        let region = self.nic.core().provider.buffer(message.len().max(1))?;
        Ok(Template { vi: self.id, image: Image::new(message), region })
    }

    /// Sends a template as it is now. It may be changed, or sent again, as soon as this returns. The descriptor's segments
    /// are replaced by one that stands for the template; one that is used again allocates nothing. Immediate data and the
    /// fence are as for [`Vi::post_send`], and so is its completion, which gives the credit back.
    ///
    /// To an interface of the same NIC, and where frames are checked from end to end, the message is copied into a buffer
    /// of the descriptor's as by [`Vi::inject`].
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when all credits are out; [`Error::Parameter`] for a template of another interface;
    /// [`Error::TooLong`] where the maximum transfer size was lowered since it was made.
    pub fn send_template(
        &self,
        template: &mut Template,
        mut descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<PostError>> {
        if let Err(error) = self.check_template(template, &descriptor) {
            return Err(PostError::new(error, descriptor));
        }
        if !self.credits.take(WorkQueue::Send, self.send.depth) {
            return Err(self.full(WorkQueue::Send, descriptor));
        }
        let len = template.image.len() as u32;
        // The message is in its slot before anything else can be posted: so this waits for the turn.
        let mut core = self.nic.ready_core();
        if !core.provider.put_template(self.id, &mut template.image) {
            drop(core);
            return self.inject_template(template, descriptor);
        }
        let known = matches!(&descriptor.segments[..], [segment] if segment.region().handle() == template.region.handle());
        if !known {
            descriptor.segments.clear();
            descriptor.segments.push(Segment::new(template.region.clone(), 0, len));
        }
        self.nic.post_with(&mut core, self.id, WorkQueue::Send, descriptor);
        Ok(())
    }

    /// Sends it as bytes that lie anywhere; the credit is taken.
    #[cold]
    fn inject_template(
        &self,
        template: &Template,
        mut descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<PostError>> {
        match self.buffer(&mut descriptor, template.len()) {
            Ok(buffer) => {
                self.inject_from(buffer, descriptor, template);
                Ok(())
            }
            Err(error) => {
                self.credits.undo(WorkQueue::Send);
                Err(PostError::new(error, descriptor))
            }
        }
    }

    fn check_template(&self, template: &Template, descriptor: &Descriptor) -> Result<()> {
        if template.vi != self.id {
            return Err(Error::Parameter("the template is another interface's".to_owned()));
        }
        self.check_injection(template.len())?;
        match descriptor.operation {
            Operation::Send => Ok(()),
            _ => Err(Error::NotInClass { class: crate::EndpointClass::Pio, what: "RDMA" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_word_that_is_touched() {
        for start in 0..MTU {
            for end in [start, start + 1, start + 7, start + 8, start + 9, start + 64, MTU] {
                let end = end.min(MTU);
                let expected = (start..end).fold(0, |mask, byte| mask | 1u64 << (byte / WORD));
                assert_eq!(mask(start..end), expected, "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_patch_is_owed_to_every_slot_once() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut image = Image::new(&bytes);
        assert_eq!((image.all().count_ones(), image.take_changed(0)), (13, 0));
        image.patch(6, &[1, 2, 3]).unwrap();
        assert_eq!(image.take_changed(3), 0b11);
        image.patch(99, &[4]).unwrap();
        assert_eq!((image.take_changed(3), image.take_changed(15)), (1 << 12, 1 << 12 | 0b11));
        assert_eq!((image.take_changed(3), &image.bytes()[5..10]), (0, &[5, 1, 2, 3, 9][..]));
        assert_eq!(image.word(12), u64::from_le_bytes([96, 97, 98, 4, 0, 0, 0, 0]));
        for (at, len) in [(100, 1), (99, 2), (101, 0), (usize::MAX, 1)] {
            assert!(matches!(image.patch(at, &vec![0; len]), Err(Error::Parameter(_))));
        }
        assert_eq!(image.take_changed(7), 1 << 12 | 0b11, "what was refused changed nothing");
    }
}
