//! What the layer adds to the virtual interfaces below it, in one run: `overhead [ROUNDS]`.
//!
//! Both ends are driven by one thread, so that no change of threads is measured; batches of both kinds take turns.

use std::time::{Duration, Instant};

use uvia::{Completions, Descriptor, MemoryAttributes, NetAddress, Nic, NicOptions, ViAttributes, WorkQueue};
use uvia_message::{
    Board, Channel, Directory, Policy, RailPort, ReceiveMode, Result, SendMode, Session, SessionOptions, Span,
};

const BATCH: u32 = 200;

fn nic(device: &str, name: &str) -> Nic {
    let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
    let (adapter, domain) =
        uvia_driver::nic::open_named(device, &options.adapter).expect("shared memory opens");
    Nic::with_adapter(adapter, domain, options).expect("a NIC opens")
}

/// One end of the bare interfaces.
struct Bare {
    vi: uvia::Vi,
    cq: uvia::CompletionQueue,
    completions: Completions,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    sends: Vec<Box<Descriptor>>,
    nic: Nic,
    /// Messages that came and were not waited for yet.
    came: usize,
}

impl Bare {
    fn new(nic: Nic) -> uvia::Result<Self> {
        let tag = nic.create_tag()?;
        let cq = nic.create_cq(256)?;
        let vi = nic.create_vi(&ViAttributes::new(tag), Some(&cq), Some(&cq))?;
        let memory = nic.allocate(4096, MemoryAttributes::remote_write(tag))?;
        for n in 0..4 {
            let descriptor = Descriptor::new(vec![memory.segment(n * 64..(n + 1) * 64)?]);
            vi.post_receive(descriptor).map_err(|e| e.error)?;
        }
        let sends = vec![Descriptor::new(vec![memory.segment(1024..1024 + 64)?])];
        Ok(Self { vi, cq, completions: Completions::with_capacity(64), sends, nic, came: 0 })
    }

    /// Takes what has completed.
    fn reap(&mut self) {
        self.cq.poll_into(&mut self.completions).expect("the NIC works");
        while let Some(completion) = self.completions.pop() {
            match completion.queue {
                WorkQueue::Send => self.sends.push(completion.descriptor),
                WorkQueue::Receive => {
                    self.came += 1;
                    self.vi.post_receive(completion.descriptor).expect("a receive is posted");
                }
            }
        }
    }

    fn send(&mut self) {
        let descriptor = loop {
            match self.sends.pop() {
                Some(descriptor) => break descriptor,
                None => self.reap(),
            }
        };
        self.vi.post_send(descriptor).expect("a send is posted");
    }

    /// Until a message has come.
    fn wait(&mut self) {
        while self.came == 0 {
            self.reap();
        }
        self.came -= 1;
    }
}

fn percentile(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn report(what: &str, bare: Vec<f64>, layer: Vec<f64>) {
    let ((bare_min, bare), (layer_min, layer)) = (percentile(bare), percentile(layer));
    println!(
        "{what:>8}: VI {bare:.0} ns (least {bare_min:.0}), messages {layer:.0} ns (least {layer_min:.0}): {:+.0} ns, {:+.1} %",
        layer - bare,
        (layer / bare - 1.0) * 100.0
    );
}

fn session(board: &Board, rank: usize, nic: Nic) -> Result<(Session, Channel)> {
    let mut options = SessionOptions::new("overhead", rank, 2);
    options.policy = Policy::Latency;
    let rails = vec![("vi".to_owned(), RailPort::Vi(nic))];
    let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
    let channel = session.channel(0, &[])?;
    Ok((session, channel))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(2000), |word| word.parse())?;
    let device = |what: &str| format!("shm:overhead-{what}-{}", std::process::id());
    let (mut a, mut b) = (Bare::new(nic(&device("bare"), "a"))?, Bare::new(nic(&device("bare"), "b"))?);
    let listener = b.nic.listen(b"bare", 1)?;
    a.vi.connect_start(&NetAddress::new(b.nic.properties().mac, b"bare")?, Duration::from_secs(5), b"")?;
    while a.vi.connect_done()?.is_none() {
        if let Some(request) = listener.poll()? {
            request.accept(&b.vi, b"").map_err(|(_, e)| e)?;
        }
    }
    let board = Board::default();
    let other = {
        let board = board.clone();
        let nic = nic(&device("layer"), "b");
        std::thread::spawn(move || -> Result<(Session, Channel)> {
            let (session, channel) = session(&board, 1, nic)?;
            channel.receive(0, |message| message.get::<u8>())?;
            Ok((session, channel))
        })
    };
    let (_mine, here) = session(&board, 0, nic(&device("layer"), "a"))?;
    here.send(1, |message| message.put(&0u8))?;
    let (_theirs, there) = other.join().map_err(|_| "the other end failed")??;

    let mut bytes = [7u8; 64];
    let span = Span::new(bytes.as_mut_ptr(), bytes.len());
    let leg = |from: &Channel, to: &Channel, rank: usize| -> Result<()> {
        let mut message = from.begin(1 - rank)?;
        // SAFETY: the buffer outlives the message, and both ends have the same bytes there.
        unsafe { message.pack(span, SendMode::Cheaper, ReceiveMode::Cheaper)? };
        message.end()?;
        let mut message = loop {
            if let Some(message) = to.try_begin_receive(rank)? {
                break message;
            }
        };
        // SAFETY: as above.
        unsafe { message.unpack(span, SendMode::Cheaper, ReceiveMode::Cheaper)? };
        message.end()
    };
    let (mut bare, mut layer) = (Vec::new(), Vec::new());
    for n in 0..rounds / 10 {
        let start = Instant::now();
        for _ in 0..BATCH {
            a.send();
            b.wait();
            b.send();
            a.wait();
        }
        let middle = Instant::now();
        for _ in 0..BATCH {
            leg(&here, &there, 0)?;
            leg(&there, &here, 1)?;
        }
        if n > 5 {
            let each = |time: Duration| time.as_nanos() as f64 / f64::from(BATCH) / 2.0;
            bare.push(each(middle - start));
            layer.push(each(middle.elapsed()));
        }
    }
    report("64 B", bare, layer);

    // Without the farewell: one thread cannot take leave of itself.
    std::process::exit(0)
}
