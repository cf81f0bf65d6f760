//! Where a connection goes: to a server whose address is known, or to the one that the sentinels name.

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
use crate::backend::redis::addresses::Target;
use crate::backend::redis::addresses::Tries;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::error::WireError;
use crate::backend::redis::link::Pause;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::login::Renewal;
use crate::backend::redis::login::log_in;
use crate::backend::redis::names::EVERY;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::names::InUse;
use crate::backend::redis::sentinel::Sentinels;
use crate::backend::redis::sentinel::knowledge::Knowledge;
use crate::backend::redis::sentinel::knowledge::shown;

#[derive(Clone)]
pub(crate) struct Whereabouts {
    config: RedisConfig,
    search: Option<Search>,
    pub(crate) reached: Reached,
}

/// Which of the server's addresses answers commands: for all connections to it.
#[derive(Clone)]
pub(crate) struct Reached {
    at: Arc<Mutex<At>>,
    names: HostNames,
}

#[derive(Default)]
struct At {
    /// The last one that did.
    target: Option<Target>,
    /// It does now.
    connected: bool,
}

impl Reached {
    pub(crate) fn new(names: HostNames) -> Self {
        Self { at: Arc::default(), names }
    }

    /// The server's addresses, beginning with the one that answered commands last.
    pub(crate) async fn tries(&self, config: &RedisConfig) -> Result<Tries, WireError> {
        let last = self.at().target.clone();
        Tries::begin(config, &self.names, last.as_ref()).await
    }

    pub(crate) fn connected(&self, target: Target) {
        *self.at() = At { target: Some(target), connected: true };
    }

    pub(crate) fn disconnected(&self) {
        self.at().connected = false;
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.at().connected
    }

    fn at(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Search {
    sentinels: Sentinels,
    knowledge: watch::Receiver<Knowledge>,
    /// What was found last.
    found: Option<Address>,
    /// The count of changes by then.
    seen: u64,
    /// What all sentinels together have to say something.
    time: Duration,
}

/// Where the server is, with the login of the moment.
pub(crate) struct Destination {
    pub(crate) config: RedisConfig,
    pub(crate) renewal: Renewal,
    pub(crate) mandate: Mandate,
}

/// Whether the server is still the one to talk to, as far as was heard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mandate {
    /// How often another primary was named: altogether, and by the time of this one.
    named: Option<(Arc<AtomicU64>, u64)>,
    /// The address that its name stood for.
    address: InUse,
}

impl Mandate {
    /// Of the primary that there is now.
    pub(crate) fn now(changes: &Arc<AtomicU64>) -> Self {
        let named = Some((Arc::clone(changes), changes.load(Ordering::Acquire)));
        Self { named, ..Self::default() }
    }

    /// The same for a connection to this address.
    pub(crate) fn at(self, address: InUse) -> Self {
        Self { address, ..self }
    }

    /// Whether another primary was named since, or the name stands for other addresses.
    pub(crate) fn is_over(&self) -> bool {
        let renamed = |(changes, seen): &(Arc<AtomicU64>, u64)| changes.load(Ordering::Acquire) != *seen;
        !seeded!(DeposedIsNotBelieved) && (self.named.as_ref().is_some_and(renamed) || self.address.is_gone())
    }
}

impl Whereabouts {
    /// The address is known.
    pub(crate) fn known(config: RedisConfig, names: HostNames) -> Self {
        Self { config, search: None, reached: Reached::new(names) }
    }

    pub(crate) fn told_by(sentinels: &Sentinels, config: RedisConfig, names: HostNames) -> Self {
        let knowledge = sentinels.knowledge.subscribe();
        Self {
            search: Some(Search {
                sentinels: sentinels.clone(),
                knowledge,
                found: None,
                seen: 0,
                time: config.budgets().search(),
            }),
            config,
            reached: Reached::new(names),
        }
    }

    /// The server to connect to. `confirmed`: only if a sentinel says so now.
    pub(crate) async fn find(&mut self, confirmed: bool) -> Result<Destination, Failure> {
        let (config, mandate) = match &mut self.search {
            None => (self.config.clone(), Mandate::default()),
            Some(search) => {
                let ((host, port), mandate) = search.find(confirmed).await?;
                (self.config.at_announced(&host, port), mandate)
            }
        };
        let address = config.address_in_use();
        let (config, renewal) = log_in(config).await.map_err(|failure| {
            let message = format!("{address}: {}", failure.message);
            Failure { message, ..failure }
        })?;
        Ok(Destination { config, renewal, mandate })
    }

    /// Returns when another server than the one found last is the primary, and says which.
    pub(crate) async fn moved(&mut self) -> String {
        match &mut self.search {
            Some(search) => search.moved().await,
            None => std::future::pending().await,
        }
    }

    /// The same, or when the name of the server does not stand for this address any more.
    pub(crate) async fn moved_from(&mut self, address: &InUse) -> String {
        tokio::select! {
            moved = self.moved() => moved,
            gone = address.gone() => gone,
        }
    }

    /// How the attempt to connect to what was found last has ended.
    pub(crate) fn tried(&self, result: Result<(), &Failure>) {
        let Some(Search { sentinels, found: Some(address), .. }) = &self.search else { return };
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

    /// Sleeps, shorter if the primary changes, and says whether to go on.
    pub(crate) async fn pause(&mut self, stop: &mut Stop, pause: Duration) -> bool {
        tokio::select! {
            go_on = stop.sleep(pause) => go_on,
            _ = self.moved() => true,
        }
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lived {
    /// It was never usable.
    Never,
    /// It was greeted, and broke before anything else was answered, or was left at once. The next one may do the same.
    Mute,
    /// It served, or was ended by ourselves.
    Well,
}

impl Lived {
    /// One that broke.
    pub(crate) fn broken(served: bool) -> Self {
        if served { Self::Well } else { Self::Mute }
    }

    /// One that was left because the server is elsewhere. Where this is said of each new connection, as of a name that stands
    /// for another address each time, the next ones come at longer and longer intervals.
    pub(crate) fn left(opened: Instant) -> Self {
        if opened.elapsed() < EVERY { Self::Mute } else { Self::Well }
    }
}

/// What is done with one kind of connection.
pub(crate) trait Connects: Send {
    /// As in [`Whereabouts::find`].
    const CONFIRMED: bool;

    /// From an attempt to connect to the end of the connection.
    fn one_connection(
        &self,
        found: Destination,
        whereabouts: &mut Whereabouts,
        stop: &mut Stop,
    ) -> impl Future<Output = Lived> + Send;

    /// There is nothing to connect to.
    fn failed(&self, failure: Failure);
}

/// Keeps a connection until told to stop. On return nothing is done for it any more.
pub(crate) async fn keep_connected<C: Connects>(mut whereabouts: Whereabouts, kind: C, mut stop: Stop) {
    let mut pause = Pause::default();
    let mut go_on = true;
    while go_on {
        let lived = match unless_stopped(&mut stop, whereabouts.find(C::CONFIRMED)).await {
            Some(Ok(found)) => kind.one_connection(found, &mut whereabouts, &mut stop).await,
            Some(Err(failure)) => {
                kind.failed(failure);
                Lived::Never
            }
            None => Lived::Never,
        };
        if lived != Lived::Never {
            whereabouts.config.note_primary();
        }
        if lived == Lived::Well {
            pause = Pause::default();
        }
        go_on = whereabouts.pause(&mut stop, pause.next()).await;
    }
}

impl Search {
    async fn find(&mut self, confirmed: bool) -> Result<(Address, Mandate), Failure> {
        let before = self.knowledge.borrow().turns();
        let is_found =
            |known: &Knowledge| known.primary().is_some() && (!confirmed || known.is_named_since(&before));
        let is_decided = |known: &Knowledge| is_found(known) || known.has_everyone_spoken_since(&before);
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
            Some(address) => Ok((address.clone(), Mandate::now(known.changes()))),
            None => Err(known.failure()),
        }
    }

    async fn moved(&mut self) -> String {
        let seen = self.seen;
        let changed = self.knowledge.wait_for(|known| known.changes().load(Ordering::Acquire) != seen).await;
        let words = changed.ok().map(|known| {
            let shown = |address: Option<&Address>| address.map_or_else(|| "unknown".to_owned(), shown);
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
    struct Ending {
        lived: Lived,
        begun: Arc<Mutex<Vec<Instant>>>,
    }

    impl Connects for Ending {
        const CONFIRMED: bool = false;

        async fn one_connection(&self, _: Destination, _: &mut Whereabouts, _: &mut Stop) -> Lived {
            self.begun.lock().unwrap().push(Instant::now());
            self.lived
        }

        fn failed(&self, failure: Failure) {
            panic!("{failure}");
        }
    }

    #[test]
    fn only_a_connection_that_was_answered_has_lived_well() {
        assert!(matches!(Lived::broken(true), Lived::Well));
        assert!(matches!(Lived::broken(false), Lived::Mute));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_left_at_once_has_not_lived_well() {
        let opened = Instant::now();
        assert_eq!(Lived::left(opened), Lived::Mute);
        tokio::time::sleep(EVERY).await;
        assert_eq!(Lived::left(opened), Lived::Well);
    }

    fn told_by_one() -> (Sentinels, Whereabouts) {
        let sentinels = Sentinels::new("main", &[("s".to_owned(), 1)]);
        let config = RedisConfig::parse("redis-sentinel://s:1/main").unwrap();
        let names = HostNames::of(&config);
        let whereabouts = Whereabouts::told_by(&sentinels, config, names);
        (sentinels, whereabouts)
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
            let mut whereabouts = Whereabouts::told_by(&sentinels, config, names);
            let begun = Instant::now();
            let Err(failure) = whereabouts.find(true).await else { panic!("nobody has said anything") };
            assert_eq!((failure.kind, begun.elapsed().as_secs()), (FailureKind::Link, search));
            assert!(failure.message.contains("no answer yet"), "{failure}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_named_before_will_do_for_subscriptions_and_not_for_commands() {
        let (sentinels, mut whereabouts) = told_by_one();
        names(&sentinels, "a");
        let begun = Instant::now();
        let found = whereabouts.find(false).await.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((found.config.address().as_str(), begun.elapsed().as_secs()), ("a:1", 0));
        assert!(whereabouts.find(true).await.is_err(), "no sentinel says so now");
        let answers = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            names(&sentinels, "a");
        };
        let (found, ()) = tokio::join!(whereabouts.find(true), answers);
        assert_eq!(found.unwrap_or_else(|failure| panic!("{failure}")).config.address(), "a:1");
    }

    #[tokio::test(start_paused = true)]
    async fn another_primary_ends_the_mandate_and_is_told() {
        let (sentinels, mut whereabouts) = told_by_one();
        names(&sentinels, "a");
        let found = whereabouts.find(false).await.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(!found.mandate.is_over() && !Mandate::default().is_over());
        let moved = tokio::time::timeout(Duration::from_secs(1), whereabouts.moved()).await;
        assert!(moved.is_err(), "it is still the primary");
        sentinels.knowledge.send_modify(|known| known.announced(&address("a"), &address("b")));
        assert!(found.mandate.is_over());
        assert_eq!(whereabouts.moved().await, "a:1 is no longer the primary; it is b:1 now");
    }

    /// What an attempt has found out about the primary.
    #[tokio::test(start_paused = true)]
    async fn only_a_primary_that_says_that_it_is_none_is_not_tried_again() {
        for (kind, left) in
            [(FailureKind::ReadOnly, true), (FailureKind::Link, false), (FailureKind::Busy, false)]
        {
            let (sentinels, mut whereabouts) = told_by_one();
            whereabouts.tried(Err(&Failure::new(kind, "before anything was found")));
            names(&sentinels, "a");
            let found = whereabouts.find(false).await;
            assert!(found.is_ok());
            whereabouts.tried(Ok(()));
            assert!(sentinels.knowledge.borrow().primary().is_some());
            whereabouts.tried(Err(&Failure::new(kind, "words")));
            assert_eq!(sentinels.knowledge.borrow().primary().is_none(), left, "{kind:?}");
            names(&sentinels, "a");
            assert!(sentinels.knowledge.borrow().primary().is_some(), "named once more");
        }
    }

    async fn attempts_in_ten_seconds(lived: Lived) -> usize {
        let (stop, stopped) = Stop::pair();
        let begun = Arc::<Mutex<_>>::default();
        let kind = Ending { lived, begun: Arc::clone(&begun) };
        let config = RedisConfig::parse("redis://localhost").unwrap();
        let names = HostNames::of(&config);
        let whereabouts = Whereabouts::known(config, names);
        let link = tokio::spawn(keep_connected(whereabouts, kind, stopped));
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.send(true).unwrap();
        link.await.unwrap();
        let begun = begun.lock().unwrap();
        begun.len()
    }

    #[tokio::test(start_paused = true)]
    async fn only_after_a_connection_that_served_the_next_attempt_is_soon() {
        for lived in [Lived::Never, Lived::Mute] {
            let attempts = attempts_in_ten_seconds(lived).await;
            assert!((10..=30).contains(&attempts), "{lived:?}: {attempts}");
        }
        let attempts = attempts_in_ten_seconds(Lived::Well).await;
        assert!(attempts >= 500, "{attempts}");
    }
}
