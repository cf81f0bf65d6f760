//! How often the engine allocates. Exact: a change in either direction is looked at.

use super::Hand;
use super::freed;

fn pair(hand: &mut Hand) -> u64 {
    let before = hand.allocations;
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    hand.answer(release);
    hand.allocations - before
}

#[test]
fn an_uncontended_pair_allocates_as_often_as_it_should() {
    let mut hand = Hand::new();
    let counts: Vec<u64> = (0..200).map(|_| pair(&mut hand)).collect();
    // Maps that grow, and their nodes, do so now and then.
    let usual = counts.iter().copied().min();
    assert_eq!(usual, Some(9), "{counts:?}");
}
