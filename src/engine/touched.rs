//! Names to look at before `handle` returns.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Room that is kept when nothing is to be looked at.
const KEPT: usize = 1024;

/// Taken in the order of their keys, each once however often it was touched before. A heap keeps
/// its memory while it is empty, which is after each event.
#[derive(Debug, Default)]
pub(crate) struct Touched(BinaryHeap<Reverse<u64>>);

impl Touched {
    pub(crate) fn insert(&mut self, name_id: u64) {
        if self.0.peek() != Some(&Reverse(name_id)) {
            self.0.push(Reverse(name_id));
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<u64> {
        let Some(first) = self.0.pop() else {
            self.0.shrink_to(KEPT);
            return None;
        };
        while self.0.peek() == Some(&first) {
            self.0.pop();
        }
        Some(first.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_in_order_and_again_when_it_is_touched_again() {
        let mut touched = Touched::default();
        [5, 3, 5, 3, 3, 9, 5].into_iter().for_each(|name_id| touched.insert(name_id));
        assert_eq!((touched.pop_first(), touched.pop_first()), (Some(3), Some(5)));
        touched.insert(5);
        touched.insert(3);
        assert_eq!([(); 4].map(|()| touched.pop_first()), [Some(3), Some(5), Some(9), None]);
    }

    #[test]
    fn many_leave_little_memory() {
        let mut touched = Touched::default();
        (0..100_000).for_each(|name_id| touched.insert(name_id));
        while touched.pop_first().is_some() {}
        assert!(touched.0.capacity() <= 2 * KEPT, "{}", touched.0.capacity());
    }
}
