//! The correct protocol keeps its promises in every state; each broken rule breaks one of them.

use proof_model::switch::Switch;
use proof_model::table::SCOPES;
use proof_model::table::scope_of;

#[test]
fn the_protocol_keeps_every_promise() {
    for scope in SCOPES {
        let outcome = scope.explore(None);
        println!("{}: {} states, {} steps deep", scope.name(), outcome.states, outcome.depth);
        assert!(outcome.counterexample.is_none(), "{}: {:#?}", scope.name(), outcome.counterexample);
        assert!(outcome.complete, "{} has more states than the limit", scope.name());
    }
}

#[test]
fn every_rule_broken_alone_breaks_a_promise() {
    let missed: Vec<&str> = Switch::ALL
        .iter()
        .filter(|switch| scope_of(**switch).explore(Some(**switch)).counterexample.is_none())
        .map(|switch| switch.words())
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
