//! The task of a lock command: it waits for the grant, and then serves the guard.

use std::collections::HashMap;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use redis_reentrant_lock::Deadline;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::MultiGuard;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::RedlockGuard;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;
use redis_reentrant_lock::SemaphorePermit;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::unbounded_channel;

use crate::output::Failure;
use crate::output::boot_ns;
use crate::output::emit;
use crate::output::finish;

/// A `lock` that takes longer says `waiting`.
const SAY_WAITING: Duration = Duration::from_millis(20);

pub(crate) type Acquiring =
    Pin<Box<dyn Future<Output = Result<Result<Held, NotAcquired>, Error>> + Send>>;

/// What a lock command was granted.
pub(crate) enum Held {
    Lock(Guard),
    Permits(SemaphorePermit),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Several(MultiGuard),
    Majority(RedlockGuard),
}

/// What questions are asked of.
enum Asked<'a> {
    One(&'a Guard),
    Several(&'a MultiGuard),
    Majority(&'a RedlockGuard),
}

impl Held {
    fn asked(&self) -> Asked<'_> {
        match self {
            Self::Lock(guard) => Asked::One(guard),
            Self::Permits(permits) => Asked::One(permits),
            Self::Read(guard) => Asked::One(guard),
            Self::Write(guard) => Asked::One(guard),
            Self::Several(guards) => Asked::Several(guards),
            Self::Majority(guard) => Asked::Majority(guard),
        }
    }

    /// Of several the first.
    fn name(&self) -> &str {
        match self.asked() {
            Asked::One(guard) => guard.name(),
            Asked::Several(guards) => guards.members()[0].name(),
            Asked::Majority(guard) => guard.name(),
        }
    }

    fn fencing_token(&self) -> u64 {
        match self.asked() {
            Asked::One(guard) => guard.fencing_token(),
            Asked::Several(guards) => guards.members()[0].fencing_token(),
            Asked::Majority(guard) => guard.fencing_token(),
        }
    }

    fn hold_count(&self) -> u32 {
        match self.asked() {
            Asked::One(guard) => guard.hold_count(),
            Asked::Several(guards) => guards.members()[0].hold_count(),
            Asked::Majority(_) => 1,
        }
    }

    /// In Redis. A majority has another one on each server.
    fn holder(&self) -> Option<String> {
        match self {
            Self::Permits(permits) => Some(permits.hold_id()),
            other => match other.asked() {
                Asked::One(guard) => Some(guard.hold_id()),
                Asked::Several(guards) => Some(guards.members()[0].hold_id()),
                Asked::Majority(_) => None,
            },
        }
    }

    async fn lost(&self) -> LossReason {
        match self.asked() {
            Asked::One(guard) => guard.lost().await,
            Asked::Several(guards) => guards.lost().await.reason,
            Asked::Majority(guard) => guard.lost().await,
        }
    }

    fn loss(&self) -> Option<LossReason> {
        match self.asked() {
            Asked::One(guard) => guard.loss(),
            Asked::Several(guards) => guards.loss().map(|loss| loss.reason),
            Asked::Majority(guard) => guard.loss(),
        }
    }

    fn is_held(&self) -> bool {
        match self.asked() {
            Asked::One(guard) => guard.is_held(),
            Asked::Several(guards) => guards.is_held(),
            Asked::Majority(guard) => guard.is_held(),
        }
    }

    fn is_suspect(&self) -> bool {
        match self.asked() {
            Asked::One(guard) => guard.is_suspect(),
            Asked::Several(guards) => guards.is_suspect(),
            Asked::Majority(guard) => guard.is_suspect(),
        }
    }

    fn valid_until(&self) -> Deadline {
        match self.asked() {
            Asked::One(guard) => guard.valid_until(),
            Asked::Several(guards) => guards.valid_until(),
            Asked::Majority(guard) => guard.valid_until(),
        }
    }

    async fn verify(&self) -> Result<(), Error> {
        match self.asked() {
            Asked::One(guard) => guard.verify().await,
            Asked::Several(guards) => guards.verify().await,
            Asked::Majority(guard) => guard.verify().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
            Self::Read(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
            Self::Several(guards) => guards.unlock().await,
            Self::Majority(guard) => guard.unlock().await,
        }
    }

    /// Reads instead of writing. What does not write stays as it is: the inner error.
    async fn downgrade(self) -> Result<Result<Self, Self>, Error> {
        match self {
            Self::Write(guard) => guard.downgrade().await.map(|read| Ok(Self::Read(read))),
            other => Ok(Err(other)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Cancel,
    Unlock,
    Drop,
    Downgrade,
    Verify,
    Look,
}

/// What another command wants from a lock command.
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) action: Action,
}

/// The lock commands that wait or have a guard, by id.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, UnboundedSender<Request>>>);

impl Locks {
    pub(crate) fn enter(&self, id: &str) -> Result<UnboundedReceiver<Request>, Failure> {
        let mut locks = locked(&self.0);
        if locks.contains_key(id) {
            return Err(Failure::bad(format!("id {id} is in use by a lock command")));
        }
        let (sender, requests) = unbounded_channel();
        locks.insert(id.to_owned(), sender);
        Ok(requests)
    }

    pub(crate) fn send(&self, lock: &str, request: Request) -> Result<(), Failure> {
        let locks = locked(&self.0);
        let sent = locks.get(lock).and_then(|sender| sender.send(request).ok());
        sent.ok_or_else(|| no_such_lock(lock))
    }
}

fn no_such_lock(lock: &str) -> Failure {
    Failure::new("no_such_lock", format!("no lock command {lock} waits or has a guard"))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task of one lock command: waits for the grant, then serves the guard.
pub(crate) struct Lock {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) requests: UnboundedReceiver<Request>,
    pub(crate) locks: Arc<Locks>,
}

/// How the wait ended, when it did not fail.
enum Waited {
    Granted(Held),
    Denied,
    /// By the command with this id.
    Cancelled(String),
}

impl Lock {
    pub(crate) async fn run(mut self, acquiring: Acquiring) {
        let called_ns = boot_ns();
        match self.wait(acquiring).await {
            Ok(Waited::Granted(guard)) => {
                self.say_granted(&guard, called_ns);
                self.serve(guard).await;
            }
            Ok(Waited::Denied) => self.end("denied", json!({ "name": self.name })),
            Ok(Waited::Cancelled(by)) => {
                self.end("cancelled", json!({ "lock": self.id }));
                finish(&by, Ok(("cancelled", json!({ "lock": self.id }))));
            }
            Err(error) => self.end("error", Failure::from(error).fields()),
        }
    }

    /// Waits for the end of `acquiring`, which is dropped by the time this returns.
    async fn wait(&mut self, mut acquiring: Acquiring) -> Result<Waited, Error> {
        let mut say_waiting = pin!(tokio::time::sleep(SAY_WAITING));
        let mut said = false;
        loop {
            tokio::select! {
                biased;
                result = &mut acquiring => {
                    return Ok(result?.map_or_else(|_| Waited::Denied, Waited::Granted));
                }
                Some(request) = self.requests.recv() => match request.action {
                    Action::Cancel => return Ok(Waited::Cancelled(request.id)),
                    _ => finish(&request.id, Err(Failure::new("not_granted", "the lock is not granted yet"))),
                },
                () = &mut say_waiting, if !said => {
                    said = true;
                    emit(Some(&self.id), "waiting", json!({ "name": self.name }));
                }
            }
        }
    }

    fn say_granted(&self, guard: &Held, called_ns: u64) {
        let valid_until_ns = guard.valid_until().as_boot_nanos();
        let fields = json!({
            "name": guard.name(), "token": guard.fencing_token(), "count": guard.hold_count(),
            "holder": guard.holder(), "sent_ns": self.sent_ns(valid_until_ns, called_ns),
            "valid_until_ns": valid_until_ns,
        });
        emit(Some(&self.id), "granted", fields);
    }

    /// Validity counts from the attempt that was granted, so it tells when that was sent. Where
    /// another limit than the lease set it (`max_hold`, a longer lease of an outer level), the
    /// start of the command has to do.
    fn sent_ns(&self, valid_until_ns: u64, called_ns: u64) -> u64 {
        let validity = self.lease.saturating_sub(self.lease / 100 + Duration::from_millis(2));
        let sent_ns =
            valid_until_ns.saturating_sub(u64::try_from(validity.as_nanos()).unwrap_or(u64::MAX));
        if (called_ns..boot_ns()).contains(&sent_ns) { sent_ns } else { called_ns }
    }

    /// Does what other commands want from the guard, and says when it is lost, until it is gone.
    async fn serve(mut self, mut guard: Held) {
        let mut lost = false;
        loop {
            tokio::select! {
                biased;
                reason = guard.lost(), if !lost => {
                    lost = true;
                    emit(Some(&self.id), "lost", json!({ "name": guard.name(), "reason": reason.as_str() }));
                }
                request = self.requests.recv() => {
                    let Some(Request { id, action }) = request else { return };
                    match action {
                        Action::Unlock | Action::Drop => return self.release(guard, &id, action).await,
                        Action::Verify => {
                            let done = guard.verify().await.map_err(Failure::from);
                            finish(&id, done.map(|()| ("info", json!({ "lock": self.id, "verified": true }))));
                        }
                        Action::Downgrade => match guard.downgrade().await {
                            Ok(Ok(read)) => {
                                finish(&id, Ok(("info", look(&read))));
                                guard = read;
                            }
                            Ok(Err(same)) => {
                                finish(&id, Err(Failure::bad("only a write can be downgraded")));
                                guard = same;
                            }
                            Err(error) => {
                                self.leave();
                                return finish(&id, Err(error.into()));
                            }
                        },
                        Action::Look => finish(&id, Ok(("info", look(&guard)))),
                        Action::Cancel => {
                            finish(&id, Err(Failure::new("already_granted", "the lock is granted already")));
                        }
                    }
                }
            }
        }
    }

    async fn release(mut self, guard: Held, id: &str, action: Action) {
        self.leave();
        emit(Some(id), "releasing", json!({ "lock": self.id, "name": self.name }));
        let done = if action == Action::Unlock {
            guard.release().await.map(|()| "unlocked")
        } else {
            drop(guard);
            Ok("dropped")
        };
        finish(id, done.map(|event| (event, json!({ "lock": self.id }))).map_err(Failure::from));
    }

    /// Ends the lock command itself. The id is free before the event is printed, so that
    /// its reader can use the id again at once.
    fn end(&mut self, event: &'static str, fields: Value) {
        self.leave();
        emit(Some(&self.id), event, fields);
    }

    /// Takes no more requests; those that came too late end here.
    fn leave(&mut self) {
        locked(&self.locks.0).remove(&self.id);
        while let Ok(request) = self.requests.try_recv() {
            finish(&request.id, Err(no_such_lock(&self.id)));
        }
    }
}

fn look(guard: &Held) -> Value {
    let mut fields = Map::new();
    let loss = guard.loss();
    let state = match (guard.is_held(), guard.is_suspect()) {
        (true, false) => "held",
        (true, true) => "suspect",
        (false, _) => "lost",
    };
    fields.insert("state".into(), state.into());
    fields.insert("name".into(), guard.name().into());
    fields.insert("count".into(), guard.hold_count().into());
    fields.insert("token".into(), guard.fencing_token().into());
    fields.insert("holder".into(), guard.holder().into());
    fields
        .insert("remaining_ms".into(), (guard.valid_until().remaining().as_millis() as u64).into());
    fields.insert("valid_until_ns".into(), guard.valid_until().as_boot_nanos().into());
    fields.insert("reason".into(), loss.map(|reason| reason.as_str()).into());
    Value::Object(fields)
}
