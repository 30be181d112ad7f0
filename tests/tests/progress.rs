//! What happens while the program does nothing: the NIC's own thread.

use std::time::{Duration, Instant};

use uvia::{Descriptor, MemoryAttributes, Nic, NicOptions, Progress, RemoteMemory};
use uvia_tests::{End, PATIENCE, ViPair, join, memory_pair};

/// Two ends, of which the second drives itself.
fn pair() -> ViPair {
    let (a, b, domain) = memory_pair();
    let open = |adapter, name: &str, progress| {
        let options = NicOptions { name: Some(name.to_owned()), progress, ..NicOptions::default() };
        Nic::with_adapter(adapter, domain.clone(), options).unwrap()
    };
    let (a, b) = (open(a, "a", Progress::Caller), open(b, "b", Progress::Thread));
    let change = |attributes: &mut uvia::ViAttributes| attributes.rdma_read = true;
    let (a, b) = (End::new(a, change).unwrap(), End::new(b, change).unwrap());
    join(&a, &b, b"there").unwrap();
    ViPair { a, b }
}

/// Waits at one end alone; the other is not called.
fn wait(end: &End) -> Box<Descriptor> {
    let done = end.cq.wait(PATIENCE).unwrap().expect("it completes in time");
    assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
    done.descriptor
}

fn remote(end: &End, len: usize) -> (uvia::MemoryRegion, RemoteMemory) {
    let memory = end.nic.allocate(len, MemoryAttributes::remote(end.tag)).unwrap();
    let remote = memory.remote(0).unwrap();
    (memory, remote)
}

#[test]
fn a_write_lands_and_is_acknowledged_with_no_call_by_the_target() {
    let pair = pair();
    let (target, to) = remote(&pair.b, 8);
    let source = pair.a.memory(8).unwrap();
    for n in 1..=20u64 {
        source.write(0, &n.to_le_bytes()).unwrap();
        let write = Descriptor::rdma_write(vec![source.segment(0..8).unwrap()], to);
        pair.a.vi.post_send(write).unwrap();
        // The target looks at its memory, and does nothing else.
        let start = Instant::now();
        let mut bytes = [0; 8];
        while u64::from_le_bytes(bytes) != n {
            target.read(0, &mut bytes).unwrap();
            assert!(start.elapsed() < PATIENCE, "write {n} does not land");
            std::thread::yield_now();
        }
        wait(&pair.a);
    }
}

#[test]
fn a_read_is_answered_with_no_call_by_the_target() {
    let pair = pair();
    let (origin, from) = remote(&pair.b, 10_000);
    let data: Vec<u8> = (0..10_000u32).map(|n| (n * 7) as u8).collect();
    origin.write(0, &data).unwrap();
    let into = pair.a.memory(10_000).unwrap();
    for _ in 0..20 {
        into.write(0, &vec![0; 10_000]).unwrap();
        let read = Descriptor::rdma_read(vec![into.segment(0..10_000).unwrap()], from);
        pair.a.vi.post_send(read).unwrap();
        assert_eq!(wait(&pair.a).length(), 10_000);
        let mut got = vec![0; 10_000];
        into.read(0, &mut got).unwrap();
        assert!(got == data);
    }
}

#[test]
fn it_closes_at_once_whoever_lets_go_last() {
    for _ in 0..20 {
        let pair = pair();
        let start = Instant::now();
        drop(pair);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

/// A program that drives its NIC is not in the way of the thread, nor the thread in its.
#[test]
fn programs_that_poll_get_on_as_ever() {
    let pair = pair();
    let memory = [&pair.a, &pair.b].map(|end| end.memory(64).unwrap());
    for round in 0..2000 {
        let (from, to) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let [mine, theirs] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        to.vi.post_receive(Descriptor::new(vec![memory[theirs].segment(0..64).unwrap()])).unwrap();
        from.vi.post_send(Descriptor::new(vec![memory[mine].segment(0..64).unwrap()])).unwrap();
        let mut left = 2;
        let start = Instant::now();
        while left != 0 {
            left -= usize::from(from.cq.poll().unwrap().is_some());
            left -= usize::from(to.cq.poll().unwrap().is_some());
            assert!(start.elapsed() < PATIENCE);
        }
    }
}
