//! What must be true of a sequence of commands besides that all servers agree.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Reply;
use crate::kinds::script_tests::lives::CLIENTS;
use crate::kinds::script_tests::lives::DATA;
use crate::kinds::script_tests::together::Together;

/// Nothing that was cleaned up comes back; only a hold's own commands end or change it; a lock that
/// is ours has an end, and no more fields than its kind allows; no command takes away data that
/// another program has put beside it; every grant has a higher token than all before.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    pub(crate) grants: u64,
    cleaned_up: BTreeSet<String>,
    /// The highest token by fence counter.
    tokens: BTreeMap<String, u64>,
    /// All keys after the last command; none after something else.
    before: Option<Vec<Dumped>>,
}

impl Promises {
    pub(crate) fn is_cleaned_up(&mut self, field: String) {
        self.cleaned_up.insert(field);
    }

    pub(crate) fn disturbed(&mut self) {
        self.before = None;
    }

    pub(crate) fn tokens_lost(&mut self, fence: &str) {
        self.tokens.remove(fence);
        self.before = None;
    }

    pub(crate) fn all_lost(&mut self) {
        self.tokens.clear();
        self.before = None;
    }

    /// Checks what a command has made of the keys.
    pub(crate) fn keep(
        &mut self,
        command: &Command,
        reply: Option<&Reply>,
        dump: &[Dumped],
        together: &Together,
    ) {
        for (name, fields, ttl) in hashes(dump) {
            let ours = |(field, _): &&(String, String)| {
                CLIENTS.contains(&field.split(':').next().unwrap())
            };
            for (field, _) in fields.iter().filter(ours) {
                let gone = !self.cleaned_up.contains(field);
                assert!(gone, "{field} came back: {}", together.story());
            }
            let known: Vec<_> = fields.iter().filter(|(field, _)| field != DATA).cloned().collect();
            if known.iter().any(|pair| ours(&pair)) {
                let fine = (together.suite().may_be)(&known) && ttl.is_some();
                assert!(fine, "{name} has no end or too many holders: {}", together.story());
            }
        }
        self.keep_order(command, reply, together);
        if let Some(before) = &self.before {
            if together.suite().kind.most_fields() == 1 {
                only_the_owner(command, before, dump, together);
            }
            others_stay(command, before, dump, together);
            data_stays(command, before, dump, together);
        }
        self.before = Some(dump.to_vec());
    }

    fn keep_order(&mut self, command: &Command, reply: Option<&Reply>, together: &Together) {
        let (name, token) = match (command, reply.map(|reply| &reply.body)) {
            (
                Command::Acquire { name, count: 1, .. },
                Some(Body::Acquire(Acquired::Granted { token })),
            )
            | (Command::HandOff { name, .. }, Some(Body::HandOff(HandedOff::Granted { token }))) => {
                (name, *token)
            }
            _ => return,
        };
        self.grants += 1;
        let last = self.tokens.insert(name.fence_key(), token);
        assert!(
            last.is_none_or(|last| last < token),
            "token {token} after {last:?}: {}",
            together.story()
        );
    }
}

/// What somebody has put into the hash of a lock is there as long as no time passes.
fn data_stays(command: &Command, before: &[Dumped], after: &[Dumped], together: &Together) {
    let with_data =
        |dump| hashes(dump).filter(|(_, fields, _)| fields.iter().any(|(field, _)| field == DATA));
    for (name, ..) in with_data(before) {
        let stays = with_data(after).any(|(key, ..)| key == name);
        assert!(stays, "{command:?} took away what is under {name}: {}", together.story());
    }
}

/// A lock whose hash has one field, which somebody holds, is as it was, unless the command was that
/// holder's or took it away.
fn only_the_owner(command: &Command, before: &[Dumped], after: &[Dumped], together: &Together) {
    for (name, fields, ttl) in hashes(before) {
        let [(field, _)] = fields else { continue };
        if ttl.is_none() || meant(command, field) {
            continue;
        }
        let now = hashes(after).find(|(key, ..)| *key == name);
        let same = now.is_some_and(|(_, now, left)| now == fields && left.is_some() && left <= ttl);
        assert!(same, "{command:?} touched {name} of {field}: {}", together.story());
    }
}

/// The same of each hold where several may be in one hash, as long as it is not over by itself.
fn others_stay(command: &Command, before: &[Dumped], after: &[Dumped], together: &Together) {
    let now_ms = together.next_us() / 1_000;
    let owner = |field: &str| field.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
    for (name, fields, ttl) in hashes(before) {
        let is_ours =
            |(field, _): &(String, String)| CLIENTS.contains(&field.split(':').next().unwrap());
        for pair in (together.suite().valid)(fields, now_ms).iter().filter(|pair| is_ours(pair)) {
            if ttl.is_none() || meant(command, &owner(&pair.0)) || meant(command, &pair.0) {
                continue;
            }
            let stays = hashes(after).any(|(key, now, _)| key == name && now.contains(pair));
            assert!(stays, "{command:?} touched {pair:?} of {name}: {}", together.story());
        }
    }
}

fn meant(command: &Command, holder: &str) -> bool {
    match command {
        Command::Acquire { field, .. }
        | Command::Release { field, .. }
        | Command::ReleaseAt { field, .. } => field == holder,
        Command::HandOff { from, to, .. } => from == holder || to == holder,
        Command::ReleaseMany(holds) => holds.iter().any(|hold| hold.field == holder),
        Command::Renew { holds, .. } => holds.iter().any(|hold| hold.field == holder),
        Command::ForceRelease { expected, .. } => expected == holder,
        _ => false,
    }
}

type Hash<'a> = (&'a str, &'a [(String, String)], Option<i64>);

fn hashes(dump: &[Dumped]) -> impl Iterator<Item = Hash<'_>> {
    dump.iter().filter_map(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((dumped.key.as_str(), fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
