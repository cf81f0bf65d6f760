//! The scripts of `lua/fair_queue/`: the fair lock as Redisson's `RedissonFairLock` keeps it. Who
//! waits has a place in a list, and a channel of its own on which it is told that it is next.
//!
//! The key of the lock is that of a reentrant lock, and what the queue does not matter to is done by
//! the scripts of that one.

pub(super) mod calls;

use std::sync::Arc;
use std::sync::LazyLock;

use crate::backend::Script;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::kinds::Scripts;
use crate::kinds::reentrant;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "fair_queue/acquire",
    includes "reentrant/body/look", "fair_queue/body/queue", "reentrant/body/grant"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "fair_queue/release",
    includes "fair_queue/body/queue", "fair_queue/body/tell_first",
        "reentrant/body/given_arguments", "fair_queue/body/give_up", "reentrant/body/give_up",
        "reentrant/body/given_up"
);
pub(crate) static UNDO: LazyLock<Script> = script!(
    "fair_queue/undo",
    includes "fair_queue/body/queue", "fair_queue/body/tell_first",
        "reentrant/body/given_arguments", "fair_queue/body/give_up", "reentrant/body/give_up",
        "reentrant/body/given_up"
);
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "fair_queue/release_at",
    includes "fair_queue/body/queue", "fair_queue/body/tell_first", "fair_queue/body/pass_on",
        "reentrant/body/release_at"
);
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "fair_queue/force_release",
    includes "fair_queue/body/queue", "fair_queue/body/tell_first", "fair_queue/body/pass_on",
        "reentrant/body/force_release"
);

/// Holds are not released together, nor handed over: whose turn it is the queue says.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &UNDO,
    release_many: &reentrant::RELEASE_MANY,
    release_at: &RELEASE_AT,
    renew: &reentrant::RENEW,
    hand_off: &reentrant::HAND_OFF,
    inspect: &reentrant::INSPECT,
    force_release: &FORCE_RELEASE,
});

/// Every script of its own, for tests.
#[cfg(all(test, repository))]
pub(crate) fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 5]> =
        LazyLock::new(|| [&ACQUIRE, &RELEASE, &UNDO, &RELEASE_AT, &FORCE_RELEASE]);
    &*ALL
}

/// The channel behind which, and a colon, each place has one of its own.
fn channel_of_all(name: &LockName) -> Arc<str> {
    name.channel(WireProfile::Redisson)
}

/// The channel of the waiter with this number, which is another for each waiter of a client. Its
/// place is what stands behind [`channel_of_all`] and a colon.
pub(super) fn channel_of_waiter(name: &LockName, client: &str, number: u64) -> Arc<str> {
    let number = itoa::Buffer::new().format(number).to_owned();
    [&*channel_of_all(name), ":", client, ":", &number, ":place"].concat().into()
}

/// The place that the channel of a waiter has in it.
fn place_in<'a>(channel: &'a str, name: &LockName) -> Option<&'a str> {
    channel.strip_prefix(&*channel_of_all(name))?.strip_prefix(':')
}

#[cfg(all(test, repository, feature = "in-memory"))]
mod script_tests;
