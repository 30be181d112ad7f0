//! A bus as the memory that rust-vmm's queue works on.
//!
//! That crate wants pointers into memory, while a bus has none to give: its memory may be mapped here, or only
//! be reached by messages. So each of the crate's accesses, which are small, goes through a cell: filled from
//! the bus before a load, and put on the bus after a store, before anything else happens.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::iter::FusedIterator;

use vm_memory::guest_memory::{Error, GuestMemorySliceIterator, Result};
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryMmap, Permissions, VolatileSlice};

use crate::bus::Bus;

/// Bytes of the largest access: a descriptor.
const CELL: usize = 16;

/// A bus for the time of a few accesses.
pub(super) struct Staged<'a> {
    bus: RefCell<&'a mut dyn Bus>,
    cell: UnsafeCell<[u64; CELL / 8]>,
    /// A store that is in the cell and not yet on the bus: address and bytes.
    stored: Cell<Option<(u64, usize)>>,
}

impl<'a> Staged<'a> {
    pub(super) fn new(bus: &'a mut dyn Bus) -> Self {
        Self { bus: RefCell::new(bus), cell: UnsafeCell::new([0; CELL / 8]), stored: Cell::new(None) }
    }

    /// Puts the last store on the bus.
    pub(super) fn flush(&self) -> std::result::Result<(), crate::bus::DmaFault> {
        let Some((address, len)) = self.stored.take() else { return Ok(()) };
        let mut bytes = [0; CELL];
        // SAFETY: `cell` is CELL bytes, all initialized, and nobody else reads or writes them now: this type is
        // not Sync, and slices are only used between two calls.
        unsafe { self.cell.get().cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), CELL) };
        self.bus.borrow_mut().write(address, &bytes[..len])
    }

    fn access(&self, address: u64, len: usize, access: Permissions) -> Result<VolatileSlice<'_>> {
        let refused = |_| Error::InvalidGuestAddress(GuestAddress(address));
        self.flush().map_err(refused)?;
        if len > CELL {
            return Err(Error::InvalidGuestAddress(GuestAddress(address)));
        }
        if access == Permissions::Write {
            self.stored.set(Some((address, len)));
        } else {
            // What was stored before is seen before what is loaded now is looked at: the crate's own fences
            // stand between accesses to the cell, and this one between those to memory.
            self.bus.borrow_mut().fence();
            let mut bytes = [0; CELL];
            self.bus.borrow_mut().read(address, &mut bytes[..len]).map_err(refused)?;
            // SAFETY: as in `flush`.
            unsafe { self.cell.get().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), CELL) };
        }
        // SAFETY: `len` is at most the cell's bytes, which live as long as `self`; this module reaches them
        // only by copies that no use of the slice can run beside, since nothing here is Sync.
        Ok(unsafe { VolatileSlice::new(self.cell.get().cast::<u8>(), len) })
    }
}

impl GuestMemory for Staged<'_> {
    type PhysicalMemory = GuestMemoryMmap<()>;
    type Bitmap = ();

    /// The bus says what is accessible when it is accessed.
    fn check_range(&self, address: GuestAddress, count: usize, _access: Permissions) -> bool {
        address.0.checked_add(count as u64).is_some()
    }

    fn get_slices<'a>(
        &'a self,
        address: GuestAddress,
        count: usize,
        access: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, ()>> {
        Ok(One(Some(self.access(address.0, count, access))))
    }
}

/// The one slice of an access.
struct One<'a>(Option<Result<VolatileSlice<'a>>>);

impl<'a> Iterator for One<'a> {
    type Item = Result<VolatileSlice<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take()
    }
}

impl FusedIterator for One<'_> {}

impl<'a> GuestMemorySliceIterator<'a, ()> for One<'a> {}
