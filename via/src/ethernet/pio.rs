//! Interfaces of class Pio: their frames are written into adapter memory, and fetched from there.
//!
//! A message is one frame, and has the slot of its number in the send queue, modulo the slots of the window. The queue is
//! no deeper than there are slots, and a descriptor leaves it only when it was acknowledged and the adapter is done with
//! all copies of its frame: so a slot is written anew only when nothing of the last message can be needed any more. When
//! a frame is sent again, its payload lies there still, and only the header is stored.

use std::sync::Arc;

use uvia_driver::dma::DmaDomain;
use uvia_driver::nic::Nic;
use uvia_driver::pio::{AdapterMemory, SLOT, SLOTS, STORE, Window};

use super::transmit::Transmitter;
use crate::engine::{FrameToken, PayloadPart, Sent};
use crate::pio::{HEAD, MTU};
use crate::vi::Image;
use crate::wire;
use crate::{EndpointClass, Error, PioMissing, PioProperties, Result, ViAttributes, ViId};

/// The windows of a NIC's interfaces. The adapter is closed before it: nothing is in flight when it is dropped.
pub(super) struct PioPort {
    /// The adapter memory, or why interfaces of this class cannot be.
    memory: std::result::Result<Arc<AdapterMemory>, &'static str>,
    /// Longest message, bytes.
    mtu: usize,
    /// By the interface's place in the engine's table.
    owners: Vec<Option<Box<Owner>>>,
    /// How many there are.
    count: usize,
}

/// An interface with its window.
struct Owner {
    vi: ViId,
    window: Window,
    /// What payload each slot has.
    filled: [Option<Filled>; SLOTS],
    /// Which template's image each slot has, by its number; 0 for none.
    images: [u64; SLOTS],
}

/// Names a frame's payload: the message's number in its queue, where in the message, and how long.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Filled {
    work: u32,
    offset: u32,
    len: usize,
}

impl PioPort {
    /// `native_mtu` is what fits a frame of the adapter.
    pub(super) fn new(
        memory: std::result::Result<Arc<AdapterMemory>, &'static str>,
        native_mtu: usize,
    ) -> Self {
        Self { memory, mtu: MTU.min(native_mtu), owners: Vec::new(), count: 0 }
    }

    fn memory(&self) -> Result<&Arc<AdapterMemory>> {
        self.memory
            .as_ref()
            .map_err(|why| Error::ClassUnavailable { class: EndpointClass::Pio, why: (*why).to_owned() })
    }

    /// The classes that there are.
    pub(super) fn classes(&self) -> &'static [EndpointClass] {
        match self.memory {
            Ok(_) => &[EndpointClass::Dma, EndpointClass::Pio],
            Err(_) => &[EndpointClass::Dma],
        }
    }

    /// What interfaces of this class can do, and how many more there can be.
    ///
    /// # Errors
    /// [`Error::ClassUnavailable`].
    pub(super) fn properties(&self) -> Result<PioProperties> {
        let memory = self.memory()?;
        let windows = memory.windows();
        Ok(PioProperties {
            memory: memory.name().to_owned(),
            caching: memory.caching(),
            windows: windows.windows,
            windows_left: windows.left,
            slots: SLOTS,
            mtu: self.mtu as u32,
            store_width: STORE,
            alignment: STORE,
            missing: PioMissing::all(),
        })
    }

    /// Refuses what is beyond the class.
    pub(super) fn check(&self, attributes: &ViAttributes) -> Result<()> {
        self.memory()?;
        attributes.check_pio(SLOTS, self.mtu)
    }

    /// Leases a window for an interface that is about to be created.
    pub(super) fn lease(&self, domain: &Arc<dyn DmaDomain>, nic: &str) -> Result<Window> {
        Ok(self.memory()?.lease(domain.clone(), nic)?)
    }

    /// Gives an interface its window.
    pub(super) fn install(&mut self, vi: ViId, window: Window) {
        let place = vi.slot();
        if self.owners.len() <= place {
            self.owners.resize_with(place + 1, || None);
        }
        self.owners[place] = Some(Box::new(Owner { vi, window, filled: [None; SLOTS], images: [0; SLOTS] }));
        self.count += 1;
    }

    /// An interface is no more: its window is given back.
    pub(super) fn release(&mut self, vi: ViId) {
        if let Some(place) = self.owners.get_mut(vi.slot())
            && place.take_if(|owner| owner.vi == vi).is_some()
        {
            self.count -= 1;
        }
    }

    /// Whether there are any interfaces of this class.
    pub(super) fn is_in_use(&self) -> bool {
        self.count != 0
    }

    /// Whether the adapter memory answers.
    pub(super) fn look_after(&self) -> Result<()> {
        match &self.memory {
            Ok(memory) if self.is_in_use() => Ok(memory.check()?),
            _ => Ok(()),
        }
    }

    fn owner(&mut self, token: FrameToken) -> Option<&mut Owner> {
        self.owners.get_mut(token.place()?)?.as_deref_mut()
    }

    /// Writes a frame into its slot and puts it into the adapter's ring; `None` when it is of no interface of this class.
    pub(super) fn transmit(
        &mut self,
        adapter: &mut dyn Nic,
        transmitter: &mut Transmitter,
        header: &[u8],
        payload: &[PayloadPart<'_>],
        token: FrameToken,
    ) -> Option<Result<Sent>> {
        let owner = self.owner(token)?;
        let number = token.work() as usize % SLOTS;
        // The adapter may still fetch an earlier copy, whose header must not change under it.
        let Some(mut slot) = owner.window.slot(number) else { return Some(Ok(Sent::Full)) };
        let len: usize = payload.iter().map(|part| part.len).sum();
        if header.len() > HEAD || len > SLOT - HEAD {
            return Some(Err(beyond(header.len(), len)));
        }
        let what = Filled { work: token.work(), offset: wire::u32_at(header, OFFSET_AT), len };
        if owner.filled[number] != Some(what) {
            owner.filled[number] = None;
            owner.images[number] = 0;
            if !put(&mut slot, payload) {
                return Some(Ok(Sent::Gone));
            }
            owner.filled[number] = Some(what);
        }
        let start = slot.put_before(HEAD, header);
        let sent = transmitter.transmit_from(adapter, slot.send(start..HEAD + len), token);
        if !matches!(sent, Ok(Sent::Referenced)) {
            owner.window.landed(number);
        }
        Some(sent)
    }

    /// Stores what a slot lacks of a template, for the descriptor of that number, which is posted next; false when the slot
    /// is not free.
    pub(super) fn put_template(&mut self, vi: ViId, work: u32, image: &mut Image) -> bool {
        let Some(owner) = self.owners.get_mut(vi.slot()).and_then(Option::as_deref_mut) else { return false };
        let number = work as usize % SLOTS;
        let Some(mut slot) = owner.window.slot(number).filter(|_| owner.vi == vi) else { return false };
        let changed = image.take_changed(number);
        let mut lacking = if owner.images[number] == image.number() { changed } else { image.all() };
        while lacking != 0 {
            let word = lacking.trailing_zeros() as usize;
            slot.put_words(HEAD + word * STORE, &[image.word(word)]);
            lacking &= lacking - 1;
        }
        owner.images[number] = image.number();
        owner.filled[number] = Some(Filled { work, offset: 0, len: image.len() });
        true
    }

    /// The adapter is done with a frame.
    pub(super) fn landed(&mut self, token: FrameToken) {
        if let Some(owner) = self.owner(token) {
            owner.window.landed(token.work() as usize % SLOTS);
        }
    }
}

impl Drop for PioPort {
    fn drop(&mut self) {
        for owner in self.owners.iter_mut().flatten() {
            owner.window.quieted();
        }
    }
}

/// Where a frame says where in the message its payload belongs.
const OFFSET_AT: usize = 44;

/// Stores a payload; false when a part's memory is gone.
fn put(slot: &mut uvia_driver::pio::Slot<'_>, payload: &[PayloadPart<'_>]) -> bool {
    if let [part] = payload {
        return part.region.put_into(part.offset, slot, HEAD, part.len);
    }
    // Parts of any length follow each other closely, and are made into words here.
    let mut bytes = [0; MTU];
    let mut at = 0;
    for part in payload {
        if part.region.read(part.offset, &mut bytes[at..at + part.len]).is_err() {
            return false;
        }
        at += part.len;
    }
    slot.put(HEAD, &bytes[..at]);
    true
}

/// The engine was told how long messages may be.
#[cold]
fn beyond(header: usize, len: usize) -> Error {
    Error::Parameter(format!("a header of {header} bytes and {len} of payload do not fit a slot of {SLOT}"))
}
