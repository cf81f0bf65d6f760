//! Host names of servers and the addresses that they resolve to, shared by all connections to a
//! server.
//!
//! At a failover, a managed service lets the name of its primary resolve to another server, while
//! the old one may stay reachable. So a name in use is resolved again every five seconds, and for
//! every new connection. The newest answer counts for all connections: one to an address that is
//! not in it ends, as if another primary had been named. If the resolver fails, or returns no
//! address, nothing changes.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;

use crate::backend::redis::addresses::Target;
use crate::backend::redis::budget::LOOK_UP;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::config::host_and_port;
use crate::backend::redis::dial::within;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::link::report;
use crate::backend::redis::link::unless_stopped;
#[cfg(test)]
use crate::backend::redis::names::tests::FakeResolver;
use crate::backend::redis::wire::display_error;

/// How often a name in use is resolved again.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// The most causes of failed resolutions that are logged between two successful ones.
const MAX_CAUSES: usize = 8;

/// Resolves names to addresses.
#[derive(Clone, Default)]
pub(crate) enum Resolver {
    #[default]
    System,
    /// For tests: names and their addresses.
    #[cfg(test)]
    Fixed(FakeResolver),
}

impl Resolver {
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WireError> {
        match self {
            Self::System => {
                Ok(tokio::net::lookup_host((host, port)).await.map_err(display_error)?.collect())
            }
            #[cfg(test)]
            Self::Fixed(answers) => answers.resolve(host).await,
        }
    }
}

/// All names that the connections of one backend use.
#[derive(Clone)]
pub(crate) struct HostNames {
    resolver: Resolver,
    follows: bool,
    known: Arc<Mutex<Vec<Arc<HostName>>>>,
}

impl HostNames {
    pub(crate) fn of(config: &RedisConfig) -> Self {
        Self {
            resolver: config.resolver().clone(),
            follows: config.follows_names(),
            known: Arc::default(),
        }
    }

    /// The entry of a server's name. Entries of other names that no connection uses are removed.
    pub(crate) fn name(&self, host: &str, port: u16) -> Arc<HostName> {
        let mut known = locked(&self.known);
        known.retain(|name| name.is(host, port) || Arc::strong_count(name) > 1);
        if let Some(name) = known.iter().find(|name| name.is(host, port)) {
            return Arc::clone(name);
        }
        let name = Arc::new(HostName::new(self, host, port));
        known.push(Arc::clone(&name));
        name
    }

    /// Resolves the names in use every five seconds, until told to stop.
    pub(crate) async fn watch(self, mut stop: StopSignal) {
        while stop.sleep(EVERY).await {
            let used = self.used();
            let resolved = join_all(used.iter().map(|name| name.resolve_again()));
            if unless_stopped(&mut stop, resolved).await.is_none() {
                return;
            }
        }
    }

    fn used(&self) -> Vec<Arc<HostName>> {
        locked(&self.known).iter().filter(|name| name.is_in_use()).cloned().collect()
    }
}

/// A host name and port. An IP address resolves to itself.
pub(crate) struct HostName {
    host: String,
    port: u16,
    resolver: Resolver,
    follows: bool,
    state: Mutex<HostNameState>,
    /// Notified of every accepted answer.
    answered: watch::Sender<()>,
}

#[derive(Default)]
struct HostNameState {
    /// How many resolutions have begun. They may end in another order.
    begun: u64,
    /// The number of the resolution that gave `addresses`.
    newest: u64,
    addresses: Vec<SocketAddr>,
    used: Vec<Weak<UsedAddress>>,
    /// The causes of failures that were logged since the last answer.
    reported: Vec<String>,
}

/// An address that a connection uses.
#[derive(Debug)]
struct UsedAddress {
    address: SocketAddr,
    /// Set once the name no longer resolves to it.
    gone: AtomicBool,
}

impl HostName {
    fn new(names: &HostNames, host: &str, port: u16) -> Self {
        let (answered, _) = watch::channel(());
        Self {
            host: host.to_owned(),
            port,
            resolver: names.resolver.clone(),
            follows: names.follows,
            state: Mutex::default(),
            answered,
        }
    }

    fn is(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }

    fn address(&self) -> Option<SocketAddr> {
        let address = self.host.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(address, self.port))
    }

    /// True for a name; false for an IP address, which needs no resolver.
    pub(crate) fn is_resolved(&self) -> bool {
        self.address().is_none()
    }

    /// The addresses for a new connection. If the resolver fails or takes longer than `patience`,
    /// these are the last known ones.
    pub(crate) async fn resolve(&self, patience: Duration) -> Result<Vec<SocketAddr>, WireError> {
        if let Some(address) = self.address() {
            return Ok(vec![address]);
        }
        let known = self.state().addresses.clone();
        // If the name is resolved periodically, a late answer is not missed.
        let patience = if known.is_empty() || !self.follows { LOOK_UP } else { patience };
        match self.look_up(patience).await {
            Err(error) if !known.is_empty() => {
                self.report(&error);
                Ok(known)
            }
            resolved => resolved,
        }
    }

    /// Resolves the name again. If the resolver fails, returns the last known addresses.
    pub(crate) async fn resolve_again(&self) -> Vec<SocketAddr> {
        match self.look_up(LOOK_UP).await {
            Ok(addresses) => addresses,
            Err(error) => {
                self.report(&error);
                self.state().addresses.clone()
            }
        }
    }

    async fn look_up(&self, patience: Duration) -> Result<Vec<SocketAddr>, WireError> {
        let number = self.begin();
        let resolved = self.resolver.resolve(&self.host, self.port);
        let addresses =
            within("its name was not resolved", patience.min(LOOK_UP), resolved).await?;
        if addresses.is_empty() {
            return Err(WireError::new(ErrorKind::Io, "the host has no address"));
        }
        self.accept(number, &addresses);
        Ok(addresses)
    }

    fn begin(&self) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun
    }

    /// Accepts the addresses of a resolution, unless a resolution that began later has already
    /// ended.
    fn accept(&self, number: u64, addresses: &[SocketAddr]) {
        let mut state = self.state();
        if number < state.newest {
            return;
        }
        state.newest = number;
        state.addresses = addresses.to_vec();
        state.reported.clear();
        state.used.retain(|used| {
            let used = used.upgrade();
            if let Some(used) = used.iter().find(|used| !addresses.contains(&used.address)) {
                used.gone.store(true, Ordering::Release);
            }
            used.is_some()
        });
        drop(state);
        self.answered.send_replace(());
    }

    /// Logs each cause once, because a name is resolved again and again.
    fn report(&self, error: &WireError) {
        // The text of a timeout contains the time limit, which differs between calls.
        let late = error.kind() == ErrorKind::Timeout;
        let words = if late { "its name was not resolved in time" } else { error.details() };
        let cause = format!("{}: {words}", self.host);
        let mut state = self.state();
        let is_new = state.reported.len() < MAX_CAUSES && !state.reported.contains(&cause);
        if is_new {
            state.reported.push(cause.clone());
        }
        drop(state);
        if is_new {
            report(&cause, "a name could not be resolved: the addresses that it had are used");
        }
    }

    fn is_in_use(&self) -> bool {
        self.state().used.iter().any(|used| used.strong_count() > 0)
    }

    /// Registers a connection to one of the addresses.
    pub(crate) fn using(self: &Arc<Self>, target: &Target) -> AddressWatch {
        let Target::Tcp(address) = *target else { return AddressWatch::default() };
        if !self.follows || !self.is_resolved() {
            return AddressWatch::default();
        }
        let mut state = self.state();
        let gone = AtomicBool::new(!state.addresses.contains(&address));
        let used = Arc::new(UsedAddress { address, gone });
        state.used.push(Arc::downgrade(&used));
        drop(state);
        AddressWatch(Some((Arc::clone(self), used)))
    }

    fn state(&self) -> MutexGuard<'_, HostNameState> {
        locked(&self.state)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a connection when its server's name no longer resolves to its address. It never does if
/// the server has no name, or if names are not followed.
#[derive(Clone, Default)]
pub(crate) struct AddressWatch(Option<(Arc<HostName>, Arc<UsedAddress>)>);

impl AddressWatch {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, used)| used.gone.load(Ordering::Acquire))
    }

    /// Returns a text when the name no longer resolves to the address.
    pub(crate) async fn gone(&self) -> String {
        let Some((name, used)) = &self.0 else { return std::future::pending().await };
        // The name keeps the sender, so this ends only when the address is gone.
        let _ = name.answered.subscribe().wait_for(|()| self.is_gone()).await;
        let now: Vec<String> = name.state().addresses.iter().map(SocketAddr::to_string).collect();
        let host = host_and_port(&name.host, name.port);
        format!("{host} no longer resolves to {}, but to {}", used.address, now.join(", "))
    }
}

impl std::fmt::Debug for AddressWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InUse").field(&self.0.as_ref().map(|(_, used)| used)).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use std::collections::HashMap;
    use std::sync::atomic::AtomicUsize;

    use tokio::time::Instant;

    use crate::backend::redis::config::Access;
    use crate::backend::redis::config::Endpoint;
    use crate::backend::redis::locator::PrimaryTerm;
    use crate::base::log::tests::broken_log;

    /// What the resolver for tests answers about a name.
    #[derive(Clone)]
    pub(crate) enum FakeAnswer {
        Addresses(Vec<SocketAddr>),
        /// One of them at a time, in turns.
        OneOf(Vec<SocketAddr>),
        Failure(&'static str),
        /// It never answers.
        Nothing,
    }

    /// A resolver for tests. Names without an entry have no address.
    #[derive(Clone, Default)]
    pub(crate) struct FakeResolver {
        names: Arc<Mutex<HashMap<String, FakeAnswer>>>,
        asked: Arc<AtomicUsize>,
    }

    impl FakeResolver {
        pub(crate) fn say(&self, host: &str, said: FakeAnswer) {
            locked(&self.names).insert(host.to_owned(), said);
        }

        pub(crate) fn point(&self, host: &str, addresses: &[SocketAddr]) {
            self.say(host, FakeAnswer::Addresses(addresses.to_vec()));
        }

        pub(crate) fn asked(&self) -> usize {
            self.asked.load(Ordering::Acquire)
        }

        pub(super) async fn resolve(&self, host: &str) -> Result<Vec<SocketAddr>, WireError> {
            let before = self.asked.fetch_add(1, Ordering::AcqRel);
            let said = locked(&self.names).get(host).cloned();
            match said {
                Some(FakeAnswer::Addresses(addresses)) => Ok(addresses),
                Some(FakeAnswer::OneOf(addresses)) => Ok(vec![addresses[before % addresses.len()]]),
                Some(FakeAnswer::Failure(words)) => Err(WireError::new(ErrorKind::Io, words)),
                Some(FakeAnswer::Nothing) => std::future::pending().await,
                None => Ok(Vec::new()),
            }
        }
    }

    /// A server whose host name resolves to these addresses.
    pub(crate) fn named(url: &str, addresses: &[SocketAddr]) -> RedisConfig {
        let config = RedisConfig::parse(url).expect("an address");
        let Endpoint::Tcp { host, .. } = config.place() else { panic!("{url} has no name") };
        let answers = FakeResolver::default();
        answers.point(&host, addresses);
        config.resolved_by(Resolver::Fixed(answers))
    }

    /// The resolver of such a server.
    pub(crate) fn answers(config: &RedisConfig) -> &FakeResolver {
        let Resolver::Fixed(answers) = config.resolver() else { panic!("the system's resolver") };
        answers
    }

    /// From now on the name resolves to these addresses.
    pub(crate) fn rename(config: &RedisConfig, host: &str, addresses: &[SocketAddr]) {
        answers(config).point(host, addresses);
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 6379))
    }

    /// A name in use at the first of its addresses, and the task that watches it.
    struct WatchedName {
        config: RedisConfig,
        name: Arc<HostName>,
        used: AddressWatch,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    impl WatchedName {
        async fn at(addresses: &[SocketAddr]) -> Self {
            Self::of(named("redis://db", addresses), addresses[0]).await
        }

        async fn of(config: RedisConfig, address: SocketAddr) -> Self {
            let names = HostNames::of(&config);
            let name = names.name("db", 6379);
            name.resolve(SECOND).await.expect("known");
            let used = name.using(&Target::Tcp(address));
            let (stop, stopped) = StopSignal::pair();
            let task = tokio::spawn(names.watch(stopped));
            Self { config, name, used, stop, task }
        }

        fn asked(&self) -> usize {
            answers(&self.config).asked()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_told_within_five_seconds_that_its_name_stands_for_another_address() {
        let watched = WatchedName::at(&[address(1)]).await;
        rename(&watched.config, "db", &[address(2), address(3)]);
        let begun = Instant::now();
        let term = PrimaryTerm::default().at(watched.used.clone());
        assert!(!watched.used.is_gone() && !term.is_over());
        let words = watched.used.gone().await;
        assert_eq!((begun.elapsed(), watched.used.is_gone()), (EVERY, true));
        assert!(term.is_over(), "what the old server answers does not count");
        assert_eq!(
            words,
            "db:6379 no longer resolves to 10.0.0.1:6379, but to 10.0.0.2:6379, 10.0.0.3:6379"
        );
        assert_eq!(watched.used.gone().await, words, "it stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_one_of_several_in_any_order_is_kept() {
        let watched = WatchedName::at(&[address(1), address(2)]).await;
        for addresses in [&[address(2), address(1)][..], &[address(3), address(1)], &[address(1)]] {
            rename(&watched.config, "db", addresses);
            tokio::time::sleep(2 * EVERY).await;
            assert!(!watched.used.is_gone(), "{addresses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_every_five_seconds_as_long_as_a_connection_uses_it() {
        let watched = WatchedName::at(&[address(1)]).await;
        let resolved = watched.asked();
        tokio::time::sleep(10 * EVERY).await;
        let again = watched.asked() - resolved;
        assert!((9..=11).contains(&again), "{again}");
        let WatchedName { config, used, stop, task, .. } = watched;
        drop(used);
        let resolved = answers(&config).asked();
        tokio::time::sleep(10 * EVERY).await;
        assert_eq!(answers(&config).asked(), resolved, "nobody uses it");
        stop.send(true).expect("a task");
        task.await.expect("its end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_fails_changes_nothing_and_each_cause_is_logged_once() {
        let (_log, logged) = broken_log();
        let watched = WatchedName::at(&[address(1)]).await;
        let resolver = answers(&watched.config).clone();
        for (causes, said) in [
            (1, FakeAnswer::Failure("name server away")),
            (2, FakeAnswer::Addresses(Vec::new())),
            (3, FakeAnswer::Nothing),
            (3, FakeAnswer::Failure("name server away")),
        ] {
            resolver.say("db", said);
            tokio::time::sleep(10 * EVERY).await;
            assert_eq!((watched.used.is_gone(), logged.load(Ordering::SeqCst)), (false, causes));
            let addresses = watched.name.resolve(SECOND).await;
            assert_eq!(addresses, Ok(vec![address(1)]), "for a new connection, too");
        }
        // After a successful resolution the failure is logged again.
        resolver.point("db", &[address(1)]);
        tokio::time::sleep(2 * EVERY).await;
        resolver.say("db", FakeAnswer::Failure("name server away"));
        tokio::time::sleep(2 * EVERY).await;
        assert_eq!(logged.load(Ordering::SeqCst), 4);
        resolver.point("db", &[address(2)]);
        watched.used.gone().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_hangs_delays_a_new_connection_only_while_no_address_is_known() {
        let watched = WatchedName::at(&[address(1)]).await;
        let resolver = answers(&watched.config).clone();
        resolver.say("db", FakeAnswer::Nothing);
        resolver.say("new", FakeAnswer::Nothing);
        let begun = Instant::now();
        assert_eq!(watched.name.resolve(SECOND).await, Ok(vec![address(1)]));
        assert_eq!(begun.elapsed(), SECOND);
        let unknown = HostNames::of(&watched.config).name("new", 6379);
        let begun = Instant::now();
        assert!(unknown.resolve(SECOND).await.is_err());
        assert_eq!(begun.elapsed(), LOOK_UP);
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_an_error() {
        let names = HostNames::of(&named("redis://db", &[]));
        let error = names.name("db", 6379).resolve(SECOND).await.expect_err("none");
        assert_eq!(error.details(), "the host has no address");
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_not_followed_where_that_is_turned_off() {
        let access = Access { ignores_dns: true, ..Access::default() };
        let config = named("redis://db", &[address(1)]);
        let resolver = config.resolver().clone();
        let config = RedisConfig::with_access("redis://db", &access)
            .expect("an address")
            .resolved_by(resolver);
        let watched = WatchedName::of(config, address(1)).await;
        rename(&watched.config, "db", &[address(2)]);
        assert_eq!(
            watched.name.resolve(SECOND).await,
            Ok(vec![address(2)]),
            "for a new connection"
        );
        tokio::time::sleep(4 * EVERY).await;
        assert!(!watched.used.is_gone());
    }

    #[tokio::test]
    async fn the_answer_to_the_newest_question_counts_whichever_comes_first() {
        let names = HostNames::of(&named("redis://db", &[]));
        let name = names.name("db", 6379);
        let (first, second) = (name.begin(), name.begin());
        name.accept(second, &[address(2)]);
        let used = name.using(&Target::Tcp(address(2)));
        name.accept(first, &[address(1)]);
        assert!(!used.is_gone(), "that answer is older");
        assert!(
            name.using(&Target::Tcp(address(1))).is_gone(),
            "it was moved while it was dialled"
        );
        name.accept(name.begin(), &[address(1)]);
        assert!(used.is_gone());
    }

    #[tokio::test]
    async fn addresses_and_unix_sockets_are_never_resolved() {
        let config = named("redis://db", &[address(9)]);
        let names = HostNames::of(&config);
        for (host, there) in [("10.0.0.1", "10.0.0.1:6379"), ("::1", "[::1]:6379")] {
            let there: SocketAddr = there.parse().expect("an address");
            let name = names.name(host, 6379);
            assert!(!name.is_resolved());
            assert_eq!(name.resolve(SECOND).await, Ok(vec![there]));
            let used = name.using(&Target::Tcp(there));
            assert!(used.0.is_none() && !used.is_gone());
        }
        let unix = names.name("db", 6379).using(&Target::Unix("/run/redis.sock".into()));
        assert!(unix.0.is_none() && answers(&config).asked() == 0 && names.used().is_empty());
        for (url, may) in [
            ("redis://db", true),
            ("redis://10.0.0.1", false),
            ("redis://[::1]", false),
            ("redis+unix:///run/redis.sock", false),
            ("redis-sentinel://10.0.0.1/main", true),
        ] {
            assert_eq!(RedisConfig::read(url).expect(url).may_have_names(), may, "{url}");
        }
    }

    #[tokio::test]
    async fn names_that_nobody_uses_are_forgotten() {
        let names = HostNames::of(&named("redis://db", &[address(1)]));
        let name = names.name("db", 6379);
        name.resolve(SECOND).await.expect("known");
        drop(name);
        assert_eq!(
            names.name("db", 6379).state().addresses,
            [address(1)],
            "for the next connection"
        );
        let other = names.name("other", 6379);
        assert_eq!(locked(&names.known).len(), 1);
        drop(names.name("third", 6379));
        assert!(locked(&names.known).iter().any(|name| name.is("other", 6379)), "{}", other.host);
    }
}
