//! A stack that need not grow: every message takes from one and puts back.

/// With room for so many as it was made for.
pub(super) struct Stack<T> {
    items: Vec<T>,
}

impl<T> Stack<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { items: Vec::with_capacity(most) }
    }

    /// Puts one on top.
    #[inline(always)]
    pub(super) fn push(&mut self, one: T) {
        let [place, ..] = self.items.spare_capacity_mut() else { return self.grow(one) };
        place.write(one);
        // SAFETY: there was room for one more, which has just been written.
        unsafe { self.items.set_len(self.items.len() + 1) };
    }

    /// Its room was taken away by who emptied it ([`Stack::as_vec`]).
    #[cold]
    #[inline(never)]
    fn grow(&mut self, one: T) {
        self.items.push(one);
    }

    /// Takes the one on top.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    /// All of them, to be taken from.
    pub(super) fn as_vec(&mut self) -> &mut Vec<T> {
        &mut self.items
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
        assert_eq!(stack.count(), 2);
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(2), Some(1), None));
        stack.push(3);
        assert_eq!(std::mem::take(stack.as_vec()), [3]);
        stack.push(4);
        assert_eq!((stack.pop(), stack.pop()), (Some(4), None));
    }
}
