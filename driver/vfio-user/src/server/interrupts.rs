//! Interrupts, on their way from a device to its client.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Description;
use crate::wire::{irq, irq_set};

/// Signals a device's interrupts; clones are the same. Made by [`super::Server::interrupts`].
///
/// An interrupt that has nowhere to go yet, or is masked, waits: clients take routes away and set them again while
/// they enable more vectors, and an interrupt must not be lost meanwhile.
#[derive(Clone)]
pub struct Interrupts(Arc<Mutex<State>>);

struct State {
    kinds: Vec<Vec<Vector>>,
    /// The level of the pin.
    asserted: bool,
}

#[derive(Default)]
struct Vector {
    route: Option<OwnedFd>,
    masked: bool,
    pending: bool,
    /// Signalled when the device masks or unmasks the vector by itself.
    on_mask: Option<OwnedFd>,
    on_unmask: Option<OwnedFd>,
}

impl Interrupts {
    pub(super) fn new(description: &Description) -> Self {
        let vectors = |count: &u32| (0..*count).map(|_| Vector::default()).collect();
        let kinds = description.vectors.iter().map(vectors).collect();
        Self(Arc::new(Mutex::new(State { kinds, asserted: false })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is of one field; a panic elsewhere leaves nothing half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals a message-signalled interrupt ([`irq::MSI`], [`irq::MSIX`]): now, or when it is unmasked and routed.
    /// False when there is no such vector. The pin has a level instead: [`Self::set_intx`].
    pub fn trigger(&self, kind: u32, vector: u32) -> bool {
        if kind == irq::INTX {
            return false;
        }
        let mut state = self.state();
        let Some(vector) = state.vector(kind, vector) else { return false };
        vector.pending = true;
        vector.deliver();
        true
    }

    /// Sets the level of the INTx pin. While it is asserted, the client is signalled once, and again each time that
    /// it unmasks the pin.
    pub fn set_intx(&self, asserted: bool) {
        let mut state = self.state();
        state.asserted = asserted;
        state.deliver_intx();
    }

    /// Whether a vector is routed to the client.
    pub fn is_routed(&self, kind: u32, vector: u32) -> bool {
        self.state().vector(kind, vector).is_some_and(|vector| vector.route.is_some())
    }

    /// Whether the client has masked a vector (or, for the pin, has not unmasked it since the last interrupt).
    pub fn is_masked(&self, kind: u32, vector: u32) -> bool {
        self.state().vector(kind, vector).is_some_and(|vector| vector.masked)
    }

    /// Whether an interrupt waits, as the pending bits of MSI-X would say.
    pub fn is_pending(&self, kind: u32, vector: u32) -> bool {
        self.state().vector(kind, vector).is_some_and(|vector| vector.pending)
    }

    /// Forgets what waits.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.asserted = false;
        for vector in state.kinds.iter_mut().flatten() {
            vector.pending = false;
        }
    }

    /// Forgets all that a client has set.
    pub(super) fn detach(&self) {
        for vector in self.state().kinds.iter_mut().flatten() {
            *vector = Vector::default();
        }
    }

    /// DEVICE_SET_IRQS.
    pub(super) fn set(
        &self,
        flags: u32,
        kind: u32,
        start: u32,
        count: u32,
        bools: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let vectors = state.kinds.get_mut(kind as usize).ok_or(Errno::INVAL)?;
        let (data, action) = (flags & irq_set::DATA, flags & irq_set::ACTION);
        if flags & !(irq_set::DATA | irq_set::ACTION) != 0 || action.count_ones() != 1 {
            return Err(Errno::INVAL);
        }
        if count == 0 {
            // All routes of the kind away.
            if data != irq_set::DATA_NONE
                || action != irq_set::ACTION_TRIGGER
                || start != 0
                || !fds.is_empty()
            {
                return Err(Errno::INVAL);
            }
            for vector in vectors {
                // What waits goes on waiting.
                *vector = Vector { pending: vector.pending, ..Vector::default() };
            }
            return Ok(());
        }
        let range = (start as usize)..(start as usize).checked_add(count as usize).ok_or(Errno::INVAL)?;
        let vectors = vectors.get_mut(range).ok_or(Errno::INVAL)?;
        let intx = kind == irq::INTX;
        match data {
            irq_set::DATA_NONE if fds.is_empty() => {
                vectors.iter_mut().for_each(|vector| vector.act(action, intx));
            }
            irq_set::DATA_BOOL if fds.is_empty() && bools.len() == vectors.len() => {
                let chosen = vectors.iter_mut().zip(bools).filter(|(_, chosen)| **chosen != 0);
                chosen.for_each(|(vector, _)| vector.act(action, intx));
            }
            irq_set::DATA_EVENTFD if fds.is_empty() => {
                vectors.iter_mut().for_each(|vector| vector.route(action, None));
            }
            irq_set::DATA_EVENTFD if fds.len() == vectors.len() => {
                if !fds.iter().all(is_eventfd) {
                    return Err(Errno::BADF);
                }
                vectors.iter_mut().zip(fds).for_each(|(vector, fd)| vector.route(action, Some(fd)));
            }
            _ => return Err(Errno::INVAL),
        }
        if intx {
            state.deliver_intx();
        }
        Ok(())
    }
}

impl State {
    fn vector(&mut self, kind: u32, vector: u32) -> Option<&mut Vector> {
        self.kinds.get_mut(kind as usize)?.get_mut(vector as usize)
    }

    /// The pin masks itself with each interrupt, and is looked at again when the client unmasks it.
    fn deliver_intx(&mut self) {
        let asserted = self.asserted;
        let Some(pin) = self.vector(irq::INTX, 0) else { return };
        if asserted && !pin.masked && signal(pin.route.as_ref()) {
            pin.masked = true;
        }
    }
}

impl Vector {
    fn deliver(&mut self) {
        if self.pending && !self.masked && signal(self.route.as_ref()) {
            self.pending = false;
        }
    }

    fn route(&mut self, action: u32, fd: Option<OwnedFd>) {
        match action {
            irq_set::ACTION_MASK => self.on_mask = fd,
            irq_set::ACTION_UNMASK => self.on_unmask = fd,
            _ => {
                self.route = fd;
                self.deliver();
            }
        }
    }

    fn act(&mut self, action: u32, intx: bool) {
        match action {
            irq_set::ACTION_MASK => {
                self.masked = true;
                signal(self.on_mask.as_ref());
            }
            irq_set::ACTION_UNMASK => {
                self.masked = false;
                signal(self.on_unmask.as_ref());
                self.deliver();
            }
            // A trigger of the client's own is a test of the route: it does not wait, and masks nothing but the pin.
            _ => {
                if !self.masked && signal(self.route.as_ref()) && intx {
                    self.masked = true;
                }
            }
        }
    }
}

/// Signals an eventfd; false when there is none.
fn signal(event: Option<&OwnedFd>) -> bool {
    let Some(event) = event else { return false };
    // An eventfd whose counter is full would block, were it not for its flag; and then it is signalled already.
    match rustix::io::write(event, &1u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(e) => tracing::debug!("an interrupt's eventfd cannot be signalled: {e}"),
    }
    true
}

/// Whether it is an eventfd: writing to anything else of a client's could hang, or do harm. Makes it non-blocking,
/// for itself and the client (all users of eventfds poll them), since a full one would hang a write too.
fn is_eventfd(fd: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    if !link.is_ok_and(|link| link.to_str() == Some("anon_inode:[eventfd]")) {
        return false;
    }
    match rustix::fs::fcntl_getfl(fd.as_fd()) {
        Ok(flags) if flags.contains(OFlags::NONBLOCK) => true,
        Ok(flags) => rustix::fs::fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK).is_ok(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const ROUTE: u32 = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    const NONE: u32 = irq_set::DATA_NONE;

    fn interrupts() -> Interrupts {
        let description = Description::pci(256).with_vectors(irq::INTX, 1).with_vectors(irq::MSIX, 3);
        Interrupts::new(&description)
    }

    fn event() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        match rustix::io::read(event, &mut bytes[..]) {
            Ok(_) => u64::from_ne_bytes(bytes),
            Err(_) => 0,
        }
    }

    fn routed(interrupts: &Interrupts, kind: u32, vector: u32) -> OwnedFd {
        let event = event();
        interrupts.set(ROUTE, kind, vector, 1, &[], vec![event.try_clone().unwrap()]).unwrap();
        event
    }

    #[test]
    fn a_pin_is_signalled_once_until_it_is_unmasked() {
        let interrupts = interrupts();
        interrupts.set_intx(true);
        let event = routed(&interrupts, irq::INTX, 0);
        assert_eq!(count(&event), 1, "it was asserted before it was routed");
        interrupts.set_intx(true);
        assert_eq!(count(&event), 0);
        let unmask = || interrupts.set(NONE | irq_set::ACTION_UNMASK, irq::INTX, 0, 1, &[], vec![]).unwrap();
        unmask();
        assert_eq!(count(&event), 1, "still asserted");
        interrupts.set_intx(false);
        unmask();
        assert_eq!(count(&event), 0);
        interrupts.set_intx(true);
        assert_eq!(count(&event), 1);
    }

    #[test]
    fn messages_wait_for_their_route_and_mask() {
        let interrupts = interrupts();
        assert!(interrupts.trigger(irq::MSIX, 1) && !interrupts.trigger(irq::MSIX, 3));
        let event = routed(&interrupts, irq::MSIX, 1);
        assert_eq!(count(&event), 1);
        // Taken away and set again, as clients do that enable another vector.
        interrupts.set(NONE | irq_set::ACTION_TRIGGER, irq::MSIX, 0, 0, &[], vec![]).unwrap();
        interrupts.trigger(irq::MSIX, 1);
        assert!(interrupts.is_pending(irq::MSIX, 1) && !interrupts.is_routed(irq::MSIX, 1));
        let event = routed(&interrupts, irq::MSIX, 1);
        assert_eq!(count(&event), 1);
        let mask = irq_set::DATA_BOOL | irq_set::ACTION_MASK;
        interrupts.set(mask, irq::MSIX, 0, 3, &[0, 1, 0], vec![]).unwrap();
        interrupts.trigger(irq::MSIX, 1);
        assert!(interrupts.is_masked(irq::MSIX, 1) && !interrupts.is_masked(irq::MSIX, 0));
        assert_eq!(count(&event), 0);
        interrupts.set(NONE | irq_set::ACTION_UNMASK, irq::MSIX, 0, 3, &[], vec![]).unwrap();
        assert_eq!(count(&event), 1);
        interrupts.set(NONE | irq_set::ACTION_TRIGGER, irq::MSIX, 1, 1, &[], vec![]).unwrap();
        assert_eq!(count(&event), 1, "triggered by the client");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let interrupts = interrupts();
        let pipe = || rustix::pipe::pipe().unwrap().1;
        type Case<'a> = (u32, u32, u32, u32, &'a [u8], Vec<OwnedFd>);
        let cases: [Case<'_>; 9] = [
            (ROUTE, irq::MSIX, 0, 1, &[], vec![pipe()]),
            (ROUTE, irq::MSIX, 0, 2, &[], vec![event()]),
            (ROUTE, irq::MSIX, 2, 2, &[], vec![event(), event()]),
            (ROUTE, irq::MSIX, u32::MAX, u32::MAX, &[], vec![]),
            (ROUTE, 9, 0, 1, &[], vec![event()]),
            (ROUTE, irq::MSI, 0, 1, &[], vec![event()]),
            (NONE, irq::MSIX, 0, 1, &[], vec![]),
            (NONE | irq_set::ACTION, irq::MSIX, 0, 1, &[], vec![]),
            (irq_set::DATA_BOOL | irq_set::ACTION_MASK, irq::MSIX, 0, 3, &[1, 1], vec![]),
        ];
        for (flags, kind, start, count, bools, fds) in cases {
            assert!(
                interrupts.set(flags, kind, start, count, bools, fds).is_err(),
                "{flags:#x} {kind} {start}"
            );
        }
    }

    #[test]
    fn a_full_eventfd_does_not_hang_the_device() {
        let interrupts = interrupts();
        let event = routed(&interrupts, irq::MSIX, 0);
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        interrupts.trigger(irq::MSIX, 0);
        assert!(!interrupts.is_pending(irq::MSIX, 0));
    }
}
