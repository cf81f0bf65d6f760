//! Decides from an error of the connection, or an error reply of Redis, what happened to the call:
//! executed, not executed, or unknown.

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;

/// The outcome of a call that ended with this error.
///
/// Redis's refusals come before the script's first write, because the scripts are written so (see
/// `lua/`): not executed. If the error could also mean "executed, and the reply was lost", the
/// outcome is unknown.
pub(crate) fn classify<T>(error: &WireError) -> Outcome<T> {
    match error.kind() {
        ErrorKind::Reply => judge_reply(error.details()),
        ErrorKind::Io | ErrorKind::Timeout | ErrorKind::Protocol | ErrorKind::Tls => {
            Outcome::Unknown(Failure::new(FailureKind::Link, error.details()))
        }
        ErrorKind::NoListener => {
            Outcome::NotExecuted(Failure::new(FailureKind::NoListener, error.details()))
        }
    }
}

/// The failure alone, for connecting and subscribing, where it does not matter whether anything was
/// executed.
pub(crate) fn failure(error: &WireError) -> Failure {
    match classify::<()>(error) {
        Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => failure,
        Outcome::Done(()) => Failure::new(FailureKind::Refused, error.details()),
    }
}

/// Removes the arguments that Redis repeats in the error for an unknown command, because one of
/// them may be a password.
pub(crate) fn without_arguments(words: &str) -> &str {
    words.split_once(", with args beginning with").map_or(words, |(before, _)| before)
}

/// True if a script was refused because it called a command that the server does not offer to
/// scripts: renamed, switched off by a hosting provider, or with other arguments than usual. The
/// texts differ between Redis 6.2, Redis 7, Valkey 8 and Valkey 9.
pub(crate) fn is_missing_in_scripts(words: &str) -> bool {
    let from_a_script = words.contains("rom script") || words.contains("rom Lua script");
    let missing = ["command called", "command is not allowed", "Wrong number of args calling"];
    from_a_script && missing.iter().any(|part| words.contains(part))
}

/// Whether a NOSCRIPT was answered.
pub(crate) fn is_no_script(error: &WireError) -> bool {
    error.details().starts_with("NOSCRIPT")
}

/// True for the text of an error reply, false for an error of the client itself.
pub(crate) fn is_reply(error: &WireError) -> bool {
    error.kind() == ErrorKind::Reply
}

/// What an error reply with these words says about its call.
#[cfg(all(test, feature = "in-memory"))]
pub(crate) fn judge_words<T>(text: &str) -> Outcome<T> {
    judge_reply(text)
}

fn judge_reply<T>(text: &str) -> Outcome<T> {
    use FailureKind as F;
    let not_executed = |kind| Outcome::NotExecuted(Failure::new(kind, text));
    match text.split_whitespace().next().unwrap_or_default() {
        "NOSCRIPT" | "BUSY" | "UNKILLABLE" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN"
        | "MISCONF" | "NOREPLICAS" => not_executed(F::Busy),
        "TRYAGAIN" => not_executed(F::SlotMoving),
        "OOM" => not_executed(F::OutOfMemory),
        "READONLY" => not_executed(F::ReadOnly),
        "NOAUTH" | "WRONGPASS" => not_executed(F::Auth),
        "NOPERM" => not_executed(F::Denied),
        "MOVED" | "ASK" => not_executed(F::Redirected),
        "WRONGTYPE" | "CROSSSLOT" | "EXECABORT" | "NOPROTO" | "DENIED" => not_executed(F::Refused),
        "ERR" => judge_err(text),
        // Redis 6.2: an error that one of our scripts got from `pcall` and returned.
        "@user_script:" => match without_place(text) {
            Some(inner) => judge_reply::<T>(&inner).with_message(text),
            None => Outcome::Unknown(Failure::new(F::Refused, text)),
        },
        _ => Outcome::Unknown(Failure::new(F::Refused, text)),
    }
}

/// Removes the place from `@user_script: 57: -OOM command …`, and adds the `ERR` that Redis 6.2
/// leaves out there.
fn without_place(text: &str) -> Option<String> {
    let words = text.strip_prefix("@user_script: ")?.split_once(": ")?.1;
    Some(match words.strip_prefix('-') {
        Some(reply) => reply.to_owned(),
        None => format!("ERR {words}"),
    })
}

fn judge_err<T>(text: &str) -> Outcome<T> {
    use FailureKind as F;
    let says = |words: &str| text.contains(words);
    // Redis 7.0, then Redis 7.2 and Valkey.
    if says("The user executing the script can't")
        || says("can't publish to the channel")
        || text.starts_with("ERR ACL failure in script: ")
    {
        return Outcome::NotExecuted(Failure::new(F::Denied, text));
    }
    if says("max number of clients") {
        return Outcome::NotExecuted(Failure::new(F::Busy, text));
    }
    if text.starts_with("ERR unknown command")
        || text.starts_with("ERR unknown subcommand")
        || is_missing_in_scripts(text)
    {
        return Outcome::NotExecuted(Failure::new(F::Unsupported, text));
    }
    if text.starts_with("ERR Client sent AUTH")
        || text.starts_with("ERR AUTH ")
        || says("invalid password")
    {
        return Outcome::NotExecuted(Failure::new(F::Auth, text));
    }
    // Redis 6.2 wraps the error of a command that a script called; the command's own error is at
    // the end.
    if text.starts_with("ERR Error running script") {
        if let Some((_, inner)) = text.rsplit_once(": -") {
            return judge_reply::<T>(inner).with_message(text);
        }
    }
    // An error inside a running script may come after a write; one from before it started cannot.
    if says("script: ") || says("user_script") && !says("Error compiling script") {
        return Outcome::Unknown(Failure::new(F::Refused, text));
    }
    Outcome::NotExecuted(Failure::new(F::Refused, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUFFIX: &str = " script: 6e7b3f1f6b, on @user_script:1.";

    fn verdict(kind: ErrorKind, text: &str) -> (&'static str, FailureKind) {
        match classify::<()>(&WireError::new(kind, text.to_owned())) {
            Outcome::Done(()) => panic!("{text} is done"),
            Outcome::NotExecuted(failure) => {
                assert_eq!(failure.message, text);
                ("not executed", failure.kind)
            }
            Outcome::Unknown(failure) => {
                assert_eq!(failure.message, text);
                ("unknown", failure.kind)
            }
        }
    }

    #[test]
    fn replies_of_redis() {
        use FailureKind as F;
        let table = [
            ("NOSCRIPT No matching script. Please use EVAL.", "not executed", F::Busy),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                "not executed",
                F::Busy,
            ),
            (
                "UNKILLABLE Sorry the script already executed write commands",
                "not executed",
                F::Busy,
            ),
            ("LOADING Redis is loading the dataset in memory", "not executed", F::Busy),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                "not executed",
                F::Busy,
            ),
            ("READONLY You can't write against a read only replica.", "not executed", F::ReadOnly),
            (
                "READONLY You can't write against a read only replica. script: 6e7b, on @user_script:1.",
                "not executed",
                F::ReadOnly,
            ),
            (
                "NOREPLICAS Not enough good replicas to write. script: 6e7b, on @user_script:1.",
                "not executed",
                F::Busy,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.",
                "not executed",
                F::Busy,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 6e7b, on @user_script:1.",
                "not executed",
                F::OutOfMemory,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "not executed",
                F::OutOfMemory,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value script: 6e7b, on @user_script:1.",
                "not executed",
                F::Refused,
            ),
            ("NOAUTH Authentication required.", "not executed", F::Auth),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                "not executed",
                F::Auth,
            ),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                "not executed",
                F::Denied,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 6e7b, on @user_script:1.",
                "not executed",
                F::Denied,
            ),
            (
                "ERR The user executing the script can't publish to the channel mentioned in the command script: 6e7b",
                "not executed",
                F::Denied,
            ),
            (
                "ERR Error running script (call to f_6e7b): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
                "not executed",
                F::ReadOnly,
            ),
            (
                "NOPERM ACL failure in script: User u has no permissions to run the 'hget' command",
                "not executed",
                F::Denied,
            ),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'hget' command script: 6e7b, on @user_script:1.",
                "not executed",
                F::Denied,
            ),
            (
                "@user_script: 57: The user executing the script can't run this command or subcommand",
                "not executed",
                F::Denied,
            ),
            (
                "@user_script: 85: -OOM command not allowed when used memory > 'maxmemory'.",
                "not executed",
                F::OutOfMemory,
            ),
            ("@user_script: 85: something else", "not executed", F::Refused),
            ("ERR max number of clients reached", "not executed", F::Busy),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                "not executed",
                F::SlotMoving,
            ),
            ("CLUSTERDOWN Hash slot not served", "not executed", F::Busy),
            ("MOVED 1234 10.0.0.1:6379", "not executed", F::Redirected),
            ("ASK 1234 10.0.0.1:6379", "not executed", F::Redirected),
            ("CROSSSLOT Keys in request don't hash to the same slot", "not executed", F::Refused),
            (
                "ERR Error compiling script (new function): user_script:1: '=' expected near 'x'",
                "not executed",
                F::Refused,
            ),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: ",
                "not executed",
                F::Unsupported,
            ),
            // Redis 7, Valkey 8, the two forms of Redis 6.2, and a server that only hides a command
            // from scripts.
            (
                "ERR Unknown Redis command called from script script: 6e7b, on @user_script:1.",
                "not executed",
                F::Unsupported,
            ),
            ("ERR Unknown Redis command called from script (HGET)", "not executed", F::Unsupported),
            (
                "ERR Unknown command called from script script: 6e7b, on @user_script:1.",
                "not executed",
                F::Unsupported,
            ),
            (
                "ERR Error running script (call to f_6e7b): @user_script:2: @user_script: 2: Unknown Redis command called from Lua script",
                "not executed",
                F::Unsupported,
            ),
            (
                "@user_script: 57: Unknown Redis command called from Lua script (HGET)",
                "not executed",
                F::Unsupported,
            ),
            (
                "ERR This Redis command is not allowed from script script: 6e7b, on @user_script:1.",
                "not executed",
                F::Unsupported,
            ),
            (
                "ERR This Valkey command is not allowed from script script: 6e7b",
                "not executed",
                F::Unsupported,
            ),
            (
                "@user_script: 7: This Redis command is not allowed from scripts",
                "not executed",
                F::Unsupported,
            ),
            (
                "ERR Wrong number of args calling Redis command from script script: 6e7b",
                "not executed",
                F::Unsupported,
            ),
            (
                "@user_script: 7: Wrong number of args calling Redis command From Lua script",
                "not executed",
                F::Unsupported,
            ),
            ("ERR DB index is out of range", "not executed", F::Refused),
            ("ERR Number of keys can't be greater than number of args", "not executed", F::Refused),
            ("SOMETHING new", "unknown", F::Refused),
        ];
        for (text, executed, kind) in table {
            assert_eq!(verdict(ErrorKind::Reply, text), (executed, kind), "{text}");
        }
        let in_script = format!(
            "ERR user_script:3: Script attempted to access nonexistent global variable 'x'{SUFFIX}"
        );
        assert_eq!(verdict(ErrorKind::Reply, &in_script), ("unknown", F::Refused));
    }

    #[test]
    fn a_command_is_missing_in_scripts_if_both_are_said() {
        for words in ["ERR out of range, from script", "ERR Unknown command called 'X'", "ERR"] {
            assert!(!is_missing_in_scripts(words), "{words}");
        }
        assert!(is_missing_in_scripts("ERR Unknown Redis command called from script"));
    }

    #[test]
    fn a_connection_that_ends_leaves_it_open() {
        let table = [
            (ErrorKind::Io, "Connection closed."),
            (ErrorKind::Io, "Connection reset by peer (os error 104)"),
            (ErrorKind::Timeout, "Request timed out."),
            (ErrorKind::Protocol, "its answer is not understood: not an answer"),
        ];
        for (kind, text) in table {
            assert_eq!(verdict(kind, text), ("unknown", FailureKind::Link), "{text}");
        }
    }

    #[test]
    fn words_of_this_end_are_no_reply_whatever_they_say() {
        for kind in [ErrorKind::Io, ErrorKind::Timeout, ErrorKind::Protocol, ErrorKind::Tls] {
            assert_eq!(
                verdict(kind, "NOAUTH Authentication required."),
                ("unknown", FailureKind::Link)
            );
        }
    }
}
