//! Redlocks: `RedissonRedLock` and ours over the same three servers, which belong to the scenario.

use std::time::Duration;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Client;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::ONCE;
use crate::interop::contention::Section;
use crate::interop::contention::check_alone;
use crate::interop::contention::distribution;
use crate::interop::permits::check_both;
use crate::interop::permits::counted_by;
use crate::interop::redis::Redis;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::WAKE_UP_LIMIT;
use crate::interop::stage::check;
use crate::interop::stage::pass_on;
use crate::servers;
use crate::servers::Server;

pub(crate) const ALL: &[Scenario] = &[
    Scenario { title: "Redlock: exclusion", run: exclusion, directions: ONCE, needs_newer: true },
    Scenario {
        title: "Redlock: exclusion in the opposite order",
        run: opposite,
        directions: ONCE,
        needs_newer: true,
    },
    Scenario { title: "Redlock: wake-up", run: wake_up, directions: BOTH_WAYS, needs_newer: true },
    Scenario {
        title: "Redlock: killed holder",
        run: killed_holder,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
];

const SECTIONS: u64 = 2_000;
/// Each takes up to 3 s.
const FEW_SECTIONS: u64 = 20;
const ROUNDS: usize = 100;

/// Three servers that nobody else has, in the order in which our client takes them.
struct Three {
    urls: Vec<String>,
    redis: Vec<Redis>,
    _servers: Vec<Server>,
}

impl Three {
    fn start() -> Result<Self, String> {
        let program = servers::find_or_install()?;
        let mut servers =
            (0..3).map(|_| Server::start(&program)).collect::<Result<Vec<Server>, String>>()?;
        servers.sort_by_key(Server::url);
        let urls = servers.iter().map(Server::url).collect();
        let redis = servers.iter().map(|server| Redis::new(server.port..server.port + 1));
        Ok(Self { urls, redis: redis.collect(), _servers: servers })
    }

    /// Our client is told that the servers are new, since nothing can be held on them.
    fn client(&self, stage: &Stage<'_>, lang: Lang, lease: Lease) -> Result<Client, String> {
        let more: &[&str] = if lang == Lang::Rust { &["assume_fresh=on"] } else { &[] };
        stage.client_of(&format!("redlock={}", self.urls.join(",")), lang, lease, more)
    }

    fn pair(
        &self,
        stage: &Stage<'_>,
        langs: [Lang; 2],
        lease: Lease,
    ) -> Result<[Client; 2], String> {
        Ok([self.client(stage, langs[0], lease)?, self.client(stage, langs[1], lease)?])
    }

    /// A killed process may have renewed a minority later than the others.
    fn check_free(&mut self, stage: &mut Stage<'_>, name: &str) -> Result<(), String> {
        stage.eventually("no server has the lock any more", |_| {
            let held: Result<Vec<bool>, String> =
                self.redis.iter_mut().map(|redis| redis.exists(name)).collect();
            Ok(held?.iter().all(|held| !held))
        })
    }

    /// Until somebody sleeps at one of the servers.
    fn subscribed(&mut self, stage: &mut Stage<'_>, name: &str) -> Result<(), String> {
        let channel = stage.channel(name);
        stage.eventually("the waiter is subscribed", |_| {
            let counts: Result<Vec<i64>, String> =
                self.redis.iter_mut().map(|redis| redis.subscribers(&channel)).collect();
            Ok(counts?.iter().sum::<i64>() > 0)
        })
    }
}

/// Both take the servers in the same order.
fn exclusion(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let mut three = Three::start()?;
    let clients = three.pair(stage, Lang::BOTH, Lease::Long)?;
    let sections = counted(stage, &mut three, clients, SECTIONS.min(stage.sections))?;
    check_both(&sections)
}

/// Redisson waits for a server for 1.5 s, even if it has a majority without it. Ours has that server
/// then, and waits for the next one.
fn opposite(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let mut three = Three::start()?;
    three.urls.reverse();
    let clients = three.pair(stage, Lang::BOTH, Lease::Long)?;
    // So few that one of them may have all.
    counted(stage, &mut three, clients, FEW_SECTIONS).map(drop)
}

/// A counter that a majority of the servers protects is exact.
fn counted(
    stage: &mut Stage<'_>,
    three: &mut Three,
    mut clients: [Client; 2],
    until: u64,
) -> Result<Vec<Section>, String> {
    let (name, file) = (stage.name("majority"), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let options = format!("{until} {path} work_us=100");
    let sections = counted_by(stage, &mut clients, &name, &options)?;
    check_alone(&sections, &file, until)?;
    three.check_free(stage, &name)?;
    Ok(sections)
}

fn wake_up(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let mut three = Three::start()?;
    let [mut holder, mut waiter] = three.pair(stage, [holds, waits], Lease::Long)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let name = stage.name("majority");
        let (lock, _) = holder.lock(&name, "")?;
        let waiting = waiter.wait(&name, "")?;
        three.subscribed(stage, &name)?;
        let took = pass_on(&mut holder, &lock, &mut waiter, &waiting)
            .map_err(|reason| format!("round {round}: {reason}"))?;
        times.push(took);
        waiter.unlock(&waiting)?;
        three.check_free(stage, &name)?;
    }
    stage.note(&distribution(times));
    Ok(())
}

/// What a killed process has held on a majority is free with its lease.
fn killed_holder(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let mut three = Three::start()?;
    let [mut holder, mut waiter] = three.pair(stage, [holds, waits], Lease::Short)?;
    let name = stage.name("majority");
    let (_, granted) = holder.lock(&name, "")?;
    let waiting = waiter.wait(&name, "")?;
    three.subscribed(stage, &name)?;
    holder.kill();
    let taken = waiter.expect_within(&waiting, "granted", 3 * WAKE_UP_LIMIT)?;
    let after = Duration::from_nanos(taken.boot_ns.saturating_sub(granted.boot_ns));
    stage.note(&format!("{after:?} after the grant, with a lease of {:?}", Lease::SHORT));
    check(after < Lease::SHORT + WAKE_UP_LIMIT, || format!("taken over after {after:?}"))?;
    waiter.unlock(&waiting)?;
    three.check_free(stage, &name)
}
