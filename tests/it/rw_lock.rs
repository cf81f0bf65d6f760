//! The read-write lock, on a real server.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "catalog";
const LINE: &str = "redisson_lock_line__{catalog}";
const CHANNEL: &str = "redisson_rwlock:{catalog}";
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);

fn lock(client: &LockClient) -> RwLock {
    client.rw_lock(NAME).unwrap()
}

async fn reads(client: &LockClient) -> RwLockReadGuard {
    let lock = lock(client);
    let read = Owner::new().scope(async move { lock.read().await });
    timeout(BOUND, read).await.expect("granted").unwrap()
}

async fn writes(client: &LockClient) -> RwLockWriteGuard {
    let lock = lock(client);
    let write = Owner::new().scope(async move { lock.write().await });
    timeout(BOUND, write).await.expect("granted").unwrap()
}

/// Whether somebody else could read, and whether somebody else could write.
async fn others_could(client: &LockClient) -> (bool, bool) {
    let lock = lock(client);
    let read = Owner::new().scope(async {
        match lock.try_read().await.unwrap() {
            Ok(guard) => guard.unlock().await.map(|()| true).unwrap(),
            Err(_) => false,
        }
    });
    let read = read.await;
    let write = Owner::new().scope(async {
        match lock.try_write().await.unwrap() {
            Ok(guard) => guard.unlock().await.map(|()| true).unwrap(),
            Err(_) => false,
        }
    });
    (read, write.await)
}

/// A task that waits to read.
fn waits_to_read(client: &LockClient) -> JoinHandle<RwLockReadGuard> {
    let lock = lock(client);
    tokio::spawn(async move { lock.read().await.unwrap() })
}

async fn granted<T>(waiter: JoinHandle<T>) -> T {
    timeout(BOUND, waiter).await.expect("granted").unwrap()
}

async fn so_many_stand_in_line(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    let stand = move || {
        let places: usize = redis::cmd("ZCARD").arg(LINE).query(&mut redis).unwrap();
        places == number
    };
    settles("they stand in line", stand).await;
}

/// So many clients are subscribed to the channel of the lock.
async fn are_subscribed(server: &RedisServer, clients: u64) {
    let mut redis = server.connection();
    settles("they wait", move || look::subscribers(&mut redis, CHANNEL) == clients).await;
}

async fn in_both_profiles(test: impl AsyncFn(&RedisServer, &LockClient, &LockClient)) {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client = async || builder(&server.url()).profile(profile).connect().await.unwrap();
        let (first, second) = (client().await, client().await);
        test(&server, &first, &second).await;
        leaves_nothing(&server, &first).await;
        leaves_nothing(&server, &second).await;
    }
}

async fn native() -> (RedisServer, LockClient, LockClient) {
    let server = RedisServer::start();
    let first = builder(&server.url()).connect().await.unwrap();
    let second = builder(&server.url()).connect().await.unwrap();
    (server, first, second)
}

#[tokio::test]
async fn many_read_beside_each_other() {
    in_both_profiles(async |_, first, second| {
        let guards = [reads(first).await, reads(second).await, reads(first).await];
        assert_eq!(others_could(second).await, (true, false));
        for guard in guards {
            guard.verify().await.unwrap();
            guard.unlock().await.unwrap();
        }
        assert_eq!(others_could(second).await, (true, true));
    })
    .await;
}

#[tokio::test]
async fn a_write_excludes_everybody_else() {
    in_both_profiles(async |server, first, second| {
        let guard = writes(first).await;
        assert_eq!(others_could(first).await, (false, false));
        assert_eq!(others_could(second).await, (false, false));
        let waiting = [waits_to_read(second), waits_to_read(first), waits_to_read(second)];
        are_subscribed(server, 2).await;
        guard.unlock().await.unwrap();
        for waiter in waiting {
            granted(waiter).await.unlock().await.unwrap();
        }
        let writers = [first, second, first].map(|client| {
            let lock = lock(client);
            tokio::spawn(async move { lock.write().await.unwrap().unlock().await.unwrap() })
        });
        for writer in writers {
            granted(writer).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_waits_goes_before_reads_that_come_later() {
    let (server, first, second) = native().await;
    let read = reads(&first).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let (lock, order) = (lock(&second), Arc::clone(&order));
        tokio::spawn(async move {
            let guard = lock.write().await.unwrap();
            order.lock().unwrap().push("write");
            guard.unlock().await.unwrap();
        })
    };
    so_many_stand_in_line(&server, 1).await;
    assert_eq!(others_could(&first).await, (false, false));
    let readers: Vec<_> = [&first, &second]
        .into_iter()
        .map(|client| {
            let (lock, order) = (lock(client), Arc::clone(&order));
            tokio::spawn(async move {
                let guard = lock.read().await.unwrap();
                order.lock().unwrap().push("read");
                guard.unlock().await.unwrap();
            })
        })
        .collect();
    so_many_stand_in_line(&server, 3).await;
    read.unlock().await.unwrap();
    granted(writer).await;
    for reader in readers {
        granted(reader).await;
    }
    assert_eq!(*order.lock().unwrap(), ["write", "read", "read"]);
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    in_both_profiles(async |server, first, second| {
        let write = writes(first).await;
        let token = write.fencing_token();
        let reader = waits_to_read(second);
        are_subscribed(server, 1).await;
        let read = write.downgrade().await.unwrap();
        let beside = granted(reader).await;
        assert!(read.is_held());
        read.verify().await.unwrap();
        assert_eq!(read.fencing_token(), token);
        assert_eq!(others_could(first).await, (true, false));
        assert_eq!(others_could(second).await, (true, false));
        read.unlock().await.unwrap();
        assert_eq!(others_could(first).await, (true, false));
        beside.unlock().await.unwrap();
        assert_eq!(others_could(first).await, (true, true));
    })
    .await;
}

#[tokio::test]
async fn the_only_reader_may_upgrade() {
    in_both_profiles(async |_, first, second| {
        let read = reads(first).await;
        let beside = reads(second).await;
        assert!(read.try_upgrade().await.unwrap().is_err(), "another reads");
        beside.unlock().await.unwrap();
        let write = read.try_upgrade().await.unwrap().expect("it is the only reader");
        assert!(write.fencing_token() > read.fencing_token());
        assert_eq!(others_could(second).await, (false, false));
        let again = read.try_upgrade().await.unwrap().expect("it writes already");
        assert_eq!(again.hold_id(), write.hold_id());
        again.unlock().await.unwrap();
        write.verify().await.unwrap();
        read.verify().await.unwrap();
        write.unlock().await.unwrap();
        assert_eq!(others_could(second).await, (true, false));
        read.verify().await.unwrap();

        // What was downgraded is a read beside the other one.
        let write = read.try_upgrade().await.unwrap().expect("it is the only reader");
        let downgraded = write.downgrade().await.unwrap();
        assert!(read.try_upgrade().await.unwrap().is_err(), "two reads");
        read.unlock().await.unwrap();
        let write = downgraded.try_upgrade().await.unwrap().expect("it is the only reader");
        write.unlock().await.unwrap();
        let read = downgraded;
        read.unlock().await.unwrap();
        assert_eq!(others_could(second).await, (true, true));
    })
    .await;
}

/// The answer to an upgrade is lost, and its undo is late: the read is not lost by that.
#[tokio::test]
async fn an_upgrade_after_one_that_is_not_undone_leaves_the_read() {
    in_both_profiles(async |server, first, _| {
        let mut redis = server.connection();
        let read = reads(first).await;
        let hold = read.hold_id();
        let (client, _) = hold.split_once(':').unwrap();
        let writer = format!("{client}:999999:write");
        let words = ["HSET", NAME, "mode", "write", &writer, "1"];
        let _: () = redis::cmd(words[0]).arg(&words[1..]).query(&mut redis).unwrap();
        assert!(read.try_upgrade().await.unwrap().is_err());
        read.verify().await.unwrap();

        let _: () = redis::cmd("HDEL").arg(NAME).arg(&writer).query(&mut redis).unwrap();
        let _: () = redis::cmd("HSET").arg(NAME).arg(&["mode", "read"]).query(&mut redis).unwrap();
        read.try_upgrade().await.unwrap().expect("it is undone").unlock().await.unwrap();
        read.unlock().await.unwrap();
    })
    .await;
}

/// It would wait for itself for ever.
#[tokio::test]
async fn an_owner_that_only_reads_cannot_ask_to_write() {
    in_both_profiles(async |server, first, _| {
        let lock = lock(first);
        let read = lock.read().await.unwrap();
        let before = look::script_runs(&mut server.connection());
        let error = lock.write().await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        let error = lock.try_write().await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        assert_eq!(look::script_runs(&mut server.connection()), before);
        let again = lock.read().await.unwrap();
        assert_eq!(again.hold_count(), 2);
        read.unlock().await.unwrap();
        again.unlock().await.unwrap();
        let write = lock.write().await.unwrap();
        let (again, read) = (lock.write().await.unwrap(), lock.read().await.unwrap());
        assert_eq!(write.hold_count(), 3);
        write.unlock().await.unwrap();
        again.unlock().await.unwrap();
        read.verify().await.unwrap();
        assert_eq!(others_could(first).await, (true, false));
        read.unlock().await.unwrap();
    })
    .await;
}

/// Clients of Redisson shorten the leases of readers to their watchdog time.
#[tokio::test]
async fn with_redisson_a_read_has_no_longer_lease_than_its_watchdog_time() {
    let server = RedisServer::start();
    let longer = Duration::from_secs(31);
    let fixed = LockOptions::new().lease(longer);
    let native = builder(&server.url()).connect().await.unwrap();
    lock(&native).read_with(fixed).await.unwrap().expect("free").unlock().await.unwrap();
    let client = builder(&server.url()).profile(WireProfile::Redisson).connect().await.unwrap();
    for options in [fixed, LockOptions::new().at_least(longer)] {
        let refused = lock(&client).read_with(options).await.unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused:?}");
        assert!(refused.to_string().contains("redisson_watchdog, 30s"), "{refused}");
    }
    lock(&client).write_with(fixed).await.unwrap().expect("free").unlock().await.unwrap();
    let client =
        builder(&server.url()).profile(WireProfile::Redisson).redisson_watchdog(2 * longer);
    let lock = lock(&client.lease(longer).connect().await.unwrap());
    lock.read().await.unwrap().unlock().await.unwrap();
    let refused = builder(&server.url()).redisson_watchdog(Duration::ZERO).connect().await;
    assert!(matches!(refused, Err(Error::InvalidOption { option: "redisson_watchdog", .. })));
}

/// A writer among readers, as seen from inside.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    /// The most that read at the same time.
    most: AtomicUsize,
}

impl Inside {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Readers that always overlap, and writers that come again at once: everybody gets their turns.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_starves() {
    let (server, first, second) = native().await;
    let inside = Arc::new(Inside::default());
    let writers_done = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for client in [&first, &second] {
        for _ in 0..2 {
            let (lock, inside) = (lock(client), Arc::clone(&inside));
            let done = Arc::clone(&writers_done);
            writers.push(tokio::spawn(async move {
                for _ in 0..20 {
                    lock.with_write(async |_| inside.write().await).await.unwrap();
                }
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        for _ in 0..8 {
            // For as long as there are writers.
            let client = client.clone();
            let (inside, done) = (Arc::clone(&inside), Arc::clone(&writers_done));
            readers.push(tokio::spawn(async move {
                let mut reads = 0;
                while done.load(Ordering::SeqCst) < 4 {
                    lock(&client).with_read(async |_| inside.read().await).await.unwrap();
                    reads += 1;
                }
                reads
            }));
        }
    }
    for writer in writers {
        granted(writer).await;
    }
    for reader in readers {
        assert!(granted(reader).await > 0, "a reader starved");
    }
    assert!(inside.most.load(Ordering::SeqCst) > 1, "readers go beside each other");
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

/// After a writer, all who wait to read go before the next writer.
#[tokio::test]
async fn readers_that_wait_go_before_the_next_writer() {
    let (server, first, second) = native().await;
    let write = writes(&first).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (place, (client, writes)) in
        [(&second, true), (&first, false), (&second, false)].into_iter().enumerate()
    {
        let (lock, order) = (lock(client), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            if writes {
                let guard = lock.write().await.unwrap();
                order.lock().unwrap().push("write");
                guard.unlock().await.unwrap();
            } else {
                let guard = lock.read().await.unwrap();
                order.lock().unwrap().push("read");
                guard.unlock().await.unwrap();
            }
        }));
        so_many_stand_in_line(&server, place + 1).await;
    }
    write.unlock().await.unwrap();
    for task in tasks {
        granted(task).await;
    }
    assert_eq!(*order.lock().unwrap(), ["read", "read", "write"]);
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn a_killed_reader_or_writer_blocks_for_its_lease_at_most() {
    for profile in ["native", "redisson"] {
        for kind in ["read", "write"] {
            let server = RedisServer::start();
            let client = builder(&server.url()).profile(profile.parse().unwrap());
            let client = client.connect().await.unwrap();
            let setting = format!("profile={profile}");
            let mut puppet = Puppet::start(&server.url(), &["lease_ms=1000", &setting]);
            assert_eq!(puppet.run(&format!("a lock {NAME} kind={kind}"))["event"], "granted");
            puppet.kill();
            writes(&client).await.unlock().await.unwrap();
            leaves_nothing(&server, &client).await;
        }
    }
}

/// The hash lives as long as the live reader, but the fields of the dead ones are removed.
#[tokio::test]
async fn dead_readers_do_not_stay_because_a_live_one_does() {
    const DEAD: usize = 200;
    for profile in ["native", "redisson"] {
        let server = RedisServer::start();
        let client = builder(&server.url()).profile(profile.parse().unwrap());
        let client = client.connect().await.unwrap();
        let live = reads(&client).await;
        let setting = format!("profile={profile}");
        let mut puppet = Puppet::start(&server.url(), &["lease_ms=1000", &setting]);
        puppet.send_all((0..DEAD).map(|number| format!("r{number} lock {NAME} kind=read")));
        for number in 0..DEAD {
            assert_eq!(puppet.end_of(&format!("r{number}"))["event"], "granted");
        }
        puppet.kill();
        let mut redis = server.connection();
        assert_eq!(look::hash(&mut redis, NAME).len(), DEAD + 2);
        settles("they are dead", move || look::keys(&mut redis).len() == 2).await;
        let lock = lock(&client);
        let writer = tokio::spawn(async move { lock.write().await.unwrap() });
        let mut redis = server.connection();
        settles("the dead are removed", move || look::hash(&mut redis, NAME).len() == 2).await;
        assert!(live.is_held());
        live.unlock().await.unwrap();
        granted(writer).await.unlock().await.unwrap();
        leaves_nothing(&server, &client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_read_at_the_same_time() {
    let (server, first, second) = native().await;
    let barrier = Arc::new(tokio::sync::Barrier::new(1_000));
    let readers: Vec<_> = (0..1_000)
        .map(|number| {
            let lock = lock(if number % 2 == 0 { &first } else { &second });
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                let guard = lock.read().await.unwrap();
                barrier.wait().await;
                assert!(guard.is_held());
                guard.unlock().await.unwrap();
            })
        })
        .collect();
    for reader in readers {
        granted(reader).await;
    }
    writes(&first).await.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

#[tokio::test]
async fn a_fixed_lease_ends_and_max_hold_limits() {
    in_both_profiles(async |_, first, second| {
        let short = Duration::from_millis(300);
        let options = [
            (LockOptions::new().lease(short), LossReason::Expired),
            (LockOptions::new().max_hold(short), LossReason::MaxHold),
        ];
        for (options, reason) in options {
            let lock = lock(first);
            let read = lock.read_with(options).await.unwrap().expect("free");
            assert_eq!(timeout(BOUND, read.lost()).await.unwrap(), reason);
            assert!(read.unlock().await.unwrap_err().is_lost());
            let write = lock.write_with(options).await.unwrap().expect("free");
            let next = writes(second).await;
            assert!(!write.is_held());
            assert!(write.downgrade().await.unwrap_err().is_lost());
            next.unlock().await.unwrap();
        }
    })
    .await;
}

/// A reader counts as dead when its own key is gone, although the hash is there.
#[tokio::test]
async fn a_read_or_a_write_that_was_removed_is_lost() {
    in_both_profiles(async |server, first, second| {
        let mut redis = server.connection();
        let beside = reads(second).await;
        let read = reads(first).await;
        let key = format!("{{{NAME}}}:{}:rwlock_timeout:1", read.hold_id());
        let _: () = redis::cmd("DEL").arg(&key).query(&mut redis).unwrap();
        let error = read.verify().await.unwrap_err();
        assert!(error.is_lost(), "{error:?}");
        assert!(read.try_upgrade().await.unwrap_err().is_lost());
        drop(read);
        beside.verify().await.unwrap();
        beside.unlock().await.unwrap();

        let write = writes(first).await;
        let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
        let error = write.downgrade().await.unwrap_err();
        assert!(error.is_lost(), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn keys_of_others_are_left_alone_and_named() {
    let (server, client, _) = native().await;
    let mut redis = server.connection();
    let plants: [(&[&str], &str); 4] = [
        (&["SET", NAME, "3"], "not a hash"),
        (&["HSET", NAME, "a", "1"], "a hash that is no read-write lock"),
        (&["HSET", NAME, "kind", "latch"], "a count-down latch"),
        (&["HSET", NAME, "kind", "semaphore"], "a semaphore"),
    ];
    for (plant, words) in plants {
        let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
        let _: () = redis::cmd(plant[0]).arg(&plant[1..]).query(&mut redis).unwrap();
        let before: Vec<u8> = redis::cmd("DUMP").arg(NAME).query(&mut redis).unwrap();
        let lock = lock(&client);
        let errors = [lock.read().await.unwrap_err(), lock.try_write().await.unwrap_err()];
        for error in errors {
            assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let after: Vec<u8> = redis::cmd("DUMP").arg(NAME).query(&mut redis).unwrap();
        assert_eq!(before, after);
    }
}

/// The write is valid for no longer than what a client of Redisson leaves of its lease.
#[tokio::test]
async fn with_redisson_a_downgrade_shortens_a_longer_lease() {
    let server = RedisServer::start();
    let hour = Duration::from_secs(3_600);
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let client = builder(&server.url()).profile(profile).connect().await.unwrap();
        let write = lock(&client).write_with(LockOptions::new().lease(hour)).await.unwrap();
        let read = write.expect("free").downgrade().await.unwrap();
        let left = read.valid_until().remaining();
        let is_short = left <= Duration::from_secs(30);
        assert_eq!(is_short, profile == WireProfile::Redisson, "{left:?}");
        read.unlock().await.unwrap();
    }
}

/// Whatever becomes of the future, nothing is left of the write.
#[tokio::test]
async fn a_downgrade_that_is_dropped_releases_the_lock() {
    in_both_profiles(async |_, first, second| {
        drop(writes(first).await.downgrade());
        writes(second).await.unlock().await.unwrap();
        let mut downgrade = Box::pin(writes(first).await.downgrade());
        // With a server this near it may be done at once.
        drop(futures::poll!(downgrade.as_mut()));
        drop(downgrade);
        writes(second).await.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_puppet_reads_writes_and_downgrades() {
    let server = RedisServer::start();
    let mut puppet = Puppet::start(&server.url(), &[]);
    assert_eq!(puppet.run(&format!("w lock {NAME} kind=write owner=o"))["event"], "granted");
    assert_eq!(puppet.run(&format!("t try {NAME} kind=read"))["event"], "denied");
    assert_eq!(puppet.run(&format!("r lock {NAME} kind=read owner=o"))["count"], 2);
    assert_eq!(puppet.run("ru unlock r")["event"], "unlocked");
    assert_eq!(puppet.run("d downgrade w")["state"], "held");
    assert_eq!(puppet.run("e downgrade w")["event"], "error");
    assert_eq!(puppet.run(&format!("u try {NAME} kind=read"))["event"], "granted");
    assert_eq!(puppet.run(&format!("v try {NAME} kind=write"))["event"], "denied");
    assert_eq!(puppet.run("wu unlock w")["event"], "unlocked");
    assert_eq!(puppet.run("uu unlock u")["event"], "unlocked");
    puppet.finish();
}

/// A name stays taken for others after a fast write, and a read keeps writers away.
#[tokio::test]
async fn a_name_stays_taken_for_at_least_its_time() {
    in_both_profiles(async |_, first, second| {
        let options = LockOptions::new().at_least(Duration::from_secs(1));
        let lock = lock(first);
        lock.write_with(options).await.unwrap().expect("free").unlock().await.unwrap();
        assert_eq!(others_could(second).await, (false, false));
        writes(second).await.unlock().await.unwrap();
        lock.read_with(options).await.unwrap().expect("free").unlock().await.unwrap();
        assert_eq!(others_could(second).await, (true, false));
        writes(second).await.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn who_has_it_is_told_and_can_be_deprived_of_it() {
    in_both_profiles(async |_, first, second| {
        let lock = lock(second);
        assert!(!lock.is_locked().await.unwrap());
        assert_eq!(lock.holder().await.unwrap(), None);
        let write = writes(first).await;
        let holder = lock.holder().await.unwrap().expect("the writer");
        assert_eq!((holder.hold_id(), holder.count), (write.hold_id(), 1));
        assert!(lock.remaining_lease().await.unwrap() > Some(Duration::from_secs(10)));
        assert!(lock.force_unlock_from(&holder).await.unwrap());
        assert_eq!(timeout(BOUND, write.lost()).await.unwrap(), LossReason::ForceUnlocked);
        assert!(!lock.force_unlock_from(&holder).await.unwrap());
        drop(write);

        let readers = [reads(first).await, reads(first).await, reads(second).await];
        assert!(lock.is_locked().await.unwrap());
        let holder = lock.holder().await.unwrap().expect("a reader");
        assert!(readers.iter().any(|read| read.hold_id() == holder.hold_id()));
        assert!(lock.force_unlock().await.unwrap());
        for read in &readers {
            assert_eq!(timeout(BOUND, read.lost()).await.unwrap(), LossReason::ForceUnlocked);
        }
        assert!(!lock.force_unlock().await.unwrap());
        assert_eq!(others_could(first).await, (true, true));
    })
    .await;
}

/// Everything that a read-write lock does.
async fn live(client: &LockClient, other: &LockClient) -> redis_reentrant_lock::Result<()> {
    let owner = || Owner::new();
    let lock = lock(client);
    let read = owner().scope(lock.read()).await?;
    let write = read.try_upgrade().await?.expect("the only reader");
    drop(write.downgrade().await?);
    let waiter = tokio::spawn({
        let lock = other.rw_lock(NAME)?;
        async move { lock.write().await?.unlock().await }
    });
    read.verify().await?;
    read.unlock().await?;
    timeout(BOUND, waiter).await.expect("granted").unwrap()?;
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(owner().scope(lock.read()).await?);
    }
    owner().scope(lock.try_write_for(Duration::from_millis(50))).await?.unwrap_err();
    for read in readers {
        read.unlock().await?;
    }
    let taken = owner().scope(lock.write()).await?;
    lock.force_unlock().await?;
    drop(taken);
    let kept = LockOptions::new().at_least(Duration::from_millis(10));
    owner().scope(lock.write_with(kept)).await?.expect("free").unlock().await
}

/// The user of `required_acl` may do all of this, and the preflight finds each rule that is missing.
#[tokio::test]
async fn the_permissions_of_a_read_write_lock_are_exact() {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let acl = RequiredAcl::new(["cata*"]).unwrap().profile(profile);
        let (locks, rw_locks) = (acl.clone().rules(), acl.rw_locks(true).rules());
        let of_rw_locks: Vec<_> = rw_locks.iter().filter(|rule| !locks.contains(rule)).collect();
        assert!(of_rw_locks.len() >= 4, "{of_rw_locks:?}");
        // That of names with braces.
        let of_rw_locks = of_rw_locks.into_iter().filter(|rule| !rule.contains("cata*{*"));
        for without in std::iter::once(None).chain(of_rw_locks.map(Some)) {
            let rules: Vec<_> = rw_locks.iter().filter(|rule| Some(*rule) != without).collect();
            let mut redis = server.connection();
            let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("u").arg("reset").arg("on").arg(">pw").arg(&rules);
            user.exec(&mut redis).unwrap();
            let url = format!("redis://u:pw@{}", server.address());
            let client = builder(&url).profile(profile).connect().await.unwrap();
            let other = builder(&url).profile(profile).connect().await.unwrap();
            let report = client.preflight_rw_lock(NAME).await.unwrap();
            assert_eq!(report.is_usable(), without.is_none(), "without {without:?}: {report}");
            let life = timeout(BOUND, live(&client, &other)).await.expect("it ends");
            if without.is_none() {
                life.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_preflight_does_not_disturb_a_lock_in_use() {
    in_both_profiles(async |server, first, second| {
        let report = first.preflight_rw_lock(NAME).await.unwrap();
        assert!(report.is_usable(), "{report}");
        assert!(report.to_string().contains("free"), "{report}");
        let read = reads(second).await;
        let before = look::hash(&mut server.connection(), NAME);
        let report = first.preflight_rw_lock(NAME).await.unwrap();
        assert!(report.is_usable() && report.to_string().contains("in use"), "{report}");
        assert_eq!(look::hash(&mut server.connection(), NAME), before);
        read.verify().await.unwrap();
        read.unlock().await.unwrap();
    })
    .await;
}
