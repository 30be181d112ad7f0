//! Which frames are received (VIRTIO 1.2, 5.1.6.5.1 and 5.1.6.5.2).

/// Addresses of a table that are kept: with more, all of that kind pass.
const MOST: usize = 128;

/// Receive modes and address tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) promiscuous: bool,
    pub(super) all_multicast: bool,
    unicast: Option<Vec<[u8; 6]>>,
    multicast: Option<Vec<[u8; 6]>>,
}

impl Filter {
    /// As after a reset: all frames, until the driver says otherwise.
    pub(super) fn open() -> Self {
        Self { promiscuous: true, all_multicast: true, unicast: Some(vec![]), multicast: Some(vec![]) }
    }

    /// VIRTIO_NET_CTRL_MAC_TABLE_SET: two tables, each a count and that many addresses. False: it is none.
    pub(super) fn set_tables(&mut self, body: &[u8]) -> bool {
        let Some((unicast, rest)) = table(body) else { return false };
        let Some((multicast, _)) = table(rest) else { return false };
        (self.unicast, self.multicast) = (unicast, multicast);
        true
    }

    pub(super) fn accepts(&self, frame: &[u8], mac: [u8; 6]) -> bool {
        let Some(destination) = frame.first_chunk::<6>() else { return false };
        let listed = |table: &Option<Vec<_>>| table.as_ref().is_none_or(|table| table.contains(destination));
        if self.promiscuous || *destination == [0xff; 6] {
            true
        } else if destination[0] & 1 != 0 {
            self.all_multicast || listed(&self.multicast)
        } else {
            *destination == mac || listed(&self.unicast)
        }
    }
}

/// A table, or `None` in its place where it is too long; and what follows it.
#[allow(clippy::type_complexity, reason = "said in the comment, used twice")]
fn table(body: &[u8]) -> Option<(Option<Vec<[u8; 6]>>, &[u8])> {
    let (count, rest) = body.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let bytes = count.checked_mul(6).filter(|bytes| *bytes <= rest.len())?;
    let (addresses, rest) = rest.split_at(bytes);
    let table = (count <= MOST).then(|| addresses.as_chunks::<6>().0.to_vec());
    Some((table, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_modes() {
        let (ours, other, group) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [3, 0, 0, 0, 0, 1]);
        let mut filter = Filter::open();
        assert!(filter.accepts(&other, ours));
        (filter.promiscuous, filter.all_multicast) = (false, false);
        assert!(filter.accepts(&ours, ours) && filter.accepts(&[0xff; 6], ours));
        assert!(
            !filter.accepts(&other, ours) && !filter.accepts(&group, ours) && !filter.accepts(&[1], ours)
        );
        let set = [&[1, 0, 0, 0][..], &other, &[1, 0, 0, 0], &group].concat();
        assert!(filter.set_tables(&set));
        assert!(filter.accepts(&other, ours) && filter.accepts(&group, ours));
        for end in 0..set.len() {
            assert!(!filter.set_tables(&set[..end]));
        }
        assert!(!filter.set_tables(&[0xff; 40]));
        let long = [&200u32.to_le_bytes()[..], &[2; 1200], &[0; 4]].concat();
        assert!(filter.set_tables(&long));
        assert!(filter.accepts(&[4; 6], ours) && !filter.accepts(&group, ours));
    }
}
