//! What must be true, looked at after every event: here the state of the checks, in the files below
//! the checks themselves. The promises have numbers:
//!
//! | | promise | checked in |
//! |---|---|---|
//! | P1 | never more holders of a name at once than its kind allows, on its server and by what clients believe | `exclusion` |
//! | P2 | a later grant has a larger token, a re-entry the same | here, `looks`, `server_side` |
//! | P3 | a resource that checks tokens loses no update | here |
//! | P4 | nobody but the owner releases or renews | `server_side` |
//! | P5 | the count is that of the guards, here and at the server | `looks`, `server_side` |
//! | P6 | a loss is told in time, and nothing revives what was lost | here, `looks` |
//! | P7 | no immortal lock | `looks`, `server_side` |
//! | P8 | the lock of a client that died is taken over when its lease is over | `looks` |
//! | P9 | no lost wake-up | `looks` |
//! | P10 | nothing is left behind | `looks` |
//! | P11 | `None` only if the lock was held, an error only if nobody answered | here, `looks` |
//! | P12 | without a fault no hold runs out under the watchdog | `looks` |
//! | P13 | of a crowd that wants one lock all the time everybody gets a share, also who is slow to wake up | the tests of crowds, `src/sim.rs` |
//! | P14 | a name stays taken for `at_least` from the grant, and no longer; a guard that is left is not released | `looks`, `server_side` |
//! | P15 | a kind that forbids hand-offs sends none | `server_side` |
//! | P16 | whoever waits for a server that refuses the login is told so, and nobody else is | here, `looks` |
//! | P17 | the lock goes by ticket among those who wait, hear and keep up; a row of hand-offs has an end | `line` |
//!
//! P18, in `latches`, is about the latch, and P19, in the file of the kind, about the permits that are
//! kept as Redisson does it.
//!
//! P17 is for kinds and profiles that have a line; of a kind that grants `in_order` it is looked at for
//! every grant and every reservation. A reservation is nobody's hold. P7, P9 and P10
//! are checked in `line` for what a line adds to them.
//!
//! All others hold for every kind of lock, except where its [`Rules`] say otherwise: P1 asks the
//! kind which holds may be there together. P3 needs a kind whose tokens protect a resource
//! (`tokens_protect`), and so does P2 where it compares a token with those given before its wish.
//! P15 needs one that forbids hand-offs. What is said of *the* hold of a name (P4, P5, P7, P14) is
//! checked for each of its holds.
//!
//! Where data, clocks or locks are taken away from under a holder, that is declared as a breach of
//! its hold: it need not be protected any more, but it must learn of it with the first answer, or
//! by the end of its validity.

mod exclusion;
mod line;
mod looks;
mod server_side;
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::share::Share;
pub(super) use crate::sim::checker::line::Executed;
use crate::sim::checker::line::Line;
pub(super) use crate::sim::checker::line::View;
use crate::sim::checker::server_side::Sent;
use crate::sim::client::Ask;
use crate::sim::client::Client;
use crate::sim::client::Slot;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Rules;
use crate::sim::kinds::id_part;
use crate::sim::kinds::rules_of;
use crate::sim::latches::Latches;
use crate::sim::plan::Plan;

/// How late a timer of ours may ring, and mail arrive.
const LATE: Duration = Duration::from_millis(5);

/// The longest pause between two tries of the same command.
pub(super) const BACK_OFF: Duration = Duration::from_millis(510);

/// A hold as it can be known from outside.
#[derive(Debug, Default)]
struct Hold {
    name: Option<LockName>,
    cell: Option<Arc<HoldCell>>,
    owner: Option<OwnerKey>,
    /// When its first level was.
    granted_at: Option<Moment>,
    /// Granted and not given up: the owner's count.
    levels: Vec<RequestId>,
    /// Those of them that the watchdog keeps.
    watched: Vec<RequestId>,
    /// Those of them that let nobody else have anything beside them.
    exclusive: Vec<RequestId>,
    /// The last level that was given up was one of those.
    ended_exclusive: bool,
    /// The permits that it has, or its levels.
    share: Share,
    max_hold: bool,
    /// Since when nobody has a guard, or the holder knows better.
    guard_end: Moment,
    /// Its last end of validity that was seen.
    valid_until: Moment,
    ended: bool,
    /// Taken away by something that no lock can withstand.
    breach: Option<&'static str>,
    /// Its key came back from a replica after it was given up, or a release of it was refused for
    /// good.
    excused: bool,
    /// It had run out, and is there again since a clock was set back.
    revived: bool,
    lost_before_shutdown: bool,
    /// The latest that was ever sent, on our clock.
    not_after: Moment,
    open_until: Moment,
    lease_ms: u64,
    /// The answers that its client has heard allow it to believe so long, and no longer.
    allowed_until: Moment,
    /// When the command was sent that granted its last level.
    level_sent: Moment,
    /// When it was first granted, and the last end that a grant has set to its key, at the server.
    begun: Moment,
    key_end: Moment,
    /// A guard of it was left to its lease.
    left: bool,
    answered_granted: bool,
    release_sent: bool,
    release_done: bool,
    tokens: Vec<u64>,
    token: Option<u64>,
    /// Which state of the fenced resource it has seen.
    seen: Option<u64>,
}

impl Hold {
    fn has_guard(&self) -> bool {
        !self.levels.is_empty() && !self.ended
    }

    /// Somebody has a guard of it that the watchdog keeps.
    fn is_kept(&self, to: &Client) -> bool {
        let has = |level: &RequestId| {
            to.asks.get(level).is_none_or(|ask| matches!(ask.slot, Slot::Taken))
        };
        self.watched.iter().any(|level| self.levels.contains(level) && has(level))
    }

    /// Its place in the eyes of its client.
    fn place(&self, field: String, cell: &HoldCell) -> Place {
        let rules = rules_of(&cell.name);
        let is_exclusive = |level: &RequestId| self.exclusive.contains(level);
        let count = match rules.count(self.share) {
            // One level is all of it, or there are several.
            1 => cell.count(),
            permits => permits,
        };
        // Once all levels are given up, the last release may still be on its way.
        let exclusive = match self.levels.is_empty() {
            true => self.ended_exclusive,
            false => self.levels.iter().any(is_exclusive),
        };
        Place { exclusive, ..Place::of(field, count) }
    }

    fn is_lost(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.loss().is_some())
    }

    fn is_for(&self, name: &str) -> bool {
        self.name.as_ref().is_some_and(|own| own.as_str() == name)
    }

    /// Its client lets nobody else of its own try. `grace`: how long the last release may be under
    /// way.
    fn is_in_the_way(&self, now: Moment, grace: Duration) -> bool {
        let end = self.not_after.plus(Duration::from_millis(self.lease_ms) + grace);
        let lost = self.is_lost() && self.ended;
        (self.cell.is_some() || self.answered_granted) && !lost && !self.release_done && now <= end
    }
}

/// What is known of a name.
#[derive(Debug)]
struct Name {
    lock: LockName,
    last_token: u64,
    /// The largest that a caller has got.
    answered_token: u64,
    free_since: Option<Moment>,
    /// It became free by a release that was published.
    announced: bool,
    /// Whoever was refused may sleep until then, if nobody wakes it.
    sleep_until: Moment,
    /// Holds whose place nobody else may have before that moment, unless it is taken away.
    taken: Vec<(String, Moment)>,
    /// Holds that are there without anybody who wants them, and since when.
    orphans: Vec<(String, Moment)>,
    // ---- a resource that takes only what comes with the largest token so far
    highest: u64,
    version: u64,
    line: Line,
}

impl Name {
    fn new(lock: &LockName) -> Self {
        Self {
            lock: lock.clone(),
            last_token: 0,
            answered_token: 0,
            free_since: None,
            announced: false,
            sleep_until: Moment::ZERO,
            taken: Vec::new(),
            orphans: Vec::new(),
            highest: 0,
            version: 0,
            line: Line::default(),
        }
    }

    fn rules(&self) -> &'static dyn Rules {
        rules_of(&self.lock)
    }

    /// It has an owner that is not wanted: since when.
    fn orphan_since(&mut self, now: Moment, field: &str) -> Moment {
        if let Some((_, since)) = self.orphans.iter().find(|(known, _)| known == field) {
            return *since;
        }
        self.orphans.push((field.to_owned(), now));
        now
    }
}

/// What was known when a wish was uttered.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// The largest token that a caller had got.
    floor: u64,
    /// Since when its client has wanted the lock, for this wish or an earlier one.
    since: Moment,
}

/// Whether a server has refused a login, or denied something.
#[derive(Debug, Clone, Copy, Default)]
struct Refusals {
    login: bool,
    permission: bool,
}

impl Refusals {
    fn note(&mut self, failure: &Failure) {
        self.login |= failure.kind == FailureKind::Auth;
        self.permission |= failure.kind == FailureKind::Denied;
    }
}

#[derive(Debug)]
pub(super) struct Checker {
    plan: Plan,
    ids: Vec<String>,
    holds: BTreeMap<(usize, u64), Hold>,
    /// Those that somebody may believe in.
    live: BTreeSet<(usize, u64)>,
    /// The hold that a level belongs to.
    levels: BTreeMap<(usize, RequestId), u64>,
    /// Up to when the name of a level has to stay taken, once somebody has its guard.
    kept: BTreeMap<(usize, RequestId), Moment>,
    names: BTreeMap<String, Name>,
    sent: BTreeMap<(usize, OpId), Sent>,
    /// The hold beside whose reads another one may write, by that other one.
    upgraded: BTreeMap<(usize, u64), (usize, u64)>,
    /// Hold ids of attempts whose end is unknown, and until when they may certainly still be
    /// granted.
    dead: BTreeMap<(usize, u64), Moment>,
    /// Holds that the answer just heard has ended.
    must_end: Vec<(usize, u64)>,
    wishes: BTreeMap<(usize, RequestId), Wish>,
    /// When an answer last said that somebody has a name.
    held_said: BTreeMap<(usize, String), Moment>,
    /// When the server last said so of another client's hold, and this one has not had it since.
    refused: BTreeMap<(usize, String), Moment>,
    /// Whether a client has had no answer since something failed.
    troubled: Vec<bool>,
    /// What each client was told of logins and of permissions.
    refusals: Vec<Refusals>,
    /// The engine is being told that this server refuses its login.
    refuses_login: Option<ServerId>,
    /// The same of what is being told to a client now: it looks at its timers first.
    fails: bool,
    /// A server's clock was set, so that keys live longer or shorter than meant.
    pub(super) jumped: bool,
    revivals: bool,
    pub(super) clock_went_back: bool,
    pub(super) fence_was_lost: bool,
    pub(super) latches: Latches,
    /// By how much the clocks of servers that followed each other differed, in all.
    skew: Duration,
    crashed: Vec<bool>,
    reports: BTreeMap<usize, Vec<String>>,
    pub(super) grants: u64,
    pub(super) losses: u64,
    pub(super) breaches: u64,
    pub(super) writes: u64,
    pub(super) refused_writes: u64,
}

impl Checker {
    pub(super) fn new(plan: &Plan, ids: Vec<String>, names: &[LockName]) -> Self {
        Self {
            crashed: vec![false; ids.len()],
            plan: plan.clone(),
            troubled: vec![false; ids.len()],
            ids,
            holds: BTreeMap::new(),
            live: BTreeSet::new(),
            levels: BTreeMap::new(),
            kept: BTreeMap::new(),
            names: names.iter().map(|name| (name.to_string(), Name::new(name))).collect(),
            sent: BTreeMap::new(),
            upgraded: BTreeMap::new(),
            dead: BTreeMap::new(),
            must_end: Vec::new(),
            wishes: BTreeMap::new(),
            held_said: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: vec![Refusals::default(); plan.clients],
            refuses_login: None,
            fails: false,
            jumped: false,
            revivals: false,
            clock_went_back: false,
            fence_was_lost: false,
            latches: Latches::new(),
            skew: Duration::ZERO,
            reports: BTreeMap::new(),
            grants: 0,
            losses: 0,
            breaches: 0,
            writes: 0,
            refused_writes: 0,
        }
    }

    fn key_of(&self, field: &str) -> Option<(usize, u64)> {
        let (client, hold) = id_part(field).split_once(':')?;
        let client = self.ids.iter().position(|id| id == client)?;
        Some((client, hold.parse().ok()?))
    }

    fn hold_of(&mut self, field: &str) -> Option<&mut Hold> {
        let key = self.key_of(field)?;
        Some(self.holds.entry(key).or_default())
    }

    /// What is there was reserved for its hold, and never granted to it.
    fn is_only_reserved(&self, name: &LockName, place: &Place) -> bool {
        let never_granted = || {
            let hold = self.key_of(&place.field).and_then(|key| self.holds.get(&key));
            hold.is_some_and(|hold| hold.begun == Moment::ZERO)
        };
        place.is_reservation() || !rules_of(name).shows_reservations() && never_granted()
    }

    fn holds_of(&mut self, client: usize) -> impl Iterator<Item = &mut Hold> {
        self.holds.range_mut((client, 0)..=(client, u64::MAX)).map(|(_, hold)| hold)
    }

    /// Lost data and a clock that went back: the two that tokens do not survive together.
    fn tokens_may_repeat(&self) -> bool {
        self.clock_went_back && self.fence_was_lost
    }

    // ---- what is declared

    /// Nothing protects this hold any more.
    pub(super) fn breach(&mut self, _now: Moment, field: &str, why: &'static str) {
        self.breaches += 1;
        if let Some(hold) = self.hold_of(field) {
            hold.breach.get_or_insert(why);
        }
    }

    /// A key that was given up is there again, and nobody knows.
    pub(super) fn revive(&mut self, field: &str) {
        if let Some(hold) = self.hold_of(field) {
            hold.excused = true;
        }
    }

    /// What had run out on a server is there again, because its clock was set back.
    pub(super) fn note_revived(&mut self, field: &str) {
        self.revive(field);
        if let Some(hold) = self.hold_of(field) {
            hold.revived = true;
            self.revivals = true;
        }
    }

    /// P1, by the key, of what nothing has brought back.
    fn check_places(&self, lock: &Found) -> Result<(), String> {
        if !self.revivals {
            return self.check_holds(lock);
        }
        let is_revived = |place: &Place| {
            let hold = self.key_of(&place.field).and_then(|key| self.holds.get(&key));
            hold.is_some_and(|hold| hold.revived)
        };
        let mut others = lock.clone();
        others.holds.retain(|place| !is_revived(place));
        self.check_holds(&others)
    }

    /// Whatever became of the key was not announced.
    pub(super) fn silence(&mut self, _now: Moment, name: &LockName) {
        if let Some(name) = self.names.get_mut(name.as_str()) {
            name.announced = false;
        }
        self.keeps_no_more(name.as_str(), None);
    }

    /// A hold of the name was taken away, or all of them: it need not stay taken, for levels either
    /// that were granted before and are picked up later.
    fn keeps_no_more(&mut self, name: &str, field: Option<&str>) {
        if let Some(name) = self.names.get_mut(name) {
            name.taken.retain(|(hold, _)| field.is_some_and(|field| field != hold));
        }
        let only = field.and_then(|field| self.key_of(field));
        let (levels, holds) = (&self.levels, &self.holds);
        self.kept.retain(|(client, request), _| {
            let key = levels.get(&(*client, *request)).map(|id| (*client, *id));
            let hold = key.and_then(|key| holds.get(&key));
            let is_meant = field.is_none() || only.is_some() && only == key;
            !(is_meant && hold.is_some_and(|hold| hold.is_for(name)))
        });
    }

    pub(super) fn skew(&mut self, clock_us: i64) {
        self.skew += Duration::from_micros(clock_us.unsigned_abs());
    }

    // ---- what is told to the checker

    pub(super) fn on_crashed(&mut self, now: Moment, client: usize) {
        self.crashed[client] = true;
        self.on_finished(now, client);
    }

    pub(super) fn on_finished(&mut self, now: Moment, client: usize) {
        for hold in self.holds_of(client) {
            if hold.has_guard() {
                hold.guard_end = now;
            }
            hold.levels.clear();
        }
        let own: Vec<_> = self.live.range((client, 0)..=(client, u64::MAX)).copied().collect();
        for key in own {
            self.live.remove(&key);
        }
        self.names.values_mut().for_each(|name| name.line.forget(client));
    }

    pub(super) fn on_wish(&mut self, now: Moment, client: usize, acquire: &Acquire, to: &Client) {
        let floor = self.names.get(acquire.name.as_str()).map_or(0, |name| name.answered_token);
        let others =
            to.asks.iter().filter(|(_, ask)| ask.open && ask.lock.as_ref() == Some(&acquire.name));
        let since = others
            .filter_map(|(request, _)| self.wishes.get(&(client, *request)))
            .map(|wish| wish.since);
        let since = since.min().unwrap_or(now);
        if self.keeps_others_away(now, client, acquire.name.as_str()) {
            self.held_said.insert((client, acquire.name.to_string()), now);
        }
        self.wishes.insert((client, acquire.request), Wish { floor, since });
    }

    pub(super) fn before(&mut self, now: Moment, client: usize, event: &Event) {
        self.troubled[client] |= std::mem::take(&mut self.fails);
        match event {
            Event::Release { level, .. } => self.end_level(now, client, *level),
            Event::Downgrade { hold, level, .. } => {
                if let Some(hold) = self.holds.get_mut(&(client, *hold)) {
                    hold.exclusive.retain(|other| other != level);
                }
            }
            Event::Leave { hold, level } => {
                let hold = self.holds.get_mut(&(client, *hold));
                if let Some(hold) = hold.filter(|hold| hold.levels.contains(level)) {
                    hold.left |= hold.cell.as_ref().is_some_and(|cell| cell.is_held(now));
                }
                self.end_level(now, client, *level);
            }
            Event::Cancel { request } | Event::Withdrawn { request } => {
                self.end_level(now, client, *request)
            }
            Event::Replied { op, outcome, .. } => {
                // A server that answers with an error of its own is there, and the link works.
                let cut_short = self.sent.get(&(client, *op)).is_some_and(|sent| sent.cut_short);
                self.fails = matches!(outcome, Outcome::Unknown(failure) if failure.kind.is_transient())
                    && !cut_short;
                self.troubled[client] &= !matches!(outcome, Outcome::Done(_));
                if let Outcome::NotExecuted(failure) = outcome {
                    self.refusals[client].note(failure);
                }
                self.on_replied(now, client, *op, outcome);
            }
            Event::ConnectFailed { server, failure } => {
                self.refusals[client].note(failure);
                self.refuses_login = (failure.kind == FailureKind::Auth).then_some(*server);
            }
            Event::Down { .. } => self.fails = true,
            Event::Shutdown { .. } => {
                for hold in self.holds_of(client) {
                    // Lost is also what was over before anybody looked.
                    hold.lost_before_shutdown =
                        hold.cell.as_ref().is_some_and(|cell| !cell.is_held(now));
                    if hold.has_guard() {
                        hold.guard_end = now;
                    }
                    hold.levels.clear();
                }
            }
            _ => {}
        }
    }

    fn end_level(&mut self, now: Moment, client: usize, level: RequestId) {
        let Some(id) = self.levels.remove(&(client, level)) else { return };
        let Some(hold) = self.holds.get_mut(&(client, id)) else { return };
        let before = hold.levels.len();
        hold.levels.retain(|other| *other != level);
        hold.ended_exclusive = hold.exclusive.contains(&level);
        if before == 1 && hold.levels.is_empty() && !hold.ended {
            hold.guard_end = now;
        }
    }

    // ---- answers

    pub(super) fn on_answer(
        &mut self,
        now: Moment,
        client: usize,
        request: RequestId,
        answer: &Answer,
        to: &Client,
    ) -> Result<(), String> {
        self.latches.on_answer(client, request, answer)?;
        let ask = to.asks.get(&request);
        let wish = self.wishes.remove(&(client, request));
        if let Answer::Failed(error) = answer {
            self.look_at_error(now, (client, request), ask, error)?;
        }
        match answer {
            Answer::Granted(cell) => self.on_granted(now, (client, request), cell, wish, to),
            Answer::NotGranted => self.on_not_granted(now, (client, request), wish, to),
            Answer::ShutDown(fates) => {
                let left = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Left(_)));
                let names = left.map(|(name, _)| name.to_string()).collect();
                self.reports.insert(client, names);
                Ok(())
            }
            Answer::Failed(error)
                if self.plan.calm && ask.is_some_and(|ask| ask.lock.is_some()) =>
            {
                self.on_failed_in_calm(now, client, ask, error)
            }
            _ => Ok(()),
        }
    }

    /// P16: an error that tells people to mend a login or permissions is about something that was
    /// refused.
    fn look_at_error(
        &self,
        now: Moment,
        (client, request): (usize, RequestId),
        ask: Option<&Ask>,
        error: &Error,
    ) -> Result<(), String> {
        let told = self.refusals[client];
        // Its time may be over at the same instant.
        let has_time = |ask: &Ask| {
            let patience = |told: Moment| told.plus(self.plan.outage_limit);
            ask.wait == Some(Wait::Forever) && ask.told.is_some_and(|told| now < patience(told))
        };
        let is_right = match error {
            Error::Auth { .. } => told.login,
            Error::Denied { .. } => told.permission,
            Error::Unavailable { .. } => self.refuses_login.is_none() || !ask.is_some_and(has_time),
            _ => true,
        };
        match is_right {
            true => Ok(()),
            false => {
                Err(format!("P16: client {client} {request:?} is told {error:?}, after {told:?}"))
            }
        }
    }

    /// P11: somebody, or something, said that the lock is held; and not only this client itself of
    /// what it has given up, while the server gives no answer.
    fn on_not_granted(
        &self,
        now: Moment,
        (client, request): (usize, RequestId),
        wish: Option<Wish>,
        to: &Client,
    ) -> Result<(), String> {
        let Some(ask) = to.asks.get(&request) else { return Ok(()) };
        let Some(lock) = &ask.lock else { return Ok(()) };
        if ask.wait == Some(Wait::Forever) {
            return Err(format!(
                "P11: client {client} {request:?} waits without a limit and is told None"
            ));
        }
        // A wish of the same owner that is under way counts as an answer, too.
        let mut others = to.asks.iter().filter(|(id, other)| **id != request && other.open);
        if others.any(|(_, other)| other.lock == ask.lock && other.owner == ask.owner) {
            return Ok(());
        }
        let key = (client, lock.to_string());
        let said = self.held_said.get(&key).copied();
        let refused =
            self.refused.get(&key).copied() >= wish.as_ref().map(|wish| wish.since).or(Some(now));
        let end = match (ask.wait, ask.told) {
            (Some(Wait::For(limit)), Some(told)) => now.min(told.plus(limit)),
            _ => now,
        };
        // Of several servers it is not known here which of them gave the last answer.
        if self.plan.primaries.is_none()
            && self.troubled[client]
            && !refused
            && !self.had_all_until(end, now, client, lock.as_str())
        {
            return Err(format!(
                "P11: client {client} {request:?} is told None of {lock} by nobody but itself"
            ));
        }
        if self.keeps_others_away(now, client, lock.as_str())
            || said >= wish.map(|wish| wish.since).or(Some(now))
        {
            return Ok(());
        }
        Err(format!(
            "P11: client {client} {request:?} is told None, and nobody said that {lock} is held"
        ))
    }

    /// Without any fault only a wait too short for one round trip may end without an answer, or one
    /// for a hold that is over by then; or one whose owner got the lock elsewhere so shortly before
    /// its end that too little was left for a re-entry.
    fn on_failed_in_calm(
        &self,
        now: Moment,
        client: usize,
        ask: Option<&Ask>,
        error: &Error,
    ) -> Result<(), String> {
        let long =
            self.plan.command_timeout.max(Duration::from_micros(100_000 + 8 * self.plan.latency));
        let just_granted = |ask: &Ask| {
            let of_client =
                self.holds.range((client, 0)..=(client, u64::MAX)).map(|(_, hold)| hold);
            of_client.filter(|hold| hold.owner == ask.owner).any(|hold| {
                hold.cell.as_ref().is_some_and(|cell| Some(&cell.name) == ask.lock.as_ref())
                    && hold.granted_at.is_some_and(|at| now.since(at) < long)
            })
        };
        match (error, ask.and_then(|ask| ask.wait)) {
            (
                Error::HoldCountLimit { .. }
                | Error::Lost { .. }
                | Error::GuardOfLostHold { .. }
                | Error::WouldDeadlock { .. }
                // The hold has already lasted longer.
                | Error::InvalidOption { option: "max_hold", .. },
                _,
            )
            | (Error::Unavailable { .. }, Some(Wait::Once)) => Ok(()),
            (Error::Unavailable { .. }, Some(Wait::For(wait))) if wait < long => Ok(()),
            (Error::Unavailable { .. }, _) if ask.is_some_and(|ask| self.is_brief(ask)) => Ok(()),
            (Error::Unavailable { .. }, Some(Wait::For(_))) if ask.is_some_and(just_granted) => Ok(()),
            _ => Err(format!("P11: {ask:?} failed without any fault: {error}")),
        }
    }

    /// Wants a hold that may be over before its grant is there.
    fn is_brief(&self, ask: &Ask) -> bool {
        let way = Duration::from_micros(20_000 + 8 * self.plan.latency);
        [ask.lease, ask.max_hold].into_iter().flatten().any(|life| life < way)
    }

    fn on_granted(
        &mut self,
        now: Moment,
        (client, request): (usize, RequestId),
        cell: &Arc<HoldCell>,
        wish: Option<Wish>,
        to: &Client,
    ) -> Result<(), String> {
        self.grants += 1;
        let repeats = self.tokens_may_repeat();
        let ask = to.asks.get(&request);
        let owner = ask.and_then(|ask| ask.owner);
        let hold = self.holds.entry((client, cell.id)).or_default();
        let (id, token) = (cell.id, cell.token());
        if !cell.is_held(now) {
            return Err(format!("P6: client {client} hold {id} is granted and not held"));
        }
        if hold.cell.is_some() && hold.owner != owner {
            return Err(format!("P4: client {client} hold {id} has two owners"));
        }
        if !hold.tokens.contains(&token) {
            return Err(format!("P2: client {client} hold {id}: nobody minted {token}"));
        }
        if hold.token.is_some_and(|known| known != token) {
            return Err(format!("P2: client {client} hold {id}: another token on re-entry"));
        }
        // A wish may get the grant of an earlier one of its owner. With one holder, nobody else can
        // have got a token between that grant and its answer.
        let in_order = rules_of(&cell.name).promises().tokens_protect && !repeats;
        if hold.cell.is_none() && in_order && wish.is_some_and(|wish| token <= wish.floor) {
            return Err(format!(
                "P2: client {client} hold {id}: token {token} was wished for after {wish:?} was given"
            ));
        }
        hold.owner = owner;
        hold.granted_at.get_or_insert(now);
        hold.token = Some(token);
        hold.cell = Some(Arc::clone(cell));
        hold.levels.push(request);
        hold.watched.extend(ask.filter(|ask| ask.watched).map(|_| request));
        if let Some(share) = ask.and_then(|ask| ask.share) {
            hold.share = share;
            hold.exclusive.extend(rules_of(&cell.name).is_exclusive(share).then_some(request));
        }
        hold.max_hold |= ask.is_some_and(|ask| ask.max_hold.is_some());
        self.levels.insert((client, request), id);
        if let Some(at_least) = ask.and_then(|ask| ask.at_least) {
            let end =
                hold.level_sent.plus(at_least.saturating_sub(drifts_by(at_least, self.plan.drift)));
            self.kept.insert((client, request), end);
        }
        if !hold.ended {
            self.live.insert((client, id));
        }
        if let Some(name) = self.names.get_mut(cell.name.as_str()) {
            name.answered_token = name.answered_token.max(token);
        }
        Ok(())
    }

    /// Its caller has the guard of a level.
    pub(super) fn on_taken(&mut self, client: usize, request: RequestId) {
        let Some(end) = self.kept.remove(&(client, request)) else { return };
        let Some(id) = self.levels.get(&(client, request)).copied() else { return };
        let Some(hold) = self.holds.get(&(client, id)).filter(|hold| hold.breach.is_none()) else {
            return;
        };
        let field = format!("{}:{id}", self.ids[client]);
        if let Some(name) = hold.name.as_ref().and_then(|name| self.names.get_mut(name.as_str())) {
            name.taken.push((field, end));
        }
    }

    // ---- P3: a holder works on what the lock protects, whether it still has it or not

    pub(super) fn use_resource(
        &mut self,
        now: Moment,
        client: usize,
        cell: &Arc<HoldCell>,
        write: bool,
    ) -> Result<(), String> {
        let (unharmed, repeats) =
            (self.breaches == 0 && !self.plan.drifts_too_much(), self.tokens_may_repeat());
        let (Some(name), Some(hold)) =
            (self.names.get_mut(cell.name.as_str()), self.holds.get_mut(&(client, cell.id)))
        else {
            return Ok(());
        };
        if !name.rules().promises().tokens_protect {
            return Ok(());
        }
        let token = cell.token();
        self.writes += u64::from(write);
        if token < name.highest {
            self.refused_writes += 1;
            if cell.is_held(now) && unharmed && !repeats {
                return Err(format!(
                    "P3: client {client} hold {} holds {} and is refused",
                    cell.id, cell.name
                ));
            }
            return Ok(());
        }
        name.highest = token;
        match hold.seen {
            Some(seen) if write => {
                if seen != name.version && !repeats {
                    return Err(format!(
                        "P3: client {client} hold {} overwrites what it has not seen",
                        cell.id
                    ));
                }
                name.version += 1;
                hold.seen = Some(name.version);
            }
            _ => hold.seen = Some(name.version),
        }
        Ok(())
    }
}

/// By how much a clock is wrong after some time, if it runs so many millionths faster or slower.
pub(super) fn drifts_by(time: Duration, drift: u64) -> Duration {
    time / 1_000 * u32::try_from(drift).unwrap_or(0) / 1_000
}
