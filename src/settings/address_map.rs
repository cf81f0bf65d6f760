//! Maps the addresses that servers announce to those that this client can reach.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use crate::base::log::TARGET;
use crate::base::log::tell;

/// Where a server can be reached that sentinels or nodes of a cluster announce at another address:
/// what the function of [`LockClientBuilder::address_map`](crate::LockClientBuilder::address_map)
/// returns. It can be made from a pair of host and port.
///
/// ```
/// use redis_reentrant_lock::MappedAddress;
///
/// let forwarded = MappedAddress::from(("127.0.0.1", 16379));
/// assert_eq!(forwarded, MappedAddress::new("127.0.0.1", 16379));
///
/// let tunnel = MappedAddress::new("localhost", 16379).certified_for("redis-1.internal");
/// assert_ne!(tunnel, forwarded);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) certified_for: Option<String>,
}

impl MappedAddress {
    /// A host name or an IP address, and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, certified_for: None }
    }

    /// The host name or IP address that the server's certificate must be issued for, if this is not
    /// the host that the connection goes to. Only with TLS.
    #[must_use]
    pub fn certified_for(mut self, host: impl Into<String>) -> Self {
        self.certified_for = Some(host.into());
        self
    }
}

impl<H: Into<String>> From<(H, u16)> for MappedAddress {
    fn from((host, port): (H, u16)) -> Self {
        Self::new(host, port)
    }
}

type MapFn = dyn Fn(&str, u16) -> MappedAddress + Send + Sync;

/// The function that a user has given.
#[derive(Clone)]
pub(crate) struct AddressMap(Arc<MapFn>);

impl AddressMap {
    pub(crate) fn new<A: Into<MappedAddress>>(
        map: impl Fn(&str, u16) -> A + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |host, port| map(host, port).into()))
    }

    /// Calls the function. If it panics, the address is used as it was announced.
    pub(crate) fn apply(&self, host: &str, port: u16) -> MappedAddress {
        catch_unwind(AssertUnwindSafe(|| (self.0)(host, port))).unwrap_or_else(|_| {
            tell(|| tracing::warn!(target: TARGET, %host, port, "the function given to address_map has panicked"));
            MappedAddress::new(host, port)
        })
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressMap")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::base::log::tests::broken_log;

    #[test]
    fn a_function_may_return_a_pair_or_an_address() {
        let pair = AddressMap::new(|host, port| (format!("{host}.nat"), port + 1));
        assert_eq!(pair.apply("a", 1), MappedAddress::new("a.nat", 2));
        let address = AddressMap::new(|host, _| MappedAddress::new("nat", 7).certified_for(host));
        assert_eq!(address.apply("a", 1), MappedAddress::new("nat", 7).certified_for("a"));
    }

    #[test]
    fn a_function_that_panics_changes_nothing_and_the_log_says_so() {
        let (_log, told) = broken_log();
        let map = AddressMap::new(|_, port| ("nat", port.checked_sub(1).expect("not for port 0")));
        assert_eq!(map.apply("a", 0), MappedAddress::new("a", 0));
        assert_eq!(told.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(map.apply("a", 1), MappedAddress::new("nat", 0));
    }
}
