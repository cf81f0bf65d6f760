//! What must work on any deployment that `REDIS_URL` names; without it, on a private server.
//! `REDIS_CA` is a file with the authority that its certificates are from, if it uses TLS.
//!
//! Nothing here harms a server that others use: names are of one's own, and nothing is flushed or
//! configured.

use std::sync::OnceLock;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Tls;
use tokio::time::timeout;

use crate::support::client::builder;
#[cfg(all(feature = "fred", feature = "rustls"))]
use crate::support::client::is_over_fred;
use crate::support::lives;
use crate::support::redis_server::RedisServer;

const BOUND: Duration = Duration::from_secs(10);

/// The URL given, or that of a server that lives as long as the `Endpoint`.
struct Endpoint {
    url: String,
    _server: Option<RedisServer>,
}

impl Endpoint {
    fn new() -> Self {
        match std::env::var("REDIS_URL") {
            Ok(url) if !url.is_empty() => Self { url, _server: None },
            _ => {
                let server = RedisServer::start();
                Self { url: server.url(), _server: Some(server) }
            }
        }
    }

    async fn client(&self) -> LockClient {
        let authority = std::env::var_os("REDIS_CA").filter(|_| self.url.starts_with("rediss"));
        let builder = match authority.map(|file| std::fs::read(file).unwrap()) {
            None => builder(&self.url),
            #[cfg(all(feature = "fred", feature = "rustls"))]
            Some(authority) if is_over_fred() => {
                LockClient::builder().fred(&trusting::client(&self.url, &authority))
            }
            Some(authority) => builder(&self.url).tls(Tls::new().ca_pem(authority)),
        };
        builder.connect().await.unwrap()
    }
}

#[cfg(all(feature = "fred", feature = "rustls"))]
mod trusting {
    use std::sync::Arc;

    use fred::clients::Client;
    use fred::types::config::Config;
    use fred::types::config::TlsConnector;
    use tokio_rustls::rustls::ClientConfig;
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use crate::support::client::fred::config;

    /// A client of fred that trusts this authority.
    pub(super) fn client(url: &str, authority: &[u8]) -> Client {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate.expect("a certificate")).expect("a usable certificate");
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Some(TlsConnector::from(tls).into());
        Client::new(Config { tls, ..config(url) }, None, None, None)
    }
}

/// A name that nobody else uses.
fn name(what: &str) -> String {
    static RUN: OnceLock<String> = OnceLock::new();
    let run = RUN.get_or_init(|| uuid::Uuid::new_v4().to_string());
    format!("endpoint-test:{run}:{what}")
}

async fn shut_down(client: LockClient) {
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
}

#[tokio::test]
async fn nested_locking() {
    let endpoint = Endpoint::new();
    let client = endpoint.client().await;
    let lock = client.reentrant_lock(name("nested")).unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!((holder.count, holder.is_this_client), (2, true));
    inner.unlock().await.unwrap();
    assert!(lock.is_locked().await.unwrap());
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    shut_down(client).await;
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_client() {
    let endpoint = Endpoint::new();
    let (a, b) = (endpoint.client().await, endpoint.client().await);
    let held = a.reentrant_lock(name("wake")).unwrap().lock().await.unwrap();
    let other = b.reentrant_lock(name("wake")).unwrap();
    assert!(other.try_lock().await.unwrap().is_err());
    let waiting = tokio::spawn(async move { other.lock().await });
    let asleep = async {
        while b.stats().subscriptions == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, asleep).await.unwrap();
    let old = held.fencing_token();
    held.unlock().await.unwrap();
    let granted = timeout(BOUND, waiting).await.unwrap().unwrap().unwrap();
    assert!(granted.fencing_token() > old);
    granted.unlock().await.unwrap();
    shut_down(a).await;
    shut_down(b).await;
}

#[tokio::test]
async fn a_fixed_lease_runs_out_and_is_taken_over() {
    let endpoint = Endpoint::new();
    let (a, b) = (endpoint.client().await, endpoint.client().await);
    let options = LockOptions::new().lease(Duration::from_millis(300));
    let old = a.reentrant_lock(name("lease")).unwrap().lock_with(options).await.unwrap().unwrap();
    let new =
        timeout(BOUND, b.reentrant_lock(name("lease")).unwrap().lock()).await.unwrap().unwrap();
    assert!(new.fencing_token() > old.fencing_token());
    assert!(!old.is_held());
    assert!(old.unlock().await.unwrap_err().is_lost());
    new.unlock().await.unwrap();
    shut_down(a).await;
    shut_down(b).await;
}

#[tokio::test]
async fn a_force_unlock_is_noticed() {
    let endpoint = Endpoint::new();
    let (a, b) = (endpoint.client().await, endpoint.client().await);
    let held = a.reentrant_lock(name("force")).unwrap().lock().await.unwrap();
    assert!(b.reentrant_lock(name("force")).unwrap().force_unlock().await.unwrap());
    assert_eq!(timeout(BOUND, held.lost()).await.unwrap(), LossReason::ForceUnlocked);
    drop(held);

    let (ours, theirs) = (a.mutex(name("force")).unwrap(), b.mutex(name("force")).unwrap());
    let before = ours.lock().await.unwrap();
    let holder = theirs.holder().await.unwrap().unwrap();
    assert_eq!(holder.hold_id(), before.hold_id());
    before.unlock().await.unwrap();
    assert!(!theirs.force_unlock_from(&holder).await.unwrap(), "it is free");
    let held = ours.lock().await.unwrap();
    assert!(!theirs.force_unlock_from(&holder).await.unwrap(), "it is another hold's");
    held.verify().await.unwrap();
    let holder = theirs.holder().await.unwrap().unwrap();
    assert!(theirs.force_unlock_from(&holder).await.unwrap());
    assert_eq!(timeout(BOUND, held.lost()).await.unwrap(), LossReason::ForceUnlocked);
    drop(held);
    shut_down(a).await;
    shut_down(b).await;
}

#[tokio::test]
async fn read_write_locks_and_semaphores() {
    let endpoint = Endpoint::new();
    let (a, b) = (endpoint.client().await, endpoint.client().await);
    lives::of_other_kinds(&a, &b, &name("kinds")).await;
    shut_down(a).await;
    shut_down(b).await;
}

#[tokio::test]
async fn many_owners_of_two_clients_take_turns() {
    let endpoint = Endpoint::new();
    let clients = [endpoint.client().await, endpoint.client().await];
    let inside = std::sync::atomic::AtomicU32::new(0);
    let turn = |number: usize| {
        let lock = clients[number % 2].reentrant_lock(name("turns")).unwrap();
        let inside = &inside;
        Owner::new().scope(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
            let token = guard.fencing_token();
            guard.unlock().await.unwrap();
            token
        })
    };
    let mut tokens = timeout(BOUND, futures::future::join_all((0..20).map(turn))).await.unwrap();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20);
    for client in clients {
        shut_down(client).await;
    }
}

#[tokio::test]
async fn waiting_ends_when_its_time_is_over() {
    let endpoint = Endpoint::new();
    let (a, b) = (endpoint.client().await, endpoint.client().await);
    let held = a.mutex(name("busy")).unwrap().lock().await.unwrap();
    let other = b.mutex(name("busy")).unwrap();
    assert!(other.try_lock().await.unwrap().is_err());
    assert!(other.try_lock_for(Duration::from_millis(50)).await.unwrap().is_err());
    held.unlock().await.unwrap();
    other.try_lock_for(BOUND).await.unwrap().expect("free").unlock().await.unwrap();
    shut_down(a).await;
    shut_down(b).await;
}
