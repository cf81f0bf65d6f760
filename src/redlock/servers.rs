//! The servers of a Redlock, and which of them count.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::majority::majority_of;
use crate::base::stats::ServerProcess;
use crate::client::LockClient;

/// The shortest default limit of an attempt.
const LEAST_LIMIT: Duration = Duration::from_millis(10);

/// The servers in the order in which all clients take them.
pub(super) struct RedlockServers {
    pub(super) all: Vec<Voter>,
    /// No lease of any client is longer.
    pub(super) longest: LeaseMs,
    /// The limit of one attempt, if the user has set one.
    pub(super) attempt_limit: Option<Duration>,
}

pub(super) struct Voter {
    pub(super) client: LockClient,
    /// The start of its process for which the user has said that nothing can be held.
    fresh: Mutex<Option<String>>,
}

/// Whether a server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vote {
    Counts,
    /// It was started so short a time ago that it may have forgotten holds; for how long still.
    Quarantine(Duration),
    /// There was no connection yet.
    Unknown,
}

impl Voter {
    pub(super) fn new(client: LockClient) -> Self {
        Self { client, fresh: Mutex::new(None) }
    }

    /// Whether the process that the last connection led to counts.
    pub(super) fn standing(&self, longest: LeaseMs) -> Vote {
        let shared = self.client.shared();
        let Some((process, _)) = shared.counters().process() else { return Vote::Unknown };
        if self.is_fresh(&process) || seeded!(StartedServerWaits) {
            return Vote::Counts;
        }
        let left = longest.longest().saturating_sub(process.age(shared.now()));
        if left.is_zero() { Vote::Counts } else { Vote::Quarantine(left) }
    }

    fn is_fresh(&self, process: &ServerProcess) -> bool {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        !process.run_id.is_empty() && fresh.as_ref() == Some(&process.run_id)
    }

    /// Counts at once, until its next start. Returns false if it is not known.
    pub(super) fn assume_fresh(&self) -> bool {
        let Some((process, true)) = self.client.shared().counters().process() else { return false };
        let is_known = !process.run_id.is_empty();
        *self.fresh.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.run_id);
        is_known
    }

    pub(super) fn label(&self) -> &str {
        &self.client.shared().config().deployment
    }

    pub(super) fn address(&self) -> &str {
        &self.client.shared().config().address
    }

    /// Which process it is, if there is a connection.
    fn run_id(&self) -> Option<String> {
        let (process, is_connected) = self.client.shared().counters().process()?;
        Some(process.run_id).filter(|run_id| is_connected && !run_id.is_empty())
    }
}

impl RedlockServers {
    pub(super) fn needed(&self) -> usize {
        majority_of(self.all.len())
    }

    /// How long one attempt at one server may take.
    pub(super) fn limit_of(&self, server: &Voter, lease: LeaseMs) -> Duration {
        let most = server.client.shared().config().command_timeout;
        let usual = (lease.duration() / 50).max(LEAST_LIMIT);
        self.attempt_limit.unwrap_or(usual).min(most)
    }

    /// How many have a connection.
    pub(super) fn connected(&self) -> usize {
        (0..self.all.len()).filter(|place| self.is_connected(*place)).count()
    }

    pub(super) fn is_connected(&self, place: usize) -> bool {
        let process = self.all[place].client.shared().counters().process();
        process.is_some_and(|(_, is_connected)| is_connected)
    }

    /// Whether a majority has a connection.
    pub(super) fn has_connections(&self) -> bool {
        self.connected() >= self.needed()
    }

    pub(super) fn standing(&self, place: usize) -> Vote {
        self.all[place].standing(self.longest)
    }

    /// An error if two of the addresses lead to the same server.
    pub(super) fn check_different(&self) -> Result<()> {
        let mut known: Vec<(String, &Voter)> = Vec::with_capacity(self.all.len());
        for server in &self.all {
            let Some(run_id) = server.run_id() else { continue };
            if let Some((_, other)) = known.iter().find(|(known, _)| *known == run_id) {
                return Err(Error::InvalidOption {
                    option: "servers of a Redlock",
                    given: format!(
                        "{} and {}, which are the same server",
                        other.address(),
                        server.address()
                    ),
                    allowed: "different servers".to_owned(),
                });
            }
            known.push((run_id, server));
        }
        Ok(())
    }
}
