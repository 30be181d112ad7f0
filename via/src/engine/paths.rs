//! What the ways to other hosts carry, as far as it was found out: by station, so that a connection begins with what
//! another has learned, and of thousands to one host only one asks.

use std::collections::HashMap;

use uvia_driver::nic::MacAddress;

use super::Time;

/// How long what was found is taken for true, nanoseconds: PMTU_RAISE_TIMER of RFC 8899.
pub(crate) const AGE: u64 = 600_000_000_000;
/// Most hosts that something is known of.
pub(crate) const HOSTS: usize = 1024;

/// What is known of the way to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    /// Bytes after the first 14 of the longest frame that has come there; none while some connection tries.
    pub(super) mtu: Option<u16>,
    /// Nothing is known from then on.
    pub(super) until: Time,
}

/// Ways to hosts. Only what this host has tried is in here: nobody else can fill it.
pub(super) struct Paths(HashMap<MacAddress, Path>);

impl Paths {
    /// With room for all, where there is anything to be found; nothing is allocated later. Twice the room: a table that is
    /// less than half full makes its erased entries usable in place.
    pub(super) fn new(used: bool) -> Self {
        Self(HashMap::with_capacity(if used { 2 * HOSTS } else { 0 }))
    }

    /// What is known of the way to a station.
    pub(super) fn find(&self, station: MacAddress, now: Time) -> Option<Path> {
        self.0.get(&station).copied().filter(|path| now < path.until)
    }

    /// A connection tries, and will be done then.
    pub(super) fn search(&mut self, station: MacAddress, until: Time) {
        self.insert(station, Path { mtu: None, until });
    }

    /// Frames of that length come there, and none that are longer.
    pub(super) fn learn(&mut self, station: MacAddress, mtu: u16, now: Time) {
        self.insert(station, Path { mtu: Some(mtu), until: now.after(AGE) });
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self, station: MacAddress) {
        self.0.remove(&station);
    }

    fn insert(&mut self, station: MacAddress, path: Path) {
        if self.0.len() >= HOSTS && !self.0.contains_key(&station) {
            // The one that would be the first to be forgotten.
            let oldest = self.0.iter().min_by_key(|(station, path)| (path.until, station.0));
            let oldest = oldest.map(|(station, _)| *station);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(station, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(n: u32) -> MacAddress {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddress([2, 0, a, b, c, d])
    }

    #[test]
    fn what_was_found_is_forgotten_after_its_time() {
        let mut paths = Paths::new(true);
        assert_eq!(paths.find(station(1), Time(0)), None);
        paths.search(station(1), Time(50));
        assert_eq!(paths.find(station(1), Time(49)), Some(Path { mtu: None, until: Time(50) }));
        assert_eq!(paths.find(station(1), Time(50)), None);
        paths.learn(station(1), 9000, Time(7));
        let found = |paths: &Paths, at| paths.find(station(1), Time(at)).and_then(|path| path.mtu);
        assert_eq!((found(&paths, 7), found(&paths, AGE + 6)), (Some(9000), Some(9000)));
        assert_eq!(found(&paths, AGE + 7), None);
        paths.forget(station(1));
        assert_eq!(found(&paths, 7), None);
    }

    #[test]
    fn the_table_is_bounded_and_what_is_oldest_makes_room() {
        let mut paths = Paths::new(true);
        let room = paths.0.capacity();
        for n in 0..3 * HOSTS as u32 {
            paths.learn(station(n), 9000, Time(n.into()));
            assert!(paths.0.len() <= HOSTS && paths.0.capacity() <= room);
        }
        for n in 0..3 * HOSTS as u32 {
            let known = paths.find(station(n), Time(3 * HOSTS as u64)).is_some();
            assert_eq!(known, n >= 2 * HOSTS as u32, "station {n}");
        }
        // One that is known already makes nobody go.
        paths.learn(station(2 * HOSTS as u32), 1500, Time(3 * HOSTS as u64));
        assert!(paths.find(station(2 * HOSTS as u32 + 1), Time(3 * HOSTS as u64)).is_some());
    }
}
