//! Lock names, and the keys and channels derived from them.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use arcstr::ArcStr;

use crate::base::error::Error;
use crate::base::kind::Kind;

/// The longest lock name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 512;

const FENCE_PREFIX: &str = "redisson_lock_fence:";
/// The beginning of the key of a waiting line.
pub(crate) const LINE_PREFIX: &str = "redisson_lock_line";
/// The beginning of the key of those in line that were heard of.
pub(crate) const HEARD_PREFIX: &str = "redisson_lock_heard";
pub(crate) const MARKS_PREFIX: &str = "redisson_lock_marks";
/// The beginning of the keys that Redisson's fair locks have beside the lock.
pub(crate) const QUEUE_PREFIX: &str = "redisson_lock_queue:";
pub(crate) const DEADLINES_PREFIX: &str = "redisson_lock_timeout:";
/// How the keys begin that this crate writes beside the locks themselves. No lock name may begin
/// so.
const RESERVED: [&str; 5] =
    [LINE_PREFIX, HEARD_PREFIX, MARKS_PREFIX, "redisson_lock_fence", "redisson_latch_op"];
/// In bytes. The prefix is followed by at most five digits in braces.
pub(crate) const LONGEST_FENCE_KEY: usize = FENCE_PREFIX.len() + 7;

/// A validated lock name. It is used as the Redis key, unchanged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockName {
    text: ArcStr,
    slot: u16,
    kind: Kind,
}

/// The slot is left out, because it follows from the text.
impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl LockName {
    /// Checks `name` once, so that later code can rely on it.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| {
            let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
            Err(Error::InvalidName { name: shown, reason: reason.to_owned() })
        };
        if name.is_empty() {
            return refuse("it is empty; 1 to 512 bytes are allowed");
        }
        if name.len() > MAX_NAME_BYTES {
            return refuse(&format!(
                "it has {} bytes; 1 to {MAX_NAME_BYTES} are allowed",
                name.len()
            ));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()) {
            return refuse(&format!("it contains the control character {}", bad.escape_unicode()));
        }
        // In a cluster, a script cannot publish to a channel in another slot than its key.
        if hashed_part(name) != hashed_part(&channel_of(WireProfile::Native, name)) {
            return refuse(
                "its braces put the key and the wake-up channel into different cluster slots; \
                 use no braces, or let the first one begin a non-empty {tag}",
            );
        }
        if let Some(reserved) = RESERVED.iter().find(|reserved| name.starts_with(**reserved)) {
            let [line, heard, marks, fence, op] = RESERVED;
            return refuse(&format!(
                "it begins with `{reserved}`, like a key that this crate writes beside its locks; \
                 allowed are names that do not begin with `{line}`, `{heard}`, `{marks}`, \
                 `{fence}` or `{op}`"
            ));
        }
        Ok(Self { text: name.into(), slot: slot_of(name), kind: Kind::Reentrant })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The same name for another kind of lock.
    pub(crate) fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The cluster slot of the key, and of all keys and channels that belong to it.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The wake-up channel in this wire profile.
    pub(crate) fn channel(&self, profile: WireProfile) -> Arc<str> {
        match self.kind {
            // Redisson puts every name of a latch in braces.
            Kind::CountDownLatch => latch_channel_around(self.as_str()).into(),
            Kind::ReadWrite => self.beside_it("redisson_rwlock:", "").into(),
            Kind::Semaphore | Kind::PermitExpirable => self.beside_it("redisson_sc:", "").into(),
            _ => channel_of(profile, self.as_str()).into(),
        }
    }

    /// Another name of the same kind that begins with this one and is in the same slot, so that it has
    /// the same fence counter. Its number is the first suitable one from `start` on. `None`: this name is
    /// too long.
    pub(crate) fn beside(&self, start: u32) -> Option<Self> {
        (0..500_000)
            .map(|step: u32| format!("{self}:preflight:{}", start.wrapping_add(step)))
            .take_while(|name| name.len() <= MAX_NAME_BYTES)
            .find(|name| slot_of(name) == self.slot())
            .and_then(|name| Self::new(&name).ok())
            .map(|name| Self { kind: self.kind, ..name })
    }

    /// The fence counter of this name's slot.
    pub(crate) fn fence_key(&self) -> String {
        let mut key = String::with_capacity(LONGEST_FENCE_KEY);
        self.add_fence_key(&mut key);
        key
    }

    /// The same, appended to a text.
    pub(crate) fn add_fence_key(&self, text: &mut String) {
        let tag = slot_tags()[usize::from(self.slot())];
        text.push_str(FENCE_PREFIX);
        text.push('{');
        text.push_str(itoa::Buffer::new().format(tag));
        text.push('}');
    }

    /// Where the outcome of an operation on this name is kept.
    pub(crate) fn operation_key(&self, id: &str) -> String {
        self.beside_it("redisson_latch_op:", &format!(":{id}"))
    }

    /// The permits of a semaphore of this name.
    pub(crate) fn permits_key(&self) -> String {
        self.beside_it("", ":timeout")
    }

    /// The queue of a fair lock of this name, as Redisson has it.
    pub(crate) fn queue_key(&self) -> String {
        self.beside_it(QUEUE_PREFIX, "")
    }

    /// Until when each place in that queue counts.
    pub(crate) fn deadlines_key(&self) -> String {
        self.beside_it(DEADLINES_PREFIX, "")
    }

    /// The waiters of a semaphore of this name that were heard of lately.
    pub(crate) fn heard_key(&self) -> String {
        let name = self.as_str();
        match name.contains('{') {
            true => [HEARD_PREFIX, ":", name].concat(),
            false => [HEARD_PREFIX, "__{", name, "}"].concat(),
        }
    }

    /// How the keys begin that belong to single readers of a read-write lock of this name.
    pub(crate) fn in_braces(&self) -> String {
        self.beside_it("", "")
    }

    /// A reader of a read-write lock of this name is alive while this key exists.
    pub(crate) fn reader_key(&self, field: &str) -> String {
        self.beside_it("", &[":", field, ":rwlock_timeout:1"].concat())
    }

    /// Redisson's `prefixName`: a name that contains a brace is not put in braces.
    fn beside_it(&self, before: &str, after: &str) -> String {
        let name = self.as_str();
        match name.contains('{') {
            true => [before, name, after].concat(),
            false => [before, "{", name, "}", after].concat(),
        }
    }

    /// The waiting line of this name. Two names never have the same one.
    pub(crate) fn line_key(&self) -> String {
        let mut key = String::with_capacity(LINE_PREFIX.len() + self.as_str().len() + 4);
        self.add_line_key(&mut key);
        key
    }

    /// The same, appended to a text.
    pub(crate) fn add_line_key(&self, text: &mut String) {
        self.add_key_of_line(LINE_PREFIX, text);
    }

    /// The clients that let a reservation of this name run out, appended to a text.
    pub(crate) fn add_marks_key(&self, text: &mut String) {
        self.add_key_of_line(MARKS_PREFIX, text);
    }

    /// As in a channel, a name that contains a brace is not put in braces.
    fn add_key_of_line(&self, prefix: &str, text: &mut String) {
        let name = self.as_str();
        let words: &[&str] = match name.contains('{') {
            true => &[prefix, ":", name],
            false => &[prefix, "__{", name, "}"],
        };
        text.extend(words.iter().copied());
    }
}

/// What a client puts before each lock name, like Redisson's `NameMapper`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    /// Refuses a prefix that would make every name invalid, and one whose braces only a name could
    /// complete. What a name may begin with is checked for prefix and name together.
    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        let refuse = |reason: String| {
            let given = prefix.chars().take(80).flat_map(char::escape_debug).collect();
            let allowed = format!(
                "empty, or without braces, or with exactly one non-empty {{tag}}: {reason}"
            );
            Err(Error::InvalidOption { option: "prefix", given, allowed })
        };
        let braces: Vec<(usize, &str)> = prefix.match_indices(['{', '}']).collect();
        match braces[..] {
            [] => {}
            [(open, "{"), (close, "}")] if close > open + 1 => {}
            _ => return refuse("its braces are not a {tag}".to_owned()),
        }
        match LockName::new(&format!("{prefix}n")) {
            Ok(_) => Ok(Self(prefix.into())),
            Err(Error::InvalidName { reason, .. }) => {
                refuse(format!("with a name of one byte, {reason}"))
            }
            Err(error) => Err(error),
        }
    }

    /// The name in Redis. An empty name stays empty, so that it is refused.
    pub(crate) fn before<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() || name.is_empty() {
            name.into()
        } else {
            [&self.0, name].concat().into()
        }
    }

    /// The same for a pattern of names: the prefix is escaped, so that it stands for itself.
    pub(crate) fn before_pattern(&self, pattern: &str) -> String {
        let mut text = String::with_capacity(self.0.len() + pattern.len());
        for letter in self.0.chars() {
            match letter {
                '*' | '?' | '[' | ']' | '\\' => text.extend(['\\', letter]),
                // A rule of Redis cannot contain white space, so each of its bytes becomes a
                // wildcard.
                space if space.is_whitespace() => text.extend((0..space.len_utf8()).map(|_| '?')),
                other => text.push(other),
            }
        }
        if pattern.is_empty() { String::new() } else { text + pattern }
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// With whom a client shares its locks, and how it waits for one. As text: `native` or `redisson`.
///
/// Clients of different profiles exclude each other. They wake each other, and keep an order, only
/// if they use the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WireProfile {
    /// For clients of this crate. Who waits stands in a [line](crate::docs::waiting) that the
    /// server keeps, and a release tells the first in it, on the channel
    /// `redisson_lock__channel__{name}`. A client that can never subscribe to that channel has no
    /// place in the line. It gets the lock only if it is free when the client asks, about every
    /// 5 s, and can starve while others wait.
    #[default]
    Native,
    /// Together with Redisson 3.2 and later. There is no line: a release tells all who wait, on the
    /// channel `redisson_lock__channel:{name}`, and the fastest gets the lock. Only a fair lock has a
    /// queue, that of Redisson. See [the page on Redisson](crate::docs::redisson#fairness).
    Redisson,
}

impl WireProfile {
    fn separator(self) -> &'static str {
        match self {
            Self::Native => "__",
            Self::Redisson => ":",
        }
    }

    /// Whether the server keeps lines of those who wait. Redisson's clients know of none.
    pub(crate) fn has_lines(self) -> bool {
        self == Self::Native
    }

    /// What a semaphore is.
    pub(crate) fn semaphore(self) -> Kind {
        match self {
            Self::Native => Kind::Semaphore,
            Self::Redisson => Kind::PermitExpirable,
        }
    }

    /// What a fair lock is.
    pub(crate) fn fair_lock(self) -> Kind {
        match self {
            Self::Native => Kind::Fair,
            Self::Redisson => Kind::FairQueue,
        }
    }

    /// The channel of a name, or of a pattern of names, that has no braces of its own.
    pub(crate) fn channel_around(self, name: &str) -> String {
        ["redisson_lock__channel", self.separator(), "{", name, "}"].concat()
    }
}

/// The channel on which a client is told that one of its holds was taken away.
pub(crate) fn client_channel(client: &str) -> String {
    format!("redisson_lock__client:{{{client}}}")
}

/// The channel of a latch, or of a pattern of names of latches.
pub(crate) fn latch_channel_around(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// Redisson's `prefixName`: a name that contains a brace is not put in braces.
fn channel_of(profile: WireProfile, name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        profile.channel_around(name)
    }
}

/// The part of a key that Redis Cluster hashes.
fn hashed_part(key: &str) -> &str {
    let Some(open) = key.find('{') else { return key };
    let rest = &key[open + 1..];
    match rest.find('}') {
        Some(close) if close > 0 => &rest[..close],
        _ => key,
    }
}

/// The cluster slot of a key (CRC16/XMODEM of the hashed part, modulo 16,384).
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16(hashed_part(key).as_bytes()) % SLOTS
}

pub(crate) const SLOTS: u16 = 16_384;

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc16_of_next(crc, byte))
}

fn crc16_of_next(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC16_OF_BYTES[usize::from(crc.to_be_bytes()[0] ^ byte)]
}

const CRC16_OF_BYTES: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// For each slot, the smallest number that hashes to it in decimal digits: one short and stable tag
/// per slot.
fn slot_tags() -> &'static [u32] {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        // The hash of each number so far. The next numbers are these with one more digit.
        let mut hashes: Vec<u16> = Vec::new();
        for candidate in 0u32.. {
            if missing == 0 {
                break;
            }
            let leading = if candidate < 10 { 0 } else { hashes[candidate as usize / 10] };
            let hash = crc16_of_next(leading, b"0123456789"[candidate as usize % 10]);
            hashes.push(hash);
            let tag = &mut tags[usize::from(hash % SLOTS)];
            if tag.is_none() {
                *tag = Some(candidate);
                missing -= 1;
            }
        }
        tags.into_iter().flatten().collect()
    })
}

#[cfg(all(test, repository))]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_stands_before_every_name_and_brings_whole_braces_or_none() {
        for allowed in ["", "orders:", "{orders}:", "a{b}c", "ä ", "*?[x]\\"] {
            assert!(Prefix::new(allowed).is_ok(), "{allowed}");
        }
        let long = "x".repeat(MAX_NAME_BYTES);
        for refused in ["{", "}", "{}", "a{b", "a}b{c}", "{a}{b}", "}{", "a\n", &long] {
            let error = Prefix::new(refused).unwrap_err();
            assert!(matches!(error, Error::InvalidOption { option: "prefix", .. }), "{refused}");
        }
        let prefix = Prefix::new("o*[1] ä:").unwrap();
        assert_eq!(prefix.before("42"), "o*[1] ä:42");
        assert_eq!(prefix.before_pattern("4?"), "o\\*\\[1\\]?ä:4?");
        // An empty name is refused because it is empty.
        assert_eq!((prefix.before("").as_ref(), prefix.before_pattern("").as_str()), ("", ""));
    }

    #[test]
    fn a_prefix_and_a_name_together_are_none_of_our_keys() {
        for reserved in RESERVED {
            for refused in [reserved.to_owned(), format!("{reserved}_of_ours:")] {
                let error = Prefix::new(&refused).unwrap_err().to_string();
                assert!(error.contains(&format!("begins with `{reserved}`")), "{error}");
            }
            let (start, end) = reserved.split_at("redisson_lock_".len());
            let name = Prefix::new(start).unwrap().before(end).into_owned();
            assert!(LockName::new(&name).is_err(), "{name}");
            let name = Prefix::new("orders:").unwrap().before(reserved).into_owned();
            assert!(LockName::new(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn slots_match_redis() {
        // CLUSTER KEYSLOT of redis-server 7.0.15
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
    }

    #[test]
    fn a_name_knows_its_slot() {
        for number in 0..1_000 {
            let text = format!("ü:{number}");
            let name = LockName::new(&text).unwrap();
            assert_eq!((name.as_str(), name.slot()), (text.as_str(), slot_of(&text)));
            assert_eq!(
                (format!("{name}"), format!("{name:?}")),
                (text.clone(), format!("{text:?}"))
            );
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_texts() {
        let texts = ["a", "a ", "a!", "aa", "ab", "b", "ü"];
        let names = texts.map(|text| LockName::new(text).unwrap());
        assert!(names.is_sorted());
    }

    #[test]
    fn every_slot_has_a_fence_in_that_slot() {
        for (slot, tag) in slot_tags().iter().enumerate() {
            assert_eq!(usize::from(slot_of(&format!("redisson_lock_fence:{{{tag}}}"))), slot);
        }
        let name = LockName::new("orders:42").unwrap();
        assert_eq!(slot_of(&name.fence_key()), slot_of("orders:42"));
    }

    #[test]
    fn a_name_beside_another_is_in_its_slot() {
        for text in ["orders:42", "{a}b", "a{b}c", "{{foo}}", "ü"] {
            let name = LockName::new(text).unwrap();
            let beside = name.beside(u32::MAX - 5).unwrap();
            assert!(beside.as_str().starts_with(text) && beside != name);
            assert_eq!(beside.slot(), name.slot());
        }
        assert!(LockName::new(&"x".repeat(495)).unwrap().beside(1_000_000_000).is_none());
    }

    #[test]
    #[cfg(repository)]
    fn a_name_beside_another_is_of_its_kind() {
        let pair = LockName::new("orders:42").unwrap().of_kind(Kind::Pair);
        assert_eq!(pair.beside(7).unwrap().kind(), Kind::Pair);
    }

    #[test]
    fn channels_are_spelled_as_documented() {
        let plain = LockName::new("orders:42").unwrap();
        assert_eq!(&*plain.channel(WireProfile::Native), "redisson_lock__channel__{orders:42}");
        assert_eq!(&*plain.channel(WireProfile::Redisson), "redisson_lock__channel:{orders:42}");
        let tagged = LockName::new("{a}b").unwrap();
        assert_eq!(&*tagged.channel(WireProfile::Native), "redisson_lock__channel:{a}b");
        assert_eq!(&*tagged.channel(WireProfile::Redisson), "redisson_lock__channel:{a}b");
    }

    #[test]
    fn lines_are_spelled_as_documented() {
        for (text, line) in [
            ("orders:42", "redisson_lock_line__{orders:42}"),
            ("{a}b", "redisson_lock_line:{a}b"),
            ("a{b}c", "redisson_lock_line:a{b}c"),
            ("{{foo}}", "redisson_lock_line:{{foo}}"),
        ] {
            let name = LockName::new(text).unwrap();
            assert_eq!((name.line_key().as_str(), slot_of(line)), (line, name.slot()));
            let mut words = "before ".to_owned();
            name.add_line_key(&mut words);
            assert_eq!(words, format!("before {line}"));
        }
    }

    #[test]
    fn queues_are_spelled_as_redisson_does_it() {
        for (text, after) in [("orders:42", "{orders:42}"), ("{a}b", "{a}b"), ("a{b}c", "a{b}c")] {
            let name = LockName::new(text).unwrap();
            let (queue, deadlines) = (name.queue_key(), name.deadlines_key());
            assert_eq!(queue, format!("redisson_lock_queue:{after}"));
            assert_eq!(deadlines, format!("redisson_lock_timeout:{after}"));
            assert_eq!((slot_of(&queue), slot_of(&deadlines)), (name.slot(), name.slot()));
        }
    }

    #[test]
    #[cfg(repository)]
    fn permits_are_in_the_slot_of_their_name() {
        for (text, permits) in
            [("exports", "{exports}:timeout"), ("{a}b", "{a}b:timeout"), ("a{b}c", "a{b}c:timeout")]
        {
            let name = LockName::new(text).unwrap();
            assert_eq!((name.permits_key().as_str(), slot_of(permits)), (permits, name.slot()));
        }
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        let long = "x".repeat(513);
        let huge = "x".repeat(1 << 20);
        let cases = [
            ("", "empty"),
            (long.as_str(), "513 bytes"),
            (huge.as_str(), "1048576 bytes"),
            ("a\0b", "control character"),
            ("a\nb", "control character"),
            ("{}x", "braces"),
            ("a{b", "braces"),
            ("a}b", "braces"),
            ("a{}{b}", "braces"),
            ("redisson_lock_fence:{0}", "begins with `redisson_lock_fence`"),
            ("redisson_lock_line", "begins with `redisson_lock_line`"),
            ("redisson_lock_line__{a}", "do not begin with `redisson_lock_line`, "),
            ("redisson_lock_marks:{a}", "begins with `redisson_lock_marks`"),
            ("redisson_latch_op:{a}:1", "begins with `redisson_latch_op`"),
        ];
        for (name, wanted) in cases {
            let error = LockName::new(name).unwrap_err();
            assert!(error.to_string().contains(wanted), "{name:.20?}: {error}");
            assert!(error.is_config());
            assert!(error.to_string().len() < 400, "the message repeats a huge name");
        }
        for name in [
            "a",
            "{a}b",
            "ä-ö",
            "a b",
            "x".repeat(512).as_str(),
            "{{foo}}",
            "redisson_lock_",
            "a:redisson_lock_line",
        ] {
            LockName::new(name).unwrap();
        }
    }
}
