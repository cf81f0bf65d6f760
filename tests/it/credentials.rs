//! Logins that change while locks are held.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::CredentialProvider;
use redis_reentrant_lock::Credentials;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LossReason;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;
use crate::support::topology::Topology;

const BOUND: Duration = Duration::from_secs(10);
/// Outlasts a renewal that was just due, the outage that these tests make, and the longest pause
/// between logins.
const LEASE: Duration = Duration::from_secs(6);

fn set_password(server: &RedisServer, user: &str, password: &str) {
    let rights = format!("on resetpass >{password} ~* &* +@all");
    let rights: Vec<_> = rights.split(' ').collect();
    let () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg(user)
        .arg(rights)
        .query(&mut server.connection())
        .unwrap();
}

/// Ends the connections of a user; how many there were.
fn kill(server: &RedisServer, user: &str) -> usize {
    redis::cmd("CLIENT").arg(&["KILL", "USER", user]).query(&mut server.connection()).unwrap()
}

/// A secret that a provider reads and a test changes.
#[derive(Clone)]
struct Vault(Arc<Mutex<String>>);

impl Vault {
    fn with(password: &str) -> Self {
        Self(Arc::new(Mutex::new(password.to_owned())))
    }

    fn set(&self, password: &str) {
        *self.0.lock().unwrap() = password.to_owned();
    }

    fn provider(&self) -> CredentialProvider {
        let vault = self.clone();
        CredentialProvider::new(move || {
            let password = vault.0.lock().unwrap().clone();
            async move { Ok::<_, io::Error>(Credentials::new("locks", password)) }
        })
    }
}

fn builder(server: &RedisServer, provider: CredentialProvider) -> LockClientBuilder {
    LockClient::builder().url(server.url()).credentials(provider).lease(LEASE)
}

async fn many_guards(client: &LockClient) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.mutex(format!("n{number}")).unwrap().lock().await.unwrap());
    }
    guards
}

/// The vault is a little late, so the first new connections are refused.
#[tokio::test]
async fn a_changed_password_costs_no_hold() {
    let server = RedisServer::start();
    set_password(&server, "locks", "old");
    let vault = Vault::with("old");
    let client = builder(&server, vault.provider()).connect().await.unwrap();
    let guards = many_guards(&client).await;

    set_password(&server, "locks", "new");
    assert_eq!(kill(&server, "locks"), 2, "commands and pub/sub");
    sleep(Duration::from_millis(200)).await;
    let error = client.mutex("free").unwrap().try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("credential provider"), "{error:?}");
    vault.set("new");

    // Longer than the lease: only what was renewed over the new connection is still there.
    sleep(LEASE + LEASE / 2).await;
    for guard in &guards {
        guard.verify().await.unwrap();
        assert_eq!(guard.loss(), None);
    }
    // Wake-ups come over the other connection.
    let waiting = client.mutex("n0").unwrap();
    let other = builder(&server, vault.provider()).connect().await.unwrap().mutex("n0").unwrap();
    let waiters = [
        tokio::spawn(async move { waiting.lock().await?.unlock().await }),
        tokio::spawn(async move { other.lock().await?.unlock().await }),
    ];
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for waiter in waiters {
        timeout(BOUND, waiter).await.unwrap().unwrap().unwrap();
    }
    leaves_nothing(&server, &client).await;
}

/// Every node of a cluster gets the new password, and the map is asked with it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_costs_no_hold_in_a_cluster() {
    let mut cluster = Topology::cluster();
    let set = |cluster: &Topology, password: &str| {
        for node in 0..6 {
            let rights = ["ACL", "SETUSER", "locks", "on", "resetpass", &format!(">{password}")];
            let _: String = cluster.ask(node, &[&rights[..], &["~*", "&*", "+@all"]].concat());
        }
    };
    set(&cluster, "old");
    let vault = Vault::with("old");
    let url = format!("redis-cluster://{}", cluster.addresses(0..3).join(","));
    let builder = LockClient::builder().url(&url).credentials(vault.provider()).lease(LEASE);
    let client = builder.connect().await.unwrap();
    let guards = many_guards(&client).await;

    set(&cluster, "new");
    let ended = |cluster: &Topology, node| -> usize {
        cluster.ask(node, &["CLIENT", "KILL", "USER", "locks"])
    };
    for node in 0..3 {
        assert_eq!(ended(&cluster, node), 2, "commands and pub/sub");
    }
    vault.set("new");
    // Longer than the lease: only what was renewed over the new connections is still there.
    sleep(LEASE + LEASE / 2).await;
    for guard in &guards {
        guard.verify().await.unwrap();
        assert_eq!(guard.loss(), None);
    }
    // A server that is new to the client is logged in to as well.
    cluster.kill(0);
    let taken_over = guards.iter().map(|guard| async {
        while guard.verify().await.is_err_and(|error| error.is_transient()) {}
        guard.loss()
    });
    let losses = timeout(3 * BOUND, futures::future::join_all(taken_over)).await.unwrap();
    assert!(
        losses.iter().all(|loss| matches!(loss, None | Some(LossReason::ServerLostData))),
        "{losses:?}"
    );
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
}

#[tokio::test]
async fn without_a_provider_holders_and_waiters_are_told() {
    let server = RedisServer::start();
    set_password(&server, "locks", "old");
    let url = format!("redis://locks:old@{}", server.address());
    let client = LockClient::builder().url(&url).lease(LEASE).connect().await.unwrap();
    let guard = client.mutex("n").unwrap().lock().await.unwrap();
    let lock = client.mutex("n").unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });

    set_password(&server, "locks", "new");
    kill(&server, "locks");
    let error = timeout(BOUND, waiter).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::Auth { .. }) && error.is_config(), "{error:?}");
    assert!(guard.is_held(), "for as long as its lease says");
    timeout(BOUND, async {
        while !guard.is_suspect() {
            sleep(LEASE / 50).await
        }
    })
    .await
    .unwrap();
    assert_eq!(timeout(BOUND, guard.lost()).await.unwrap(), LossReason::Expired);
    assert!(!guard.is_held());
}

/// Id and user of the connection for commands (not subscribed) or for pub/sub.
fn connection_of(server: &RedisServer, subscribed: bool) -> Option<(String, String)> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    list.lines().find_map(|line| {
        let field =
            |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or("");
        let ours = field("user=") != "default" && (field("sub=") != "0") == subscribed;
        ours.then(|| (field("id=").to_owned(), field("user=").to_owned()))
    })
}

#[tokio::test]
async fn short_lived_credentials_are_renewed_on_the_live_connection() {
    for protocol in ["resp2", "resp3"] {
        let server = RedisServer::start();
        for number in 0..100 {
            set_password(&server, &format!("u{number}"), "token");
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // A new user every time, to be seen on the server.
        let provider = CredentialProvider::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let credentials = Credentials::new(format!("u{number}"), "token");
            async move { Ok::<_, io::Error>(credentials.valid_for(Duration::from_millis(400))) }
        });
        let url = format!("{}?protocol={protocol}", server.url());
        let client = LockClient::builder()
            .url(&url)
            .credentials(provider)
            .lease(LEASE)
            .connect()
            .await
            .unwrap();
        let guard = client.mutex("n").unwrap().lock().await.unwrap();
        let (id, user) = connection_of(&server, false).unwrap();
        let mut subscribed = String::new();
        // It may be being replaced.
        eventually("there is a connection for pub/sub", || {
            connection_of(&server, true).is_some_and(|(id, _)| {
                subscribed = id;
                true
            })
        });

        let shared = Arc::new(server);
        let (server, at) = (Arc::clone(&shared), id.clone());
        settles("the connection for commands has another user and is the same", move || {
            connection_of(&server, false).is_some_and(|(id, now)| id == at && now != user)
        })
        .await;
        let server = Arc::clone(&shared);
        settles("the connection for pub/sub is another one", move || {
            connection_of(&server, true).is_some_and(|(id, _)| id != subscribed)
        })
        .await;
        // No command was lost by it, and nothing was asked in vain.
        assert!(guard.is_held() && !guard.is_suspect());
        assert!((3..60).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
        guard.unlock().await.unwrap();
        client.shutdown(BOUND).await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_renewal_is_repeated_with_newer_credentials() {
    let server = RedisServer::start();
    set_password(&server, "locks", "good");
    set_password(&server, "other", "good");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let provider = CredentialProvider::new(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            let credentials = match number {
                0 | 1 => Credentials::new("locks", "good"),
                2..5 => Credentials::new("other", "hunter2"),
                5..8 => return Err(io::Error::other("the vault is shut")),
                _ => Credentials::new("other", "good"),
            };
            Ok(credentials.valid_for(Duration::from_millis(if number < 2 { 200 } else { 60_000 })))
        }
    });
    let client = builder(&server, provider).connect().await.unwrap();
    let guard = client.mutex("n").unwrap().lock().await.unwrap();
    let (id, _) = connection_of(&server, false).unwrap();
    let server = Arc::new(server);
    let looking = Arc::clone(&server);
    settles("it is the other user at last", move || {
        connection_of(&looking, false).is_some_and(|(now, user)| now == id && user == "other")
    })
    .await;
    guard.verify().await.unwrap();
    assert!(asked.load(Ordering::Relaxed) >= 9, "{asked:?}");
}

/// What `connect` says within its time.
async fn fails(provider: CredentialProvider) -> String {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    // Twice what a provider may take.
    let builder = builder(&server, provider).connect_timeout(Duration::from_secs(6));
    let error = timeout(BOUND, builder.connect()).await.expect("within its time").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_transient(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("credential provider") && text.contains(&server.address()), "{text}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    text
}

/// Panics without the hook, which would print a backtrace first: that may take all the time there
/// is.
fn no_token<T>() -> T {
    std::panic::resume_unwind(Box::new("no token"))
}

#[tokio::test]
async fn providers_that_give_nothing_are_named() {
    let failing = CredentialProvider::new(|| async {
        Err::<Credentials, _>(io::Error::other("the vault is shut"))
    });
    let hanging = CredentialProvider::new(std::future::pending::<io::Result<Credentials>>);
    let panicking = CredentialProvider::new(|| async { no_token::<io::Result<Credentials>>() });
    let panicking_at_once =
        CredentialProvider::new(no_token::<std::future::Ready<io::Result<Credentials>>>);
    let wrong =
        CredentialProvider::new(|| async { Ok::<_, io::Error>(Credentials::new("", "hunter2")) });
    let (failing, hanging, panicking, at_once, wrong) = tokio::join!(
        fails(failing),
        fails(hanging),
        fails(panicking),
        fails(panicking_at_once),
        fails(wrong)
    );
    assert!(failing.contains("failed: the vault is shut"), "{failing}");
    assert!(hanging.contains("did not answer within 3s"), "{hanging}");
    assert!(panicking.contains("panicked"), "{panicking}");
    assert!(at_once.contains("panicked"), "{at_once}");
    assert!(wrong.contains("was refused: WRONGPASS"), "{wrong}");
}

#[tokio::test]
async fn a_provider_that_recovers_is_asked_again() {
    let server = RedisServer::start();
    set_password(&server, "locks", "good");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let provider = CredentialProvider::new(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move { if number < 6 { Err("not yet") } else { Ok(Credentials::new("locks", "good")) } }
    });
    let client = builder(&server, provider).connect().await.unwrap();
    client.mutex("n").unwrap().lock().await.unwrap().unlock().await.unwrap();
    assert!(asked.load(Ordering::Relaxed) >= 8);
}

#[test]
fn a_login_comes_from_one_place() {
    for url in ["redis://ann:hunter2@127.0.0.1:1", "redis://:hunter2@127.0.0.1:1"] {
        let error = LockClient::builder()
            .url(url)
            .credentials(Vault::with("x").provider())
            .connect_lazy()
            .unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "credentials", .. }), "{error:?}");
        assert!(error.to_string().contains("one of the two places"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}

/// A look-up of a host name blocks a thread, too, for as long as the system's resolver likes.
#[tokio::test]
async fn a_provider_that_blocks_a_thread_does_not_hold_up_the_end() {
    let server = RedisServer::start();
    set_password(&server, "locks", "p");
    let blocked = Arc::new(AtomicUsize::new(0));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let block = Arc::clone(&blocked);
    let provider = CredentialProvider::new(move || {
        let (blocked, released) = (Arc::clone(&block), Arc::clone(&released));
        async move {
            // Of the two connections' logins.
            if blocked.fetch_add(1, Ordering::Relaxed) >= 2 {
                let wait = move || drop(released.lock().map(|released| released.recv()));
                let _ = tokio::task::spawn_blocking(wait).await;
            }
            Ok::<_, io::Error>(Credentials::new("locks", "p").valid_for(Duration::from_millis(200)))
        }
    });
    let client = builder(&server, provider).connect().await.unwrap();
    settles("the provider is asked again", move || blocked.load(Ordering::Relaxed) > 2).await;
    timeout(BOUND, client.shutdown(Duration::from_secs(1)))
        .await
        .expect("it ends in time")
        .unwrap();
    drop(release);
}
