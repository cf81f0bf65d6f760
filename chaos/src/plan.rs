//! What will be done to whom and when: all of it follows from the seed.

use std::time::Duration;

use crate::chance::Chance;
use crate::chance::Stream;
use crate::clock;
use crate::kind::LockKind;
use crate::kind::Name;
use crate::place::INDEPENDENT;
use crate::place::Kind;
use crate::support::proxy::Direction;

pub(crate) const WORKERS: usize = 4;
const TASKS: u32 = 6;
const NAMES: u64 = 6;
/// Of a Redlock, each of whose attempts is five commands.
const REDLOCK_TASKS: u32 = 3;
const REDLOCK_NAMES: u64 = 3;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) lease: Duration,
    pub(crate) names: Vec<Name>,
    /// Of each worker.
    pub(crate) tasks: u32,
    /// By their times.
    pub(crate) acts: Vec<(Duration, Act)>,
    pub(crate) length: Duration,
    /// Clocks of independent servers are set. Then no server loses its data, or tokens could be
    /// smaller than before.
    pub(crate) sets_clocks: bool,
}

/// From a worker to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) worker: usize,
    /// A bit for each.
    servers: u8,
}

impl Path {
    pub(crate) fn leads_to(self, server: usize) -> bool {
        self.servers >> server & 1 == 1
    }
}

/// Some harm, or the end of it. Workers and servers are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    KillServer(usize),
    StartServer(usize),
    /// The same without its data.
    StartEmpty(usize),
    FreezeServer(usize),
    ThawServer(usize),
    KillWorker(usize),
    StartWorker(usize),
    FreezeWorker(usize),
    ThawWorker(usize),
    /// Its connections.
    Cut(Path),
    Refuse(Path, bool),
    Stall(Path, Direction, bool),
    Delay(Path, Direction, Duration),
    /// So many bytes a second go this way, if it has a limit.
    Limit(Path, Direction, Option<u32>),
    /// CLIENT KILL, of ordinary connections or of those that listen.
    KillClients {
        listeners: bool,
    },
    PauseClients {
        all: bool,
        time: Duration,
    },
    FlushScripts,
    /// No memory for anything that wants some.
    Full(bool),
    /// The user may not do something.
    Forbid(Option<&'static str>),
    /// Listeners are cut off as soon as something waits for them.
    SmallBuffers(bool),
    /// Another server becomes primary.
    BeginFailover(Failover),
    /// By now it is, and the old one becomes its replica.
    EndFailover,
    /// The slot of a name, whichever comes at or after this one and lies on the right servers.
    BeginMove(usize),
    EndMove,
    /// Of a minority of independent servers: so much ahead of the others, or behind them.
    SetClocks {
        servers: u8,
        ahead_ms: i32,
    },
    /// The worker that is the first to wait for the fair lock of a name.
    KillHead(usize),
    FreezeHead(usize),
    /// These workers go on, or are started.
    MendHeads,
    /// The line of that name.
    RemoveLine(usize),
    /// The lock of that name.
    ForceUnlock(usize),
}

/// Why there is another primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failover {
    Killed,
    Frozen,
    /// Somebody wanted it so.
    Ordered,
}

impl Plan {
    /// `about`: the kind of all its locks; without, the seed says it.
    pub(crate) fn of(seed: u64, kind: Kind, about: Option<LockKind>) -> Self {
        let mut chance = Chance::new(seed, Stream::Plan, [kind as u64, 0, 0]);
        let lease = Duration::from_millis(*chance.pick(&[300, 300, 400, 600, 1_000]));
        let is_redlock = kind == Kind::Redlock;
        let about = if is_redlock { Some(LockKind::Redlock) } else { about };
        let (names, tasks) =
            if is_redlock { (REDLOCK_NAMES, REDLOCK_TASKS) } else { (NAMES, TASKS) };
        let names: Vec<Name> = (0..names)
            .map(|number| {
                let kind = about.unwrap_or_else(|| drawn(seed, number));
                Name { text: format!("n{number}"), kind }
            })
            .collect();
        let length = Duration::from_millis(match kind {
            Kind::Single | Kind::Aof => 3_800,
            Kind::Redlock => 5_500,
            Kind::Sentinel | Kind::Cluster => 7_000,
        });
        let sets_clocks = is_redlock && seed % 5 == 4;
        let mut making = Making { chance, lease, length, sets_clocks, acts: Vec::new() };
        making.all(kind);
        making.harm_lines(&names);
        let mut acts = making.acts;
        acts.sort_by_key(|(at, _)| *at);
        let last = acts.last().map_or(Duration::ZERO, |(at, _)| *at);
        let length = making.length.max(last + Duration::from_millis(200));
        Self { lease, names, tasks, acts, length, sets_clocks }
    }

    /// So much longer than its time to live a key may stay.
    pub(crate) fn set_back(&self) -> Duration {
        if self.sets_clocks { clock::MOST * 2 } else { Duration::ZERO }
    }
}

/// Of eight histories, one is about all kinds, two about reentrant locks, and one about each of the
/// other kinds. (Where a history runs repeats itself after 15 seeds.)
fn drawn(seed: u64, number: u64) -> LockKind {
    let at = |index: u64| {
        let index = usize::try_from(index).unwrap_or(0) % LockKind::DRAWN.len();
        LockKind::DRAWN[index]
    };
    match seed % 8 {
        7 => at(number),
        index if index < LockKind::DRAWN.len() as u64 => at(index),
        _ => LockKind::Reentrant,
    }
}

struct Making {
    chance: Chance,
    lease: Duration,
    length: Duration,
    sets_clocks: bool,
    acts: Vec<(Duration, Act)>,
}

impl Making {
    fn all(&mut self, kind: Kind) {
        if kind.is_one() {
            for turn in 0..2 + self.chance.below(2) {
                self.kill_server(turn);
            }
        }
        if kind.fails_over() {
            self.failover();
        }
        if kind == Kind::Redlock {
            for turn in 0..3 {
                if self.sets_clocks {
                    self.set_clocks(turn);
                } else {
                    self.empty_a_majority(turn);
                }
            }
            for _ in 0..2 + self.chance.below(3) {
                self.harm_a_server();
            }
        }
        if kind == Kind::Cluster {
            for turn in 0..3 {
                self.move_slot(turn);
            }
        }
        for _ in 0..2 {
            self.kill_worker();
            self.freeze_worker();
        }
        // Some of them are killed before they go on, which does not count.
        self.freeze_worker();
        for _ in 0..2 + self.chance.below(3) {
            self.something(kind);
        }
    }

    /// Some time well within the run.
    fn when(&mut self) -> Duration {
        let most = u64::try_from(self.length.as_millis()).unwrap_or(0);
        Duration::from_millis(self.chance.range(150, most))
    }

    fn add(&mut self, at: Duration, act: Act) {
        self.acts.push((at, act));
    }

    /// One of the workers, some time, and a time after it.
    fn span(&mut self, low_ms: u64, high_ms: u64) -> (usize, Duration, Duration) {
        let (worker, at) = (self.chance.index(WORKERS), self.when());
        (worker, at, at + self.chance.time(low_ms * 1_000, high_ms * 1_000))
    }

    fn kill_server(&mut self, turn: u64) {
        // Spread over the run, so that there are grants in between.
        let at = Duration::from_millis(300 + 1_000 * turn + self.chance.below(700));
        let down = self.chance.time(1_000, 300_000);
        self.add(at, Act::KillServer(0));
        self.add(at + down, Act::StartServer(0));
    }

    /// Three of five servers lose their data within a lease; half of the time while a worker hears
    /// nothing of them, so that it believes in what it has for as long as it may.
    fn empty_a_majority(&mut self, turn: u64) {
        let at = Duration::from_millis(1_400 + 1_300 * turn + self.chance.below(500));
        let first = self.chance.index(INDEPENDENT);
        if self.chance.permille(500) {
            let way = if self.chance.permille(500) { Direction::Up } else { Direction::Down };
            let path = Path { worker: self.chance.index(WORKERS), servers: u8::MAX };
            self.add(at, Act::Stall(path, way, true));
            self.add(at + self.lease, Act::Stall(path, way, false));
        }
        for next in 0..INDEPENDENT / 2 + 1 {
            let server = (first + next) % INDEPENDENT;
            let at = at + self.chance.time(1_000, 40_000);
            let back = at + self.chance.time(1_000, 40_000);
            self.add(at, Act::KillServer(server));
            self.add(back, Act::StartEmpty(server));
        }
    }

    /// Three times, one or two clocks each, by seconds.
    fn set_clocks(&mut self, turn: u64) {
        let most = i32::try_from(clock::MOST.as_millis()).unwrap_or(0);
        for part in 0..3 {
            let at = 1_200 + 1_300 * turn + 430 * part + self.chance.below(300);
            let servers = (0..1 + self.chance.below(2)).map(|_| self.chance.index(INDEPENDENT));
            let servers = servers.fold(0, |servers, server| servers | 1 << server);
            let ahead = u64::try_from(2 * most).unwrap_or(0);
            let ahead_ms = i32::try_from(self.chance.below(ahead)).unwrap_or(0) - most;
            self.add(Duration::from_millis(at), Act::SetClocks { servers, ahead_ms });
        }
    }

    /// Of several.
    fn harm_a_server(&mut self) {
        let server = self.chance.index(INDEPENDENT);
        let (_, at, end) = self.span(10, 1_500);
        let (begin, stop) = match self.chance.below(3) {
            0 => (Act::FreezeServer(server), Act::ThawServer(server)),
            1 if !self.sets_clocks => (Act::KillServer(server), Act::StartEmpty(server)),
            _ => (Act::KillServer(server), Act::StartServer(server)),
        };
        self.add(at, begin);
        self.add(end, stop);
    }

    /// Of a worker to its server, or to some of them.
    fn path(&mut self, worker: usize, kind: Kind) -> Path {
        let all = u8::MAX;
        let servers = if kind == Kind::Redlock && self.chance.permille(700) {
            u8::try_from(self.chance.range(1, 30)).unwrap_or(all)
        } else {
            all
        };
        Path { worker, servers }
    }

    /// What may happen to those who wait for a fair lock, and to what is kept of them.
    fn harm_lines(&mut self, names: &[Name]) {
        let fair = names.iter().enumerate().filter(|(_, name)| name.kind == LockKind::Fair);
        let fair: Vec<usize> = fair.map(|(number, _)| number).collect();
        if fair.is_empty() {
            return;
        }
        for act in [Act::KillHead, Act::FreezeHead, Act::RemoveLine, Act::ForceUnlock] {
            for _ in 0..1 + self.chance.below(2) {
                let (name, at) = (*self.chance.pick(&fair), self.when());
                self.add(at, act(name));
                // Some reservations run out by then.
                let mended = at + self.chance.time(1_000, 2_200_000);
                self.add(mended, Act::MendHeads);
            }
        }
    }

    fn failover(&mut self) {
        let at = Duration::from_millis(self.chance.range(800, 1_500));
        let why = *self.chance.pick(&[Failover::Killed, Failover::Frozen, Failover::Ordered]);
        self.add(at, Act::BeginFailover(why));
        self.add(at + Duration::from_millis(3_500), Act::EndFailover);
    }

    fn move_slot(&mut self, turn: u64) {
        let at = Duration::from_millis(300 + 2_200 * turn + self.chance.below(1_000));
        let name = self.chance.index(usize::try_from(NAMES).unwrap_or(1));
        let time = self.chance.time(1_000, 1_000_000);
        self.add(at, Act::BeginMove(name));
        self.add(at + time, Act::EndMove);
    }

    fn kill_worker(&mut self) {
        let (worker, at, back) = self.span(1, 300);
        self.add(at, Act::KillWorker(worker));
        self.add(back, Act::StartWorker(worker));
    }

    /// Beyond its lease.
    fn freeze_worker(&mut self) {
        let (worker, at, _) = self.span(1, 2);
        let time = self.lease.mul_f64(1.05 + self.chance.below(60) as f64 / 100.0);
        self.add(at, Act::FreezeWorker(worker));
        self.add(at + time + Duration::from_millis(20), Act::ThawWorker(worker));
    }

    fn something(&mut self, kind: Kind) {
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(0);
        let way = if self.chance.permille(500) { Direction::Up } else { Direction::Down };
        let at = self.when();
        // What may happen to servers that watch each other: nothing that makes one of them look
        // dead, nor a server too full to be moved to, nor a silence between sentinels.
        let choice = match kind {
            Kind::Single | Kind::Aof | Kind::Redlock => self.chance.below(12),
            Kind::Sentinel => *self.chance.pick(&[4, 5, 6, 7, 8]),
            Kind::Cluster => *self.chance.pick(&[4, 6, 8, 9]),
        };
        match choice {
            0 => {
                let (worker, ..) = self.span(1, 2);
                let path = self.path(worker, kind);
                self.add(at, Act::Cut(path));
            }
            1 => {
                let (worker, at, end) = self.span(10, 2 * lease_ms);
                let path = self.path(worker, kind);
                self.add(at, Act::Stall(path, way, true));
                self.add(end, Act::Stall(path, way, false));
            }
            2 => {
                let (worker, at, end) = self.span(10, 2 * lease_ms);
                let delay = self.chance.time(1_000, 200_000);
                let path = self.path(worker, kind);
                self.add(at, Act::Delay(path, way, delay));
                self.add(end, Act::Delay(path, way, Duration::ZERO));
            }
            3 => {
                let (worker, at, end) = self.span(10, 2 * lease_ms);
                let path = self.path(worker, kind);
                self.add(at, Act::Refuse(path, true));
                self.add(at, Act::Cut(path));
                self.add(end, Act::Refuse(path, false));
            }
            4 => {
                let listeners = self.chance.permille(500);
                self.add(at, Act::KillClients { listeners });
            }
            5 => {
                let all = !kind.fails_over() && self.chance.permille(500);
                let time = self.chance.time(10_000, 2 * lease_ms * 1_000);
                self.add(at, Act::PauseClients { all, time });
            }
            6 => self.add(at, Act::FlushScripts),
            7 => {
                let (_, at, end) = self.span(10, 2 * lease_ms);
                self.add(at, Act::Full(true));
                self.add(end, Act::Full(false));
            }
            8 => {
                let (_, at, end) = self.span(10, 2 * lease_ms);
                let rights = [
                    "evalsha",
                    "pexpire",
                    "hset",
                    "hdel",
                    "publish",
                    "subscribe",
                    "set",
                    "pttl",
                    "zadd",
                ];
                let right = *self.chance.pick(&rights);
                self.add(at, Act::Forbid(Some(right)));
                self.add(end, Act::Forbid(None));
            }
            9 => {
                let (_, at, end) = self.span(10, 2 * lease_ms);
                self.add(at, Act::SmallBuffers(true));
                self.add(end, Act::SmallBuffers(false));
            }
            10 => {
                // From what a modem carries to what is hardly felt.
                let (worker, at, end) = self.span(lease_ms / 10, 3 * lease_ms);
                let rate = *self.chance.pick(&[3_000, 7_500, 20_000, 100_000]);
                let path = self.path(worker, kind);
                self.add(at, Act::Limit(path, way, Some(rate)));
                self.add(end, Act::Limit(path, way, None));
            }
            _ => {
                let (_, at, end) = self.span(lease_ms / 10, 3 * lease_ms);
                self.add(at, Act::FreezeServer(0));
                self.add(end, Act::ThawServer(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed_and_ends_all_harm() {
        let of = |seed| Plan::of(seed, Kind::Aof, None);
        assert_eq!(of(7).acts, of(7).acts);
        assert_ne!(of(7).acts, of(8).acts);
        let count = |acts: &[(Duration, Act)], wanted: Act| {
            acts.iter().filter(|(_, act)| *act == wanted).count()
        };
        for seed in 0..200 {
            let acts = of(seed).acts;
            for (begin, end) in [
                (Act::KillServer(0), Act::StartServer(0)),
                (Act::FreezeServer(0), Act::ThawServer(0)),
                (Act::Full(true), Act::Full(false)),
                (Act::SmallBuffers(true), Act::SmallBuffers(false)),
            ] {
                assert_eq!(count(&acts, begin), count(&acts, end), "seed {seed}, {begin:?}");
            }
            assert!(count(&acts, Act::KillServer(0)) >= 2);
        }
    }

    #[test]
    fn of_five_servers_majorities_lose_their_data_within_a_lease_or_have_their_clocks_set() {
        for seed in 0..200 {
            let plan = Plan::of(seed, Kind::Redlock, None);
            assert!(plan.names.iter().all(|name| name.kind == LockKind::Redlock));
            let empty = |server| {
                plan.acts.iter().filter(move |(_, act)| *act == Act::StartEmpty(server)).count()
            };
            let emptied = (0..INDEPENDENT).map(empty).sum::<usize>();
            let sets = |(_, act): &&(Duration, Act)| matches!(act, Act::SetClocks { .. });
            let set = plan.acts.iter().filter(sets).count();
            if plan.sets_clocks {
                assert_eq!((emptied, set), (0, 9), "seed {seed}");
            } else {
                assert!(emptied >= 9 && set == 0, "seed {seed}");
            }
        }
    }
}
