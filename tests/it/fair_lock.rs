//! The fair lock against a real server: who is granted next, and what it costs. What only the profile
//! `Redisson` has is in `fair_queue.rs`.
//!
//! A reservation that nobody picks up in time runs out, and then others may pass. On a busy machine
//! that can happen to any client, so tests of the order compare only what went without it.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

pub(crate) const NAME: &str = "orders:42";
const LINE: &str = "redisson_lock_line__{orders:42}";
/// The same in the profile `Redisson`.
pub(crate) const QUEUE: &str = "redisson_lock_queue:{orders:42}";
const MARKS: &str = "redisson_lock_marks__{orders:42}";
/// Within this time everything ends that ends at all.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
/// Longer than any pause of a busy machine, so that no command has an unknown outcome.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

const BOTH: [WireProfile; 2] = [WireProfile::Native, WireProfile::Redisson];

async fn client(server: &RedisServer) -> LockClient {
    client_of(server, WireProfile::Native).await
}

pub(crate) async fn client_of(server: &RedisServer, profile: WireProfile) -> LockClient {
    let builder = builder(&server.url()).profile(profile);
    builder.command_timeout(COMMAND_TIMEOUT).connect().await.unwrap()
}

pub(crate) fn lock_of(client: &LockClient) -> FairLock {
    client.fair_lock(NAME).unwrap()
}

pub(crate) async fn held(client: &LockClient) -> Guard {
    timeout(BOUND, Owner::new().scope(lock_of(client).lock())).await.expect("granted").unwrap()
}

pub(crate) fn waits(client: &LockClient) -> JoinHandle<Guard> {
    let lock = lock_of(client);
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

pub(crate) async fn granted(waiter: JoinHandle<Guard>) -> Guard {
    timeout(BOUND, waiter).await.expect("granted").unwrap()
}

/// The fields that stand in line, or the places in the queue, in their order.
pub(crate) fn places(redis: &mut Connection) -> Vec<String> {
    let mut all = redis::pipe();
    for (command, key) in [("ZRANGE", LINE), ("LRANGE", QUEUE)] {
        all.cmd(command).arg(key).arg(&["0", "-1"]);
    }
    let all: [Vec<String>; 2] = all.query(redis).unwrap();
    all.concat()
}

fn marks(redis: &mut Connection) -> Vec<String> {
    redis::cmd("SMEMBERS").arg(MARKS).query(redis).unwrap()
}

pub(crate) async fn so_many_stand_in_line(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    settles("they stand in line", move || places(&mut redis).len() == number).await;
}

/// A number of the server's statistics.
fn stat(redis: &mut Connection, section: &str, name: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg(section).query(redis).unwrap();
    let rest = info.split(name).nth(1).unwrap_or("0");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// How many keys have run out. Leases are long here, so these are reservations.
fn ran_out(redis: &mut Connection) -> u64 {
    stat(redis, "stats", "expired_keys:")
}

pub(crate) fn scripts(redis: &mut Connection) -> u64 {
    stat(redis, "commandstats", "cmdstat_evalsha:calls=")
}

/// On the server's clock.
pub(crate) fn now_ms(redis: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(redis).unwrap();
    seconds * 1_000 + micros / 1_000
}

/// What a test of the order needs.
struct Order {
    server: RedisServer,
    holder: LockClient,
    /// Who was granted, told while the lock was held.
    granted: Arc<Mutex<Vec<usize>>>,
}

impl Order {
    async fn start(profile: WireProfile) -> Self {
        let server = RedisServer::start();
        let holder = client_of(&server, profile).await;
        Self { server, holder, granted: Arc::default() }
    }

    /// A task that waits, tells its number when it is granted, and unlocks.
    fn passes(&self, client: &LockClient, number: usize) -> JoinHandle<()> {
        let (lock, granted) = (lock_of(client), Arc::clone(&self.granted));
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            granted.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        })
    }

    /// Frees the lock and waits until all have had it. In which order that was; none if a
    /// reservation has run out meanwhile.
    async fn order(&self, guard: Guard, tasks: Vec<JoinHandle<()>>) -> Option<Vec<usize>> {
        let mut redis = self.server.connection();
        let before = ran_out(&mut redis);
        guard.unlock().await.unwrap();
        for task in tasks {
            timeout(BOUND, task).await.expect("granted").unwrap();
        }
        let order = std::mem::take(&mut *self.granted.lock().unwrap());
        (ran_out(&mut redis) == before).then_some(order)
    }
}

/// Whichever clients they belong to, and whoever gives up meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_granted_in_the_order_of_arrival_over_all_clients() {
    for profile in BOTH {
        let world = Order::start(profile).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(client_of(&world.server, profile).await);
        }
        let mut compared = 0;
        for round in 0..8_usize {
            let guard = held(&world.holder).await;
            let mut tasks = Vec::new();
            for number in 0..12 {
                tasks.push(world.passes(&clients[(number * number + round) % 3], number));
                so_many_stand_in_line(&world.server, number + 1).await;
            }
            let gives_up = [round, 4 + round / 2];
            let mut came: Vec<usize> = (0..12).collect();
            came.retain(|number| !gives_up.contains(number));
            gives_up.iter().for_each(|number| tasks[*number].abort());
            so_many_stand_in_line(&world.server, came.len()).await;
            let tasks = tasks.into_iter().enumerate().filter(|(number, _)| came.contains(number));
            let Some(order) = world.order(guard, tasks.map(|(_, task)| task).collect()).await
            else {
                continue;
            };
            assert_eq!(order, came, "round {round}");
            compared += 1;
        }
        assert!(compared > 0, "a reservation has run out in every round");
        for client in &clients {
            leaves_nothing(&world.server, client).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn try_lock_neither_overtakes_nor_queues() {
    for profile in BOTH {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = async || client_of(&server, profile).await;
        let [ours, theirs] = [client().await, client().await];
        let once = async |client: &LockClient| Owner::new().scope(lock_of(client).try_lock()).await;
        let guard = held(&ours).await;
        assert!(once(&theirs).await.unwrap().is_err(), "somebody holds it");
        assert!(places(&mut redis).is_empty(), "it takes no place");
        let waiter = waits(&theirs);
        so_many_stand_in_line(&server, 1).await;
        // The lock is free for a moment, and somebody waits.
        redis::cmd("DEL").arg(NAME).exec(&mut redis).unwrap();
        assert!(once(&ours).await.unwrap().is_err(), "somebody goes first");
        granted(waiter).await.unlock().await.unwrap();
        assert!(guard.unlock().await.is_err(), "its key was deleted");
        once(&ours).await.unwrap().unwrap().unlock().await.unwrap();
        leaves_nothing(&server, &ours).await;
    }
}

/// Also if it asks before its place is given up.
#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_and_asks_again_stands_at_the_end() {
    // In the profile `Redisson` it can get its place back.
    for profile in [WireProfile::Native] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = async || client_of(&server, profile).await;
        let [holder, ours, theirs] = [client().await, client().await, client().await];
        let guard = held(&holder).await;
        let (owner, lock) = (Owner::new(), lock_of(&ours));
        let mut gives_up = Box::pin(owner.scope(lock.lock()));
        let stands = so_many_stand_in_line(&server, 1);
        tokio::select! { _ = &mut gives_up => unreachable!("it is held"), () = stands => () }
        let second = waits(&theirs);
        so_many_stand_in_line(&server, 2).await;
        let of_theirs = places(&mut redis)[1].clone();

        drop(gives_up);
        let asks_again = tokio::spawn(async move { owner.scope(lock.lock()).await.unwrap() });
        let mut looks = server.connection();
        settles("it stands behind the other", move || {
            let places = places(&mut looks);
            places.len() == 2 && places[0] == of_theirs
        })
        .await;
        guard.unlock().await.unwrap();
        let next = granted(second).await;
        assert!(!asks_again.is_finished());
        next.unlock().await.unwrap();
        granted(asks_again).await.unlock().await.unwrap();
        leaves_nothing(&server, &ours).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_owner_takes_it_again_past_all_who_wait() {
    for profile in BOTH {
        let server = RedisServer::start();
        let client = async || client_of(&server, profile).await;
        let [ours, theirs] = [client().await, client().await];
        let (owner, lock) = (Owner::new(), lock_of(&ours));
        let outer = owner.scope(lock.lock()).await.unwrap();
        let waiter = waits(&theirs);
        so_many_stand_in_line(&server, 1).await;
        let inner = timeout(BOUND, owner.scope(lock.lock())).await.expect("granted").unwrap();
        assert_eq!((inner.hold_count(), inner.fencing_token()), (2, outer.fencing_token()));
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        granted(waiter).await.unlock().await.unwrap();
        leaves_nothing(&server, &theirs).await;
    }
}

/// Its callers wait one behind the other, before all others.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_hundred_waiters_that_dies_costs_the_others_one_reservation() {
    const CROWD: usize = 100;
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let mut crowd = Puppet::start(&server.url(), &[]);
    let guard = held(&holder).await;
    for number in 0..CROWD {
        crowd.send(&format!("w{number} lock {NAME} kind=fair owner=o{number}"));
        so_many_stand_in_line(&server, number + 1).await;
    }
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, CROWD + 1).await;
    crowd.signal("-KILL");
    let before = ran_out(&mut redis);
    guard.unlock().await.unwrap();
    let guard = granted(waiter).await;
    assert_eq!(ran_out(&mut redis) - before, 1, "the reservation of its first caller");
    assert!(places(&mut redis).len() < CROWD);
    guard.unlock().await.unwrap();
    // Nobody is left who would wait for it.
    let lock = lock_of(&ours);
    settles_async("what it left is passed over", || async {
        match Owner::new().scope(lock.try_lock()).await.unwrap() {
            Ok(guard) => guard.unlock().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
}

async fn settles_async<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let looks = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(BOUND, looks).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_client_is_passed_over_and_still_has_its_ticket() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, second, third] =
        [client(&server).await, client(&server).await, client(&server).await];
    let mut frozen = Puppet::start(&server.url(), &[]);
    let guard = held(&holder).await;
    for (number, id) in ["a", "b"].iter().enumerate() {
        frozen.send(&format!("{id} lock {NAME} kind=fair owner={id}"));
        so_many_stand_in_line(&server, number + 1).await;
    }
    let second = waits(&second);
    so_many_stand_in_line(&server, 3).await;
    let third = waits(&third);
    so_many_stand_in_line(&server, 4).await;

    frozen.signal("-STOP");
    guard.unlock().await.unwrap();
    let guard = granted(second).await;
    assert_eq!(marks(&mut redis), [frozen.uuid.clone()]);
    so_many_stand_in_line(&server, 1).await;
    frozen.signal("-CONT");
    // It is heard of, and its callers stand before the one that came behind them.
    so_many_stand_in_line(&server, 3).await;
    assert!(places(&mut redis)[..2].iter().all(|field| field.starts_with(&frozen.uuid)));
    guard.unlock().await.unwrap();
    for id in ["a", "b"] {
        assert_eq!(frozen.end_of(id)["event"], "granted");
        assert!(!third.is_finished());
        assert_eq!(frozen.run(&format!("u{id} unlock {id}"))["event"], "unlocked");
    }
    granted(third).await.unlock().await.unwrap();
    frozen.finish();
}

/// One poll of each client is for all its places.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_lost_is_made_anew_in_the_same_order() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours, theirs] =
        [client(&server).await, client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let mut waiters = Vec::new();
    for number in 0..6 {
        waiters.push(waits([&ours, &theirs][number % 2]));
        so_many_stand_in_line(&server, number + 1).await;
    }
    let before = places(&mut redis);
    redis::cmd("DEL").arg(LINE).exec(&mut redis).unwrap();
    so_many_stand_in_line(&server, 6).await;
    assert_eq!(places(&mut redis), before);
    guard.unlock().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.unlock().await.unwrap();
    }
    leaves_nothing(&server, &ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_many_waiters_polls_once() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let options = LockOptions::new().lease(Duration::from_secs(600));
    let guard = lock_of(&holder).lock_with(options).await.unwrap().unwrap();
    // Each unlocks at once: they may have come in any order.
    let passes = |lock: FairLock| async move { lock.lock().await.unwrap().unlock().await };
    let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(passes(lock_of(&ours)))).collect();
    so_many_stand_in_line(&server, 20).await;
    // Those attempts that were made once the channel was subscribed are over.
    let (mut before, mut since) = (scripts(&mut redis), now_ms(&mut redis));
    loop {
        // Quiet can only be seen over some time: longer than a slow machine lets a client stand still,
        // and shorter than the time between two polls.
        tokio::time::sleep(Duration::from_secs(2)).await;
        if scripts(&mut redis) == before {
            break;
        }
        (before, since) = (scripts(&mut redis), now_ms(&mut redis));
    }
    settles("it has polled twice", {
        let mut redis = server.connection();
        move || scripts(&mut redis) >= before + 2
    })
    .await;
    let polls = scripts(&mut redis) - before;
    // A poll is due after 4.5 s at the earliest.
    let most = (now_ms(&mut redis) - since) / 4_500 + 1;
    assert!(polls <= most, "{polls} polls, and at most {most} were due");
    assert_eq!(places(&mut redis).len(), 20);
    drop(guard);
    for waiter in waiters {
        timeout(BOUND, waiter).await.expect("granted").unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_force_unlock_passes_it_on_to_the_next() {
    for profile in BOTH {
        let server = RedisServer::start();
        let client = async || client_of(&server, profile).await;
        let [holder, ours, theirs] = [client().await, client().await, client().await];
        let guard = held(&holder).await;
        let first = waits(&ours);
        so_many_stand_in_line(&server, 1).await;
        let second = waits(&theirs);
        so_many_stand_in_line(&server, 2).await;
        assert!(lock_of(&theirs).force_unlock().await.unwrap());
        let next = granted(first).await;
        assert!(next.fencing_token() > guard.fencing_token());
        guard.lost().await;
        assert!(!second.is_finished());
        next.unlock().await.unwrap();
        granted(second).await.unlock().await.unwrap();
        leaves_nothing(&server, &theirs).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_lock_of_another_client_excludes_it_and_is_excluded() {
    let server = RedisServer::start();
    let [ours, theirs] = [client(&server).await, client(&server).await];
    let plain = theirs.mutex(NAME).unwrap();
    let guard = held(&ours).await;
    assert!(plain.try_lock().await.unwrap().is_err());
    guard.unlock().await.unwrap();
    let guard = plain.lock().await.unwrap();
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_one_client_a_plain_lock_and_a_fair_one_on_one_name_is_an_error() {
    for profile in BOTH {
        let server = RedisServer::start();
        let client = client_of(&server, profile).await;
        let (fair, plain) = (lock_of(&client), client.mutex(NAME).unwrap());
        let guard = held(&client).await;
        let refused = plain.lock().await.unwrap_err();
        assert!(matches!(refused, Error::KeyConflict { .. }), "{refused}");
        assert!(refused.to_string().contains("fair lock"), "{refused}");
        guard.unlock().await.unwrap();
        let guard = plain.lock().await.unwrap();
        let refused = fair.lock().await.unwrap_err();
        assert!(matches!(refused, Error::KeyConflict { .. }), "{refused}");
        guard.unlock().await.unwrap();
        fair.lock().await.unwrap().unlock().await.unwrap();
    }
}
