//! Linux's own drivers on two NICs that are joined: named by UVIA_NIC_A and UVIA_NIC_B (PCI addresses), and network
//! interfaces of the machine. Run as root, one test at a time. `tests/run` does so in guests whose NICs are our
//! models: by these tests, drivers that nobody here wrote agree with them.

mod kernel;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use kernel::ethtool::{self, Feature};
use kernel::pair::{A, B, PORT, Pair};
use kernel::{PATIENCE, eventually, nic_addresses, run, stalled};

/// Bytes of a stream: some thousand frames.
const STREAM: usize = 4 << 20;
const CHUNK: usize = 64 << 10;

/// Bytes that depend on their place, so that none can be lost, repeated or moved unseen.
fn pattern(chunk: usize) -> Vec<u8> {
    let mut x = chunk as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let words = (0..CHUNK / 8).flat_map(|_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x ^ x >> 33).to_le_bytes()
    });
    words.collect()
}

fn send(mut stream: TcpStream) {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    (0..STREAM / CHUNK).for_each(|chunk| stream.write_all(&pattern(chunk)).unwrap());
}

fn receive(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = vec![0; CHUNK];
    for chunk in 0..STREAM / CHUNK {
        stream.read_exact(&mut got).unwrap();
        assert!(got == pattern(chunk), "what arrived differs in bytes {} and on", chunk * CHUNK);
    }
    assert_eq!(stream.read(&mut got).unwrap(), 0, "more than was sent");
}

/// A stream from A to B, one back, or both at once.
fn stream(pair: &Pair, there: bool, back: bool) -> Duration {
    let start = Instant::now();
    let ways = move |stream: TcpStream, sends: bool, receives: bool| {
        let other = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            if sends {
                send(other);
            }
        });
        if receives {
            let end = stream.try_clone().unwrap();
            // Who sends says by closing that it is done, and not by who receives.
            receive(end);
        }
        sender.join().unwrap();
    };
    // Two connections for two directions: so that each is closed by its sender alone.
    let one = |port: u16, from_a: bool| {
        let listener = pair.in_b(move || TcpListener::bind((B, port)).unwrap());
        let server = std::thread::spawn(move || ways(listener.accept().unwrap().0, !from_a, from_a));
        let there = SocketAddr::new(B.parse().unwrap(), port);
        let client = TcpStream::connect_timeout(&there, PATIENCE)
            .unwrap_or_else(|e| panic!("B does not answer: {e}\n{}", pair.state()));
        (server, client, from_a)
    };
    let mut running = Vec::new();
    if there {
        running.push(one(PORT, true));
    }
    if back {
        running.push(one(PORT + 1, false));
    }
    let clients: Vec<_> = running
        .into_iter()
        .map(|(server, client, from_a)| (server, std::thread::spawn(move || ways(client, from_a, !from_a))))
        .collect();
    for (server, client) in clients {
        server.join().unwrap();
        client.join().unwrap();
    }
    start.elapsed()
}

/// Runs it, and sees that no checksum was wrong meanwhile, in a frame that either end took in.
fn without_bad_checksums<T>(pair: &Pair, what: impl FnOnce() -> T) -> T {
    let before = pair.checksum_errors();
    let result = what();
    assert_eq!(pair.checksum_errors(), before, "frames with a wrong checksum arrived");
    result
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn pings_of_all_sizes_go_both_ways() {
    let pair = Pair::up();
    for size in ["0", "1", "17", "18", "19", "56", "1000", "1471", "1472", "1473", "8000"] {
        run("ping", &["-c", "2", "-i", "0.1", "-W", "5", "-s", size, B]);
        pair.in_b(move || run("ping", &["-c", "2", "-i", "0.1", "-W", "5", "-s", size, A]));
    }
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn streams_arrive_whole_in_both_directions() {
    let pair = Pair::up();
    without_bad_checksums(&pair, || {
        for (name, there, back) in [("there", true, false), ("back", false, true), ("both", true, true)] {
            let took = stream(&pair, there, back);
            println!("{name}: {:.1} MB/s a direction", STREAM as f64 / 1e6 / took.as_secs_f64());
        }
    });
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn streams_arrive_whole_whoever_sums_and_cuts() {
    let pair = Pair::up();
    let all = [Feature::Segmentation, Feature::TransmitSums, Feature::ReceiveSums];
    for feature in all {
        for on in [true, false] {
            let there = ethtool::switch(&pair.a, feature, on);
            let name = pair.b.clone();
            let back = pair.in_b(move || ethtool::switch(&name, feature, on));
            println!("{feature:?} {}: {there:?}, {back:?}", if on { "on" } else { "off" });
            stalled::settle(&pair);
            let before = ethtool::statistics(&pair.a);
            without_bad_checksums(&pair, || stream(&pair, true, true));
            let cut = |all: &[(String, u64)]| ethtool::value(all, "tx_tcp_seg_good").unwrap_or(0);
            let segmented = eventually(|| {
                let done = cut(&ethtool::statistics(&pair.a)) - cut(&before);
                // Only e1000 counts them.
                let counts = ethtool::value(&before, "tx_tcp_seg_good").is_some();
                (!counts || feature != Feature::Segmentation || !on || there.is_err() || done > 0)
                    .then_some(done)
            });
            println!("    the NIC cut {} packets", segmented.expect("it cuts packets where it is told to"));
        }
        // What went off stays off, so that each is without those before it.
    }
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn jumbo_frames_arrive_whole_where_both_drivers_allow_them() {
    let pair = Pair::up();
    if !pair.set_mtu(9000) {
        println!("a driver allows no 9000 bytes");
        return;
    }
    stalled::settle(&pair);
    run("ping", &["-c", "3", "-i", "0.1", "-W", "5", "-s", "8900", B]);
    without_bad_checksums(&pair, || stream(&pair, true, true));
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn what_one_end_counts_as_sent_the_other_counts_as_received() {
    let pair = Pair::up();
    let before = pair.counters();
    stream(&pair, true, true);
    // Some drivers read their NIC's counters every two seconds.
    let sums = || {
        let now = pair.counters();
        let since = |end: usize, name: &str| now[end][name] - before[end][name];
        let frames =
            (since(0, "tx_packets"), since(1, "rx_packets"), since(1, "tx_packets"), since(0, "rx_packets"));
        let right = frames.0 == frames.1 && frames.2 == frames.3 && frames.0 as usize > STREAM / 9000;
        right.then_some(frames)
    };
    let frames = eventually(sums).unwrap_or_else(|| panic!("{before:?}\n{:?}", pair.counters()));
    println!("frames sent and received, by A and by B: {frames:?}");
    for counters in pair.counters() {
        for name in ["rx_errors", "tx_errors", "rx_frame_errors"] {
            assert_eq!(counters[name], 0, "{name}");
        }
    }
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn an_interface_goes_down_and_up_again() {
    let pair = Pair::up();
    for _ in 0..5 {
        run("ip", &["link", "set", &pair.a, "down"]);
        run("ip", &["link", "set", &pair.a, "up"]);
        run("ip", &["route", "replace", "10.75.0.0/24", "dev", &pair.a]);
        pair.ping();
    }
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn drivers_let_go_and_take_again_ten_times() {
    for round in 0..10 {
        for address in nic_addresses() {
            let driver = format!("/sys/bus/pci/devices/{address}/driver");
            let home = std::fs::canonicalize(&driver).unwrap();
            std::fs::write(home.join("unbind"), &address).unwrap();
            std::fs::write(home.join("bind"), &address).unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        Pair::up().ping();
    }
}

#[test]
#[ignore = "needs a guest whose NICs are the kernel's: tests/run runs it there"]
fn modules_are_removed_and_loaded_ten_times() {
    let modules = kernel::nic_modules();
    for _ in 0..10 {
        for module in &modules {
            run("rmmod", &[module]);
            run("insmod", &[&format!("/lib/modules/{module}.ko")]);
        }
        Pair::up().ping();
    }
}
