//! The keys of locks of all kinds on a server, and how they are read.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Connection;
use redis::RedisResult;

use super::ask;
use crate::kind::LATCH_LIFE;

/// How long something stays reserved at most, by the scripts.
const RESERVATION: Duration = Duration::from_millis(1_500);
/// How long a waiting line lives at most, by the scripts, and all that tells who waits in it.
const LINE: Duration = Duration::from_secs(12);

/// How long an operation is remembered at most: the outage limit, and 10 s.
const OPERATION: Duration = Duration::from_secs(30 + 10);

/// A key of ours that is no fence counter. Keys that belong to one lock are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// In ms; -1: it stays for ever.
    pub(crate) left: i64,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A lock that one hold has, or that is reserved for it.
    Lock(Vec<Field>),
    /// A read-write lock: what is held, what is reserved, and readers that are dead.
    ReadWrite(Vec<Field>),
    /// The permits of a semaphore, reserved ones included.
    Permits(Vec<Field>),
    /// A latch and its count.
    Latch(u64),
    /// What tells who waits, or that a key is of some kind: it lives so long at most.
    Beside(Duration),
    /// Of another type.
    Other(String),
}

/// What one hold has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) hold: String,
    /// 0: nobody has it; it is reserved for this hold.
    pub(crate) count: u64,
    pub(crate) writes: bool,
    /// In ms.
    pub(crate) left: i64,
}

impl Key {
    /// Those who have something of the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Field> {
        let fields = match &self.content {
            Content::Lock(fields) | Content::ReadWrite(fields) | Content::Permits(fields) => fields,
            _ => &[][..],
        };
        fields.iter().filter(|field| field.count > 0 && field.left > 0)
    }

    /// Something would be lost with it.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(self.content, Content::Latch(_)) || self.holders().next().is_some()
    }

    /// Not there any more when all clients have ended, and their leases. Nobody may have counted a
    /// latch down.
    pub(crate) fn must_go(&self) -> bool {
        !matches!(self.content, Content::Beside(_) | Content::Latch(_))
    }

    /// Whether it may be without a time to live.
    pub(crate) fn may_stay(&self) -> bool {
        matches!(self.content, Content::Latch(_))
    }

    /// What it is, and how long it may live.
    pub(crate) fn limit(&self, lease: Duration) -> (&'static str, Duration) {
        match &self.content {
            Content::Latch(_) => ("a latch", LATCH_LIFE),
            Content::Beside(limit) => ("a line", *limit),
            // The time to live of a reservation is not shortened when it is taken up.
            Content::ReadWrite(_) | Content::Permits(_) => ("a lease", lease.max(RESERVATION)),
            _ if self.holders().next().is_some() => ("a lease", lease),
            _ => ("a reservation", RESERVATION),
        }
    }
}

/// All of them at one moment, with the time of the server in ms.
const KEYS: &str = "
local found, time, operations = {}, redis.call('TIME'), nil
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.sub(key, 1, 17) == 'redisson_latch_op' then
    -- There may be thousands.
    local left = redis.call('PTTL', key)
    operations = operations or {key, left, 'operation', {}}
    if left == -1 or operations[2] > -1 and left > operations[2] then operations[2] = left end
  elseif string.sub(key, 1, 20) ~= 'redisson_lock_fence:' then
    local left, kind, content = redis.call('PTTL', key), redis.call('TYPE', key).ok, {}
    if kind == 'hash' then content = redis.call('HGETALL', key) end
    if kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
    if left ~= -2 then found[#found + 1] = {key, left, kind, content} end
  end
end
found[#found + 1] = operations
return {time[1] * 1000 + math.floor(time[2] / 1000), found}";

/// Name, time to live, type, and of hashes and sorted sets the pairs in them.
type Found = (String, i64, String, Vec<(String, String)>);

pub(crate) fn all(connection: &mut Connection) -> RedisResult<Vec<Key>> {
    let (time, found): (i64, Vec<Found>) = ask(connection, &["EVAL", KEYS, "0"])?;
    let readers: BTreeMap<String, i64> = found
        .iter()
        .filter(|(name, ..)| name.contains(READER))
        .map(|(name, left, ..)| (name.clone(), *left))
        .collect();
    Ok(found.into_iter().map(|found| key(found, time, &readers)).collect())
}

/// In the name of a key that exists for as long as a reader is alive, or a writer that waits.
const READER: &str = ":rwlock_timeout:";

/// `readers` has what the keys of readers have left.
fn key((name, left, kind, pairs): Found, time: i64, readers: &BTreeMap<String, i64>) -> Key {
    let mode = pairs.iter().find(|(field, _)| field == "mode" || field == "kind");
    let mode = mode.map(|(_, mode)| mode.as_str());
    let waits = ["redisson_lock_line", "redisson_lock_heard"];
    let beside = match kind.as_str() {
        "zset" => waits.iter().any(|begin| name.starts_with(begin)).then_some(LINE),
        "set" => name.starts_with("redisson_lock_marks").then_some(LINE),
        // It lives for as long as permits or a line do.
        "hash" if mode == Some("semaphore") && pairs.len() == 1 => Some(LINE + RESERVATION),
        "string" => name.contains(READER).then_some(LINE),
        "operation" => Some(OPERATION),
        _ => None,
    };
    let permits_of = name.strip_prefix('{').and_then(|rest| rest.strip_suffix("}:timeout"));
    let content = match (kind.as_str(), mode, permits_of) {
        _ if beside.is_some() => Content::Beside(beside.unwrap_or_default()),
        ("zset", _, Some(name)) => {
            let (name, content) = (name.to_owned(), Content::Permits(permits(&pairs, time)));
            return Key { name, left, content };
        }
        ("hash", Some("latch"), _) => {
            let count = pairs.iter().find(|(field, _)| field == "count");
            Content::Latch(count.and_then(|(_, count)| count.parse().ok()).unwrap_or(0))
        }
        ("hash", Some("read" | "write"), _) => {
            Content::ReadWrite(reads_and_writes(&name, left, &pairs, readers))
        }
        ("hash", None, _) => {
            let field = |(hold, count): (String, String)| {
                let count = count.parse().unwrap_or(u64::MAX);
                Field { hold, count, writes: true, left }
            };
            Content::Lock(pairs.into_iter().map(field).collect())
        }
        _ => Content::Other(format!("{kind} {pairs:?}")),
    };
    Key { name, left, content }
}

/// A reader lives for as long as its own key, a writer for as long as the hash.
fn reads_and_writes(
    name: &str,
    left: i64,
    pairs: &[(String, String)],
    readers: &BTreeMap<String, i64>,
) -> Vec<Field> {
    let field = |(field, count): &(String, String)| {
        let (hold, writes) = match field.strip_suffix(":write") {
            Some(hold) => (hold.to_owned(), true),
            None => (field.clone(), false),
        };
        let alive = readers.get(&format!("{{{name}}}:{hold}{READER}1")).copied().unwrap_or(0);
        let left = if writes { left } else { left.min(alive) };
        Field { hold, count: count.parse().unwrap_or(u64::MAX), writes, left }
    };
    pairs.iter().filter(|(field, _)| field != "mode").map(field).collect()
}

/// Each permit is `<client>:<hold id>:<want>:<number>:<index>`, with its end in ms.
fn permits(pairs: &[(String, String)], time: i64) -> Vec<Field> {
    let mut holds: BTreeMap<String, Field> = BTreeMap::new();
    for (permit, end) in pairs {
        let hold = permit.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        let left = end.parse::<f64>().map_or(i64::MAX, |end| end as i64) - time;
        let new = Field { hold: hold.clone(), count: 0, writes: true, left };
        let field = holds.entry(hold).or_insert(new);
        (field.count, field.left) = (field.count + u64::from(left > 0), field.left.min(left));
    }
    holds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `Found`.
    type Given<'a> = (&'a str, i64, &'a str, &'a [(&'a str, &'a str)]);

    fn read(found: &[Given<'_>], time: i64) -> Vec<Key> {
        let text = |(left, right): &(&str, &str)| ((*left).to_owned(), (*right).to_owned());
        let readers = found.iter().map(|(name, left, ..)| ((*name).to_owned(), *left)).collect();
        let one = |(name, left, kind, pairs): &Given<'_>| {
            let pairs = pairs.iter().map(text).collect();
            key(((*name).to_owned(), *left, (*kind).to_owned(), pairs), time, &readers)
        };
        found.iter().map(one).collect()
    }

    fn field(hold: &str, count: u64, writes: bool, left: i64) -> Field {
        Field { hold: hold.to_owned(), count, writes, left }
    }

    #[test]
    fn the_keys_of_each_kind_are_read() {
        let keys = read(
            &[
                ("a", 9, "hash", &[("c:1", "2")]),
                (
                    "b",
                    9,
                    "hash",
                    &[("mode", "read"), ("c:2", "1"), ("c:3", "1"), ("c:4:write", "0")],
                ),
                ("{b}:c:2:rwlock_timeout:1", 5, "string", &[]),
                ("d", 9, "hash", &[("kind", "semaphore")]),
                ("{d}:timeout", 9, "zset", &[("c:5:2:3:1", "104"), ("c:5:2:3:2", "104")]),
                ("redisson_lock_line__{a}", 9, "zset", &[("c:9", "1")]),
                ("redisson_lock_marks__{a}", 9, "set", &[]),
                ("e", 9, "list", &[]),
                ("f", -1, "hash", &[("kind", "latch"), ("count", "2")]),
                ("redisson_latch_op:{f}:c:1", 9, "operation", &[]),
            ],
            100,
        );
        let contents: Vec<Content> = keys.iter().map(|key| key.content.clone()).collect();
        let reads =
            [field("c:2", 1, false, 5), field("c:3", 1, false, 0), field("c:4", 0, true, 9)];
        let expected = [
            Content::Lock(vec![field("c:1", 2, true, 9)]),
            Content::ReadWrite(reads.into()),
            Content::Beside(LINE),
            Content::Beside(LINE + RESERVATION),
            Content::Permits(vec![field("c:5", 2, true, 4)]),
            Content::Beside(LINE),
            Content::Beside(LINE),
            Content::Other("list []".to_owned()),
            Content::Latch(2),
            Content::Beside(OPERATION),
        ];
        assert_eq!(contents, expected);
        // A reader whose key is gone is dead, and a reservation is nobody's.
        let holders: Vec<&str> = keys[1].holders().map(|field| field.hold.as_str()).collect();
        assert_eq!((holders, keys[4].name.as_str()), (vec!["c:2"], "d"));
    }
}
