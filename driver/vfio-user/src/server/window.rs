//! A range of the client's memory that a device looks at again and again.

use super::{DmaError, DmaSpace};
use crate::Rights;
use crate::memory::SharedMemory;

/// A range of the client's memory. Where it is mapped in one piece, an access is a load or a store and a look at the
/// space's generation; elsewhere it is what [`DmaSpace::read`] and [`DmaSpace::write`] do.
///
/// Each access is checked against the client's mappings as they are now. For the thread that polls the server: one
/// on another thread may be under way while the client unmaps the range, which endangers nobody's memory (the
/// mapping stays until the window goes), but stores where the client no longer expects it.
///
/// An access that does not lie within the window is an error, whatever is mapped behind it.
#[derive(Clone)]
pub struct Window {
    space: DmaSpace,
    iova: u64,
    len: usize,
    rights: Rights,
    generation: u64,
    direct: Option<(SharedMemory, usize)>,
}

impl Window {
    pub(super) fn new(space: DmaSpace, iova: u64, len: usize, rights: Rights) -> Result<Self, DmaError> {
        let mut window = Self { space, iova, len, rights, generation: 0, direct: None };
        window.refresh()?;
        Ok(window)
    }

    /// Looks the range up, if anything was unmapped since it was looked up last. Accesses do so by themselves.
    ///
    /// # Errors
    /// The range is no longer mapped.
    #[inline]
    pub fn refresh(&mut self) -> Result<(), DmaError> {
        if self.generation == self.space.generation() { Ok(()) } else { self.look_up() }
    }

    #[cold]
    fn look_up(&mut self) -> Result<(), DmaError> {
        self.direct = None;
        self.generation = 0;
        let generation = self.space.generation();
        self.space.check(self.iova, self.len, self.rights)?;
        self.direct = self.space.direct(self.iova, self.len, self.rights);
        self.generation = generation;
        Ok(())
    }

    /// Whether accesses are loads and stores.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The first I/O virtual address.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte in this process, for volatile or atomic access while this window lives and nothing was unmapped
    /// (see [`Self::refresh`]); `None` where there is no such place.
    ///
    /// # Errors
    /// The range is no longer mapped.
    pub fn as_ptr(&mut self) -> Result<Option<*mut u8>, DmaError> {
        self.refresh()?;
        Ok(self.direct.as_ref().map(|(memory, offset)| memory.as_ptr().wrapping_add(*offset)))
    }

    /// The address of `len` bytes at `offset`, if they lie within and may be accessed like this.
    fn place(&self, offset: usize, len: usize, rights: Rights) -> Result<u64, DmaError> {
        let address = self.iova.wrapping_add(offset as u64);
        if offset > self.len || self.len - offset < len {
            return Err(DmaError::Unmapped(address));
        }
        if !self.rights.contains(rights) {
            return Err(DmaError::Denied { address, rights });
        }
        Ok(address)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// Beyond the window, or no longer mapped.
    #[inline]
    pub fn read(&mut self, offset: usize, into: &mut [u8]) -> Result<(), DmaError> {
        self.refresh()?;
        let address = self.place(offset, into.len(), Rights::READ)?;
        match &self.direct {
            Some((memory, base)) => {
                memory.read(base + offset, into);
                Ok(())
            }
            None => self.space.read(address, into),
        }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// Beyond the window, or no longer mapped.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), DmaError> {
        self.refresh()?;
        let address = self.place(offset, from.len(), Rights::WRITE)?;
        match &self.direct {
            Some((memory, base)) => {
                memory.write(base + offset, from);
                Ok(())
            }
            None => self.space.write(address, from),
        }
    }
}

macro_rules! values {
    ($($int:ty, $load:ident, $store:ident;)*) => {
        impl Window {
            $(
                /// Reads a little-endian value; aligned, it is one access, and what its writer stored before it is
                /// visible afterwards.
                ///
                /// # Errors
                /// Beyond the window, or no longer mapped.
                #[inline]
                pub fn $load(&mut self, offset: usize) -> Result<$int, DmaError> {
                    self.refresh()?;
                    if let Some((memory, base)) = &self.direct
                        && (base + offset).is_multiple_of(size_of::<$int>())
                    {
                        self.place(offset, size_of::<$int>(), Rights::READ)?;
                        return Ok(memory.$load(base + offset));
                    }
                    let mut bytes = [0; size_of::<$int>()];
                    self.read(offset, &mut bytes)?;
                    Ok(<$int>::from_le_bytes(bytes))
                }

                /// Writes a little-endian value; aligned, it is one access, and what was stored before it is visible
                /// to who reads it.
                ///
                /// # Errors
                /// Beyond the window, or no longer mapped.
                #[inline]
                pub fn $store(&mut self, offset: usize, value: $int) -> Result<(), DmaError> {
                    self.refresh()?;
                    if let Some((memory, base)) = &self.direct
                        && (base + offset).is_multiple_of(size_of::<$int>())
                    {
                        self.place(offset, size_of::<$int>(), Rights::WRITE)?;
                        memory.$store(base + offset, value);
                        return Ok(());
                    }
                    self.write(offset, &value.to_le_bytes())
                }
            )*
        }
    };
}

values! {
    u8, load_u8, store_u8;
    u16, load_u16, store_u16;
    u32, load_u32, store_u32;
    u64, load_u64, store_u64;
}
