//! What tests connect with: connections of this crate, or with `LOCK_TRANSPORT=fred` clients of
//! fred.

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;

use super::redis_server::not_run;

/// A builder for the servers at this address.
pub(crate) fn builder(url: &str) -> LockClientBuilder {
    #[cfg(feature = "fred")]
    if is_over_fred() {
        return LockClient::builder().fred(&fred::client(url));
    }
    LockClient::builder().url(url)
}

pub(crate) async fn connect(url: &str) -> LockClient {
    builder(url).connect().await.expect("the server is there")
}

/// Whether clients of fred are what tests connect with.
pub(crate) fn is_over_fred() -> bool {
    match std::env::var("LOCK_TRANSPORT").as_deref() {
        Err(_) | Ok("") => false,
        Ok("fred") if cfg!(feature = "fred") => true,
        Ok(other) => panic!("LOCK_TRANSPORT={other}: known is fred, which needs the feature"),
    }
}

/// For a test of what does not hold over fred: tells that it is not run, and what it needs.
pub(crate) fn cannot_over_fred(needed: &str) -> bool {
    let cannot = is_over_fred();
    if cannot {
        not_run(&format!("needs {needed}, and this is over fred"));
    }
    cannot
}

#[cfg(feature = "fred")]
pub(crate) mod fred {
    use fred::clients::Client;
    use fred::types::config::Config;

    /// A user's client. It is not connected, because only its settings are used.
    pub(crate) fn client(url: &str) -> Client {
        Client::new(config(url), None, None, None)
    }

    /// The configuration of fred for an address of this crate.
    pub(crate) fn config(url: &str) -> Config {
        let (scheme, rest) = url.split_once("://").expect("a scheme");
        let config = if scheme.contains("sentinel") {
            Config::from_url(&of_sentinels(scheme, rest))
        } else {
            Config::from_url(url)
        };
        config.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// `login@host,host/name?sentinel_password=x`. That password needs fred's feature
    /// `sentinel-auth`.
    fn of_sentinels(scheme: &str, rest: &str) -> String {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (places, name) = rest.rsplit_once('/').expect("the primary's name");
        let (login, hosts) = places.rsplit_once('@').unwrap_or(("", places));
        let (first, others) = hosts.split_once(',').unwrap_or((hosts, ""));
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        let nodes: String = others
            .split(',')
            .filter(|node| !node.is_empty())
            .map(|node| format!("&node={node}"))
            .collect();
        let password = query
            .strip_prefix("sentinel_password=")
            .map(|text| format!("&sentinelPassword={text}"));
        let password = password.unwrap_or_default();
        format!("{scheme}://{login}{first}?sentinelServiceName={name}{nodes}{password}")
    }
}
