//! Measures both ways of pieces of several sizes, from a NIC to itself.

use std::time::{Duration, Instant};

use uvia::{Nic, NicOptions, Progress};
use uvia_message::{
    Board, Channel, Directory, Error, RailPort, ReceiveMode, Result, SendMode, Session, SessionOptions,
};

/// Sizes that are measured, bytes.
pub const SIZES: [usize; 9] =
    [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// A threshold by which each of them is copied.
const COPY_ALL: usize = 1 << 30;
/// A call that takes longer than this will not end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Half a round trip of a piece of one size, both ways; the middle of all, in nanoseconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Sample {
    /// Bytes.
    pub size: usize,
    /// Copied into packets, and out of them.
    pub copied: u64,
    /// Put straight into its place.
    pub put: u64,
}

/// From which size on putting is cheaper, for all that were measured; beyond all of them where it never is.
pub fn threshold(samples: &[Sample]) -> usize {
    let dearer = samples.iter().rposition(|sample| sample.put >= sample.copied);
    match dearer {
        None => samples.first().map_or(COPY_ALL, |sample| sample.size),
        Some(last) => samples
            .get(last + 1)
            .map_or_else(|| samples.last().map_or(COPY_ALL, |sample| 2 * sample.size), |sample| sample.size),
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
    let copied = way(&nic, "copied", COPY_ALL, rounds)?;
    let put = way(&nic, "put", SIZES[0], rounds)?;
    let sample = |((size, copied), put): ((&usize, u64), u64)| Sample { size: *size, copied, put };
    Ok(SIZES.iter().zip(copied).zip(put).map(sample).collect())
}

/// The middle half round trip of each size, with one threshold.
fn way(nic: &Nic, name: &str, threshold: usize, rounds: u32) -> Result<Vec<u64>> {
    let board = Board::default();
    let open = |rank: usize| -> Result<(Session, Channel)> {
        let name = format!("calibrate-{name}-{}", std::process::id());
        let mut options = SessionOptions::new(name, rank, 2);
        options.threshold = threshold;
        options.patience = Some(PATIENCE);
        let rails = vec![("nic".to_owned(), RailPort::Vi(nic.open_again()))];
        let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
        let channel = session.channel(0, &[])?;
        Ok((session, channel))
    };
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            let (_session, channel) = open(1)?;
            let mut buffer = vec![0; SIZES[SIZES.len() - 1]];
            for size in SIZES {
                for _ in 0..=rounds {
                    receive(&channel, 0, &mut buffer[..size])?;
                    send(&channel, 0, &buffer[..size])?;
                }
            }
            Ok(())
        });
        let measured = || -> Result<Vec<u64>> {
            let (_session, channel) = open(0)?;
            let buffer = vec![1; SIZES[SIZES.len() - 1]];
            let mut room = buffer.clone();
            SIZES.iter().map(|size| middle(&channel, &buffer[..*size], &mut room[..*size], rounds)).collect()
        };
        let measured = measured();
        echo.join().unwrap_or_else(|_| Err(Error::Config("the other end has failed".to_owned())))?;
        measured
    })
}

fn middle(channel: &Channel, from: &[u8], into: &mut [u8], rounds: u32) -> Result<u64> {
    let mut times = Vec::with_capacity(rounds as usize);
    for round in 0..=rounds {
        let start = Instant::now();
        send(channel, 1, from)?;
        receive(channel, 1, into)?;
        // The first registers memory.
        if round > 0 {
            times.push(start.elapsed().as_nanos() as u64 / 2);
        }
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or(0))
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

    fn of(pairs: &[(u64, u64)]) -> Vec<Sample> {
        let sample =
            |(size, (copied, put)): (&usize, &(u64, u64))| Sample { size: *size, copied: *copied, put: *put };
        SIZES.iter().zip(pairs).map(sample).collect()
    }

    #[test]
    fn the_threshold_is_where_putting_begins_to_be_cheaper_and_stays_so() {
        assert_eq!(threshold(&of(&[(1, 5), (2, 5), (6, 5), (9, 5)])), 4 << 10);
        // One that was disturbed before it does not count.
        assert_eq!(threshold(&of(&[(1, 5), (9, 5), (4, 5), (9, 5)])), 8 << 10);
        assert_eq!(threshold(&of(&[(6, 5), (7, 5)])), 1 << 10);
        assert_eq!(threshold(&of(&[(1, 5), (1, 5)])), 4 << 10, "beyond what was measured");
    }
}
