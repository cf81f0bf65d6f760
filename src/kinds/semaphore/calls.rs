//! The commands of a semaphore as calls of its scripts: the permits have a key of their own, and a
//! field says how many its hold wants.

use crate::backend::Call;
use crate::backend::words::Words;
use crate::kinds::calls::call;
use crate::kinds::calls::with_line;
use crate::kinds::calls::with_renewals;
use crate::kinds::calls::words;
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
            call(&RENEW, keys, with_renewals(Words::default(), holds, *not_after))
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
        Command::Operate(operation) => {
            let (keys, args) = change_of_number(operation)?;
            call(&SET_PERMITS, keys, args)
        }
        _ => return None,
    })
}

/// The first keys and the arguments of a change of the number of permits.
pub(in crate::kinds) fn change_of_number(operation: &Operation) -> Option<(Words, Words)> {
    let (how, number, own) = match operation.change {
        Change::SetPermits { permits, own } => ("set", permits, own),
        Change::AddPermits { permits, own } => ("add", permits, own),
        _ => return None,
    };
    let name = &operation.name;
    let keys = words(name.as_str()).with(&name.operation_key(&operation.id));
    let args = words(how).with_number(number).with_number(own).with_number(operation.not_after.0);
    let kept = u32::try_from(KEPT.as_millis()).unwrap_or(u32::MAX);
    Some((keys, operation.announce.add_to(args.with_number(kept))))
}
