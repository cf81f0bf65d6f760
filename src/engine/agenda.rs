//! What is due when: made for moments that come, nearly all, one after the other.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use crate::base::clock::Moment;

/// With fewer gone ones than this nothing is gained by closing ranks.
const FEW: usize = 32;
/// Of an entry whose hold has left; ids are numbers that count up, and do not come that far.
const GONE: u64 = 1 << 63;

/// In order of moment and id. Holds have the same lease, as a rule, so that whoever comes last is
/// due last: a line takes 16 bytes for each and is searched quickly, where a tree takes 40.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// In order. Neither the first nor the last is gone.
    line: VecDeque<(Moment, u64)>,
    gone: usize,
    /// Those that came too late for the end of the line.
    others: BTreeSet<(Moment, u64)>,
}

impl Agenda {
    pub(crate) fn insert(&mut self, at: Moment, id: u64) {
        if self.line.back().is_none_or(|last| *last < (at, id)) {
            self.line.push_back((at, id));
        } else {
            self.others.insert((at, id));
        }
    }

    pub(crate) fn remove(&mut self, at: Moment, id: u64) {
        if self.others.remove(&(at, id)) {
            return;
        }
        let Ok(place) = self.line.binary_search_by_key(&(at, id), |(at, id)| (*at, id & !GONE))
        else {
            return;
        };
        if let Some((_, id)) = self.line.get_mut(place) {
            self.gone += usize::from(*id & GONE == 0);
            *id |= GONE;
        }
        self.close_ranks();
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.first().map(|(at, _)| at)
    }

    /// Takes the first that is due by then.
    pub(crate) fn pop(&mut self, until: Moment) -> Option<u64> {
        let (at, id) = self.first().filter(|(at, _)| *at <= until)?;
        self.remove(at, id);
        Some(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len() - self.gone + self.others.len()
    }

    fn first(&self) -> Option<(Moment, u64)> {
        [self.line.front(), self.others.first()].into_iter().flatten().min().copied()
    }

    fn close_ranks(&mut self) {
        let is_gone = |entry: Option<&(Moment, u64)>| entry.is_some_and(|(_, id)| id & GONE != 0);
        while is_gone(self.line.front()) {
            self.line.pop_front();
            self.gone -= 1;
        }
        while is_gone(self.line.back()) {
            self.line.pop_back();
            self.gone -= 1;
        }
        if self.gone > FEW.max(self.line.len() / 2) {
            self.line.retain(|(_, id)| id & GONE == 0);
            self.gone = 0;
        }
        if self.line.len() < self.line.capacity() / 8 {
            self.line.shrink_to(FEW.max(self.line.capacity() / 2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers that are always the same.
    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        }
    }

    #[test]
    fn it_does_what_a_sorted_set_does() {
        for seed in 0..200 {
            let mut number = numbers(seed);
            let (mut agenda, mut known) = (Agenda::default(), BTreeSet::new());
            for step in 0..2_000 {
                // Mostly the end of the line, some earlier, some again what is there or was.
                let early = if number(8) == 0 { number(40) } else { 0 };
                let entry = (Moment(1_000 + step / 4 - early), number(1 + seed % 50));
                match number(4) {
                    0 | 1 => {
                        if known.insert(entry) {
                            agenda.insert(entry.0, entry.1);
                        }
                    }
                    2 => {
                        let some =
                            known.iter().nth(number(1 + known.len() as u64) as usize).copied();
                        let (at, id) = some.unwrap_or(entry);
                        known.remove(&(at, id));
                        agenda.remove(at, id);
                    }
                    _ => {
                        let until = Moment(1_000 + step / 4 - number(60));
                        let due = known.first().copied().filter(|(at, _)| *at <= until);
                        due.inspect(|due| assert!(known.remove(due)));
                        assert_eq!(
                            agenda.pop(until),
                            due.map(|(_, id)| id),
                            "seed {seed} step {step}"
                        );
                    }
                }
                assert_eq!(
                    (agenda.len(), agenda.next()),
                    (known.len(), known.first().map(|(at, _)| *at))
                );
            }
            assert!(agenda.line.len() <= 2 * known.len() + 2 * FEW, "those who are gone leave it");
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut agenda = Agenda::default();
        (0..10_000).for_each(|id| agenda.insert(Moment(id), id));
        assert!(agenda.others.is_empty());
        let large = agenda.line.capacity();
        (0..9_900).for_each(|id| agenda.remove(Moment(id * 7 % 9_900), id * 7 % 9_900));
        assert!(agenda.line.capacity() <= large / 8, "{}", agenda.line.capacity());
        assert_eq!((agenda.len(), agenda.next()), (100, Some(Moment(9_900))));
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing() {
        for stays in [0, 1] {
            let mut agenda = Agenda::default();
            (0..=stays).for_each(|id| agenda.insert(Moment(id), id));
            for id in stays + 1..100_000 {
                agenda.insert(Moment(id), id);
                agenda.remove(Moment(id - 1), id - 1);
            }
            assert_eq!(agenda.len() as u64, 1 + stays);
            assert!(agenda.line.capacity() <= 4 * FEW, "{}", agenda.line.capacity());
        }
    }
}
