//! Finds the server that a connection goes to: one with a known address, or the one that the
//! sentinels name. Keeps a connection to it: when one ends, waits, and connects again.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::addresses::AddressTries;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::error::WireError;
use crate::backend::redis::link::RetryPause;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::login::LoginRenewal;
use crate::backend::redis::login::log_in;
use crate::backend::redis::names::AddressWatch;
use crate::backend::redis::names::EVERY;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::sentinel::Sentinels;
use crate::backend::redis::sentinel::knowledge::SentinelKnowledge;
use crate::backend::redis::sentinel::knowledge::shown;

#[derive(Clone)]
pub(crate) struct ServerLocator {
    config: RedisConfig,
    search: Option<PrimarySearch>,
    pub(crate) working_address: WorkingAddress,
}

/// Which of the server's addresses answers commands. Shared by all connections to the server.
#[derive(Clone)]
pub(crate) struct WorkingAddress {
    at: Arc<Mutex<WorkingAddressState>>,
    names: HostNames,
}

#[derive(Default)]
struct WorkingAddressState {
    /// The last address that answered commands.
    target: Option<Target>,
    /// True while a command connection to it is up.
    connected: bool,
}

impl WorkingAddress {
    pub(crate) fn new(names: HostNames) -> Self {
        Self { at: Arc::default(), names }
    }

    /// The server's addresses, beginning with the one that answered commands last.
    pub(crate) async fn tries(&self, config: &RedisConfig) -> Result<AddressTries, WireError> {
        let last = self.at().target.clone();
        AddressTries::begin(config, &self.names, last.as_ref()).await
    }

    pub(crate) fn connected(&self, target: Target) {
        *self.at() = WorkingAddressState { target: Some(target), connected: true };
    }

    pub(crate) fn disconnected(&self) {
        self.at().connected = false;
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.at().connected
    }

    fn at(&self) -> MutexGuard<'_, WorkingAddressState> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct PrimarySearch {
    sentinels: Sentinels,
    knowledge: watch::Receiver<SentinelKnowledge>,
    /// The primary that was found last.
    found: Option<Address>,
    /// The number of changes of the primary at that time.
    seen: u64,
    /// How long all sentinels together may take to name a primary.
    time: Duration,
}

/// The server's configuration with the current login.
pub(crate) struct Destination {
    pub(crate) config: RedisConfig,
    pub(crate) renewal: LoginRenewal,
    pub(crate) term: PrimaryTerm,
}

/// Whether the server is still the one to talk to, as far as this client has heard.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrimaryTerm {
    /// The counter of changes of the primary, and its value when this server was the primary.
    /// `None` without sentinels.
    named: Option<(Arc<AtomicU64>, u64)>,
    /// The address that the host name resolved to.
    address: AddressWatch,
}

impl PrimaryTerm {
    /// For the present primary.
    pub(crate) fn now(changes: &Arc<AtomicU64>) -> Self {
        let named = Some((Arc::clone(changes), changes.load(Ordering::Acquire)));
        Self { named, ..Self::default() }
    }

    /// Adds the address of a connection.
    pub(crate) fn at(self, address: AddressWatch) -> Self {
        Self { address, ..self }
    }

    /// True once another primary was named, or the host name no longer resolves to the address.
    /// Replies of the server are then not believed.
    pub(crate) fn is_over(&self) -> bool {
        let renamed =
            |(changes, seen): &(Arc<AtomicU64>, u64)| changes.load(Ordering::Acquire) != *seen;
        !seeded!(DeposedIsNotBelieved)
            && (self.named.as_ref().is_some_and(renamed) || self.address.is_gone())
    }
}

impl ServerLocator {
    /// For a server whose address is known.
    pub(crate) fn known(config: RedisConfig, names: HostNames) -> Self {
        Self { config, search: None, working_address: WorkingAddress::new(names) }
    }

    pub(crate) fn told_by(sentinels: &Sentinels, config: RedisConfig, names: HostNames) -> Self {
        let knowledge = sentinels.knowledge.subscribe();
        Self {
            search: Some(PrimarySearch {
                sentinels: sentinels.clone(),
                knowledge,
                found: None,
                seen: 0,
                time: config.budgets().search(),
            }),
            config,
            working_address: WorkingAddress::new(names),
        }
    }

    /// The server to connect to. `confirmed`: only if a sentinel names it now.
    pub(crate) async fn find(&mut self, confirmed: bool) -> Result<Destination, Failure> {
        let (config, term) = match &mut self.search {
            None => (self.config.clone(), PrimaryTerm::default()),
            Some(search) => {
                let ((host, port), term) = search.find(confirmed).await?;
                (self.config.at_announced(&host, port), term)
            }
        };
        let address = config.address_in_use();
        let (config, renewal) = log_in(config).await.map_err(|failure| {
            let message = format!("{address}: {}", failure.message);
            Failure { message, ..failure }
        })?;
        Ok(Destination { config, renewal, term })
    }

    /// Returns a text when another server than the one found last is the primary.
    pub(crate) async fn moved(&mut self) -> String {
        match &mut self.search {
            Some(search) => search.moved().await,
            None => std::future::pending().await,
        }
    }

    /// The same, and also when the server's name no longer resolves to this address.
    pub(crate) async fn moved_from(&mut self, address: &AddressWatch) -> String {
        tokio::select! {
            moved = self.moved() => moved,
            gone = address.gone() => gone,
        }
    }

    /// Records how the attempt to connect to the server that was found last has ended.
    pub(crate) fn tried(&self, result: Result<(), &Failure>) {
        let Some(PrimarySearch { sentinels, found: Some(address), .. }) = &self.search else {
            return;
        };
        let refused = result.is_err_and(|failure| failure.kind == FailureKind::ReadOnly);
        sentinels.knowledge.send_modify(|known| {
            known.reached(address, result.is_ok());
            if refused {
                known.refused(address);
            }
        });
        if result.is_err() {
            sentinels.ask_again();
        }
    }

    /// Sleeps, but wakes up early if the primary changes. Returns false if the task has to end.
    pub(crate) async fn pause(&mut self, stop: &mut StopSignal, pause: Duration) -> bool {
        tokio::select! {
            go_on = stop.sleep(pause) => go_on,
            _ = self.moved() => true,
        }
    }
}

/// How a connection went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOutcome {
    /// It could not be used.
    NeverUsable,
    /// It passed the handshake, and then ended before anything else was answered, or was left soon
    /// because the server had moved. The next one may end in the same way.
    ServedNothing,
    /// It was of use, or was ended by the client itself.
    Served,
}

impl ConnectionOutcome {
    /// For a connection that broke.
    pub(crate) fn broken(served: bool) -> Self {
        if served { Self::Served } else { Self::ServedNothing }
    }

    /// For a connection that was left because the server has moved. If this happens to one
    /// connection after the other soon, for example because a name resolves to another address each
    /// time, the pauses between attempts grow.
    pub(crate) fn left(opened: Instant) -> Self {
        if opened.elapsed() < EVERY { Self::ServedNothing } else { Self::Served }
    }
}

/// One kind of connection, to which `keep_connected` applies.
pub(crate) trait ConnectionKind: Send {
    /// The argument `confirmed` of [`ServerLocator::find`].
    const CONFIRMED: bool;

    /// Runs one connection, from the attempt to connect to its end.
    fn one_connection(
        &self,
        found: Destination,
        locator: &mut ServerLocator,
        stop: &mut StopSignal,
    ) -> impl Future<Output = ConnectionOutcome> + Send;

    /// Reports that there is no server to connect to.
    fn failed(&self, failure: Failure);
}

/// Keeps a connection until told to stop. When it returns, nothing runs for the connection any
/// more.
pub(crate) async fn keep_connected<C: ConnectionKind>(
    mut locator: ServerLocator,
    kind: C,
    mut stop: StopSignal,
) {
    let mut pause = RetryPause::default();
    let mut go_on = true;
    while go_on {
        let outcome = match unless_stopped(&mut stop, locator.find(C::CONFIRMED)).await {
            Some(Ok(found)) => kind.one_connection(found, &mut locator, &mut stop).await,
            Some(Err(failure)) => {
                kind.failed(failure);
                ConnectionOutcome::NeverUsable
            }
            None => ConnectionOutcome::NeverUsable,
        };
        if outcome != ConnectionOutcome::NeverUsable {
            locator.config.note_primary();
        }
        if outcome == ConnectionOutcome::Served {
            pause = RetryPause::default();
        }
        go_on = locator.pause(&mut stop, pause.next()).await;
    }
}

impl PrimarySearch {
    async fn find(&mut self, confirmed: bool) -> Result<(Address, PrimaryTerm), Failure> {
        let before = self.knowledge.borrow().turns();
        let is_found = |known: &SentinelKnowledge| {
            known.primary().is_some() && (!confirmed || known.is_named_since(&before))
        };
        let is_decided =
            |known: &SentinelKnowledge| is_found(known) || known.has_everyone_spoken_since(&before);
        let decided_already = is_found(&self.knowledge.borrow());
        if !decided_already {
            self.sentinels.ask_again();
            let decided = async { self.knowledge.wait_for(is_decided).await.is_ok() };
            let _ = tokio::time::timeout(self.time, decided).await;
        }
        let known = self.knowledge.borrow();
        self.seen = known.changes().load(Ordering::Acquire);
        self.found = known.primary().filter(|_| is_found(&known)).cloned();
        match &self.found {
            Some(address) => Ok((address.clone(), PrimaryTerm::now(known.changes()))),
            None => Err(known.failure()),
        }
    }

    async fn moved(&mut self) -> String {
        let seen = self.seen;
        let changed =
            self.knowledge.wait_for(|known| known.changes().load(Ordering::Acquire) != seen).await;
        let words = changed.ok().map(|known| {
            let shown =
                |address: Option<&Address>| address.map_or_else(|| "unknown".to_owned(), shown);
            format!(
                "{} is no longer the primary; it is {} now",
                shown(self.found.as_ref()),
                shown(known.primary())
            )
        });
        match words {
            Some(words) => words,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that all end at once in the same way.
    struct ShortConnections {
        outcome: ConnectionOutcome,
        begun: Arc<Mutex<Vec<Instant>>>,
    }

    impl ConnectionKind for ShortConnections {
        const CONFIRMED: bool = false;

        async fn one_connection(
            &self,
            _: Destination,
            _: &mut ServerLocator,
            _: &mut StopSignal,
        ) -> ConnectionOutcome {
            self.begun.lock().unwrap().push(Instant::now());
            self.outcome
        }

        fn failed(&self, failure: Failure) {
            panic!("{failure}");
        }
    }

    #[test]
    fn only_a_connection_that_was_answered_has_lived_well() {
        assert!(matches!(ConnectionOutcome::broken(true), ConnectionOutcome::Served));
        assert!(matches!(ConnectionOutcome::broken(false), ConnectionOutcome::ServedNothing));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_left_at_once_has_not_lived_well() {
        let opened = Instant::now();
        assert_eq!(ConnectionOutcome::left(opened), ConnectionOutcome::ServedNothing);
        tokio::time::sleep(EVERY).await;
        assert_eq!(ConnectionOutcome::left(opened), ConnectionOutcome::Served);
    }

    fn told_by_one() -> (Sentinels, ServerLocator) {
        let sentinels = Sentinels::new("main", &[("s".to_owned(), 1)]);
        let config = RedisConfig::parse("redis-sentinel://s:1/main").unwrap();
        let names = HostNames::of(&config);
        let locator = ServerLocator::told_by(&sentinels, config, names);
        (sentinels, locator)
    }

    fn address(host: &str) -> Address {
        (host.to_owned(), 1)
    }

    fn names(sentinels: &Sentinels, host: &str) {
        sentinels.knowledge.send_modify(|known| known.answered(0, &address(host), None, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_primary_is_searched_for_within_three_command_timeouts() {
        for (command_timeout, search) in [(1, 3), (20, 60)] {
            let sentinels = Sentinels::new("main", &[("s".to_owned(), 1)]);
            let config = RedisConfig::parse("redis-sentinel://s:1/main").unwrap();
            let config = config.timed(Duration::from_secs(command_timeout));
            let names = HostNames::of(&config);
            let mut locator = ServerLocator::told_by(&sentinels, config, names);
            let begun = Instant::now();
            let Err(failure) = locator.find(true).await else { panic!("nobody has said anything") };
            assert_eq!((failure.kind, begun.elapsed().as_secs()), (FailureKind::Link, search));
            assert!(failure.message.contains("no answer yet"), "{failure}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_named_before_will_do_for_subscriptions_and_not_for_commands() {
        let (sentinels, mut locator) = told_by_one();
        names(&sentinels, "a");
        let begun = Instant::now();
        let found = locator.find(false).await.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((found.config.address().as_str(), begun.elapsed().as_secs()), ("a:1", 0));
        assert!(locator.find(true).await.is_err(), "no sentinel says so now");
        let answers = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            names(&sentinels, "a");
        };
        let (found, ()) = tokio::join!(locator.find(true), answers);
        assert_eq!(found.unwrap_or_else(|failure| panic!("{failure}")).config.address(), "a:1");
    }

    #[tokio::test(start_paused = true)]
    async fn another_primary_ends_the_mandate_and_is_told() {
        let (sentinels, mut locator) = told_by_one();
        names(&sentinels, "a");
        let found = locator.find(false).await.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(!found.term.is_over() && !PrimaryTerm::default().is_over());
        let moved = tokio::time::timeout(Duration::from_secs(1), locator.moved()).await;
        assert!(moved.is_err(), "it is still the primary");
        sentinels.knowledge.send_modify(|known| known.announced(&address("a"), &address("b")));
        assert!(found.term.is_over());
        assert_eq!(locator.moved().await, "a:1 is no longer the primary; it is b:1 now");
    }

    /// An attempt to connect reports what it found out about the primary.
    #[tokio::test(start_paused = true)]
    async fn only_a_primary_that_says_that_it_is_none_is_not_tried_again() {
        for (kind, left) in
            [(FailureKind::ReadOnly, true), (FailureKind::Link, false), (FailureKind::Busy, false)]
        {
            let (sentinels, mut locator) = told_by_one();
            locator.tried(Err(&Failure::new(kind, "before anything was found")));
            names(&sentinels, "a");
            let found = locator.find(false).await;
            assert!(found.is_ok());
            locator.tried(Ok(()));
            assert!(sentinels.knowledge.borrow().primary().is_some());
            locator.tried(Err(&Failure::new(kind, "words")));
            assert_eq!(sentinels.knowledge.borrow().primary().is_none(), left, "{kind:?}");
            names(&sentinels, "a");
            assert!(sentinels.knowledge.borrow().primary().is_some(), "named once more");
        }
    }

    async fn attempts_in_ten_seconds(outcome: ConnectionOutcome) -> usize {
        let (stop, stopped) = StopSignal::pair();
        let begun = Arc::<Mutex<_>>::default();
        let kind = ShortConnections { outcome, begun: Arc::clone(&begun) };
        let config = RedisConfig::parse("redis://localhost").unwrap();
        let names = HostNames::of(&config);
        let locator = ServerLocator::known(config, names);
        let link = tokio::spawn(keep_connected(locator, kind, stopped));
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.send(true).unwrap();
        link.await.unwrap();
        let begun = begun.lock().unwrap();
        begun.len()
    }

    #[tokio::test(start_paused = true)]
    async fn only_after_a_connection_that_served_the_next_attempt_is_soon() {
        for outcome in [ConnectionOutcome::NeverUsable, ConnectionOutcome::ServedNothing] {
            let attempts = attempts_in_ten_seconds(outcome).await;
            assert!((10..=30).contains(&attempts), "{outcome:?}: {attempts}");
        }
        let attempts = attempts_in_ten_seconds(ConnectionOutcome::Served).await;
        assert!(attempts >= 500, "{attempts}");
    }
}
