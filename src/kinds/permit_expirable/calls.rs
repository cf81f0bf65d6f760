//! The commands of a semaphore of the profile `Redisson` as calls of its scripts.

use crate::backend::Call;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::calls::call;
use crate::kinds::calls::with_renewals;
use crate::kinds::calls::words;
use crate::kinds::command::Command;
use crate::kinds::permit_expirable::ACQUIRE;
use crate::kinds::permit_expirable::FORCE_RELEASE;
use crate::kinds::permit_expirable::INSPECT;
use crate::kinds::permit_expirable::RELEASE;
use crate::kinds::permit_expirable::RELEASE_AT;
use crate::kinds::permit_expirable::RENEW;
use crate::kinds::permit_expirable::SET_PERMITS;
use crate::kinds::semaphore::calls::change_of_number;

/// `None`: the command is not about a semaphore.
pub(crate) fn of(command: &Command) -> Option<Call> {
    Some(match command {
        Command::Acquire { name, field, lease, not_after, announce, .. } => {
            let keys = words(name.as_str()).with(&name.fence_key()).with(&name.permits_key());
            let args = words(field).with_number(lease.millis()).with_number(not_after.0);
            call(&ACQUIRE, keys, announce.as_ref()?.add_to(args))
        }
        Command::Release { name, field, announce, .. } => {
            call(&RELEASE, lock_and_permits(name), announce.add_to(words(field)))
        }
        Command::ReleaseAt { name, field, free_at, most, announce } => {
            let args = words(field).with_number(free_at.0).with_number(most.millis());
            call(&RELEASE_AT, lock_and_permits(name), announce.add_to(args))
        }
        Command::Renew { holds, not_after } => {
            let keys = holds.iter().map(|hold| hold.name.permits_key());
            let keys = keys.fold(Words::default(), |keys, key| keys.with(&key));
            call(&RENEW, keys, with_renewals(Words::default(), holds, *not_after))
        }
        Command::ForceRelease { name, expected, not_after, announce, client_channel } => {
            let args = announce.add_to(words(expected).with_number(not_after.0));
            call(&FORCE_RELEASE, lock_and_permits(name), args.with(client_channel))
        }
        Command::Inspect { name } => call(&INSPECT, lock_and_permits(name), Words::default()),
        Command::Operate(operation) => {
            let (keys, args) = change_of_number(operation)?;
            call(&SET_PERMITS, keys.with(&operation.name.permits_key()), args)
        }
        _ => return None,
    })
}

fn lock_and_permits(name: &LockName) -> Words {
    words(name.as_str()).with(&name.permits_key())
}
