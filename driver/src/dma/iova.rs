//! Hands out I/O virtual addresses.
//!
//! Apertures differ: 39 bits on some virtual IOMMUs, 48 or more elsewhere, with windows that the platform
//! keeps for itself. So the ranges are data and never assumed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Where x86 delivers message signalled interrupts: a write there is an interrupt and never memory. Type 1
/// VFIO reserves it; it is kept free even where a kernel does not say so.
const INTERRUPT_WINDOW: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;

/// The large page of x86 and ARM: mappings that are aligned to it in both address spaces take one IOMMU
/// entry where small pages take 512.
const LARGE_PAGE: u64 = 2 << 20;

/// Free I/O virtual addresses, page by page. Address 0 is never handed out, since devices take it for "none".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IovaSpace {
    /// First to last byte of every free range. No two touch.
    holes: BTreeMap<u64, u64>,
    /// The usable ranges, whether free or not.
    usable: Vec<RangeInclusive<u64>>,
    page: u64,
}

impl IovaSpace {
    /// A space over `apertures` (in any order), from which the platform's own windows are taken. `page` is
    /// the granularity, a power of two.
    pub fn new(apertures: &[RangeInclusive<u64>], page: u64) -> Self {
        let mut sorted: Vec<_> = apertures.iter().filter(|r| !r.is_empty()).cloned().collect();
        sorted.sort_by_key(|r| *r.start());
        let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
        for range in sorted {
            match merged.last_mut() {
                Some(last) if last.end().checked_add(1).is_none_or(|next| next >= *range.start()) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        let usable: Vec<_> = merged
            .into_iter()
            .flat_map(|range| without(range, &(0..=page - 1)))
            .flat_map(|range| without(range, &INTERRUPT_WINDOW))
            .filter_map(|range| whole_pages(&range, page))
            .collect();
        let holes = usable.iter().map(|r| (*r.start(), *r.end())).collect();
        Self { holes, usable, page }
    }

    /// What can be handed out, whether free or not; ascending.
    pub fn usable(&self) -> &[RangeInclusive<u64>] {
        &self.usable
    }

    /// Takes `len` bytes (whole pages) for memory at `address`. Large ranges get the same offset within a
    /// large page as the memory, where that is possible, so that the IOMMU may use large entries.
    pub fn allocate(&mut self, len: u64, address: u64) -> Option<u64> {
        if len == 0 || !len.is_multiple_of(self.page) {
            return None;
        }
        let congruent = (len >= LARGE_PAGE && self.page < LARGE_PAGE)
            .then(|| self.first_fit(len, LARGE_PAGE, (address & (LARGE_PAGE - 1)) & !(self.page - 1)))
            .flatten();
        let start = congruent.or_else(|| self.first_fit(len, self.page, 0))?;
        self.take(start, start + (len - 1));
        Some(start)
    }

    /// Takes a given range; false when not all of it is free.
    pub fn reserve(&mut self, start: u64, len: u64) -> bool {
        let Some(last) = len.checked_sub(1).and_then(|n| start.checked_add(n)) else { return false };
        let free = self.holes.range(..=start).next_back().is_some_and(|(_, end)| *end >= last);
        if free {
            self.take(start, last);
        }
        free
    }

    /// Gives back what [`Self::allocate`] answered for `len` bytes.
    pub fn free(&mut self, start: u64, len: u64) {
        let mut first = start;
        let mut last = start + (len - 1);
        if let Some((&before, &end)) = self.holes.range(..start).next_back()
            && end.checked_add(1) == Some(start)
        {
            self.holes.remove(&before);
            first = before;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(end) = self.holes.remove(&next)
        {
            last = end;
        }
        self.holes.insert(first, last);
    }

    /// The lowest free `len` bytes that start at `phase` modulo `align` (a power of two).
    fn first_fit(&self, len: u64, align: u64, phase: u64) -> Option<u64> {
        self.holes.iter().find_map(|(&first, &last)| {
            let start = first.checked_add(phase.wrapping_sub(first) & (align - 1))?;
            (start <= last && last - start >= len - 1).then_some(start)
        })
    }

    /// Cuts `[start, last]` out of the hole that holds it.
    fn take(&mut self, start: u64, last: u64) {
        let Some((&first, &end)) = self.holes.range(..=start).next_back() else { return };
        self.holes.remove(&first);
        if first < start {
            self.holes.insert(first, start - 1);
        }
        if last < end {
            self.holes.insert(last + 1, end);
        }
    }
}

/// `range` less `cut`: none, one or two pieces.
fn without(
    range: RangeInclusive<u64>,
    cut: &RangeInclusive<u64>,
) -> impl Iterator<Item = RangeInclusive<u64>> + use<> {
    let (first, last) = (*range.start(), *range.end());
    let below = (first < *cut.start()).then(|| first..=last.min(cut.start().saturating_sub(1)));
    let above = (last > *cut.end()).then(|| first.max(cut.end().saturating_add(1))..=last);
    below.into_iter().chain(above)
}

/// The whole pages within `range`.
fn whole_pages(range: &RangeInclusive<u64>, page: u64) -> Option<RangeInclusive<u64>> {
    let start = range.start().checked_next_multiple_of(page)?;
    let last = match range.end().checked_add(1) {
        Some(end) => (end & !(page - 1)).checked_sub(1)?,
        None => u64::MAX,
    };
    (start < last).then_some(start..=last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn zero_and_the_interrupt_window_are_never_handed_out() {
        let space = IovaSpace::new(&[0..=(1 << 39) - 1], PAGE);
        assert_eq!(space.usable(), [0x1000..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1]);
    }

    #[test]
    fn the_whole_address_space_is_an_aperture_too() {
        let mut space = IovaSpace::new(&[0..=u64::MAX], PAGE);
        assert_eq!(space.usable().last(), Some(&(0xfef0_0000..=u64::MAX)));
        let all = u64::MAX - 0xfef0_0000 - (PAGE - 1);
        let start = space.allocate(all, 0).unwrap();
        assert_eq!(start % LARGE_PAGE, 0x10_0000, "only one place was long enough");
        space.free(start, all);
        assert_eq!(space, IovaSpace::new(&[0..=u64::MAX], PAGE));
    }

    #[test]
    fn odd_apertures_shrink_to_whole_pages() {
        assert_eq!(IovaSpace::new(&[0x10_0001..=0x10_2ffe], PAGE).usable(), [0x10_1000..=0x10_1fff]);
        assert!(IovaSpace::new(&[0x10_0001..=0x10_1ffe], PAGE).usable().is_empty());
        // As kernels list them: split at the window; touching and overlapping ones are one.
        let listed = [0xfef0_0000..=0xffff_ffff, 0..=0xfedf_ffff, 0x10_0000..=0x20_0000];
        assert_eq!(IovaSpace::new(&listed, PAGE).usable(), [0x1000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff]);
    }

    #[test]
    fn large_ranges_keep_their_offset_within_a_large_page() {
        let mut space = IovaSpace::new(&[0..=(1 << 39) - 1], PAGE);
        let iova = space.allocate(4 << 20, 0x7f00_0030_5000).unwrap();
        assert_eq!(iova % LARGE_PAGE, 0x10_5000);
        assert_eq!(space.allocate(PAGE, 0x7f00_0030_5000), Some(PAGE));
    }

    #[test]
    fn without_room_for_large_alignment_small_alignment_will_do() {
        let mut space = IovaSpace::new(&[0x20_1000..=0x40_1fff], PAGE);
        assert_eq!(space.allocate(2 << 20, 0), Some(0x20_1000), "an aligned start would leave one page only");
    }

    #[test]
    fn reserving_takes_only_what_is_free() {
        let mut space = IovaSpace::new(&[0x10_0000..=0x10_3fff], PAGE);
        assert!(space.reserve(0x10_1000, PAGE));
        assert!(!space.reserve(0x10_0000, 2 * PAGE));
        assert!(!space.reserve(0x10_3000, 2 * PAGE));
        assert!(!space.reserve(u64::MAX, 2));
        assert_eq!(space.allocate(2 * PAGE, 0), Some(0x10_2000));
    }

    /// The same by a flag a page.
    struct Naive {
        first: u64,
        free: Vec<bool>,
    }

    impl Naive {
        fn new(range: &RangeInclusive<u64>) -> Self {
            let pages = (range.end() - range.start() + 1) / PAGE;
            Self { first: *range.start(), free: vec![true; pages as usize] }
        }

        fn fits(&self, pages: usize) -> bool {
            self.free.windows(pages).any(|run| run.iter().all(|free| *free))
        }

        fn set(&mut self, iova: u64, pages: usize, free: bool) {
            let from = ((iova - self.first) / PAGE) as usize;
            for page in &mut self.free[from..from + pages] {
                assert_ne!(*page, free, "page at {iova:#x} handed out or given back twice");
                *page = free;
            }
        }
    }

    proptest! {
        #[test]
        fn as_a_flag_a_page_would(
            first_page in 1u64..2000,
            page_count in 1u64..1600,
            steps in prop::collection::vec((any::<bool>(), 1usize..700, any::<u32>()), 1..120),
        ) {
            let aperture = first_page * PAGE..=(first_page + page_count) * PAGE - 1;
            let fresh = IovaSpace::new(std::slice::from_ref(&aperture), PAGE);
            let mut space = fresh.clone();
            let mut naive = Naive::new(&aperture);
            let mut held: Vec<(u64, usize)> = Vec::new();
            for (give_back, pages, seed) in steps {
                if give_back && !held.is_empty() {
                    let (iova, pages) = held.swap_remove(seed as usize % held.len());
                    space.free(iova, pages as u64 * PAGE);
                    naive.set(iova, pages, true);
                    continue;
                }
                match space.allocate(pages as u64 * PAGE, u64::from(seed)) {
                    Some(iova) => {
                        prop_assert!(aperture.contains(&iova) && iova % PAGE == 0);
                        prop_assert!(aperture.contains(&(iova + pages as u64 * PAGE - 1)));
                        naive.set(iova, pages, false);
                        held.push((iova, pages));
                    }
                    None => prop_assert!(!naive.fits(pages), "{pages} pages would have fitted"),
                }
            }
            // Exhausted exactly: page by page until the last, and not one more.
            let left = naive.free.iter().filter(|free| **free).count();
            for _ in 0..left {
                let iova = space.allocate(PAGE, 0).unwrap();
                naive.set(iova, 1, false);
                held.push((iova, 1));
            }
            prop_assert_eq!(space.allocate(PAGE, 0), None);
            for (iova, pages) in held {
                space.free(iova, pages as u64 * PAGE);
            }
            prop_assert_eq!(space, fresh);
        }
    }
}
