//! Commands that scripts may not call, because the server has them renamed or because the user has
//! no permission for them: each one, and every two of them. Each call says at once what is missing,
//! and no key is left without a time to live.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Result;
use tokio::time::timeout;

use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "orders:42";
const BOUND: Duration = Duration::from_secs(10);
/// Of each hold. What cannot be released ends with it.
const LEASE: Duration = Duration::from_secs(1);

/// What the scripts call.
const COMMANDS: [&str; 22] = [
    "time", "pttl", "pexpire", "persist", "exists", "type", "hget", "hset", "hdel", "hlen",
    "hexists", "hkeys", "hgetall", "get", "set", "publish", "evalsha", "zadd", "zrem", "zscore",
    "zrange", "zcount",
];

#[test]
fn the_list_is_that_of_the_scripts() {
    for text in look::scripts().values() {
        for call in ["redis.call(\"", "redis.pcall(\""] {
            for rest in text.split(call).skip(1) {
                let command = rest.split('"').next().unwrap().to_lowercase();
                assert!(COMMANDS.contains(&&*command), "{command}");
            }
        }
    }
}

/// Each command with each other one, and with itself.
fn pairs() -> Vec<[&'static str; 2]> {
    let with_others = |(at, one): (usize, &&'static str)| {
        let one = *one;
        COMMANDS[at..].iter().map(move |other| [one, *other]).collect::<Vec<_>>()
    };
    COMMANDS.iter().enumerate().flat_map(with_others).collect()
}

/// A server on which some commands go by other names: those who look at it know these.
struct Renamed {
    server: RedisServer,
    commands: Vec<&'static str>,
}

impl Renamed {
    fn start(commands: &[&'static str]) -> Self {
        let mut commands = commands.to_vec();
        commands.dedup();
        let renamings = commands.iter().flat_map(|command| {
            ["--rename-command".to_owned(), command.to_uppercase(), format!("now-{command}")]
        });
        let options: Vec<String> = renamings.collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Self { server: RedisServer::with(&options), commands }
    }

    fn command(&self, name: &str) -> redis::Cmd {
        let renamed = self.commands.contains(&name);
        redis::cmd(&if renamed { format!("now-{name}") } else { name.to_owned() })
    }

    /// Locks and waiting lines without a time to live.
    fn immortal_keys(&self, connection: &mut Connection) -> Vec<String> {
        let mut keys = look::keys(connection);
        keys.retain(|key| self.command("pttl").arg(key).query::<i64>(connection).unwrap() == -1);
        keys
    }
}

/// Whatever a lock does, each thing on a name of its own. How each of them ended.
async fn everything(
    client: &LockClient,
    other: &LockClient,
    prefix: &str,
) -> Vec<(&'static str, Result<()>)> {
    let name = |what: &str| format!("{prefix}:{what}");
    vec![
        ("nest", nest(client, &name("nest")).await),
        ("contend", contend(client, &name("contend")).await),
        ("hand off", hand_off(client, &name("hand off")).await),
        ("line", stand_in_line(client, other, &name("line")).await),
        ("drop", drop_many(client, &name("drop")).await),
        ("force", force(client, &name("force")).await),
        ("preflight", client.preflight(&name("preflight")).await.map(drop)),
    ]
}

async fn nest(client: &LockClient, name: &str) -> Result<()> {
    let lock = client.reentrant_lock(name)?;
    let nested = async {
        let outer = lock.lock().await?;
        let inner = lock.lock().await;
        let verified = outer.verify().await;
        let ends = [inner.map(drop), verified, outer.unlock().await];
        ends.into_iter().collect()
    };
    Owner::new().scope(nested).await
}

async fn contend(client: &LockClient, name: &str) -> Result<()> {
    let lock = client.mutex(name)?;
    let guard = lock.lock().await?;
    let holder = lock.holder().await.map(drop);
    let refused = lock.try_lock().await.map(|granted| assert!(granted.is_err()));
    [holder, refused, guard.unlock().await].into_iter().collect()
}

async fn hand_off(client: &LockClient, name: &str) -> Result<()> {
    let lock = client.mutex(name)?;
    let guard = lock.lock().await?;
    let next = tokio::spawn(async move { lock.lock().await?.unlock().await });
    let (waiting, task) = (client.clone(), next.abort_handle());
    settles("it waits, or was refused", move || waiting.stats().waiters > 0 || task.is_finished())
        .await;
    let released = guard.unlock().await;
    [released, next.await.unwrap()].into_iter().collect()
}

/// Another client waits. Without some commands it has no place, and may wait in vain for a while.
async fn stand_in_line(client: &LockClient, other: &LockClient, name: &str) -> Result<()> {
    let (lock, theirs) = (client.mutex(name)?, other.mutex(name)?);
    let guard = lock.lock().await?;
    let next = tokio::spawn(async move {
        match theirs.try_lock_for(2 * LEASE).await? {
            Ok(guard) => guard.unlock().await,
            Err(_) => Ok(()),
        }
    });
    let (waiting, task) = (other.clone(), next.abort_handle());
    settles("it waits, or was refused", move || waiting.stats().waits > 0 || task.is_finished())
        .await;
    let released = guard.unlock().await;
    [released, next.await.unwrap()].into_iter().collect()
}

async fn drop_many(client: &LockClient, name: &str) -> Result<()> {
    let mut guards = Vec::new();
    for number in 0..8 {
        guards.push(client.mutex(format!("{name}:{number}"))?.lock().await?);
    }
    drop(guards);
    client.ping().await
}

async fn force(client: &LockClient, name: &str) -> Result<()> {
    let lock = client.mutex(name)?;
    let guard = lock.lock().await?;
    let forced = lock.force_unlock().await.map(drop);
    let unlocked = match guard.unlock().await {
        Err(Error::Lost { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    };
    [forced, unlocked].into_iter().collect()
}

/// Every error names what is missing, and none of them says that it may pass.
fn check_end(what: &str, end: Result<()>, missing: &[&str]) {
    let Err(error) = end else { return };
    let refused = matches!(
        error,
        Error::Denied { .. } | Error::Unsupported { .. } | Error::NotAnnounced { .. }
    );
    assert!(refused, "{what} without {missing:?}: {error:?}");
    let words = error.to_string().to_lowercase();
    assert!(
        missing.iter().any(|command| words.contains(command)),
        "{what} without {missing:?}: {error}"
    );
}

fn builder(url: &str) -> redis_reentrant_lock::LockClientBuilder {
    LockClient::builder().url(url).lease(LEASE)
}

/// All that a lock does at such a server: how many things were done, and how many refused.
async fn live(url: &str, prefix: &str, missing: &[&str]) -> (usize, usize) {
    let clients = tokio::try_join!(builder(url).connect(), builder(url).connect());
    let (client, other) = match clients {
        Ok(clients) => clients,
        Err(error) => {
            check_end("connect", Err(error), missing);
            return (0, 1);
        }
    };
    let ends = timeout(3 * BOUND, everything(&client, &other, prefix)).await;
    let ends = ends.unwrap_or_else(|_| panic!("without {missing:?}: a hang"));
    let refused = ends.iter().filter(|(_, end)| end.is_err()).count();
    let done = ends.len() - refused;
    ends.into_iter().for_each(|(what, end)| check_end(what, end, missing));
    client.shutdown(BOUND).await.unwrap();
    other.shutdown(BOUND).await.unwrap();
    (done, refused)
}

async fn without_renamed(missing: [&'static str; 2]) -> (usize, usize) {
    let renamed = Renamed::start(&missing);
    let ends = live(&renamed.server.url(), "renamed", &missing).await;
    let immortal = renamed.immortal_keys(&mut renamed.server.connection());
    assert!(immortal.is_empty(), "without {missing:?}: {immortal:?}");
    ends
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_renamed_commands_leave_a_key_without_a_time_to_live() {
    let runs =
        stream::iter(pairs()).map(|pair| tokio::spawn(without_renamed(pair))).buffer_unordered(8);
    let ends: Vec<_> = runs.collect().await;
    sum_up("renamed", ends);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_missing_permissions_leave_a_key_without_a_time_to_live() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut users = Vec::new();
    for missing in pairs() {
        let user = missing.join("-");
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg(&user)
            .arg(&["on", ">pw", "~*", "&*", "+@all"])
            .arg(missing.map(|command| format!("-{command}")).as_slice())
            .exec(&mut connection)
            .unwrap();
        users.push((missing, format!("redis://{user}:pw@{}", server.address()), user));
    }
    let run = |(missing, url, user): ([&'static str; 2], String, String)| {
        tokio::spawn(async move { live(&url, &user, &missing).await })
    };
    let ends: Vec<_> = stream::iter(users).map(run).buffer_unordered(8).collect().await;
    let immortal = look::immortal_keys(&mut connection);
    assert!(immortal.is_empty(), "{immortal:?}");
    sum_up("denied", ends);
}

fn sum_up(how: &str, ends: Vec<Result<(usize, usize), tokio::task::JoinError>>) {
    let failed = ends.iter().filter(|end| end.is_err()).count();
    let (done, refused) = ends
        .into_iter()
        .flatten()
        .fold((0, 0), |(done, refused), end: (usize, usize)| (done + end.0, refused + end.1));
    println!(
        "{{\"part\":\"refusals\",\"how\":\"{how}\",\"pairs\":{},\"done\":{done},\"refused\":{refused}}}",
        pairs().len()
    );
    assert_eq!(failed, 0, "of {} pairs", pairs().len());
    // Without some commands much goes on, without others nothing does.
    assert!(done > pairs().len() && refused > pairs().len(), "{done} {refused}");
}

/// What the scripts need for a grant is refused at once, also to whoever would wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_taken_is_refused_at_once_with_the_name_of_the_command() {
    for command in ["set", "hset", "pttl", "pexpire", "get"] {
        let renamed = Renamed::start(&[command]);
        let client = builder(&renamed.server.url()).connect().await.unwrap();
        let lock = client.mutex(NAME).unwrap();
        let mut connection = renamed.server.connection();
        for wait in [false, true] {
            let before = look::script_runs(&mut connection);
            let end = timeout(BOUND, async {
                if wait { lock.lock().await.map(Ok) } else { lock.try_lock().await }
            });
            let error = end.await.expect("at once").expect_err(command);
            assert!(matches!(error, Error::Unsupported { .. }), "{command}: {error:?}");
            assert!(error.is_config() && !error.is_transient(), "{error:?}");
            assert!(error.to_string().contains(&format!("the command {command},")), "{error}");
            // Sent by its digest, and once more in full where the server did not know the script.
            assert!(look::script_runs(&mut connection) - before <= 2, "{command}");
        }
        assert!(look::lock_keys(&mut connection).is_empty(), "{command}");
        leaves_nothing(&renamed.server, &client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_cannot_be_done_is_no_success() {
    for command in ["hdel", "hlen"] {
        let renamed = Renamed::start(&[command]);
        let client = builder(&renamed.server.url()).connect().await.unwrap();
        let guard = client.mutex(NAME).unwrap().lock().await.unwrap();
        let mut connection = renamed.server.connection();
        let before = look::script_runs(&mut connection);
        let error = guard.unlock().await.expect_err(command);
        assert!(matches!(error, Error::Unsupported { .. }), "{command}: {error:?}");
        assert!(error.to_string().contains(&format!("the command {command},")), "{error}");
        assert!(look::script_runs(&mut connection) - before <= 2, "{command}");
        // It ends with its lease.
        leaves_nothing(&renamed.server, &client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_names_renamed_commands_and_leaves_nothing_for_ever() {
    for missing in [&["hdel", "pexpire"][..], &["persist"], &["pexpire"], &["hdel"]] {
        let renamed = Renamed::start(missing);
        let client = builder(&renamed.server.url()).connect().await.unwrap();
        let report = client.preflight(NAME).await.unwrap();
        assert!(!report.is_usable(), "without {missing:?}: {report}");
        let known = crate::support::redis_server::version() >= (7, 0);
        for command in missing.iter().filter(|_| known) {
            let found =
                |words: &str| words.contains(&format!("does not know the command {command}"));
            assert!(report.findings.iter().any(|finding| found(&finding.found)), "{report}");
        }
        let immortal = renamed.immortal_keys(&mut renamed.server.connection());
        assert!(immortal.is_empty(), "without {missing:?}: {immortal:?}");
        leaves_nothing(&renamed.server, &client).await;
    }
}

// ---- locks without a time to live, and data beside locks

#[tokio::test]
async fn a_lock_without_a_time_to_live_says_so_and_is_removed_by_force() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let lock = client.mutex(NAME).unwrap();
    let field = format!("{}:731", uuid::Uuid::new_v4());
    redis::cmd("HSET").arg(NAME).arg(&field).arg(1).exec(&mut connection).unwrap();
    let errors = [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
        lock.holder().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
        let words = error.to_string();
        assert!(
            words.contains("a lock without a time to live") && words.contains("`force_unlock`"),
            "{words}"
        );
    }
    assert!(lock.force_unlock().await.unwrap());
    assert!(look::lock_keys(&mut connection).is_empty());
    lock.lock().await.unwrap().unlock().await.unwrap();
    leaves_nothing(&server, &client).await;
}

/// What somebody has put under the name of a lock that is held.
fn put_data(connection: &mut Connection, name: &str) {
    redis::cmd("HSET").arg(name).arg("status").arg("paid").exec(connection).unwrap();
}

/// It is there, all of it and nothing else, for ever.
fn data_is_kept(connection: &mut Connection, name: &str) {
    let fields = look::hash(connection, name);
    assert_eq!(
        fields.into_iter().collect::<Vec<_>>(),
        [("status".to_owned(), "paid".to_owned())],
        "{name}"
    );
    let pttl: i64 = redis::cmd("PTTL").arg(name).query(connection).unwrap();
    assert_eq!(pttl, -1, "{name}");
}

fn is_still_in_use(released: Result<()>) {
    let error = released.expect_err("the key is in other use");
    assert!(matches!(error, Error::KeyStillInUse { .. }), "{error:?}");
    assert!(error.to_string().contains("is released, but its key is in other use"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_under_the_key_of_a_lock_outlives_every_release() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let ours = builder(&server.url()).connect().await.unwrap();
    let theirs = builder(&server.url()).connect().await.unwrap();
    let conflict = |end: Result<()>| {
        let error = end.expect_err("the key is in other use");
        assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
    };

    // A plain release, after a partial one and a renewal. A waiter of another client is woken.
    let lock = ours.reentrant_lock("plain").unwrap();
    let waiter = theirs.mutex("plain").unwrap();
    let nested = async {
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        let waiter = tokio::spawn(async move { waiter.lock().await.map(drop) });
        let waiting = theirs.clone();
        settles("it sleeps", move || waiting.stats().subscriptions == 1).await;
        put_data(&mut connection, "plain");
        inner.unlock().await.unwrap();
        outer.verify().await.unwrap();
        let ttl: i64 = redis::cmd("PTTL").arg("plain").query(&mut connection).unwrap();
        assert!(ttl > 0, "while the lock is held its key has a time to live");
        is_still_in_use(outer.unlock().await);
        conflict(timeout(BOUND, waiter).await.expect("it is woken").unwrap());
    };
    Owner::new().scope(nested).await;
    data_is_kept(&mut connection, "plain");

    // A hand-off.
    let lock = ours.mutex("handed").unwrap();
    let guard = lock.lock().await.unwrap();
    let next = tokio::spawn(async move { lock.lock().await.map(drop) });
    let waiting = ours.clone();
    settles("it waits", move || waiting.stats().waiters == 1).await;
    put_data(&mut connection, "handed");
    is_still_in_use(guard.unlock().await);
    conflict(timeout(BOUND, next).await.expect("it looks").unwrap());
    data_is_kept(&mut connection, "handed");

    // Taken away from its holder.
    let lock = ours.mutex("forced").unwrap();
    let guard = lock.lock().await.unwrap();
    let holder = lock.holder().await.unwrap().expect("we hold it");
    put_data(&mut connection, "forced");
    conflict(lock.force_unlock().await.map(drop));
    let forced = theirs.mutex("forced").unwrap().force_unlock_from(&holder).await;
    is_still_in_use(forced.map(drop));
    timeout(BOUND, guard.lost()).await.expect("its holder is told");
    data_is_kept(&mut connection, "forced");

    // Dropped, one by one and together.
    let names: Vec<String> = (0..12).map(|number| format!("dropped:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(ours.mutex(name).unwrap().lock().await.unwrap());
        put_data(&mut connection, name);
    }
    drop(guards);
    for client in [ours, theirs] {
        assert!(client.shutdown(BOUND).await.unwrap().is_clean());
    }
    names.iter().for_each(|name| data_is_kept(&mut connection, name));
}

/// Many that are taken and released at once go in one script.
#[tokio::test(flavor = "multi_thread")]
async fn data_outlives_releases_that_go_together() {
    let server = RedisServer::start();
    let client = builder(&server.url()).connect().await.unwrap();
    let one = |number: u32| {
        let lock = client.mutex(format!("together:{number}")).unwrap();
        let mut connection = server.connection();
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            put_data(&mut connection, guard.name());
            is_still_in_use(guard.unlock().await);
            data_is_kept(&mut connection, lock.name());
        })
    };
    let tasks: Vec<_> = (0..100).map(one).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
}
