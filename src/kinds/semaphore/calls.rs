//! The commands of a semaphore as calls of its scripts: the permits have a key of their own, and a
//! field says how many its hold wants.

use crate::backend::Call;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::operation::KEPT;
use crate::kinds::operation::Operation;
use crate::kinds::semaphore::ACQUIRE;
use crate::kinds::semaphore::FORCE_RELEASE;
use crate::kinds::semaphore::INSPECT;
use crate::kinds::semaphore::RELEASE;
use crate::kinds::semaphore::RELEASE_AT;
use crate::kinds::semaphore::RENEW;
use crate::kinds::semaphore::SET_PERMITS;

/// `None`: the command is not about a semaphore.
pub(crate) fn of(command: &Command) -> Option<Call> {
    Some(match command {
        Command::Acquire { name, field, lease, not_after, line, wait, announce, .. } => {
            let keys = words(name.as_str()).with(&name.fence_key()).with(&name.permits_key());
            let keys = with_line(keys.with(&name.heard_key()), name, *line);
            let args = words(field).with_number(lease.millis()).with_number(not_after.0);
            call(&ACQUIRE, keys, announce.as_ref()?.add_to(wait.add_to(args)))
        }
        Command::Release { name, field, announce, .. } => {
            let keys = words(name.as_str()).with(&name.permits_key()).with(&name.heard_key());
            let keys = with_line(keys, name, announce.line);
            call(&RELEASE, keys, announce.add_to(words(field)))
        }
        Command::ReleaseAt { name, field, free_at, most, announce } => {
            let args = words(field).with_number(free_at.0).with_number(most.millis());
            call(&RELEASE_AT, words(&name.permits_key()), announce.add_to(args))
        }
        Command::Renew { holds, not_after } => {
            let keys = holds.iter().fold(Words::default(), |keys, hold| {
                keys.with(hold.name.as_str()).with(&hold.name.permits_key())
            });
            let args =
                holds.iter().fold(Words::default().with_number(not_after.0), |args, hold| {
                    args.with(&hold.field).with_number(hold.lease.millis())
                });
            call(&RENEW, keys, args)
        }
        Command::ForceRelease { name, expected, not_after, announce, client_channel } => {
            let keys = words(name.as_str()).with(&name.permits_key());
            let args = announce.add_to(words(expected).with_number(not_after.0));
            call(&FORCE_RELEASE, keys, args.with(client_channel))
        }
        Command::Inspect { name } => {
            let keys = words(name.as_str()).with(&name.permits_key());
            call(&INSPECT, keys, Words::default())
        }
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
    Some(call(&SET_PERMITS, keys, operation.announce.add_to(args.with_number(kept))))
}

fn call(script: &'static Script, keys: Words, args: Words) -> Call {
    Call::Script(Box::new(ScriptCall::new(script, keys, args)))
}

fn words(first: &str) -> Words {
    [first].into()
}

fn with_line(keys: Words, name: &LockName, line: bool) -> Words {
    if line { keys.with_written(|text| name.add_line_key(text)) } else { keys }
}
