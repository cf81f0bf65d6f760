//! What makes a key no lock of the kind that was asked for.

use crate::base::kind::Kind;
use crate::base::name::LockName;

/// The conflicts that only the client can see.
const NOT_A_HOLDER: &str = "a hash whose field is not a lock holder";
pub(crate) const WITHOUT_END: &str = "a lock without a time to live, which never ends by itself: \
     somebody took its time to live off (PERSIST), or its client could not set one; \
     `force_unlock` removes it";

/// In the profile `Redisson` this may be another kind, which nothing tells from other data.
const NOT_A_HASH: &str =
    "a value that is not a hash, such as a latch or a semaphore of Redisson, which are strings";

/// One of two conflicts that are not in the lock's own key.
const BROKEN_FENCE: &str = "the fence counter is not a whole number from 0 to 2^53 - 2";

/// The other one.
const BROKEN_LINE: &str = "the key of its line has a value that is not a sorted set";

/// The only one in the permits of a semaphore.
const BROKEN_PERMITS: &str = "the key of its permits has a value that is not a sorted set";

/// The only one of the queue of a fair lock, as Redisson writes it.
const BROKEN_QUEUE: &str = "the key of its queue has a value that is not a list, or the other one has one that is not a \
     sorted set";

/// The only one of a key that is to have a number of permits, as Redisson writes it.
const NO_NUMBER: &str = "a value that is not a whole number, which a semaphore of Redisson is";

/// What is where, so that it can be found.
pub(crate) fn conflict_words(found: &str, name: &LockName) -> String {
    match found {
        BROKEN_FENCE => format!("{found}, {}", name.fence_key()),
        BROKEN_LINE => format!("{found}, {}", name.line_key()),
        BROKEN_PERMITS => format!("{found}, {}", name.permits_key()),
        BROKEN_QUEUE => format!("{found}: {}, {}", name.queue_key(), name.deadlines_key()),
        _ => found.to_owned(),
    }
}

pub(crate) fn conflict(what: i64) -> Option<&'static str> {
    Some(match what {
        1 => NOT_A_HASH,
        2 => "a hash with several fields",
        4 => "a read-write lock",
        5 => BROKEN_FENCE,
        6 => BROKEN_LINE,
        7 => "a hash that is no read-write lock",
        8 => "a hash that is no semaphore",
        9 => BROKEN_PERMITS,
        3 => WITHOUT_END,
        10 => "a count-down latch",
        11 => "a semaphore",
        12 => "a lock",
        13 => NO_NUMBER,
        14 => "a semaphore of the profile `Native`",
        15 => BROKEN_QUEUE,
        _ => return None,
    })
}

/// What is wrong with who is said to hold a name, with this time to live in ms.
pub(crate) fn conflict_of_holder(kind: Kind, pttl: i64, field: &str) -> Option<&'static str> {
    match is_holder_field(field) {
        // Permits of Redisson have ids of their own.
        _ if kind == Kind::PermitExpirable => None,
        false => Some(NOT_A_HOLDER),
        true => (pttl < 0).then_some(WITHOUT_END),
    }
}

/// Whether a field has the form `<uuid>:<number>[:suffix]`, as every reentrant holder writes it.
pub(crate) fn is_holder_field(field: &str) -> bool {
    let Some((client, rest)) = field.split_once(':') else { return false };
    let number = rest.split(':').next().unwrap_or_default();
    client.len() == 36
        && uuid::Uuid::try_parse(client).is_ok()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_fields_are_told_from_foreign_ones() {
        let uuid = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac";
        for good in [format!("{uuid}:731"), format!("{uuid}:1:tx"), format!("{uuid}:1:write")] {
            assert!(is_holder_field(&good), "{good}");
        }
        for bad in
            [uuid.to_owned(), format!("{uuid}:"), format!("{uuid}:x"), "a:1".into(), String::new()]
        {
            assert!(!is_holder_field(&bad), "{bad}");
        }
    }
}
