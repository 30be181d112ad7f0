//! Memory that two processes have mapped.
//!
//! A file can be cut short by whoever has it open, and who then touches the lost part of a mapping is killed by
//! SIGBUS. So memory of a peer's is mapped only where the kernel promises that this cannot happen: a memfd (on the
//! kernel's own tmpfs, not on huge pages, of which a file may run out while it is mapped) with the seal against
//! shrinking, which nobody can take off again. Everything else is reached by messages, or by reads and writes of the
//! file.
//!
//! The other process may write at any time. So there are no references to the bytes: accesses are volatile or
//! atomic, by offset, and checked.

mod copy;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FileType, MemfdFlags, SealFlags};

pub use copy::{copy_in, copy_out};

/// The magic number of tmpfs, which memfds live on (linux/magic.h).
const TMPFS: u64 = 0x0102_1994;

/// What can be done with a peer's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Sealed against shrinking, and in memory: may be mapped.
    Sealed,
    /// In memory, but its owner may cut it short: reads and writes of the file cannot hang or kill.
    Memory,
    /// A file somewhere else, whose reads may hang for as long as its owner likes; or none at all.
    Other,
}

/// Which file a descriptor is of, and what can be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Device and inode: the same for all descriptors of the same file.
    pub identity: (u64, u64),
    /// Bytes.
    pub len: u64,
    /// What can be done with it.
    pub kind: FileKind,
    /// Whether the descriptor may be written.
    pub writable: bool,
    /// Whether the descriptor may be read.
    pub readable: bool,
}

impl FileFacts {
    /// Looks at a descriptor.
    ///
    /// # Errors
    /// What the system answers.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        let mode = rustix::fs::fcntl_getfl(fd)? & rustix::fs::OFlags::ACCMODE;
        let path_only = rustix::fs::fcntl_getfl(fd)?.contains(rustix::fs::OFlags::PATH);
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let in_memory =
            !path_only && regular && rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == TMPFS);
        let sealed =
            in_memory && rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let kind = match (in_memory, sealed) {
            (true, true) => FileKind::Sealed,
            (true, false) => FileKind::Memory,
            _ => FileKind::Other,
        };
        Ok(Self {
            identity: (stat.st_dev, stat.st_ino),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            kind,
            writable: !path_only && (mode == rustix::fs::OFlags::RDWR || mode == rustix::fs::OFlags::WRONLY),
            readable: !path_only && mode != rustix::fs::OFlags::WRONLY,
        })
    }
}

/// A mapping of a sealed memfd, unmapped when the last clone goes. Its file cannot get shorter, so that every byte
/// of it can be touched for as long as it lives.
#[derive(Clone)]
pub struct SharedMemory(Arc<Inner>);

struct Inner {
    map: MmapRaw,
    fd: OwnedFd,
    writable: bool,
}

impl SharedMemory {
    /// A new memfd of `len` bytes, all zero, sealed against shrinking, growing and further seals. `name` shows in
    /// /proc.
    ///
    /// # Errors
    /// What the system answers.
    pub fn create(name: &str, len: usize) -> io::Result<Self> {
        let fd = sealed_memfd(name, len)?;
        let map = MmapOptions::new().len(len).map_raw(&File::from(fd.try_clone()?))?;
        Ok(Self(Arc::new(Inner { map, fd, writable: true })))
    }

    /// Maps `len` bytes at `offset` of a file that a peer sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] when it may not be mapped (see [`FileKind`]) or not with these rights,
    /// [`io::ErrorKind::InvalidInput`] when it is too short, and what the system answers.
    pub fn from_peer(fd: OwnedFd, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let facts = FileFacts::of(fd.as_fd())?;
        if facts.kind != FileKind::Sealed || !facts.readable || (writable && !facts.writable) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the file is not a memfd sealed against shrinking (F_SEAL_SHRINK), open for what is asked",
            ));
        }
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > facts.len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{offset:#x}+{len:#x} is not within the file's {:#x} bytes", facts.len),
            ));
        }
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        let file = File::from(fd.try_clone()?);
        let map = if writable { options.map_raw(&file)? } else { options.map_raw_read_only(&file)? };
        Ok(Self(Arc::new(Inner { map, fd, writable })))
    }

    /// Its file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// First byte; for volatile or atomic access within [`Self::len`], while a clone of this lives.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.map.as_mut_ptr()
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.map.len()
    }

    /// Always false: nothing empty can be mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.0.writable
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range lies beyond the end: offsets from a peer are checked before.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.len() && self.len() - offset >= into.len());
        // SAFETY: the range was checked against the mapping, which `self` keeps; its file cannot shrink.
        unsafe { copy_out(self.as_ptr().add(offset), into) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range lies beyond the end, or the mapping may not be written.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.is_writable() && offset <= self.len() && self.len() - offset >= from.len());
        // SAFETY: as for `read`; the mapping is writable.
        unsafe { copy_in(from, self.as_ptr().add(offset)) }
    }
}

macro_rules! atomics {
    ($($int:ty, $atomic:ty, $load:ident, $store:ident, $swap:ident;)*) => {
        impl SharedMemory {
            $(
                /// Reads a little-endian value; what its writer stored before it is visible afterwards.
                ///
                /// # Panics
                /// When it is unaligned, or beyond the end.
                #[inline]
                pub fn $load(&self, offset: usize) -> $int {
                    <$int>::from_le(self.cell::<$atomic>(offset).load(Ordering::Acquire))
                }

                /// Writes a little-endian value; what was stored before it is visible to who reads it.
                ///
                /// # Panics
                /// When it is unaligned or beyond the end, or the mapping may not be written.
                #[inline]
                pub fn $store(&self, offset: usize, value: $int) {
                    assert!(self.is_writable());
                    self.cell::<$atomic>(offset).store(value.to_le(), Ordering::Release);
                }

                /// Writes a little-endian value, and answers what was there.
                ///
                /// # Panics
                /// As the store.
                #[inline]
                pub fn $swap(&self, offset: usize, value: $int) -> $int {
                    assert!(self.is_writable());
                    <$int>::from_le(self.cell::<$atomic>(offset).swap(value.to_le(), Ordering::AcqRel))
                }
            )*
        }
    };
}

atomics! {
    u8, AtomicU8, load_u8, store_u8, swap_u8;
    u16, AtomicU16, load_u16, store_u16, swap_u16;
    u32, AtomicU32, load_u32, store_u32, swap_u32;
    u64, AtomicU64, load_u64, store_u64, swap_u64;
}

impl SharedMemory {
    #[inline]
    fn cell<A>(&self, offset: usize) -> &A {
        let size = size_of::<A>();
        assert!(offset.is_multiple_of(size) && offset <= self.len() && self.len() - offset >= size);
        // SAFETY: aligned (mappings are, to pages) and within the mapping, which `self` keeps; `A` is only ever one
        // of the atomic integers above, which may change under a reference and have no invalid values. Stores are
        // made only where the mapping is writable.
        unsafe { &*self.as_ptr().add(offset).cast::<A>() }
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedMemory").field("len", &self.len()).field("writable", &self.0.writable).finish()
    }
}

/// A memfd of `len` bytes that will never be shorter or longer.
///
/// # Errors
/// What the system answers.
pub fn sealed_memfd(name: &str, len: usize) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same() {
        let ours = SharedMemory::create("test", 8192).unwrap();
        let theirs =
            SharedMemory::from_peer(ours.fd().try_clone_to_owned().unwrap(), 4096, 4096, true).unwrap();
        ours.store_u32(4096, 0x0102_0304);
        assert_eq!((theirs.load_u32(0), theirs.load_u8(3)), (0x0102_0304, 1));
        theirs.write(4, b"hello");
        let mut bytes = [0; 5];
        ours.read(4100, &mut bytes);
        assert_eq!(&bytes, b"hello");
        assert_eq!((theirs.swap_u16(0, 7), ours.load_u32(4096)), (0x0304, 0x0102_0007));
    }

    #[test]
    fn what_can_be_cut_short_is_not_mapped() {
        let unsealed =
            rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert_eq!(FileFacts::of(unsealed.as_fd()).unwrap().kind, FileKind::Memory);
        let refused = SharedMemory::from_peer(unsealed, 0, 4096, false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(FileFacts::of(reader.as_fd()).unwrap().kind, FileKind::Other);
        let null = File::open("/dev/null").unwrap();
        assert_eq!(FileFacts::of(null.as_fd()).unwrap().kind, FileKind::Other);
    }

    #[test]
    fn no_further_than_the_file_and_no_more_than_its_rights() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        let fd = || memory.fd().try_clone_to_owned().unwrap();
        for (offset, len) in [(0, 4097), (4096, 1), (u64::MAX, 2), (0, 0)] {
            let refused = SharedMemory::from_peer(fd(), offset, len, false).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory.fd()));
        let read_only = || OwnedFd::from(File::open(&path).unwrap());
        assert!(SharedMemory::from_peer(read_only(), 0, 4096, true).is_err());
        let mapped = SharedMemory::from_peer(read_only(), 0, 4096, false).unwrap();
        memory.store_u8(9, 9);
        assert_eq!(mapped.load_u8(9), 9);
        assert!(rustix::fs::ftruncate(memory.fd(), 0).is_err(), "sealed");
    }
}
