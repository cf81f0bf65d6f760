//! Every future of the API dropped after each number of polls, on a server that answers, one that
//! does not, and one that cannot be reached: whatever had begun is undone, and nothing is left.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use redis_reentrant_lock::CountDownLatch;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::Owner;
use tokio::task::JoinHandle;

const NAME: &str = "orders:42";
const LATCH: &str = "ready:7";
/// What a latch is set to before the call.
const COUNT: u32 = 3;
const LEASE: Duration = Duration::from_secs(3);
/// More polls than any of these futures needs as long as time stands still.
const MOST: usize = 400;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What is held meanwhile.
type Kept = Vec<Box<dyn Any + Send>>;
type Prepared = Pin<Box<dyn Future<Output = (Call, Kept)> + Send>>;

#[derive(Clone)]
struct World {
    server: InMemoryServer,
    ours: LockClient,
    theirs: LockClient,
    owner: Owner,
}

async fn client(server: &InMemoryServer) -> LockClient {
    LockClient::builder()
        .in_memory(server)
        .lease(LEASE)
        .outage_limit(Duration::from_secs(2))
        .connect()
        .await
        .unwrap()
}

impl World {
    async fn new() -> Self {
        let server = InMemoryServer::new();
        let (ours, theirs) = (client(&server).await, client(&server).await);
        Self { server, ours, theirs, owner: Owner::new() }
    }
}

fn latch(client: &LockClient) -> CountDownLatch {
    client.count_down_latch(LATCH).unwrap()
}

/// A latch of this client that has a count.
async fn counted(world: &World) -> CountDownLatch {
    assert!(latch(&world.theirs).try_set_count(COUNT).await.unwrap());
    latch(&world.ours)
}

async fn missing() -> Result<Lookup<u8>, Infallible> {
    Ok(Lookup::Missing)
}

async fn computed(_: &Guard) -> Result<u8, Infallible> {
    Ok(7)
}

/// A call of the API: what is prepared, then what is polled.
macro_rules! calls {
    ($($name:ident($world:ident) { $($prepare:tt)* } keep $kept:expr; $call:expr;)*) => {
        $(fn $name($world: World) -> Prepared {
            Box::pin(async move {
                $($prepare)*
                let kept: Kept = $kept;
                let call: Call = Box::pin(async move { let _ = $call; });
                (call, kept)
            })
        })*
        const CALLS: &[(&str, fn(World) -> Prepared)] = &[$((stringify!($name), $name)),*];
    };
}

fn kept(thing: impl Any + Send) -> Kept {
    vec![Box::new(thing)]
}

calls! {
    connect(world) {} keep Kept::new();
        LockClient::builder().in_memory(&world.server).connect().await;
    ping(world) {} keep Kept::new(); world.ours.ping().await;
    preflight(world) {} keep Kept::new(); world.ours.preflight(NAME).await;
    shutdown(world) {
        let guard = world.ours.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(guard); world.ours.shutdown(Duration::from_secs(1)).await;
    lock_free(world) { let lock = world.ours.reentrant_lock(NAME).unwrap(); } keep Kept::new();
        world.owner.scope(lock.lock()).await;
    lock_held(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(theirs); world.owner.scope(lock.lock()).await;
    lock_behind_own(world) {
        let lock = world.ours.mutex(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
    } keep kept(guard); lock.lock().await;
    reenter(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let outer = world.owner.scope(lock.lock()).await.unwrap();
    } keep kept(outer); world.owner.scope(lock.lock()).await;
    try_lock(world) { let lock = world.ours.reentrant_lock(NAME).unwrap(); } keep Kept::new();
        world.owner.scope(lock.try_lock()).await;
    try_lock_for(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(theirs); world.owner.scope(lock.try_lock_for(Duration::from_secs(1))).await;
    lock_with(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let options = LockOptions::new().lease(LEASE).max_hold(LEASE);
    } keep Kept::new(); world.owner.scope(lock.lock_with(options)).await;
    mutex_lock(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new(); lock.lock().await;
    mutex_try_lock(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.try_lock().await;
    mutex_try_lock_for(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.try_lock_for(Duration::from_secs(1)).await;
    mutex_lock_with(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.lock_with(LockOptions::new().wait(Duration::from_secs(1))).await;
    unlock(world) { let guard = world.ours.mutex(NAME).unwrap().lock().await.unwrap(); } keep Kept::new();
        guard.unlock().await;
    unlock_level(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let outer = world.owner.scope(lock.lock()).await.unwrap();
        let inner = world.owner.scope(lock.lock()).await.unwrap();
    } keep kept(outer); inner.unlock().await;
    unlock_to_the_next(world) {
        let lock = world.ours.mutex(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
        let next = tokio::spawn(async move { drop(lock.lock().await) });
        tokio::task::yield_now().await;
    } keep kept(next); guard.unlock().await;
    verify(world) { let guard = world.ours.mutex(NAME).unwrap().lock().await.unwrap(); } keep Kept::new();
        guard.verify().await;
    lost(world) { let guard = world.ours.mutex(NAME).unwrap().lock().await.unwrap(); } keep Kept::new();
        guard.lost().await;
    run(world) { let guard = world.ours.mutex(NAME).unwrap().lock().await.unwrap(); } keep Kept::new();
        guard.run(tokio::time::sleep(Duration::from_secs(1))).await;
    is_locked(world) { let lock = world.ours.reentrant_lock(NAME).unwrap(); } keep Kept::new();
        lock.is_locked().await;
    remaining_lease(world) { let lock = world.ours.reentrant_lock(NAME).unwrap(); } keep Kept::new();
        lock.remaining_lease().await;
    holder(world) { let lock = world.ours.reentrant_lock(NAME).unwrap(); } keep Kept::new();
        lock.holder().await;
    force_unlock(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(theirs); lock.force_unlock().await;
    force_unlock_from(world) {
        let lock = world.ours.reentrant_lock(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
        let holder = lock.holder().await.unwrap().unwrap();
    } keep kept(theirs); lock.force_unlock_from(&holder).await;
    mutex_is_locked(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.is_locked().await;
    mutex_remaining_lease(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.remaining_lease().await;
    mutex_holder(world) { let lock = world.ours.mutex(NAME).unwrap(); } keep Kept::new();
        lock.holder().await;
    mutex_force_unlock(world) {
        let lock = world.ours.mutex(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(theirs); lock.force_unlock().await;
    preflight_latch(world) {} keep Kept::new(); world.ours.preflight_latch(LATCH).await;
    latch_set(world) { let latch = latch(&world.ours); } keep Kept::new();
        latch.try_set_count(COUNT).await;
    latch_set_for(world) { let latch = latch(&world.ours); } keep Kept::new();
        latch.try_set_count_for(COUNT, Duration::from_secs(60)).await;
    latch_count_down(world) { let latch = counted(&world).await; } keep Kept::new();
        latch.count_down().await;
    latch_count(world) { let latch = counted(&world).await; } keep Kept::new(); latch.count().await;
    latch_delete(world) { let latch = counted(&world).await; } keep Kept::new(); latch.delete().await;
    latch_wait(world) { let latch = counted(&world).await; } keep Kept::new(); latch.wait().await;
    latch_wait_beside_another(world) {
        let latch = counted(&world).await;
        let other = latch.clone();
        let other = tokio::spawn(async move { drop(other.wait().await) });
        tokio::task::yield_now().await;
    } keep kept(Aborts(other)); latch.wait().await;
    flight_that_leads(world) {
        let flight = world.ours.single_flight(NAME).unwrap();
    } keep Kept::new(); flight.run(missing, computed).await;
    flight_that_watches(world) {
        let flight = world.ours.single_flight(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
    } keep kept(theirs); flight.run(missing, computed).await;
    flight_in_a_group(world) {
        let flight = world.ours.single_flight(NAME).unwrap();
        let theirs = world.theirs.mutex(NAME).unwrap().lock().await.unwrap();
        let first = flight.clone();
        let first = tokio::spawn(async move { drop(first.run(missing, computed).await) });
        tokio::task::yield_now().await;
    } keep vec![Box::new(theirs), Box::new(Aborts(first))]; flight.run(missing, computed).await;
}

/// A task that ends with this.
struct Aborts(JoinHandle<()>);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Polls a future at most so many times, then drops it. Ready: whether it was done before.
struct Polled {
    call: Option<Call>,
    left: usize,
    /// At every turn of the runtime, in which time stands still, or only when it is woken, while
    /// time passes.
    eager: bool,
}

impl Future for Polled {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let eager = self.eager;
        if self.left == 0 {
            self.call = None;
            return Poll::Ready(false);
        }
        self.left -= 1;
        let Some(call) = &mut self.call else { return Poll::Ready(true) };
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        if eager || self.left == 0 {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[derive(Debug, Clone, Copy)]
enum Weather {
    Calm,
    /// Executed, and no answer comes.
    Mute,
    Unreachable,
}

impl Weather {
    fn set(self, server: &InMemoryServer, on: bool) {
        match self {
            Self::Calm => {}
            Self::Mute => server.set_answering(!on),
            Self::Unreachable => server.set_reachable(!on),
        }
    }
}

/// Whether the call was done within so many polls. Checks that nothing is left of it.
async fn polled(
    prepare: fn(World) -> Prepared,
    weather: Weather,
    polls: usize,
    eager: bool,
) -> bool {
    let world = World::new().await;
    let (call, kept) = prepare(world.clone()).await;
    weather.set(&world.server, true);
    // One that is not woken any more waits for something that will not happen: no number of polls
    // changes that.
    let polled = Polled { call: Some(call), left: polls, eager };
    let done = tokio::time::timeout(Duration::from_secs(10), polled).await.unwrap_or(true);
    weather.set(&world.server, false);
    // Whoever waits behind a task that is not polled would wait for ever.
    drop(kept);
    let guard =
        world.theirs.mutex(NAME).unwrap().try_lock_for(Duration::from_secs(60)).await.unwrap();
    guard.expect("free within a lease").unlock().await.unwrap();
    // A client that was shut down says what it left to its lease, and does nothing any more.
    let open = !matches!(world.ours.ping().await, Err(Error::Closed { .. }));
    for client in [&world.ours, &world.theirs].into_iter().skip(usize::from(!open)) {
        for _ in 0..600 {
            if is_idle(client) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(is_idle(client), "{:?}", client.stats());
    }
    assert!(!world.server.contains(NAME));
    the_latch_is_sound(&world).await;
    done
}

/// A call counts once at most, whatever became of it; and whoever waits goes on when the latch is
/// gone.
async fn the_latch_is_sound(world: &World) {
    let latch = latch(&world.theirs);
    let count = latch.count().await.unwrap();
    assert!([0, 2, u64::from(COUNT)].contains(&count), "{count}");
    let waiter = latch.clone();
    let waiter = tokio::spawn(async move { waiter.wait().await });
    latch.delete().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(!world.server.contains(LATCH));
}

fn is_idle(client: &LockClient) -> bool {
    let stats = client.stats();
    [stats.holds, stats.waiters, stats.registered_renewals, stats.subscriptions, stats.clean_ups]
        == [0; 5]
}

/// With each number of polls, until it is done; how many numbers there were.
async fn every_poll(
    name: &str,
    prepare: fn(World) -> Prepared,
    weather: Weather,
    eager: bool,
) -> usize {
    for polls in 0..MOST {
        let checked = tokio::spawn(polled(prepare, weather, polls, eager));
        let done = checked
            .await
            .unwrap_or_else(|_| panic!("{name} {weather:?}, dropped after {polls} polls"));
        // While time stands still, what waits for time is never done: enough once every turn has
        // been seen.
        if done || eager && polls == 40 {
            return polls + 1;
        }
    }
    panic!("{name} {weather:?} is not done after {MOST} polls");
}

async fn all(weather: Weather) {
    let mut drops = 0;
    for (name, prepare) in CALLS {
        for eager in [true, false] {
            drops += every_poll(name, *prepare, weather, eager).await;
        }
    }
    println!(
        "{{\"part\":\"every-poll\",\"weather\":\"{weather:?}\",\"calls\":{},\"drops\":{drops}}}",
        CALLS.len()
    );
    assert!(drops > 2 * CALLS.len());
}

#[tokio::test(start_paused = true)]
async fn on_a_server_that_answers() {
    all(Weather::Calm).await;
}

#[tokio::test(start_paused = true)]
async fn on_a_server_that_does_not_answer() {
    all(Weather::Mute).await;
}

#[tokio::test(start_paused = true)]
async fn on_a_server_that_cannot_be_reached() {
    all(Weather::Unreachable).await;
}
