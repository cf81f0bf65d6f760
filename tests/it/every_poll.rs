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
use redis_reentrant_lock::MultiLock;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;
use redis_reentrant_lock::Semaphore;
use tokio::task::JoinHandle;

const NAME: &str = "orders:42";
const LATCH: &str = "ready:7";
const FAIR: &str = "fair";
const CATALOG: &str = "catalog";
const PERMITS: &str = "exports";
/// The first of several locks.
const BEFORE: &str = "before";
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

fn catalog(client: &LockClient) -> RwLock {
    client.rw_lock(CATALOG).unwrap()
}

/// By an owner of its own.
async fn reads(client: &LockClient) -> RwLockReadGuard {
    Owner::new().scope(catalog(client).read()).await.unwrap()
}

async fn writes(client: &LockClient) -> RwLockWriteGuard {
    Owner::new().scope(catalog(client).write()).await.unwrap()
}

/// One before the catalog, and one behind it.
fn several(client: &LockClient) -> MultiLock {
    let (first, last) = (client.mutex(BEFORE).unwrap(), client.reentrant_lock(NAME).unwrap());
    MultiLock::new([last.into(), catalog(client).write_lock(), first.into()]).unwrap()
}

/// How many there are.
const PERMIT_NUMBER: u32 = 3;

fn permits(client: &LockClient) -> Semaphore {
    client.semaphore(PERMITS, PERMIT_NUMBER).unwrap()
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
    preflight_fair_lock(world) {} keep Kept::new(); world.ours.preflight_fair_lock(FAIR).await;
    fair_lock(world) { let lock = world.ours.fair_lock(FAIR).unwrap(); } keep Kept::new();
        world.owner.scope(lock.lock()).await;
    fair_lock_held(world) {
        let lock = world.ours.fair_lock(FAIR).unwrap();
        let theirs = world.theirs.fair_lock(FAIR).unwrap();
        let theirs = Owner::new().scope(theirs.lock()).await.unwrap();
    } keep kept(theirs); world.owner.scope(lock.lock()).await;
    fair_lock_behind_own(world) {
        let lock = world.ours.fair_lock(FAIR).unwrap();
        let guard = Owner::new().scope(lock.lock()).await.unwrap();
    } keep kept(guard); world.owner.scope(lock.lock()).await;
    fair_try_lock(world) { let lock = world.ours.fair_lock(FAIR).unwrap(); } keep Kept::new();
        world.owner.scope(lock.try_lock()).await;
    fair_lock_reenter(world) {
        let lock = world.ours.fair_lock(FAIR).unwrap();
        let outer = world.owner.scope(lock.lock()).await.unwrap();
    } keep kept(outer); world.owner.scope(lock.lock()).await;
    fair_unlock_to_the_next(world) {
        let lock = world.ours.fair_lock(FAIR).unwrap();
        let guard = Owner::new().scope(lock.lock()).await.unwrap();
        let next = tokio::spawn(async move { drop(lock.lock().await) });
        tokio::task::yield_now().await;
    } keep kept(next); guard.unlock().await;
    fair_force_unlock(world) {
        let lock = world.ours.fair_lock(FAIR).unwrap();
        let theirs = world.theirs.fair_lock(FAIR).unwrap();
        let theirs = Owner::new().scope(theirs.lock()).await.unwrap();
    } keep kept(theirs); lock.force_unlock().await;
    preflight_rw_lock(world) {} keep Kept::new(); world.ours.preflight_rw_lock(CATALOG).await;
    read(world) { let lock = catalog(&world.ours); } keep Kept::new();
        world.owner.scope(lock.read()).await;
    read_beside(world) { let lock = catalog(&world.ours); let theirs = reads(&world.theirs).await; }
        keep kept(theirs); world.owner.scope(lock.read()).await;
    read_behind_a_writer(world) {
        let lock = catalog(&world.ours);
        let theirs = writes(&world.theirs).await;
    } keep kept(theirs); world.owner.scope(lock.read()).await;
    read_behind_an_own_writer(world) {
        let lock = catalog(&world.ours);
        let other = writes(&world.ours).await;
    } keep kept(other); world.owner.scope(lock.read()).await;
    read_once_more(world) {
        let lock = catalog(&world.ours);
        let first = world.owner.scope(lock.read()).await.unwrap();
    } keep kept(first); world.owner.scope(lock.read()).await;
    try_read(world) { let lock = catalog(&world.ours); } keep Kept::new();
        world.owner.scope(lock.try_read()).await;
    try_read_for(world) {
        let lock = catalog(&world.ours);
        let theirs = writes(&world.theirs).await;
    } keep kept(theirs); world.owner.scope(lock.try_read_for(Duration::from_secs(1))).await;
    write(world) { let lock = catalog(&world.ours); } keep Kept::new();
        world.owner.scope(lock.write()).await;
    write_behind_readers(world) {
        let lock = catalog(&world.ours);
        let read = (reads(&world.theirs).await, reads(&world.ours).await);
    } keep kept(read); world.owner.scope(lock.write()).await;
    write_beside_another_that_waits(world) {
        let lock = catalog(&world.ours);
        let theirs = reads(&world.theirs).await;
        let other = catalog(&world.ours);
        let other = tokio::spawn(async move { drop(other.write().await) });
        tokio::task::yield_now().await;
    } keep vec![Box::new(theirs), Box::new(Aborts(other))]; world.owner.scope(lock.write()).await;
    write_once_more(world) {
        let lock = catalog(&world.ours);
        let first = world.owner.scope(lock.write()).await.unwrap();
    } keep kept(first); world.owner.scope(lock.write()).await;
    try_write(world) { let lock = catalog(&world.ours); let theirs = reads(&world.theirs).await; }
        keep kept(theirs); world.owner.scope(lock.try_write()).await;
    try_write_for(world) {
        let lock = catalog(&world.ours);
        let theirs = reads(&world.theirs).await;
    } keep kept(theirs); world.owner.scope(lock.try_write_for(Duration::from_secs(1))).await;
    unlock_a_read(world) { let guard = reads(&world.ours).await; } keep Kept::new();
        guard.unlock().await;
    unlock_a_write(world) { let guard = writes(&world.ours).await; } keep Kept::new();
        guard.unlock().await;
    unlock_a_write_to_readers(world) {
        let guard = writes(&world.ours).await;
        let other = catalog(&world.ours);
        let other = tokio::spawn(async move { drop(other.read().await) });
        tokio::task::yield_now().await;
    } keep kept(other); guard.unlock().await;
    downgrade(world) { let guard = writes(&world.ours).await; } keep Kept::new();
        guard.downgrade().await;
    try_upgrade(world) { let guard = reads(&world.ours).await; } keep Kept::new();
        guard.try_upgrade().await;
    try_upgrade_beside_another(world) {
        let guard = reads(&world.ours).await;
        let theirs = reads(&world.theirs).await;
    } keep kept(theirs); guard.try_upgrade().await;
    verify_a_read(world) { let guard = reads(&world.ours).await; } keep Kept::new();
        guard.verify().await;
    rw_lock_holder(world) { let lock = catalog(&world.ours); } keep Kept::new(); lock.holder().await;
    rw_lock_force_unlock(world) {
        let lock = catalog(&world.ours);
        let theirs = writes(&world.theirs).await;
    } keep kept(theirs); lock.force_unlock().await;
    lock_several(world) { let several = several(&world.ours); } keep Kept::new();
        world.owner.scope(several.lock()).await;
    lock_several_of_which_one_is_held(world) {
        let several = several(&world.ours);
        let theirs = writes(&world.theirs).await;
    } keep kept(theirs); world.owner.scope(several.lock()).await;
    lock_several_with(world) {
        let several = several(&world.ours);
        let options = LockOptions::new().lease(LEASE).wait(Duration::from_secs(1));
    } keep Kept::new(); world.owner.scope(several.lock_with(options)).await;
    unlock_several(world) {
        let guard = world.owner.scope(several(&world.ours).lock()).await.unwrap();
    } keep Kept::new(); guard.unlock().await;
    preflight_semaphore(world) {} keep Kept::new(); world.ours.preflight_semaphore(PERMITS).await;
    acquire(world) { let permits = permits(&world.ours); } keep Kept::new(); permits.acquire().await;
    acquire_many_that_are_taken(world) {
        let own = permits(&world.ours);
        let theirs = permits(&world.theirs).acquire_many(2).await.unwrap();
    } keep kept(theirs); own.acquire_many(2).await;
    acquire_behind_an_own(world) {
        let own = permits(&world.ours);
        let other = own.acquire_many(PERMIT_NUMBER).await.unwrap();
    } keep kept(other); own.acquire().await;
    acquire_beside_another_that_waits(world) {
        let own = permits(&world.ours);
        let theirs = permits(&world.theirs).acquire_many(2).await.unwrap();
        let other = own.clone();
        let other = tokio::spawn(async move { drop(other.acquire_many(PERMIT_NUMBER).await) });
        tokio::task::yield_now().await;
    } keep vec![Box::new(theirs), Box::new(Aborts(other))]; own.acquire().await;
    try_acquire(world) { let permits = permits(&world.ours); } keep Kept::new();
        permits.try_acquire().await;
    try_acquire_for(world) {
        let own = permits(&world.ours);
        let theirs = permits(&world.theirs).acquire_many(PERMIT_NUMBER).await.unwrap();
    } keep kept(theirs); own.try_acquire_for(Duration::from_secs(1)).await;
    release_permits(world) { let two = permits(&world.ours).acquire_many(2).await.unwrap(); }
        keep Kept::new(); two.release().await;
    available(world) { let permits = permits(&world.ours); } keep Kept::new();
        permits.available().await;
    permits_that_there_are(world) { let permits = permits(&world.ours); } keep Kept::new();
        permits.permits().await;
    set_permits(world) { let permits = permits(&world.ours); } keep Kept::new();
        permits.set_permits(PERMIT_NUMBER).await;
    add_permits(world) { let permits = permits(&world.ours); } keep Kept::new();
        permits.add_permits(0).await;
    force_release_permits(world) {
        let own = permits(&world.ours);
        let theirs = permits(&world.theirs).acquire().await.unwrap();
        let hold = theirs.hold_id();
    } keep kept(theirs); own.force_release_from(&hold).await;
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
    everything_is_free(&world.theirs).await;
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
    assert!(!world.server.contains(CATALOG));
    assert!(!world.server.contains(BEFORE));
    the_latch_is_sound(&world).await;
    done
}

/// Within a lease.
async fn everything_is_free(client: &LockClient) {
    let wait = Duration::from_secs(60);
    for name in [NAME, BEFORE] {
        let guard = client.mutex(name).unwrap().try_lock_for(wait).await.unwrap();
        guard.expect("free").unlock().await.unwrap();
    }
    let write = Owner::new().scope(async { catalog(client).try_write_for(wait).await });
    write.await.unwrap().expect("nobody reads or writes").unlock().await.unwrap();
    let options = LockOptions::new().wait(wait);
    let all = permits(client).acquire_with(PERMIT_NUMBER, options).await.unwrap();
    all.expect("no permit is taken").release().await.unwrap();
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
