//! What a seed does: how many clients and servers, how fast the network is, and which faults happen
//! how often.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backend::Script;
use crate::base::clock::Moment;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::sim::chance::Chance;
use crate::sim::kinds;

/// Somewhere in the machine's life, so that subtractions near zero do not hide anything.
pub(super) const START: Moment = Moment(5_000_000_000);

/// What is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed {
    pub(super) number: u64,
    /// Of all names; if none is given, the seed draws them.
    pub(super) kind: Option<Kind>,
    /// Whether servers misdirect and refuse logins, too. Seeds that found something before that was
    /// simulated do without.
    pub(super) with_access_faults: bool,
    /// Servers run this in place of the script of the same name.
    pub(super) instead: Option<&'static Script>,
}

impl Seed {
    pub(super) fn of(number: u64, kind: Option<Kind>) -> Self {
        Self { number, kind, with_access_faults: true, instead: None }
    }

    /// What this seed was when there was one kind of lock, and neither misdirections nor refused
    /// logins.
    pub(super) fn of_old(number: u64) -> Self {
        Self { number, kind: Some(Kind::Reentrant), with_access_faults: false, instead: None }
    }
}

/// Things that happen from outside, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nemesis {
    CutCommands,
    CutPubSub,
    CutBoth,
    /// Messages are dropped, then the backend says so.
    Lag,
    /// A server does nothing for a while.
    Pause,
    /// Nobody can connect to a server for a while, and everybody is cut.
    Unreachable,
    OutOfMemory,
    /// A server answers everything with one error for a while.
    Trouble,
    /// SCRIPT FLUSH.
    ScriptFlush,
    /// A process stands still for a while.
    Freeze,
    /// A server starts anew with its data, after a while.
    Restart,
    /// A slot moves from one server to another.
    MoveSlot,
    /// A client dies; its locks run out.
    Crash,
    /// Servers refuse the login of a client for a while, or no longer take its calls.
    Login,
    // ---- declared breaches from here on: a hold that they hit is not protected any more
    /// A replica takes over, without the last writes.
    Failover,
    /// A server starts anew without its data.
    DataLoss,
    /// FLUSHALL: nobody is told.
    Flush,
    /// DEL of a lock, of its line or of its fence counter, by an operator or by eviction.
    Delete,
    Plant,
    ClockStep,
}

const HARMLESS: [Nemesis; 13] = [
    Nemesis::CutCommands,
    Nemesis::CutPubSub,
    Nemesis::CutBoth,
    Nemesis::Lag,
    Nemesis::Pause,
    Nemesis::Unreachable,
    Nemesis::OutOfMemory,
    Nemesis::Trouble,
    Nemesis::ScriptFlush,
    Nemesis::Freeze,
    Nemesis::Restart,
    Nemesis::MoveSlot,
    Nemesis::Crash,
];
const BREACHES: [Nemesis; 6] = [
    Nemesis::Failover,
    Nemesis::DataLoss,
    Nemesis::Flush,
    Nemesis::Delete,
    Nemesis::Plant,
    Nemesis::ClockStep,
];

/// What is left out of a run, to see whether it fails without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mask {
    /// (client, task, number of its step)
    pub(super) steps: BTreeSet<(usize, usize, u64)>,
    pub(super) nemeses: BTreeSet<u64>,
    pub(super) faults: BTreeSet<u64>,
    pub(super) clients: BTreeSet<usize>,
}

/// Faults of single commands and messages, in permille.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) lost_request: u64,
    pub(super) lost_reply: u64,
    pub(super) slow: u64,
    /// Executed twice at once.
    pub(super) duplicate: u64,
    /// Answered with one of Redis's errors.
    pub(super) refused: u64,
    /// A command within a script is refused.
    pub(super) in_script: u64,
    /// Of what was on its way when the connection was cut: executed later.
    pub(super) ghost: u64,
    /// Of what was executed and ended unknown: executed once more, later.
    pub(super) late_copy: u64,
    pub(super) connect_fails: u64,
    /// A node of a cluster says TRYAGAIN, or names a node that has not the slot, as one does that
    /// has not heard of a change.
    pub(super) misdirected: u64,
    pub(super) stale_confirmation: u64,
    pub(super) subscribe_refused: u64,
    /// Messages that get lost without anybody being told.
    pub(super) silent_loss: u64,
    pub(super) message_twice: u64,
    pub(super) message_overtaken: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: usize,
    pub(super) tasks: usize,
    /// The kind of each name.
    pub(super) kinds: Vec<Kind>,
    /// How many primaries a cluster has; `None`: one server, whose place another may take.
    pub(super) primaries: Option<usize>,
    pub(super) sharded: bool,
    /// Longest one-way delay, in µs.
    pub(super) latency: u64,
    /// Up to when tasks begin something new.
    pub(super) horizon: Duration,
    pub(super) lease: Duration,
    pub(super) command_timeout: Duration,
    pub(super) outage_limit: Duration,
    pub(super) fallback: Duration,
    /// In Redisson's profile there are no lines.
    pub(super) profile: WireProfile,
    pub(super) hand_off: bool,
    pub(super) max_hold_count: u32,
    /// No faults at all, but clients that die: what has to be quick is checked to be quick.
    pub(super) calm: bool,
    pub(super) faults: Faults,
    pub(super) nemeses: Vec<Nemesis>,
    pub(super) nemesis_every: Duration,
    /// When the faults end, nobody hears anything for a while.
    pub(super) deaf_end: bool,
    // ---- the servers' clocks
    /// How far they may be from ours, either way, in µs.
    pub(super) offset_us: u64,
    /// How far those of a cluster may be from each other.
    pub(super) apart_us: u64,
    /// How much faster or slower than ours they may be, in millionths.
    pub(super) drift: u64,
    // ---- callers
    pub(super) cancel: u64,
    pub(super) lazy: u64,
    pub(super) force: u64,
    pub(super) long_hold: u64,
    pub(super) try_lock: u64,
    /// How often a name is to stay taken at least for a while.
    pub(super) at_least: u64,
    /// How often a guard is left to its lease.
    pub(super) leave: u64,
    /// How often a task uses the latch.
    pub(super) latch: u64,
    pub(super) shutdown: u64,
    pub(super) think: u64,
    /// They lock and unlock one name without an end, and nothing goes wrong: everybody has to get a
    /// share.
    pub(super) crowd: bool,
    /// A redirection takes its way back to the client before it is followed.
    pub(super) redirections_travel: bool,
    /// How long a crowd's grants are kept, apart from `think`.
    pub(super) hold: Duration,
    /// One task of the first client waits for a short time, or not at all.
    pub(super) hurried: bool,
    /// One that hears messages so much later, as if it were slow to wake up.
    pub(super) late: Option<(usize, Duration)>,
    /// How much longer the way to a server is for each client, one way; none for those who are not
    /// named.
    pub(super) distances: Vec<Duration>,
    /// So many hear every message and want nothing.
    pub(super) idle_listeners: usize,
}

impl Plan {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let calm = chance.permille(150);
        let faults = if calm { Faults::default() } else { draw_faults(chance) };
        let breaches = !calm && chance.permille(400);
        let primaries = chance.permille(400).then(|| chance.index(2) + 2);
        let nemeses = draw_nemeses(chance, calm, breaches, primaries.is_some());
        // One in twenty has the defaults that users have.
        let lease = *chance.pick(&[
            200, 200, 200, 500, 500, 500, 500, 500, 500, 500, 1_000, 1_000, 1_000, 1_000, 1_000,
            3_000, 3_000, 3_000, 3_000, 30_000,
        ]);
        let slow = lease == 30_000;
        let timeout = if slow { 1_000 } else { *chance.pick(&[50, 150, 400, 1_000]) };
        let fallback = if slow { 5_000 } else { *chance.pick(&[500, 1_000, 5_000, 3_600_000]) };
        Self {
            clients: chance.range(1, 4) as usize,
            tasks: chance.range(1, 5) as usize,
            kinds: vec![Kind::Reentrant; chance.range(1, 2) as usize],
            primaries,
            sharded: chance.permille(500),
            latency: *chance.pick(&[200, 1_000, 5_000, 15_000]),
            horizon: Duration::from_millis(if slow { 90_000 } else { chance.range(400, 2_500) }),
            lease: Duration::from_millis(lease),
            command_timeout: Duration::from_millis(timeout.min(lease)),
            outage_limit: Duration::from_millis(if slow {
                30_000
            } else {
                chance.range(300, 3_000)
            }),
            fallback: Duration::from_millis(fallback),
            profile: WireProfile::Native,
            hand_off: chance.permille(800),
            max_hold_count: *chance.pick(&[2, 65_535, 65_535]) as u32,
            calm,
            faults,
            nemeses,
            nemesis_every: Duration::from_millis(if slow { 4_000 } else { chance.range(100, 900) }),
            deaf_end: false,
            offset_us: chance.range(0, 3_600_000_000),
            apart_us: if chance.permille(100) { 600_000_000 } else { 50_000 },
            drift: if breaches && chance.permille(150) { 50_000 } else { chance.range(0, 4_000) },
            cancel: *chance.pick(&[0, 50, 200, 500]),
            lazy: *chance.pick(&[0, 30, 150]),
            force: if breaches && chance.permille(500) { chance.range(1, 60) } else { 0 },
            long_hold: *chance.pick(&[0, 50, 200]),
            try_lock: *chance.pick(&[0, 100, 500]),
            at_least: 0,
            leave: 0,
            latch: 0,
            shutdown: if calm { 0 } else { *chance.pick(&[0, 0, 300]) },
            think: if slow { 4_000_000 } else { *chance.pick(&[2_000, 10_000, 50_000, 200_000]) },
            crowd: false,
            redirections_travel: false,
            hold: Duration::ZERO,
            hurried: false,
            late: None,
            distances: Vec::new(),
            idle_listeners: 0,
        }
    }

    /// One in eight has leases that last longer than a wake-up may take with faults: no end of a
    /// lease makes up for one that was lost.
    pub(super) fn patient(self, chance: &mut Chance) -> Self {
        if self.calm || !chance.permille(125) {
            return self;
        }
        Self {
            lease: Duration::from_secs(10),
            command_timeout: self.command_timeout.min(Duration::from_millis(150)),
            fallback: Duration::from_secs(3_600),
            deaf_end: true,
            ..self
        }
    }

    /// In one of three, names stay taken after their holds.
    pub(super) fn keeping(self, chance: &mut Chance) -> Self {
        if !chance.permille(333) {
            return self;
        }
        Self {
            at_least: *chance.pick(&[100, 300, 1_000]),
            leave: *chance.pick(&[0, 0, 30, 100]),
            ..self
        }
    }

    /// In one of three with a single primary, tasks use a latch, too.
    pub(super) fn latching(self, chance: &mut Chance) -> Self {
        if self.primaries.is_some() || !chance.permille(333) {
            return self;
        }
        Self { latch: *chance.pick(&[50, 200, 500]), ..self }
    }

    /// In one of five, the first name is of another kind than the reentrant lock, and the others
    /// are of any.
    pub(super) fn of_kinds(mut self, chance: &mut Chance, only: Option<Kind>) -> Self {
        let mixed = chance.permille(200);
        for (at, kind) in self.kinds.iter_mut().enumerate() {
            let drawn = *chance.pick(if at == 0 { &kinds::ALL[1..] } else { kinds::ALL });
            *kind = only.unwrap_or(if mixed { drawn } else { *kind });
        }
        if self.kinds.iter().any(|kind| kind.waits_per_owner()) {
            // A client may die with many places. Only the fallback tells the others that they moved up.
            self.fallback = self.fallback.min(Duration::from_secs(5));
        }
        let moves = |kind: &Kind| kinds::rules(*kind).promises().moves_between_clocks;
        if self.primaries.is_some() && !self.kinds.iter().all(moves) {
            // Such a kind says that the clocks of a cluster must agree.
            (self.apart_us, self.drift) = (0, 0);
        }
        self
    }

    /// One of ten is about the line: clients that wait for one name die, nothing else goes wrong, and
    /// leases are long, so that no end of a lease makes up for a timer.
    pub(super) fn waiting(self, chance: &mut Chance) -> Self {
        if !chance.permille(100) {
            return self;
        }
        Self {
            clients: chance.range(3, 4) as usize,
            kinds: vec![Kind::Reentrant],
            lease: Duration::from_secs(10),
            command_timeout: Duration::from_millis(150),
            fallback: Duration::from_secs(5),
            horizon: Duration::from_secs(6),
            calm: true,
            faults: Faults::default(),
            nemeses: vec![Nemesis::Crash],
            nemesis_every: Duration::from_millis(chance.range(200, 2_000)),
            deaf_end: false,
            drift: 0,
            force: 0,
            shutdown: 0,
            at_least: 0,
            leave: 0,
            long_hold: 0,
            think: *chance.pick(&[2_000, 50_000]),
            profile: WireProfile::Native,
            ..self
        }
    }

    /// One of five has Redisson's profile, and where a kind is kept as Redisson does it, all names have
    /// it.
    pub(super) fn with_profile(mut self, chance: &mut Chance) -> Self {
        let of_redisson = [WireProfile::Redisson.semaphore(), WireProfile::Redisson.fair_lock()];
        let forced = self.kinds.iter().copied().find(|kind| of_redisson.contains(kind));
        let drawn = chance.permille(200);
        if let Some(forced) = forced {
            // Of the others that wait for each owner, only what is native is drawn.
            let others = self.kinds.iter_mut().filter(|kind| kind.waits_per_owner());
            others.for_each(|kind| *kind = forced);
        }
        let native_only = self.kinds.iter().any(|kind| kind.waits_per_owner());
        self.profile = match forced.is_some() || drawn && !native_only {
            true => WireProfile::Redisson,
            false => WireProfile::Native,
        };
        self
    }

    /// In one of four with faults, logins are refused; in one of three such clusters, nodes
    /// misdirect.
    pub(super) fn with_access_faults(mut self, chance: &mut Chance) -> Self {
        self.redirections_travel = true;
        if self.calm {
            return self;
        }
        if chance.permille(250) {
            self.nemeses.push(Nemesis::Login);
        }
        if self.primaries.is_some() && chance.permille(333) {
            self.faults.misdirected = chance.range(1, 60);
        }
        self
    }

    pub(super) fn draw_crowd(chance: &mut Chance) -> Self {
        let drawn = Self::draw(chance);
        let clients = chance.range(2, 4) as usize;
        // The fourth would share an owner with the third.
        let tasks = chance.range(1, 3) as usize;
        // Longer than the turn of another takes, as most locks are.
        let hold =
            Duration::from_millis(if chance.permille(500) { chance.range(5, 150) } else { 0 });
        Self {
            clients,
            tasks,
            kinds: vec![Kind::Reentrant],
            primaries: chance.permille(700).then(|| chance.index(2) + 2),
            latency: *chance.pick(&[200, 1_000]),
            horizon: Self::crowded_for(hold),
            lease: Duration::from_secs(30),
            command_timeout: Duration::from_secs(1),
            fallback: Duration::from_secs(5),
            calm: true,
            faults: Faults::default(),
            nemeses: Vec::new(),
            drift: 0,
            cancel: 0,
            lazy: 0,
            force: 0,
            think: *chance.pick(&[50, 500]),
            crowd: true,
            hold,
            late: Some((0, Duration::from_micros(chance.range(0, 600)))),
            hurried: tasks > 1 && chance.permille(300),
            ..drawn
        }
    }

    /// Long enough for some hundred grants.
    pub(super) fn crowded_for(hold: Duration) -> Duration {
        Duration::from_millis(500) + hold * 200
    }

    pub(super) fn distance(&self, client: usize) -> Duration {
        self.distances.get(client).copied().unwrap_or_default()
    }

    pub(super) fn has(&self, nemesis: Nemesis) -> bool {
        self.nemeses.contains(&nemesis)
    }

    /// Whether those who wait for a name stand in a line.
    pub(super) fn has_line(&self, name: &LockName) -> bool {
        name.kind().has_line(self.profile)
    }

    /// Whether a client has one place in it.
    pub(super) fn has_line_of_clients(&self, name: &LockName) -> bool {
        self.has_line(name) && !name.kind().waits_per_owner()
    }

    /// Clocks that run at rates so different that no lease can be relied on.
    pub(super) fn drifts_too_much(&self) -> bool {
        self.drift > 10_000
    }

    pub(super) fn lease_us(&self) -> u64 {
        u64::try_from(self.lease.as_micros()).unwrap_or(1_000_000)
    }
}

fn draw_faults(chance: &mut Chance) -> Faults {
    let mut some =
        |often: u64, most: u64| if chance.permille(often) { chance.range(1, most) } else { 0 };
    Faults {
        lost_request: some(400, 60),
        lost_reply: some(500, 80),
        slow: some(400, 80),
        duplicate: some(300, 100),
        refused: some(400, 60),
        in_script: some(250, 40),
        ghost: some(600, 900),
        late_copy: some(300, 500),
        connect_fails: some(400, 500),
        misdirected: 0,
        stale_confirmation: some(400, 900),
        subscribe_refused: some(200, 300),
        silent_loss: some(150, 300),
        message_twice: some(250, 300),
        message_overtaken: some(250, 300),
    }
}

fn draw_nemeses(chance: &mut Chance, calm: bool, breaches: bool, cluster: bool) -> Vec<Nemesis> {
    if calm {
        return if chance.permille(300) { vec![Nemesis::Crash] } else { Vec::new() };
    }
    let mut nemeses: Vec<Nemesis> = HARMLESS
        .into_iter()
        .filter(|nemesis| *nemesis != Nemesis::MoveSlot || cluster)
        .filter(|_| chance.permille(350))
        .collect();
    if breaches {
        nemeses.extend(BREACHES.into_iter().filter(|_| chance.permille(350)));
    }
    nemeses
}
