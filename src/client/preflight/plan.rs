//! What a preflight does for each kind of lock.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::name::client_channel;
use crate::client::preflight::latch;
use crate::client::preflight::random;
use crate::client::preflight::read_write;
use crate::client::preflight::reentrant;
use crate::client::preflight::semaphore;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;

/// What a preflight has to know about a kind.
pub(super) struct Plan {
    /// What the report calls it.
    pub(super) what: &'static str,
    /// How a user gets the permissions for it.
    pub(super) allow: &'static str,
    /// The keys and channels of a name.
    pub(super) needs: fn(&Setting, &LockName) -> Vec<Need>,
    /// For a name that nobody uses. Its commands do nothing after this time.
    pub(super) rehearsal: fn(&Setting, &LockName, ServerTime) -> Result<Rehearsal>,
    /// The command that reads the key and changes nothing.
    pub(super) look: fn(&Setting, &LockName) -> Command,
    /// What that found: how the name is used at present, or what its key is instead.
    pub(super) seen: fn(&Body) -> Option<Result<&'static str, &'static str>>,
}

impl Plan {
    pub(super) fn of(kind: Kind) -> &'static Self {
        match kind {
            Kind::Reentrant => &reentrant::PLAN,
            Kind::Fair => &reentrant::FAIR,
            Kind::FairQueue => &reentrant::FAIR_QUEUE,
            Kind::CountDownLatch => &latch::PLAN,
            Kind::ReadWrite => &read_write::PLAN,
            Kind::Semaphore | Kind::PermitExpirable => &semaphore::PLAN,
            #[cfg(all(test, repository))]
            Kind::Pair => &reentrant::PLAN,
        }
    }
}

/// A key or a channel, and the commands that are used on it.
pub(super) struct Need {
    /// `key` or `channel`.
    pub(super) what: &'static str,
    pub(super) target: String,
    pub(super) commands: &'static [&'static str],
}

impl Need {
    pub(super) fn key(target: impl Into<String>, commands: &'static [&'static str]) -> Self {
        Self { what: "key", target: target.into(), commands }
    }

    pub(super) fn channel(target: impl Into<String>, commands: &'static [&'static str]) -> Self {
        Self { what: "channel", target: target.into(), commands }
    }
}

/// Every script of a kind, with every branch that needs a permission of its own.
pub(super) struct Rehearsal {
    pub(super) steps: Vec<RehearsalStep>,
    /// What removes whatever the steps have left, wherever they ended.
    pub(super) undo: Vec<Command>,
}

/// One step of the rehearsal: the command, the channel on which a message must arrive, and the
/// right answer.
pub(super) struct RehearsalStep {
    pub(super) command: Command,
    pub(super) hears: Option<Arc<str>>,
    pub(super) is_right: fn(&Body) -> bool,
}

/// What commands depend on beside the name.
pub(super) struct Setting {
    pub(super) profile: WireProfile,
    pub(super) sharded: bool,
    /// The id of the client.
    pub(super) client: String,
}

impl Setting {
    pub(super) fn announce(&self, name: &LockName) -> Announce {
        Announce::of(name, self.profile, self.sharded)
    }

    pub(super) fn client_channel(&self) -> String {
        client_channel(&self.client)
    }

    /// What a client does with the channel of a name.
    pub(super) fn on_channel(&self) -> &'static [&'static str] {
        if self.sharded { &["spublish", "ssubscribe"] } else { &["publish", "subscribe"] }
    }

    /// No hold and no operation has this id, because their ids have no suffix.
    pub(super) fn id(&self, suffix: &str) -> String {
        format!("{}:{}:preflight-{suffix}", self.client, random())
    }
}
