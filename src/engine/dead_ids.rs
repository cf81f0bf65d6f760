//! Hold ids that may have left something on a server: an attempt that may still be granted, or a
//! hold that is over. Each is released until nothing of it can be there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::name_record::Contest;
use crate::engine::pending::Op;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

/// A dead id is released again after this time at the latest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A hold id that is never used in an acquire again.
#[derive(Debug)]
pub(crate) struct Dead {
    name_id: u64,
    pub(crate) lock: LockName,
    /// What it would have, or has had.
    pub(super) share: Share,
    /// The attempt cannot be executed once the server's clock is past this.
    not_after: ServerTime,
    /// When its key is gone, if it was granted.
    pub(crate) key_end: Moment,
    op: Option<OpId>,
    /// A release of it was answered, so whatever was granted by then is undone.
    answered: bool,
    failures: u32,
    /// The next release, or the one on the wire, names the lock alone, because the slot was found to
    /// be moving. A place in the line is given up by a release that names the line as well.
    lock_alone: bool,
    /// The hold is released, but its lock was not passed on to the first in line. No attempt has to
    /// wait for that.
    owed: bool,
    /// Its waiter was granted the lock or has left, so that its place in the line is nobody's.
    role_over: bool,
}

/// What the answer to a release of a dead id means for its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CleanupAnswer {
    pub(super) name_id: u64,
    /// The release has found the hold and removed it.
    pub(super) freed: bool,
    /// The id needs no further release.
    pub(super) ended: bool,
    /// It is released again at once.
    pub(super) at_once: bool,
}

#[derive(Debug, Default)]
pub(crate) struct DeadIds {
    dead: BTreeMap<u64, Dead>,
}

impl DeadIds {
    pub(crate) fn add(
        &mut self,
        id: u64,
        name_id: u64,
        lock: LockName,
        share: Share,
        not_after: ServerTime,
        key_end: Moment,
    ) {
        self.dead.insert(
            id,
            Dead {
                name_id,
                lock,
                share,
                not_after,
                key_end,
                op: None,
                answered: false,
                failures: 0,
                lock_alone: false,
                owed: false,
                role_over: false,
            },
        );
    }

    /// A release named the lock alone. One that names the line is owed: one for all such releases
    /// of a name, unless it is on the wire already.
    fn owe(&mut self, id: u64, name_id: u64, lock: LockName, share: Share) -> bool {
        let known = |dead: &Dead| dead.owed && dead.lock == lock && dead.op.is_none();
        if self.dead.values().any(known) {
            return false;
        }
        self.add(id, name_id, lock, share, ServerTime(0), Moment::ZERO);
        self.dead.entry(id).and_modify(|dead| dead.owed = true);
        true
    }

    pub(super) fn names_lock_alone(&self, id: u64) -> bool {
        self.dead.get(&id).is_some_and(|dead| dead.lock_alone)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Dead> {
        self.dead.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Dead)> {
        self.dead.iter().map(|(id, dead)| (*id, dead))
    }

    pub(crate) fn len(&self) -> usize {
        self.dead.len()
    }

    /// Whether a release of the id is on the wire or was answered: only then may the name be tried
    /// again.
    pub(crate) fn is_under_way(&self, id: u64) -> bool {
        self.dead.get(&id).is_none_or(|dead| dead.op.is_some() || dead.answered)
    }

    /// The place in the line was granted or given up. No waiter goes on with a place that a dead id
    /// may still have.
    pub(super) fn end_role(&mut self, contest: &mut Contest) {
        contest.standing.end_role();
        for id in &contest.dead {
            self.dead.entry(*id).and_modify(|dead| dead.role_over = true);
        }
    }

    /// Whether the waiter of an id goes on with another, and with the ticket of this one.
    fn has_heir(&self, id: u64) -> bool {
        self.dead.get(&id).is_some_and(|dead| !dead.role_over)
    }

    /// Whether a release of the id may still tell a ticket that its waiter does not know.
    pub(super) fn may_tell_ticket(&self, id: u64) -> bool {
        self.dead.get(&id).is_some_and(|dead| !dead.answered && !dead.role_over)
    }

    /// Name and lock of an id, if a release of it can be sent now.
    pub(super) fn to_be_sent(&self, cx: &Context, id: u64) -> Option<(u64, LockName)> {
        let dead = self.dead.get(&id)?;
        let can_be_sent = dead.op.is_none() && cx.servers.is_up(&dead.lock);
        can_be_sent.then(|| (dead.name_id, dead.lock.clone()))
    }

    pub(super) fn send(&mut self, cx: &mut Context, id: u64, command: Command) {
        let Some(dead) = self.dead.get_mut(&id) else { return };
        let to = cx.servers.id_of(&dead.lock);
        dead.op =
            Some(cx.send(Op::Cleanup { id }, to, command, cx.attempt_deadline(), ServerTime(0)));
    }

    /// Ends the clean-up of an id once a release of it was executed after its `not_after`; until
    /// then it is released again.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        id: u64,
        outcome: &Outcome<Reply>,
    ) -> Option<CleanupAnswer> {
        let dead = self.dead.get_mut(&id)?;
        dead.op = None;
        let mut answer = CleanupAnswer {
            name_id: dead.name_id,
            freed: was_freed(outcome),
            ended: false,
            at_once: false,
        };
        let lock_alone = std::mem::take(&mut dead.lock_alone);
        let ends = |time: ServerTime| {
            !lock_alone && (time > dead.not_after || seeded!(CleanUpUntilNotAfter))
        };
        if matches!(outcome, Outcome::Done(Reply { time: Some(time), .. }) if ends(*time)) {
            answer.ended = true;
            cx.timers.clear(TimerKey::Cleanup(id));
            self.dead.remove(&id);
            return Some(answer);
        }
        let pause = match outcome {
            Outcome::NotExecuted(failure)
                if failure.kind == FailureKind::SlotMoving
                    && !lock_alone
                    && cx.has_line(&dead.lock) =>
            {
                dead.lock_alone = true;
                answer.at_once = true;
                return Some(answer);
            }
            // The line is still out of reach, or was a moment ago.
            Outcome::Done(_) if lock_alone => {
                dead.failures += 1;
                back_off(dead.failures - 1)
            }
            Outcome::Done(reply) => {
                dead.answered = true;
                dead.failures = 0;
                // The attempt may still be executed: the id is released again when it no longer
                // may, and every 5 s until then.
                let left = reply.time.map_or(0, |time| dead.not_after.0.saturating_sub(time.0));
                let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
                (left + Duration::from_millis(1)).min(LONGEST_PAUSE)
            }
            Outcome::NotExecuted(_) | Outcome::Unknown(_) => {
                dead.failures += 1;
                back_off(dead.failures - 1)
            }
        };
        cx.timers.set(TimerKey::Cleanup(id), cx.now.plus(pause));
        Some(answer)
    }
}

fn was_freed(outcome: &Outcome<Reply>) -> bool {
    let Outcome::Done(Reply { body: Body::Release(released), .. }) = outcome else { return false };
    matches!(released, Released::Freed { .. } | Released::Kept { .. } | Released::InOtherUse(_))
}

impl Engine {
    pub(super) fn send_cleanup(&mut self, id: u64) {
        let Some((name_id, lock)) = self.dead_ids.to_be_sent(&self.cx, id) else { return };
        let Some(command) = self.last_release(id, name_id, &lock) else { return };
        self.dead_ids.send(&mut self.cx, id, command);
        self.queues.touch(name_id);
    }

    /// The last release of a hold named the lock alone.
    pub(super) fn owe_line(&mut self, id: u64, name_id: u64, lock: LockName, share: Share) {
        if seeded!(LineIsOwed) {
            return;
        }
        if self.cx.has_line(&lock) && self.dead_ids.owe(id, name_id, lock, share) {
            self.send_cleanup(id);
        }
    }

    pub(super) fn on_cleanup_reply(&mut self, id: u64, outcome: &Outcome<Reply>) {
        let has_heir = self.dead_ids.has_heir(id);
        let Some(answer) = self.dead_ids.answered(&mut self.cx, id, outcome) else { return };
        let CleanupAnswer { name_id, freed, ended, at_once } = answer;
        if at_once {
            return self.send_cleanup(id);
        }
        if let Outcome::Done(Reply { body: Body::Release(Released::LeftLine { ticket }), .. }) =
            outcome
        {
            if let Some(contest) = self.queues.known_contest(name_id).filter(|_| has_heir) {
                contest.standing.knows(*ticket);
            }
        }
        if ended {
            if let Some(contest) = self.queues.known_contest(name_id) {
                contest.dead.retain(|other| *other != id);
            }
        }
        // The server has told the clients that listen; this client may not be one of them.
        if freed { self.queues.wake(name_id) } else { self.queues.touch(name_id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Failure;
    use crate::backend::ServerId;
    use crate::backend::ServerInfo;
    use crate::engine::context::testing::context;
    use crate::kinds::command::Announce;

    const ID: u64 = 7;
    const NOT_AFTER: ServerTime = ServerTime(1_000_000);

    fn dead() -> (DeadIds, Context) {
        let (mut cleanup, mut cx) = (DeadIds::default(), context());
        cx.servers.connected(Moment::ZERO, ServerId::ONLY, ServerInfo::default());
        cleanup.add(ID, 1, lock(), Share::ONE, NOT_AFTER, Moment(5));
        (cleanup, cx)
    }

    fn lock() -> LockName {
        LockName::new("n").unwrap()
    }

    fn send(cleanup: &mut DeadIds, cx: &mut Context) {
        assert_eq!(cleanup.to_be_sent(cx, ID), Some((1, lock())));
        let announce = Announce { channel: "c".into(), sharded: false, line: false, alone: false };
        let (name, field) = (lock(), "f".to_owned());
        let command = Command::Release { name, field, share: Share::NOTHING, announce, undo: true };
        cleanup.send(cx, ID, command);
    }

    fn at(time: i64) -> Outcome<Reply> {
        let body = Body::Release(Released::Freed { receivers: Some(0) });
        Outcome::Done(Reply { time: Some(ServerTime(time)), body })
    }

    #[test]
    fn an_id_is_released_until_a_release_was_executed_after_its_not_after() {
        let (mut cleanup, mut cx) = dead();
        send(&mut cleanup, &mut cx);
        assert!(cleanup.is_under_way(ID));
        assert_eq!(cleanup.to_be_sent(&cx, ID), None, "one is on the wire");
        let early = cleanup.answered(&mut cx, ID, &at(NOT_AFTER.0)).unwrap();
        assert_eq!(early, CleanupAnswer { name_id: 1, freed: true, ended: false, at_once: false });
        assert!(cx.timers.is_set(TimerKey::Cleanup(ID)));
        send(&mut cleanup, &mut cx);
        assert!(cleanup.answered(&mut cx, ID, &at(NOT_AFTER.0 + 1)).unwrap().ended);
        assert_eq!(cleanup.len(), 0);
        assert!(!cx.timers.is_set(TimerKey::Cleanup(ID)));
    }

    #[test]
    fn a_release_without_an_answer_is_repeated_and_only_an_answer_counts_as_under_way() {
        let (mut cleanup, mut cx) = dead();
        send(&mut cleanup, &mut cx);
        let lost = Outcome::Unknown(Failure::new(FailureKind::Link, "no answer"));
        let answer = cleanup.answered(&mut cx, ID, &lost).unwrap();
        assert_eq!(
            answer,
            CleanupAnswer { name_id: 1, freed: false, ended: false, at_once: false }
        );
        assert!(!cleanup.is_under_way(ID));
        assert!(cx.timers.is_set(TimerKey::Cleanup(ID)));
        send(&mut cleanup, &mut cx);
    }

    #[test]
    fn nothing_is_sent_to_a_server_that_is_down() {
        let (cleanup, mut cx) = dead();
        cx.servers.get_mut(ServerId::ONLY).disconnected();
        assert_eq!(cleanup.to_be_sent(&cx, ID), None);
    }
}
