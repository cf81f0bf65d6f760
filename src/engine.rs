//! All lock logic, without I/O, clock or randomness of its own.

pub(crate) mod event;

use std::sync::Arc;

use crate::cell::Directory;
use crate::clock::Moment;
use crate::config::Config;
use crate::stats::Counters;

use event::Effect;
use event::Event;

/// The state machine of one client.
#[derive(Debug)]
pub(crate) struct Engine {
    #[expect(dead_code, reason = "written next")]
    config: Config,
}

impl Engine {
    pub(crate) fn new(config: Config, directory: Arc<Directory>, counters: Arc<Counters>) -> Self {
        let _ = (directory, counters);
        Self { config }
    }

    /// Takes in what happened and says what is to be done.
    pub(crate) fn handle(&mut self, now: Moment, event: Event, effects: &mut Vec<Effect>) {
        let _ = (now, event, effects);
    }

    /// When `Event::Tick` is due next.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        None
    }
}
