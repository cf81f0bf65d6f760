//! The addresses to which a server's host name resolves. They are tried one after the other until
//! one of them has the wanted server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::config::Endpoint;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::error::WireError;
use crate::backend::redis::names::AddressWatch;
use crate::backend::redis::names::HostName;
use crate::backend::redis::names::HostNames;

/// The address that a socket connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The addresses that are left to try, and the failures of those that were tried.
pub(crate) struct AddressTries {
    left: std::vec::IntoIter<Target>,
    /// How many addresses there were at first.
    count: usize,
    /// `None`: a unix socket.
    name: Option<Arc<HostName>>,
    failures: Vec<(Target, Failure)>,
}

impl AddressTries {
    /// Resolves the host name of the server. `first` is tried before the others, if the name still
    /// resolves to it.
    pub(crate) async fn begin(
        config: &RedisConfig,
        names: &HostNames,
        first: Option<&Target>,
    ) -> Result<Self, WireError> {
        let (mut targets, name) = match config.place() {
            Endpoint::Unix(path) => (vec![Target::Unix(path)], None),
            Endpoint::Tcp { host, port, .. } => {
                let name = names.name(&host, port);
                let found = name.resolve(config.budgets().answer()).await?;
                (found.into_iter().map(Target::Tcp).collect::<Vec<_>>(), Some(name))
            }
        };
        // The order of the others is kept, because the resolver may have sorted them by preference.
        targets.sort_by_key(|target| Some(target) != first);
        Ok(Self { count: targets.len(), left: targets.into_iter(), name, failures: Vec::new() })
    }

    /// For a connection to one of the addresses: a watch that reports when the name no longer
    /// resolves to it.
    pub(crate) fn using(&self, target: &Target) -> AddressWatch {
        self.name.as_ref().map(|name| name.using(target)).unwrap_or_default()
    }

    pub(crate) fn next(&mut self) -> Option<Target> {
        self.left.next()
    }

    /// The number of addresses, tried or not.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn failed(&mut self, target: Target, failure: Failure) {
        self.failures.push((target, failure));
    }

    /// Why none of the addresses could be used. A failure that retrying does not mend is reported
    /// even if another address was only unreachable.
    pub(crate) fn failure(mut self) -> Failure {
        let lasting = |failure: &Failure| !failure.kind.is_transient();
        let worst =
            self.failures.iter().find(|(_, failure)| lasting(failure)).or(self.failures.last());
        let Some(worst) = worst.map(|(_, failure)| failure.kind) else {
            return Failure::new(FailureKind::Link, "the host has no address");
        };
        let kind = worst.of_several(self.failures.iter().map(|(_, failure)| failure.kind));
        // The failure need not name the address if the user has given it as such. A name does not
        // tell which address was used.
        let named = self.name.is_some_and(|name| name.is_resolved());
        if !named && self.failures.len() == 1 {
            return self.failures.remove(0).1;
        }
        let said = self.failures.iter().map(|(target, failure)| format!("at {target}: {failure}"));
        Failure::new(kind, said.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::redis::names::tests::named;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 6379))
    }

    async fn tries(first: Option<u8>) -> Vec<Target> {
        let config = named("redis://db", &[address(1), address(2), address(3)]);
        let first = first.map(|last| Target::Tcp(address(last)));
        let mut tries = AddressTries::begin(&config, &HostNames::of(&config), first.as_ref())
            .await
            .expect("known");
        std::iter::from_fn(|| tries.next()).collect()
    }

    #[tokio::test]
    async fn what_was_good_last_is_tried_first_and_the_others_in_their_order() {
        let order = |all: [u8; 3]| all.map(|last| Target::Tcp(address(last))).to_vec();
        assert_eq!(tries(None).await, order([1, 2, 3]));
        assert_eq!(tries(Some(1)).await, order([1, 2, 3]));
        assert_eq!(tries(Some(3)).await, order([3, 1, 2]));
        assert_eq!(tries(Some(9)).await, order([1, 2, 3]), "it is not one of them any more");
    }

    async fn summed_up(
        url: &str,
        addresses: &[SocketAddr],
        failures: &[(FailureKind, &str)],
    ) -> Failure {
        let config = named(url, addresses);
        let mut tries =
            AddressTries::begin(&config, &HostNames::of(&config), None).await.expect("known");
        for (kind, words) in failures {
            let target = tries.next().expect("an address for each");
            tries.failed(target, Failure::new(*kind, *words));
        }
        tries.failure()
    }

    #[tokio::test]
    async fn a_failure_names_every_address_that_was_tried() {
        use FailureKind as F;
        let (one, two) = (address(1), address(2));
        type Row<'a> = (&'a str, &'a [SocketAddr], &'a [(F, &'a str)], F, &'a str);
        let table: [Row<'_>; 7] = [
            (
                "redis://db",
                &[one, two],
                &[(F::NoListener, "refused"), (F::NoListener, "refused")],
                F::NoListener,
                "at 10.0.0.1:6379: refused; at 10.0.0.2:6379: refused",
            ),
            (
                "redis://db",
                &[one, two],
                &[(F::Link, "mute"), (F::NoListener, "refused")],
                F::Link,
                "at 10.0.0.1:6379: mute; at 10.0.0.2:6379: refused",
            ),
            ("redis://10.0.0.1", &[one], &[(F::Link, "refused")], F::Link, "refused"),
            ("redis://db", &[one], &[(F::Link, "refused")], F::Link, "at 10.0.0.1:6379: refused"),
            (
                "redis://db",
                &[one, two],
                &[(F::Link, "mute"), (F::Unsupported, "a replica")],
                F::Unsupported,
                "at 10.0.0.1:6379: mute; at 10.0.0.2:6379: a replica",
            ),
            (
                "redis://db",
                &[one, two],
                &[(F::Auth, "WRONGPASS"), (F::Link, "mute")],
                F::Auth,
                "at 10.0.0.1:6379: WRONGPASS; at 10.0.0.2:6379: mute",
            ),
            (
                "redis://db",
                &[one, two],
                &[(F::ReadOnly, "a replica"), (F::Busy, "loading")],
                F::Busy,
                "at 10.0.0.1:6379: a replica; at 10.0.0.2:6379: loading",
            ),
        ];
        for (url, addresses, failures, kind, words) in table {
            assert_eq!(summed_up(url, addresses, failures).await, Failure::new(kind, words));
        }
    }

    #[tokio::test]
    async fn a_socket_in_the_file_system_has_one_address() {
        let config = RedisConfig::parse("unix:///run/redis.sock").expect("an address");
        let mut tries = AddressTries::begin(&config, &HostNames::of(&config), None)
            .await
            .expect("nothing to resolve");
        assert_eq!(
            (tries.count(), tries.next()),
            (1, Some(Target::Unix("/run/redis.sock".into())))
        );
        tries.failed(
            Target::Unix("/run/redis.sock".into()),
            Failure::new(FailureKind::Link, "refused"),
        );
        assert_eq!(tries.failure().message, "refused");
    }
}
