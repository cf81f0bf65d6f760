//! Random lives of three clients of any kind of lock, as the protocol allows and forbids them:
//! holds that are nested, handed on, repeated, given up; replies that are lost, commands that come
//! late or twice; time, garbage and operators in between.
//!
//! That all servers agree is one half. The other is what the protocol promises whoever keeps to it,
//! checked on what they agree on: see `Promises`.

mod promises;

use crate::backend::Call;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::name::client_channel;
use crate::base::random::Random;
use crate::kinds::Scripts;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;
use crate::kinds::script_tests::lives::promises::Promises;
use crate::kinds::script_tests::together::Together;
use crate::kinds::share::Share;

pub(crate) const CLIENTS: [&str; 3] = [
    "11111111-0000-4000-8000-000000000001",
    "22222222-0000-4000-8000-000000000002",
    "33333333-0000-4000-8000-000000000003",
];
/// The last two share a slot, a fence counter and renewals.
const NAMES: [&str; 3] = ["orders:42", "{s}one", "{s}two"];
const UNIT_MS: u64 = 1_000_000;
/// With these the ends of leases and deadlines never fall together.
const PASSES_MS: [i64; 5] = [1, 3_100, 1_001_000, 3_001_000, 6_001_000];
/// What somebody puts into a hash that may be a lock's.
pub(crate) const DATA: &str = "data";
const FENCES: [&str; 6] =
    ["7", "9000000000000000", "9007199254740990", "9007199254740991", "word", "[1]"];
const COUNTS: [u32; 6] = [2, 2, 3, 65_534, 65_535, 65_536];

#[derive(Debug, Clone)]
struct Hold {
    client: usize,
    name: usize,
    field: String,
    state: State,
}

/// What its client knows of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Held,
    /// It was told to wait, with this ticket.
    Waiting(u64),
    /// An attempt that was not answered, or too late; nothing of it can be granted after this time.
    Dead(i64),
    Over,
}

pub(crate) struct Lives<'a> {
    together: &'a mut Together,
    random: Random,
    names: Vec<LockName>,
    /// Profile and sharding of each client.
    ways: Vec<(WireProfile, bool)>,
    holds: Vec<Hold>,
    /// Commands whose copies may still arrive.
    on_the_way: Vec<Command>,
    promises: Promises,
}

/// One sequence.
pub(crate) fn run_sequence(together: &mut Together, seed: u64, length: u64) {
    together.begin(format!("SEED={seed}, a sequence of commands"));
    let mut random = Random(seed);
    let profiles = [WireProfile::Native, WireProfile::Redisson];
    let ways = CLIENTS.iter().map(|_| (profiles[random.index(2)], random.below(3) == 0)).collect();
    let kind = together.suite().kind;
    let names = NAMES.iter().map(|name| LockName::new(name).unwrap().of_kind(kind)).collect();
    let (holds, on_the_way, promises) = (Vec::new(), Vec::new(), Promises::default());
    let mut lives = Lives { together, random, names, ways, holds, on_the_way, promises };
    for _ in 0..length {
        if lives.random.below(5) == 0 {
            lives.disturb();
        }
        lives.act();
    }
    lives.together.grants += lives.promises.grants;
}

impl Lives<'_> {
    fn act(&mut self) {
        let held = self.pick_hold(|hold| hold.state == State::Held);
        let dead = self.pick_hold(|hold| matches!(hold.state, State::Dead(_)));
        let waiting = self.pick_hold(|hold| matches!(hold.state, State::Waiting(_)));
        let any = self.pick_hold(|_| true);
        match (self.random.below(16), held, dead, any) {
            (4 | 5, Some(at), ..) => self.nest(at),
            (6, Some(at), ..) => match self.random.below(4) {
                0 if self.has(|scripts| scripts.release_at) => self.release_at(at),
                1 if self.has(|scripts| scripts.release_many) => self.release_many(at),
                _ => self.release(at),
            },
            (7 | 8, Some(at), ..) if self.has(|scripts| scripts.hand_off) => self.hand_off(at),
            (7 | 8, Some(at), ..) => self.release(at),
            (9, _, Some(at), _) => self.clean_up(at),
            (0 | 1, ..) if waiting.is_some() => self.again(waiting.unwrap_or_default()),
            (2, ..) if waiting.is_some() => self.give_up(waiting.unwrap_or_default()),
            (10, ..) if !self.on_the_way.is_empty() => self.arrive(),
            (11, _, _, Some(at)) if self.has(|scripts| scripts.force_release) => {
                self.force_release(at)
            }
            (12, _, _, Some(at)) => self.stray(at),
            (13 | 14, _, _, Some(_)) => self.renew(),
            (15, ..) if self.has(|scripts| scripts.inspect) => self.inspect(),
            // The others, and whatever there is nothing for.
            _ => self.acquire(),
        }
    }

    /// Whether the kind has a script of its own for this.
    fn has(&self, script: impl Fn(&Scripts) -> &'static Script) -> bool {
        let suite = self.together.suite();
        suite.kind.scripts().is_some_and(|scripts| suite.has(script(scripts)))
    }

    fn pick_hold(&mut self, wanted: impl Fn(&Hold) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            (0..self.holds.len()).filter(|&at| wanted(&self.holds[at])).collect();
        (!found.is_empty()).then(|| found[self.random.index(found.len())])
    }

    fn new_hold(&mut self, client: usize, name: usize) -> Hold {
        let field = format!("{}:{}", CLIENTS[client], self.holds.len() + 1);
        Hold { client, name, field, state: State::Over }
    }

    fn acquire(&mut self) {
        let (client, name) = (self.random.index(CLIENTS.len()), self.random.index(NAMES.len()));
        let hold = self.new_hold(client, name);
        let hears = self.random.below(4) > 0;
        let wait =
            if self.random.below(4) == 0 { WaitMode::Try } else { WaitMode::First { hears } };
        self.attempt(hold, wait);
    }

    /// Somebody who was told to wait tries again; what becomes of its ticket when nobody knows what
    /// that came to goes on with another hold id.
    fn again(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let State::Waiting(ticket) = hold.state else { return };
        let hears = self.random.below(4) > 0;
        let wait = WaitMode::Again { ticket, hears };
        self.holds[at].state = State::Over;
        if let State::Dead(_) = self.attempt(hold.clone(), wait) {
            let heir = self.new_hold(hold.client, hold.name);
            self.holds.push(Hold { state: State::Waiting(ticket), ..heir });
        }
    }

    fn attempt(&mut self, mut hold: Hold, wait: WaitMode) -> State {
        let not_after = self.not_after();
        let told = match wait {
            WaitMode::Again { ticket, .. } => State::Waiting(ticket),
            _ => State::Over,
        };
        let always = self.names[hold.name].kind().first_attempt_passes_on();
        let passes_on = always || matches!(wait, WaitMode::Again { .. });
        let announce = passes_on.then(|| self.announce(&hold));
        // Without the line's key nobody who waits is granted a free lock.
        let line = match &announce {
            Some(announce) => announce.line,
            None => self.names_line(),
        };
        let command = Command::Acquire {
            name: self.names[hold.name].clone(),
            field: hold.field.clone(),
            share: Share::ONE,
            lease: self.lease(),
            not_after: ServerTime(not_after),
            line,
            wait,
            announce,
            told: Box::default(),
        };
        hold.state = match self.send_or_lose(&command) {
            Some(Some(Body::Acquire(Acquired::Granted { .. }))) => State::Held,
            Some(Some(Body::Acquire(Acquired::Held { place: Some(place), .. }))) => {
                State::Waiting(place.ticket)
            }
            Some(Some(Body::Acquire(Acquired::NotOwn))) => told,
            Some(Some(Body::Acquire(Acquired::Late))) | None => State::Dead(not_after),
            // It may have a place from before.
            Some(_) if told != State::Over => State::Dead(0),
            Some(_) => State::Over,
        };
        let state = hold.state;
        self.holds.push(hold);
        state
    }

    /// Kinds whose scripts know a line name it most of the time.
    fn names_line(&mut self) -> bool {
        self.together.suite().has_line && self.random.below(4) > 0
    }

    /// Another count, which is sent again when it was not answered.
    fn nest(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let count = COUNTS[self.random.index(COUNTS.len())];
        let (name, field) = (self.names[hold.name].clone(), hold.field.clone());
        let up = Command::Acquire {
            name: name.clone(),
            field: field.clone(),
            share: Share::exclusive(count),
            lease: self.lease(),
            not_after: ServerTime(self.not_after()),
            line: false,
            wait: WaitMode::Try,
            announce: None,
            told: Box::default(),
        };
        let down = Command::Release {
            name,
            field,
            share: Share::exclusive(count - 1),
            announce: self.announce(&hold),
            undo: false,
        };
        let command = if self.random.below(3) == 0 { down } else { up };
        for _ in 0..=self.random.below(2) {
            let reply = self.send(&command);
            let gone = [Body::Acquire(Acquired::Gone), Body::Acquire(Acquired::Foreign)];
            if reply.is_some_and(|reply| gone.contains(&reply.body)) {
                self.holds[at].state = State::Over;
                return;
            }
        }
    }

    fn release(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let command = self.release_of(&hold);
        for _ in 0..=self.random.below(2) {
            self.send(&command);
        }
        self.holds[at].state = State::Over;
    }

    /// The lock stays taken for a while, or did so before.
    fn release_at(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let most = self.lease();
        let left_us = 1_000 * i64::try_from(self.lease().millis()).unwrap();
        let command = Command::ReleaseAt {
            name: self.names[hold.name].clone(),
            field: hold.field.clone(),
            free_at: ServerTime(
                self.together.next_us() + [left_us, left_us, -1][self.random.index(3)],
            ),
            most,
            announce: self.announce(&hold),
        };
        self.holds[at].state = State::Over;
        // Its copies may come again and again: what they did first counts.
        for _ in 0..=self.random.below(2) {
            self.send_or_lose(&command);
        }
    }

    /// All that this client holds in that slot.
    fn release_many(&mut self, at: usize) {
        let Hold { client, name, .. } = self.holds[at].clone();
        let goes = |hold: &&mut Hold| {
            hold.client == client && hold.state == State::Held && (hold.name > 0) == (name > 0)
        };
        let mut going = Vec::new();
        for hold in self.holds.iter_mut().filter(goes) {
            hold.state = State::Over;
            going.push(hold.clone());
        }
        let line = self.names_line();
        let mut items = Vec::new();
        for hold in &going {
            let (name, field) = (self.names[hold.name].clone(), hold.field.clone());
            let announce = Announce { line, ..self.announce(hold) };
            items.push(ReleaseItem { name, field, announce });
        }
        let command = Command::ReleaseMany(items);
        for _ in 0..=self.random.below(2) {
            self.send(&command);
        }
    }

    fn release_of(&mut self, hold: &Hold) -> Command {
        let (name, field) = (self.names[hold.name].clone(), hold.field.clone());
        Command::Release {
            name,
            field,
            share: Share::NOTHING,
            announce: self.announce(hold),
            undo: false,
        }
    }

    fn hand_off(&mut self, at: usize) {
        let from = self.holds[at].clone();
        let mut to = self.new_hold(from.client, from.name);
        let not_after = self.not_after();
        let command = Command::HandOff {
            name: self.names[from.name].clone(),
            from: from.field.clone(),
            to: to.field.clone(),
            lease: self.lease(),
            not_after: ServerTime(not_after),
            announce: self.announce(&from),
            line_first: self.random.below(2) == 0,
            hears: self.random.below(4) > 0,
        };
        self.holds[at].state = State::Over;
        to.state = match self.send_or_lose(&command) {
            Some(Some(Body::HandOff(HandedOff::Granted { .. }))) => State::Held,
            Some(Some(Body::HandOff(HandedOff::LineFirst { place, .. }))) => {
                State::Waiting(place.ticket)
            }
            Some(Some(Body::HandOff(HandedOff::ReleasedOnly { late: true, .. }))) => {
                State::Dead(not_after)
            }
            None => {
                // `from` goes on with its own release(0).
                self.holds[at].state = State::Held;
                State::Dead(not_after)
            }
            Some(_) => State::Over,
        };
        self.holds.push(to);
    }

    /// Its place is left, once that is answered.
    fn give_up(&mut self, at: usize) {
        self.holds[at].state = State::Dead(0);
        self.clean_up(at);
    }

    /// release(0) of a dead id, which is done once a reply to it is later than all that it could be
    /// granted by.
    fn clean_up(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let State::Dead(not_after) = hold.state else { return };
        let mut command = self.release_of(&hold);
        // Without the line's key a place may be left.
        let mut named_line = !self.together.suite().has_line;
        if let Command::Release { undo, announce, .. } = &mut command {
            *undo = true;
            named_line |= announce.line;
        }
        let Some(Reply { time: Some(ServerTime(time)), body: Body::Release(done) }) =
            self.send(&command)
        else {
            panic!("no release")
        };
        assert_ne!(done, Released::CountSet);
        if time > not_after && named_line {
            self.holds[at].state = State::Over;
            self.promises.is_cleaned_up(hold.field);
        }
    }

    /// A command that was on its way arrives; perhaps not for the last time.
    fn arrive(&mut self) {
        let at = self.random.index(self.on_the_way.len());
        let command = self.on_the_way[at].clone();
        if self.random.below(2) == 0 || comes_once(&command) {
            self.on_the_way.swap_remove(at);
        }
        self.send(&command);
    }

    fn force_release(&mut self, at: usize) {
        let hold = self.holds[at].clone();
        let command = Command::ForceRelease {
            name: self.names[hold.name].clone(),
            expected: hold.field.clone(),
            not_after: ServerTime(self.not_after()),
            announce: self.announce(&hold),
            client_channel: client_channel(CLIENTS[hold.client]),
        };
        self.send(&command);
    }

    /// What no client of ours sends: a command of a hold that is over, or of one with another name.
    fn stray(&mut self, at: usize) {
        let mut hold = self.holds[at].clone();
        hold.name = self.random.index(NAMES.len());
        let (name, field) = (self.names[hold.name].clone(), hold.field.clone());
        let count = COUNTS[self.random.index(COUNTS.len())];
        let (lease, not_after) = (self.lease(), ServerTime(self.not_after()));
        let command = match self.random.below(3) {
            0 => Command::Acquire {
                name,
                field,
                share: Share::exclusive(count),
                lease,
                not_after,
                line: false,
                wait: WaitMode::Try,
                announce: None,
                told: Box::default(),
            },
            1 => Command::Release {
                name,
                field,
                share: Share::exclusive(count.min(65_535)),
                announce: self.announce(&hold),
                undo: false,
            },
            _ => self.release_of(&hold),
        };
        self.send(&command);
    }

    /// Holds of one client in one slot, whatever became of them; sometimes a question only.
    fn renew(&mut self) {
        let client = self.random.index(CLIENTS.len());
        let first = usize::from(self.random.below(2) == 0);
        let mut holds: Vec<RenewItem> = Vec::new();
        for at in 0..self.holds.len() {
            let hold = self.holds[at].clone();
            let other_slot = usize::from(hold.name > 0) != first;
            if hold.client != client
                || other_slot
                || (hold.state != State::Held && self.random.below(4) > 0)
            {
                continue;
            }
            let lease = if self.random.below(4) == 0 { LeaseMs::PROBE } else { self.lease() };
            let name = self.names[hold.name].clone();
            holds.push(RenewItem { name, field: hold.field, share: Share::ONE, lease });
        }
        if holds.is_empty() {
            return self.acquire();
        }
        let not_after = ServerTime(self.not_after());
        self.send(&Command::Renew { holds, not_after });
    }

    fn inspect(&mut self) {
        let name = self.names[self.random.index(NAMES.len())].clone();
        self.send(&Command::Inspect { name });
    }

    fn disturb(&mut self) {
        let at = self.random.index(NAMES.len());
        let fence = self.names[at].fence_key();
        match self.random.below(14) {
            12 | 13 => {
                self.together.put_beside(NAMES[at], DATA);
                self.promises.disturbed();
            }
            0..=5 => {
                let ms = PASSES_MS[self.random.index(PASSES_MS.len())];
                self.together.pass(ms);
                self.promises.disturbed();
            }
            6 | 7 => {
                let line = self.line_to_disturb(at);
                self.together.remove(line.as_deref().unwrap_or(NAMES[at]));
                self.promises.disturbed();
            }
            8 | 9 => {
                let garbage = self.random.pick(self.together.suite().garbage);
                let line = self.line_to_disturb(at);
                let key = line.as_deref().unwrap_or(NAMES[at]);
                self.together.plant(&format!("{key}={garbage}"));
                self.promises.disturbed();
            }
            10 => {
                self.together
                    .plant(&format!("{fence}={}", FENCES[self.random.index(FENCES.len())]));
                self.promises.tokens_lost(&fence);
            }
            _ if self.random.below(3) == 0 => {
                self.together.flush();
                self.promises.all_lost();
            }
            _ => {
                self.together.remove(&fence);
                self.promises.tokens_lost(&fence);
            }
        }
    }
}

impl Lives<'_> {
    /// Now and then, if the scripts know one.
    fn line_to_disturb(&mut self, at: usize) -> Option<String> {
        let disturbs = self.together.suite().has_line && self.random.below(4) == 0;
        disturbs.then(|| self.names[at].line_key())
    }
}

/// What commands are made of, and how they go.
impl Lives<'_> {
    fn lease(&mut self) -> LeaseMs {
        let units = [3, 5, 9, 86][self.random.index(4)];
        LeaseMs::checked("lease", std::time::Duration::from_millis(units * UNIT_MS)).unwrap()
    }

    /// Later, in the very last moment, just missed, or long ago.
    fn not_after(&mut self) -> i64 {
        let next = self.together.next_us();
        match self.random.below(12) {
            0 => next,
            1 => next - 1,
            2 => 0,
            _ => next + [500_000_000, 2_000_000_000][self.random.index(2)],
        }
    }

    fn announce(&mut self, hold: &Hold) -> Announce {
        let (profile, sharded) = self.ways[hold.client];
        let line = self.names_line();
        Announce { channel: self.names[hold.name].channel(profile), sharded, line, alone: false }
    }

    /// What was answered; none if nobody knows: it was executed or was not, and copies of it may
    /// come later.
    #[expect(clippy::option_option, reason = "lost, refused, answered")]
    fn send_or_lose(&mut self, command: &Command) -> Option<Option<Body>> {
        let lost = self.random.below(4) == 0;
        let executed = !lost || self.random.below(2) == 0;
        if lost && !(executed && comes_once(command)) {
            self.on_the_way.push(command.clone());
        }
        if !executed {
            return None;
        }
        let reply = self.send(command);
        (!lost).then(|| reply.map(|reply| reply.body))
    }

    /// Executes a command everywhere; none if it was refused.
    fn send(&mut self, command: &Command) -> Option<Reply> {
        let far = self.told_to_redis(command);
        let (call, on_redis) = (script_call(command), script_call(&far));
        let (result, dump) = self.together.call_both(&call, &on_redis);
        let reply = match result.map(|value| command.read(value)) {
            Ok(Outcome::Done(reply)) => Some(reply),
            Ok(Outcome::NotExecuted(_)) | Err(_) => None,
            Ok(Outcome::Unknown(failure)) => panic!("{failure:?}"),
        };
        self.promises.keep(command, reply.as_ref(), &dump, self.together);
        reply
    }

    fn told_to_redis(&self, command: &Command) -> Command {
        let mut command = command.clone();
        if let Command::Acquire { wait: WaitMode::Again { ticket, .. }, .. } = &mut command {
            *ticket = self.together.as_told(*ticket);
        }
        match &mut command {
            Command::Acquire { not_after, .. }
            | Command::Renew { not_after, .. }
            | Command::HandOff { not_after, .. }
            | Command::ForceRelease { not_after, .. } => {
                *not_after = ServerTime(self.together.distant(not_after.0))
            }
            Command::ReleaseAt { free_at, .. } => {
                *free_at = ServerTime(self.together.as_far(free_at.0))
            }
            _ => {}
        }
        command
    }
}

/// The hold id of a first attempt has no place yet, so the script does not look for one when it
/// grants a free lock.
fn comes_once(command: &Command) -> bool {
    matches!(command, Command::Acquire { wait: WaitMode::First { .. }, .. })
}

fn script_call(command: &Command) -> ScriptCall {
    let Call::Script(call) = command.to_call() else { panic!("{command:?}") };
    *call
}
