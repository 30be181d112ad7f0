//! What every NIC driver must do, on devices as they are: two NICs back to back, named by UVIA_NIC_A and
//! UVIA_NIC_B, on vfio-pci in a machine with an IOMMU. Which kinds they are makes no difference here, and
//! they may differ. Run as root, one test at a time. `tests/run` does so in a guest.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uvia_driver::dma::{DmaMemory, DmaRegion, DmaSegment, Rights};
use uvia_driver::nic::{self, Nic, NicConfig, RxFilter, TxFrame};
use uvia_driver::pci::{self, DeviceDomain};
use uvia_driver::{Error, Result};

const HEADER: usize = 14;
/// Local experimental EtherType 2: what else comes along the wire is passed over.
const ETHERTYPE: [u8; 2] = [0x88, 0xb6];
/// Frames in the payload memory.
const SLOTS: usize = 512;
const SLOT: usize = 2048;
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls after which a frame is lost, where looking at the clock would be measured too, or is forbidden.
const LOST: u64 = 200_000_000;

fn name(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| panic!("{variable} names no device"))
}

/// One end.
struct End {
    nic: Box<dyn Nic>,
    peer: [u8; 6],
    tokens: VecDeque<u64>,
    next: u64,
}

/// Both NICs in one domain, with memory for frames.
struct Pair {
    // In this order: the NICs are gone before memory that they may refer to.
    a: End,
    b: End,
    payload: DmaMemory,
    domain: Arc<dyn DeviceDomain>,
}

fn open_pair(config: &NicConfig) -> Result<Pair> {
    let domain = pci::new_domain(&name("UVIA_NIC_A"))?;
    let a = nic::open(domain.clone().open(&name("UVIA_NIC_A"))?, config)?;
    let b = nic::open(domain.clone().open(&name("UVIA_NIC_B"))?, config)?;
    let payload = DmaMemory::allocate(domain.clone(), SLOTS * SLOT, Rights::READ)?;
    let end = |nic, peer| End { nic, peer, tokens: VecDeque::new(), next: 0 };
    let (of_a, of_b) = (a.properties().mac.0, b.properties().mac.0);
    Ok(Pair { a: end(a, of_b), b: end(b, of_a), payload, domain })
}

/// Both NICs, ready.
fn pair() -> Pair {
    let mut pair = open_pair(&NicConfig::default()).unwrap_or_else(|e| panic!("{e}"));
    for end in [&mut pair.a, &mut pair.b] {
        end.nic.wait_ready(PATIENCE).unwrap();
    }
    pair
}

/// The frame with this token: `len` bytes that depend on it.
fn content(from: [u8; 6], to: [u8; 6], token: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(to);
    bytes.extend(from);
    bytes.extend(ETHERTYPE);
    bytes.extend(token.to_le_bytes());
    let mut n = token.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < len {
        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.push((n >> 56) as u8);
    }
    bytes.truncate(len);
    bytes
}

impl End {
    /// Puts a frame of `len` bytes in `parts` into the ring: its content, or `None` when the ring is full.
    fn put(&mut self, payload: &DmaMemory, len: usize, parts: usize) -> Option<Vec<u8>> {
        assert!(self.tokens.len() < SLOTS / 2, "more in the ring than it can hold");
        let mac = self.nic.properties().mac.0;
        let token = self.next;
        let bytes = content(mac, self.peer, token, len);
        // The two ends use a half of the memory each.
        let half = if mac < self.peer { 0 } else { SLOTS / 2 };
        let start = (half + token as usize % (SLOTS / 2)) * SLOT;
        payload.write_bytes(start, &bytes);
        let cut = |n: usize| start + len * n / parts;
        let segments: Vec<_> = (0..parts).map(|n| payload.segment(cut(n)..cut(n + 1)).unwrap()).collect();
        if !self.nic.transmit(&TxFrame { segments: &segments, token }).unwrap() {
            return None;
        }
        self.tokens.push_back(token);
        self.next += 1;
        Some(bytes)
    }

    /// Takes tokens back, and sees that each is one that is out.
    fn reclaim(&mut self) {
        let tokens = &mut self.tokens;
        self.nic
            .reclaim(&mut |token| {
                let at = tokens.iter().position(|t| *t == token).expect("a token that is out");
                tokens.remove(at);
            })
            .unwrap();
    }

    /// Takes back all tokens that are out.
    fn settle(&mut self) {
        let start = Instant::now();
        while !self.tokens.is_empty() {
            self.reclaim();
            assert!(start.elapsed() < PATIENCE, "{} tokens did not come back", self.tokens.len());
        }
    }

    /// Frames of ours that are there now.
    fn take(&mut self, budget: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.nic
            .receive(budget, &mut |frame| {
                let mut bytes = vec![0; frame.len()];
                assert!(frame.read(0, &mut bytes));
                if bytes.get(12..HEADER) == Some(&ETHERTYPE) {
                    frames.push(bytes);
                }
            })
            .unwrap();
        frames
    }

    /// The next frames, which must be exactly these.
    fn expect(&mut self, expected: &[Vec<u8>]) {
        let start = Instant::now();
        let mut got = 0;
        while got < expected.len() {
            for frame in self.take(64) {
                assert!(frame == expected[got], "frame {got} of {} bytes differs", expected[got].len());
                got += 1;
            }
            assert!(start.elapsed() < PATIENCE, "only {got} of {} frames came", expected.len());
        }
    }

    fn readable(&self, wait: Duration) -> bool {
        let fd = self.nic.interrupt().expect("it has interrupts").as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, in a local.
        unsafe { libc::poll(&raw mut poll, 1, wait.as_millis() as i32) == 1 }
    }
}

/// The pair seen from either side.
fn both_ways(pair: &mut Pair, mut test: impl FnMut(&mut End, &mut End, &DmaMemory)) {
    test(&mut pair.a, &mut pair.b, &pair.payload);
    test(&mut pair.b, &mut pair.a, &pair.payload);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn comes_up() {
    let started = Instant::now();
    let mut pair = open_pair(&NicConfig::default()).unwrap_or_else(|e| panic!("{e}"));
    let opened = started.elapsed();
    for end in [&mut pair.a, &mut pair.b] {
        end.nic.wait_ready(PATIENCE).unwrap();
        let link = end.nic.link().unwrap();
        println!("{link:?} {:?}", end.nic.statistics());
        let p = end.nic.properties();
        println!("{p:?}");
        assert!(link.up && p.mac.is_unicast() && p.max_frame == p.mtu + HEADER);
        assert!(p.tx_slots >= 64 && p.rx_slots >= 64 && p.max_segments >= 4 && !p.lossless);
        assert!(end.nic.interrupt().is_some());
    }
    println!("opened both in {opened:?}, ready after {:?}", started.elapsed());
    assert_ne!(pair.a.nic.properties().mac, pair.b.nic.properties().mac);
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn every_size_arrives_whole() {
    both_ways(&mut pair(), |from, to, payload| {
        let (most, longest) = (from.nic.properties().max_segments, 1514.min(from.nic.properties().max_frame));
        for len in 60..=longest {
            let sent = from.put(payload, len, 1 + len % most).unwrap();
            from.nic.flush().unwrap();
            to.expect(&[sent]);
            from.settle();
        }
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn bursts_of_all_lengths_over_many_laps() {
    both_ways(&mut pair(), |from, to, payload| {
        let before = from.nic.statistics();
        let mut frames = 0;
        for burst in (1..=64).chain([100, 128, 200]).cycle().take(150) {
            let mut sent = Vec::new();
            for n in 0..burst {
                match from.put(payload, 60 + (burst * 31 + n * 7) % 1400, 1 + n % 3) {
                    Some(bytes) => sent.push(bytes),
                    None => break,
                }
            }
            from.nic.flush().unwrap();
            to.expect(&sent);
            from.settle();
            frames += sent.len() as u64;
        }
        let after = from.nic.statistics();
        assert_eq!(after.tx_frames - before.tx_frames, frames);
        let doorbells = after.doorbells - before.doorbells;
        println!("{frames} frames in 150 bursts by {doorbells} doorbells of the sender");
        // One a burst, and one for each time that a burst filled the ring.
        assert!(doorbells <= 200);
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_small_ring_says_when_it_is_full_and_loses_nothing() {
    let config = NicConfig { tx_ring: 16, rx_ring: 16, interrupts: false };
    let mut pair = open_pair(&config).unwrap_or_else(|e| panic!("{e}"));
    for end in [&mut pair.a, &mut pair.b] {
        end.nic.wait_ready(PATIENCE).unwrap();
        assert!(end.nic.interrupt().is_none());
    }
    both_ways(&mut pair, |from, to, payload| {
        let slots = from.nic.properties().tx_slots;
        let (mut sent, mut full) = (Vec::new(), 0);
        let start = Instant::now();
        while sent.len() < 3000 {
            match from.put(payload, 60 + sent.len() % 900, 1 + sent.len() % 2) {
                Some(bytes) => sent.push(bytes),
                None => {
                    full += 1;
                    assert!(from.tokens.len() <= slots);
                    from.reclaim();
                    assert!(start.elapsed() < PATIENCE, "no progress");
                    continue;
                }
            }
            if sent.len() % 8 == 0 {
                from.nic.flush().unwrap();
                to.expect(&sent[sent.len() - 8..]);
            }
        }
        println!("the ring was full {full} times");
        from.nic.flush().unwrap();
        from.settle();
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_receiver_that_does_not_look_loses_no_more_than_it_must() {
    both_ways(&mut pair(), |from, to, payload| {
        // No more than it has buffers: all of them wait there.
        let count = to.nic.properties().rx_slots.min(200);
        let mut sent = Vec::new();
        while sent.len() < count {
            match from.put(payload, 60 + sent.len(), 1) {
                Some(bytes) => sent.push(bytes),
                None => from.reclaim(),
            }
        }
        from.nic.flush().unwrap();
        from.settle();
        sleep(Duration::from_millis(50));
        to.expect(&sent);
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn what_cannot_be_sent_is_refused() {
    let mut pair = pair();
    let properties = pair.a.nic.properties().clone();
    let long = pair.payload.segment(0..properties.max_frame + 1).unwrap();
    let short = pair.payload.segment(0..4).unwrap();
    let many = vec![short; properties.max_segments + 1];
    for segments in [&[][..], &[long], &many] {
        let refused = pair.a.nic.transmit(&TxFrame { segments, token: 9 });
        assert!(matches!(refused, Err(Error::Argument { .. })), "{refused:?}");
    }
    let sent = pair.a.put(&pair.payload, 77, 1).unwrap();
    pair.a.nic.flush().unwrap();
    pair.b.expect(&[sent]);
    pair.a.settle();
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn interrupts_wake_a_sleeper_and_only_when_armed() {
    both_ways(&mut pair(), |from, to, payload| {
        let send = |from: &mut End| {
            let sent = from.put(payload, 64, 1).unwrap();
            from.nic.flush().unwrap();
            from.settle();
            sent
        };
        for round in 0..20 {
            to.nic.arm(true).unwrap();
            assert!(to.take(64).is_empty());
            if round == 0 {
                assert!(!to.readable(Duration::from_millis(100)), "woken by nothing");
            }
            let asleep = Instant::now();
            let sent = send(from);
            assert!(to.readable(PATIENCE), "not woken in round {round}");
            if round == 0 {
                println!("woken after {:?}", asleep.elapsed());
            }
            to.expect(&[sent]);
        }
        // Armed, and frames taken without sleeping: still armed for the next.
        to.nic.arm(true).unwrap();
        let sent = send(from);
        to.expect(&[sent]);
        to.nic.arm(true).unwrap();
        let sent = send(from);
        assert!(to.readable(PATIENCE));
        to.nic.arm(false).unwrap();
        to.expect(&[sent]);
        let sent = send(from);
        to.expect(&[sent]);
        assert!(!to.readable(Duration::from_millis(50)), "woken although not armed");
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn a_reset_drops_frames_and_gives_every_token_back() {
    let mut pair = pair();
    for _ in 0..3 {
        both_ways(&mut pair, |from, to, payload| {
            // Some are sent, some the device has not been told of.
            for n in 0..20 {
                from.put(payload, 100, 2).unwrap();
                if n == 9 {
                    from.nic.flush().unwrap();
                }
            }
            from.nic.reset().unwrap();
            from.settle();
            assert_eq!(from.nic.reclaim(&mut |t| panic!("token {t} twice")).unwrap(), 0);
            from.nic.wait_ready(PATIENCE).unwrap();
            to.take(usize::MAX);
        });
        both_ways(&mut pair, |from, to, payload| {
            let sent: Vec<_> = (0..40).map(|n| from.put(payload, 60 + n, 1).unwrap()).collect();
            from.nic.flush().unwrap();
            to.expect(&sent);
            from.settle();
        });
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn counters_count() {
    both_ways(&mut pair(), |from, to, payload| {
        let (sender, receiver) = (from.nic.statistics(), to.nic.statistics());
        let sent: Vec<_> = (0..50).map(|n| from.put(payload, 60 + n, 1).unwrap()).collect();
        let bytes: u64 = sent.iter().map(|s| s.len() as u64).sum();
        from.nic.flush().unwrap();
        to.expect(&sent);
        from.settle();
        let (sender, receiver) = (
            (
                from.nic.statistics().tx_frames - sender.tx_frames,
                from.nic.statistics().tx_bytes - sender.tx_bytes,
            ),
            (
                to.nic.statistics().rx_frames - receiver.rx_frames,
                to.nic.statistics().rx_bytes - receiver.rx_bytes,
            ),
        );
        assert_eq!((sender, receiver), ((50, bytes), (50, bytes)));
        assert_eq!(to.nic.statistics().rx_errors, 0);
    });
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn frames_for_others_come_only_when_asked_for() {
    let mut pair = pair();
    let (payload, other) = (&pair.payload, [0x52, 0x54, 0, 0xff, 0xff, 0xfe]);
    let own = pair.a.peer;
    for promiscuous in [false, true, false] {
        let filter = RxFilter { promiscuous, all_multicast: false };
        if let Err(e) = pair.b.nic.set_filter(filter) {
            assert!(matches!(e, Error::Unsupported { .. }), "{e}");
            return;
        }
        pair.b.nic.wait_ready(PATIENCE).unwrap();
        let mut expected = Vec::new();
        for to in [other, [0xff; 6], own] {
            pair.a.peer = to;
            let sent = pair.a.put(payload, 80, 1).unwrap();
            if to != other || promiscuous {
                expected.push(sent);
            }
            pair.a.nic.flush().unwrap();
        }
        pair.b.expect(&expected);
        pair.a.settle();
    }
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn opens_and_closes_again_and_again() {
    let start = Instant::now();
    for round in 0..20 {
        let pair = open_pair(&NicConfig::default()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        drop(pair);
    }
    println!("20 times in {:?}", start.elapsed());
    // And it works afterwards.
    let mut pair = pair();
    let sent = pair.a.put(&pair.payload, 64, 1).unwrap();
    pair.a.nic.flush().unwrap();
    pair.b.expect(&[sent]);
    pair.a.settle();
}

/// What the kernel logs from now on.
struct KernelLog(File);

impl KernelLog {
    fn from_now() -> Self {
        let mut log = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .expect("/dev/kmsg, as root");
        log.seek(SeekFrom::End(0)).unwrap();
        Self(log)
    }

    /// Whether a line with all these words comes within a second.
    fn says(&mut self, words: &[&str]) -> bool {
        let start = Instant::now();
        let mut record = [0; 8192];
        while start.elapsed() < Duration::from_secs(1) {
            match self.0.read(&mut record) {
                Ok(len) => {
                    let line = String::from_utf8_lossy(&record[..len]);
                    if words.iter().all(|word| line.contains(word)) {
                        println!("the kernel says: {}", line.lines().next().unwrap_or_default());
                        return true;
                    }
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
        false
    }
}

/// The IOMMU is on, or this fails: a descriptor that the interface would never let anybody make points to
/// memory that was registered once and is no more, and holds a secret.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn stray_dma_is_blocked() {
    const SECRET: &[u8] = b"not for the wire";
    let mut pair = pair();
    for backwards in [false, true] {
        let Pair { a, b, payload, domain } = &mut pair;
        let (from, to) = if backwards { (b, a) } else { (a, b) };
        let mut page = memmap2::MmapMut::map_anon(4096).unwrap();
        let frame = content(from.nic.properties().mac.0, from.peer, 0, 64);
        page[..64].copy_from_slice(&frame);
        for chunk in page[64..].chunks_exact_mut(SECRET.len()) {
            chunk.copy_from_slice(SECRET);
        }
        // SAFETY: `page` outlives the region, which is unmapped at once, and is not written any more.
        let region =
            unsafe { DmaRegion::register(domain.clone(), page.as_mut_ptr(), 4096, Rights::READ) }.unwrap();
        // It is reachable while it is registered: the secret itself passes, so the test can see it.
        let whole = region.segment(0..1024).unwrap();
        assert!(from.nic.transmit(&TxFrame { segments: &[whole], token: 1 }).unwrap());
        from.nic.flush().unwrap();
        from.tokens.push_back(1);
        to.expect(&[page[..1024].to_vec()]);
        from.settle();

        let mut log = KernelLog::from_now();
        let iova = region.iova();
        drop(region);
        // SAFETY: the address is mapped for nothing, which is the point.
        let stray = unsafe { DmaSegment::unchecked(iova, 1024) };
        assert!(from.nic.transmit(&TxFrame { segments: &[stray], token: 2 }).unwrap());
        from.nic.flush().unwrap();
        // Of a NIC that another process serves, that process checks the accesses, and the IOMMU sees nothing.
        if env::var_os("UVIA_NICS_SERVED").is_none() {
            assert!(log.says(&["DMAR", "fault"]), "the IOMMU logged no fault: is it on?");
        }
        let mut frames = 0;
        to.nic
            .receive(64, &mut |frame| {
                let mut bytes = vec![0; frame.len()];
                assert!(frame.read(0, &mut bytes));
                assert!(!bytes.windows(SECRET.len()).any(|w| w == SECRET), "the secret went out");
                frames += 1;
            })
            .unwrap();
        println!("{}: {frames} frames came of it", from.nic.properties().driver);

        // Whatever the device made of it, it works again after a reset.
        from.nic.reset().unwrap();
        from.nic.reclaim(&mut |token| assert_eq!(token, 2)).unwrap();
        from.nic.wait_ready(PATIENCE).unwrap();
        let sent = from.put(payload, 64, 1).unwrap();
        from.nic.flush().unwrap();
        to.expect(&[sent]);
        from.settle();
    }
}

/// Any system call kills the child that plays frames back and forth. A child does not get the parent's DMA
/// memory, so that it opens the NICs itself.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn the_polled_path_makes_no_system_call() {
    const ROUNDS: u64 = 2000;
    // SAFETY: the child runs on its own copy of this thread, and leaves by exit without running anything of the
    // parent's; the allocator works after a fork, and no other lock is held by another thread that it needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // A panic must not go on into the parent's tests.
        let _ = std::panic::catch_unwind(|| ping_pong_sealed(ROUNDS));
        // SAFETY: ends the child; reached only when something went wrong before it was sealed.
        unsafe { libc::_exit(1) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        !(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL),
        "a system call was made on the polled path"
    );
    assert_eq!(status, 0, "the child failed (its words are above), or lost a frame (status 2 << 8)");
}

/// Opens the pair, forbids system calls, and does not return.
fn ping_pong_sealed(rounds: u64) {
    let mut pair = pair();
    let segment = |end: &End, payload: &DmaMemory, n: usize| {
        payload.write_bytes(n * SLOT, &content(end.nic.properties().mac.0, end.peer, n as u64, 64));
        [payload.segment(n * SLOT..n * SLOT + 64).unwrap()]
    };
    let (there, back) = (segment(&pair.a, &pair.payload, 0), segment(&pair.b, &pair.payload, 1));
    let leg = |from: &mut End, to: &mut End, segments: &[DmaSegment]| -> bool {
        let sent = from.nic.reclaim(&mut |_| ()).is_ok()
            && from.nic.transmit(&TxFrame { segments, token: 0 }).is_ok_and(|taken| taken)
            && from.nic.flush().is_ok();
        sent && (0..LOST).any(|_| {
            std::hint::spin_loop();
            to.nic.receive(1, &mut |_| ()).is_ok_and(|frames| frames == 1)
        })
    };
    // SAFETY: from here on only read, write, exit and sigreturn are allowed to this thread, the process's only
    // one.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) }, 0);
    let whole =
        (0..rounds).all(|_| leg(&mut pair.a, &mut pair.b, &there) && leg(&mut pair.b, &mut pair.a, &back));
    // SAFETY: the bare call, since glibc's `_exit` makes one that is forbidden. The kernel closes the devices.
    unsafe { libc::syscall(libc::SYS_exit, if whole { 0 } else { 2 }) };
}

/// Not a test of speed, since machines differ: prints what one frame costs here.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn half_round_trip() {
    const ROUNDS: usize = 20_000;
    let mut pair = pair();
    let segment = |end: &mut End, payload: &DmaMemory, n: usize| {
        let bytes = content(end.nic.properties().mac.0, end.peer, 0, 64);
        payload.write_bytes(n * SLOT, &bytes);
        payload.segment(n * SLOT..n * SLOT + 64).unwrap()
    };
    let there = [segment(&mut pair.a, &pair.payload, 0)];
    let back = [segment(&mut pair.b, &pair.payload, 1)];
    let leg = |from: &mut End, to: &mut End, segments: &[DmaSegment]| {
        from.nic.reclaim(&mut |_| ()).unwrap();
        assert!(from.nic.transmit(&TxFrame { segments, token: 0 }).unwrap());
        from.nic.flush().unwrap();
        let mut polls = 0u64;
        while to.nic.receive(1, &mut |_| ()).unwrap() == 0 {
            polls += 1;
            assert!(polls < LOST, "a frame was lost");
            std::hint::spin_loop();
        }
    };
    let mut halves = Vec::with_capacity(ROUNDS);
    let doorbells = [pair.a.nic.statistics().doorbells, pair.b.nic.statistics().doorbells];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        leg(&mut pair.a, &mut pair.b, &there);
        leg(&mut pair.b, &mut pair.a, &back);
        halves.push(start.elapsed().as_nanos() as u64 / 2);
    }
    halves.sort_unstable();
    let at = |per_mille: usize| halves[(ROUNDS - 1) * per_mille / 1000] as f64 / 1000.0;
    println!(
        "64 bytes, half a round trip: least {:.2} us, p50 {:.2} us, p90 {:.2} us, p99 {:.2} us; doorbells {} and {} in {ROUNDS} rounds",
        at(0),
        at(500),
        at(900),
        at(990),
        pair.a.nic.statistics().doorbells - doorbells[0],
        pair.b.nic.statistics().doorbells - doorbells[1],
    );
    // How many frames one core moves, 32 at a time.
    let start = Instant::now();
    let mut got = 0;
    while start.elapsed() < Duration::from_secs(1) {
        let frames = [TxFrame { segments: &there, token: 0 }; 32];
        let sent = pair.a.nic.transmit_burst(&frames).unwrap();
        let mut left = sent;
        let patience = Instant::now();
        while left > 0 && patience.elapsed() < Duration::from_secs(1) {
            left = left.saturating_sub(pair.b.nic.receive(64, &mut |_| ()).unwrap());
        }
        pair.a.nic.reclaim(&mut |_| ()).unwrap();
        got += sent - left;
    }
    println!(
        "{} thousand frames of 64 bytes a second, 32 at a time",
        got as u128 / start.elapsed().as_millis()
    );
}
