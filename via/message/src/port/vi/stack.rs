//! A stack that never grows: every message takes from one and puts back.

/// Up to so many as it was made for.
pub(super) struct Stack<T> {
    places: Box<[Option<T>]>,
    count: usize,
}

impl<T> Stack<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { places: std::iter::repeat_with(|| None).take(most).collect(), count: 0 }
    }

    /// Puts one on top. Beyond what it was made for it is dropped: there are no more.
    #[inline(always)]
    pub(super) fn push(&mut self, one: T) {
        debug_assert!(self.count < self.places.len());
        if let Some(place) = self.places.get_mut(self.count) {
            // Nothing lies there that would have to be dropped: what was on top was taken out.
            std::mem::forget(place.replace(one));
            self.count += 1;
        }
    }

    /// Takes the one on top.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let top = self.count.wrapping_sub(1);
        let one = self.places.get_mut(top)?.take();
        self.count = top;
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_on_top_is_taken_from_there() {
        let mut stack = Stack::new(2);
        assert_eq!(stack.pop(), None);
        stack.push(1);
        stack.push(2);
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(2), Some(1), None));
    }
}
