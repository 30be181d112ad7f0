//! A caller's memory, moved in place into a file, so that the process that serves a device can map it.
//!
//! The pages' contents and addresses stay; what changes is what they are made of. Who writes them meanwhile must not
//! lose anything, so that it is done only where that can be known:
//!
//! * the pages are private, anonymous and writable, as the kernel lists them, and not the stack of the caller;
//! * all of each page is the caller's, as its neighbours' data is not ours to move;
//! * no other thread runs that could write them, or writers can be made to wait ([`Frozen`]);
//! * nothing is pinned by the kernel's VFIO in this process: a device would keep the old pages.
//!
//! Where any of it does not hold the memory stays as it is, and devices ask for it. When it is unregistered it becomes
//! anonymous again: allocators know that such pages, given back, return as zeros, and those of a file would not.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use uvia_vfio_user::memory::sealed_memfd;

use super::freeze::Frozen;
use crate::dma::watch::{self, Fate};
use crate::pci::kernel;

/// Pages that have been moved, until this is dropped.
pub struct Moved {
    address: usize,
    len: usize,
    file: OwnedFd,
    fate: Option<Arc<Fate>>,
}

impl Moved {
    /// Moves whole pages, if it is safe.
    ///
    /// # Safety
    /// The range stays mapped, and nobody maps anything else there, until this is dropped.
    pub unsafe fn new(address: *mut u8, len: usize) -> Option<Self> {
        // Where another registration of the same pages is watched, the move would look as if the program had unmapped them.
        if !is_private_anonymous(address as usize..(address as usize).checked_add(len)?)
            || kernel::was_used()
            || watch::covers(address as usize, len)
        {
            return None;
        }
        match move_into_file(address, len) {
            Ok(file) => Some(Self { address: address.expose_provenance(), len, file, fate: None }),
            Err(e) => {
                tracing::debug!("{len} bytes at {address:p} stay where they are: {e}");
                None
            }
        }
    }

    /// The program may unmap them: then they are not moved back.
    pub fn bind(&mut self, fate: &Arc<Fate>) {
        self.fate = Some(fate.clone());
    }

    /// The file that they lie in, from its beginning on.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        if self.fate.as_ref().is_some_and(|fate| fate.is_gone()) {
            // Whatever lies there now is not ours.
            return;
        }
        let address = ptr::with_exposed_provenance_mut::<u8>(self.address);
        // Pinned by the kernel meanwhile, perhaps; or watched for another registration of the same pages.
        let moved = if kernel::was_used() || watch::covers(self.address, self.len) {
            Err(io::Error::other("it is registered once more, or the kernel may have pinned it"))
        } else {
            move_back(address, self.len, &self.file)
        };
        if let Err(e) = moved {
            tracing::warn!("{} bytes at {address:p} stay in a file: {e}", self.len);
        }
    }
}

/// What keeps others from writing during a move.
enum Exclusive {
    Alone { _nothing: () },
    Frozen { _writers: Frozen },
}

impl Exclusive {
    fn over(address: *mut u8, len: usize) -> io::Result<Self> {
        match Frozen::new(address, len) {
            Ok(writers) => Ok(Self::Frozen { _writers: writers }),
            Err(_) if is_only_thread() => Ok(Self::Alone { _nothing: () }),
            Err(e) => Err(e),
        }
    }
}

fn move_into_file(address: *mut u8, len: usize) -> io::Result<OwnedFd> {
    let file = sealed_memfd("uvia-registered", len)?;
    // Present, so that writing them can be forbidden. SAFETY: changes no byte; what is not mapped is refused.
    check(unsafe { libc::madvise(address.cast(), len, libc::MADV_POPULATE_WRITE) })?;
    let exclusive = Exclusive::over(address, len)?;
    let mut done = 0;
    while done < len {
        // SAFETY: the kernel reads within the range, which is mapped; nobody writes it, or it would not matter.
        let written = unsafe {
            libc::pwrite(file.as_raw_fd(), address.add(done).cast(), len - done, done as libc::off_t)
        };
        done += positive(written)?;
    }
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: replaces pages by others of the same contents, which nobody has written since they were copied.
    let mapped = unsafe { libc::mmap(address.cast(), len, rights, flags, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED {
        lost(address, len);
    }
    drop(exclusive);
    // SAFETY: changes no byte. A child that had these pages could write what the program and its devices read.
    check(unsafe { libc::madvise(address.cast(), len, libc::MADV_DONTFORK) })?;
    Ok(file)
}

fn move_back(address: *mut u8, len: usize, file: &OwnedFd) -> io::Result<()> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages at an address of the kernel's choice.
    let fresh = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let copied = Exclusive::over(address, len).and_then(|exclusive| {
        let mut done = 0;
        while done < len {
            // SAFETY: the kernel writes within the new pages, which are nobody else's.
            let read = unsafe {
                libc::pread(file.as_raw_fd(), fresh.byte_add(done), len - done, done as libc::off_t)
            };
            done += positive(read)?;
        }
        Ok(exclusive)
    });
    let exclusive = match copied {
        Ok(exclusive) => exclusive,
        Err(e) => {
            // SAFETY: the new pages, which nothing refers to.
            unsafe { libc::munmap(fresh, len) };
            return Err(e);
        }
    };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: as when they were moved.
    if unsafe { libc::mremap(fresh, len, len, flags, address) } == libc::MAP_FAILED {
        lost(address, len);
    }
    drop(exclusive);
    Ok(())
}

/// The kernel may have unmapped the old pages and then found no memory to map the new ones: the program has lost part
/// of itself.
fn lost(address: *mut u8, len: usize) -> ! {
    tracing::error!("replacing {len} bytes at {address:p}: {}", io::Error::last_os_error());
    std::process::abort();
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn positive(result: libc::ssize_t) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(n),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether no thread runs but this one, those of connections, which touch memory that is registered already only, and
/// the one that watches memory, which touches none.
fn is_only_thread() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    let ours = ["vfio-user", watch::THREAD];
    let others = tasks.flatten().filter(|task| {
        !fs::read_to_string(task.path().join("comm")).is_ok_and(|name| ours.contains(&name.trim_end()))
    });
    others.count() == 1
}

/// Whether the kernel lists the whole range as private anonymous memory that can be read and written, and it is not
/// where this thread has its stack.
fn is_private_anonymous(range: Range<usize>) -> bool {
    let on_the_stack = 0u8;
    let stack = (&raw const on_the_stack) as usize;
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    suits(&maps, range, stack)
}

fn suits(maps: &str, range: Range<usize>, stack: usize) -> bool {
    let mut reached = range.start;
    for line in maps.lines() {
        let Some(entry) = Entry::parse(line) else { return false };
        if entry.range.end <= reached {
            continue;
        }
        let suitable = entry.range.start <= reached && entry.is_anonymous && !entry.range.contains(&stack);
        if !suitable {
            return false;
        }
        reached = entry.range.end;
        if reached >= range.end {
            return true;
        }
    }
    false
}

/// A line of /proc/self/maps.
struct Entry {
    range: Range<usize>,
    is_anonymous: bool,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (rights, inode, name) = (words.next()?, words.nth(2)?, words.next());
        let named = name.is_none_or(|name| name == "[heap]" || name.starts_with("[anon:"));
        Some(Self {
            range: number(start)?..number(end)?,
            is_anonymous: rights == "rw-p" && inode == "0" && named,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use memmap2::MmapOptions;

    use super::*;

    const MAPS: &str = "\
00400000-00500000 r-xp 00000000 08:01 1234 /bin/program
00600000-00700000 rw-p 00100000 08:01 1234 /bin/program
01000000-01100000 rw-p 00000000 00:00 0 [heap]
01100000-01200000 rw-p 00000000 00:00 0
01200000-01300000 r--p 00000000 00:00 0
02000000-02100000 rw-s 00000000 00:01 99 /memfd:x (deleted)
03000000-03100000 rw-p 00000000 00:00 0 [anon: named]
7ff00000-7ff10000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn only_what_the_kernel_calls_private_and_anonymous() {
        let suits = |range| suits(MAPS, range, 0x310_0000);
        assert!(suits(0x100_1000..0x100_2000) && suits(0x100_0000..0x120_0000));
        for range in [
            0x40_0000..0x40_1000,
            0x60_0000..0x60_1000,
            0x11f_f000..0x120_1000,
            0xff_f000..0x100_1000,
            0x200_0000..0x200_1000,
            0x500_0000..0x500_1000,
            0x7ff0_0000..0x7ff0_1000,
            0x9000_0000..0x9000_1000,
        ] {
            assert!(!suits(range.clone()), "{range:#x?}");
        }
        assert!(!super::suits(MAPS, 0x100_1000..0x100_2000, 0x100_8000), "a stack without a name");
    }

    #[test]
    fn there_and_back_under_a_thread_that_writes() {
        let map = MmapOptions::new().len(1 << 16).map_anon().unwrap();
        let address = map.as_ptr().cast_mut();
        let counters = address.cast::<AtomicU64>() as usize;
        let (stop, at) = (AtomicBool::new(false), |n: usize| {
            // SAFETY: within the mapping, aligned, and reached atomically only.
            unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(counters).add(n * 512) }
        });
        let _ = address.expose_provenance();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) {
                    rounds += 1;
                    for n in 0..16 {
                        at(n).fetch_add(1, Ordering::Relaxed);
                    }
                }
                rounds
            });
            let mut moves = 0;
            for _ in 0..50 {
                // SAFETY: the mapping outlives it.
                let Some(moved) = (unsafe { Moved::new(address, 1 << 16) }) else { break };
                assert!(!is_private_anonymous(address as usize..address as usize + 4096));
                moves += 1;
                drop(moved);
                assert!(is_private_anonymous(address as usize..address as usize + (1 << 16)));
            }
            stop.store(true, Ordering::Relaxed);
            let rounds: u64 = writer.join().unwrap();
            eprintln!("{moves} moves under {rounds} rounds of writing");
            for n in 0..16 {
                assert_eq!(at(n).load(Ordering::Relaxed), rounds, "nothing was lost");
            }
        });
    }

    #[test]
    fn what_is_no_such_memory_stays() {
        let mut local = [0u8; 16384];
        let aligned = local.as_mut_ptr().wrapping_add(4095).map_addr(|address| address & !4095);
        // SAFETY: refused, as it is a stack.
        assert!(unsafe { Moved::new(aligned, 4096) }.is_none());
        let map = MmapOptions::new().len(4096).map_anon().unwrap().make_read_only().unwrap();
        // SAFETY: refused, as it cannot be written.
        assert!(unsafe { Moved::new(map.as_ptr().cast_mut(), 4096) }.is_none());
    }
}
