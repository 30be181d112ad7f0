//! Interfaces over shared memory of one host, within a process and between two; and interfaces that are connected to
//! others of their own NIC, over whatever it is.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use uvia::{ConnectionLoss, Descriptor, NetAddress, Nic, NicOptions, Progress, Vi, ViState, WorkQueue};
use uvia_tests::{End, PATIENCE, PingPong, Sealed, ViPair, memory_pair, without_system_calls};

/// Tells a child the device.
const DEVICE: &str = "UVIA_TEST_DEVICE";

fn device(what: &str) -> String {
    format!("shm:vi-{what}-{}", std::process::id())
}

/// A NIC of its own: `Nic::open` would give a process that has the device open the same one again.
fn open(device: &str, name: &str) -> Nic {
    let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let (adapter, domain) =
        uvia_driver::nic::open_named(device, &options.adapter).unwrap_or_else(|e| panic!("{e}"));
    Nic::with_adapter(adapter, domain, options).unwrap_or_else(|e| panic!("{e}"))
}

/// Two NICs on a segment.
fn pair(what: &str) -> ViPair {
    let device = device(what);
    ViPair::connect(open(&device, "a"), open(&device, "b"), |_| ()).unwrap_or_else(|e| panic!("{e}"))
}

/// Two interfaces of one NIC.
fn own(nic: &Nic) -> ViPair {
    ViPair::connect(nic.clone(), nic.clone(), |_| ()).unwrap_or_else(|e| panic!("{e}"))
}

/// Messages and writes of all kinds of sizes, both ways.
fn exchange(pair: &ViPair) {
    let most = 300_000;
    let data: Vec<u8> = (0..most).map(|n| (n * 31 + n / 251) as u8).collect();
    for (a, b) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        let (from, received, written) =
            (a.memory(most).unwrap(), b.memory(most).unwrap(), b.memory(most).unwrap());
        from.write(0, &data).unwrap();
        for size in [0, 1, 64, 128, 129, 200, 201, 1400, 9000, 32_700, 65_536, most] {
            b.vi.post_receive(Descriptor::new(vec![received.segment(0..size).unwrap()])).unwrap();
            a.vi.post_send(Descriptor::new(vec![from.segment(0..size).unwrap()])).unwrap();
            let target = written.remote(0).unwrap();
            a.vi.post_send(Descriptor::rdma_write(vec![from.segment(0..size).unwrap()], target)).unwrap();
            let got = pair.drive(|_| b.cq.poll().unwrap());
            assert!(got.queue == WorkQueue::Receive && got.descriptor.status().is_success());
            assert_eq!(got.descriptor.length() as usize, size);
            for _ in 0..2 {
                let done = pair.drive(|_| a.cq.poll().unwrap());
                assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
            }
            for memory in [&received, &written] {
                let mut there = vec![0; size];
                memory.read(0, &mut there).unwrap();
                assert!(there == data[..size], "{size} bytes differ");
            }
        }
    }
}

#[test]
fn messages_and_writes_pass_between_nics_on_one_segment() {
    let pair = pair("pass");
    assert_eq!(pair.a.nic.properties().driver, "memory");
    assert!(pair.a.nic.properties().native_mtu > 32_000);
    exchange(&pair);
}

#[test]
fn a_message_over_shared_memory_takes_no_system_call() {
    let outcome = without_system_calls(
        || PingPong::new(pair("sealed"), 64, 4),
        |ping| (0..5000).for_each(|_| ping.round()),
    );
    assert_eq!(outcome.unwrap(), Sealed::Clean);
}

#[test]
fn a_nic_connects_to_itself_over_shared_memory_and_over_others() {
    let device = device("own");
    let nic = open(&device, "a");
    exchange(&own(&nic));
    // It talks to others meanwhile.
    let other = open(&device, "b");
    let (here, there) = (own(&nic), ViPair::connect(nic.clone(), other, |_| ()).unwrap());
    exchange(&here);
    exchange(&there);

    let (a, b, domain) = memory_pair();
    let options = |name: &str| NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let a = Nic::with_adapter(a, domain.clone(), options("a")).unwrap();
    let b = Nic::with_adapter(b, domain, options("b")).unwrap();
    let (here, there) = (own(&a), ViPair::connect(a.clone(), b, |_| ()).unwrap());
    exchange(&there);
    exchange(&here);
    PingPong::new(here, 64, 8).round();
}

#[test]
fn peers_on_one_nic_that_name_the_same_place_meet_each_other_and_not_themselves() {
    let nic = open(&device("meet"), "a");
    let ends = [0, 1].map(|_| End::new(nic.clone(), |_| ()).unwrap());
    let place = NetAddress::new(nic.properties().mac, b"place").unwrap();
    for end in &ends {
        end.vi.connect_peer_start(b"place", &place, PATIENCE).unwrap();
    }
    for end in &ends {
        let start = Instant::now();
        while end.vi.connect_done().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE);
        }
    }
    let [a, b] = ends;
    exchange(&ViPair { a, b });
    // Alone nobody is met.
    let alone = End::new(nic, |_| ()).unwrap();
    let failed = alone.vi.connect_peer(b"place", &place, Duration::from_millis(200));
    assert!(matches!(failed, Err(uvia::Error::Timeout { .. })), "{failed:?}");
}

#[test]
fn a_name_is_found_on_a_segment() {
    let device = device("names");
    let (a, b) = (open(&device, "first"), open(&device, "second"));
    let found = std::thread::scope(|scope| {
        let found = scope.spawn(|| a.resolve("second", PATIENCE));
        while !found.is_finished() {
            b.poll().unwrap();
        }
        found.join().unwrap()
    });
    assert_eq!(found.unwrap(), b.properties().mac);
    assert_eq!(a.resolve("first", PATIENCE).unwrap(), a.properties().mac);
}

/// What a child does: it accepts a connection, and sends back what comes, until it is killed.
#[test]
fn child_that_echoes_until_it_is_killed() {
    let Ok(device) = std::env::var(DEVICE) else { return };
    let options =
        NicOptions { name: Some("child".to_owned()), progress: Progress::Thread, ..NicOptions::default() };
    let nic = Nic::open(&device, options).unwrap();
    let listener = nic.listen(b"echo", 4).unwrap();
    let end = End::new(nic, |_| ()).unwrap();
    let memory = end.memory(1 << 16).unwrap();
    let receive = || Descriptor::new(vec![memory.segment(0..1 << 15).unwrap()]);
    end.vi.post_receive(receive()).unwrap();
    println!("\nchild is there");
    let request = listener.wait(PATIENCE).unwrap().expect("somebody asks");
    request.accept(&end.vi, &[]).map_err(|(_, e)| e).unwrap();
    loop {
        let Some(got) = end.cq.wait(PATIENCE).unwrap() else { continue };
        if got.queue == WorkQueue::Receive {
            let len = got.descriptor.length() as usize;
            end.vi.post_receive(receive()).unwrap();
            end.vi.post_send(Descriptor::new(vec![memory.segment(0..len).unwrap()])).unwrap();
        }
    }
}

fn child(device: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_echoes_until_it_is_killed", "--nocapture"])
        .env(DEVICE, device)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line == "child is there"));
    child
}

/// One message there and back.
fn echo(vi: &Vi, end: &End, memory: &uvia::MemoryRegion, n: u32, size: usize) {
    memory.write(0, &n.to_le_bytes()).unwrap();
    vi.post_receive(Descriptor::new(vec![memory.segment(1 << 15..1 << 16).unwrap()])).unwrap();
    vi.post_send(Descriptor::new(vec![memory.segment(0..size).unwrap()])).unwrap();
    for _ in 0..2 {
        let done = end.cq.wait(PATIENCE).unwrap().expect("the child answers");
        assert!(done.descriptor.status().is_success(), "{:?}", done.descriptor.status());
    }
    let mut back = [0; 4];
    memory.read(1 << 15, &mut back).unwrap();
    assert_eq!(u32::from_le_bytes(back), n);
}

#[test]
fn two_processes_talk_and_one_that_is_killed_is_noticed() {
    let device = device("processes");
    let nic = open(&device, "parent");
    // To notice takes some 6 s.
    let long = std::env::var("UVIA_LONG").is_ok_and(|value| value == "1");
    for round in 0..if long { 10 } else { 1 } {
        let mut child = child(&device);
        let host = nic.resolve("child", PATIENCE).unwrap();
        let end = End::new(nic.clone(), |_| ()).unwrap();
        let memory = end.memory(1 << 16).unwrap();
        end.vi.connect(&NetAddress::new(host, b"echo").unwrap(), PATIENCE, b"").unwrap();
        for n in 0..2000 {
            echo(&end.vi, &end, &memory, n, if n % 100 == 0 { 30_000 } else { 64 });
        }
        // Pauses in which both fall asleep.
        for n in 0..5 {
            std::thread::sleep(Duration::from_millis(10));
            echo(&end.vi, &end, &memory, n, 64);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        while end.vi.state() == ViState::Connected {
            nic.poll().unwrap();
            assert!(start.elapsed() < PATIENCE, "round {round}: nobody noticed");
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(end.vi.loss(), Some(ConnectionLoss::PeerSilent));
    }
}
