//! The commands of a semaphore of the profile `Redisson` as calls of its scripts.

use crate::backend::Call;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::operation::KEPT;
use crate::kinds::operation::Operation;
use crate::kinds::permit_expirable::ACQUIRE;
use crate::kinds::permit_expirable::FORCE_RELEASE;
use crate::kinds::permit_expirable::INSPECT;
use crate::kinds::permit_expirable::RELEASE;
use crate::kinds::permit_expirable::RELEASE_AT;
use crate::kinds::permit_expirable::RENEW;
use crate::kinds::permit_expirable::SET_PERMITS;

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
            let args =
                holds.iter().fold(Words::default().with_number(not_after.0), |args, hold| {
                    args.with(&hold.field).with_number(hold.lease.millis())
                });
            call(&RENEW, keys, args)
        }
        Command::ForceRelease { name, expected, not_after, announce, client_channel } => {
            let args = announce.add_to(words(expected).with_number(not_after.0));
            call(&FORCE_RELEASE, lock_and_permits(name), args.with(client_channel))
        }
        Command::Inspect { name } => call(&INSPECT, lock_and_permits(name), Words::default()),
        Command::Operate(operation) => set_permits(operation)?,
        _ => return None,
    })
}

fn set_permits(operation: &Operation) -> Option<Call> {
    let (how, number, own) = match operation.change {
        Change::SetPermits { permits, own } => ("set", permits, own),
        Change::AddPermits { permits, own } => ("add", permits, own),
        _ => return None,
    };
    let name = &operation.name;
    let keys = words(name.as_str()).with(&name.operation_key(&operation.id));
    let args = words(how).with_number(number).with_number(own).with_number(operation.not_after.0);
    let kept = u32::try_from(KEPT.as_millis()).unwrap_or(u32::MAX);
    let args = operation.announce.add_to(args.with_number(kept));
    Some(call(&SET_PERMITS, keys.with(&name.permits_key()), args))
}

fn call(script: &'static Script, keys: Words, args: Words) -> Call {
    Call::Script(Box::new(ScriptCall::new(script, keys, args)))
}

fn words(first: &str) -> Words {
    [first].into()
}

fn lock_and_permits(name: &LockName) -> Words {
    words(name.as_str()).with(&name.permits_key())
}
