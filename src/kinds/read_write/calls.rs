//! The commands of a read-write lock as calls of its scripts: each reader has a key of its own.

use crate::backend::Call;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::calls::call;
use crate::kinds::calls::with_line;
use crate::kinds::calls::with_renewals;
use crate::kinds::calls::words;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::read_write::ACQUIRE;
use crate::kinds::read_write::DOWNGRADE;
use crate::kinds::read_write::FORCE_RELEASE;
use crate::kinds::read_write::INSPECT;
use crate::kinds::read_write::RELEASE;
use crate::kinds::read_write::RELEASE_AT;
use crate::kinds::read_write::RENEW;
use crate::kinds::read_write::UPGRADE;
use crate::kinds::share::Share;

/// `None`: the command is not about a read-write lock.
pub(crate) fn of(command: &Command) -> Option<Call> {
    Some(match command {
        Command::Acquire { name, field, share, lease, not_after, line, wait, announce, told } => {
            let keys = lock_and_reader(name, field).with_written(|text| name.add_fence_key(text));
            let announce = announce.as_ref()?;
            let keys = readers(with_line(keys, name, *line), name, told);
            let args = with_counts(words(field), *share);
            let args = args.with_number(lease.millis()).with_number(not_after.0);
            let args = announce.add_to(wait.add_to(args)).with(&name.in_braces());
            call(&ACQUIRE, keys, with_told(args, told))
        }
        Command::Upgrade { name, from, to, lease, not_after, told } => {
            let keys = lock_and_reader(name, from).with_written(|text| name.add_fence_key(text));
            let args = words(from).with(to).with_number(lease.millis()).with_number(not_after.0);
            call(&UPGRADE, readers(keys, name, told), with_told(args, told))
        }
        Command::Downgrade { name, field, share, lease, announce } => {
            let keys = with_line(lock_and_reader(name, field), name, announce.line);
            let args = words(field).with_number(share.shared).with_number(lease.millis());
            call(&DOWNGRADE, keys, announce.add_to(args).with(&name.in_braces()))
        }
        Command::Release { name, field, share, announce, .. } => {
            let keys = keys_of(name, field, announce);
            let args = announce.add_to(with_counts(words(field), *share));
            call(&RELEASE, keys, args.with(&name.in_braces()))
        }
        Command::ReleaseAt { name, field, free_at, most, announce } => {
            let keys = keys_of(name, field, announce);
            let args = words(field).with_number(free_at.0).with_number(most.millis());
            call(&RELEASE_AT, keys, announce.add_to(args).with(&name.in_braces()))
        }
        Command::Renew { holds, not_after } => {
            let keys = holds.iter().fold(Words::default(), |keys, hold| {
                let lock = hold.name.as_str();
                // The timeout key of a hold that does not read is absent (see `Announce::alone`). The
                // script does not touch it, so the lock stands in its place.
                match hold.share.shared {
                    0 => keys.with(lock).with(lock),
                    _ => keys.with(lock).with(&hold.name.reader_key(&hold.field)),
                }
            });
            call(&RENEW, keys, with_renewals(Words::default(), holds, *not_after))
        }
        Command::ForceRelease { name, expected, not_after, announce, client_channel } => {
            let keys = keys_of(name, expected, announce);
            let args = announce.add_to(words(expected).with_number(not_after.0));
            call(&FORCE_RELEASE, keys, args.with(&name.in_braces()).with(client_channel))
        }
        Command::Inspect { name } => call(&INSPECT, words(name.as_str()), Words::default()),
        _ => return None,
    })
}

fn lock_and_reader(name: &LockName, field: &str) -> Words {
    words(name.as_str()).with(&name.reader_key(field))
}

/// Of a command that gives up something of a hold.
fn keys_of(name: &LockName, field: &str, announce: &Announce) -> Words {
    if announce.alone {
        return words(name.as_str());
    }
    with_line(lock_and_reader(name, field), name, announce.line)
}

/// The keys of readers that may be dead.
fn readers(keys: Words, name: &LockName, told: &[String]) -> Words {
    told.iter().fold(keys, |keys, field| keys.with(&name.reader_key(field)))
}

/// How many readers may be dead, and their fields.
fn with_told(args: Words, told: &[String]) -> Words {
    let count = u32::try_from(told.len()).unwrap_or(u32::MAX);
    told.iter().fold(args.with_number(count), |args, field| args.with(field))
}

fn with_counts(args: Words, share: Share) -> Words {
    args.with_number(share.shared).with_number(share.exclusive)
}
