//! Measures both ways of pieces of several sizes, from a NIC to itself.

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

/// Half a round trip of each size by each way.
fn measure(nic: &Nic, ways: [Thresholds; WAYS], rounds: u32) -> Result<Vec<[u64; WAYS]>> {
    let boards: [Board; WAYS] = Default::default();
    let open = |rank: usize| -> Result<Ends> {
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
        ways.iter().zip(&boards).enumerate().map(end).collect()
    };
    // The first batch of each registers memory, and is not counted.
    let batch = rounds.clamp(1, BATCH);
    let batches = rounds.div_ceil(batch) + 1;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            let ends = open(1)?;
            let mut buffer = vec![0; SIZES[SIZES.len() - 1]];
            for size in SIZES {
                for (_, channel) in (0..batches).flat_map(|_| &ends) {
                    for _ in 0..batch {
                        receive(channel, 0, &mut buffer[..size])?;
                        send(channel, 0, &buffer[..size])?;
                    }
                }
            }
            Ok(())
        });
        let measured = || -> Result<Vec<[u64; WAYS]>> {
            let ends = open(0)?;
            let from = vec![1; SIZES[SIZES.len() - 1]];
            let mut into = from.clone();
            SIZES
                .iter()
                .map(|size| of_size(&ends, &from[..*size], &mut into[..*size], (batches, batch)))
                .collect()
        };
        let measured = measured();
        echo.join().unwrap_or_else(|_| Err(Error::Config("the other end has failed".to_owned())))?;
        measured
    })
}

fn of_size(ends: &Ends, from: &[u8], into: &mut [u8], (batches, batch): (u32, u32)) -> Result<[u64; WAYS]> {
    let mut times: [Vec<u64>; WAYS] = Default::default();
    for n in 0..batches {
        for ((_, channel), times) in ends.iter().zip(&mut times) {
            for _ in 0..batch {
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
