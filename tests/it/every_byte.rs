//! Every script cut off at each byte of its request and of its reply: executed or not, nobody can
//! know, and the operation ends well, with exact counts and nothing left.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::server_errors::DROPPED;
use crate::server_errors::Use;
use crate::support::calls;
use crate::support::calls::Call;
use crate::support::calls::Subject;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const BOUND: Duration = Duration::from_secs(10);

/// What a script is sent for.
#[derive(Clone, Copy)]
enum Cut {
    Lock(Use),
    /// A call of another kind.
    Other(&'static Subject, &'static str),
    /// A script that a single flight needs.
    Flight(&'static str),
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(of) => write!(f, "Lock({of:?})"),
            Self::Other(subject, call) => write!(f, "{}: {call}", subject.folder),
            Self::Flight(script) => write!(f, "Flight({script})"),
        }
    }
}

impl Cut {
    /// The folder of the script, and its name.
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock(of) => ("reentrant", of.script()),
            Self::Other(subject, call) => (subject.folder, subject.call(call).script),
            Self::Flight(script) => ("reentrant", script),
        }
    }

    /// Whether something else is sent for it now and then.
    fn is_chancy(self) -> bool {
        match self {
            Self::Lock(of) => of.is_chancy(),
            // The lock may be free by the time of the attempt.
            Self::Flight(script) => script == "inspect",
            Self::Other(..) => false,
        }
    }
}

const SUBJECTS: [&Subject; 6] = [
    &calls::LATCH,
    &calls::SEMAPHORE,
    &calls::PERMIT_EXPIRABLE,
    &calls::READ_WRITE,
    &calls::FAIR,
    &calls::FAIR_QUEUE,
];

struct World {
    server: RedisServer,
    proxy: Arc<FaultProxy>,
    client: LockClient,
    connection: Connection,
    digest: String,
    what: String,
}

impl World {
    async fn new((kind, script): (&str, &str)) -> Self {
        let server = RedisServer::start();
        let proxy = Arc::new(FaultProxy::start(&server.address()));
        let of_kind = SUBJECTS.iter().find(|subject| subject.folder == kind);
        let profile = of_kind.map_or(WireProfile::Native, |subject| subject.profile);
        // A new connection may take its time on a busy machine.
        let builder = LockClient::builder()
            .url(proxy.url())
            .profile(profile)
            .outage_limit(BOUND)
            .command_timeout(Duration::from_secs(5));
        let mut connection = server.connection();
        look::load_scripts(&mut connection);
        let client = builder.connect().await.unwrap();
        for subject in SUBJECTS {
            subject.load_scripts(&mut connection);
        }
        let digest = look::digest_of(&mut connection, kind, script);
        Self { server, proxy, client, connection, digest, what: String::new() }
    }

    fn arm(&self, fault: &Fault) {
        self.proxy.once(&self.digest, fault.clone());
    }

    fn count(&mut self) -> Option<u32> {
        look::hash(&mut self.connection, "lock")
            .into_values()
            .next()
            .map(|count| count.parse().unwrap())
    }

    async fn run(&mut self, of: Cut, fault: &Fault) {
        match of {
            Cut::Lock(of) => self.lock(of, fault).await,
            Cut::Other(subject, call) => self.other(subject, subject.call(call), fault).await,
            Cut::Flight(script) => self.flight(script, fault).await,
        }
    }

    /// It is done once, and the next one finds nothing of it.
    async fn other(&mut self, subject: &Subject, call: &Call, fault: &Fault) {
        let (proxy, digest) = (Arc::clone(&self.proxy), self.digest.clone());
        let harms = fault.clone();
        let harm = Box::new(move || proxy.once(&digest, harms));
        let (done, held) = call.run(&self.client, harm).await;
        if let Err(error) = done {
            // Who asks whether it still holds is told that nobody knows.
            assert!(call.name == "verify" && error.is_transient(), "{}: {error}", self.what);
        }
        subject.assert_done(&mut self.connection, call, true, &self.what).await;
        drop(held);
        let client = self.client.clone();
        settles("all is given up", move || client.stats().holds == 0).await;
        for key in look::keys(&mut self.connection) {
            redis::cmd("DEL").arg(key).exec(&mut self.connection).unwrap();
        }
    }

    /// A value is computed once.
    async fn flight(&mut self, script: &str, fault: &Fault) {
        let flight = self.client.single_flight("lock").unwrap();
        let value = Arc::new(AtomicU32::new(0));
        let lookup = async || {
            let found = value.load(Ordering::SeqCst);
            Ok::<_, Infallible>(if found == 0 { Lookup::Missing } else { Lookup::Fresh(found) })
        };
        let compute = async |_: &Guard| Ok(value.fetch_add(1, Ordering::SeqCst) + 1);
        if script != "inspect" {
            self.arm(fault);
            let Ok(led) = flight.run(lookup, compute).await.unwrap();
            assert_eq!((led, value.load(Ordering::SeqCst)), (1, 1), "{}", self.what);
        } else {
            // Another client computes.
            let other = LockClient::connect(&self.server.url()).await.unwrap();
            let guard = other.mutex("lock").unwrap().lock().await.unwrap();
            self.arm(fault);
            let before = self.proxy.seen("EVALSHA");
            let stores = async {
                // Its attempt comes first.
                while self.proxy.seen("EVALSHA") == before {
                    tokio::task::yield_now().await;
                }
                value.store(9, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            };
            let (watched, ()) = tokio::join!(flight.run(lookup, compute), stores);
            let Ok(watched) = watched.unwrap();
            assert_eq!((watched, value.load(Ordering::SeqCst)), (9, 9), "{}", self.what);
            other.shutdown(BOUND).await.unwrap();
        }
        let lock = self.client.mutex("lock").unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
    }

    async fn lock(&mut self, of: Use, fault: &Fault) {
        let lock = self.client.mutex("lock").unwrap();
        match of {
            Use::Acquire => {
                self.arm(fault);
                let guard = lock.lock().await.unwrap();
                assert_eq!(self.count(), Some(1), "{}", self.what);
                guard.unlock().await.unwrap();
            }
            Use::Reenter | Use::ReleaseOne => Owner::new().scope(self.nest(of, fault)).await,
            Use::Release => {
                let guard = lock.lock().await.unwrap();
                self.arm(fault);
                guard.unlock().await.unwrap();
                assert_eq!(self.count(), None, "{}", self.what);
            }
            Use::Renew => self.renew(fault).await,
            Use::HandOff => self.hand_off(fault).await,
            Use::Inspect => {
                let guard = lock.lock().await.unwrap();
                self.arm(fault);
                assert_eq!(lock.holder().await.unwrap().unwrap().count, 1, "{}", self.what);
                guard.unlock().await.unwrap();
            }
            Use::ForceRelease => {
                let field = format!("{}:1", uuid::Uuid::new_v4());
                redis::cmd("HSET")
                    .arg("lock")
                    .arg(field)
                    .arg(1)
                    .exec(&mut self.connection)
                    .unwrap();
                redis::cmd("PEXPIRE").arg("lock").arg(60_000).exec(&mut self.connection).unwrap();
                self.arm(fault);
                assert!(lock.force_unlock().await.unwrap(), "{}", self.what);
                assert_eq!(self.count(), None, "{}", self.what);
            }
            Use::ReleaseMany => self.drop_together(fault).await,
            Use::ReleaseAt => {
                let options = LockOptions::new().at_least(Duration::from_secs(60));
                let guard = lock.lock_with(options).await.unwrap().unwrap();
                self.arm(fault);
                guard.unlock().await.unwrap();
                assert_eq!(lock.holder().await.unwrap().unwrap().count, 0, "{}", self.what);
                assert!(lock.force_unlock().await.unwrap(), "{}", self.what);
            }
        }
    }

    async fn drop_together(&mut self, fault: &Fault) {
        let mut guards = Vec::new();
        for number in 0..DROPPED {
            guards.push(self.client.mutex(format!("lock{number}")).unwrap().lock().await.unwrap());
        }
        self.arm(fault);
        drop(guards);
        let mut connection = self.server.connection();
        settles("all are free", move || look::lock_keys(&mut connection).is_empty()).await;
    }

    async fn nest(&mut self, of: Use, fault: &Fault) {
        let lock = self.client.reentrant_lock("lock").unwrap();
        let outer = lock.lock().await.unwrap();
        if of == Use::Reenter {
            self.arm(fault);
        }
        let inner = lock.lock().await.unwrap();
        assert_eq!(self.count(), Some(2), "{}", self.what);
        if of == Use::ReleaseOne {
            self.arm(fault);
        }
        inner.unlock().await.unwrap();
        assert_eq!(self.count(), Some(1), "{}", self.what);
        assert_eq!((lock.hold_count().unwrap(), outer.is_held()), (1, true));
        outer.unlock().await.unwrap();
    }

    async fn renew(&mut self, fault: &Fault) {
        let guard = self.client.mutex("lock").unwrap().lock().await.unwrap();
        self.arm(fault);
        // Told that nobody knows, or confirmed by the next try.
        if let Err(error) = guard.verify().await {
            assert!(error.is_transient(), "{}: {error}", self.what);
            guard.verify().await.unwrap();
        }
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
    }

    async fn hand_off(&mut self, fault: &Fault) {
        let lock = self.client.mutex("lock").unwrap();
        let guard = lock.lock().await.unwrap();
        let (next, before) = (lock.clone(), self.client.stats().waits);
        let waiter = tokio::spawn(async move { next.lock().await.unwrap() });
        while self.client.stats().waits == before {
            tokio::task::yield_now().await;
        }
        let token = guard.fencing_token();
        self.arm(fault);
        guard.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(guard.fencing_token() > token && guard.is_held(), "{}", self.what);
        assert_eq!(self.count(), Some(1), "{}", self.what);
        guard.unlock().await.unwrap();
    }

    /// What is meant to be handed off, or to go together, goes by itself now and then. And much
    /// that is to be undone goes in a script that the server lacks: then each script is sent in
    /// full once, which is not what is cut.
    async fn run_until_met(&mut self, of: Cut, fault: &Fault) {
        for _ in 0..200 {
            let whole = self.proxy.seen("EVAL");
            let done = timeout(BOUND, self.run(of, fault)).await;
            assert!(done.is_ok(), "{}: no end within {BOUND:?}", self.what);
            if self.proxy.clear() == 0 {
                return;
            }
            assert!(of.is_chancy() || self.proxy.seen("EVAL") > whole, "{}: not met", self.what);
        }
        panic!("{}: never met", self.what);
    }

    /// Each number of bytes from none to all of a frame; how many there were.
    async fn every_byte(&mut self, of: Cut, cut_at: fn(usize) -> Fault) -> usize {
        let mut bytes = 0;
        loop {
            self.what = format!("{of:?} {:?}", cut_at(bytes));
            self.run_until_met(of, &cut_at(bytes)).await;
            if bytes >= self.proxy.cut_frame() {
                return bytes + 1;
            }
            bytes += 1;
        }
    }
}

async fn cut(of: Cut) {
    let mut world = World::new(of.script()).await;
    let requests = world.every_byte(of, Fault::CutRequestAt).await;
    let replies = world.every_byte(of, Fault::CutReplyAt).await;
    println!(
        "{{\"part\":\"every-byte\",\"of\":\"{of:?}\",\"requests\":{requests},\"replies\":{replies}}}"
    );
    assert!(requests > 50 && replies > 10);
    assert!(look::immortal_keys(&mut world.connection).is_empty());
    leaves_nothing(&world.server, &world.client).await;
}

macro_rules! cut {
    ($($name:ident: $of:expr;)*) => {
        $(#[tokio::test(flavor = "multi_thread")] async fn $name() { cut($of).await; })*
    };
}

cut! {
    an_acquire: Cut::Lock(Use::Acquire);
    a_reentry: Cut::Lock(Use::Reenter);
    the_release_of_a_level: Cut::Lock(Use::ReleaseOne);
    a_release: Cut::Lock(Use::Release);
    a_renewal: Cut::Lock(Use::Renew);
    a_hand_off: Cut::Lock(Use::HandOff);
    an_inspection: Cut::Lock(Use::Inspect);
    a_force_release: Cut::Lock(Use::ForceRelease);
    releases_together: Cut::Lock(Use::ReleaseMany);
    a_release_that_keeps_the_name: Cut::Lock(Use::ReleaseAt);
    setting_a_count: Cut::Other(&calls::LATCH, "try_set_count");
    a_count_down: Cut::Other(&calls::LATCH, "count_down");
    the_deletion_of_a_latch: Cut::Other(&calls::LATCH, "delete");
    a_look_at_a_latch: Cut::Other(&calls::LATCH, "wait");
    an_acquire_of_a_fair_lock: Cut::Other(&calls::FAIR, "lock");
    a_level_of_a_fair_lock: Cut::Other(&calls::FAIR, "lock once more");
    a_release_of_a_fair_lock: Cut::Other(&calls::FAIR, "release");
    a_release_that_keeps_a_fair_lock: Cut::Other(&calls::FAIR, "release that keeps the name");
    an_acquire_of_permits: Cut::Other(&calls::SEMAPHORE, "acquire");
    a_release_of_permits: Cut::Other(&calls::SEMAPHORE, "release");
    a_release_that_keeps_permits: Cut::Other(&calls::SEMAPHORE, "release that keeps permits");
    a_renewal_of_permits: Cut::Other(&calls::SEMAPHORE, "verify");
    a_forced_release_of_permits: Cut::Other(&calls::SEMAPHORE, "force_release_from");
    a_look_at_a_semaphore: Cut::Other(&calls::SEMAPHORE, "available");
    adding_permits: Cut::Other(&calls::SEMAPHORE, "add_permits");
    an_acquire_of_a_fair_lock_in_redisson: Cut::Other(&calls::FAIR_QUEUE, "lock");
    a_level_of_a_fair_lock_in_redisson: Cut::Other(&calls::FAIR_QUEUE, "lock once more");
    a_release_of_a_fair_lock_in_redisson: Cut::Other(&calls::FAIR_QUEUE, "release");
    an_acquire_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "acquire");
    a_release_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "release");
    a_release_that_keeps_permits_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "release that keeps permits");
    a_renewal_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "verify");
    a_forced_release_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "force_release_from");
    a_look_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "available");
    adding_permits_in_redisson: Cut::Other(&calls::PERMIT_EXPIRABLE, "add_permits");
    a_read: Cut::Other(&calls::READ_WRITE, "read");
    a_write: Cut::Other(&calls::READ_WRITE, "write");
    a_read_of_a_reader: Cut::Other(&calls::READ_WRITE, "read once more");
    a_write_of_a_writer: Cut::Other(&calls::READ_WRITE, "write once more");
    the_release_of_one_read_of_two: Cut::Other(&calls::READ_WRITE, "release of one read of two");
    the_release_of_a_read: Cut::Other(&calls::READ_WRITE, "release of a read");
    the_release_of_a_write: Cut::Other(&calls::READ_WRITE, "release of the write");
    a_release_of_a_write_that_keeps_the_name: Cut::Other(&calls::READ_WRITE, "release that keeps the name");
    the_renewal_of_a_read: Cut::Other(&calls::READ_WRITE, "verify");
    a_look_at_a_writer: Cut::Other(&calls::READ_WRITE, "holder");
    a_forced_release_of_a_write: Cut::Other(&calls::READ_WRITE, "force_unlock");
    a_downgrade: Cut::Other(&calls::READ_WRITE, "downgrade");
    an_upgrade: Cut::Other(&calls::READ_WRITE, "try_upgrade");
    the_attempt_of_a_flight: Cut::Flight("acquire");
    the_release_of_a_flight: Cut::Flight("release");
    the_look_of_who_watches_a_flight: Cut::Flight("inspect");
}

/// What a new connection says first, and what it is answered, cut off at each byte: the next one is
/// well.
#[tokio::test(flavor = "multi_thread")]
async fn a_greeting() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    for (request, pattern) in
        [("TIME", "\r\nTIME\r\n"), ("SUBSCRIBE", "redisson_lock__client"), ("INFO", "INFO")]
    {
        for cut_at in [Fault::CutRequestAt as fn(usize) -> Fault, Fault::CutReplyAt] {
            let mut bytes = 0;
            loop {
                proxy.once(pattern, cut_at(bytes));
                let connecting = LockClient::builder().url(proxy.url()).connect();
                let client = timeout(BOUND, connecting).await.expect(request).expect(request);
                if proxy.clear() > 0 {
                    assert_eq!(request, "INFO", "not met");
                    break;
                }
                client.mutex("lock").unwrap().lock().await.unwrap().unlock().await.unwrap();
                let frame = proxy.cut_frame();
                // Of long replies the beginning and the end.
                let long = frame > 600 && (100..frame - 100).contains(&bytes);
                bytes = if long { frame - 100 } else { bytes + 1 };
                client.shutdown(BOUND).await.unwrap();
                if bytes > frame {
                    break;
                }
            }
        }
    }
    let mut connection = server.connection();
    settles("no key is left", move || look::lock_keys(&mut connection).is_empty()).await;
}
