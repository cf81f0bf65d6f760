//! How the members of a multi-lock are taken.
//!
//! Whatever is free is taken at once. Then the first member, in their order, that somebody has is
//! waited for, with nothing in hand but the members before it: those after it are released first. So
//! of several multi-locks that wait, the one whose member comes last waits for nobody who waits.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::Either;
use futures::future::join_all;
use futures::future::select;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::driver::Shared;
use crate::engine::event::Wait;
use crate::locks::guard::Guard;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::Terms;
use crate::locks::lock::random_pause;
use crate::locks::multi::LockMember;
use crate::locks::multi::first_lost;

/// One call that wants all members.
pub(super) struct Acquisition<'a> {
    members: Vec<Wanted<'a>>,
    /// The owner that has called, if there is one.
    caller: Option<OwnerKey>,
    since: Moment,
    limit: Option<Duration>,
    /// The longest wait for one member while others are held.
    lease: Duration,
}

/// A member, and how it is to be held.
struct Wanted<'a> {
    member: &'a LockMember,
    owner: OwnerKey,
    /// While others are waited for.
    meanwhile: Terms,
    /// Once all are held, if that differs.
    settled: Option<Terms>,
    /// Its server has said that somebody has it.
    was_refused: AtomicBool,
}

/// What has come of taking the members one after the other.
enum Round {
    All(Vec<Guard>),
    NotAcquired(NotAcquired),
    /// Nothing is held, and it begins again.
    StartOver,
}

/// What has come of waiting for one member.
enum Waited {
    Granted(Guard),
    NotAcquired(NotAcquired),
    StartOver,
    /// Its server does not answer.
    Outage,
}

/// The first member that was not granted.
struct Refused {
    /// Somebody has it, or its server was not available.
    why: Result<NotAcquired>,
    /// What was granted of the members that come after it.
    behind: Vec<Guard>,
}

impl<'a> Acquisition<'a> {
    /// Checks the options for every member.
    pub(super) fn begin(
        members: &'a [LockMember],
        caller: Option<OwnerKey>,
        options: LockOptions,
    ) -> Result<Self> {
        let once = OwnerKey::unique();
        let members = members.iter().map(|member| Wanted::new(member, caller, once, options));
        let members = members.collect::<Result<Vec<_>>>()?;
        let leases = members.iter().map(|wanted| wanted.meanwhile.lease.length().duration());
        let lease = leases.min().unwrap_or_default();
        let since = client(&members).now();
        Ok(Self { members, caller, since, limit: options.limit(), lease })
    }

    pub(super) async fn run(self) -> Result<Result<Vec<Guard>, NotAcquired>> {
        loop {
            match self.round().await {
                Ok(Round::All(guards)) => return Ok(Ok(guards)),
                Ok(Round::NotAcquired(refused)) => return Ok(Err(refused)),
                Ok(Round::StartOver) => self.pause().await?,
                Err(error) => {
                    return self.refused_before(&error).map_or(Err(error), |it| Ok(Err(it)));
                }
            }
        }
    }

    /// The last attempt had too little time for an answer, but one before was answered: somebody has
    /// the member.
    fn refused_before(&self, error: &Error) -> Option<NotAcquired> {
        let Error::Unavailable { name: Some(name), .. } = error else { return None };
        self.left().filter(|left| left.is_zero())?;
        let silent = |wanted: &&Wanted<'_>| wanted.member.lock.name() == name;
        let wanted = self.members.iter().find(silent)?;
        wanted.was_refused.load(Ordering::Relaxed).then(|| wanted.member.lock.not_acquired())
    }

    async fn round(&self) -> Result<Round> {
        let mut held = Vec::with_capacity(self.members.len());
        while let Some(refused) = self.take_free(&mut held).await? {
            let wanted = &self.members[held.len()];
            if self.left().is_some_and(|left| left.is_zero()) {
                return refused.why.map(Round::NotAcquired);
            }
            self.check_order(wanted, &refused.behind)?;
            drop(refused.behind);
            if refused.why.is_err() && !held.is_empty() {
                return self.outlast_outage(wanted, held).await;
            }
            self.check_labels(wanted, &held).await?;
            match self.wait_for(wanted, &held).await? {
                Waited::Granted(guard) => held.push(guard),
                Waited::NotAcquired(refused) => return Ok(Round::NotAcquired(refused)),
                Waited::StartOver => return Ok(Round::StartOver),
                Waited::Outage => return self.outlast_outage(wanted, held).await,
            }
        }
        let held = self.settle(held).await?;
        Ok(held.filter(|held| held.iter().all(Guard::is_held)).map_or(Round::StartOver, Round::All))
    }

    /// Tries all members that are missing, at once, and keeps those before the first that was refused.
    async fn take_free(&self, held: &mut Vec<Guard>) -> Result<Option<Refused>> {
        let missing = &self.members[held.len()..];
        let mut refused: Option<Refused> = None;
        let asked = missing.iter().map(|wanted| self.within_limit(wanted, wanted.try_once()));
        for answer in join_all(asked).await {
            let why = match answer {
                Ok(Ok(guard)) => {
                    refused.as_mut().map_or(&mut *held, |refused| &mut refused.behind).push(guard);
                    continue;
                }
                Ok(Err(not_acquired)) => Ok(not_acquired),
                Err(error @ Error::Unavailable { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            refused.get_or_insert(Refused { why, behind: Vec::new() });
        }
        Ok(refused)
    }

    /// What a member's server answers, unless the wait is over before.
    async fn within_limit<T>(
        &self,
        wanted: &Wanted<'_>,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(left) = self.left().filter(|left| !left.is_zero()) else { return asked.await };
        match select(pin!(asked), pin!(client(&self.members).sleep(left))).await {
            Either::Left((answer, _)) => answer,
            Either::Right((slept, _)) => slept.and_then(|()| Err(self.no_answer(wanted))),
        }
    }

    /// Waits for a member with those before it in hand.
    async fn wait_for(&self, wanted: &Wanted<'_>, held: &[Guard]) -> Result<Waited> {
        let longest = if held.is_empty() { None } else { Some(self.lease) };
        let limit = longest.into_iter().chain(self.left()).min();
        let asked = wanted.acquire(limit.map_or(Wait::Forever, Wait::For));
        let answer = match select(pin!(asked), pin!(first_lost(held))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return Ok(Waited::StartOver),
        };
        let is_over = self.left().is_some_and(|left| left.is_zero());
        match answer {
            Ok(Ok(guard)) => Ok(Waited::Granted(guard)),
            Ok(Err(refused)) if is_over => Ok(Waited::NotAcquired(refused)),
            Ok(Err(_)) => Ok(Waited::StartOver),
            Err(Error::Unavailable { .. }) if !held.is_empty() && !is_over => Ok(Waited::Outage),
            Err(error) => Err(error),
        }
    }

    /// Waits with nothing in hand until a member's server answers, and starts over then. It fails as
    /// that member's own lock would.
    async fn outlast_outage(&self, wanted: &Wanted<'_>, held: Vec<Guard>) -> Result<Round> {
        drop(held);
        let granted = wanted.acquire(self.left().map_or(Wait::Forever, Wait::For)).await?;
        Ok(granted.map_or_else(Round::NotAcquired, |_| Round::StartOver))
    }

    /// Holds all members on the terms that count once all are held. `None`: one was lost.
    async fn settle(&self, held: Vec<Guard>) -> Result<Option<Vec<Guard>>> {
        if self.members.iter().all(|wanted| wanted.settled.is_none()) {
            return Ok(Some(held));
        }
        let asked = self.members.iter().map(|wanted| self.within_limit(wanted, wanted.reenter()));
        let answers = join_all(asked).await;
        // The outer levels are not waited for: they end before anything else is done with the holds.
        drop(held);
        match answers.into_iter().collect::<Result<Result<Vec<_>, _>>>() {
            Ok(settled) => Ok(settled.ok()),
            Err(error) if error.is_lost() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An error instead of a wait, if the caller holds what comes after the member: whoever has the
    /// member may wait for that. What this call itself has behind it does not count.
    fn check_order(&self, wanted: &Wanted<'_>, behind: &[Guard]) -> Result<()> {
        let Some(caller) = self.caller else { return Ok(()) };
        let place = wanted.member.place();
        for (index, other) in self.members.iter().enumerate() {
            let shared = other.member.lock.shared();
            let mut before = self.members[..index].iter();
            if before.any(|before| Arc::ptr_eq(before.member.lock.shared(), shared)) {
                continue;
            }
            let (now, deployment) = (shared.now(), shared.config().deployment.as_str());
            let held = shared.directory().iter().find_map(|entry| {
                let (name, owner) = entry.key();
                let is_later = *owner == caller && (name.as_str(), deployment) > place;
                let is_held = || {
                    entry.value().is_held(now)
                        && !behind.iter().any(|guard| guard.is_only_level_of(entry.value()))
                };
                (is_later && is_held()).then(|| name.to_string())
            });
            if held.is_some() {
                return Err(Error::WouldDeadlock { name: place.0.to_owned(), held });
            }
        }
        Ok(())
    }

    /// An error if this call itself has the member, under another label of the same server.
    async fn check_labels(&self, wanted: &Wanted<'_>, held: &[Guard]) -> Result<()> {
        let name = wanted.member.lock.name();
        let same: Vec<String> =
            held.iter().filter(|guard| guard.name() == name).map(Guard::hold_id).collect();
        if same.is_empty() {
            return Ok(());
        }
        let (_, label) = wanted.member.place();
        match wanted.member.lock.holder().await? {
            Some(holder) if same.contains(&holder.hold_id()) => Err(Error::InvalidOption {
                option: "deployment",
                given: format!("{label:?} for the servers that another member of {name} has"),
                allowed: "one label for all clients of the same servers".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// What is left of the wait. `None`: it has no limit.
    fn left(&self) -> Option<Duration> {
        let waited = client(&self.members).now().since(self.since);
        self.limit.map(|limit| limit.saturating_sub(waited))
    }

    fn no_answer(&self, wanted: &Wanted<'_>) -> Error {
        let shared = wanted.member.lock.shared();
        Error::Unavailable {
            name: Some(wanted.member.lock.name().to_owned()),
            waited: client(&self.members).now().since(self.since),
            cause: format!("no answer of {} within the wait", shared.config().address),
        }
    }

    /// Lets others go first, for a random time.
    async fn pause(&self) -> Result<()> {
        let length = random_pause();
        client(&self.members).sleep(self.left().map_or(length, |left| left.min(length))).await
    }
}

impl<'a> Wanted<'a> {
    fn new(
        member: &'a LockMember,
        caller: Option<OwnerKey>,
        once: OwnerKey,
        options: LockOptions,
    ) -> Result<Self> {
        let terms = member.lock.terms(options)?;
        let owner = caller.filter(|_| member.of_caller).unwrap_or(once);
        let meanwhile = terms.renewed();
        let differs = !terms.lease.is_watched() || terms.at_least.is_some();
        let was_refused = AtomicBool::new(false);
        Ok(Self { member, owner, meanwhile, settled: differs.then_some(terms), was_refused })
    }

    async fn try_once(&self) -> Result<Result<Guard, NotAcquired>> {
        self.acquire(Wait::Once).await
    }

    async fn acquire(&self, wait: Wait) -> Result<Result<Guard, NotAcquired>> {
        let answer = self.member.lock.acquire_on(self.owner, self.meanwhile, wait).await;
        self.was_refused.fetch_or(matches!(answer, Ok(Err(_))), Ordering::Relaxed);
        answer
    }

    /// Another level of what is held, on the final terms.
    async fn reenter(&self) -> Result<Result<Guard, NotAcquired>> {
        let terms = self.settled.unwrap_or(self.meanwhile);
        self.member.lock.acquire_on(self.owner, terms, Wait::Once).await
    }
}

/// The client whose clock and timer serve the whole.
fn client<'a>(members: &'a [Wanted<'_>]) -> &'a Arc<Shared> {
    members[0].member.lock.shared()
}
