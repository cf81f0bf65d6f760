//! The models that there are. A model is a module of its own, with its scopes and its rules, and a
//! line in [`models`].

use std::fmt;

use crate::explore::Outcome;
use crate::fair;
use crate::flights;
use crate::latches;
use crate::leases;
use crate::line;
use crate::multi;
use crate::numbers;
use crate::permits;
use crate::read_write::holds;
use crate::read_write::order;
use crate::redlock;
use crate::wakeups;

/// More states than any scope has.
pub const LIMIT: usize = 3_000_000;

/// One model, and what is explored of it.
#[derive(Debug)]
pub struct Model {
    /// For people.
    pub name: &'static str,
    /// In each of these the correct protocol is explored to the end.
    pub scopes: Vec<Named>,
    /// Each of these breaks one rule, in a scope in which that shows. Its name says what is done
    /// instead.
    pub rules: Vec<Named>,
}

/// An exploration.
pub struct Named {
    /// For people.
    pub name: &'static str,
    explore: Box<dyn Fn() -> Outcome>,
}

impl Named {
    /// An exploration with this name.
    pub fn new(name: &'static str, explore: impl Fn() -> Outcome + 'static) -> Self {
        Self { name, explore: Box::new(explore) }
    }

    /// Explores.
    #[must_use]
    pub fn explore(&self) -> Outcome {
        (self.explore)()
    }
}

impl Model {
    /// The explorations of a model: each scope with all rules kept, then each rule broken in its
    /// scope.
    pub(crate) fn of<Scope: Copy + 'static, Switch: Copy + 'static>(
        name: &'static str,
        scopes: &[Scope],
        rules: &[(Switch, &'static str, Scope)],
        name_of: fn(&Scope) -> &'static str,
        explore: fn(Scope, Option<Switch>) -> Outcome,
    ) -> Self {
        let named = |name, scope, switch| Named::new(name, move || explore(scope, switch));
        Self {
            name,
            scopes: scopes.iter().map(|scope| named(name_of(scope), *scope, None)).collect(),
            rules: rules
                .iter()
                .map(|(switch, words, scope)| named(words, *scope, Some(*switch)))
                .collect(),
        }
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them.
#[must_use]
pub fn models() -> Vec<Model> {
    vec![
        leases::model(),
        wakeups::model(),
        line::model(),
        fair::model(),
        flights::model(),
        latches::model(),
        holds::model(),
        order::model(),
        permits::model(),
        numbers::model(),
        multi::model(),
        redlock::model(),
    ]
}

/// Scopes that take too long for continuous integration.
#[must_use]
pub fn large() -> Vec<Model> {
    vec![line::large()]
}
