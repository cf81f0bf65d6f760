//! Every error that Redis can send, in answer to every script that is sent: tried again, or told in
//! Redis's words; and never half done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::support::calls;
use crate::support::calls::Subject;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const BOUND: Duration = Duration::from_secs(10);

/// What scripts are sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Acquire,
    Reenter,
    ReleaseOne,
    Release,
    Renew,
    HandOff,
    Inspect,
    ForceRelease,
    /// Guards that are dropped together.
    ReleaseMany,
    /// Of a name that is to stay taken.
    ReleaseAt,
}

const USES: [Use; 10] = [
    Use::Acquire,
    Use::Reenter,
    Use::ReleaseOne,
    Use::Release,
    Use::Renew,
    Use::HandOff,
    Use::Inspect,
    Use::ForceRelease,
    Use::ReleaseMany,
    Use::ReleaseAt,
];

impl Use {
    /// The script that is sent for it.
    pub(crate) fn script(self) -> &'static str {
        match self {
            Self::Acquire | Self::Reenter => "acquire",
            Self::ReleaseOne | Self::Release => "release",
            Self::Renew => "renew",
            Self::HandOff => "hand_off",
            Self::Inspect => "inspect",
            Self::ForceRelease => "force_release",
            Self::ReleaseMany => "release_many",
            Self::ReleaseAt => "release_at",
        }
    }

    /// Whether something else is sent for it now and then.
    pub(crate) fn is_chancy(self) -> bool {
        matches!(self, Self::HandOff | Self::ReleaseMany)
    }
}

/// So many guards are dropped together: four by themselves, then the others.
pub(crate) const DROPPED: u32 = 7;

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Well, once the error has stopped.
    Good,
    /// At once, with `Error::Auth` and so on.
    Auth,
    Denied,
    Refused,
    Unsupported,
}

use End::Auth as A;
use End::Denied as D;
use End::Good as G;
use End::Refused as R;
use End::Unsupported as U;

/// A column for each of `USES`. A holder keeps its hold whatever a few renewals meet; a hand-off
/// that fails is done as a plain release, and what cannot be released together is released one by
/// one.
const TABLE: [(&str, [End; 10]); 38] = [
    ("-NOSCRIPT No matching script. Please use EVAL.", [G; 10]),
    ("-LOADING Redis is loading the dataset in memory", [G; 10]),
    (
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        [G; 10],
    ),
    ("-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", [G; 10]),
    (
        "-READONLY You can't write against a read only replica. script: 6e7b, on @user_script:1.",
        [G; 10],
    ),
    ("-READONLY You can't write against a read only replica.", [G; 10]),
    (
        "-OOM command not allowed when used memory > 'maxmemory'. script: 6e7b, on @user_script:1.",
        [G; 10],
    ),
    (
        "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.",
        [G; 10],
    ),
    ("-NOREPLICAS Not enough good replicas to write. script: 6e7b, on @user_script:1.", [G; 10]),
    ("-ERR max number of clients reached", [G; 10]),
    ("-CLUSTERDOWN Hash slot not served", [G; 10]),
    ("-UNKILLABLE Sorry the script already executed write commands against the dataset.", [G; 10]),
    ("-TRYAGAIN Multiple keys request during rehashing of slot", [G; 10]),
    ("-SOMETHING that no Redis says today", [G; 10]),
    (
        "-ERR user_script:3: Script attempted to access nonexistent global variable 'x' script: 6e7b",
        [G; 10],
    ),
    ("+QUEUED", [G; 10]),
    ("*2\r\n:77\r\n:1", [G; 10]),
    ("$-1", [G; 10]),
    ("this is not RESP", [G; 10]),
    ("-NOAUTH Authentication required.", [A, A, A, A, G, G, A, A, G, A]),
    (
        "-WRONGPASS invalid username-password pair or user is disabled.",
        [A, A, A, A, G, G, A, A, G, A],
    ),
    (
        "-NOPERM this user has no permissions to run the 'evalsha' command",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    (
        "-ERR The user executing the script can't run this command or subcommand script: 6e7b, on @user_script:1.",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    (
        "-WRONGTYPE Operation against a key holding the wrong kind of value script: 6e7b, on @user_script:1.",
        [R, R, R, R, G, G, R, R, G, R],
    ),
    ("-CROSSSLOT Keys in request don't hash to the same slot", [R, R, R, R, G, G, R, R, G, R]),
    (
        "-ERR Error compiling script (new function): user_script:1: '=' expected",
        [R, R, R, R, G, G, R, R, G, R],
    ),
    ("-ERR unknown command 'EVALSHA', with args beginning with: ", [U, U, U, U, G, G, U, U, G, U]),
    ("-MOVED 1234 127.0.0.1:1", [U, U, U, U, G, G, U, U, G, U]),
    ("-ASK 1234 127.0.0.1:1", [U, U, U, U, G, G, U, U, G, U]),
    (
        "-ERR The user executing the script can't publish to the channel mentioned in the command script: 6e7b",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    // As Redis 7.2 and Redis 6.2 say it.
    (
        "-NOPERM ACL failure in script: User locks has no permissions to run the 'hget' command",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    (
        "-ERR ACL failure in script: User locks has no permissions to run the 'hget' command script: 6e7b, on @user_script:1.",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    (
        "-ERR Error running script (call to f_6e7b): @user_script:83: @user_script: 83: -OOM command not allowed",
        [G; 10],
    ),
    (
        "-@user_script: 57: The user executing the script can't run this command",
        [D, D, D, D, G, G, D, D, G, D],
    ),
    // A command that is renamed or switched off, in the words of Redis 7, of Valkey 8 and of Redis
    // 6.2.
    (
        "-ERR Unknown Redis command called from script script: 6e7b, on @user_script:1.",
        [U, U, U, U, G, G, U, U, G, U],
    ),
    (
        "-ERR Unknown command called from script script: 6e7b, on @user_script:1.",
        [U, U, U, U, G, G, U, U, G, U],
    ),
    (
        "-ERR Error running script (call to f_6e7b): @user_script:8: @user_script: 8: Unknown Redis command called from Lua script",
        [U, U, U, U, G, G, U, U, G, U],
    ),
    (
        "-@user_script: 57: Unknown Redis command called from Lua script (HGET)",
        [U, U, U, U, G, G, U, U, G, U],
    ),
];

/// What must be in the table.
const ERRORS: [&str; 23] = [
    "NOSCRIPT",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "ERR max number of clients",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ERR The user executing the script can't",
    "WRONGTYPE",
    "CROSSSLOT",
    "ERR Error compiling",
    "ERR unknown command",
    "ERR Unknown Redis command called from script",
    "MOVED",
    "ASK",
    "UNKILLABLE",
];

#[test]
fn every_error_and_every_script_is_in_the_table() {
    for error in ERRORS {
        let found = TABLE.iter().any(|(line, _)| line.starts_with(&format!("-{error}")));
        assert!(found, "{error}");
    }
    let mut used: BTreeSet<String> = USES.iter().map(|one| one.script().to_owned()).collect();
    // What only a Redlock sends has its errors in `redlock.rs`.
    used.insert("raise".to_owned());
    assert_eq!(used, look::scripts().into_keys().collect());
    let lines: BTreeSet<&str> = TABLE.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines.len(), TABLE.len());
}

/// Whether the server had run the script when the error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// What says nothing about whether the script was run. Anything else means that it was not: coming
/// after all of it, it is a lie that no server tells, and the caller is told as much. Still nothing
/// is half done, and nobody waits for ever.
const SAYS_NOTHING: [&str; 6] =
    ["-SOMETHING", "-ERR user_script", "+QUEUED", "*2", "$-1", "this is not RESP"];

/// A client behind a proxy that can answer for the server.
struct World {
    server: RedisServer,
    proxy: Arc<FaultProxy>,
    client: LockClient,
    connection: Connection,
    line: &'static str,
    when: When,
}

impl World {
    async fn new(line: &'static str) -> Self {
        Self::with(line, When::Before).await
    }

    async fn with(line: &'static str, when: When) -> Self {
        Self::of(line, when, WireProfile::Native).await
    }

    async fn of(line: &'static str, when: When, profile: WireProfile) -> Self {
        let server = RedisServer::start();
        let proxy = Arc::new(FaultProxy::start(&server.address()));
        // Errors that stop within moments must not end a wait, however busy this machine is.
        let builder = LockClient::builder()
            .url(proxy.url())
            .profile(profile)
            .lease(Duration::from_secs(5))
            .outage_limit(BOUND);
        let mut connection = server.connection();
        look::load_scripts(&mut connection);
        let client = builder.connect().await.unwrap();
        Self { server, proxy, client, connection, line, when }
    }

    fn is_a_lie(&self) -> bool {
        self.when == When::After && !SAYS_NOTHING.iter().any(|words| self.line.starts_with(words))
    }

    /// The next `times` runs of this script get the error instead.
    fn arm(&mut self, of: Use, times: u64) {
        let digest = look::digest(&mut self.connection, of.script());
        self.answer(&digest, times);
    }

    /// The next `times` requests with this in them get the error instead.
    fn answer(&mut self, pattern: &str, times: u64) {
        self.proxy.nth(pattern, 0, times, self.fault());
    }

    fn fault(&self) -> Fault {
        let reply = format!("{}\r\n", self.line).into_bytes();
        if self.when == When::Before { Fault::Answer(reply) } else { Fault::Forge(reply) }
    }

    /// Redis's words in an error: the first of its line, where it has words. Arguments that it
    /// repeats may be passwords.
    fn words(&self) -> Option<&'static str> {
        let line = self.line.strip_prefix('-')?;
        line.split(" script:").next()?.split(", with args").next()
    }

    fn assert_words(&self, error: &Error) {
        if let Some(words) = self.words() {
            assert!(error.to_string().contains(words.trim()), "{error} does not say {words}");
        }
    }

    async fn run(&mut self, of: Use, times: u64) -> Result<()> {
        let lock = self.client.mutex(format!("{of:?}"))?;
        match of {
            Use::Acquire => {
                self.arm(of, times);
                lock.lock().await?.unlock().await
            }
            Use::Reenter | Use::ReleaseOne => Owner::new().scope(self.nest(of, times)).await,
            Use::Release => {
                let guard = lock.lock().await?;
                self.arm(of, times);
                guard.unlock().await
            }
            Use::Renew => self.renew(times).await,
            Use::HandOff => self.hand_off(times).await,
            Use::Inspect => {
                let guard = lock.lock().await?;
                self.arm(of, times);
                let holder = lock.holder().await;
                guard.unlock().await.unwrap();
                holder.map(|holder| assert_eq!(holder.unwrap().count, 1))
            }
            Use::ForceRelease => {
                let field = format!("{}:1", uuid::Uuid::new_v4());
                redis::cmd("HSET")
                    .arg(lock.name())
                    .arg(field)
                    .arg(1)
                    .exec(&mut self.connection)
                    .unwrap();
                redis::cmd("PEXPIRE")
                    .arg(lock.name())
                    .arg(5_000)
                    .exec(&mut self.connection)
                    .unwrap();
                self.arm(of, times);
                lock.force_unlock().await.map(|freed| assert!(freed || self.is_a_lie()))
            }
            Use::ReleaseMany => self.drop_together(times).await,
            Use::ReleaseAt => self.keep_taken(times).await,
        }
    }

    /// The name stays taken all the same, and only a force-unlock makes it free for the next run.
    async fn keep_taken(&mut self, times: u64) -> Result<()> {
        let lock = self.client.mutex(format!("{:?}", Use::ReleaseAt))?;
        let options = LockOptions::new().at_least(Duration::from_secs(60));
        let guard = lock.lock_with(options).await?.expect("it waits without a limit");
        self.arm(Use::ReleaseAt, times);
        let released = guard.unlock().await;
        assert!(lock.is_locked().await.unwrap());
        assert!(lock.force_unlock().await.unwrap());
        released
    }

    async fn drop_together(&mut self, times: u64) -> Result<()> {
        let (mut guards, mut locks) = (Vec::new(), Vec::new());
        for number in 0..DROPPED {
            let lock = self.client.mutex(format!("{:?}{number}", Use::ReleaseMany))?;
            guards.push(lock.lock().await?);
            locks.push(lock);
        }
        self.arm(Use::ReleaseMany, times);
        drop(guards);
        for lock in locks {
            let mut connection = self.server.connection();
            let name = lock.name().to_owned();
            settles("the lock is free", move || look::hash(&mut connection, &name).is_empty())
                .await;
        }
        Ok(())
    }

    /// A hold that lasted for more than 50 ms, as it may on a busy machine, is not handed off but
    /// released; and where the first of several that are dropped are answered at once, the others
    /// go by themselves, too.
    async fn run_until_met(&mut self, of: Use, times: u64) -> Result<()> {
        for _ in 0..200 {
            let done = timeout(BOUND, self.run(of, times)).await;
            let done =
                done.unwrap_or_else(|_| panic!("{} {of:?}: no end within {BOUND:?}", self.line));
            let left = self.proxy.clear();
            if left == 0 {
                return done;
            }
            if self.is_a_lie() {
                return done;
            }
            assert!(
                of.is_chancy(),
                "{}: the error was not met as often as meant: {done:?}",
                self.line
            );
        }
        panic!("{}: {of:?} was never sent", self.line);
    }

    async fn nest(&mut self, of: Use, times: u64) -> Result<()> {
        let lock = self.client.reentrant_lock(format!("{of:?}"))?;
        let outer = lock.lock().await?;
        if of == Use::Reenter {
            self.arm(of, times);
        }
        let end = match lock.lock().await {
            Ok(inner) => {
                if of == Use::ReleaseOne {
                    self.arm(of, times);
                }
                inner.unlock().await
            }
            Err(error) => Err(error),
        };
        assert!(outer.is_held(), "{:?} {of:?}", self.line);
        assert_eq!(lock.hold_count()?, 1);
        match outer.unlock().await {
            Err(Error::Lost { .. }) if self.is_a_lie() => {}
            unlocked => unlocked.unwrap_or_else(|error| panic!("{} {of:?}: {error}", self.line)),
        }
        end
    }

    /// Whatever a renewal meets: whoever asks is told, and the hold goes on.
    async fn renew(&mut self, times: u64) -> Result<()> {
        let guard = self.client.mutex("Renew")?.lock().await?;
        self.arm(Use::Renew, times);
        if let Err(error) = guard.verify().await {
            assert!(!error.is_lost(), "{error}");
            // A READONLY before this one may be replacing the connection only now.
            if !self.line.starts_with("-READONLY") {
                self.assert_words(&error);
            }
        }
        let before = self.client.stats().renewals;
        let client = self.client.clone();
        settles("a renewal is confirmed", move || client.stats().renewals > before).await;
        assert!(guard.is_held());
        guard.unlock().await
    }

    async fn hand_off(&mut self, times: u64) -> Result<()> {
        let lock = self.client.mutex("HandOff")?;
        let guard = lock.lock().await?;
        let token = guard.fencing_token();
        let (next, before) = (lock.clone(), self.client.stats().waits);
        let waiter = tokio::spawn(async move { next.lock().await });
        let client = self.client.clone();
        settles("it waits", move || client.stats().waits > before && client.stats().waiters == 1)
            .await;
        self.arm(Use::HandOff, times);
        let end = guard.unlock().await;
        let guard = timeout(BOUND, waiter).await.expect("the next one has it").unwrap()?;
        assert!(guard.fencing_token() > token);
        guard.unlock().await.unwrap();
        end
    }

    fn nothing_is_half_done(&mut self, of: Use) {
        let immortal = look::immortal_keys(&mut self.connection);
        assert!(immortal.is_empty(), "{} {of:?}: {immortal:?}", self.line);
    }

    /// The error does not stop: one attempt ends with its command timeout, a wait with the outage
    /// limit.
    async fn gives_up(&mut self) {
        let builder = LockClient::builder().url(self.proxy.url());
        let client = builder.outage_limit(Duration::from_millis(1_500)).connect().await.unwrap();
        for wait in [false, true] {
            let lock = client.mutex("stuck").unwrap();
            self.arm(Use::Acquire, u64::MAX);
            // Much that is to be undone goes in a script that the server lacks; then this one comes
            // in full.
            self.answer("Takes the lock, picks up", u64::MAX);
            let end = timeout(BOUND, async {
                if wait { lock.lock().await.map(Ok) } else { lock.try_lock().await }
            });
            let error = end.await.expect(self.line).expect_err(self.line);
            assert!(
                matches!(error, Error::Unavailable { .. }) && error.is_transient(),
                "{}: {error:?}",
                self.line
            );
            self.assert_words(&error);
            self.proxy.clear();
        }
        leaves_nothing(&self.server, &client).await;
    }
}

/// `None`: in none of the ways that the table knows.
fn end_of(done: &Result<()>) -> Option<End> {
    Some(match done {
        Ok(()) => G,
        Err(Error::Auth { .. }) => A,
        Err(Error::Denied { .. }) => D,
        Err(Error::Refused { .. }) => R,
        Err(Error::Unsupported { .. }) => U,
        Err(_) => return None,
    })
}

async fn row((line, ends): (&'static str, [End; 10]), when: When) {
    let mut world = World::with(line, when).await;
    for (of, end) in USES.into_iter().zip(ends) {
        let times = if end == G && !of.is_chancy() { 2 } else { 1 };
        let lost_scripts = line.starts_with("-NOSCRIPT");
        // Sent in full after the first: that one cannot meet it again, nor can any other script of
        // this client.
        let times = if lost_scripts { 1 } else { times };
        if lost_scripts {
            world = World::with(line, when).await;
        }
        let done = world.run_until_met(of, times).await;
        world.nothing_is_half_done(of);
        if world.is_a_lie() {
            continue;
        }
        let found = end_of(&done).unwrap_or_else(|| panic!("{line} {of:?}: {done:?}"));
        assert_eq!(found, end, "{line} {of:?}: {done:?}");
        if let Err(error) = &done {
            assert!(error.is_config());
            world.assert_words(error);
        }
    }
    if ends[0] == G && !line.starts_with("-NOSCRIPT") && when == When::Before {
        world.gives_up().await;
    }
    leaves_nothing(&world.server, &world.client).await;
}

#[tokio::test]
async fn a_force_unlock_whose_reply_is_lost_has_freed_and_hits_nobody_else() {
    for taken_over in [false, true] {
        let mut world = World::new("").await;
        let lock = world.client.mutex("forced").unwrap();
        let hold = |connection: &mut Connection| {
            let field = format!("{}:1", uuid::Uuid::new_v4());
            redis::cmd("HSET").arg("forced").arg(&field).arg(1).exec(connection).unwrap();
            redis::cmd("PEXPIRE").arg("forced").arg(60_000).exec(connection).unwrap();
            field
        };
        hold(&mut world.connection);
        let digest = look::digest(&mut world.connection, "force_release");
        world.proxy.once(&digest, Fault::CutBeforeReply);
        world.proxy.refuse(true);
        let forcing = tokio::spawn(async move { lock.force_unlock().await });
        let mut looking = world.server.connection();
        settles("the key is gone", move || look::lock_keys(&mut looking).is_empty()).await;
        let stranger = taken_over.then(|| hold(&mut world.connection));
        world.proxy.refuse(false);
        assert!(forcing.await.unwrap().unwrap());
        assert_eq!(look::hash(&mut world.connection, "forced").into_keys().next(), stranger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script() {
    all_rows(When::Before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_after_each_script_was_run() {
    all_rows(When::After).await;
}

async fn all_rows(when: When) {
    all_in(when, USES.len(), |one| row(one, when)).await;
}

/// A few lines of the table at a time.
async fn all_in<F: Future<Output = ()> + Send + 'static>(
    when: When,
    calls: usize,
    row: impl Fn((&'static str, [End; 10])) -> F,
) {
    let rows = stream::iter(TABLE).map(|one| tokio::spawn(row(one))).buffer_unordered(9);
    let failed: Vec<String> =
        rows.filter_map(|end| async { end.err() }).map(|end| format!("{end:?}")).collect().await;
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    println!(
        "{{\"part\":\"server-errors\",\"when\":\"{when:?}\",\"errors\":{},\"answers\":{}}}",
        TABLE.len(),
        TABLE.len() * calls
    );
}

// ---- the scripts of other kinds

/// Each call ends as an acquire does, and what was answered with an error was done once or not at
/// all.
async fn row_of(subject: &Subject, (line, ends): (&'static str, [End; 10]), when: When) {
    for call in subject.calls {
        let mut world = World::of(line, when, subject.profile).await;
        subject.load_scripts(&mut world.connection);
        let digest = look::digest_of(&mut world.connection, subject.folder, call.script);
        let answers = (Arc::clone(&world.proxy), world.fault());
        let harm = Box::new(move || answers.0.nth(&digest, 0, 1, answers.1));
        let (done, held) =
            timeout(2 * BOUND, call.run(&world.client, harm)).await.unwrap_or_else(|_| {
                panic!("{line} {}: no end within {:?}", call.name, 2 * BOUND);
            });
        assert_eq!(world.proxy.clear(), 0, "{line} {}: not met", call.name);
        if world.is_a_lie() && !subject.is_done_once {
            continue;
        }
        let found = end_of(&done).unwrap_or_else(|| panic!("{line} {}: {done:?}", call.name));
        // Who asks whether it still holds is told of an answer that is not understood. What is no
        // answer at all ends the connection, and is tried again on the next one.
        let says_nothing = SAYS_NOTHING.iter().any(|words| line.starts_with(words));
        let is_told = call.name == "verify" && says_nothing && line != "this is not RESP";
        let end = if is_told { R } else { ends[0] };
        assert_eq!(found, end, "{line} {}: {done:?}", call.name);
        if let Err(error) = &done {
            world.assert_words(error);
        }
        // A level of several is given back without the server when that has no memory.
        let of_levels = ["release of one read of two", "release of a level"];
        let without_server = line.contains("OOM") && of_levels.contains(&call.name);
        let was_run = found == G && !without_server || when == When::After;
        subject.assert_done(&mut world.connection, call, was_run, line).await;
        drop(held);
    }
}

async fn all_rows_of(subject: &'static Subject) {
    for when in [When::Before, When::After] {
        all_in(when, subject.calls.len(), |one| row_of(subject, one, when)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_latch() {
    all_rows_of(&calls::LATCH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_semaphore() {
    all_rows_of(&calls::SEMAPHORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_semaphore_of_redisson() {
    all_rows_of(&calls::PERMIT_EXPIRABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_read_write_lock() {
    all_rows_of(&calls::READ_WRITE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_fair_lock() {
    all_rows_of(&calls::FAIR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_answer_to_each_script_of_a_fair_lock_of_redisson() {
    all_rows_of(&calls::FAIR_QUEUE).await;
}

// ---- errors of real servers

fn config(connection: &mut Connection, setting: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(connection).unwrap();
}

/// A server without memory or without replicas: nothing new is granted, what is held stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_writes_grants_nothing_and_takes_nothing() {
    for (setting, bad, good, words) in
        [("maxmemory", "1", "0", "OOM"), ("min-replicas-to-write", "1", "0", "NOREPLICAS")]
    {
        let mut world = World::new("").await;
        let lock = world.client.reentrant_lock("held").unwrap();
        let free = world.client.mutex("free").unwrap();
        Owner::new()
            .scope(async {
                let outer = lock.lock().await.unwrap();
                let inner = lock.lock().await.unwrap();
                config(&mut world.connection, setting, bad);
                for error in
                    [free.try_lock().await.unwrap_err(), lock.try_lock().await.unwrap_err()]
                {
                    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
                    assert!(error.to_string().contains(words), "{error}");
                }
                let waiting = free.clone();
                let waiting = tokio::spawn(async move { waiting.try_lock_for(BOUND).await });
                assert!(outer.is_held());
                assert_eq!(lock.hold_count().unwrap(), 2);
                if words == "OOM" {
                    outer.verify().await.expect("renewing takes no memory");
                    inner.unlock().await.expect("no level is kept for want of memory");
                    outer.unlock().await.expect("a release takes no memory");
                    assert!(look::hash(&mut world.connection, "held").is_empty());
                    config(&mut world.connection, setting, good);
                } else {
                    config(&mut world.connection, setting, good);
                    inner.unlock().await.unwrap();
                    outer.verify().await.unwrap();
                    outer.unlock().await.unwrap();
                }
                waiting
                    .await
                    .unwrap()
                    .unwrap()
                    .expect("granted once it can be")
                    .unlock()
                    .await
                    .unwrap();
            })
            .await;
        world.nothing_is_half_done(Use::Acquire);
        leaves_nothing(&world.server, &world.client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_busy_with_somebody_s_script_is_waited_for() {
    let server = RedisServer::start();
    let (mut connection, mut hogging) = (server.connection(), server.connection());
    config(&mut connection, "lua-time-limit", "5");
    let client = LockClient::connect(&server.url()).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let hog = tokio::task::spawn_blocking(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut hogging)
    });
    let busy = move || {
        redis::cmd("PING").exec(&mut connection).is_err_and(|error| error.code() == Some("BUSY"))
    };
    settles("the server is busy", busy).await;
    let lock = client.mutex("wanted").unwrap();
    let error = lock.try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("BUSY"), "{error}");
    let waiting = tokio::spawn(async move { lock.lock().await });
    let waiter = client.clone();
    settles("it waits", move || waiter.stats().waiters == 1).await;
    assert!(guard.is_held());
    redis::cmd("SCRIPT").arg("KILL").exec(&mut server.connection()).unwrap();
    hog.await.unwrap().unwrap_err();
    timeout(BOUND, waiting).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_flushed_again_and_again_cost_nothing_but_time() {
    let world = World::new("").await;
    let mut connection = world.server.connection();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let flushing = tokio::task::spawn_blocking(move || {
        while stopped.recv_timeout(Duration::from_millis(5)).is_err() {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        }
    });
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let lock = world.client.reentrant_lock(format!("flushed:{}", number % 5)).unwrap();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let outer = lock.lock().await.unwrap();
                    lock.lock().await.unwrap().unlock().await.unwrap();
                    outer.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    stop.send(()).unwrap();
    flushing.await.unwrap();
    assert_eq!(world.client.stats().losses, 0);
    leaves_nothing(&world.server, &world.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_becomes_a_replica_for_a_while_keeps_its_holder() {
    let world = World::new("").await;
    let mut connection = world.server.connection();
    let guard = world.client.mutex("held").unwrap().lock().await.unwrap();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec(&mut connection).unwrap();
    let error = world.client.mutex("wanted").unwrap().try_lock().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("READONLY") || text.contains("replica"), "{error:?}");
    assert!(guard.is_held());
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    let before = world.client.stats().renewals;
    let client = world.client.clone();
    settles("the hold is confirmed", move || client.stats().renewals > before).await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    leaves_nothing(&world.server, &world.client).await;
}

/// Each command that the scripts use, forbidden: a typed error or a success, and never a lock
/// without an end.
#[tokio::test(flavor = "multi_thread")]
async fn no_missing_permission_leaves_anything_half_done() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let commands = [
        "time", "pttl", "hget", "hset", "pexpire", "get", "set", "hdel", "persist", "publish",
        "hexists", "hlen", "hkeys", "exists", "type", "hgetall", "zadd", "zrem", "zscore",
        "zrange", "zcount",
    ];
    for command in commands {
        let user = format!("no-{command}");
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg(&user)
            .arg(&["on", ">pw", "~*", "&*", "+@all"])
            .arg(format!("-{command}"))
            .exec(&mut connection)
            .unwrap();
        let url = format!("redis://{user}:pw@{}", server.address());
        let connected =
            LockClient::builder().url(&url).lease(Duration::from_millis(500)).connect().await;
        let client = match connected {
            Ok(client) => client,
            Err(error) => {
                assert!(matches!(error, Error::Denied { .. }), "{command}: {error:?}");
                continue;
            }
        };
        let lock = client.reentrant_lock(format!("acl:{command}")).unwrap();
        let mut ends = Vec::new();
        match lock.try_lock().await {
            Ok(guard) => {
                let guard = guard.expect("free");
                if let Ok(inner) = lock.try_lock().await {
                    ends.push(inner.expect("one's own").unlock().await);
                }
                ends.push(guard.unlock().await);
            }
            Err(error) => ends.push(Err(error)),
        }
        ends.push(lock.holder().await.map(drop));
        ends.push(lock.force_unlock().await.map(drop));
        for error in ends.into_iter().filter_map(Result::err) {
            let denied = matches!(error, Error::Denied { .. } | Error::NotAnnounced { .. });
            assert!(denied, "{command}: {error:?}");
            let words = error.to_string();
            // Of Redis 7.0, of Redis 7.2 and later and Valkey, of a script.
            let told =
                ["can't", "has no permissions", "refused"].iter().any(|part| words.contains(part));
            assert!(told, "{error}");
        }
        let immortal = look::immortal_keys(&mut connection);
        assert!(immortal.is_empty(), "{command}: {immortal:?}");
        leaves_nothing(&server, &client).await;
    }
}
