//! Every state that a protocol can get into, the nearest ones first, until one breaks a promise.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::hash::Hash;
use std::hash::Hasher;

/// Something that can happen, for people to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Who does it: a client, or `SERVER`, or `NOBODY`.
    pub who: u8,
    /// What happens.
    pub what: &'static str,
    /// The hold or number that it is about; 0 is not shown.
    pub about: u8,
}

/// The server as the one who does something.
pub const SERVER: u8 = u8::MAX;
/// Time, or the network.
pub const NOBODY: u8 = u8::MAX - 1;

impl Step {
    /// A step of `who`, about nothing in particular.
    #[must_use]
    pub fn new(who: u8, what: &'static str) -> Self {
        Self { who, what, about: 0 }
    }

    /// A step that is about one hold.
    #[must_use]
    pub fn about(who: u8, what: &'static str, about: u8) -> Self {
        Self { who, what, about }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            SERVER => write!(f, "server: {}", self.what)?,
            NOBODY => write!(f, "{}", self.what)?,
            client => write!(f, "client {client}: {}", self.what)?,
        }
        match self.about {
            0 => Ok(()),
            about => write!(f, " {about}"),
        }
    }
}

/// A protocol: its states, what can happen in each, and what must be true in all.
pub trait Protocol {
    /// A state. Two that are equal have the same future.
    type State: Clone + Hash;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// Everything that can happen next.
    fn steps(&self, state: &Self::State, next: &mut Vec<(Step, Self::State)>);

    /// The promise that this state breaks.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// What an exploration found.
#[derive(Debug)]
pub struct Outcome {
    /// How many different states were looked at.
    pub states: usize,
    /// Steps from the start to the farthest of them.
    pub depth: usize,
    /// A shortest way to a state that breaks a promise.
    pub counterexample: Option<Counterexample>,
    /// False: the limit was reached before the end.
    pub complete: bool,
}

/// A broken promise, and a shortest way to it.
#[derive(Debug)]
pub struct Counterexample {
    /// The promise.
    pub broken: &'static str,
    /// The way.
    pub steps: Vec<Step>,
}

/// Fingerprints are hashes already.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// How a state was reached.
struct Reached {
    from: u32,
    by: Step,
}

/// Looks at every state, at most `limit` of them; stops at the first that breaks a promise.
pub fn explore<P: Protocol>(protocol: &P, limit: usize) -> Outcome {
    let start = protocol.start();
    let mut known: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    known.insert(fingerprint(&start));
    let mut reached = vec![Reached { from: 0, by: Step::new(NOBODY, "start") }];
    let mut open = VecDeque::from([(0_u32, 0_usize, start)]);
    let mut next = Vec::new();
    let mut depth = 0;
    while let Some((number, distance, state)) = open.pop_front() {
        depth = distance;
        if let Some(broken) = protocol.broken(&state) {
            let counterexample = Some(Counterexample { broken, steps: way(&reached, number) });
            return Outcome { states: reached.len(), depth, counterexample, complete: false };
        }
        protocol.steps(&state, &mut next);
        for (by, state) in next.drain(..) {
            if !known.insert(fingerprint(&state)) {
                continue;
            }
            let Ok(index) = u32::try_from(reached.len()) else { continue };
            if reached.len() >= limit {
                return Outcome {
                    states: reached.len(),
                    depth,
                    counterexample: None,
                    complete: false,
                };
            }
            reached.push(Reached { from: number, by });
            open.push_back((index, distance + 1, state));
        }
    }
    Outcome { states: reached.len(), depth, counterexample: None, complete: true }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn way(reached: &[Reached], to: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = to;
    while at != 0 {
        let Reached { from, by } = &reached[at as usize];
        steps.push(*by);
        at = *from;
    }
    steps.reverse();
    steps
}
