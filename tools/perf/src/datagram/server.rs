//! The end that answers: echoes pings, counts data.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::link::{BURST, Link, Packet};
use super::wire::{Body, Head, Kind};
use uvia_tools::Failure;

/// Tells a server in another thread to end.
pub type Stop = AtomicBool;

/// Serves one client until it says that it has done.
///
/// # Errors
/// A client that is not heard for `patience`, and failures of the link.
pub fn serve<L: Link>(link: &mut L, patience: Duration, stop: &Stop) -> Result<(), Failure> {
    link.settle(false);
    let mut inbox: Vec<Packet> = Vec::with_capacity(BURST);
    let mut session = None;
    let mut size = 0;
    let mut tally = Tally::default();
    let mut heard = Instant::now();
    let mut idle = 0u32;
    while !stop.load(Ordering::Relaxed) {
        // Before there is a client, nothing is lost by looking seldom.
        let wait = if session.is_some() { Duration::from_millis(10) } else { Duration::ZERO };
        link.receive(wait, &mut |packet| inbox.push(packet))?;
        if inbox.is_empty() {
            if session.is_none() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            idle += 1;
            if idle > 10 && heard.elapsed() > patience {
                return Err(Failure::failed(format!(
                    "the client was not heard for {:.1} s: it has gone, or its link is down",
                    patience.as_secs_f64()
                )));
            }
            continue;
        }
        if idle > 0 || session.is_none() || inbox[0].head.kind.is_control() {
            heard = Instant::now();
            idle = 0;
        }
        for packet in inbox.drain(..) {
            let head = packet.head;
            let answer = |kind| Head { kind, ..head };
            match head.kind {
                Kind::Hello => {
                    if session.is_none() {
                        link.settle(true);
                    }
                    // The same one again when our answer was lost.
                    if session != Some(head.session) {
                        session = Some(head.session);
                        tally = Tally::default();
                        link.keep(packet.body.0[1] != 0)?;
                    }
                    // A size over what we can carry is refused by the client, who reads the answer.
                    let most = link.max_payload();
                    size = usize::try_from(packet.body.0[0]).unwrap_or(most).clamp(L::LEAST, most);
                    link.send_control(answer(Kind::HelloAck), Body([most as u64, 0, 0]))?;
                }
                _ if session != Some(head.session) => {}
                Kind::Ping => {
                    link.send(answer(Kind::Pong), size)?;
                    link.flush()?;
                }
                Kind::Data => tally.count(),
                Kind::Finish => {
                    link.send_control(answer(Kind::Tally), Body([tally.messages, tally.nanos(), 0]))?;
                }
                Kind::Bye => return leave(link, answer(Kind::ByeAck)),
                Kind::Pong | Kind::HelloAck | Kind::Tally | Kind::ByeAck => {}
            }
        }
    }
    Ok(())
}

/// The last answer may be lost too: stays a little to repeat it.
fn leave<L: Link>(link: &mut L, ack: Head) -> Result<(), Failure> {
    link.send_control(ack, Body::default())?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        let mut again = false;
        link.receive(Duration::from_millis(50), &mut |packet| again |= packet.head.kind == Kind::Bye)?;
        if again {
            link.send_control(ack, Body::default())?;
        }
    }
    Ok(())
}

/// What came.
#[derive(Default)]
struct Tally {
    messages: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Tally {
    fn count(&mut self) {
        let now = Instant::now();
        self.messages += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    fn nanos(&self) -> u64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) => (last - first).as_nanos() as u64,
            _ => 0,
        }
    }
}
