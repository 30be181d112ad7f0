//! Virtual interfaces of class Pio: their frames lie in adapter memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uvia::{
    AdapterMemory, Clock, Completion, Descriptor, Encapsulation, EndpointClass, Error, MemoryAttributes, Nic,
    NicOptions, PioMissing, ReliabilityLevel, ViAttributes, WorkQueue,
};
use uvia_driver::dma::IdentityDomain;
use uvia_driver::{DeviceFault, Error as DriverError};
use uvia_models::faults::Plan;
use uvia_models::machine::Kind;
use uvia_tests::bench::InProcess;
use uvia_tests::conformance::{Bench, Memory, Opened};
use uvia_tests::{End, Faults, MemoryNic, ViPair, join, memory_pair, memory_pair_with};

fn options(name: &str, memory: &Memory) -> NicOptions {
    NicOptions {
        name: Some(name.to_owned()),
        adapter_memory: Some(memory.memory.clone()),
        ..NicOptions::default()
    }
}

fn over(nics: (Box<MemoryNic>, Box<MemoryNic>, Arc<IdentityDomain>), memory: &Memory) -> (Nic, Nic) {
    let (a, b, domain) = nics;
    let a = Nic::with_adapter(a, domain.clone(), options("a", memory)).unwrap();
    (a, Nic::with_adapter(b, domain, options("b", memory)).unwrap())
}

/// A pair over two NICs, whose end A is of class Pio and whose end B is of class Dma.
fn mixed((a, b): (Nic, Nic), change: impl Fn(&mut ViAttributes)) -> ViPair {
    let a = End::new(a, change).unwrap();
    let b = End::new(b, |attributes| {
        let theirs = a.vi.attributes();
        attributes.max_transfer_size = theirs.max_transfer_size;
        attributes.reliability = theirs.reliability;
    })
    .unwrap();
    join(&a, &b, b"pio").unwrap();
    ViPair { a, b }
}

fn pio_pair(nics: (Nic, Nic)) -> ViPair {
    let limits = nics.0.pio().unwrap();
    mixed(nics, |attributes| *attributes = ViAttributes::pio(attributes.tag, &limits))
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + seed * 7 + n / 251) as u8).collect()
}

/// Posts a receive at B.
fn receive(pair: &ViPair, memory: &uvia::MemoryRegion, at: usize) {
    pair.b.vi.post_receive(Descriptor::new(vec![memory.segment(at..at + 512).unwrap()])).unwrap();
}

fn next(pair: &ViPair, end: impl Fn(&ViPair) -> &End) -> Completion {
    let done = pair.drive(|pair| end(pair).cq.poll().unwrap());
    assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
    done
}

#[test]
fn messages_of_every_size_go_out_from_adapter_memory() {
    let memory = Memory::of_host();
    let pair = pio_pair(over(memory_pair(), &memory));
    let mtu = pair.a.nic.pio().unwrap().mtu as usize;
    let to = pair.b.memory(512).unwrap();
    let from = pair.a.memory(512).unwrap();
    let mut descriptor = Descriptor::new(Vec::new());
    for (round, len) in (0..=mtu).step_by(7).chain([1, 8, 63, 64, 65, 128, 129, mtu - 1, mtu]).enumerate() {
        let data = bytes(len, round);
        receive(&pair, &to, 0);
        if round % 2 == 0 {
            // Of memory that is registered nowhere, and is the program's again at once.
            let mut buffer = data.clone();
            pair.a.vi.inject(descriptor, &buffer).unwrap();
            buffer.fill(0xee);
        } else {
            from.write(0, &data).unwrap();
            descriptor = Descriptor::new(vec![from.segment(0..len).unwrap()]);
            pair.a.vi.post_send(descriptor).unwrap();
        }
        let got = next(&pair, |pair| &pair.b);
        assert_eq!((got.queue, got.descriptor.length() as usize), (WorkQueue::Receive, len));
        let mut there = vec![0; len];
        to.read(0, &mut there).unwrap();
        assert!(there == data, "{len} bytes differ");
        descriptor = next(&pair, |pair| &pair.a).descriptor;
        // It was there, in a window that is this interface's.
        let all = memory.read(0, 1 << 20);
        assert!(len < 8 || all.windows(len).any(|window| window == data), "{len} bytes were elsewhere");
    }
}

#[test]
fn immediate_data_gather_lists_and_checks_go_along() {
    let memory = Memory::of_host();
    let (a, b, domain) = memory_pair();
    let mut a_options = options("a", &memory);
    a_options.integrity = true;
    let a = Nic::with_adapter(a, domain.clone(), a_options).unwrap();
    let b = Nic::with_adapter(b, domain, options("b", &memory)).unwrap();
    let pair = pio_pair((a, b));
    let (from, to) = (pair.a.memory(512).unwrap(), pair.b.memory(512).unwrap());
    let data = bytes(300, 1);
    from.write(0, &data).unwrap();
    receive(&pair, &to, 0);
    let parts = [0..1, 1..12, 12..12, 12..299, 299..300];
    let mut descriptor =
        Descriptor::new(parts.into_iter().map(|range| from.segment(range).unwrap()).collect());
    descriptor.immediate = Some(4711);
    pair.a.vi.post_send(descriptor).unwrap();
    let got = next(&pair, |pair| &pair.b).descriptor;
    assert_eq!((got.immediate, got.length()), (Some(4711), 300));
    let mut there = vec![0; 300];
    to.read(0, &mut there).unwrap();
    assert_eq!(there, data);
    let mut descriptor = next(&pair, |pair| &pair.a).descriptor;
    receive(&pair, &to, 0);
    descriptor.immediate = Some(1);
    pair.a.vi.inject(descriptor, b"with a number").unwrap();
    assert_eq!(next(&pair, |pair| &pair.b).descriptor.immediate, Some(1));
    assert_eq!(pair.b.nic.statistics().damaged, 0);
}

#[test]
fn what_is_lost_is_sent_again_from_its_slot() {
    let memory = Memory::of_host();
    let faults = Faults { loss: 100, duplicates: 50, seed: 3, ..Faults::default() };
    let count = if std::env::var_os("UVIA_QUICK").is_some() { 300 } else { 2000 };
    let pair = pio_pair(over(memory_pair_with(faults), &memory));
    let to = pair.b.memory(512 * 64).unwrap();
    for n in 0..64 {
        receive(&pair, &to, 512 * n);
    }
    let mut idle: Vec<_> = (0..16).map(|_| Descriptor::new(Vec::new())).collect();
    let (mut sent, mut received) = (0usize, 0usize);
    while received < count {
        if sent < count
            && let Some(descriptor) = idle.pop()
        {
            let data = bytes(1 + sent * 13 % 448, sent);
            pair.a.vi.inject(descriptor, &data).unwrap();
            sent += 1;
        }
        if let Some(done) = pair.a.cq.poll().unwrap() {
            assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
            idle.push(done.descriptor);
        }
        if let Some(got) = pair.b.cq.poll().unwrap() {
            assert!(got.descriptor.status().is_success(), "{:?}", got.descriptor.status());
            let (at, len) = (512 * (received % 64), 1 + received * 13 % 448);
            let mut there = vec![0; got.descriptor.length() as usize];
            to.read(at, &mut there).unwrap();
            assert!(there == bytes(len, received), "message {received} differs");
            pair.b.vi.post_receive(got.descriptor).unwrap();
            received += 1;
        }
    }
}

#[test]
fn credits_are_slots_and_beyond_them_sends_would_block() {
    let memory = Memory::of_host();
    let pair = pio_pair(over(memory_pair(), &memory));
    let slots = pair.a.nic.pio().unwrap().slots;
    let to = pair.b.memory(512 * 32).unwrap();
    for n in 0..32 {
        receive(&pair, &to, 512 * n);
    }
    // Nobody drives B: nothing is acknowledged.
    for n in 0..slots {
        pair.a.vi.inject(Descriptor::new(Vec::new()), &[n as u8; 100]).unwrap();
    }
    let refused = pair.a.vi.inject(Descriptor::new(Vec::new()), b"one more").unwrap_err();
    assert!(matches!(refused.error, Error::WouldBlock { credits } if credits == slots), "{}", refused.error);
    let mut descriptor = refused.descriptor;
    for _ in 0..slots {
        next(&pair, |pair| &pair.b);
    }
    next(&pair, |pair| &pair.a);
    // What was refused left nothing behind, and goes now.
    descriptor.context = 9;
    pair.a.vi.inject(descriptor, b"one more").unwrap();
    assert_eq!(next(&pair, |pair| &pair.b).descriptor.length(), 8);
}

#[test]
fn the_last_credit_asks_for_an_acknowledgement() {
    // No time passes: what is acknowledged was asked for.
    let clock = Clock::manual(Arc::new(AtomicU64::new(1_000_000_000)));
    let memory = Memory::of_host();
    let (a, b, domain) = memory_pair();
    let open = |adapter, name: &str| {
        let options = NicOptions { clock: clock.clone(), ..options(name, &memory) };
        Nic::with_adapter(adapter, domain.clone(), options).unwrap()
    };
    let (a, b) = (open(a, "a"), open(b, "b"));
    let limits = a.pio().unwrap();
    let pair = mixed((a, b), |attributes| {
        *attributes = ViAttributes { send_depth: 8, ..ViAttributes::pio(attributes.tag, &limits) };
    });
    let to = pair.b.memory(512 * 64).unwrap();
    let mut idle: Vec<_> = (0..8).map(|_| Descriptor::new(Vec::new())).collect();
    for round in 0..8 {
        for n in 0..8 {
            receive(&pair, &to, 512 * (8 * round + n));
            pair.a.vi.inject(idle.pop().unwrap(), b"one of eight").unwrap();
        }
        for _ in 0..8 {
            next(&pair, |pair| &pair.b);
        }
        while idle.len() < 8 {
            idle.push(next(&pair, |pair| &pair.a).descriptor);
        }
    }
}

#[test]
fn what_the_class_is_can_be_asked_and_more_is_refused() {
    let memory = Memory::of_host();
    let (a, b) = over(memory_pair(), &memory);
    let about = a.pio().unwrap();
    assert_eq!((about.windows, about.windows_left, about.slots, about.mtu), (124, 124, 16, 448));
    assert_eq!((about.store_width, about.alignment, about.missing), (8, 8, PioMissing::all()));
    let usual = ViAttributes::pio(a.create_tag().unwrap(), &about);
    let refusal = |attributes: ViAttributes| a.create_vi(&attributes, None, None).err().unwrap();
    let e = refusal(ViAttributes { send_depth: 17, ..usual });
    assert!(matches!(e, Error::BeyondClass { asked: 17, limit: 16, .. }), "{e}");
    let e = refusal(ViAttributes { max_transfer_size: 449, ..usual });
    assert!(matches!(e, Error::BeyondClass { asked: 449, limit: 448, .. }), "{e}");
    for e in [
        refusal(ViAttributes { rdma_write: true, ..usual }),
        refusal(ViAttributes { rdma_read: true, ..usual }),
    ] {
        assert!(matches!(&e, Error::ClassUnavailable { why, .. } if why.contains("RDMA")), "{e}");
    }
    assert_eq!(a.pio().unwrap().windows_left, 124, "what was refused took no window");
    let vi = a.create_vi(&usual, None, None).unwrap();
    assert_eq!(a.pio().unwrap().windows_left, 123);
    let e = vi.inject(Descriptor::new(Vec::new()), &[0; 449]).unwrap_err();
    assert!(matches!(e.error, Error::TooLong { length: 449, limit: 448 }), "{}", e.error);
    let region = a.allocate(512, MemoryAttributes::local(usual.tag)).unwrap();
    let e = vi.post_send(Descriptor::new(vec![region.segment(0..449).unwrap()])).unwrap_err();
    assert!(matches!(e.error, Error::TooLong { length: 449, limit: 448 }), "{}", e.error);
    let far = region.remote(0).unwrap();
    for rdma in [Descriptor::rdma_write(vec![], far), Descriptor::rdma_read(vec![], far)] {
        let e = vi.post_send(rdma).unwrap_err();
        assert!(matches!(e.error, Error::NotInClass { class: EndpointClass::Pio, .. }), "{}", e.error);
    }
    assert!(vi.set_attributes(&ViAttributes { max_transfer_size: 449, ..usual }).is_err());
    assert!(vi.set_attributes(&ViAttributes { class: EndpointClass::Dma, ..usual }).is_err());
    vi.set_attributes(&ViAttributes { max_transfer_size: 100, ..usual }).unwrap();
    drop(vi);
    assert_eq!(a.pio().unwrap().windows_left, 124);
    // An interface of the other class sends no bytes that are not registered, nor a buffer of another's.
    let dma = b.create_vi(&ViAttributes::new(b.create_tag().unwrap()), None, None).unwrap();
    let e = dma.inject(Descriptor::new(Vec::new()), b"x").unwrap_err();
    assert!(matches!(e.error, Error::NotInClass { class: EndpointClass::Dma, .. }), "{}", e.error);
}

#[test]
fn windows_run_out_and_a_fallback_is_by_name_and_can_be_seen() {
    let memory = Memory::of_host();
    let (a, b) = over(memory_pair(), &memory);
    let about = a.pio().unwrap();
    let (tag_a, tag_b) = (a.create_tag().unwrap(), b.create_tag().unwrap());
    let of = |nic: &Nic, tag, class| {
        let attributes = ViAttributes { class, receive_depth: 1, ..ViAttributes::pio(tag, &about) };
        nic.create_vi(&attributes, None, None)
    };
    let mut all: Vec<_> = (0..about.windows)
        .map(|n| match n % 2 {
            0 => of(&a, tag_a, EndpointClass::Pio).unwrap(),
            _ => of(&b, tag_b, EndpointClass::PioElseDma).unwrap(),
        })
        .collect();
    assert!(all.iter().all(|vi| vi.attributes().class == EndpointClass::Pio));
    for (nic, tag) in [(&a, tag_a), (&b, tag_b)] {
        let e = of(nic, tag, EndpointClass::Pio).err().unwrap();
        assert!(matches!(e, Error::Driver(uvia_driver::Error::NoWindow { windows: 124, .. })), "{e}");
    }
    let fallen = of(&a, tag_a, EndpointClass::PioElseDma).unwrap();
    assert_eq!(fallen.attributes().class, EndpointClass::Dma);
    all.pop();
    assert!(of(&a, tag_a, EndpointClass::Pio).is_ok());
}

#[test]
fn without_adapter_memory_the_class_is_not_there_and_the_reason_is() {
    let (a, _b, domain) = memory_pair();
    let nic = Nic::with_adapter(a, domain, NicOptions::default()).unwrap();
    assert_eq!(nic.properties().classes, [EndpointClass::Dma]);
    let e = nic.pio().unwrap_err();
    assert!(matches!(&e, Error::ClassUnavailable { why, .. } if why.contains("adapter_memory")), "{e}");
    let attributes =
        ViAttributes { class: EndpointClass::PioElseDma, ..ViAttributes::new(nic.create_tag().unwrap()) };
    assert_eq!(nic.create_vi(&attributes, None, None).unwrap().attributes().class, EndpointClass::Dma);
    assert!(AdapterMemory::open("0000:ff:1f.7").is_err());
}

#[test]
fn over_udp_the_class_is_not_there_and_the_reason_is() {
    let memory = Memory::of_host();
    let (a, _b, domain) = memory_pair();
    let encapsulation = Encapsulation::Udp("10.0.0.1/24".parse().unwrap());
    let nic = Nic::with_adapter(a, domain, NicOptions { encapsulation, ..options("a", &memory) }).unwrap();
    assert_eq!(nic.properties().classes, [EndpointClass::Dma]);
    let tag = nic.create_tag().unwrap();
    let attributes = |class| ViAttributes { class, ..ViAttributes::new(tag) };
    for e in
        [nic.pio().unwrap_err(), nic.create_vi(&attributes(EndpointClass::Pio), None, None).err().unwrap()]
    {
        assert!(matches!(&e, Error::ClassUnavailable { why, .. } if why.contains("over UDP")), "{e}");
    }
    let fallen = nic.create_vi(&attributes(EndpointClass::PioElseDma), None, None).unwrap();
    assert_eq!(fallen.attributes().class, EndpointClass::Dma);
    assert_eq!(memory.memory.windows().left, memory.memory.windows().windows, "no window was taken");
}

#[test]
fn memory_that_does_not_answer_is_an_error_and_comes_back() {
    let memory = Memory::of_host();
    let pair = pio_pair(over(memory_pair(), &memory));
    let first = memory.read(0, 8);
    // As a function that was told not to decode.
    memory.write(0, &[0xff; 8]);
    let attributes = ViAttributes::pio(pair.a.tag, &pair.a.nic.pio().unwrap());
    assert!(pair.a.nic.create_vi(&attributes, None, None).is_err());
    let start = std::time::Instant::now();
    let e = loop {
        if let Err(e) = pair.a.nic.poll() {
            break e;
        }
        pair.b.nic.poll().unwrap();
        assert!(start.elapsed() < uvia_tests::PATIENCE, "nobody noticed");
    };
    assert!(e.to_string().contains("does not answer"), "{e}");
    memory.write(0, &first);
    let to = pair.b.memory(512).unwrap();
    receive(&pair, &to, 0);
    pair.a.vi.inject(Descriptor::new(Vec::new()), b"again").unwrap();
    assert_eq!(next(&pair, |pair| &pair.b).descriptor.length(), 5);
}

#[test]
fn both_classes_share_a_nic_at_every_level() {
    for level in [
        ReliabilityLevel::Unreliable,
        ReliabilityLevel::ReliableDelivery,
        ReliabilityLevel::ReliableReception,
    ] {
        let memory = Memory::of_host();
        let (a, b) = over(memory_pair(), &memory);
        let limits = a.pio().unwrap();
        let one = mixed((a.clone(), b.clone()), |attributes| {
            *attributes = ViAttributes { reliability: level, ..ViAttributes::pio(attributes.tag, &limits) };
        });
        let other = End::new(a, |_| ()).unwrap();
        let far = End::new(b, |_| ()).unwrap();
        join(&other, &far, b"dma").unwrap();
        let other = ViPair { a: other, b: far };
        let (to, from) = (one.b.memory(512).unwrap(), other.a.memory(4096).unwrap());
        let there = other.b.memory(4096).unwrap();
        for round in 0..50 {
            receive(&one, &to, 0);
            one.a.vi.inject(Descriptor::new(Vec::new()), &bytes(200, round)).unwrap();
            let data = bytes(1 + round * 80, round);
            from.write(0, &data).unwrap();
            other.b.vi.post_receive(Descriptor::new(vec![there.whole()])).unwrap();
            other.a.vi.post_send(Descriptor::new(vec![from.segment(0..data.len()).unwrap()])).unwrap();
            next(&one, |pair| &pair.b);
            next(&other, |pair| &pair.b);
            let mut got = vec![0; data.len()];
            there.read(0, &mut got).unwrap();
            assert!(got == data);
            let mut got = vec![0; 200];
            to.read(0, &mut got).unwrap();
            assert!(got == bytes(200, round));
            next(&one, |pair| &pair.a);
            next(&other, |pair| &pair.a);
        }
    }
}

/// Whoever resets a NIC in the middle of sends from adapter memory ends them with an error that says so. No window stays
/// behind, and no byte of it goes to who has the window next.
#[test]
fn a_reset_in_the_middle_of_sends_is_told_and_leaves_nothing_behind() {
    for kind in Kind::ALL {
        let memory = Memory::of_host();
        let all = memory.memory.windows();
        let bench = InProcess::with_faults([*kind; 2], 5, Plan::default());
        let open =
            |Opened { nic, domain }, name| Nic::with_adapter(nic, domain, options(name, &memory)).unwrap();
        let [a, b] = bench.open(&Default::default()).unwrap();
        let pair = pio_pair_ready((open(a, "a"), open(b, "b")));
        assert_eq!(memory.memory.windows().left, all.windows - 1);
        for n in 0..4 {
            pair.a.vi.inject(Descriptor::new(Vec::new()), &[0xa5; 400]).unwrap();
            if n == 1 {
                let machine = bench.machine().clone();
                machine.nics()[0].call(machine.now(), |function, outside| function.reset(outside));
            }
        }
        let start = std::time::Instant::now();
        let error = loop {
            if let Err(e) = pair.a.cq.poll() {
                break e;
            }
            assert!(start.elapsed() < uvia_tests::PATIENCE, "{}: nobody noticed", kind.name());
        };
        let Error::Driver(DriverError::Device { fault, .. }) = &error else {
            panic!("{}: {error}", kind.name())
        };
        assert_eq!(*fault, DeviceFault::WasReset, "{}", kind.name());
        drop(pair);
        memory.wait_for_windows(all.left);
        // Opened anew, the same window is there, and empty.
        let [a, b] = bench.open(&Default::default()).unwrap();
        let pair = pio_pair_ready((open(a, "a"), open(b, "b")));
        assert!(memory.read(0, memory.len()).iter().all(|byte| *byte != 0xa5), "{}", kind.name());
        let to = pair.b.memory(512).unwrap();
        receive(&pair, &to, 0);
        pair.a.vi.inject(Descriptor::new(Vec::new()), b"again").unwrap();
        assert_eq!(next(&pair, |pair| &pair.b).descriptor.length(), 5);
    }
}

/// Over models of each kind, on a wire that loses frames.
#[test]
fn models_fetch_from_adapter_memory_and_touch_nothing_else() {
    for kind in Kind::ALL {
        let memory = Memory::of_host();
        let plan = Plan::parse("wire loss 2%\n").unwrap();
        let bench = InProcess::with_faults([*kind; 2], 5, plan);
        let [a, b] = bench.open(&Default::default()).unwrap();
        let open =
            |Opened { nic, domain }, name| Nic::with_adapter(nic, domain, options(name, &memory)).unwrap();
        let pair = pio_pair_ready((open(a, "a"), open(b, "b")));
        let to = pair.b.memory(512).unwrap();
        let mut descriptor = Descriptor::new(Vec::new());
        for round in 0..200 {
            let data = bytes(1 + round * 29 % 448, round);
            receive(&pair, &to, 0);
            pair.a.vi.inject(descriptor, &data).unwrap();
            let got = next(&pair, |pair| &pair.b);
            let mut there = vec![0; got.descriptor.length() as usize];
            to.read(0, &mut there).unwrap();
            assert!(there == data, "{}: message {round} differs", kind.name());
            descriptor = next(&pair, |pair| &pair.a).descriptor;
        }
        drop(pair);
        assert_eq!(bench.stray(), Some(0), "{}", kind.name());
        assert_eq!(memory.memory.windows().left, memory.memory.windows().windows);
    }
}

fn pio_pair_ready(nics: (Nic, Nic)) -> ViPair {
    let start = std::time::Instant::now();
    while !(nics.0.ready().unwrap() && nics.1.ready().unwrap()) {
        assert!(start.elapsed() < uvia_tests::PATIENCE);
    }
    pio_pair(nics)
}
