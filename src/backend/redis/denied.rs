//! Adds to a refusal which permission or command is missing. Redis's own text seldom tells: for a
//! command inside a script it does not even name the command.

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::redis::classify::is_missing_in_scripts;

const ADVICE: &str = "`required_acl` gives the permissions";
/// For a command that the server lacks for every user.
const RENAMED: &str = "the server has it renamed or switched off";

/// Adds to the refusal of a script which key or command it was about.
pub(crate) fn name_permission<T>(call: &Call, outcome: Outcome<T>) -> Outcome<T> {
    match (call, outcome) {
        (Call::Script(call), Outcome::NotExecuted(failure)) => {
            Outcome::NotExecuted(named(call, failure))
        }
        (_, outcome) => outcome,
    }
}

fn named(call: &ScriptCall, failure: Failure) -> Failure {
    let words = failure.message.trim();
    let command = || format!("the command {}", any_of(commands(call.script, words)));
    let (about, advice) = match failure.kind {
        FailureKind::Denied if is_about_keys(words) => {
            (format!("the key {}", any_of(call.keys.iter().map(|key| format!("{key:?}")))), ADVICE)
        }
        FailureKind::Denied => (command(), ADVICE),
        FailureKind::Unsupported if is_missing_in_scripts(words) => (command(), RENAMED),
        _ => return failure,
    };
    let message = format!("{words} [{about}, in the script {}; {advice}]", call.script.name);
    Failure::new(failure.kind, message)
}

/// The same for a subscription: names the command if Redis does, and otherwise the channel.
pub(crate) fn name_channel(channel: &str, failure: Failure) -> Failure {
    if failure.kind != FailureKind::Denied {
        return failure;
    }
    let words = failure.message.trim();
    let about = match named_in(words) {
        Some(commands) => format!("the command {}", any_of(commands)),
        None => format!("the channel {channel:?}"),
    };
    let message = format!("{words} [{about}; {ADVICE}]");
    Failure::new(failure.kind, message)
}

fn is_about_keys(words: &str) -> bool {
    ["of the keys", "access a key", "access the", "write to the", "read from the"]
        .iter()
        .any(|part| words.contains(part))
        && !words.contains("channel")
}

fn any_of(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(" or ")
}

/// The commands that the script calls in the line that Redis names. If Redis names no line, then
/// Redis or the script has named the command; if not, all commands of the script.
fn commands(script: &Script, words: &str) -> Vec<String> {
    let named = line_of(words)
        .and_then(|line| script.source.lines().nth(line.checked_sub(1)?))
        .map(called)
        .filter(|commands| !commands.is_empty());
    named.or_else(|| named_in(words)).unwrap_or_else(|| called(script.source))
}

/// The line in `on @user_script:83.`, or in Redis 6.2 `@user_script: 83: `.
fn line_of(words: &str) -> Option<usize> {
    let (_, rest) = words.rsplit_once("user_script:")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The commands that a piece of Lua calls, each once.
fn called(lua: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in ["redis.call(\"", "redis.pcall(\""].iter().flat_map(|call| lua.split(call).skip(1))
    {
        let name: String = part.chars().take_while(char::is_ascii_alphabetic).collect();
        let name = name.to_ascii_lowercase();
        if !name.is_empty() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The command in `'hget' command`, as Redis writes it, or in `(HGET)`, as the scripts do.
fn named_in(words: &str) -> Option<Vec<String>> {
    let quoted = words
        .split_once('\'')
        .and_then(|(_, rest)| rest.split_once("' command"))
        .map(|(name, _)| name);
    let ours =
        words.trim().strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).map(|(_, name)| name);
    quoted.or(ours).map(|name| vec![name.to_ascii_lowercase()])
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::ScriptCall;
    use crate::backend::words::Words;

    static SCRIPT: Script = Script {
        name: "a/b",
        source: "local x = redis.call(\"TIME\")\nlocal y = redis.pcall(\"HGET\", k)\nreturn 1",
    };

    fn told(kind: FailureKind, words: &str) -> String {
        let keys = ["lock", "fence"].into();
        let call = Call::Script(ScriptCall::new(&SCRIPT, keys, Words::default()).into());
        match name_permission(&call, Outcome::<()>::NotExecuted(Failure::new(kind, words))) {
            Outcome::NotExecuted(failure) => {
                assert!(failure.message.starts_with(words.trim()), "{failure}");
                failure.message
            }
            other => panic!("{other:?}"),
        }
    }

    fn named(words: &str) -> String {
        let told = told(FailureKind::Denied, words);
        told.split_once(" [").unwrap().1.split(", in").next().unwrap().to_owned()
    }

    #[test]
    fn keys_are_told_from_commands_and_channels() {
        for (words, about_keys) in [
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                true,
            ),
            ("NOPERM No permissions to access a key", true),
            ("NOPERM this user has no permissions to run the 'evalsha' command", false),
            (
                "NOPERM this user has no permissions to access one of the channels used as arguments",
                false,
            ),
            ("NOPERM No permissions to access a channel", false),
        ] {
            assert_eq!(is_about_keys(words), about_keys, "{words}");
        }
    }

    #[test]
    fn a_command_that_scripts_may_not_call() {
        let renamed = |command| format!("[the command {command}, in the script a/b; {RENAMED}]");
        let unknown = "ERR Unknown Redis command called from script";
        for (words, about) in [
            (format!("{unknown} script: 6e7b, on @user_script:2."), renamed("hget")),
            (format!("{unknown} (HGET)"), renamed("hget")),
            (
                "@user_script: 1: Unknown Redis command called from Lua script".to_owned(),
                renamed("time"),
            ),
            (
                "ERR Unknown command called from script script: 6e7b, on @user_script:1."
                    .to_owned(),
                renamed("time"),
            ),
            // If Redis names no line, it may be any command of the script.
            (unknown.to_owned(), renamed("time or hget")),
        ] {
            assert_eq!(told(FailureKind::Unsupported, &words), format!("{words} {about}"));
        }
        // This one was not called by a script.
        let evalsha = "ERR unknown command 'EVALSHA', with args beginning with: ";
        assert_eq!(told(FailureKind::Unsupported, evalsha), evalsha);
    }

    #[test]
    fn the_words_of_every_version() {
        let in_script = "ERR The user executing the script can't run this command or subcommand";
        let table = [
            (format!("{in_script} script: 6e7b, on @user_script:1."), "the command time"),
            (format!("{in_script} (HGET)"), "the command hget"),
            (format!("{in_script}\r\n"), "the command time or hget"),
            (
                "ERR Error running script (call to f_6e7b): @user_script:2: @user_script: 2: The user executing \
                 the script can't run this command or subcommand"
                    .to_owned(),
                "the command hget",
            ),
            (
                "NOPERM ACL failure in script: User u has no permissions to run the 'hset' command".to_owned(),
                "the command hset",
            ),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'hget' command script: 6e7b, \
                 on @user_script:2."
                    .to_owned(),
                "the command hget",
            ),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'get' command (GET)".to_owned(),
                "the command get",
            ),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand".to_owned(),
                "the command evalsha",
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned(),
                "the key \"lock\" or \"fence\"",
            ),
            ("NOPERM No permissions to access a key".to_owned(), "the key \"lock\" or \"fence\""),
            (
                "NOPERM User u has no permissions to access the 'lock' key".to_owned(),
                "the key \"lock\" or \"fence\"",
            ),
        ];
        for (words, about) in table {
            assert_eq!(named(&words), about, "{words}");
        }
    }

    #[test]
    fn other_failures_keep_their_words() {
        let busy = Outcome::<()>::NotExecuted(Failure::new(FailureKind::Busy, "BUSY"));
        assert_eq!(name_permission(&Call::Ping, busy.clone()), busy);
        assert_eq!(name_channel("c", Failure::new(FailureKind::Link, "gone")).message, "gone");
        let denied = name_channel("c", Failure::new(FailureKind::Denied, "NOPERM"));
        assert!(denied.message.starts_with("NOPERM [the channel \"c\""), "{denied}");
        let words = "NOPERM this user has no permissions to run the 'subscribe' command";
        let denied = name_channel("c", Failure::new(FailureKind::Denied, words));
        assert_eq!(denied.message, format!("{words} [the command subscribe; {ADVICE}]"));
        // Redis 7.2, about a channel.
        let words = "NOPERM User locks has no permissions to access the 'c' channel";
        let denied = name_channel("c", Failure::new(FailureKind::Denied, words));
        assert_eq!(denied.message, format!("{words} [the channel \"c\"; {ADVICE}]"));
    }
}
