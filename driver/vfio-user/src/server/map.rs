//! Which I/O virtual addresses are whose memory: the books of an IOMMU.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::Rights;
use crate::memory::{FileFacts, FileKind, SharedMemory};

/// Mappings of files at a time; each takes a mapping or a descriptor of the process, which other devices need too.
const MOST_FILES: usize = 512;

/// How the bytes of a mapping are reached.
#[derive(Debug, Clone)]
pub enum Backing {
    /// In a mapped file, at this offset of the mapping.
    Mapped(SharedMemory, u64),
    /// In a file that may be cut short, at this offset.
    File(Arc<OwnedFd>, u64),
    /// By asking the client.
    Messages,
}

impl Backing {
    /// The same, `by` bytes further on.
    fn advanced(&self, by: u64) -> Self {
        match self {
            Self::Mapped(memory, offset) => Self::Mapped(memory.clone(), offset + by),
            Self::File(file, offset) => Self::File(file.clone(), offset + by),
            Self::Messages => Self::Messages,
        }
    }

    /// Whether `other` is what follows after `len` bytes of this.
    fn continues(&self, len: u64, other: &Self) -> bool {
        match (self, other) {
            (Self::Mapped(a, at), Self::Mapped(b, next)) => a.as_ptr() == b.as_ptr() && at + len == *next,
            (Self::File(a, at), Self::File(b, next)) => Arc::ptr_eq(a, b) && at + len == *next,
            (Self::Messages, Self::Messages) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    /// The last byte: a mapping may end where addresses do.
    last: u64,
    rights: Rights,
    backing: Backing,
}

/// A piece of what was asked for.
#[derive(Debug)]
pub struct Piece {
    /// How it is reached, from its first byte on.
    pub backing: Backing,
    /// Bytes.
    pub len: u64,
}

/// Why memory cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is mapped at this address.
    Unmapped(u64),
    /// What is mapped at this address is not mapped for that.
    Denied(u64),
}

/// What a client has mapped. Clients map page by page: neighbours in the same file are one entry, and a file is
/// mapped once.
#[derive(Debug, Default)]
pub struct DmaMap {
    entries: BTreeMap<u64, Entry>,
    mapped: HashMap<((u64, u64), bool), SharedMemory>,
    files: HashMap<((u64, u64), bool), Weak<OwnedFd>>,
}

impl DmaMap {
    /// Takes a mapping on the books.
    ///
    /// # Errors
    /// As the client is to see it: EINVAL, EEXIST for what overlaps, EACCES for rights that its file does not give,
    /// ENOSPC for too many.
    pub fn insert(
        &mut self,
        iova: u64,
        len: u64,
        rights: Rights,
        file: Option<(OwnedFd, u64)>,
        most: u64,
    ) -> Result<(), Errno> {
        let last = len.checked_sub(1).and_then(|n| iova.checked_add(n)).ok_or(Errno::INVAL)?;
        if rights.is_empty() {
            return Err(Errno::INVAL);
        }
        if self.overlaps(iova, last) {
            return Err(Errno::EXIST);
        }
        let backing = match file {
            None => Backing::Messages,
            Some((fd, offset)) => self.backing(fd, offset, len, rights)?,
        };
        let mut start = iova;
        let mut entry = Entry { last, rights, backing };
        if let Some((&before, previous)) = self.entries.range(..iova).next_back()
            && previous.last.checked_add(1) == Some(iova)
            && previous.rights == rights
            && previous.backing.continues(iova - before, &entry.backing)
        {
            entry.backing = previous.backing.clone();
            start = before;
        } else if self.entries.len() as u64 >= most {
            return Err(Errno::NOSPC);
        }
        if let Some(next) = last.checked_add(1)
            && let Some(following) = self.entries.get(&next)
            && following.rights == rights
            && entry.backing.continues(next - start, &following.backing)
        {
            entry.last = following.last;
            self.entries.remove(&next);
        }
        self.entries.insert(start, entry);
        Ok(())
    }

    /// Takes a range off the books, whatever is mapped in it.
    ///
    /// # Errors
    /// EINVAL for what is no range.
    pub fn remove(&mut self, iova: u64, len: u64) -> Result<(), Errno> {
        let last = len.checked_sub(1).and_then(|n| iova.checked_add(n)).ok_or(Errno::INVAL)?;
        let first_touched = self
            .entries
            .range(..iova)
            .next_back()
            .filter(|(_, entry)| entry.last >= iova)
            .map(|(start, _)| *start);
        let from = first_touched.unwrap_or(iova);
        let touched: Vec<u64> = self.entries.range(from..=last).map(|(start, _)| *start).collect();
        for start in touched {
            let Some(entry) = self.entries.remove(&start) else { continue };
            if start < iova {
                self.entries.insert(start, Entry { last: iova - 1, ..entry.clone() });
            }
            if entry.last > last {
                let backing = entry.backing.advanced(last + 1 - start);
                self.entries.insert(last + 1, Entry { backing, ..entry });
            }
        }
        self.forget_unused();
        Ok(())
    }

    /// Everything off the books.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Mappings, neighbours taken together.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The longest piece from `iova` on, at most `len` bytes, that is reached in one way.
    pub fn lookup(&self, iova: u64, len: u64, rights: Rights) -> Result<Piece, Fault> {
        let found = self.entries.range(..=iova).next_back().filter(|(_, entry)| entry.last >= iova);
        let Some((start, entry)) = found else { return Err(Fault::Unmapped(iova)) };
        if !entry.rights.contains(rights) {
            return Err(Fault::Denied(iova));
        }
        let left = (entry.last - iova).saturating_add(1);
        Ok(Piece { backing: entry.backing.advanced(iova - start), len: len.min(left) })
    }

    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.entries.range(..=last).next_back().is_some_and(|(_, entry)| entry.last >= first)
    }

    /// How a file is best reached.
    fn backing(&mut self, fd: OwnedFd, offset: u64, len: u64, rights: Rights) -> Result<Backing, Errno> {
        let facts = FileFacts::of(fd.as_fd()).map_err(errno)?;
        let write = rights.contains(Rights::WRITE);
        if (write && !facts.writable) || (rights.contains(Rights::READ) && !facts.readable) {
            return Err(Errno::ACCESS);
        }
        let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
        if facts.kind != FileKind::Other && end > facts.len {
            return Err(Errno::INVAL);
        }
        // The descriptor's rights are those of the mapping; one that may be written serves readers too.
        let key = (facts.identity, facts.writable);
        match facts.kind {
            FileKind::Sealed if facts.readable => {
                if let Some(memory) = self.mapped.get(&key).filter(|memory| memory.len() as u64 >= end) {
                    return Ok(Backing::Mapped(memory.clone(), offset));
                }
                // The whole file, whatever part is meant: the others will follow. Where that is too much, messages.
                let whole = usize::try_from(facts.len).map_err(|_| Errno::INVAL)?;
                let room = self.mapped.len() + self.files.len() < MOST_FILES;
                match SharedMemory::from_peer(fd, 0, whole, facts.writable) {
                    Ok(memory) if room => {
                        self.mapped.insert(key, memory.clone());
                        Ok(Backing::Mapped(memory, offset))
                    }
                    Ok(_) => Ok(Backing::Messages),
                    Err(e) => {
                        tracing::warn!("a client's memory is reached by messages, it cannot be mapped: {e}");
                        Ok(Backing::Messages)
                    }
                }
            }
            FileKind::Memory => {
                if let Some(file) = self.files.get(&key).and_then(Weak::upgrade) {
                    return Ok(Backing::File(file, offset));
                }
                if self.mapped.len() + self.files.len() >= MOST_FILES {
                    return Ok(Backing::Messages);
                }
                let file = Arc::new(fd);
                self.files.insert(key, Arc::downgrade(&file));
                Ok(Backing::File(file, offset))
            }
            _ => Ok(Backing::Messages),
        }
    }

    /// Unmaps and closes files that no entry refers to any more.
    fn forget_unused(&mut self) {
        self.files.retain(|_, file| file.strong_count() > 0);
        if self.mapped.is_empty() {
            return;
        }
        // Only when few entries are left: clients unmap page by page, and a walk each time would be quadratic.
        if self.entries.len() < 64 || self.mapped.len() >= MOST_FILES {
            let used: std::collections::HashSet<*mut u8> = self
                .entries
                .values()
                .filter_map(|entry| match &entry.backing {
                    Backing::Mapped(memory, _) => Some(memory.as_ptr()),
                    _ => None,
                })
                .collect();
            self.mapped.retain(|_, memory| used.contains(&memory.as_ptr()));
        }
    }
}

fn errno(e: io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::sealed_memfd;

    const BOTH: Rights = Rights::all();
    const MOST: u64 = 100;

    fn file(fd: &OwnedFd, offset: u64) -> Option<(OwnedFd, u64)> {
        Some((fd.try_clone().unwrap(), offset))
    }

    #[test]
    fn neighbours_of_one_file_are_one() {
        let fd = sealed_memfd("test", 0x4000).unwrap();
        let mut map = DmaMap::default();
        for page in [0u64, 2, 1, 3] {
            map.insert(0x10000 + page * 0x1000, 0x1000, BOTH, file(&fd, page * 0x1000), MOST).unwrap();
        }
        assert_eq!((map.len(), map.mapped.len()), (1, 1));
        let piece = map.lookup(0x10800, 0x10000, Rights::READ).unwrap();
        assert!(matches!(piece.backing, Backing::Mapped(_, 0x800)) && piece.len == 0x3800);
        map.remove(0x11000, 0x1000).unwrap();
        assert_eq!(map.len(), 2);
        assert_eq!(map.lookup(0x11000, 1, BOTH).unwrap_err(), Fault::Unmapped(0x11000));
        let piece = map.lookup(0x12001, 0x10000, BOTH).unwrap();
        assert!(matches!(piece.backing, Backing::Mapped(_, 0x2001)) && piece.len == 0x1fff);
        map.remove(0, 1 << 63).unwrap();
        assert_eq!((map.len(), map.mapped.len()), (0, 0));
    }

    #[test]
    fn what_was_never_mapped_is_unmapped_and_addresses_end_at_2_to_the_64() {
        let mut map = DmaMap::default();
        map.remove(0, 1 << 63).unwrap();
        map.remove(1 << 63, 1 << 63).unwrap();
        map.insert(u64::MAX - 0xfff, 0x1000, BOTH, None, MOST).unwrap();
        assert_eq!(map.lookup(u64::MAX, 8, BOTH).unwrap().len, 1);
        map.remove(1 << 63, 1 << 63).unwrap();
        assert_eq!(map.len(), 0);
        assert_eq!(map.remove(0, 0), Err(Errno::INVAL));
        assert_eq!(map.remove(u64::MAX, 2), Err(Errno::INVAL));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let fd = sealed_memfd("test", 0x2000).unwrap();
        let mut map = DmaMap::default();
        map.insert(0x1000, 0x1000, Rights::READ, None, 2).unwrap();
        assert_eq!(map.insert(0x1fff, 1, BOTH, None, 2), Err(Errno::EXIST));
        assert_eq!(map.insert(0, 0x1001, BOTH, None, 2), Err(Errno::EXIST));
        assert_eq!(map.insert(0, u64::MAX, BOTH, None, 2), Err(Errno::EXIST));
        assert_eq!(map.insert(0x5000, 0, BOTH, None, 2), Err(Errno::INVAL));
        assert_eq!(map.insert(u64::MAX, 2, BOTH, None, 2), Err(Errno::INVAL));
        assert_eq!(map.insert(0x5000, 1, Rights::empty(), None, 2), Err(Errno::INVAL));
        assert_eq!(map.insert(0x5000, 0x1000, BOTH, file(&fd, 0x1001), 2), Err(Errno::INVAL));
        assert_eq!(map.insert(0x5000, 0x1000, BOTH, file(&fd, u64::MAX), 2), Err(Errno::INVAL));
        map.insert(0x5000, 0x1000, BOTH, file(&fd, 0), 2).unwrap();
        assert_eq!(map.insert(0x9000, 0x1000, BOTH, None, 2), Err(Errno::NOSPC));
        assert_eq!(map.lookup(0x1000, 1, BOTH).unwrap_err(), Fault::Denied(0x1000));
    }

    proptest! {
        /// Against books kept page by page.
        #[test]
        fn as_an_iommu_of_pages(
            steps in proptest::collection::vec((any::<bool>(), 0..40u64, 1..10u64, 1..4u32, any::<bool>()), 1..60),
        ) {
            let fd = sealed_memfd("test", 64 * 0x1000).unwrap();
            let mut map = DmaMap::default();
            let mut pages = std::collections::BTreeMap::<u64, (u32, bool)>::new();
            for (insert, page, count, rights, with_file) in steps {
                let range = page..page + count;
                if insert {
                    let file = with_file.then(|| (fd.try_clone().unwrap(), page * 0x1000));
                    let rights = Rights::from_bits_truncate(rights);
                    let free = range.clone().all(|page| !pages.contains_key(&page));
                    let done = map.insert(page * 0x1000, count * 0x1000, rights, file, 1000);
                    prop_assert_eq!(done.is_ok(), free);
                    if free {
                        pages.extend(range.map(|page| (page, (rights.bits(), with_file))));
                    }
                } else {
                    map.remove(page * 0x1000, count * 0x1000).unwrap();
                    pages.retain(|page, _| !range.contains(page));
                }
                for page in 0..50u64 {
                    let found = map.lookup(page * 0x1000 + 5, 1, Rights::empty());
                    prop_assert_eq!(found.is_ok(), pages.contains_key(&page));
                    if let (Ok(piece), Some((rights, with_file))) = (found, pages.get(&page)) {
                        let rights = Rights::from_bits_truncate(*rights);
                        prop_assert!(map.lookup(page * 0x1000, 1, rights).is_ok());
                        prop_assert_eq!(map.lookup(page * 0x1000, 1, BOTH).is_ok(), rights == BOTH);
                        match piece.backing {
                            Backing::Mapped(_, offset) => prop_assert!(*with_file && offset == page * 0x1000 + 5),
                            _ => prop_assert!(!with_file),
                        }
                    }
                }
            }
        }
    }
}
