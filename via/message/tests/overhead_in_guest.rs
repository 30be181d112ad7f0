//! What the layer adds to the interfaces below it, over a guest's two adapters: both in one run, in batches in turn, a thread
//! for each end. Under emulation times are for comparison with each other only, so that nothing depends on them here.

mod common;

use std::time::{Duration, Instant};

use common::{Kind, device};
use uvia::{
    CompletionQueue, Descriptor, MemoryAttributes, MemoryRegion, NetAddress, Operation, RemoteMemory, Vi,
    ViAttributes, WorkQueue,
};
use uvia_message::{
    Board, Channel, Directory, Policy, ReceiveMode, Result, SendMode, Session, SessionOptions,
};

const LONG: usize = 1 << 20;

/// An end of bare interfaces, which does what the layer does: sends what is short, and writes what is long with word of it.
struct Bare {
    vi: Vi,
    cq: CompletionQueue,
    memory: MemoryRegion,
    other: Option<RemoteMemory>,
    came: usize,
    going: usize,
}

impl Bare {
    fn new(rank: usize) -> uvia::Result<Self> {
        let nic = device(rank);
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(256)?;
        let mut attributes = ViAttributes::new(tag);
        attributes.max_transfer_size = LONG as u32;
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        let memory = nic.allocate(LONG, MemoryAttributes::remote_write(tag))?;
        for _ in 0..4 {
            vi.post_receive(Descriptor::new(vec![memory.segment(0..64)?])).map_err(|e| e.error)?;
        }
        Ok(Self { vi, cq, memory, other: None, came: 0, going: 0 })
    }

    fn reap(&mut self) -> uvia::Result<()> {
        while let Some(done) = self.cq.poll()? {
            let descriptor = done.descriptor;
            assert!(descriptor.status().is_success(), "{:?}", descriptor.status());
            match done.queue {
                WorkQueue::Receive => {
                    self.came += 1;
                    self.vi.post_receive(descriptor).map_err(|e| e.error)?;
                }
                WorkQueue::Send => {
                    assert!(matches!(descriptor.operation, Operation::Send | Operation::RdmaWrite { .. }));
                    self.going -= 1;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, len: usize) -> uvia::Result<()> {
        while self.going > 2 {
            self.reap()?;
        }
        let segments = vec![self.memory.segment(0..len)?];
        let descriptor = match self.other {
            Some(other) if len == LONG => {
                let mut write = Descriptor::rdma_write(segments, other);
                write.immediate = Some(0);
                write
            }
            _ => Descriptor::new(segments),
        };
        self.going += 1;
        self.vi.post_send(descriptor).map_err(|e| e.error)
    }

    fn wait(&mut self) -> uvia::Result<()> {
        while self.came == 0 {
            self.reap()?;
        }
        self.came -= 1;
        Ok(())
    }
}

/// Two bare ends, connected.
fn bare_pair() -> uvia::Result<[Bare; 2]> {
    let [mut a, mut b] = [Bare::new(0)?, Bare::new(1)?];
    let listener = device(1).listen(b"bare", 1)?;
    let remote = NetAddress::new(device(1).properties().mac, b"bare")?;
    a.vi.connect_start(&remote, Duration::from_secs(30), b"")?;
    while a.vi.connect_done()?.is_none() {
        if let Some(request) = listener.poll()? {
            request.accept(&b.vi, b"").map_err(|(_, e)| e)?;
        }
    }
    (a.other, b.other) = (Some(b.memory.remote(0)?), Some(a.memory.remote(0)?));
    Ok([a, b])
}

/// An end of the layer.
struct Layer {
    channel: Channel,
    _session: Session,
    other: usize,
    from: Vec<u8>,
    into: Vec<u8>,
}

impl Layer {
    fn new(board: &Board, rank: usize) -> Result<Self> {
        let mut options = SessionOptions::new("overhead", rank, 2);
        options.policy = Policy::Latency;
        let rails = vec![("vi".to_owned(), common::rail(Kind::Device, "overhead", 0, rank))];
        let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
        let channel = session.channel(0, &[])?;
        Ok(Self { channel, _session: session, other: 1 - rank, from: vec![7; LONG], into: vec![0; LONG] })
    }

    fn send(&self, len: usize) -> Result<()> {
        self.channel.send(self.other, |message| message.cheaper(&self.from[..len], ReceiveMode::Cheaper))
    }

    fn receive(&mut self, len: usize) -> Result<()> {
        let into = &mut self.into[..len];
        self.channel.receive(self.other, |message| message.cheaper(into, SendMode::Cheaper))
    }
}

/// Median of what was measured, in microseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn what_the_layer_adds() {
    // Length, batches, round trips of each.
    const RUNS: [(usize, usize, usize); 2] = [(64, 5, 60), (LONG, 5, 3)];
    let [mut a, mut b] = bare_pair().unwrap_or_else(|e| panic!("{e}"));
    let board = Board::default();
    let there = board.clone();
    let mut medians = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut layer = Layer::new(&there, 1).unwrap();
            for (len, batches, rounds) in RUNS {
                for _ in 0..batches {
                    (0..rounds).for_each(|_| b.wait().and_then(|()| b.send(len)).unwrap());
                    (0..rounds).for_each(|_| layer.receive(len).and_then(|()| layer.send(len)).unwrap());
                }
            }
            // What was sent last is acknowledged.
            while b.going > 0 {
                b.reap().unwrap();
            }
        });
        let mut layer = Layer::new(&board, 0).unwrap();
        for (len, batches, rounds) in RUNS {
            let (mut bare, mut messages) = (Vec::new(), Vec::new());
            for batch in 0..batches {
                for _ in 0..rounds {
                    let start = Instant::now();
                    a.send(len).and_then(|()| a.wait()).unwrap();
                    bare.extend((batch > 0).then(|| start.elapsed() / 2));
                }
                for _ in 0..rounds {
                    let start = Instant::now();
                    layer.send(len).and_then(|()| layer.receive(len)).unwrap();
                    messages.extend((batch > 0).then(|| start.elapsed() / 2));
                }
            }
            assert_eq!(bare.len(), messages.len());
            medians.push((len, median(&mut bare), median(&mut messages)));
        }
    });
    for (len, bare, messages) in medians {
        let more = (messages / bare - 1.0) * 100.0;
        println!(
            "{len} bytes: VI {bare:.1} us, messages {messages:.1} us: {more:+.1} % (p50, half a round trip)"
        );
    }
}
