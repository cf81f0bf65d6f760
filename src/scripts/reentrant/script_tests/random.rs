//! Random sequences of calls: the embedded Lua and a real Redis must not differ in anything.

use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use crate::scripts::reentrant::script_tests::Server;
use crate::scripts::reentrant::script_tests::memory::Memory;
use crate::scripts::reentrant::script_tests::observe;
use crate::scripts::reentrant::script_tests::redis::Redis;
use crate::scripts::reentrant::script_tests::set_up;
use crate::scripts::reentrant::script_tests::text::Times;
use crate::scripts::reentrant::script_tests::text::parse_call;
use crate::scripts::reentrant::script_tests::text::parse_keys;

/// Of a usual test run; `SEQUENCES`, `STEPS` and `SEED` ask for others.
const SEQUENCES: u64 = 2_000;
const STEPS: u64 = 8;

const FIELDS: &[&str] = &["a", "a", "b", "b", "c", "mode"];
const COUNTS: &[&str] = &["1", "1", "1", "2", "3", "65535", "0", "1.5"];
const LEASES: &[&str] = &["3M", "5M", "9M", "86400000", "0"];
const DEADLINES: &[&str] = &["soon", "soon", "soon", "soon", "late", "-1"];
const CHANNELS: &[&str] = &["ch", "ch", "client", "nobody"];
const VERBS: &[&str] = &["PUBLISH", "PUBLISH", "SPUBLISH", "publish"];
const PLANTS: &[&str] = &[
    "lock={a:1}@5",
    "lock={b:2}@9",
    "lock={a:1}",
    "lock={c:1,a:4}@5",
    "lock={mode:read,b:1}@5",
    "lock=text@5",
    "lock=[x]",
    "fence=7",
    "fence=9000000000000000",
    "fence=9007199254740990",
    "fence=0x10",
    "fence=word",
    "fence=[1]",
    "fence={a:1}@3",
];

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    fn call(&mut self) -> String {
        let field = self.pick(FIELDS);
        let (lease, deadline) = (self.pick(LEASES), self.pick(DEADLINES));
        let (channel, verb) = (self.pick(CHANNELS), self.pick(VERBS));
        match self.below(10) {
            0..=2 => format!("acquire {field} {} {lease} {deadline}", self.pick(COUNTS)),
            3 | 4 => format!("release {field} {} {channel} {verb}", self.pick(&["0", "0", "1", "2", "-1"])),
            5 => format!("renew {deadline} {field} {lease}"),
            6 | 7 => format!("hand_off {field} {} {lease} {deadline} {channel} {verb}", self.pick(FIELDS)),
            8 => "inspect".to_owned(),
            _ => format!("force_release {field} {deadline} {channel} {verb} client"),
        }
    }
}

#[test]
fn random_calls_do_the_same_in_memory_and_on_redis() {
    let first = setting("SEED").unwrap_or_else(seed_of_today);
    let (sequences, steps) = (setting("SEQUENCES").unwrap_or(SEQUENCES), setting("STEPS").unwrap_or(STEPS));
    println!("SEED={first}");
    let (mut memory, mut redis) = (Memory::start(), Redis::start());
    for sequence in 0..sequences {
        let seed = first.wrapping_add(sequence);
        run_sequence(&mut memory, &mut redis, seed, steps);
    }
    let calls = sequences * steps;
    println!("{{\"part\":\"scripts\",\"sequences\":{sequences},\"calls\":{calls},\"seed\":{first}}}");
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed_of_today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1_000_000
}

fn run_sequence(memory: &mut Memory, redis: &mut Redis, seed: u64, length: u64) {
    let mut random = Random(seed);
    let mut both: [(&mut dyn Server, Times); 2] = [(memory, Times::default()), (redis, Times::default())];
    both.iter_mut().for_each(|(server, _)| set_up(*server, ""));
    let mut steps = Vec::new();
    for _ in 0..length {
        if random.below(4) == 0 {
            let state = random.pick(PLANTS);
            steps.push(state.to_owned());
            for (key, value, pttl) in parse_keys(state) {
                both.iter_mut().for_each(|(server, _)| server.plant(&key, &value, pttl));
            }
        }
        let text = random.call();
        let call = parse_call(&text);
        steps.push(text);
        let [in_memory, on_redis] = both.each_mut().map(|(server, times)| observe(*server, &call, times));
        assert_eq!(in_memory, on_redis, "SEED={seed} {steps:#?}");
    }
}
