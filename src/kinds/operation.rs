//! Operations: each is done once, however often its command arrives.

use std::time::Duration;

use crate::backend::Call;
use crate::backend::words::Words;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::kinds::calls::call;
use crate::kinds::command::Announce;
use crate::kinds::command::ServerTime;
use crate::kinds::latch;

/// How long the server keeps the outcome of an operation after its `not_after`.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// The most permits that a semaphore has.
pub(crate) const MOST_PERMITS: u64 = 1_000_000;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    CountDown,
    /// Unless there is a count.
    SetCount {
        count: u32,
        /// In ms; 0: it stays.
        life: u64,
    },
    Delete,
    /// How many permits there are for everybody; `own`: for this client, as long as nobody has set
    /// the number.
    SetPermits {
        permits: u32,
        own: u32,
    },
    AddPermits {
        permits: u32,
        own: u32,
    },
}

impl Change {
    /// For logs and errors.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::CountDown => "count_down",
            Self::SetCount { .. } => "try_set_count",
            Self::Delete => "delete",
            Self::SetPermits { .. } => "set_permits",
            Self::AddPermits { .. } => "add_permits",
        }
    }

    /// The error if there would be too many permits, of which there are so many.
    pub(crate) fn too_many(self, permits: u64) -> Error {
        let given = match self {
            Self::SetPermits { permits, .. } | Self::AddPermits { permits, .. } => permits,
            _ => 0,
        };
        let left = MOST_PERMITS.saturating_sub(permits);
        let allowed = format!("at most {left}, because there are {permits}");
        Error::InvalidOption { option: "permits", given: given.to_string(), allowed }
    }
}

/// The command of an operation. All its copies are equal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operation {
    pub(crate) name: LockName,
    pub(crate) change: Change,
    /// Unique among all operations of all clients.
    pub(crate) id: String,
    pub(crate) not_after: ServerTime,
    pub(crate) announce: Announce,
    pub(crate) profile: WireProfile,
}

impl Operation {
    /// `None`: it is not about a latch.
    pub(super) fn to_call(&self) -> Option<Call> {
        let keys: Words = [self.name.as_str(), &self.name.operation_key(&self.id)].into();
        let args = Words::with_capacity(128)
            .with_number(self.not_after.0)
            .with_number(u32::try_from(KEPT.as_millis()).unwrap_or(u32::MAX))
            .with(latch::format(self.profile));
        let args = self.announce.add_to(args);
        let args = match self.change {
            Change::SetCount { count, life } => args.with_number(count).with_number(life),
            _ => args,
        };
        let script = latch::script_of(self.change)?;
        Some(call(script, keys, args))
    }
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operated {
    /// Done, with the number that it left.
    Done(u64),
    /// There was nothing to be done.
    Nothing,
    /// There would be too many permits. There are so many.
    TooMany {
        permits: u64,
    },
    /// Too late, and nothing is known of an earlier copy.
    Late,
    Conflict(&'static str),
}
