//! The readers of what strangers write, each with what must be true of any input: for the targets
//! in `fuzz/`, which `cargo fuzz` builds with `--cfg fuzzing`, and for the smoke test below. Not
//! part of the API, in no release build, outside semver.

use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::name::slot_of;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::conflict::is_holder_field;
use crate::kinds::reentrant::all;
use crate::kinds::reply::Body;
use crate::kinds::share::Share;

/// A lock name is refused, or everything derived from it is in one slot and tells it from others.
pub fn name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let name = match LockName::new(&text) {
        Ok(name) => name,
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.chars().any(char::is_control) && shown.len() < 2_000, "{shown:?}");
            return;
        }
    };
    assert_eq!(name.as_str(), text);
    assert_eq!(name.slot(), slot_of(&text));
    for own in [name.fence_key(), name.line_key()] {
        assert_eq!(slot_of(&own), name.slot(), "{own}");
        assert!(LockName::new(&own).is_err(), "{own}");
    }
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let channel = name.channel(profile);
        assert_eq!(slot_of(&channel), name.slot(), "{channel}");
        assert!(channel.contains(&*text) && *channel != *text);
    }
    // Without a tag the search for another name in the slot takes thousands of tries.
    if text.contains('{') {
        let beside = name.beside(u32::from(data[0]));
        assert!(beside.is_none_or(|beside| beside.slot() == name.slot()));
    }
}

/// A reply is read as what it says, or as unknown.
pub fn reply(data: &[u8]) {
    let value = value(&mut data.iter().copied(), 0);
    for command in commands() {
        let list = match &value {
            Value::List(list) => list.as_slice(),
            _ => &[],
        };
        match command.read(value.clone()) {
            Outcome::Done(reply) => {
                assert!(!list.is_empty() || matches!(reply.body, Body::Pong), "{value:?}");
                if let Some(ServerTime(time)) = reply.time {
                    assert!(list.contains(&Value::Int(time)), "a time that nobody sent: {time}");
                }
            }
            Outcome::NotExecuted(failure) => {
                assert_eq!(
                    list.first(),
                    Some(&Value::Int(-9)),
                    "only a refused argument: {failure:?}"
                );
            }
            Outcome::Unknown(failure) => assert!(failure.message.len() < 2_000),
        }
    }
    if let Value::Text(text) = &value {
        let parts = text.split(':').count();
        assert!(!is_holder_field(text) || parts >= 2);
    }
}

/// An address is refused or understood, and its password is nowhere to be read.
pub fn url(data: &[u8]) {
    crate::backend::redis::fuzzing::url(&String::from_utf8_lossy(data));
}

/// No error of a server is taken for an answer, and its words reach whoever has to read them.
pub fn error(data: &[u8]) {
    crate::backend::redis::fuzzing::error(&String::from_utf8_lossy(data), all());
}

/// What comes over a connection is one answer, the beginning of one, or none at all.
pub fn bytes(data: &[u8]) {
    crate::backend::redis::fuzzing::bytes(data);
}

fn commands() -> Vec<Command> {
    let name = LockName::new("lock").expect("a good name");
    let lease = LeaseMs::PROBE;
    let not_after = ServerTime(1);
    let announce =
        Announce { channel: "channel".into(), sharded: false, line: false, alone: false };
    let field = || "field".to_owned();
    let released = ReleaseItem { name: name.clone(), field: field(), announce: announce.clone() };
    let item = RenewItem { name: name.clone(), field: field(), share: Share::ONE, lease };
    vec![
        Command::Time,
        Command::Ping,
        Command::Info,
        Command::Permissions(vec![("get", "lock".to_owned()); 2]),
        Command::Acquire {
            name: name.clone(),
            field: field(),
            share: Share::ONE,
            lease,
            not_after,
            line: false,
            wait: WaitMode::Try,
            announce: None,
            told: Box::default(),
        },
        Command::Release {
            name: name.clone(),
            field: field(),
            share: Share::NOTHING,
            announce: announce.clone(),
            undo: false,
        },
        Command::ReleaseMany(vec![released; 3]),
        Command::ReleaseAt {
            name: name.clone(),
            field: field(),
            free_at: not_after,
            most: lease,
            announce: announce.clone(),
        },
        Command::Renew { holds: vec![item; 3], not_after },
        Command::HandOff {
            name: name.clone(),
            from: field(),
            to: field(),
            lease,
            not_after,
            announce: announce.clone(),
            line_first: false,
            hears: false,
        },
        Command::Inspect { name: name.clone() },
        Command::Raise { name: name.clone(), field: "f".to_owned(), token: 7 },
        Command::Count { name: name.clone(), profile: WireProfile::Native },
        Command::ForceRelease {
            name,
            expected: field(),
            not_after,
            announce,
            client_channel: field(),
        },
    ]
}

/// Any bytes are some reply.
fn value(bytes: &mut impl Iterator<Item = u8>, depth: u8) -> Value {
    let Some(kind) = bytes.next() else { return Value::Nil };
    match kind % 8 {
        0 => Value::Nil,
        1 => Value::Int(bytes.take(8).fold(0, |number, byte| (number << 8) | i64::from(byte))),
        2..=4 => Value::Int(i64::from(kind / 8) - 10),
        5 => {
            let length = usize::from(bytes.next().unwrap_or(0));
            Value::Text(
                String::from_utf8_lossy(&bytes.take(length).collect::<Vec<u8>>()).into_owned(),
            )
        }
        _ if depth == 3 => Value::Nil,
        _ => Value::List((0..kind / 8).map(|_| value(bytes, depth + 1)).collect()),
    }
}

// They read `fuzz/`.
#[cfg(all(test, repository))]
mod tests {
    use super::*;

    use std::path::Path;

    use crate::base::random::Random;

    /// Of each target; `FUZZ_INPUTS` asks for more, which are others too.
    const INPUTS: u64 = 100_000;

    impl Random {
        /// A seed with a few mistakes, or nothing but chance.
        fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
            let mut input = seeds[self.index(seeds.len())].clone();
            for _ in 0..self.index(4) {
                let (at, byte) =
                    (self.index(input.len() + 1), u8::try_from(self.index(256)).unwrap());
                match self.index(5) {
                    0 => input.insert(at, byte),
                    1 => input.truncate(at),
                    2 if at < input.len() => drop(input.remove(at)),
                    3 if at < input.len() => input[at] = byte,
                    _ => {
                        let other = &seeds[self.index(seeds.len())];
                        let from = self.index(other.len() + 1);
                        input.splice(at..at, other[from..].iter().copied());
                    }
                }
            }
            if self.index(8) == 0 {
                input =
                    (0..self.index(40)).map(|_| u8::try_from(self.index(256)).unwrap()).collect();
            }
            input
        }
    }

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty());
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    fn smoke(target: &str, check: fn(&[u8])) {
        let seeds = seeds(target);
        seeds.iter().for_each(|seed| check(seed));
        let asked = std::env::var("FUZZ_INPUTS").ok().and_then(|number| number.parse().ok());
        let (inputs, mut random) = (asked.unwrap_or(INPUTS), Random(asked.map_or(7, |_| 8)));
        for number in 0..inputs {
            let input = random.input(&seeds);
            let result = std::panic::catch_unwind(|| check(&input));
            assert!(result.is_ok(), "input {number}: {:?}", String::from_utf8_lossy(&input));
        }
        println!("{{\"part\":\"fuzz-smoke\",\"target\":\"{target}\",\"inputs\":{inputs}}}");
    }

    #[test]
    fn any_name() {
        smoke("name", name);
    }

    #[test]
    fn any_reply() {
        smoke("reply", reply);
    }

    #[test]
    fn any_url() {
        smoke("url", url);
    }

    #[test]
    fn any_bytes() {
        smoke("bytes", bytes);
    }

    #[test]
    fn any_error() {
        smoke("error", error);
    }
}
