//! Messages that are prebuilt in adapter memory, and sent again and again with a few bytes changed.

use std::collections::VecDeque;

use uvia::{Descriptor, EndpointClass, Error, MemoryRegion, Nic, NicOptions, ViAttributes};
use uvia_driver::pio::SLOT;
use uvia_tests::conformance::Memory;
use uvia_tests::{End, Faults, ViPair, join, memory_pair, memory_pair_with};

/// Slots of a window: as many messages are under way at a time.
const SLOTS: usize = 16;
/// Where a message begins in its slot.
const HEAD: usize = 64;

fn options(name: &str, memory: &Memory, integrity: bool) -> NicOptions {
    NicOptions {
        name: Some(name.to_owned()),
        adapter_memory: Some(memory.memory.clone()),
        integrity,
        ..NicOptions::default()
    }
}

/// A pair, whose end A is of class Pio and whose end B is of class Dma.
fn pair(memory: &Memory, faults: Faults, integrity: bool) -> ViPair {
    let (a, b, domain) = memory_pair_with(faults);
    let a = Nic::with_adapter(a, domain.clone(), options("a", memory, integrity)).unwrap();
    let b = Nic::with_adapter(b, domain, options("b", memory, integrity)).unwrap();
    connected(a, b)
}

fn connected(a: Nic, b: Nic) -> ViPair {
    let limits = a.pio().unwrap();
    let a = End::new(a, |attributes| *attributes = ViAttributes::pio(attributes.tag, &limits)).unwrap();
    let b = End::new(b, |attributes| attributes.max_transfer_size = limits.mtu).unwrap();
    join(&a, &b, b"templates").unwrap();
    ViPair { a, b }
}

fn receive(pair: &ViPair, memory: &MemoryRegion, at: usize) {
    pair.b.vi.post_receive(Descriptor::new(vec![memory.segment(at..at + 512).unwrap()])).unwrap();
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + seed * 7 + n / 251) as u8).collect()
}

/// Sends a template `count` times, as often at a time as it goes, changed each time, with other messages in between: each
/// arrives as it was when it was sent.
fn sends_many(pair: &ViPair, count: usize) {
    let to = pair.b.memory(512 * 64).unwrap();
    (0..64).for_each(|n| receive(pair, &to, 512 * n));
    let mut model = bytes(300, 1);
    let mut template = pair.a.vi.template(&model).unwrap();
    let mut idle: Vec<_> = (0..SLOTS).map(|_| Descriptor::new(Vec::new())).collect();
    let mut under_way = VecDeque::new();
    let (mut sent, mut received) = (0usize, 0usize);
    while received < count {
        while sent < count
            && let Some(mut descriptor) = idle.pop()
        {
            descriptor.immediate = (sent % 3 == 0).then_some(sent as u32);
            if sent % 7 == 6 {
                let other = bytes(1 + sent * 13 % 448, sent);
                pair.a.vi.inject(descriptor, &other).unwrap();
                under_way.push_back(other);
            } else {
                let at = 8 + sent * 5 % 280;
                let patch = (sent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                let patch = &patch[..1 + sent % 8];
                model[at..at + patch.len()].copy_from_slice(patch);
                template.patch(at, patch).unwrap();
                assert_eq!(*template, model[..]);
                pair.a.vi.send_template(&mut template, descriptor).unwrap();
                under_way.push_back(model.clone());
            }
            sent += 1;
        }
        if let Some(done) = pair.a.cq.poll().unwrap() {
            assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
            idle.push(done.descriptor);
        }
        if let Some(got) = pair.b.cq.poll().unwrap() {
            assert!(got.descriptor.status().is_success(), "{:?}", got.descriptor.status());
            let mut there = vec![0; got.descriptor.length() as usize];
            to.read(512 * (received % 64), &mut there).unwrap();
            assert!(there == under_way.pop_front().unwrap(), "message {received} differs");
            let immediate = received % 3 == 0;
            assert_eq!(got.descriptor.immediate, immediate.then_some(received as u32));
            pair.b.vi.post_receive(got.descriptor).unwrap();
            received += 1;
        }
    }
}

fn count() -> usize {
    match (std::env::var_os("UVIA_QUICK"), std::env::var_os("UVIA_LONG")) {
        (Some(_), _) => 300,
        (_, Some(_)) => 20_000,
        _ => 2000,
    }
}

#[test]
fn a_template_arrives_as_it_was_when_it_was_sent() {
    sends_many(&pair(&Memory::of_host(), Faults::default(), false), count());
}

#[test]
fn a_template_that_is_lost_is_sent_again_as_it_was() {
    let faults = Faults { loss: 100, duplicates: 50, seed: 5, ..Faults::default() };
    sends_many(&pair(&Memory::of_host(), faults, false), count());
}

#[test]
fn a_template_is_checked_from_end_to_end_where_that_is_asked_for() {
    let pair =
        pair(&Memory::of_host(), Faults { loss: 30, duplicates: 30, seed: 9, ..Faults::default() }, true);
    sends_many(&pair, count() / 2);
    assert_eq!(pair.b.nic.statistics().damaged, 0);
}

#[test]
fn a_template_goes_to_an_interface_of_the_same_nic() {
    let memory = Memory::of_host();
    let (a, _b, domain) = memory_pair();
    let nic = Nic::with_adapter(a, domain, options("a", &memory, false)).unwrap();
    sends_many(&connected(nic.clone(), nic), count() / 4);
}

/// What lies in a slot is changed from the memory's other side, but for what is patched: it goes out changed. So nothing
/// but the patch was stored.
#[test]
fn only_what_was_changed_is_stored() {
    let memory = Memory::of_host();
    let pair = pair(&memory, Faults::default(), false);
    let to = pair.b.memory(512).unwrap();
    let message = bytes(256, 3);
    let mut template = pair.a.vi.template(&message).unwrap();
    let mut descriptor = Descriptor::new(Vec::new());
    let mut expected = message.clone();
    for round in 0..4 * SLOTS {
        if round == SLOTS {
            // All slots have it by now. In each the bytes from 128 on are changed.
            let there = memory.read(0, memory.len());
            let slots: Vec<_> = (0..there.len())
                .step_by(SLOT)
                .map(|slot| slot + HEAD)
                .filter(|at| there[*at + 64..].starts_with(&message[64..]))
                .collect();
            assert_eq!(slots.len(), SLOTS, "it lies in every slot");
            for slot in slots {
                memory.write(slot + 128, &[0xa5; 64]);
            }
            expected[128..192].fill(0xa5);
        }
        if round == 2 * SLOTS {
            // Another message overwrites one slot; the template is whole there again afterwards, as it is here.
            receive(&pair, &to, 0);
            pair.a.vi.inject(descriptor, &[0x11; 300]).unwrap();
            pair.drive(|pair| pair.b.cq.poll().unwrap());
            descriptor = pair.drive(|pair| pair.a.cq.poll().unwrap()).descriptor;
        }
        template.patch(16, &(round as u64).to_le_bytes()).unwrap();
        expected[16..24].copy_from_slice(&(round as u64).to_le_bytes());
        receive(&pair, &to, 0);
        pair.a.vi.send_template(&mut template, descriptor).unwrap();
        let got = pair.drive(|pair| pair.b.cq.poll().unwrap());
        assert_eq!(got.descriptor.length(), 256);
        let mut there = vec![0; 256];
        to.read(0, &mut there).unwrap();
        let whole = round >= 2 * SLOTS && round % SLOTS == SLOTS - 1;
        if whole {
            // In the slot that the other message had: all of it was stored there anew.
            assert!(there[128..192] == message[128..192], "round {round}");
        } else {
            assert!(there == expected, "round {round}");
        }
        descriptor = pair.drive(|pair| pair.a.cq.poll().unwrap()).descriptor;
    }
}

#[test]
fn templates_are_refused_where_they_cannot_be() {
    let memory = Memory::of_host();
    let pair = pair(&memory, Faults::default(), false);
    let vi = &pair.a.vi;
    assert!(matches!(vi.template(&[0; 449]), Err(Error::TooLong { length: 449, limit: 448 })));
    let dma = pair.b.vi.template(b"x");
    assert!(matches!(dma, Err(Error::NotInClass { class: EndpointClass::Dma, .. })));
    let mut template = vi.template(&[7; 448]).unwrap();
    assert!(matches!(template.patch(441, &[0; 8]), Err(Error::Parameter(_))));
    let limits = pair.a.nic.pio().unwrap();
    let other = pair.a.nic.create_vi(&ViAttributes::pio(pair.a.tag, &limits), None, None).unwrap();
    let refused = other.send_template(&mut template, Descriptor::new(Vec::new())).unwrap_err();
    assert!(matches!(refused.error, Error::Parameter(_)), "{}", refused.error);
    // Nobody drives B: nothing is acknowledged.
    let to = pair.b.memory(512 * 32).unwrap();
    (0..32).for_each(|n| receive(&pair, &to, 512 * n));
    for _ in 0..SLOTS {
        vi.send_template(&mut template, Descriptor::new(Vec::new())).unwrap();
    }
    let refused = vi.send_template(&mut template, Descriptor::new(Vec::new())).unwrap_err();
    assert!(matches!(refused.error, Error::WouldBlock { credits: SLOTS }), "{}", refused.error);
    for _ in 0..SLOTS {
        let got = pair.drive(|pair| pair.b.cq.poll().unwrap());
        assert_eq!(got.descriptor.length(), 448);
    }
    pair.drive(|pair| pair.a.cq.poll().unwrap());
    vi.send_template(&mut template, refused.descriptor).unwrap();
    // One that is not connected flushes it, as any other.
    let mut template = other.template(b"nobody hears it").unwrap();
    other.send_template(&mut template, Descriptor::new(Vec::new())).unwrap();
    let flushed = other.send_done().unwrap().expect("it is done at once");
    assert!(!flushed.status().is_success());
}
