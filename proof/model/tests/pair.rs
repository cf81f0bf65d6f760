//! A model outside this crate's own, as small as one can be: the explorer knows no kind of lock.

use proof_model::explore::Protocol;
use proof_model::explore::Step;
use proof_model::explore::explore;
use proof_model::table::Named;

/// Clients take and give back a lock that so many may hold at once.
struct Pair {
    clients: u8,
    places: u32,
}

impl Protocol for Pair {
    /// A bit for each client that holds.
    type State = u8;

    fn start(&self) -> u8 {
        0
    }

    fn steps(&self, state: &u8, next: &mut Vec<(Step, u8)>) {
        for client in 0..self.clients {
            let bit = 1 << client;
            if state & bit != 0 {
                next.push((Step::new(client, "releases"), state & !bit));
            } else if state.count_ones() < self.places {
                next.push((Step::new(client, "takes a place"), state | bit));
            }
        }
    }

    fn broken(&self, state: &u8) -> Option<&'static str> {
        (state.count_ones() > 2).then_some("no more than two hold it")
    }
}

#[test]
fn every_state_of_another_model_is_seen() {
    let outcome = explore(&Pair { clients: 4, places: 2 }, 100);
    assert!(outcome.complete && outcome.counterexample.is_none(), "{outcome:?}");
    // Nobody, one of four, two of four.
    assert_eq!((outcome.states, outcome.depth), (1 + 4 + 6, 2));
    assert!(!explore(&Pair { clients: 4, places: 2 }, 10).complete);
}

#[test]
fn its_broken_rule_has_a_shortest_counterexample() {
    let rule = Named::new("three places", || explore(&Pair { clients: 4, places: 3 }, 100));
    let counterexample = rule.explore().counterexample.unwrap();
    assert_eq!(counterexample.broken, "no more than two hold it");
    let steps: Vec<String> = counterexample.steps.iter().map(Step::to_string).collect();
    assert_eq!(
        steps,
        ["client 0: takes a place", "client 1: takes a place", "client 2: takes a place"]
    );
}
