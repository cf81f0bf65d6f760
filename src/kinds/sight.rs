//! What those see who watch a name without acquiring it.

use std::time::Duration;

use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::KeyState;

/// What is under the key of a name, for somebody who waits for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    /// There is nothing to wait for.
    Over,
    /// This is there, and ends by itself after `left` if nobody renews it: the field of a holder, or
    /// a count of a latch, whichever.
    There { what: String, left: Duration },
}

impl Command {
    /// The question of those who watch a name. Its reply is a [`Sight`].
    pub(crate) fn look_at(name: LockName, profile: WireProfile) -> Self {
        match name.kind() {
            Kind::CountDownLatch => Self::Count { name, profile },
            _ => Self::Inspect { name },
        }
    }
}

impl Body {
    /// What the reply to [`Command::look_at`] says, or the conflict that makes the key no lock of
    /// this kind. `None`: it is the reply to something else.
    pub(crate) fn sight(self, kind: Kind) -> Option<Result<Sight, &'static str>> {
        let state = match self {
            Self::Inspect(state) => state,
            Self::Count(count) => return Some(count.map(sight_of_count)),
            _ => return None,
        };
        if let Some(found) = state.conflict(kind) {
            return Some(Err(found));
        }
        Some(Ok(match state {
            KeyState::Hash { pttl, field, .. } => {
                let left = Duration::from_millis(u64::try_from(pttl).unwrap_or(0) + 1);
                Sight::There { what: field, left }
            }
            _ => Sight::Over,
        }))
    }
}

/// A count ends only when somebody counts down.
fn sight_of_count(count: u64) -> Sight {
    match count {
        0 => Sight::Over,
        1 if seeded!(LatchOpensAtZero) => Sight::Over,
        _ => Sight::There { what: String::new(), left: Duration::MAX },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: &str = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731";

    fn sight(state: KeyState) -> Result<Sight, &'static str> {
        Body::Inspect(state).sight(Kind::Reentrant).expect("the answer to a look")
    }

    fn hash(pttl: i64, field: &str) -> KeyState {
        KeyState::Hash { pttl, fields: 1, field: field.to_owned(), count: "1".to_owned() }
    }

    #[test]
    fn a_watcher_sees_the_holder_and_when_its_lease_ends() {
        let left = Duration::from_millis(30_001);
        let there = Sight::There { what: HOLDER.to_owned(), left };
        assert_eq!(sight(hash(30_000, HOLDER)), Ok(there));
        assert_eq!(sight(KeyState::Absent), Ok(Sight::Over));
    }

    #[test]
    fn what_is_no_lock_is_a_conflict_and_what_is_no_look_is_nothing() {
        for state in [
            KeyState::Other,
            KeyState::ReadWriteLock,
            KeyState::OtherKind(10),
            hash(-1, HOLDER),
            hash(9, "field"),
        ] {
            assert!(sight(state.clone()).is_err(), "{state:?}");
        }
        assert_eq!(Body::Pong.sight(Kind::Reentrant), None);
    }

    #[test]
    fn a_latch_is_over_when_its_count_is_zero() {
        let sight = |count| Body::Count(count).sight(Kind::CountDownLatch).expect("a look");
        assert_eq!(sight(Ok(0)), Ok(Sight::Over));
        assert_eq!(sight(Ok(3)), sight(Ok(1)), "another count is no end");
        assert!(matches!(sight(Ok(1)), Ok(Sight::There { .. })));
        assert_eq!(sight(Err("no latch")), Err("no latch"));
    }
}
