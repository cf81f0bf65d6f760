//! Names of servers, and the addresses that each stands for by now: for all connections to a server.
//!
//! At a failover, a managed service lets the name of its primary stand for another server, and the old one may stay
//! reachable. So a name in use is resolved again every five seconds, and for every new connection. The newest answer
//! counts for all connections: one to an address that is not in it is over, as if another primary had been named. A
//! resolver that fails, or that gives no address, changes nothing.

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
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::report;
use crate::backend::redis::link::unless_stopped;
#[cfg(test)]
use crate::backend::redis::names::tests::Answers;
use crate::backend::redis::wire::told;

/// How often a name in use is resolved again.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// So many causes of failed resolutions are logged between two that succeed.
const MAX_CAUSES: usize = 8;

/// What turns names into addresses.
#[derive(Clone, Default)]
pub(crate) enum Resolver {
    #[default]
    System,
    /// For tests: names, and what they stand for.
    #[cfg(test)]
    Fixed(Answers),
}

impl Resolver {
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WireError> {
        match self {
            Self::System => Ok(tokio::net::lookup_host((host, port)).await.map_err(told)?.collect()),
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
        Self { resolver: config.resolver().clone(), follows: config.follows_names(), known: Arc::default() }
    }

    /// The name of a server. Others are forgotten when no connection uses them.
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
    pub(crate) async fn watch(self, mut stop: Stop) {
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

/// One name and port, or an address, which stands for itself.
pub(crate) struct HostName {
    host: String,
    port: u16,
    resolver: Resolver,
    follows: bool,
    state: Mutex<HostNameState>,
    /// Tells of every answer that was taken in.
    answered: watch::Sender<()>,
}

#[derive(Default)]
struct HostNameState {
    /// How many resolutions have begun. Their answers may come in another order.
    begun: u64,
    /// Which of them gave these addresses.
    newest: u64,
    addresses: Vec<SocketAddr>,
    used: Vec<Weak<Used>>,
    /// The causes of failures that were logged since the last answer.
    reported: Vec<String>,
}

/// An address that a connection uses.
#[derive(Debug)]
struct Used {
    address: SocketAddr,
    /// The name does not stand for it any more.
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

    /// Whether a resolver is asked.
    pub(crate) fn is_resolved(&self) -> bool {
        self.address().is_none()
    }

    /// The addresses for a new connection. If the resolver fails or takes longer than `patience`, those that are known.
    pub(crate) async fn resolve(&self, patience: Duration) -> Result<Vec<SocketAddr>, WireError> {
        if let Some(address) = self.address() {
            return Ok(vec![address]);
        }
        let known = self.state().addresses.clone();
        // Where the name is watched, an answer that comes later is not missed.
        let patience = if known.is_empty() || !self.follows { LOOK_UP } else { patience };
        match self.look_up(patience).await {
            Err(error) if !known.is_empty() => {
                self.report(&error);
                Ok(known)
            }
            resolved => resolved,
        }
    }

    /// Looks whether the name has moved. If the resolver fails, the addresses are those that are known.
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
        let addresses = within("its name was not resolved", patience.min(LOOK_UP), resolved).await?;
        if addresses.is_empty() {
            return Err(WireError::new(ErrorKind::Io, "the host has no address"));
        }
        self.take_in(number, &addresses);
        Ok(addresses)
    }

    fn begin(&self) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun
    }

    /// The addresses that a resolution has given count from now on, unless one that was begun later was quicker.
    fn take_in(&self, number: u64, addresses: &[SocketAddr]) {
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

    /// Once for each cause: a name is resolved again and again.
    fn report(&self, error: &WireError) {
        // The limits differ.
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

    /// For a connection to one of the addresses.
    pub(crate) fn using(self: &Arc<Self>, target: &Target) -> InUse {
        let Target::Tcp(address) = *target else { return InUse::default() };
        if !self.follows || !self.is_resolved() {
            return InUse::default();
        }
        let mut state = self.state();
        let gone = AtomicBool::new(!state.addresses.contains(&address));
        let used = Arc::new(Used { address, gone });
        state.used.push(Arc::downgrade(&used));
        drop(state);
        InUse(Some((Arc::clone(self), used)))
    }

    fn state(&self) -> MutexGuard<'_, HostNameState> {
        locked(&self.state)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a connection when the name of its server does not stand for its address any more. Never, if the server has no
/// name, or if names are not followed.
#[derive(Clone, Default)]
pub(crate) struct InUse(Option<(Arc<HostName>, Arc<Used>)>);

impl InUse {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, used)| used.gone.load(Ordering::Acquire))
    }

    /// Returns when the name does not stand for the address any more, and says so in words.
    pub(crate) async fn gone(&self) -> String {
        let Some((name, used)) = &self.0 else { return std::future::pending().await };
        // The name keeps the sender, so that this ends only when the address is gone.
        let _ = name.answered.subscribe().wait_for(|()| self.is_gone()).await;
        let now: Vec<String> = name.state().addresses.iter().map(SocketAddr::to_string).collect();
        let host = host_and_port(&name.host, name.port);
        format!("{host} does not stand for {} any more, but for {}", used.address, now.join(", "))
    }
}

impl std::fmt::Debug for InUse {
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
    use crate::backend::redis::whereabouts::Mandate;
    use crate::base::log::tests::broken_log;

    /// What a resolver for tests says about a name.
    #[derive(Clone)]
    pub(crate) enum Said {
        Addresses(Vec<SocketAddr>),
        /// One of them at a time, in turns.
        OneOf(Vec<SocketAddr>),
        Failure(&'static str),
        /// It never answers.
        Nothing,
    }

    /// A resolver for tests. A name that it was not told of has no address.
    #[derive(Clone, Default)]
    pub(crate) struct Answers {
        names: Arc<Mutex<HashMap<String, Said>>>,
        asked: Arc<AtomicUsize>,
    }

    impl Answers {
        pub(crate) fn say(&self, host: &str, said: Said) {
            locked(&self.names).insert(host.to_owned(), said);
        }

        pub(crate) fn point(&self, host: &str, addresses: &[SocketAddr]) {
            self.say(host, Said::Addresses(addresses.to_vec()));
        }

        pub(crate) fn asked(&self) -> usize {
            self.asked.load(Ordering::Acquire)
        }

        pub(super) async fn resolve(&self, host: &str) -> Result<Vec<SocketAddr>, WireError> {
            let before = self.asked.fetch_add(1, Ordering::AcqRel);
            let said = locked(&self.names).get(host).cloned();
            match said {
                Some(Said::Addresses(addresses)) => Ok(addresses),
                Some(Said::OneOf(addresses)) => Ok(vec![addresses[before % addresses.len()]]),
                Some(Said::Failure(words)) => Err(WireError::new(ErrorKind::Io, words)),
                Some(Said::Nothing) => std::future::pending().await,
                None => Ok(Vec::new()),
            }
        }
    }

    /// A server under a name that stands for these addresses.
    pub(crate) fn named(url: &str, addresses: &[SocketAddr]) -> RedisConfig {
        let config = RedisConfig::parse(url).expect("an address");
        let Endpoint::Tcp { host, .. } = config.place() else { panic!("{url} has no name") };
        let answers = Answers::default();
        answers.point(&host, addresses);
        config.resolved_by(Resolver::Fixed(answers))
    }

    /// The resolver of such a server.
    pub(crate) fn answers(config: &RedisConfig) -> &Answers {
        let Resolver::Fixed(answers) = config.resolver() else { panic!("the system's resolver") };
        answers
    }

    /// From now on the name stands for these.
    pub(crate) fn rename(config: &RedisConfig, host: &str, addresses: &[SocketAddr]) {
        answers(config).point(host, addresses);
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 6379))
    }

    /// A name in use at the first of its addresses, and the task that watches it.
    struct Watched {
        config: RedisConfig,
        name: Arc<HostName>,
        used: InUse,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Watched {
        async fn at(addresses: &[SocketAddr]) -> Self {
            Self::of(named("redis://db", addresses), addresses[0]).await
        }

        async fn of(config: RedisConfig, address: SocketAddr) -> Self {
            let names = HostNames::of(&config);
            let name = names.name("db", 6379);
            name.resolve(SECOND).await.expect("known");
            let used = name.using(&Target::Tcp(address));
            let (stop, stopped) = Stop::pair();
            let task = tokio::spawn(names.watch(stopped));
            Self { config, name, used, stop, task }
        }

        fn asked(&self) -> usize {
            answers(&self.config).asked()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_told_within_five_seconds_that_its_name_stands_for_another_address() {
        let watched = Watched::at(&[address(1)]).await;
        rename(&watched.config, "db", &[address(2), address(3)]);
        let begun = Instant::now();
        let mandate = Mandate::default().at(watched.used.clone());
        assert!(!watched.used.is_gone() && !mandate.is_over());
        let words = watched.used.gone().await;
        assert_eq!((begun.elapsed(), watched.used.is_gone()), (EVERY, true));
        assert!(mandate.is_over(), "what the old server answers does not count");
        assert_eq!(
            words,
            "db:6379 does not stand for 10.0.0.1:6379 any more, but for 10.0.0.2:6379, 10.0.0.3:6379"
        );
        assert_eq!(watched.used.gone().await, words, "it stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_one_of_several_in_any_order_is_kept() {
        let watched = Watched::at(&[address(1), address(2)]).await;
        for addresses in [&[address(2), address(1)][..], &[address(3), address(1)], &[address(1)]] {
            rename(&watched.config, "db", addresses);
            tokio::time::sleep(2 * EVERY).await;
            assert!(!watched.used.is_gone(), "{addresses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_every_five_seconds_as_long_as_a_connection_uses_it() {
        let watched = Watched::at(&[address(1)]).await;
        let resolved = watched.asked();
        tokio::time::sleep(10 * EVERY).await;
        let again = watched.asked() - resolved;
        assert!((9..=11).contains(&again), "{again}");
        let Watched { config, used, stop, task, .. } = watched;
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
        let watched = Watched::at(&[address(1)]).await;
        let resolver = answers(&watched.config).clone();
        for (causes, said) in [
            (1, Said::Failure("name server away")),
            (2, Said::Addresses(Vec::new())),
            (3, Said::Nothing),
            (3, Said::Failure("name server away")),
        ] {
            resolver.say("db", said);
            tokio::time::sleep(10 * EVERY).await;
            assert_eq!((watched.used.is_gone(), logged.load(Ordering::SeqCst)), (false, causes));
            let addresses = watched.name.resolve(SECOND).await;
            assert_eq!(addresses, Ok(vec![address(1)]), "for a new connection, too");
        }
        // When it has answered, the next failure is news.
        resolver.point("db", &[address(1)]);
        tokio::time::sleep(2 * EVERY).await;
        resolver.say("db", Said::Failure("name server away"));
        tokio::time::sleep(2 * EVERY).await;
        assert_eq!(logged.load(Ordering::SeqCst), 4);
        resolver.point("db", &[address(2)]);
        watched.used.gone().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_hangs_delays_a_new_connection_only_while_no_address_is_known() {
        let watched = Watched::at(&[address(1)]).await;
        let resolver = answers(&watched.config).clone();
        resolver.say("db", Said::Nothing);
        resolver.say("new", Said::Nothing);
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
        let config =
            RedisConfig::with_access("redis://db", &access).expect("an address").resolved_by(resolver);
        let watched = Watched::of(config, address(1)).await;
        rename(&watched.config, "db", &[address(2)]);
        assert_eq!(watched.name.resolve(SECOND).await, Ok(vec![address(2)]), "for a new connection");
        tokio::time::sleep(4 * EVERY).await;
        assert!(!watched.used.is_gone());
    }

    #[tokio::test]
    async fn the_answer_to_the_newest_question_counts_whichever_comes_first() {
        let names = HostNames::of(&named("redis://db", &[]));
        let name = names.name("db", 6379);
        let (first, second) = (name.begin(), name.begin());
        name.take_in(second, &[address(2)]);
        let used = name.using(&Target::Tcp(address(2)));
        name.take_in(first, &[address(1)]);
        assert!(!used.is_gone(), "that answer is older");
        assert!(name.using(&Target::Tcp(address(1))).is_gone(), "it was moved while it was dialled");
        name.take_in(name.begin(), &[address(1)]);
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
        assert_eq!(names.name("db", 6379).state().addresses, [address(1)], "for the next connection");
        let other = names.name("other", 6379);
        assert_eq!(locked(&names.known).len(), 1);
        drop(names.name("third", 6379));
        assert!(locked(&names.known).iter().any(|name| name.is("other", 6379)), "{}", other.host);
    }
}
