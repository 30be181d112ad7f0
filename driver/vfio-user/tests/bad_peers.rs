//! Peers that break the protocol, hang, or go: the other side has an error in bounded time, and goes on.

mod toy;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toy::{HANG, SCRATCH, Served};
use uvia_vfio_user::Error;
use uvia_vfio_user::client::{Client, ClientOptions, NoMemory};
use uvia_vfio_user::wire::{HEADER, Header, Proposal, RegionAccess, RegionInfo, command, flags};
use zerocopy::{FromBytes, IntoBytes};

const SHORT: Duration = Duration::from_millis(200);

/// A message of a client by hand.
fn message(id: u16, command: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Header::command(id, command, body.len()).as_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

fn version() -> Vec<u8> {
    message(1, command::VERSION, &Proposal::ours().to_bytes())
}

fn read_of_scratch(id: u16) -> Vec<u8> {
    message(id, command::REGION_READ, RegionAccess { offset: SCRATCH, region: 0, count: 8 }.as_bytes())
}

fn receive(socket: &mut UnixStream) -> Option<(Header, Vec<u8>)> {
    let mut head = [0; HEADER];
    socket.read_exact(&mut head).ok()?;
    let header = Header::read_from_bytes(&head).unwrap();
    let mut body = vec![0; header.size as usize - HEADER];
    socket.read_exact(&mut body).ok()?;
    Some((header, body))
}

/// A toy, and a socket to it, without a client of ours; with time limits, so that a test ends.
fn raw() -> (Served, UnixStream) {
    let (served, socket) = Served::pair(SHORT);
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    (served, socket)
}

fn negotiated() -> (Served, UnixStream) {
    let (served, mut socket) = raw();
    socket.write_all(&version()).unwrap();
    let (header, body) = receive(&mut socket).unwrap();
    assert!(header.is_reply() && header.flags & flags::ERROR == 0);
    Proposal::parse(&body).unwrap();
    (served, socket)
}

#[test]
fn bytewise_and_all_at_once() {
    let (_served, mut socket) = raw();
    for byte in version() {
        socket.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    receive(&mut socket).unwrap();
    let many: Vec<u8> = (0..100).flat_map(read_of_scratch).collect();
    socket.write_all(&many).unwrap();
    for id in 0..100 {
        let (header, body) = receive(&mut socket).unwrap();
        assert_eq!((header.id, header.flags, body.len()), (id, flags::REPLY, 24));
    }
}

#[test]
fn a_refused_command_is_answered_and_the_next_one_found() {
    let (_served, mut socket) = negotiated();
    let too_long = vec![7; (1 << 20) + 5000];
    let bad: [(u16, &[u8], u32); 10] = [
        (99, b"what is this?", 95),
        (0, b"", 95),
        (command::VERSION, &Proposal::ours().to_bytes(), 22),
        (command::REGION_WRITE, &too_long, 90),
        (command::REGION_READ, b"short", 22),
        (command::REGION_WRITE, RegionAccess { offset: 0, region: 0, count: 8 }.as_bytes(), 22),
        (command::DMA_MAP, &[0xff; 32], 22),
        (command::DMA_READ, &[0; 16], 95),
        (command::REGION_WRITE_MULTI, &[0xff; 40], 22),
        (command::DEVICE_SET_IRQS, &[0xff; 20], 22),
    ];
    for (n, (command, body, errno)) in bad.into_iter().enumerate() {
        let n = n as u16;
        socket.write_all(&message(n, command, body)).unwrap();
        let (header, body) = receive(&mut socket).unwrap();
        assert_eq!((header.id, header.command, header.error), (n, command, errno), "{command}");
        assert!(header.flags == flags::REPLY | flags::ERROR && body.is_empty());
        socket.write_all(&read_of_scratch(1000 + n)).unwrap();
        assert_eq!(receive(&mut socket).unwrap().0.id, 1000 + n);
    }
}

#[test]
fn nothing_before_the_version() {
    let (_served, mut socket) = raw();
    socket.write_all(&read_of_scratch(5)).unwrap();
    assert_eq!(receive(&mut socket).unwrap().0.error, 22);
    for body in
        [&b"\0"[..], b"\x01\0\0\0", b"\0\0\0\0{", b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":0}}"]
    {
        socket.write_all(&message(6, command::VERSION, body)).unwrap();
        assert_eq!(receive(&mut socket).unwrap().0.error, 22);
    }
    socket.write_all(&version()).unwrap();
    assert_eq!(receive(&mut socket).unwrap().0.error, 0);
}

/// As QEMU asks: first without room for capabilities, then with as much as it was told.
#[test]
fn descriptions_that_do_not_fit_say_how_long_they_are() {
    let (_served, mut socket) = negotiated();
    let mut ask = |argsz| {
        let asked = RegionInfo { argsz, index: 0, ..RegionInfo::default() };
        socket.write_all(&message(1, command::DEVICE_GET_REGION_INFO, asked.as_bytes())).unwrap();
        let (_, body) = receive(&mut socket).unwrap();
        (RegionInfo::read_from_prefix(&body).unwrap().0, body.len())
    };
    let (short, len) = ask(32);
    assert_eq!((len, short.argsz, short.cap_offset, short.flags), (32, 64, 0, 3));
    let (whole, len) = ask(short.argsz);
    assert_eq!((len, whole.argsz, whole.cap_offset, whole.flags), (64, 64, 32, 15));
    let (_, len) = ask(4096);
    assert_eq!(len, 64);
}

#[test]
fn no_reply_means_none() {
    let (_served, mut socket) = negotiated();
    for command in [command::REGION_READ, 99, command::DMA_MAP] {
        let mut bytes = message(1, command, b"");
        bytes[8] |= flags::NO_REPLY as u8;
        socket.write_all(&bytes).unwrap();
    }
    socket.write_all(&read_of_scratch(7)).unwrap();
    assert_eq!(receive(&mut socket).unwrap().0.id, 7);
}

#[test]
fn clients_without_a_way_on_are_hung_up_on() {
    let shorter_than_its_header = {
        let mut bytes = message(1, command::DEVICE_RESET, b"");
        bytes[4] = 3;
        bytes
    };
    let a_reply = {
        let mut bytes = message(1, command::DMA_READ, b"");
        bytes[8] = flags::REPLY as u8;
        bytes
    };
    for bytes in [shorter_than_its_header, a_reply] {
        let (served, mut socket) = negotiated();
        socket.write_all(&bytes).unwrap();
        assert!(receive(&mut socket).is_none());
        drop(socket);
        drop(served);
    }
}

#[test]
fn clients_that_go_within_a_message_or_read_nothing() {
    let (served, mut socket) = negotiated();
    socket.write_all(&read_of_scratch(1)[..20]).unwrap();
    drop(socket);
    wait_for_detach(&served);

    let (served, mut socket) = negotiated();
    socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let reads: Vec<u8> = (0..2000).flat_map(read_of_scratch).collect();
    while socket.write_all(&reads).is_ok() {}
    wait_for_detach(&served);
}

fn wait_for_detach(served: &Served) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while served.seen.lock().unwrap().detached == 0 {
        assert!(Instant::now() < deadline, "the client is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server by hand: what it answers to VERSION, and then to the first request.
fn with_server(
    answer: impl FnOnce(&mut UnixStream, Header, Vec<u8>) + Send + 'static,
) -> (Client, std::thread::JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let (header, body) = receive(&mut theirs).unwrap();
        theirs.write_all(header.reply(body.len()).as_bytes()).unwrap();
        theirs.write_all(&body).unwrap();
        let (header, body) = receive(&mut theirs).unwrap();
        answer(&mut theirs, header, body);
        // Until the client goes.
        let _ = theirs.read(&mut [0; 64]);
    });
    let client = Client::over(ours, "bad", Arc::new(NoMemory), ClientOptions { patience: SHORT }).unwrap();
    (client, thread)
}

fn outcome(answer: impl FnOnce(&mut UnixStream, Header, Vec<u8>) + Send + 'static) -> Error {
    let (client, thread) = with_server(answer);
    let start = Instant::now();
    let error = client.region_read(0, SCRATCH, &mut [0; 8]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3));
    if !matches!(error, Error::Refused { .. }) {
        assert!(client.closed().is_some());
        let later = client.region_post(0, 0, &[1]).unwrap_err();
        assert!(matches!(later, Error::Closed { .. }), "{later}");
    }
    drop(client);
    thread.join().unwrap();
    error
}

#[test]
fn servers_that_answer_nonsense() {
    let good = |header: Header, body: &[u8], id: u16, command: u16| {
        let header = Header { id: header.id.wrapping_add(id), command, ..header.reply(body.len() + 8) };
        [header.as_bytes(), body, &[0; 8]].concat()
    };
    let e = outcome(move |s, h, b| s.write_all(&good(h, &b, 1, h.command)).unwrap());
    assert!(matches!(&e, Error::Closed { why, .. } if why.contains("nobody waits for")), "{e}");
    let e = outcome(move |s, h, b| s.write_all(&good(h, &b, 0, command::REGION_WRITE)).unwrap());
    assert!(matches!(&e, Error::Closed { .. }), "{e}");
    let e = outcome(|s, h, _| s.write_all(h.reply(0).as_bytes()).unwrap());
    assert!(matches!(&e, Error::Protocol { .. }), "{e}");
    let e = outcome(move |s, h, mut b| {
        b[0] ^= 1;
        s.write_all(&good(h, &b, 0, h.command)).unwrap();
    });
    assert!(matches!(&e, Error::Protocol { .. }), "{e}");
    let e = outcome(|s, h, b| s.write_all(&[h.reply(b.len()).as_bytes(), &b].concat()).unwrap());
    assert!(matches!(&e, Error::Protocol { .. }), "the data is missing: {e}");
    let e = outcome(|s, _, _| s.write_all(&[0; 64]).unwrap());
    assert!(matches!(&e, Error::Closed { .. }), "{e}");
    let e = outcome(|s, h, _| {
        let header = Header { size: u32::MAX, ..h.reply(0) };
        s.write_all(header.as_bytes()).unwrap();
    });
    assert!(matches!(&e, Error::Timeout { .. }), "{e}");
}

#[test]
fn servers_that_refuse_hang_or_go() {
    let e = outcome(|s, h, _| s.write_all(h.error_reply(19).as_bytes()).unwrap());
    assert_eq!((e.errno(), e.to_string().contains("bad: REGION_READ was refused")), (Some(19), true));
    let e = outcome(|s, h, _| s.write_all(h.error_reply(0).as_bytes()).unwrap());
    assert_eq!(e.errno(), Some(5), "an error without a number is EIO");
    let e = outcome(|_, _, _| {});
    assert!(matches!(e, Error::Timeout { what: "REGION_READ", .. }));
    let e = outcome(|s, _, _| s.shutdown(Shutdown::Both).unwrap());
    assert!(matches!(&e, Error::Closed { why, .. } if why == "it hung up"), "{e}");
    let e = outcome(|s, h, b| {
        s.write_all(&[h.reply(24).as_bytes(), &b].concat()).unwrap();
        s.shutdown(Shutdown::Both).unwrap();
    });
    assert!(matches!(&e, Error::Closed { why, .. } if why == "it hung up within a message"), "{e}");
    // Nobody answers the first message.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let none = Client::over(ours, "bad", Arc::new(NoMemory), ClientOptions { patience: SHORT });
    assert!(matches!(none.unwrap_err(), Error::Timeout { what: "VERSION", .. }));
    drop(theirs);
}

#[test]
fn servers_that_ask_for_what_is_not_mapped_or_is_no_request() {
    let (client, thread) = with_server(|s, h, b| {
        for (command, body, errno) in [
            (command::DMA_READ, [0u64, 64].as_bytes(), 14),
            (command::DMA_READ, [0u64, u64::MAX].as_bytes(), 22),
            (command::DMA_WRITE, [0u64, 64].as_bytes(), 22),
            (command::DMA_READ, b"x", 22),
            (command::DEVICE_RESET, b"", 95),
        ] {
            s.write_all(&message(3, command, body)).unwrap();
            let (header, _) = receive(s).unwrap();
            assert_eq!((header.id, header.error), (3, errno), "{command}");
        }
        s.write_all(&[h.reply(b.len() + 8).as_bytes(), &b, &[1; 8]].concat()).unwrap();
    });
    let mut bytes = [0; 8];
    client.region_read(0, SCRATCH, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 8]);
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_device_that_takes_too_long() {
    let (served, socket) = Served::pair(Duration::from_secs(5));
    let client = Client::over(socket, "toy", Arc::new(NoMemory), ClientOptions { patience: SHORT }).unwrap();
    let e = client.region_write(0, HANG, &[1]).unwrap_err();
    assert!(matches!(e, Error::Timeout { .. }), "{e}");
    drop(client);
    wait_for_detach(&served);
}
