//! What must be true of a sequence of commands besides that all servers agree.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::base::name::LINE_PREFIX;
use crate::base::name::LockName;
use crate::base::name::MARKS_PREFIX;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Reply;
use crate::kinds::script_tests::lives::CLIENTS;
use crate::kinds::script_tests::lives::DATA;
use crate::kinds::script_tests::together::Together;
use crate::kinds::share::Share;

/// Nothing that was cleaned up comes back; only a hold's own commands end or change it; a lock that
/// is ours has an end, and no more fields than its kind allows; no command takes away data that
/// another program has put beside it; every grant has a higher token than all before. A line has an
/// end; a place in it is lost only by commands of its own, to a reservation, or because its client
/// is marked; and a lock is reserved for the lowest ticket of the clients without a mark.
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
        for line in lines(dump) {
            assert!(line.ttl.is_some(), "{} has no end: {}", line.key, together.story());
            for (_, who) in &line.places {
                let gone = !self.cleaned_up.contains(who);
                assert!(gone, "{who} is in line again: {}", together.story());
            }
        }
        self.keep_order(command, reply, together);
        if let Some(before) = &self.before {
            if together.suite().kind.most_fields() == 1 {
                only_the_owner(command, before, dump, together);
            }
            others_stay(command, before, dump, together);
            data_stays(command, before, dump, together);
            places_stay(command, before, dump, together);
            lowest_ticket_first(command, before, dump, together);
            if matches!(reply, Some(Reply { body: Body::Acquire(Acquired::Granted { .. }), .. })) {
                nobody_is_passed(command, before, dump, together);
            }
        }
        self.before = Some(dump.to_vec());
    }

    fn keep_order(&mut self, command: &Command, reply: Option<&Reply>, together: &Together) {
        let (name, token) = match (command, reply.map(|reply| &reply.body)) {
            (
                Command::Acquire { name, share: Share::ONE, .. },
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

/// Among those that are there afterwards and were before.
fn places_stay(command: &Command, before: &[Dumped], after: &[Dumped], together: &Together) {
    for old in lines(before) {
        let new = lines(after).find(|line| line.key == old.key);
        let is_reserved_for = |who: &str| {
            lock_of(after, &old.key)
                .is_some_and(|fields| fields == [(who.to_owned(), "0".to_owned())])
        };
        for place in old.places.iter().filter(|(_, who)| !meant(command, who)) {
            let stays = new.as_ref().is_some_and(|new| new.places.contains(place));
            let fine = stays || is_reserved_for(&place.1) || is_marked(before, &old, &place.1);
            assert!(fine, "{command:?} took the place {place:?}: {}", together.story());
        }
    }
}

/// Of those for whom the lock has just been reserved. Whose command it was may have left the line.
fn lowest_ticket_first(
    command: &Command,
    before: &[Dumped],
    after: &[Dumped],
    together: &Together,
) {
    for old in lines(before) {
        let Some([(who, count)]) = lock_of(after, &old.key) else { continue };
        let was_there =
            lock_of(before, &old.key).is_some_and(|old| old.iter().any(|(o, _)| o == who));
        if count != "0" || was_there || who.ends_with(":kept") {
            continue;
        }
        let place = old.places.iter().find(|(_, other)| other == who);
        let is_passed = |other: &str| meant(command, other) || is_marked(before, &old, other);
        let mut others = old.places.iter().filter(|(_, other)| !is_passed(other));
        let lowest = others.all(|(other, _)| place.is_some_and(|(own, _)| own <= other));
        assert!(lowest, "reserved for {who} in {:?}: {}", old.places, together.story());
    }
}

/// By a waiter that found the lock free.
fn nobody_is_passed(command: &Command, before: &[Dumped], after: &[Dumped], together: &Together) {
    let Command::Acquire { name, field, wait: WaitMode::Again { ticket, .. }, .. } = command else {
        return;
    };
    if hashes(before).any(|(key, ..)| key == name.as_str()) {
        return;
    }
    let places = |dump| lines(dump).find(|line| line.key == name.line_key());
    let place = places(before)
        .and_then(|line| line.places.into_iter().find(|(_, who)| who == field))
        .map_or(*ticket as f64, |(ticket, _)| ticket);
    let others = places(after).map(|line| line.places).unwrap_or_default();
    for (other, who) in &others {
        let in_turn = who != field && *other >= place;
        assert!(in_turn, "{field} has passed {who}, or stays: {}", together.story());
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

struct LineKey {
    key: String,
    places: Vec<(f64, String)>,
    ttl: Option<i64>,
}

/// The lines of the names, with the places of our clients.
fn lines(dump: &[Dumped]) -> impl Iterator<Item = LineKey> {
    dump.iter().filter_map(|dumped| match &dumped.value {
        Stored::SortedSet(places) if dumped.key.starts_with(LINE_PREFIX) => Some(LineKey {
            key: dumped.key.clone(),
            places: places.iter().cloned().collect(),
            ttl: dumped.pttl,
        }),
        _ => None,
    })
}

/// Its client let a reservation of the lock run out: a fair lock may skip it and take its places.
fn is_marked(dump: &[Dumped], line: &LineKey, who: &str) -> bool {
    let marks = line.key.replacen(LINE_PREFIX, MARKS_PREFIX, 1);
    let client = who.split(':').next().unwrap();
    let is_in = |set: &Stored| matches!(set, Stored::Set(marked) if marked.contains(client));
    dump.iter().any(|dumped| dumped.key == marks && is_in(&dumped.value))
}

/// The hash of the lock whose line has this key.
fn lock_of<'a>(dump: &'a [Dumped], line: &str) -> Option<&'a [(String, String)]> {
    let is_it = |key: &str| LockName::new(key).is_ok_and(|name| name.line_key() == line);
    hashes(dump).find(|(key, ..)| is_it(key)).map(|(_, fields, _)| fields)
}

type Hash<'a> = (&'a str, &'a [(String, String)], Option<i64>);

fn hashes(dump: &[Dumped]) -> impl Iterator<Item = Hash<'_>> {
    dump.iter().filter_map(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((dumped.key.as_str(), fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
