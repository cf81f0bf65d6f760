//! Random sequences of calls: the model, the embedded Lua and a real Redis must not differ in anything.

use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use crate::backend::Script;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::base::random::Random;
use crate::kinds::reentrant::ALL;
use crate::kinds::reentrant::script_tests::mutants::be_quiet_when_asked;
use crate::kinds::reentrant::script_tests::mutants::fails;
use crate::kinds::reentrant::script_tests::mutator::mutants;
use crate::kinds::reentrant::script_tests::protocol;
use crate::kinds::reentrant::script_tests::text::parse_call;
use crate::kinds::reentrant::script_tests::text::script;
use crate::kinds::reentrant::script_tests::together::Together;

/// Of a usual test run; `SEQUENCES`, `STEPS` and `SEED` ask for others.
const SEQUENCES: u64 = 2_000;
const STEPS: u64 = 8;

const FIELDS: &[&str] = &["a", "a", "a", "a:kept", "b", "b", "b", "c", "mode", "~"];
const COUNTS: &[&str] = &["1", "1", "1", "2", "3", "65535", "0", "1.5"];
const LEASES: &[&str] = &["3M", "5M", "9M", "86400000", "86400001", "0"];
const DEADLINES: &[&str] = &["soon", "soon", "soon", "soon", "late", "-1", "9007199254740992", "1.5"];
const CHANNELS: &[&str] = &["ch", "ch", "ch", "client", "nobody", "~"];
const CLIENT_CHANNELS: &[&str] = &["client", "client", "client", "nobody", "~"];
const VERBS: &[&str] = &["PUBLISH", "PUBLISH", "SPUBLISH", "publish"];
/// Whole units of time, and a little, so that what runs out has surely run out.
const PASSES_MS: [i64; 3] = [1_001_000, 3_001_000, 6_001_000];
const PLANTS: &[&str] = &[
    "lock={a:1}@5",
    "lock={b:2}@9",
    "lock={a:1}",
    "lock={c:1,a:4}@5",
    "lock={mode:read,b:1}@5",
    "lock=text@5",
    "lock=[x]",
    "lock={b:1,a:2}@5",
    "lock={a:kept:0}@5",
    "lock1={a:1}@5 lock2={b:1}@5",
    "fence=0",
    "fence=-1",
    "fence=9007199254740991",
    "fence=7",
    "fence=9000000000000000",
    "fence=9007199254740990",
    "fence=0x10",
    "fence=word",
    "fence=[1]",
    "fence={a:1}@3",
];

impl Random {
    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.index(choices.len())]
    }

    fn call(&mut self) -> String {
        let field = self.pick(FIELDS);
        let (lease, deadline) = (self.pick(LEASES), self.pick(DEADLINES));
        let (channel, verb) = (self.pick(CHANNELS), self.pick(VERBS));
        match self.below(12) {
            0..=2 => format!("acquire {field} {} {lease} {deadline}", self.pick(COUNTS)),
            3 | 4 => format!("release {field} {} {channel} {verb}", self.pick(&["0", "0", "1", "2", "-1"])),
            5 if self.below(3) == 0 => {
                let second = (self.pick(FIELDS), self.pick(&["9M", "1", "0", ""]));
                format!("renew {deadline} {field} {lease} {} {}", second.0, second.1)
            }
            5 => format!("renew {deadline} {field} {lease}"),
            6 | 7 => format!("hand_off {field} {} {lease} {deadline} {channel} {verb}", self.pick(FIELDS)),
            8 => "inspect".to_owned(),
            11 => format!("release_at {field} {deadline} {lease} {channel} {verb}"),
            9 => {
                format!("force_release {field} {deadline} {channel} {verb} {}", self.pick(CLIENT_CHANNELS))
            }
            _ => {
                let second = (self.pick(FIELDS), self.pick(&["ch", "client", "~", ""]));
                format!("release_many {verb} {field} {channel} {} {}", second.0, second.1)
            }
        }
    }
}

#[test]
fn random_calls_do_the_same_in_the_model_in_memory_and_on_redis() {
    if !has_redis_7("sharded pub/sub") {
        return;
    }
    let first = setting("SEED").unwrap_or_else(seed_of_today);
    let (sequences, steps) = (setting("SEQUENCES").unwrap_or(SEQUENCES), setting("STEPS").unwrap_or(STEPS));
    println!("SEED={first}");
    let mut together = Together::start();
    for sequence in 0..sequences {
        run_sequence(&mut together, first.wrapping_add(sequence), steps);
    }
    let (calls, grants) = (sequences * steps, together.grants);
    println!(
        "{{\"part\":\"scripts\",\"sequences\":{sequences},\"calls\":{calls},\"compared\":3,\"grants\":{grants},\"seed\":{first}}}"
    );
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed_of_today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1_000_000
}

fn run_sequence(together: &mut Together, seed: u64, steps: u64) {
    match seed % 2 {
        0 => any_calls(together, seed, steps),
        _ => protocol::run_sequence(together, seed, steps),
    }
}

/// Calls with any arguments, on any values.
fn any_calls(together: &mut Together, seed: u64, length: u64) {
    together.begin(format!("SEED={seed}, a sequence of calls"));
    let mut random = Random(seed);
    for _ in 0..length {
        match random.below(10) {
            0 | 1 => together.plant(random.pick(PLANTS)),
            2 => together.pass(PASSES_MS[random.index(PASSES_MS.len())]),
            3 if random.below(3) == 0 => together.remove(random.pick(&["lock", "fence"])),
            _ => {}
        }
        let call = parse_call(&random.call());
        together.call(&call);
    }
}

/// Script, what is in it, what stands there instead.
const ERRORS: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "token = last + 1", "token = last"),
    ("acquire", r#"redis.call("HSET", lock, field, count)"#, r#"redis.call("HINCRBY", lock, field, 1)"#),
    ("acquire", "if pttl == -2 and count > 1 then", "if false then"),
    (
        "acquire",
        "if pttl < lease then redis.call(\"PEXPIRE\", lock, lease_text)",
        "if true then redis.call(\"PEXPIRE\", lock, lease_text)",
    ),
    ("release", "if fields == 0 then", "if false then"),
    ("release", r#"redis.call("HDEL", lock, field)"#, r#"redis.call("DEL", lock)"#),
    ("release", r#"redis.pcall("PERSIST", lock)"#, "1"),
    ("release", "if count > 0 then", "if count > 1 then"),
    ("release", r#"local receivers = redis.pcall(verb, channel, "0")"#, "local receivers = 1"),
    ("release_many", r#"if redis.pcall("HLEN", lock) ~= 1 then return -5 end"#, ""),
    ("release_many", r#"redis.pcall(verb, channel, "0")"#, "1"),
    ("release_at", r#"if redis.call("HGET", lock, kept) then return {2, now, 0} end"#, ""),
    ("release_at", "if rest > most then rest = most end", ""),
    ("release_at", "rest > 0 and fields == 1", "rest > 0"),
    ("release_at", r#"redis.call("HSET", lock, kept, "0")"#, ""),
    ("release_at", r#"redis.call("PEXPIRE", lock, rest)"#, ""),
    ("renew", r#"lease > 1 and redis.call("PTTL", lock) < lease"#, "lease > 1"),
    ("renew", "if now > not_after then", "if false then"),
    ("hand_off", "local late = now > not_after", "local late = false"),
    ("hand_off", "if late then return {-1, now, 0} end", ""),
    ("hand_off", r#"redis.call("HDEL", lock, from)\n--"#, "--"),
    ("hand_off", "if fields > 1 and not count_to then", "if false then"),
    ("force_release", r#"if redis.call("HEXISTS", lock, "mode") == 1 then return {-3, now} end"#, ""),
    ("force_release", r#"redis.pcall("PUBLISH", client_channel, lock)"#, "1"),
    ("inspect", r#"if redis.call("HEXISTS", lock, "mode") == 1 then return {3, now, pttl} end"#, ""),
];

#[test]
fn the_model_notices_deliberate_errors() {
    be_quiet_when_asked();
    for &(name, right, wrong) in ERRORS {
        let right = right.replace("\\n", "\n");
        let script = script(name);
        assert!(script.source.contains(&right), "{name} has no `{right}`");
        let source = script.source.replacen(&right, wrong, 1).leak();
        let broken = Box::leak(Box::new(Script { name: script.name, source }));
        assert!(noticed(broken, 60), "{name}: `{wrong}` for `{right}` was not noticed");
    }
}

/// Every mutant of every script, with nothing but the model to notice it. Some it cannot: those that matter only when
/// Redis refuses a command, and those that do the same.
#[test]
#[ignore = "takes a minute: `cargo xtask lua-mutants` runs it"]
fn random_calls_notice_mutants_of_the_scripts() {
    be_quiet_when_asked();
    let (mut number, mut killed) = (0, 0);
    for script in ALL {
        for mutant in mutants(script) {
            number += 1;
            let mutated = Script { name: script.name, source: mutant.source.leak() };
            killed += u32::from(noticed(Box::leak(Box::new(mutated)), 100));
        }
    }
    println!("{{\"part\":\"scripts-mutants\",\"mutants\":{number},\"noticed_by_the_model\":{killed}}}");
}

/// Whether sequences differ between the model and this text, in the embedded Lua.
fn noticed(script: &'static Script, sequences: u64) -> bool {
    let mut together = Together::instead(script);
    (0..sequences).any(|seed| fails(|| run_sequence(&mut together, seed, 50)))
}
