//! Virtual interfaces beside raw frames, in one run: rounds of each in turn, so that what disturbs one disturbs the other.

use serde::Serialize;
use uvia_tools::{Failure, print_json, print_line};

use super::{Outcome, measure_each, open_pair, pair, subject};
use crate::cli::{Op, ViArgs, Wait};
use crate::datagram::{Link as _, bandwidth_of_pair, latency_of_pair};
use crate::load::{Load, Test};
use crate::raw::{self, RawLink};
use crate::report::{Bandwidth, Latency, Subject};

/// How the interfaces compare with one kind of frames.
#[derive(Debug, Serialize)]
struct Ratio {
    /// The rows that it is of.
    test: &'static str,
    op: &'static str,
    size: usize,
    beside: &'static str,
    beside_op: &'static str,
    /// Bytes of such a frame behind its Ethernet header.
    beside_size: usize,
    rounds: u16,
    /// Latency: the median of all messages over that of all frames. Bandwidth: that of the median round over that of the
    /// frames' median round.
    ratio: f64,
    /// The least and the greatest of a single round.
    least: f64,
    greatest: f64,
}

/// Frames that interfaces are compared with.
#[derive(Clone, Copy)]
struct Frames {
    /// Their receiver keeps what they carry.
    copies: bool,
    /// As long as those of the interfaces, where these are longer than what the network surely carries.
    long: bool,
}

impl Frames {
    /// Bytes of each behind its Ethernet header, where the interfaces' have `used`; none where there are no such frames.
    fn size(self, a: &RawLink, b: &RawLink, used: usize) -> Option<usize> {
        let sure = a.usual_payload().min(b.usual_payload());
        if !self.long {
            return Some(sure);
        }
        Some(used.min(a.max_payload()).min(b.max_payload())).filter(|size| *size > sure)
    }
}

/// One kind of test, over all rounds.
struct Tally {
    subject: Subject,
    latency: Latency,
    bandwidth: Bandwidth,
    /// What each round came to: nanoseconds, or bytes a second.
    figures: Vec<f64>,
}

impl Tally {
    fn new(subject: Subject) -> Result<Self, Failure> {
        Ok(Self { subject, latency: Latency::new()?, bandwidth: Bandwidth::default(), figures: Vec::new() })
    }

    fn take(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        match outcome {
            Outcome::Latency(result) => {
                self.latency.add(result)?;
                self.figures.push(result.median() as f64);
            }
            Outcome::Bandwidth(result) => {
                self.bandwidth.add(result);
                self.figures.push(result.rate(self.subject.size));
            }
        }
        Ok(())
    }

    fn figure(&self, test: Test) -> f64 {
        match test {
            Test::Latency => self.latency.median() as f64,
            Test::Bandwidth => {
                let mut figures = self.figures.clone();
                figures.sort_by(f64::total_cmp);
                figures.get(figures.len() / 2).copied().unwrap_or(0.0)
            }
        }
    }

    fn print(&mut self, test: Test) -> Result<(), Failure> {
        match test {
            Test::Latency => self.subject.print_latency(&self.latency),
            Test::Bandwidth => self.subject.print_bandwidth(&self.bandwidth),
        }
    }

    fn over(&self, frames: &Self, test: Test) -> Ratio {
        let of = |ours: f64, theirs: f64| (ours / theirs.max(1e-9) * 1000.0).round() / 1000.0;
        let rounds = || self.figures.iter().zip(&frames.figures).map(|(ours, theirs)| of(*ours, *theirs));
        Ratio {
            test: self.subject.test,
            op: self.subject.op,
            size: self.subject.size,
            beside: frames.subject.test,
            beside_op: frames.subject.op,
            beside_size: frames.subject.size,
            rounds: self.figures.len() as u16,
            ratio: of(self.figure(test), frames.figure(test)),
            least: rounds().fold(f64::INFINITY, f64::min),
            greatest: rounds().fold(0.0, f64::max),
        }
    }
}

impl Ratio {
    fn print(&self, test: Test, json: bool) -> Result<(), Failure> {
        if json {
            return print_json(self);
        }
        let what = match test {
            Test::Latency => "median",
            Test::Bandwidth => "median round's bandwidth",
        };
        let copied = if self.beside_op == "copy" { " that are copied" } else { "" };
        print_line(format_args!(
            "# {} bytes: the {what} is {:.2} times that of frames of {} bytes{copied}; in single rounds of {}, {:.2} to {:.2} times",
            self.size, self.ratio, self.beside_size, self.rounds, self.least, self.greatest
        ))
    }
}

/// Runs the test between two NICs by virtual interfaces and by frames, round by round.
pub fn run(test: Test, args: &ViArgs, load: &Load, devices: [&str; 2]) -> Result<(), Failure> {
    if args.wait != Wait::Poll || test == Test::Latency && args.op == Op::Read {
        return Err(Failure::usage(
            "--beside goes with --wait poll, and not with lat --op read: no frame is like it",
        ));
    }
    let mut orders = Vec::new();
    let (driver, native_mtu) = {
        let (a, b) = open_pair(args, load.timeout, devices)?;
        measure_each(test, args, load, &a, |order| {
            orders.push(order);
            Ok(())
        })?;
        drop(b);
        (subject(test, args, load, &a), a.properties().native_mtu)
    };
    const KINDS: [Frames; 3] = [
        Frames { copies: true, long: false },
        Frames { copies: false, long: false },
        Frames { copies: true, long: true },
    ];
    let kinds = match test {
        Test::Latency => &KINDS[1..2],
        Test::Bandwidth => &KINDS[..],
    };
    for order in &orders {
        let size = order.size as usize;
        let mut ours = Tally::new(Subject { size, ..driver.clone() })?;
        let mut frames: Vec<Tally> = Vec::new();
        for _ in 0..args.rounds {
            let outcome = {
                let (a, b) = open_pair(args, load.timeout, devices)?;
                pair::run(&a, &b, order, load.timeout)?
            };
            ours.take(&outcome)?;
            for (n, kind) in kinds.iter().enumerate() {
                let (mut a, mut b) =
                    raw::pair(devices[0], devices[1], args.nic.packed_rings, kind.copies, load.timeout)?;
                let size = match &outcome {
                    Outcome::Latency(_) => {
                        load.sizes_up_to(
                            RawLink::LEAST,
                            a.usual_payload().min(b.usual_payload()),
                            a.max_payload().min(b.max_payload()),
                            RawLink::LIMIT,
                        )?;
                        size
                    }
                    Outcome::Bandwidth(ours) => {
                        let used = ours.frame + a.usual_payload().saturating_sub(native_mtu);
                        let Some(size) = kind.size(&a, &b, used) else { continue };
                        size
                    }
                };
                if frames.len() == n {
                    let subject = raw::subject(&a, test, kind.copies, load.json);
                    frames.push(Tally::new(Subject { size, ..subject })?);
                }
                let outcome = match test {
                    Test::Latency => Outcome::Latency(latency_of_pair(&mut a, &mut b, size, load)?),
                    Test::Bandwidth => {
                        // As many bytes as the other test moves.
                        let bytes = order.size.max(1) * order.iterations;
                        let load = load.with_iterations((bytes / size as u64).max(1));
                        Outcome::Bandwidth(bandwidth_of_pair(&mut a, &mut b, size, &load)?)
                    }
                };
                frames[n].take(&outcome)?;
            }
        }
        for tally in &mut frames {
            tally.print(test)?;
        }
        ours.print(test)?;
        for tally in &frames {
            ours.over(tally, test).print(test, load.json)?;
        }
    }
    Ok(())
}
