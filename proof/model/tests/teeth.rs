//! The correct protocol keeps its promises in every state; each broken rule breaks one of them.

use proof_model::table::models;

#[test]
fn the_protocol_keeps_every_promise() {
    for model in models() {
        assert!(!model.scopes.is_empty(), "{} has no scopes", model.name);
        for scope in model.scopes {
            let outcome = scope.explore();
            println!("{}: {} states, {} steps deep", scope.name, outcome.states, outcome.depth);
            assert!(
                outcome.counterexample.is_none(),
                "{}: {:#?}",
                scope.name,
                outcome.counterexample
            );
            assert!(outcome.complete, "{} has more states than the limit", scope.name);
        }
    }
}

#[test]
fn every_rule_broken_alone_breaks_a_promise() {
    let rules: Vec<_> = models().into_iter().flat_map(|model| model.rules).collect();
    assert!(rules.len() >= 30, "{} rules", rules.len());
    let missed = rules.iter().filter(|rule| rule.explore().counterexample.is_none());
    let missed: Vec<&str> = missed.map(|rule| rule.name).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
