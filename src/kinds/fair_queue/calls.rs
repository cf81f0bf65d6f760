//! The commands of a fair lock of the profile `Redisson` as calls of its scripts.

use crate::backend::Call;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::calls::call;
use crate::kinds::calls::words;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::fair_queue::ACQUIRE;
use crate::kinds::fair_queue::FORCE_RELEASE;
use crate::kinds::fair_queue::RELEASE;
use crate::kinds::fair_queue::RELEASE_AT;
use crate::kinds::fair_queue::UNDO;
use crate::kinds::fair_queue::channel_of_all;
use crate::kinds::fair_queue::place_in;

/// `None`: the command is as that of a reentrant lock.
pub(crate) fn of(command: &Command) -> Option<Call> {
    Some(match command {
        Command::Acquire { name, field, share, lease, not_after, wait, announce, .. } => {
            let announce = announce.as_ref()?;
            let mode = if *wait == WaitMode::Try { "try" } else { "wait" };
            let args = words(field).with_number(share.total()).with_number(lease.millis());
            let args = args.with_number(not_after.0).with(mode);
            // Without a place it takes none, so that any will do.
            let args = args.with(place_in(&announce.channel, name).unwrap_or(field));
            let keys = words(name.as_str()).with(&name.fence_key());
            call(&ACQUIRE, with_queue(keys, name), announced(args, announce, name))
        }
        Command::Release { name, field, share, announce, undo } => {
            let args = words(field).with_number(share.total());
            let args = announced(args, announce, name);
            if !undo {
                return Some(call(&RELEASE, lock_and_queue(name), args));
            }
            let place = place_in(&announce.channel, name).unwrap_or_default();
            call(&UNDO, lock_and_queue(name), args.with(place))
        }
        Command::ReleaseAt { name, field, free_at, most, announce } => {
            let args = words(field).with_number(free_at.0).with_number(most.millis());
            call(&RELEASE_AT, lock_and_queue(name), announced(args, announce, name))
        }
        Command::ForceRelease { name, expected, not_after, announce, client_channel } => {
            let args = announced(words(expected).with_number(not_after.0), announce, name);
            call(&FORCE_RELEASE, lock_and_queue(name), args.with(client_channel))
        }
        _ => return None,
    })
}

fn lock_and_queue(name: &LockName) -> Words {
    with_queue(words(name.as_str()), name)
}

fn with_queue(keys: Words, name: &LockName) -> Words {
    keys.with(&name.queue_key()).with(&name.deadlines_key())
}

/// The channel that all places have in common, whosever the command is.
fn announced(args: Words, announce: &Announce, name: &LockName) -> Words {
    args.with(&channel_of_all(name)).with(announce.verb())
}
