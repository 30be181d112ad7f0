//! Measures both ways of pieces of several sizes, from a NIC to itself.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uvia::{Nic, NicOptions, Progress};
use uvia_message::{
    Board, Channel, Directory, Error, Policy, RailPort, ReceiveMode, Result, SendMode, Session,
    SessionOptions, Thresholds,
};

/// Sizes that are measured, bytes.
pub const SIZES: [usize; 11] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];
/// From so many bytes on nothing that is measured is.
const NOTHING: usize = 1 << 30;
/// A call that takes longer than this will not end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Within this an end fails that does so since the other has.
const GRACE: Duration = Duration::from_millis(100);

/// Half a round trip of a piece of one size, by each module, in nanoseconds: what a quarter of all took at most.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Sample {
    /// Bytes.
    pub size: usize,
    /// Copied into packets, and out of them.
    pub copied: u64,
    /// Taken from its place into packets, and copied out of them.
    pub gathered: u64,
    /// Written straight into its place.
    pub written: u64,
    /// Read straight from its place.
    pub read: u64,
}

/// From which size on the second is cheaper, for all that were measured.
fn from(samples: &[Sample], usual: impl Fn(&Sample) -> u64, other: impl Fn(&Sample) -> u64) -> Option<usize> {
    let first =
        samples.iter().rposition(|sample| other(sample) >= usual(sample)).map_or(0, |dearer| dearer + 1);
    samples.get(first).map(|sample| sample.size)
}

/// The thresholds that follow: of each module from which size on it is the cheaper, for all that were measured; beyond all
/// of them where it never is. What was not measured stays as it was.
pub fn thresholds(samples: &[Sample], usual: Thresholds) -> Thresholds {
    let short = |sample: &Sample| sample.copied.min(sample.gathered);
    let long = |sample: &Sample| sample.written.min(sample.read);
    let beyond = samples.last().map_or(usual.long, |sample| 2 * sample.size);
    let long = from(samples, short, long).unwrap_or(beyond);
    let gather = from(samples, |sample| sample.copied, |sample| sample.gathered);
    let read = from(samples, |sample| sample.written, |sample| sample.read);
    Thresholds {
        long,
        gather: gather.filter(|gather| *gather < long).unwrap_or(Thresholds::NEVER),
        read: read.unwrap_or(Thresholds::NEVER),
        ..usual
    }
}

/// Measures a NIC.
///
/// # Errors
/// It cannot be opened, or does not work.
pub fn run(device: &str, rounds: u32) -> Result<Vec<Sample>> {
    let options = NicOptions { progress: Progress::Thread, ..NicOptions::default() };
    let nic = Nic::open(device, options)?;
    nic.wait_ready(Duration::from_secs(30))?;
    let none = Thresholds { inline: 0, gather: Thresholds::NEVER, long: NOTHING, read: Thresholds::NEVER };
    let all = SIZES[0];
    let ways = [
        none,
        Thresholds { gather: all, ..none },
        Thresholds { long: all, ..none },
        Thresholds { long: all, read: all, ..none },
    ];
    let times = measure(&nic, ways, rounds)?;
    let sample = |(size, [copied, gathered, written, read]): (&usize, [u64; WAYS])| Sample {
        size: *size,
        copied,
        gathered,
        written,
        read,
    };
    Ok(SIZES.iter().zip(times).map(sample).collect())
}

/// Ways that are measured, in batches in turn: so what disturbs one of them disturbs all.
const WAYS: usize = 4;
const BATCH: u32 = 10;

/// One end of each way.
type Ends = Vec<(Session, Channel)>;

/// Rounds of a size by a way: batches, and how many each has.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    batches: u32,
    batch: u32,
}

/// Half a round trip of each size by each way.
fn measure(nic: &Nic, ways: [Thresholds; WAYS], rounds: u32) -> Result<Vec<[u64; WAYS]>> {
    let boards: [Board; WAYS] = Default::default();
    // The first batch of each registers memory, and is not counted.
    let batch = rounds.clamp(1, BATCH);
    let rounds = Rounds { batches: rounds.div_ceil(batch) + 1, batch };
    let answers = || {
        let (nic, boards) = (nic.open_again(), boards.clone());
        move || open(&nic, &boards, ways, 1).and_then(|ends| answer(&ends, rounds)).map(|()| None)
    };
    let asks = || {
        let (nic, boards) = (nic.open_again(), boards.clone());
        move || open(&nic, &boards, ways, 0).and_then(|ends| ask(&ends, rounds)).map(Some)
    };
    both(answers(), asks())?.ok_or_else(|| Error::Config("nothing was measured".to_owned()))
}

/// Runs both ends, in a thread each, and answers what one of them has found. When one fails the other is not waited for: it
/// would wait for as long as it has patience.
///
/// # Errors
/// That of the one that fails first; and of the other, if it fails by that at once: which of them is the cause is not to be
/// seen here.
fn both<T: Send + 'static>(
    one: impl FnOnce() -> Result<Option<T>> + Send + 'static,
    other: impl FnOnce() -> Result<Option<T>> + Send + 'static,
) -> Result<Option<T>> {
    let (tell, told) = mpsc::channel();
    let also = tell.clone();
    let failed = |e| Error::Config(format!("starting a thread: {e}"));
    // Nobody hears the second, when the first has failed.
    thread::Builder::new().spawn(move || drop(tell.send(one()))).map_err(failed)?;
    thread::Builder::new().spawn(move || drop(also.send(other()))).map_err(failed)?;
    let mut found = None;
    for _ in 0..2 {
        match told.recv() {
            Ok(Ok(outcome)) => found = found.or(outcome),
            Ok(Err(first)) => {
                return Err(match told.recv_timeout(GRACE) {
                    Ok(Err(second)) => Error::Config(format!("{first}; the other end: {second}")),
                    _ => first,
                });
            }
            Err(_) => return Err(Error::Config("an end has failed".to_owned())),
        }
    }
    Ok(found)
}

/// Opens the end of each way that is this rank's.
fn open(nic: &Nic, boards: &[Board; WAYS], ways: [Thresholds; WAYS], rank: usize) -> Result<Ends> {
    let end = |(n, (thresholds, board)): (usize, (&Thresholds, &Board))| {
        let name = format!("calibrate-{n}-{}", std::process::id());
        let mut options = SessionOptions::new(name, rank, 2);
        options.thresholds = *thresholds;
        // Who sleeps measures how soon it was woken.
        options.policy = Policy::Latency;
        options.patience = Some(PATIENCE);
        let rails = vec![("nic".to_owned(), RailPort::Vi(nic.open_again()))];
        let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
        let channel = session.channel(0, &[])?;
        Ok((session, channel))
    };
    ways.iter().zip(boards).enumerate().map(end).collect()
}

/// The end that sends back what it gets.
fn answer(ends: &Ends, rounds: Rounds) -> Result<()> {
    let mut buffer = vec![0; SIZES[SIZES.len() - 1]];
    for size in SIZES {
        for (_, channel) in (0..rounds.batches).flat_map(|_| ends) {
            for _ in 0..rounds.batch {
                receive(channel, 0, &mut buffer[..size])?;
                send(channel, 0, &buffer[..size])?;
            }
        }
    }
    Ok(())
}

/// The end that measures.
fn ask(ends: &Ends, rounds: Rounds) -> Result<Vec<[u64; WAYS]>> {
    let from = vec![1; SIZES[SIZES.len() - 1]];
    let mut into = from.clone();
    SIZES.iter().map(|size| of_size(ends, &from[..*size], &mut into[..*size], rounds)).collect()
}

fn of_size(ends: &Ends, from: &[u8], into: &mut [u8], rounds: Rounds) -> Result<[u64; WAYS]> {
    let mut times: [Vec<u64>; WAYS] = Default::default();
    for n in 0..rounds.batches {
        for ((_, channel), times) in ends.iter().zip(&mut times) {
            for _ in 0..rounds.batch {
                let start = Instant::now();
                send(channel, 1, from)?;
                receive(channel, 1, into)?;
                if n > 0 {
                    times.push(start.elapsed().as_nanos() as u64 / 2);
                }
            }
        }
    }
    Ok(times.map(quarter))
}

/// What a quarter of all takes at most: on a host that has other work than ours, the half tells how much that was.
fn quarter(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 4).copied().unwrap_or(0)
}

fn send(channel: &Channel, to: usize, bytes: &[u8]) -> Result<()> {
    channel.send(to, |message| message.cheaper(bytes, ReceiveMode::Cheaper))
}

fn receive(channel: &Channel, from: usize, room: &mut [u8]) -> Result<()> {
    channel.receive(from, |message| message.cheaper(room, SendMode::Cheaper))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of what each size takes copied, gathered, written and read.
    fn of(times: &[[u64; 4]]) -> Vec<Sample> {
        let sample = |(size, [copied, gathered, written, read]): (&usize, &[u64; 4])| Sample {
            size: *size,
            copied: *copied,
            gathered: *gathered,
            written: *written,
            read: *read,
        };
        SIZES.iter().zip(times).map(sample).collect()
    }

    #[test]
    fn an_end_that_fails_is_not_waited_for_by_the_other() {
        let fail = |why: &str| Err::<Option<u8>, _>(Error::Config(why.to_owned()));
        let waits = || {
            thread::sleep(Duration::from_secs(600));
            Ok(None)
        };
        assert!(both(move || fail("no memory"), waits).unwrap_err().to_string().contains("no memory"));
        assert!(both(waits, move || fail("no memory")).unwrap_err().to_string().contains("no memory"));
        // One that fails since the other has may be quicker to tell.
        let told = both(move || fail("no memory"), move || fail("the peer left")).unwrap_err().to_string();
        assert!(told.contains("no memory") && told.contains("the peer left"), "{told}");
        assert_eq!(both(|| Ok(None), || Ok(Some(7))).unwrap(), Some(7));
    }

    const USUAL: Thresholds = Thresholds { inline: 99, gather: 9, long: 9, read: 9 };
    const NEVER: usize = Thresholds::NEVER;

    #[test]
    fn a_threshold_is_where_a_module_begins_to_be_cheaper_and_stays_so() {
        for (times, gather, long, read) in [
            (&[[1, 9, 5, 9], [2, 9, 5, 9], [6, 9, 5, 9], [9, 9, 5, 9]], NEVER, 4 << 10, NEVER),
            // One that was disturbed before it does not count.
            (&[[1, 9, 5, 9], [9, 9, 5, 9], [4, 9, 5, 9], [9, 9, 5, 9]], NEVER, 8 << 10, NEVER),
            (&[[6, 9, 5, 4], [7, 9, 5, 4], [8, 9, 5, 4], [8, 9, 5, 4]], NEVER, 1 << 10, 1 << 10),
            (&[[1, 9, 5, 9], [1, 9, 5, 9], [1, 9, 5, 9], [1, 9, 5, 9]], NEVER, 16 << 10, NEVER),
            (&[[1, 2, 9, 9], [4, 3, 9, 9], [6, 5, 9, 9], [9, 8, 5, 4]], 2 << 10, 8 << 10, 8 << 10),
            // Reading alone is worth it.
            (&[[1, 9, 9, 8], [2, 9, 9, 8], [9, 9, 9, 8], [9, 9, 9, 8]], NEVER, 4 << 10, 1 << 10),
        ] {
            let expected = Thresholds { inline: 99, gather, long, read };
            assert_eq!(thresholds(&of(times), USUAL), expected, "{times:?}");
        }
    }
}
