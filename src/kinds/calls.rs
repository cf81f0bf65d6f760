//! What the calls of several kinds have in common.

use crate::backend::Call;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::words::Words;
use crate::base::name::LockName;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;

pub(super) fn call(script: &'static Script, keys: Words, args: Words) -> Call {
    Call::Script(Box::new(ScriptCall::new(script, keys, args)))
}

/// Keys or arguments that begin with this one.
pub(super) fn words(first: &str) -> Words {
    [first].into()
}

/// The key of the line behind these, if the call names it, and then that of the marks, if there are
/// any.
pub(super) fn with_line(keys: Words, name: &LockName, line: bool) -> Words {
    if !line {
        return keys;
    }
    let keys = keys.with_written(|text| name.add_line_key(text));
    if name.kind().has_marks() { keys.with_written(|text| name.add_marks_key(text)) } else { keys }
}

/// The arguments of a renewal.
pub(super) fn with_renewals(args: Words, holds: &[RenewItem], not_after: ServerTime) -> Words {
    holds.iter().fold(args.with_number(not_after.0), |args, hold| {
        args.with(&hold.field).with_number(hold.lease.millis())
    })
}
