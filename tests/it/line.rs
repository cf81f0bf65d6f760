//! The waiting line: what follows from it for callers, against a real server.
//!
//! A reservation that nobody picks up in time runs out, and then others may go first. On a busy
//! machine that can happen to any client, so tests of the order compare only what went without it:
//! the server counts the keys that have run out.

use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis::Connection;
use redis::PubSub;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "orders:42";
const LINE: &str = "redisson_lock_line__{orders:42}";
const CHANNEL: &str = "redisson_lock__channel__{orders:42}";
/// The life of a reservation and of a line, in ms.
const RESERVATION: i64 = 1_500;
const LINE_LIVES: i64 = 12_000;
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);
/// Longer than any pause of a busy machine, so that no command has an unknown outcome.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

async fn client(server: &RedisServer) -> LockClient {
    builder(&server.url()).command_timeout(COMMAND_TIMEOUT).connect().await.unwrap()
}

async fn held(client: &LockClient) -> Guard {
    timeout(BOUND, client.mutex(NAME).unwrap().lock()).await.expect("granted").unwrap()
}

/// A task that waits for the lock.
fn waits(client: &LockClient) -> JoinHandle<Guard> {
    let lock = client.mutex(NAME).unwrap();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

async fn granted(waiter: JoinHandle<Guard>) -> Guard {
    timeout(BOUND, waiter).await.expect("granted").unwrap()
}

/// The fields that stand in line, and their tickets.
fn places(redis: &mut Connection) -> Vec<(String, u64)> {
    let places: Vec<(String, f64)> =
        redis::cmd("ZRANGE").arg(LINE).arg(&["0", "-1", "WITHSCORES"]).query(redis).unwrap();
    places.into_iter().map(|(field, ticket)| (field, ticket as u64)).collect()
}

async fn so_many_stand_in_line(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    settles("they stand in line", move || places(&mut redis).len() == number).await;
}

fn pttl(redis: &mut Connection, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(redis).unwrap()
}

/// How many keys have run out. Leases are long here, so these are reservations.
fn ran_out(redis: &mut Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(redis).unwrap();
    let number = info.lines().find_map(|line| line.strip_prefix("expired_keys:"));
    number.unwrap().parse().unwrap()
}

/// Reserves the lock as the scripts do, but for a minute, and tells nobody.
fn reserve_in_silence(redis: &mut Connection, field: &str) {
    let script = "redis.call('DEL', KEYS[1]) redis.call('ZREM', KEYS[2], ARGV[1])
        redis.call('HSET', KEYS[1], ARGV[1], 0) redis.call('PEXPIRE', KEYS[1], 60000)";
    redis::cmd("EVAL").arg(script).arg(2).arg(&[NAME, LINE, field]).exec(redis).unwrap();
}

fn publish(redis: &mut Connection, payload: &str) {
    redis::cmd("PUBLISH").arg(CHANNEL).arg(payload).exec(redis).unwrap();
}

/// The messages so far. Of the last one clients take no notice.
fn heard(listener: &mut PubSub<'_>, redis: &mut Connection) -> Vec<String> {
    publish(redis, "end");
    let next = || listener.get_message().unwrap().get_payload::<String>().unwrap();
    std::iter::repeat_with(next).take_while(|payload| payload != "end").collect()
}

/// Hears everything that is published, and never waits for a lock.
fn idle_listener(server: &RedisServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"PSUBSCRIBE *\r\n").unwrap();
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    stream
}

/// What a test of the order needs.
struct Order {
    server: RedisServer,
    holder: LockClient,
    /// Who was granted, told while the lock was held.
    granted: Arc<Mutex<Vec<char>>>,
}

impl Order {
    async fn start() -> Self {
        let server = RedisServer::start();
        let holder = client(&server).await;
        Self { server, holder, granted: Arc::default() }
    }

    /// A task that waits, tells its name when it is granted, and unlocks.
    fn passes(&self, client: &LockClient, name: char) -> JoinHandle<()> {
        let (lock, granted) = (client.mutex(NAME).unwrap(), Arc::clone(&self.granted));
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            granted.lock().unwrap().push(name);
            guard.unlock().await.unwrap();
        })
    }

    /// Frees the lock and waits until all have had it. In which order that was; none if a
    /// reservation has run out meanwhile.
    async fn order(&self, guard: Guard, tasks: Vec<JoinHandle<()>>) -> Option<String> {
        let mut redis = self.server.connection();
        let before = ran_out(&mut redis);
        guard.unlock().await.unwrap();
        for task in tasks {
            timeout(BOUND, task).await.expect("granted").unwrap();
        }
        let order = std::mem::take(&mut *self.granted.lock().unwrap()).into_iter().collect();
        (ran_out(&mut redis) == before).then_some(order)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_goes_by_ticket() {
    let world = Order::start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(client(&world.server).await);
    }
    let mut compared = 0;
    for round in 0..10 {
        let guard = held(&world.holder).await;
        let (mut tasks, mut came) = (Vec::new(), String::new());
        // In each round they come in another order.
        for at in 0..clients.len() {
            let number = (2 * at + round) % clients.len();
            let name = char::from(b'a' + u8::try_from(number).unwrap());
            tasks.push(world.passes(&clients[number], name));
            came.push(name);
            so_many_stand_in_line(&world.server, at + 1).await;
        }
        let Some(order) = world.order(guard, tasks).await else { continue };
        assert_eq!(order, came, "round {round}");
        compared += 1;
    }
    assert!(compared > 0, "a reservation has run out in every round");
}

/// Tasks of one client pass the lock on among themselves, at most 16 times in a row; then the first
/// in line has it, and these tasks are behind all others that wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_overtaken_only_by_the_hand_offs_of_those_before_it() {
    const CROWD: usize = 40;
    let world = Order::start().await;
    let [crowd, second, third] =
        [client(&world.server).await, client(&world.server).await, client(&world.server).await];
    let mut compared = 0;
    for round in 0..5 {
        let guard = held(&world.holder).await;
        let mut tasks: Vec<_> = (0..CROWD).map(|_| world.passes(&crowd, 'a')).collect();
        so_many_stand_in_line(&world.server, 1).await;
        let waiting = crowd.clone();
        settles("all of them wait", move || waiting.stats().waiters == CROWD as u64).await;
        for (others, (client, name)) in [(&second, 'b'), (&third, 'c')].into_iter().enumerate() {
            tasks.push(world.passes(client, name));
            so_many_stand_in_line(&world.server, 2 + others).await;
        }
        let Some(order) = world.order(guard, tasks).await else { continue };
        let first = order.chars().take_while(|name| *name == 'a').count();
        let rest = "a".repeat(CROWD - first);
        assert!((1..=17).contains(&first), "round {round}: {order}");
        assert_eq!(order[first..], format!("bc{rest}"), "round {round}: {order}");
        compared += 1;
    }
    assert!(compared > 0, "a reservation has run out in every round");
}

/// The place belongs to the client: when one of its waiters gives up, the next one has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_leaves_its_place_to_the_next_of_its_client() {
    let world = Order::start().await;
    let [ours, theirs] = [client(&world.server).await, client(&world.server).await];
    let mut redis = world.server.connection();
    let mut compared = 0;
    for _ in 0..5 {
        let guard = held(&world.holder).await;
        let first = world.passes(&ours, 'x');
        so_many_stand_in_line(&world.server, 1).await;
        let their_task = world.passes(&theirs, 'b');
        so_many_stand_in_line(&world.server, 2).await;
        let next = world.passes(&ours, 'a');
        let waiting = ours.clone();
        settles("both wait", move || waiting.stats().waiters == 2).await;
        let before = places(&mut redis);
        first.abort();
        let waiting = ours.clone();
        settles("one has given up", move || waiting.stats().waiters == 1).await;
        assert_eq!(places(&mut redis), before);
        let Some(order) = world.order(guard, vec![next, their_task]).await else { continue };
        assert_eq!(order, "ab");
        compared += 1;
    }
    assert!(compared > 0, "a reservation has run out in every round");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_and_comes_back_is_behind_all_others() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours, theirs] =
        [client(&server).await, client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let gives_up = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    let other = waits(&theirs);
    so_many_stand_in_line(&server, 2).await;
    gives_up.abort();
    so_many_stand_in_line(&server, 1).await;
    let comes_back = waits(&ours);
    so_many_stand_in_line(&server, 2).await;
    assert!(places(&mut redis)[0].0.starts_with(theirs.id()));
    guard.unlock().await.unwrap();
    granted(other).await.unlock().await.unwrap();
    granted(comes_back).await.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_lost_is_made_anew_in_the_same_order() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let holder = client(&server).await;
    let guard = held(&holder).await;
    let (mut clients, mut waiters) = (Vec::new(), Vec::new());
    for number in 0..3 {
        clients.push(client(&server).await);
        waiters.push(waits(&clients[number]));
        so_many_stand_in_line(&server, number + 1).await;
    }
    let before = places(&mut redis);
    redis::cmd("DEL").arg(LINE).exec(&mut redis).unwrap();
    publish(&mut redis, "0");
    so_many_stand_in_line(&server, 3).await;
    assert_eq!(places(&mut redis), before);
    guard.unlock().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.unlock().await.unwrap();
    }
}

/// A process that is stopped is in the way once: its place is gone with its reservation.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_is_in_the_way_of_the_others_once() {
    let server = RedisServer::start();
    let (mut redis, mut listening) = (server.connection(), server.connection());
    let [holder, second, third] =
        [client(&server).await, client(&server).await, client(&server).await];
    let mut frozen = Puppet::start(&server.url(), &[]);
    let guard = held(&holder).await;
    frozen.send(&format!("a mutex {NAME}"));
    so_many_stand_in_line(&server, 1).await;
    let its_field = places(&mut redis)[0].0.clone();
    assert!(its_field.starts_with(&frozen.uuid));
    let waiter = waits(&second);
    so_many_stand_in_line(&server, 2).await;

    frozen.signal("-STOP");
    let mut listener = listening.as_pubsub();
    listener.subscribe(CHANNEL).unwrap();
    guard.unlock().await.unwrap();
    let guard = granted(waiter).await;
    // It tried at the end of the reservation.
    assert_eq!(second.stats().fallback_grants, 0);
    let waiter = waits(&third);
    so_many_stand_in_line(&server, 1).await;
    guard.unlock().await.unwrap();
    let guard = granted(waiter).await;
    let announced = heard(&mut listener, &mut redis);
    let of_frozen = announced.iter().filter(|field| **field == its_field).count();
    assert_eq!(of_frozen, 1, "{announced:?}");

    frozen.signal("-CONT");
    guard.unlock().await.unwrap();
    assert_eq!(frozen.end_of("a")["event"], "granted");
    assert_eq!(frozen.run("u unlock a")["event"], "unlocked");
    frozen.finish();
}

/// Nobody else is there to pass the lock on once its reservation is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_waiter_that_missed_its_message_has_the_lock_at_its_fallback() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    let own = places(&mut redis)[0].0.clone();
    reserve_in_silence(&mut redis, &own);
    redis::cmd("PEXPIRE").arg(NAME).arg(RESERVATION).exec(&mut redis).unwrap();
    let guard = (granted(waiter).await, guard).0;
    assert_eq!(ours.stats().fallback_grants, 1);
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

/// Nobody has reserved it for anybody.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_delete_a_newcomer_may_go_before_those_who_wait() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours, newcomer] =
        [client(&server).await, client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    redis::cmd("DEL").arg(NAME).exec(&mut redis).unwrap();
    let taken = newcomer.mutex(NAME).unwrap().try_lock().await.unwrap().expect("free");
    assert_eq!(places(&mut redis).len(), 1);
    taken.unlock().await.unwrap();
    let next = (granted(waiter).await, guard).0;
    next.unlock().await.unwrap();
}

/// It has the lock when that is free at the moment of an attempt.
#[tokio::test(flavor = "multi_thread")]
async fn who_can_never_subscribe_has_no_place() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, hears] = [client(&server).await, client(&server).await];
    let proxy = FaultProxy::start(&server.address());
    let subscribe = format!("SUBSCRIBE\r\n${}\r\n{CHANNEL}", CHANNEL.len());
    proxy.nth(&subscribe, 0, u64::MAX, Fault::CutBeforeRequest);
    let deaf = builder(&proxy.url()).connect().await.unwrap();
    let guard = held(&holder).await;
    let last = waits(&deaf);
    let waiting = deaf.clone();
    settles("it was refused", move || waiting.stats().waits == 1).await;
    let first = waits(&hears);
    so_many_stand_in_line(&server, 1).await;
    assert!(places(&mut redis)[0].0.starts_with(hears.id()));
    guard.unlock().await.unwrap();
    let guard = granted(first).await;
    assert!(!last.is_finished());
    guard.unlock().await.unwrap();
    granted(last).await.unlock().await.unwrap();
    assert!(proxy.seen("SUBSCRIBE") > 1);
    assert_eq!(look::keys(&mut redis), [""; 0]);
}

/// How many scripts each of some grants has cost, between two clients that take turns. The other
/// one of them waits before it is released; `subscribed` says whether it hears the channel still
/// from the last time.
async fn cost_of_grants(server: &RedisServer, subscribed: bool) -> Vec<u64> {
    let mut redis = server.connection();
    look::load_scripts(&mut redis);
    let clients = [client(server).await, client(server).await];
    let mut guard = held(&clients[1]).await;
    let mut costs = Vec::new();
    for round in 0..if subscribed { 30 } else { 3 } {
        let next = &clients[round % 2];
        let (waiting, held_by) = (next.clone(), clients[(round + 1) % 2].clone());
        if !subscribed {
            settles("the last subscription is over", move || {
                [waiting.stats(), held_by.stats()].iter().all(|stats| stats.subscriptions == 0)
            })
            .await;
        }
        let before = look::script_runs(&mut redis);
        let waiter = waits(next);
        so_many_stand_in_line(server, 1).await;
        guard.unlock().await.unwrap();
        guard = granted(waiter).await;
        costs.push(look::script_runs(&mut redis) - before);
    }
    guard.unlock().await.unwrap();
    leaves_nothing(server, &clients[0]).await;
    leaves_nothing(server, &clients[1]).await;
    costs
}

/// An attempt that enters the line, the release, the pick-up; one attempt more before the channel is
/// subscribed. A subscription may end, and a poll may come, where the machine takes long, so the
/// cheapest counts. A listener that only listens changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_contended_grant_costs_three_scripts_and_four_if_it_has_to_subscribe() {
    for listens in [false, true] {
        let server = RedisServer::start();
        let _listener = listens.then(|| idle_listener(&server));
        let costs = cost_of_grants(&server, true).await;
        assert_eq!(costs[2..].iter().min(), Some(&3), "listener: {listens}: {costs:?}");
        let costs = cost_of_grants(&server, false).await;
        assert_eq!(costs.iter().min(), Some(&4), "listener: {listens}: {costs:?}");
    }
}

/// One is granted, one runs out of time, one is dropped, and one client is shut down.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_name_is_left_when_everybody_has_left_in_order() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let holder = client(&server).await;
    let guard = held(&holder).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&server).await);
    }
    let granted_in_time = waits(&clients[0]);
    so_many_stand_in_line(&server, 1).await;
    let (dropped, _shut_down) = (waits(&clients[1]), waits(&clients[2]));
    so_many_stand_in_line(&server, 3).await;
    let out_of_time = clients[3].mutex(NAME).unwrap();
    let out_of_time = out_of_time.try_lock_for(Duration::from_millis(100)).await;
    assert!(out_of_time.unwrap().is_err());
    dropped.abort();
    for client in &clients[1..] {
        assert!(client.shutdown(BOUND).await.unwrap().is_clean());
    }
    assert_eq!(places(&mut redis).len(), 1);
    guard.unlock().await.unwrap();
    granted(granted_in_time).await.unlock().await.unwrap();
    assert_eq!(look::keys(&mut redis), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_processes_leave_of_a_name_ends_in_time() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let holder = client(&server).await;
    let guard = held(&holder).await;
    let mut killed = Vec::new();
    for number in 0..2 {
        let mut puppet = Puppet::start(&server.url(), &[]);
        puppet.send(&format!("a mutex {NAME}"));
        so_many_stand_in_line(&server, number + 1).await;
        killed.push(puppet);
    }
    killed.iter_mut().for_each(Puppet::kill);
    assert!((1..=LINE_LIVES).contains(&pttl(&mut redis, LINE)));
    guard.unlock().await.unwrap();
    // Reserved for the first of the two. -2: that is over.
    assert!((-2..=RESERVATION).contains(&pttl(&mut redis, NAME)));
    assert_eq!(look::immortal_keys(&mut redis), [""; 0]);
    // Both are in nobody's way.
    assert!(pttl(&mut redis, LINE) <= LINE_LIVES);
    held(&holder).await.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_shown_as_held_by_the_one_it_is_for() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours, asking] =
        [client(&server).await, client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    let own = places(&mut redis)[0].0.clone();
    reserve_in_silence(&mut redis, &own);

    for client in [&asking, &ours] {
        let lock = client.mutex(NAME).unwrap();
        assert!(lock.is_locked().await.unwrap());
        let shown = lock.holder().await.unwrap().expect("reserved");
        assert_eq!((shown.hold_id(), shown.count), (own.clone(), 0));
        assert_eq!(shown.is_this_client, client.id() == ours.id());
        assert!(lock.remaining_lease().await.unwrap().is_some());
    }
    let newcomer = asking.mutex(NAME).unwrap();
    assert!(newcomer.try_lock().await.unwrap().is_err(), "it is kept out");

    // It grants nothing by itself, and lengthens no lease.
    assert!(!waiter.is_finished());
    publish(&mut redis, &own);
    let guard = (granted(waiter).await, guard).0;
    assert_eq!(guard.hold_id(), own);
    assert_eq!(look::hash(&mut redis, NAME)[&own], "1");
    assert!(pttl(&mut redis, NAME) <= 30_000);
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_is_taken_away_by_force_goes_to_the_next_in_line() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [asking, ours] = [client(&server).await, client(&server).await];
    let lock = asking.mutex(NAME).unwrap();
    let stranger = format!("{}:731", uuid::Uuid::new_v4());
    for by_name in [false, true] {
        reserve_in_silence(&mut redis, &stranger);
        let waiter = waits(&ours);
        so_many_stand_in_line(&server, 1).await;
        let shown = lock.holder().await.unwrap().expect("reserved");
        assert_eq!(shown.hold_id(), stranger);
        let forced = match by_name {
            true => lock.force_unlock_from(&shown).await,
            false => lock.force_unlock().await,
        };
        assert!(forced.unwrap());
        granted(waiter).await.unlock().await.unwrap();
    }
    // With nobody in line it is free.
    reserve_in_silence(&mut redis, &stranger);
    assert!(lock.force_unlock().await.unwrap());
    lock.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    leaves_nothing(&server, &asking).await;
}

/// Redisson's clients know of no line.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_profile_redisson_there_is_no_line() {
    let server = RedisServer::start();
    let (mut redis, mut listening) = (server.connection(), server.connection());
    let redisson = || builder(&server.url()).profile(WireProfile::Redisson).connect();
    let [holder, ours] = [redisson().await.unwrap(), redisson().await.unwrap()];
    let channel = format!("redisson_lock__channel:{{{NAME}}}");
    let mut listener = listening.as_pubsub();
    listener.subscribe(&channel).unwrap();
    let guard = held(&holder).await;
    let waiter = waits(&ours);
    let (client, mut looking) = (ours.clone(), server.connection());
    settles("it sleeps", move || client.stats().subscriptions == 1).await;
    assert_eq!(look::keys(&mut looking), [NAME]);
    guard.unlock().await.unwrap();
    let message = listener.get_message().unwrap();
    assert_eq!(message.get_payload::<String>().unwrap(), "0");
    granted(waiter).await.unlock().await.unwrap();
    assert_eq!(look::keys(&mut redis), [""; 0]);
}
