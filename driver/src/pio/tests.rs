//! Over memfds, and over processes that die.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use uvia_vfio_user::memory::{SharedMemory, sealed_memfd};

use super::directory;
use super::{AdapterMemory, SLOT, SLOTS, Template, WINDOW, Window};
use crate::dma::{DmaDomain, DomainLimits, IdentityDomain, Rights};
use crate::{Error, Result};

/// A memfd with room for so many windows, and the memory that it is.
fn memory(windows: usize) -> (OwnedFd, Arc<AdapterMemory>) {
    let mut len = 4096;
    while directory::windows_in(len) < windows {
        len += 4096;
    }
    let fd = sealed_memfd("adapter-memory", len).unwrap();
    let memory = AdapterMemory::of_file("test", fd.try_clone().unwrap()).unwrap();
    (fd, memory)
}

fn lease(memory: &Arc<AdapterMemory>) -> Result<Window> {
    memory.lease(Arc::new(IdentityDomain::default()), "test-nic")
}

/// What lies in a window.
fn bytes(fd: &OwnedFd, window: usize) -> Vec<u8> {
    let len = std::fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().len() as usize;
    let all = SharedMemory::from_peer(fd.try_clone().unwrap(), 0, len, false).unwrap();
    let mut bytes = vec![0; WINDOW];
    let first = len - directory::windows_in(len) * WINDOW;
    all.read(first / 4096 * 4096 + window * WINDOW, &mut bytes);
    bytes
}

#[test]
fn one_window_more_than_there_are_is_refused_until_one_is_closed() {
    let (fd, memory) = memory(3);
    // Another handle, as another process would have it.
    let other = AdapterMemory::of_file("other", fd.try_clone().unwrap()).unwrap();
    let mut windows: Vec<Window> =
        (0..3).map(|n| lease(if n == 1 { &other } else { &memory }).unwrap()).collect();
    let mut numbers: Vec<_> = windows.iter().map(Window::number).collect();
    numbers.sort();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!((memory.windows().windows, memory.windows().left, other.windows().left), (3, 0, 0));
    for refused in [&memory, &other] {
        match lease(refused) {
            Err(Error::NoWindow { windows: 3, unsettled: 0, .. }) => {}
            outcome => panic!("{:?}", outcome.map(|window| window.number())),
        }
    }
    drop(windows.remove(1));
    assert_eq!(other.windows().left, 1);
    assert!(lease(&other).is_ok());
}

#[test]
fn a_slot_in_flight_cannot_be_written_until_it_has_landed() {
    let (fd, memory) = memory(1);
    let mut window = lease(&memory).unwrap();
    for n in 0..SLOTS {
        let mut slot = window.slot(n).unwrap();
        slot.put(64, &[n as u8 + 1; 21]);
        assert_eq!(slot.put_before(64, &[0xab; 13]), 51);
        let segment = slot.send(51..85);
        assert_eq!(segment.len(), 34);
        assert!(window.slot(n).is_none() && window.is_flying(n));
    }
    let there = bytes(&fd, 0);
    for n in 0..SLOTS {
        let slot = &there[n * SLOT..(n + 1) * SLOT];
        assert_eq!((slot[50], &slot[51..64], &slot[64..85]), (0, &[0xab; 13][..], &[n as u8 + 1; 21][..]));
        assert!(slot[85..].iter().all(|byte| *byte == 0));
    }
    window.landed(3);
    window.landed(SLOTS);
    assert!(window.slot(3).is_some() && window.slot(2).is_none() && window.slot(SLOTS).is_none());
}

#[test]
fn nothing_of_the_last_owner_is_left_in_a_window() {
    let (fd, memory) = memory(1);
    let mut window = lease(&memory).unwrap();
    for n in 0..SLOTS {
        window.slot(n).unwrap().put(0, &[0x5a; SLOT]);
    }
    assert!(bytes(&fd, 0).iter().all(|byte| *byte == 0x5a));
    drop(window);
    let _window = lease(&memory).unwrap();
    assert!(bytes(&fd, 0).iter().all(|byte| *byte == 0));
}

#[test]
#[should_panic(expected = "len <= SLOT - at")]
fn nothing_is_written_behind_a_slot() {
    let (_, memory) = memory(1);
    lease(&memory).unwrap().slot(0).unwrap().put(SLOT - 8, &[0; 9]);
}

#[test]
#[should_panic(expected = "do not fit before")]
fn nothing_is_written_before_a_slot() {
    let (_, memory) = memory(1);
    lease(&memory).unwrap().slot(1).unwrap().put_before(8, &[0; 9]);
}

/// Notes what is mapped in it; refuses, when told to.
#[derive(Default)]
struct Noting {
    mapped: Mutex<Vec<(u64, usize, Rights)>>,
    refuses: bool,
}

impl DmaDomain for Noting {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        if self.refuses {
            return Err(Error::MappingsExceeded { limit: 0 });
        }
        self.mapped.lock().unwrap().push((address as u64, len, rights));
        Ok(address as u64)
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        self.mapped.lock().unwrap().retain(|mapping| (mapping.0, mapping.1) != (iova, len));
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        DomainLimits { apertures: vec![0..=u64::MAX], max_mappings: None, page_size: 4096 }
    }
}

#[test]
fn a_nic_is_let_at_its_window_only_for_reading_and_while_it_is_leased() {
    let (_, memory) = memory(2);
    let domain = Arc::new(Noting::default());
    let window = memory.lease(domain.clone(), "test-nic").unwrap();
    let mapped = domain.mapped.lock().unwrap().clone();
    assert_eq!(mapped.len(), 1);
    assert_eq!((mapped[0].0 % 4096, mapped[0].1, mapped[0].2), (0, WINDOW, Rights::READ));
    drop(window);
    assert!(domain.mapped.lock().unwrap().is_empty());
    let refusing = Arc::new(Noting { refuses: true, ..Noting::default() });
    assert!(matches!(memory.lease(refusing, "test-nic"), Err(Error::MappingsExceeded { .. })));
    assert_eq!(memory.windows().left, 2, "what could not be mapped was given back");
    assert!(memory.lease(domain, "another").is_ok(), "and in order");
}

#[test]
fn a_ring_has_neighbours_to_itself() {
    let (fd, memory) = memory(5);
    let domain = Arc::new(Noting::default());
    let both = Rights::READ | Rights::WRITE;
    let mut ring = memory.lease_ring(domain.clone(), "test-nic", 2 * WINDOW + 1, both).unwrap();
    let mapped = domain.mapped.lock().unwrap().clone();
    assert_eq!((mapped.len(), mapped[0].0 % 4096, mapped[0].1, mapped[0].2), (1, 0, 3 * WINDOW, both));
    assert_eq!((ring.len(), memory.windows().left), (3 * WINDOW, 2));
    let first = lease(&memory).unwrap();
    assert_eq!(first.number(), 0, "rings lie at the end");
    // One window is left, and it is no row of two.
    match memory.lease_ring(domain.clone(), "test-nic", WINDOW + 1, both) {
        Err(e @ Error::NoWindow { wanted: 2, unsettled: 0, .. }) => {
            assert!(e.to_string().contains("no row of 2"), "{e}")
        }
        outcome => panic!("{:?}", outcome.map(|ring| ring.offset())),
    }
    // Parts of words are stored with the rest of their words.
    ring.store(2 * WINDOW, 0x1122_3344_5566_7788);
    ring.store16(2 * WINDOW + 2, 0xaabb);
    assert_eq!(bytes(&fd, 4)[..8], [0x88, 0x77, 0xbb, 0xaa, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(ring.load(2 * WINDOW), 0x1122_3344_aabb_7788);
    // It may be reached still: then it is the same NIC's only.
    ring.set_in_use(true);
    drop(ring);
    drop(first);
    let two = memory.lease_ring(domain.clone(), "other-nic", WINDOW + 1, both).unwrap();
    assert_eq!(two.memory(), "test");
    drop(two);
    let three = memory.lease_ring(domain.clone(), "other-nic", 3 * WINDOW, both);
    assert!(matches!(three, Err(Error::NoWindow { wanted: 3, unsettled: 3, .. })));
    let again = memory.lease_ring(domain.clone(), "test-nic", 5 * WINDOW, both).unwrap();
    assert!((0..5).all(|n| bytes(&fd, n).iter().all(|byte| *byte == 0)), "and it is clean");
    drop(again);
    assert!(memory.lease_ring(domain, "other-nic", 5 * WINDOW, both).is_ok());
}

#[test]
fn a_forked_child_neither_gives_a_window_back_nor_keeps_it() {
    let (fd, memory) = memory(1);
    let other = AdapterMemory::of_file("other", fd.try_clone().unwrap()).unwrap();
    let mut window = Some(lease(&memory).unwrap());
    // One child drops what it has, and one has it until it is told to end.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let children = [true, false].map(|drops| {
        // SAFETY: the child does nothing that another thread could have a lock for, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if drops {
                drop(window.take());
            } else {
                // SAFETY: its own end, so that the pipe ends with the parent's.
                unsafe { libc::close(writer.as_raw_fd()) };
                let _ = std::io::Read::read(&mut reader, &mut [0]);
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        child
    });
    // SAFETY: waits for a child made above.
    let ended = |child| assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    ended(children[0]);
    assert_eq!(other.windows().left, 0, "what a child drops is not its own");
    drop(window);
    assert_eq!(other.windows().left, 1, "a child has the file still, and not the window");
    drop(writer);
    ended(children[1]);
}

#[test]
fn what_is_no_adapter_memory_is_refused_by_name() {
    let small = sealed_memfd("adapter-memory", 8192).unwrap();
    let why = AdapterMemory::of_file("small", small).unwrap_err().to_string();
    assert!(why.contains("small") && why.contains("too few"), "{why}");
    let (fd, memory) = memory(1);
    let len = std::fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().len() as usize;
    let raw = SharedMemory::from_peer(fd.try_clone().unwrap(), 0, len, true).unwrap();
    raw.store_u64(8, 1 << 20);
    let why = AdapterMemory::of_file("other", fd.try_clone().unwrap()).unwrap_err().to_string();
    assert!(why.contains("another version"), "{why}");
    // As a function that does not decode: loads give all-ones, or zeros.
    raw.store_u64(0, u64::MAX);
    assert!(memory.check().is_err() && lease(&memory).is_err());
}

#[test]
fn a_template_stores_what_was_changed() {
    let (fd, memory) = memory(1);
    let mut window = lease(&memory).unwrap();
    let frame: Vec<u8> = (0..100).collect();
    let mut template = Template::new(2, &frame).unwrap();
    assert_eq!(template.changed_words(), 13);
    assert_eq!(template.send(&mut window).unwrap().len(), 100);
    assert_eq!(bytes(&fd, 0)[2 * SLOT..2 * SLOT + 100], frame[..]);
    // Over the edge of two words, while the frame is in flight: it goes out as it was.
    template.patch(6, &[0xaa, 0xbb, 0xcc, 0xdd]).unwrap();
    assert_eq!(template.changed_words(), 2);
    assert!(template.send(&mut window).is_none());
    assert_eq!(bytes(&fd, 0)[2 * SLOT..2 * SLOT + 100], frame[..]);
    window.landed(2);
    assert!(template.send(&mut window).is_some());
    let there = bytes(&fd, 0);
    assert_eq!(there[2 * SLOT + 4..2 * SLOT + 12], [4, 5, 0xaa, 0xbb, 0xcc, 0xdd, 10, 11]);
    assert_eq!(template.changed_words(), 0);
    for (at, len) in [(99, 2), (101, 0), (usize::MAX, 1)] {
        assert!(template.patch(at, &vec![0; len]).is_err());
    }
    assert!(Template::new(0, &[]).is_err() && Template::new(0, &[0; SLOT + 1]).is_err());
    assert!(Template::new(SLOTS, &[1]).unwrap().send(&mut window).is_none());
}

/// What a child process is told: the parent's memfd, and how many windows it takes.
const CHILD: &str = "UVIA_PIO_CHILD";

/// A process that leases so many windows and then sleeps, killed when dropped.
struct Holder(Child);

impl Holder {
    fn new(fd: &OwnedFd, windows: usize) -> Self {
        let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_fd().as_raw_fd());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pio::tests::child_that_holds_windows", "--ignored", "--nocapture"])
            .env(CHILD, format!("{path} {windows}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("holding")), "the child leases its windows");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No test: what [`Holder`] starts.
#[test]
#[ignore = "a child of other tests"]
fn child_that_holds_windows() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (path, windows) = told.split_once(' ').unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let memory = AdapterMemory::of_file("child", file.into()).unwrap();
    let mut windows: Vec<Window> = (0..windows.parse().unwrap())
        .map(|_| memory.lease(Arc::new(IdentityDomain::default()), "child-nic").unwrap())
        .collect();
    for window in &mut windows {
        for n in 0..SLOTS {
            let mut slot = window.slot(n).unwrap();
            slot.put(0, b"of a process that dies");
            slot.send(0..22);
        }
    }
    println!("holding");
    loop {
        std::thread::park();
    }
}

#[test]
fn windows_of_a_process_that_is_killed_come_back_and_are_clean() {
    let (fd, memory) = memory(4);
    let rounds = if std::env::var_os("UVIA_QUICK").is_some() { 2 } else { 5 };
    for _ in 0..rounds {
        let (one, other) = (Holder::new(&fd, 1), Holder::new(&fd, 2));
        assert_eq!(memory.windows().left, 1);
        let own = lease(&memory).unwrap();
        assert!(matches!(lease(&memory), Err(Error::NoWindow { windows: 4, .. })));
        drop(other);
        // Its NIC was of its process, and went with it.
        let taken = [lease(&memory).unwrap(), lease(&memory).unwrap()];
        assert!(matches!(lease(&memory), Err(Error::NoWindow { .. })), "the other one lives");
        for window in taken.iter().chain([&own]) {
            assert!(bytes(&fd, window.number()).iter().all(|byte| *byte == 0));
        }
        drop(one);
        assert!(lease(&memory).is_ok());
    }
    assert_eq!(memory.windows().left, 4);
}

#[test]
fn a_window_that_a_nic_may_still_fetch_from_is_not_given_to_another() {
    let (_, memory) = memory(1);
    let mut window = lease(&memory).unwrap();
    let _ = window.slot(0).unwrap().send(0..60);
    // Closed with a frame in flight, on a NIC of a process that lives (ours).
    drop(window);
    let other = memory.lease(Arc::new(IdentityDomain::default()), "other-nic");
    assert!(matches!(other, Err(Error::NoWindow { windows: 1, unsettled: 1, .. })));
    // The NIC itself may have it again: whoever holds it now has taken it over.
    assert!(lease(&memory).is_ok());
    assert!(memory.lease(Arc::new(IdentityDomain::default()), "other-nic").is_ok(), "given back in order");
}
