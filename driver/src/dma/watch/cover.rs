//! Which pages are watched, and by how many.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs of pages, by their first byte: their end, and how many watch them. No two overlap; none is watched by nobody.
#[derive(Debug, Default)]
pub(super) struct Cover(BTreeMap<usize, (usize, u32)>);

impl Cover {
    /// One more watches the range.
    pub(super) fn add(&mut self, start: usize, end: usize) {
        self.split(start);
        self.split(end);
        let mut at = start;
        let mut gaps = Vec::new();
        for (&first, (last, count)) in self.0.range_mut(start..end) {
            if at < first {
                gaps.push(at..first);
            }
            *count += 1;
            at = *last;
        }
        if at < end {
            gaps.push(at..end);
        }
        self.0.extend(gaps.into_iter().map(|gap| (gap.start, (gap.end, 1))));
    }

    /// One less does; answers what nobody watches any more.
    pub(super) fn remove(&mut self, start: usize, end: usize) -> Vec<Range<usize>> {
        self.split(start);
        self.split(end);
        let mut free: Vec<Range<usize>> = Vec::new();
        for (&first, (last, count)) in self.0.range_mut(start..end) {
            *count -= 1;
            if *count == 0 {
                match free.last_mut() {
                    Some(before) if before.end == first => before.end = *last,
                    _ => free.push(first..*last),
                }
            }
        }
        for range in &free {
            let gone: Vec<usize> = self.0.range(range.clone()).map(|(first, _)| *first).collect();
            for first in gone {
                self.0.remove(&first);
            }
        }
        free
    }

    /// Whether any byte of the range is watched.
    pub(super) fn touches(&self, start: usize, end: usize) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, (last, _))| *last > start)
    }

    /// Divides the run that holds this place within.
    fn split(&mut self, at: usize) {
        if let Some((_, (last, count))) = self.0.range_mut(..at).next_back()
            && *last > at
        {
            let rest = (std::mem::replace(last, at), *count);
            self.0.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_counted_page_by_page(ranges in prop::collection::vec((0usize..40, 1usize..12), 1..24)) {
            let mut cover = Cover::default();
            let mut pages = [0u32; 64];
            for (start, len) in &ranges {
                cover.add(*start, start + len);
                pages[*start..start + len].iter_mut().for_each(|count| *count += 1);
            }
            for (start, len) in &ranges {
                let free = cover.remove(*start, start + len);
                pages[*start..start + len].iter_mut().for_each(|count| *count -= 1);
                let is_free = |page: usize| free.iter().any(|range| range.contains(&page));
                for (page, count) in pages.iter().enumerate() {
                    let within = (*start..start + len).contains(&page);
                    prop_assert_eq!(is_free(page), within && *count == 0);
                    prop_assert_eq!(cover.touches(page, page + 1), *count != 0);
                }
            }
            prop_assert!(cover.0.is_empty());
        }
    }
}
