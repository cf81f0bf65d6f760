//! Connections over TLS, and every way in which they do not come about.

use std::path::PathBuf;
use std::time::Duration;

use certs::HOSTS;
use certs::Pair;
use redis_reentrant_lock::CredentialProvider;
use redis_reentrant_lock::Credentials;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Tls;
use tokio::time::timeout;

use crate::support::lives;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::has_redis_7;
use crate::support::settle::leaves_nothing;
use crate::support::tls_server::Certificates;
use crate::support::tls_server::TlsServer;
use crate::support::topology::Kind;
use crate::support::topology::Plan;

const BOUND: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(400);

/// Nested, contended, renewed, and given back, over TLS with a client certificate and a user.
#[tokio::test]
async fn the_whole_life_of_a_lock() {
    let certificates = Certificates::new();
    let server =
        TlsServer::start(&certificates, &certificates.server(), true, &["--requirepass", "admin"]);
    let mut admin =
        redis::Client::open(format!("redis://:admin@{}", server.plain.address())).unwrap();
    let rights = "on >se/cret ~* &* +@all";
    let () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg("ann")
        .arg(rights.split(' ').collect::<Vec<_>>())
        .query(&mut admin)
        .unwrap();
    let connect = |query: &str| {
        let url = format!("rediss://ann:se%2Fcret@localhost:{}{query}", server.port);
        LockClient::builder().url(&url).tls(certificates.mutual()).lease(SHORT).connect()
    };
    for query in ["", "/3?protocol=resp3"] {
        let (ours, theirs) = (connect(query).await.unwrap(), connect(query).await.unwrap());
        let lock = ours.reentrant_lock("orders:42").unwrap();
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        assert_eq!((lock.hold_count().unwrap(), inner.fencing_token()), (2, outer.fencing_token()));

        let waiting = theirs.mutex("orders:42").unwrap();
        let waiter = tokio::spawn(async move { waiting.lock().await });
        // Several leases: the watchdog works over TLS too.
        tokio::time::sleep(3 * SHORT).await;
        assert!(outer.is_held() && !waiter.is_finished());
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        let woken = timeout(BOUND, waiter).await.unwrap().unwrap().unwrap();
        woken.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
        lives::of_other_kinds(&ours, &theirs, "kinds").await;
        ours.shutdown(BOUND).await.unwrap();
        theirs.shutdown(BOUND).await.unwrap();
    }
}

#[tokio::test]
async fn names_and_addresses_that_the_certificate_has() {
    let certificates = Certificates::new();
    let binding = ["--bind", "127.0.0.1", "-::1"];
    let server = TlsServer::start(&certificates, &certificates.server(), false, &binding);
    let mut hosts = vec!["localhost", "127.0.0.1"];
    // Some machines have no IPv6.
    if std::net::TcpStream::connect(("::1", server.port)).is_ok() {
        hosts.push("[::1]");
    }
    for host in hosts {
        let url = format!("rediss://{host}:{}", server.port);
        let client =
            LockClient::builder().url(&url).tls(certificates.trusting()).connect().await.unwrap();
        client.mutex("n").unwrap().lock().await.unwrap().unlock().await.unwrap();
        leaves_nothing(&server.plain, &client).await;
        client.shutdown(BOUND).await.unwrap();
    }
}

/// Ends at once, although there would be time, and says what is wrong.
async fn fails(what: &str, builder: LockClientBuilder) -> String {
    let error = timeout(BOUND, builder.connect_timeout(3 * BOUND).connect())
        .await
        .expect(what)
        .expect_err(what);
    assert!(
        matches!(error, Error::Tls { .. }) && error.is_config() && !error.is_transient(),
        "{what}: {error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("PRIVATE"), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn certificates_that_are_not_accepted() {
    let certificates = Certificates::new();
    let ours = &certificates.ours;
    let server = |own: &Pair, mutual| TlsServer::start(&certificates, own, mutual, &[]);
    let (good, mutual) =
        (server(&certificates.server(), false), server(&certificates.server(), true));
    let expired = server(&ours.expired_server(HOSTS).unwrap(), false);
    let elsewhere = server(&ours.server(&["redis.example", "10.1.2.3"]).unwrap(), false);
    let named = server(&ours.server(&["localhost"]).unwrap(), false);
    let stranger = certificates.other.client("stranger").unwrap();
    let trusting = || certificates.trusting();
    let table = [
        ("the system's authorities", good.builder(Tls::new()), "not signed by a trusted authority"),
        (
            "another authority",
            good.builder(Tls::new().ca_pem(certificates.other.cert.as_str())),
            "not signed by a trusted authority",
        ),
        ("expired", expired.builder(trusting()), "has expired"),
        ("other names", elsewhere.builder(trusting()), "not issued for the host"),
        ("a name, but no address", named.builder(trusting()), "not issued for the host"),
        ("no client certificate", mutual.builder(trusting()), "requires a client certificate"),
        (
            "a stranger's client certificate",
            mutual.builder(trusting().client_cert_pem(stranger.cert, stranger.key)),
            "does not accept our client certificate",
        ),
    ];
    for (what, builder, words) in table {
        let text = fails(what, builder).await;
        assert!(text.contains(words), "{what}: {text}");
        assert!(text.contains("127.0.0.1:"), "{what}: {text}");
    }
    assert!(look::lock_keys(&mut good.plain.connection()).is_empty());
}

/// May be an outage as well, so it is waited for; the words say what else it may be.
#[tokio::test]
async fn only_one_side_speaks_tls() {
    let certificates = Certificates::new();
    let server = TlsServer::start(&certificates, &certificates.server(), false, &[]);
    let to_plain = LockClient::builder()
        .url(format!("rediss://ann:hunter2@{}", server.plain.address()))
        .tls(certificates.trusting());
    let to_tls =
        LockClient::builder().url(format!("redis://ann:hunter2@127.0.0.1:{}", server.port));
    for (builder, words) in [(to_plain, "redis://"), (to_tls, "rediss://")] {
        let error = timeout(BOUND, builder.connect_timeout(Duration::from_secs(3)).connect())
            .await
            .expect("within the connect timeout")
            .unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(
            error.to_string().contains("127.0.0.1:") && !format!("{error:?}").contains("hunter2"),
            "{error:?}"
        );
    }
}

/// The certificate is replaced by one that nobody trusts while a lock is held, and back.
#[tokio::test]
async fn nothing_is_sent_to_a_server_that_shows_another_certificate() {
    if !has_redis_7("CONFIG SET of several settings at once") {
        return;
    }
    let certificates = Certificates::new();
    let server = TlsServer::start(&certificates, &certificates.server(), false, &[]);
    let client = server.builder(certificates.trusting()).connect().await.unwrap();
    let guard = client.mutex("n").unwrap().lock().await.unwrap();
    let Pair { cert, key } = certificates.other.server(HOSTS).unwrap();
    let mut admin = server.plain.connection();
    let set = |admin: &mut redis::Connection, pair: &Pair| {
        let (cert, key) = (server.file("new.crt", &pair.cert), server.file("new.key", &pair.key));
        let settings = ["SET", "tls-cert-file", &cert, "tls-key-file", &key];
        let () = redis::cmd("CONFIG").arg(&settings).query(admin).unwrap();
        // All but this one.
        let _: i64 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query(admin).unwrap();
        let _: i64 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query(admin).unwrap();
    };
    set(&mut admin, &Pair { cert, key });
    let mut error = None;
    for _ in 0..1_000 {
        error = client.ping().await.err();
        if matches!(error, Some(Error::Tls { .. })) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(matches!(error, Some(Error::Tls { .. })), "{error:?}");
    assert!(guard.is_held(), "its lease is not over");
    set(&mut admin, &certificates.server());
    timeout(BOUND, async { while client.ping().await.is_err() {} }).await.unwrap();
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
}

#[test]
fn settings_that_are_no_settings() {
    let certificates = Certificates::new();
    let (Pair { cert, key }, other) = (certificates.client(), certificates.client());
    let ca = certificates.ours.cert.as_str();
    let body_cut = |pem: &str| pem.replace("\n-----END", "*\n-----END");
    // Valid base64 of what is no certificate.
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let table = [
        (Tls::new().ca_pem(""), "ca_pem without a certificate"),
        (Tls::new().ca_pem("hunter2"), "ca_pem without a certificate"),
        (Tls::new().ca_pem(key.as_str()), "ca_pem without a certificate"),
        (Tls::new().ca_pem(body_cut(ca)), "ca_pem with broken PEM"),
        (Tls::new().ca_pem(nonsense), "ca_pem with"),
        (Tls::new().ca_pem(ca).ca_pem("hunter2"), "ca_pem without a certificate"),
        (Tls::new().client_cert_pem("", key.as_str()), "client_cert_pem without a certificate"),
        (
            Tls::new().client_cert_pem(cert.as_str(), ""),
            "client_cert_pem without a readable private key",
        ),
        (
            Tls::new().client_cert_pem(cert.as_str(), cert.as_str()),
            "without a readable private key",
        ),
        (
            Tls::new().client_cert_pem(cert.as_str(), other.key),
            "client_cert_pem with this certificate and key",
        ),
        (Tls::new().client_cert_pem(nonsense, key.as_str()), "client_cert_pem with"),
    ];
    for (tls, words) in table {
        assert!(!format!("{tls:?}").contains("hunter2"));
        let error =
            LockClient::builder().url("rediss://127.0.0.1:1").tls(tls).connect_lazy().unwrap_err();
        assert!(
            matches!(error, Error::InvalidOption { .. }) && error.is_config(),
            "{words}: {error:?}"
        );
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(error.to_string().contains("must be"), "{words}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}

#[test]
fn settings_without_an_address_for_them() {
    let tls = || Tls::new().ca_pem(Certificates::new().ours.cert);
    let of_servers = |url| LockClient::builder().url(url).tls(tls()).connect_lazy();
    let of_sentinels = |url| LockClient::builder().url(url).sentinel_tls(tls()).connect_lazy();
    for (result, words) in [
        (of_servers("redis://127.0.0.1:1"), "rediss://"),
        (of_servers("redis+unix:///no/such/socket"), "rediss://"),
        (of_sentinels("rediss://127.0.0.1:1"), "rediss-sentinel://"),
        (of_sentinels("rediss-sentinel://127.0.0.1:1/main?sentinel_tls=off"), "rediss-sentinel://"),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_puppet_takes_files() {
    let certificates = Certificates::new();
    let server = TlsServer::start(&certificates, &certificates.server(), true, &[]);
    let Pair { cert, key } = certificates.client();
    let ca = format!("ca={}", server.file("ca.crt", &certificates.ours.cert));
    let (cert, key) = (
        format!("cert={}", server.file("client.crt", &cert)),
        format!("key={}", server.file("client.key", &key)),
    );
    let mut puppet = Puppet::start(&server.url(), &[&ca, &cert, &key]);
    assert_eq!(puppet.run("a lock n")["event"], "granted");
    assert_eq!(puppet.run("b unlock a")["event"], "unlocked");
    puppet.finish();
}

/// Certificates as `cargo xtask certs` writes them, in a directory that goes away.
struct Written(PathBuf);

impl Written {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("lock-certs-{name}-{}", std::process::id()));
        certs::write(&directory, &[]).unwrap();
        Self(directory)
    }

    fn trusting(&self, authority: &str) -> Tls {
        Tls::new().ca_pem(std::fs::read(self.0.join(authority)).unwrap())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Their own certificates and logins, and a primary that goes away.
#[tokio::test]
async fn a_sentinel_set() {
    let written = Written::new("sentinel");
    let directory = written.0.display().to_string();
    let mut set = Plan::new(Kind::Sentinel).setting("TOPOLOGY_CERTS", &directory).start();
    let sentinels = set.addresses(3..6).join(",");
    let (ours, other) = (|| written.trusting("ca.crt"), || written.trusting("other-ca.crt"));
    let builder = |login: &str, password: &str| {
        let url = format!("rediss-sentinel://{login}{sentinels}/main?sentinel_password={password}");
        LockClient::builder().url(&url)
    };
    let good = || builder("locks:lock-secret@", "sentinel-secret");
    let table = [
        ("another authority of the sentinels", good().tls(ours()).sentinel_tls(other())),
        ("another authority of the servers", good().tls(other()).sentinel_tls(ours())),
    ];
    for (what, builder) in table {
        let text = fails(what, builder).await;
        assert!(text.contains("not signed by a trusted authority"), "{what}: {text}");
    }
    let error = builder("locks:lock-secret@", "wrong").tls(ours()).connect().await.unwrap_err();
    assert!(matches!(error, Error::Auth { .. }), "{error:?}");
    // The servers' provider has nothing to do with the sentinels' login.
    let provider = CredentialProvider::new(|| async {
        Ok::<_, std::convert::Infallible>(Credentials::new("locks", "lock-secret"))
    });
    let error =
        builder("", "wrong").tls(ours()).credentials(provider.clone()).connect().await.unwrap_err();
    assert!(matches!(error, Error::Auth { .. }), "{error:?}");

    let client =
        builder("", "sentinel-secret").tls(ours()).credentials(provider).connect().await.unwrap();
    let lock = client.reentrant_lock("orders:42").unwrap();
    let outer = lock.lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    set.kill(0);
    let guard = timeout(3 * BOUND, lock.lock()).await.unwrap().unwrap();
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    client.shutdown(BOUND).await.unwrap();
}

/// Every node is asked and used through TLS, with the login from the provider.
#[tokio::test]
async fn a_cluster() {
    let written = Written::new("cluster");
    let directory = written.0.display().to_string();
    let plan = Plan::new(Kind::Cluster).setting("TOPOLOGY_CERTS", &directory);
    let nodes = plan.config("user locks on >lock-secret ~* &* +@all").start();
    let provider = |password: &'static str| {
        CredentialProvider::new(move || async move {
            Ok::<_, std::convert::Infallible>(Credentials::new("locks", password))
        })
    };
    let url = format!("rediss-cluster://{}", nodes.addresses(0..2).join(","));
    let builder = |password| {
        LockClient::builder()
            .url(&url)
            .tls(written.trusting("ca.crt"))
            .credentials(provider(password))
    };
    let client = builder("lock-secret").connect().await.unwrap();
    // Some of each node.
    for number in 0..20 {
        let lock = client.reentrant_lock(format!("n{number}")).unwrap();
        let outer = lock.lock().await.unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
        outer.unlock().await.unwrap();
    }
    client.shutdown(BOUND).await.unwrap();

    let error = builder("wrong").connect().await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("credential provider was refused"),
        "{error}"
    );
    let other = builder("lock-secret").tls(written.trusting("other-ca.crt"));
    assert!(fails("another authority", other).await.contains("not signed by a trusted authority"));
}
