//! The kinds of locks beside the reentrant one: a call for each script, and what it does. A harness
//! does harm to the script of a call, and looks whether it was done once or not at all.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;

use crate::support::look;

/// The name of every lock here.
const NAME: &str = "subject";
/// How long a name stays taken.
const KEPT: Duration = Duration::from_secs(60);

/// What is held in the end.
pub(crate) type Kept = Vec<Box<dyn Any + Send>>;
type Doing = Pin<Box<dyn Future<Output = (Result<()>, Kept)> + Send>>;
/// Prepares, calls what it is given, which does the harm, and then asks for something.
type Run = fn(LockClient, Harm) -> Doing;
pub(crate) type Harm = Box<dyn FnOnce() + Send>;

pub(crate) struct Subject {
    /// The folder of its scripts.
    pub(crate) folder: &'static str,
    /// Of its clients.
    pub(crate) profile: WireProfile,
    pub(crate) calls: &'static [Call],
    /// What is there, in a few words.
    look: fn(&mut Connection) -> String,
    /// Its calls are done once, whatever they are answered with, also with an error that no server
    /// sends once a script was run.
    pub(crate) is_done_once: bool,
}

pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    run: Run,
    /// What is there in the end if its script was not run, and if it was.
    before: &'static str,
    after: &'static str,
}

impl Call {
    pub(crate) fn run(&self, client: &LockClient, harm: Harm) -> Doing {
        (self.run)(client.clone(), harm)
    }
}

impl Subject {
    pub(crate) fn call(&self, name: &str) -> &Call {
        self.calls.iter().find(|call| call.name == name).expect("a call of that name")
    }

    /// Has the server know all its scripts.
    pub(crate) fn load_scripts(&self, connection: &mut Connection) {
        for script in look::scripts_of(self.folder).keys() {
            look::digest_of(connection, self.folder, script);
        }
    }

    /// What failed may be given up in the background.
    pub(crate) async fn assert_done(
        &self,
        connection: &mut Connection,
        call: &Call,
        was_run: bool,
        what: &str,
    ) {
        let there = if was_run { call.after } else { call.before };
        for _ in 0..1_000 {
            if (self.look)(connection) == there {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((self.look)(connection), there, "{what}, {}", call.name);
    }
}

/// Calls of a kind: what is prepared, the call, and what is kept afterwards.
macro_rules! calls {
    ($($name:literal by $script:literal: $before:literal => $after:literal,
        ($client:ident) { $($prepare:tt)* } $call:expr, keep $kept:expr;)*) => {
        &[$(Call {
            name: $name,
            script: $script,
            before: $before,
            after: $after,
            run: |$client, harm| Box::pin(async move {
                $($prepare)*
                harm();
                let done: Result<()> = $call;
                (done, $kept)
            }),
        }),*]
    };
}

/// A guard, or several of them.
fn kept(thing: impl Any + Send) -> Kept {
    vec![Box::new(thing)]
}

/// Keeps what a call was given.
fn keep(kept: &mut Kept, granted: Result<impl Any + Send>) -> Result<()> {
    granted.map(|guard| kept.push(Box::new(guard)))
}

// ---- the count-down latch

pub(crate) static LATCH: Subject = Subject {
    folder: "latch",
    profile: WireProfile::Native,
    look: |connection| {
        look::hash(connection, NAME).remove("count").unwrap_or_else(|| "none".to_owned())
    },
    is_done_once: true,
    calls: calls! {
        "try_set_count" by "try_set_count": "none" => "2",
            (client) { let latch = client.count_down_latch(NAME).unwrap(); }
            latch.try_set_count(2).await.map(|set| assert!(set)), keep Kept::new();
        "count_down" by "count_down": "2" => "1",
            (client) {
                let latch = client.count_down_latch(NAME).unwrap();
                assert!(latch.try_set_count(2).await.unwrap());
            }
            latch.count_down().await.map(|left| assert_eq!(left, 1)), keep Kept::new();
        "delete" by "delete": "2" => "none",
            (client) {
                let latch = client.count_down_latch(NAME).unwrap();
                assert!(latch.try_set_count(2).await.unwrap());
            }
            latch.delete().await.map(|removed| assert!(removed)), keep Kept::new();
        "wait" by "look": "none" => "none",
            (client) { let latch = client.count_down_latch(NAME).unwrap(); }
            latch.wait().await, keep Kept::new();
    },
};

// ---- the semaphore: three permits, two of which are held

pub(crate) static SEMAPHORE: Subject = Subject {
    folder: "semaphore",
    profile: WireProfile::Native,
    look: |connection| {
        let key = format!("{{{NAME}}}:timeout");
        let held: u64 = redis::cmd("ZCARD").arg(key).query(connection).unwrap();
        match look::hash(connection, NAME).remove("permits") {
            Some(number) => format!("{held} of {number}"),
            None => format!("{held}"),
        }
    },
    is_done_once: false,
    calls: OF_SEMAPHORES,
};

/// The same in the profile `Redisson`, where the number is that of the free permits and those that
/// are out.
pub(crate) static PERMIT_EXPIRABLE: Subject = Subject {
    folder: "permit_expirable",
    profile: WireProfile::Redisson,
    look: |connection| {
        let key = format!("{{{NAME}}}:timeout");
        let held: i64 = redis::cmd("ZCARD").arg(key).query(connection).unwrap();
        let free: i64 = redis::cmd("GET").arg(NAME).query(connection).unwrap();
        match held + free {
            3 => format!("{held}"),
            number => format!("{held} of {number}"),
        }
    },
    is_done_once: false,
    calls: OF_SEMAPHORES,
};

const OF_SEMAPHORES: &[Call] = calls! {
        "acquire" by "acquire": "2" => "3",
            (client) {
                let semaphore = client.semaphore(NAME, 3).unwrap();
                let mut held = kept(semaphore.acquire_many(2).await.unwrap());
            }
            keep(&mut held, semaphore.acquire().await), keep held;
        "release" by "release": "2" => "0",
            (client) { let two = client.semaphore(NAME, 3).unwrap().acquire_many(2).await.unwrap(); }
            two.release().await, keep Kept::new();
        "release that keeps permits" by "release_at": "2" => "2",
            (client) {
                let options = LockOptions::new().at_least(KEPT);
                let two = client.semaphore(NAME, 3).unwrap().acquire_with(2, options).await;
                let two = two.unwrap().expect("free");
            }
            two.release().await, keep Kept::new();
        "verify" by "renew": "2" => "2",
            (client) { let two = client.semaphore(NAME, 3).unwrap().acquire_many(2).await.unwrap(); }
            two.verify().await, keep kept(two);
        "force_release_from" by "force_release": "2" => "0",
            (client) {
                let semaphore = client.semaphore(NAME, 3).unwrap();
                let two = semaphore.acquire_many(2).await.unwrap();
            }
            semaphore.force_release_from(&two.hold_id()).await.map(drop), keep kept(two);
        "available" by "inspect": "2" => "2",
            (client) {
                let semaphore = client.semaphore(NAME, 3).unwrap();
                let two = semaphore.acquire_many(2).await.unwrap();
            }
            semaphore.available().await.map(|left| assert_eq!(left, 1)), keep kept(two);
        "add_permits" by "set_permits": "2" => "2 of 5",
            (client) {
                let semaphore = client.semaphore(NAME, 3).unwrap();
                let two = semaphore.acquire_many(2).await.unwrap();
            }
            semaphore.add_permits(2).await.map(|number| assert_eq!(number, 5)), keep kept(two);
};

// ---- the fair lock

pub(crate) static FAIR: Subject = Subject {
    folder: "fair",
    profile: WireProfile::Native,
    look: look_at_lock,
    is_done_once: false,
    calls: OF_FAIR_LOCKS,
};

/// The same in the profile `Redisson`.
pub(crate) static FAIR_QUEUE: Subject = Subject {
    folder: "fair_queue",
    profile: WireProfile::Redisson,
    look: look_at_lock,
    is_done_once: false,
    calls: OF_FAIR_LOCKS,
};

fn look_at_lock(connection: &mut Connection) -> String {
    let hash = look::hash(connection, NAME);
    let count = |(field, count): (&String, &String)| match field {
        field if field.ends_with(":kept") => format!("kept {count}"),
        _ => format!("held {count}"),
    };
    hash.iter().map(count).collect::<Vec<_>>().join(" ")
}

const OF_FAIR_LOCKS: &[Call] = calls! {
        "lock" by "acquire": "" => "held 1",
            (client) { let (lock, mut held) = (client.fair_lock(NAME).unwrap(), Kept::new()); }
            keep(&mut held, Owner::new().scope(lock.lock()).await), keep held;
        "lock once more" by "acquire": "held 1" => "held 2",
            (client) {
                let (lock, owner) = (client.fair_lock(NAME).unwrap(), Owner::new());
                let mut held = kept(owner.scope(lock.lock()).await.unwrap());
            }
            keep(&mut held, owner.scope(lock.lock()).await), keep held;
        "release of a level" by "release": "held 2" => "held 1",
            (client) {
                let (lock, owner) = (client.fair_lock(NAME).unwrap(), Owner::new());
                let first = owner.scope(lock.lock()).await.unwrap();
                let second = owner.scope(lock.lock()).await.unwrap();
            }
            second.unlock().await, keep kept(first);
        "release" by "release": "held 1" => "",
            (client) {
                let guard = Owner::new().scope(client.fair_lock(NAME).unwrap().lock()).await.unwrap();
            }
            guard.unlock().await, keep Kept::new();
        "release that keeps the name" by "release_at": "held 1" => "kept 0",
            (client) {
                let (lock, options) = (client.fair_lock(NAME).unwrap(), LockOptions::new());
                let guard = Owner::new().scope(lock.lock_with(options.at_least(KEPT))).await;
                let guard = guard.unwrap().expect("free");
            }
            guard.unlock().await, keep Kept::new();
        "force_unlock" by "force_release": "held 1" => "",
            (client) {
                let lock = client.fair_lock(NAME).unwrap();
                let guard = Owner::new().scope(lock.lock()).await.unwrap();
            }
            lock.force_unlock().await.map(drop), keep kept(guard);
};

// ---- the read-write lock

pub(crate) static READ_WRITE: Subject = Subject {
    folder: "read_write",
    profile: WireProfile::Native,
    look: |connection| {
        let mut hash = look::hash(connection, NAME);
        let Some(mode) = hash.remove("mode") else { return "free".to_owned() };
        let count = |(field, count): (&String, &String)| match field {
            field if field.ends_with(":kept:write") => format!(" kept {count}"),
            field if field.ends_with(":write") => format!(" write {count}"),
            _ => format!(" read {count}"),
        };
        let mut holds: Vec<String> = hash.iter().map(count).collect();
        holds.sort();
        format!("{mode}:{}", holds.concat())
    },
    is_done_once: false,
    calls: calls! {
        "read" by "acquire": "read: read 1" => "read: read 1 read 1",
            (client) {
                let lock = client.rw_lock(NAME).unwrap();
                let mut held = kept(Owner::new().scope(lock.read()).await.unwrap());
            }
            keep(&mut held, Owner::new().scope(lock.read()).await), keep held;
        "write" by "acquire": "free" => "write: write 1",
            (client) { let (lock, mut held) = (client.rw_lock(NAME).unwrap(), Kept::new()); }
            keep(&mut held, Owner::new().scope(lock.write()).await), keep held;
        "read once more" by "acquire": "read: read 1" => "read: read 2",
            (client) {
                let (lock, owner) = (client.rw_lock(NAME).unwrap(), Owner::new());
                let mut held = kept(owner.scope(lock.read()).await.unwrap());
            }
            keep(&mut held, owner.scope(lock.read()).await), keep held;
        "write once more" by "acquire": "write: write 1" => "write: write 2",
            (client) {
                let (lock, owner) = (client.rw_lock(NAME).unwrap(), Owner::new());
                let mut held = kept(owner.scope(lock.write()).await.unwrap());
            }
            keep(&mut held, owner.scope(lock.write()).await), keep held;
        "release of one read of two" by "release": "read: read 2" => "read: read 1",
            (client) {
                let (lock, owner) = (client.rw_lock(NAME).unwrap(), Owner::new());
                let first = owner.scope(lock.read()).await.unwrap();
                let second = owner.scope(lock.read()).await.unwrap();
            }
            second.unlock().await, keep kept(first);
        "release of a read" by "release": "read: read 1 read 1" => "read: read 1",
            (client) {
                let lock = client.rw_lock(NAME).unwrap();
                let first = Owner::new().scope(lock.read()).await.unwrap();
                let second = Owner::new().scope(lock.read()).await.unwrap();
            }
            second.unlock().await, keep kept(first);
        "release of the write" by "release": "write: write 1" => "free",
            (client) {
                let guard = Owner::new().scope(client.rw_lock(NAME).unwrap().write()).await.unwrap();
            }
            guard.unlock().await, keep Kept::new();
        "release that keeps the name" by "release_at": "write: write 1" => "write: kept 0",
            (client) {
                let (lock, options) = (client.rw_lock(NAME).unwrap(), LockOptions::new());
                let write = Owner::new().scope(lock.write_with(options.at_least(KEPT))).await;
                let write = write.unwrap().expect("free");
            }
            write.unlock().await, keep Kept::new();
        "verify" by "renew": "read: read 1" => "read: read 1",
            (client) {
                let read = Owner::new().scope(client.rw_lock(NAME).unwrap().read()).await.unwrap();
            }
            read.verify().await, keep kept(read);
        "holder" by "inspect": "write: write 1" => "write: write 1",
            (client) {
                let lock = client.rw_lock(NAME).unwrap();
                let write = Owner::new().scope(lock.write()).await.unwrap();
            }
            lock.holder().await.map(|holder| assert_eq!(holder.unwrap().count, 1)), keep kept(write);
        "force_unlock" by "force_release": "write: write 1" => "free",
            (client) {
                let lock = client.rw_lock(NAME).unwrap();
                let write = Owner::new().scope(lock.write()).await.unwrap();
            }
            lock.force_unlock().await.map(drop), keep kept(write);
        "downgrade" by "downgrade": "free" => "read: read 1",
            (client) {
                let (lock, mut held) = (client.rw_lock(NAME).unwrap(), Kept::new());
                let write = Owner::new().scope(lock.write()).await.unwrap();
            }
            keep(&mut held, write.downgrade().await), keep held;
        "try_upgrade" by "upgrade": "read: read 1" => "write: read 1 write 1",
            (client) {
                let read = Owner::new().scope(client.rw_lock(NAME).unwrap().read()).await.unwrap();
                let mut held = Kept::new();
            }
            match read.try_upgrade().await {
                Ok(write) => keep(&mut held, Ok(write.expect("the only reader"))),
                Err(error) => Err(error),
            },
            keep { held.push(Box::new(read)); held };
    },
};

/// Each script is what some call sends.
#[test]
fn every_script_has_a_call() {
    for subject in [&LATCH, &SEMAPHORE, &READ_WRITE] {
        for script in look::scripts_of(subject.folder).keys() {
            assert!(subject.calls.iter().any(|call| call.script == script), "{script}");
        }
    }
}
