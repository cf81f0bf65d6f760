//! How a majority of the servers is taken.
//!
//! First all at once. If that fails, everything is released, and the servers are taken one after
//! the other in an order that is the same for all clients, waiting at each that somebody else has.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::majority::Majority;
use crate::base::owner::OwnerKey;
use crate::driver::Shared;
use crate::engine::event::Wait;
use crate::locks::guard::Guard;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::Terms;
use crate::locks::lock::random_pause;
use crate::redlock::gather::either;
use crate::redlock::gather::gather;
use crate::redlock::gather::within;
use crate::redlock::guard::RedlockGuard;
use crate::redlock::held::Held;
use crate::redlock::held::keep;
use crate::redlock::servers::RedlockServers;
use crate::redlock::servers::Vote;

#[cfg(all(test, feature = "in-memory"))]
mod tests;

/// The longest sleep of who waits for a server that does not count yet.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// One call that wants a majority.
pub(super) struct MajorityAcquisition<'a> {
    servers: &'a Arc<RedlockServers>,
    /// The lock on each server, in their order.
    locks: Vec<Lock>,
    terms: Terms,
    owner: OwnerKey,
    since: Moment,
    limit: Option<Duration>,
}

/// By the places of the servers.
type Guards = Vec<Option<Guard>>;

/// What came of one round.
enum MajorityRound {
    Taken(Guards),
    Failed(Tally),
}

/// What the servers said in a round that has failed.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    /// The longest quarantine among those that are needed.
    quarantined: Vec<Duration>,
    /// Addresses and causes.
    silent: Vec<String>,
    /// The refusals that waiting does not help against.
    refusals: Vec<Error>,
    /// What was left of the wait was too short for an attempt.
    is_hurried: bool,
    /// When a wait at a server ended at which a majority was connected.
    well_at: Moment,
}

impl Tally {
    fn note(&mut self, address: &str, error: Error) {
        match error {
            // It often begins with the address.
            Error::Unavailable { cause, .. } if cause.starts_with(address) => {
                self.silent.push(cause);
            }
            Error::Unavailable { cause, .. } => self.silent.push(format!("{address}: {cause}")),
            error => {
                self.silent.push(format!("{address}: {error}"));
                self.refusals.push(error);
            }
        }
    }
}

impl<'a> MajorityAcquisition<'a> {
    /// Checks the options.
    pub(super) fn begin(
        servers: &'a Arc<RedlockServers>,
        name: &str,
        options: LockOptions,
    ) -> Result<Self> {
        let locks = servers.all.iter().map(|server| server.client.lock_of(name));
        let locks = locks.collect::<Result<Vec<Lock>>>()?;
        let terms = locks[0].terms(options)?;
        if terms.at_least.is_some() {
            return Err(Error::InvalidOption {
                option: "at_least",
                given: "for a Redlock".to_owned(),
                allowed: "left out there".to_owned(),
            });
        }
        if terms.lease.length() > servers.longest {
            return Err(Error::InvalidOption {
                option: "lease",
                given: format!("{:?}", terms.lease.length().duration()),
                allowed: format!("no longer than longest_lease, {:?}", servers.longest.duration()),
            });
        }
        let since = servers.all[0].client.shared().now();
        let owner = OwnerKey::unique();
        Ok(Self { servers, locks, terms, owner, since, limit: options.limit() })
    }

    pub(super) async fn run(self) -> Result<Result<RedlockGuard, NotAcquired>> {
        let (mut well_at, mut known) = (self.since, Tally::default());
        let mut round = self.at_once().await?;
        loop {
            self.servers.check_different()?;
            let mut tally = match round {
                MajorityRound::Taken(guards) => match self.settle(guards).await? {
                    Ok(guard) => return Ok(Ok(guard)),
                    Err(tally) => tally,
                },
                MajorityRound::Failed(tally) => tally,
            };
            if tally.is_hurried {
                // Its attempts had less time than those of the round before: that one says more.
                tally.answered = tally.answered.max(known.answered);
                tally.silent = known.silent;
            }
            if let Some(end) = self.is_over(&tally, &mut well_at)? {
                return Ok(Err(end));
            }
            known = tally;
            self.pause().await?;
            round = self.in_order().await?;
        }
    }

    /// Whether the call ends with what was said in this round: with an error, or because somebody
    /// else has the lock. `well_at`: when so many servers answered last that there could be a
    /// majority.
    fn is_over(&self, tally: &Tally, well_at: &mut Moment) -> Result<Option<NotAcquired>> {
        let (now, needed) = (self.first().now(), self.servers.needed());
        let is_late = self.left().is_some_and(|left| left.is_zero());
        *well_at = tally.well_at.max(*well_at);
        let may_grant = self.locks.len() - tally.refusals.len();
        if tally.answered + tally.quarantined.len() >= needed {
            *well_at = now;
        } else if let Some(refusal) = tally.refusals.first().filter(|_| may_grant < needed) {
            return Err(refusal.clone());
        }
        if tally.answered >= needed {
            return Ok(is_late.then(|| self.locks[0].not_acquired()));
        }
        if is_late || now.since(*well_at) >= self.outage_limit() {
            return Err(self.unavailable(tally));
        }
        Ok(None)
    }

    fn unavailable(&self, tally: &Tally) -> Error {
        let mut cause = format!(
            "{} of {} servers answered and count, {} are needed",
            tally.answered,
            self.locks.len(),
            self.servers.needed()
        );
        if let Some(longest) = tally.quarantined.iter().max() {
            cause += &format!(
                "; {} were started a short time ago and count in {longest:.1?} at the latest",
                tally.quarantined.len()
            );
        }
        for silent in &tally.silent {
            cause += &format!("; {silent}");
        }
        let waited = self.first().now().since(self.since);
        Error::Unavailable { name: Some(self.locks[0].name().to_owned()), waited, cause }
    }

    /// Asks all servers at once.
    async fn at_once(&self) -> Result<MajorityRound> {
        let (mut tally, places) = self.survey();
        if places.len() < self.servers.needed() {
            return Ok(MajorityRound::Failed(tally));
        }
        tally.answered = 0;
        let mut guards = self.nothing();
        let asked = places.into_iter().map(|place| (place, self.try_at(place)));
        let is_granted = |answer: &Result<Result<Guard, NotAcquired>>| matches!(answer, Ok(Ok(_)));
        let enough = self.servers.needed();
        let mut refused = Vec::new();
        for (place, answer) in gather(self.first(), asked, is_granted, enough).await {
            match answer {
                Ok(Ok(guard)) => self.note_grant(place, guard, &mut guards, &mut tally),
                Ok(Err(_)) => {
                    tally.answered += 1;
                    refused.push(place);
                }
                Err(error) => tally.note(self.servers.all[place].address(), error),
            }
        }
        // Who was refused by a server before would overtake those who wait there.
        let first = guards.iter().position(Option::is_some).unwrap_or(usize::MAX);
        let overtakes = refused.iter().any(|place| *place < first);
        Ok(self.round(guards, tally, overtakes))
    }

    /// The servers that may count. As long as they are too few, nobody is asked, and they are taken
    /// to answer.
    fn survey(&self) -> (Tally, Vec<usize>) {
        let (mut tally, mut places) = (Tally::default(), Vec::with_capacity(self.locks.len()));
        for place in 0..self.locks.len() {
            match self.servers.standing(place) {
                Vote::Quarantine(left) => tally.quarantined.push(left),
                Vote::Counts | Vote::Unknown => places.push(place),
            }
        }
        tally.answered = places.len();
        (tally, places)
    }

    fn round(&self, guards: Guards, tally: Tally, overtakes: bool) -> MajorityRound {
        let granted = guards.iter().flatten().filter(|guard| guard.is_held()).count();
        if granted >= self.servers.needed() && !overtakes {
            MajorityRound::Taken(guards)
        } else {
            // The guards are dropped, and so released, before anything else is asked for.
            MajorityRound::Failed(tally)
        }
    }

    /// Takes a grant in if its server counts now that the grant is there.
    fn note_grant(&self, place: usize, guard: Guard, guards: &mut Guards, tally: &mut Tally) {
        match self.servers.standing(place) {
            Vote::Counts => {
                tally.answered += 1;
                guards[place] = Some(guard);
            }
            Vote::Quarantine(left) => tally.quarantined.push(left),
            Vote::Unknown => {}
        }
    }

    /// Takes one server after the other.
    async fn in_order(&self) -> Result<MajorityRound> {
        let (mut tally, places) = self.survey();
        if places.len() < self.servers.needed() {
            return Ok(MajorityRound::Failed(tally));
        }
        tally.answered = 0;
        let mut guards = self.nothing();
        for place in places {
            if self.left().is_some_and(|left| left.is_zero()) {
                tally.is_hurried = true;
                break;
            }
            tally.is_hurried |= self.left().is_some_and(|left| left < self.limit_at(place));
            let since = self.first().now();
            let taken = self.take_at(place, &guards).await;
            let now = self.first().now();
            let has_waited = taken.is_ok() && now.since(since) > self.limit_at(place);
            if has_waited && self.servers.has_connections() {
                tally.well_at = now;
            }
            match taken {
                Ok(Some(guard)) => self.note_grant(place, guard, &mut guards, &mut tally),
                Ok(None) => {
                    // There is no use in asking the others.
                    tally.answered = self.servers.connected();
                    break;
                }
                Err(error) => tally.note(self.servers.all[place].address(), error),
            }
            if guards.iter().flatten().count() >= self.servers.needed() {
                break;
            }
        }
        Ok(self.round(guards, tally, false))
    }

    /// Waits at a server with the others in hand. `None`: not granted, and it is to start over.
    async fn take_at(&self, place: usize, guards: &Guards) -> Result<Option<Guard>> {
        if let Ok(guard) = self.try_at(place).await? {
            return Ok(Some(guard));
        }
        let has_any = guards.iter().any(Option::is_some);
        let longest = has_any.then(|| self.terms.lease.length().duration());
        let limit = longest.into_iter().chain(self.left()).min();
        let wait = limit.map_or(Wait::Forever, Wait::For);
        let asked = self.locks[place].acquire_on(self.owner, self.terms.renewed(), wait);
        let lost = guards.iter().flatten().map(|guard| Box::pin(guard.lost())).collect::<Vec<_>>();
        let answer = if lost.is_empty() {
            either(asked, self.outage(place)).await
        } else {
            either(asked, select_all(lost)).await
        };
        answer.map_or(Ok(None), |answer| answer.map(Result::ok))
    }

    /// Returns when fewer than a majority have been connected for the outage limit, or when a
    /// majority is, but this server was not at two looks. Whoever waits there with nothing in hand
    /// would not notice.
    async fn outage(&self, place: usize) {
        let (mut well_at, mut away) = (self.first().now(), 0);
        while self.first().now().since(well_at) < self.outage_limit()
            && self.first().sleep(LONGEST_NAP.min(self.outage_limit())).await.is_ok()
        {
            away = if self.servers.is_connected(place) { 0 } else { away + 1 };
            if self.servers.has_connections() {
                well_at = self.first().now();
                if away > 1 {
                    return;
                }
            }
        }
    }

    fn outage_limit(&self) -> Duration {
        let limits = self.locks.iter().map(|lock| lock.shared().config().outage_limit);
        limits.max().unwrap_or_default()
    }

    /// One attempt at one server.
    async fn try_at(&self, place: usize) -> Result<Result<Guard, NotAcquired>> {
        let limit = self.limit_at(place);
        let limit =
            self.left().filter(|left| !left.is_zero()).map_or(limit, |left| left.min(limit));
        let terms = self.terms.renewed();
        self.locks[place].acquire_on(self.owner, terms, Wait::Within(limit)).await
    }

    fn limit_at(&self, place: usize) -> Duration {
        self.servers.limit_of(&self.servers.all[place], self.terms.lease.length())
    }

    /// Raises the token, sets the final terms, and looks once more whether there is a majority.
    async fn settle(&self, mut guards: Guards) -> Result<Result<RedlockGuard, Tally>> {
        let token = guards.iter().flatten().map(Guard::fencing_token).max().unwrap_or_default();
        let raised = self.raise(&guards, token).await;
        self.set_terms(&mut guards).await?;
        let mut tally = Tally::default();
        for (server, (guard, is_raised)) in self.servers.all.iter().zip(guards.iter().zip(&raised))
        {
            match guard {
                Some(_) if *is_raised => tally.answered += 1,
                Some(_) => tally.silent.push(format!("{}: no token", server.address())),
                None => {}
            }
        }
        let parts = guards.iter().zip(raised).map(|(guard, is_raised)| {
            guard.as_ref().filter(|_| is_raised).map(|guard| Arc::clone(guard.cell()))
        });
        let parts = parts.collect::<Vec<_>>();
        let majority = Majority::new(self.locks[0].lock_name().clone(), token, parts);
        if !majority.is_still_held(self.first().now()) {
            return Ok(Err(tally));
        }
        let (servers, locks) = (Arc::clone(self.servers), self.locks.clone());
        let held = Held::new(Arc::new(majority), guards, servers, locks, self.terms);
        self.first().spawn(keep(Arc::clone(&held)));
        Ok(Ok(RedlockGuard::new(held)))
    }

    /// Where the token was raised, as far as that was answered.
    async fn raise(&self, guards: &Guards, token: u64) -> Vec<bool> {
        let there = guards.iter().enumerate();
        let there = there.filter_map(|(place, guard)| Some((place, guard.as_ref()?)));
        let asked = there.map(|(place, guard)| (place, self.raise_at(place, guard, token)));
        let enough = self.servers.needed();
        let mut raised = vec![false; guards.len()];
        for (place, is_raised) in gather(self.first(), asked, |raised| *raised, enough).await {
            raised[place] = is_raised;
        }
        raised
    }

    async fn raise_at(&self, place: usize, guard: &Guard, token: u64) -> bool {
        // The counter of that server is where the token comes from.
        if guard.fencing_token() == token || seeded!(TokenIsRaised) {
            return true;
        }
        let (server, limit) = (&self.servers.all[place], self.limit_at(place));
        within(server.client.shared(), limit, guard.raise(token)).await == Some(true)
    }

    /// Holds what is held on the terms that count from now on.
    async fn set_terms(&self, guards: &mut Guards) -> Result<()> {
        if self.terms.lease.is_watched() {
            return Ok(());
        }
        let places = (0..guards.len()).filter(|place| guards[*place].is_some());
        let asked = places.map(|place| {
            let lock = &self.locks[place];
            (place, lock.acquire_on(self.owner, self.terms, Wait::Once))
        });
        let is_granted = |answer: &Result<Result<Guard, NotAcquired>>| matches!(answer, Ok(Ok(_)));
        let answers = gather(self.first(), asked, is_granted, self.servers.needed()).await;
        let outer = std::mem::replace(guards, self.nothing());
        for (place, answer) in answers {
            guards[place] = answer.ok().and_then(Result::ok);
        }
        // The outer levels end only now.
        drop(outer);
        Ok(())
    }

    fn nothing(&self) -> Guards {
        self.locks.iter().map(|_| None).collect()
    }

    /// The client whose clock and timer serve the whole.
    fn first(&self) -> &Arc<Shared> {
        self.locks[0].shared()
    }

    /// What is left of the wait. `None`: it has no limit.
    fn left(&self) -> Option<Duration> {
        let waited = self.first().now().since(self.since);
        self.limit.map(|limit| limit.saturating_sub(waited))
    }

    /// Lets others go first, for a random time; or waits for servers that do not count yet.
    async fn pause(&self) -> Result<()> {
        let (Tally { mut quarantined, .. }, _) = self.survey();
        quarantined.sort_unstable();
        let counting = self.locks.len() - quarantined.len();
        let missing = self.servers.needed().saturating_sub(counting);
        let nap = missing.checked_sub(1).and_then(|last| quarantined.get(last)).copied();
        // Some of the wait is left for the next round.
        let random = self.left().map_or(random_pause(), |left| random_pause().min(left / 2));
        let length = nap.unwrap_or_default().min(LONGEST_NAP).max(random);
        self.first().sleep(self.left().map_or(length, |left| left.min(length))).await
    }
}
