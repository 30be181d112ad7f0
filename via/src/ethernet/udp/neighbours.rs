//! Which station has which address: what was learnt, and when to ask. Time goes in, questions come out.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::MacAddress;

const SECOND: u64 = 1_000_000_000;
/// What was learnt is used without a thought for so long,
const FRESH: u64 = 30 * SECOND;
/// and for so long while it is asked for anew.
const LIFE: u64 = 120 * SECOND;
/// Wait between the first questions,
const SOON: u64 = SECOND / 10;
/// of which there are so many,
const FIRST: u32 = 3;
/// and between later ones (RFC 1122, 2.3.2.1).
const LATER: u64 = SECOND;
/// Most neighbours that are known.
const MOST: usize = 256;

#[derive(Debug, Default)]
struct Neighbour {
    station: Option<MacAddress>,
    learnt: u64,
    asked: u64,
    /// Questions since it was last heard.
    questions: u32,
    used: u64,
}

/// What there is to know of the way to a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// Its station, and until when nothing else is to be done.
    pub(super) station: Option<(MacAddress, u64)>,
    /// Who is to be asked now: the station itself, or all.
    pub(super) ask: Option<MacAddress>,
}

/// All neighbours that frames went to.
#[derive(Debug, Default)]
pub(super) struct Neighbours(HashMap<Ipv4Addr, Neighbour>);

impl Neighbours {
    /// A frame is to go to this neighbour. A question that is to be asked counts as asked.
    pub(super) fn way(&mut self, now: u64, address: Ipv4Addr) -> Way {
        if self.0.len() >= MOST && !self.0.contains_key(&address) {
            let oldest =
                self.0.iter().min_by_key(|(_, neighbour)| neighbour.used).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let neighbour = self.0.entry(address).or_default();
        neighbour.used = now;
        let age = now.saturating_sub(neighbour.learnt);
        if let Some(station) = neighbour.station
            && age < FRESH
        {
            return Way { station: Some((station, neighbour.learnt + FRESH)), ask: None };
        }
        if age >= LIFE {
            neighbour.station = None;
        }
        let wait = if neighbour.questions < FIRST { SOON } else { LATER };
        let due = neighbour.questions == 0 || now.saturating_sub(neighbour.asked) >= wait;
        let ask = due.then(|| {
            neighbour.asked = now;
            neighbour.questions += 1;
            // It is most likely where it was; should it have moved, all are asked.
            neighbour.station.filter(|_| neighbour.questions <= FIRST).unwrap_or(MacAddress::BROADCAST)
        });
        Way { station: neighbour.station.map(|station| (station, now + SOON)), ask }
    }

    /// A neighbour says where it is. What nobody asked for is not kept: a flood finds no room. Answers whether it was.
    pub(super) fn heard(&mut self, now: u64, address: Ipv4Addr, station: MacAddress) -> bool {
        let Some(neighbour) = self.0.get_mut(&address) else { return false };
        neighbour.station = Some(station);
        neighbour.learnt = now;
        neighbour.questions = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const ALL: Option<MacAddress> = Some(MacAddress::BROADCAST);

    #[test]
    fn one_that_is_not_known_is_asked_for_at_a_bounded_rate() {
        let mut neighbours = Neighbours::default();
        let start = 5 * SECOND;
        let mut questions = Vec::new();
        for tenth in 0..100 {
            let now = start + tenth * SECOND / 10;
            let way = neighbours.way(now, HERE);
            assert_eq!(way.station, None);
            if way.ask.is_some() {
                assert_eq!(way.ask, ALL);
                questions.push(tenth);
            }
            assert_eq!(neighbours.way(now, HERE).ask, None, "once");
        }
        assert_eq!(questions[..5], [0, 1, 2, 12, 22]);
        assert!(neighbours.heard(start, HERE, STATION));
        let way = neighbours.way(start, HERE);
        assert_eq!(way, Way { station: Some((STATION, start + FRESH)), ask: None });
    }

    #[test]
    fn what_was_learnt_is_asked_anew_and_forgotten() {
        let mut neighbours = Neighbours::default();
        neighbours.way(0, HERE);
        neighbours.heard(0, HERE, STATION);
        assert_eq!(neighbours.way(FRESH - 1, HERE).ask, None);
        let mut asked = Vec::new();
        let mut now = FRESH;
        while now < LIFE {
            let way = neighbours.way(now, HERE);
            assert_eq!(way.station.map(|(station, _)| station), Some(STATION), "it is used meanwhile");
            asked.extend(way.ask);
            now += SECOND;
        }
        assert_eq!(asked[..3], [STATION; 3], "itself first");
        assert!(asked[3..].iter().all(|to| *to == MacAddress::BROADCAST) && asked.len() > 80);
        assert_eq!(neighbours.way(LIFE, HERE).station, None);
        // It moved.
        let other = MacAddress([2, 0, 0, 0, 0, 9]);
        neighbours.heard(LIFE, HERE, other);
        assert_eq!(neighbours.way(LIFE, HERE).station, Some((other, LIFE + FRESH)));
    }

    #[test]
    fn nothing_is_learnt_unasked_and_there_is_an_end_to_it() {
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.heard(0, HERE, STATION));
        assert_eq!(neighbours.way(0, HERE).station, None);
        neighbours.heard(0, HERE, STATION);
        for n in 1..=2 * MOST as u32 {
            neighbours.way(u64::from(n), Ipv4Addr::from_bits(n));
            assert!(neighbours.0.len() <= MOST);
        }
        assert!(!neighbours.0.contains_key(&HERE), "the one that was used least lately goes");
    }
}
