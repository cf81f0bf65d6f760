//! The exact permissions that a Redis user needs: the rules of `ACL SETUSER`.

use std::collections::BTreeSet;
use std::fmt;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::name::DEADLINES_PREFIX;
use crate::base::name::HEARD_PREFIX;
use crate::base::name::LINE_PREFIX;
use crate::base::name::LockName;
use crate::base::name::MARKS_PREFIX;
use crate::base::name::QUEUE_PREFIX;
use crate::base::name::WireProfile;
use crate::base::name::latch_channel_around;
use crate::settings::config::Sharding;
use crate::settings::config::Topology;

/// The commands that the scripts call, and those that are sent directly.
const COMMANDS: &[&str] = &[
    "ping",
    "info",
    "time",
    "eval",
    "evalsha",
    "subscribe",
    "unsubscribe",
    "publish",
    "pttl",
    "exists",
    "type",
    "pexpire",
    "persist",
    "hget",
    "hset",
    "hdel",
    "hlen",
    "hexists",
    "hkeys",
    "hgetall",
    "get",
    "set",
];
/// What scripts call on the waiting line of a name. There is none in the profile `Redisson`.
pub(super) const ON_LINE: [&str; 5] = ["zadd", "zrem", "zscore", "zrange", "zcount"];
/// What scripts call on the marks of a fair lock.
pub(super) const ON_MARKS: [&str; 3] = ["sismember", "sadd", "srem"];
/// What scripts call on the two keys of a queue of Redisson.
pub(super) const ON_QUEUE: [&str; 4] = ["lrange", "lpop", "rpush", "lrem"];
pub(super) const ON_DEADLINES: [&str; 4] = ["zadd", "zrem", "zscore", "zincrby"];
/// What scripts call on latches beside that.
const ON_LATCH: [&str; 3] = ["hmget", "hincrby", "del"];
const ON_LATCH_OF_REDISSON: [&str; 2] = ["decr", "del"];
/// What scripts call on semaphores beside that.
const ON_SEMAPHORE: [&str; 5] = ["hmget", "del", "zcard", "zrangebyscore", "zremrangebyscore"];
const ON_SEMAPHORE_OF_REDISSON: [&str; 9] = [
    "incrby",
    "del",
    "zadd",
    "zrem",
    "zscore",
    "zcount",
    "zcard",
    "zrangebyscore",
    "zremrangebyscore",
];
/// What scripts call on read-write locks beside that.
const ON_RW_LOCK: [&str; 2] = ["hrandfield", "del"];
/// To find the slots, and to follow a slot that moves.
const IN_CLUSTER: &[&str] = &["cluster|slots", "asking"];
const SHARDED: &[&str] = &["ssubscribe", "sunsubscribe", "spublish"];
/// To find out whether all nodes support sharded pub/sub.
const TO_DECIDE: &str = "pubsub|shardnumsub";
const ON_SENTINELS: &[&str] =
    &["ping", "subscribe", "sentinel|get-master-addr-by-name", "sentinel|master"];

/// The exact permissions that a client needs for the locks that match some name patterns.
///
/// [`LockClient::required_acl`](crate::LockClient::required_acl) makes one with a client's
/// settings, [`new`](Self::new) makes one without a client. As text it is the line to run on every
/// server that holds data; for [`Topology::Sentinel`] there is a second line, to run on the
/// sentinels. The rules are those of Redis 6.2 and later and of Valkey. A cluster of Redis 6.2 has
/// no sharded pub/sub and refuses its rules: use [`Sharding::Off`] there.
///
/// ```
/// use redis_reentrant_lock::RequiredAcl;
///
/// let acl = RequiredAcl::new(["orders:*"])?.user("orders-service")?;
/// let line = acl.to_string();
/// assert!(line.starts_with("ACL SETUSER orders-service reset on #<SHA-256 of the password> resetchannels ~orders:*"));
/// assert!(line.contains(" &redisson_lock__channel__{orders:*} "));
/// assert!(line.contains(" +evalsha "));
/// # Ok::<(), redis_reentrant_lock::Error>(())
/// ```
///
/// A password is never part of it. Put its SHA-256 after the `#`, in 64 hexadecimal digits, or
/// replace that word by `>password`. Redis refuses the line as it stands.
#[derive(Debug, Clone)]
#[must_use]
pub struct RequiredAcl {
    user: String,
    patterns: Vec<Pattern>,
    profile: WireProfile,
    topology: Topology,
    sharding: Sharding,
    database: bool,
    latches: bool,
    semaphores: bool,
    rw_locks: bool,
    fair_locks: bool,
}

impl RequiredAcl {
    /// For the names that match any of these patterns, in Redis's own syntax: `orders:*`,
    /// `invoice:?:[0-9]*`, or a name. To match `*`, `?`, `[` or `\` itself, write `\*` and so on;
    /// braces need no escape. `?` and `[…]` stand for one byte, and a letter beyond ASCII has
    /// several: `??` for `ä`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`]: no pattern, an empty one, one with white space (Redis allows none
    /// in a rule: write `?` for each of its bytes) or control characters, one longer than 512
    /// bytes, an open `[`, or a `\` at the end.
    /// [`Error::InvalidName`]: a pattern without wildcards that is not allowed as a name.
    pub fn new(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let parse = |text| Pattern::parse(AsRef::<str>::as_ref(&text));
        let patterns: Vec<Pattern> = patterns.into_iter().map(parse).collect::<Result<_>>()?;
        if patterns.is_empty() {
            return Err(Error::InvalidOption {
                option: "number of ACL name patterns",
                given: "0".to_owned(),
                allowed: "at least one".to_owned(),
            });
        }
        Ok(Self {
            user: "locks".to_owned(),
            patterns,
            profile: WireProfile::default(),
            topology: Topology::default(),
            sharding: Sharding::default(),
            database: false,
            latches: false,
            semaphores: false,
            rw_locks: false,
            fair_locks: false,
        })
    }

    /// The Redis user's name. Default: `locks`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if it is empty or contains white space or control characters.
    pub fn user(mut self, name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let allowed = "a name without white space and control characters".to_owned();
            return Err(Error::InvalidOption { option: "user", given: shown(name), allowed });
        }
        name.clone_into(&mut self.user);
        Ok(self)
    }

    /// As in [`LockClientBuilder::profile`](crate::LockClientBuilder::profile). Only
    /// [`WireProfile::Native`] has waiting lines, keys beside the locks, and needs permissions for
    /// them.
    pub fn profile(mut self, profile: WireProfile) -> Self {
        self.profile = profile;
        self
    }

    /// How the servers form a deployment. Default: [`Topology::Single`].
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// Whether wake-ups use sharded pub/sub, which Redis has since 7.0. Default:
    /// [`Sharding::Auto`], which matters in a cluster only.
    pub fn sharding(mut self, sharding: Sharding) -> Self {
        self.sharding = sharding;
        self
    }

    /// For a database other than 0: adds `+select`.
    pub fn other_database(mut self, other: bool) -> Self {
        self.database = other;
        self
    }

    /// Whether the names are those of [count-down latches](crate::CountDownLatch), too. Default: no.
    pub fn latches(mut self, latches: bool) -> Self {
        self.latches = latches;
        self
    }

    /// Whether the names are those of [semaphores](crate::Semaphore), too. Default: no.
    pub fn semaphores(mut self, semaphores: bool) -> Self {
        self.semaphores = semaphores;
        self
    }

    /// Whether the names are those of [read-write locks](crate::RwLock), too. Default: no.
    pub fn rw_locks(mut self, rw_locks: bool) -> Self {
        self.rw_locks = rw_locks;
        self
    }

    /// Whether the names are those of [fair locks](crate::FairLock), too. Default: no.
    pub fn fair_locks(mut self, fair_locks: bool) -> Self {
        self.fair_locks = fair_locks;
        self
    }

    /// The rules alone, without a user and a password: `~orders:*`, `&redisson_lock__client:*`,
    /// `+evalsha` and so on.
    pub fn rules(&self) -> Vec<String> {
        let mut rules = vec!["resetchannels".to_owned()];
        rules.extend(self.keys().into_iter().map(|key| format!("~{key}")));
        rules.extend(self.channels().into_iter().map(|channel| format!("&{channel}")));
        rules.extend(self.commands().into_iter().map(|command| format!("+{command}")));
        rules
    }

    /// The line for every server that holds data: the primaries, and the replicas that may be
    /// promoted. Redis does not replicate it.
    pub fn line(&self) -> String {
        self.line_of(&self.rules())
    }

    /// The line for every sentinel, if there are any. Sentinels have users of their own. Only the
    /// question for the primary's address is required. Without the rest, a failover is noticed
    /// seconds later, and a sentinel that lags behind may be believed.
    pub fn sentinel_line(&self) -> Option<String> {
        (self.topology == Topology::Sentinel).then(|| self.line_of(&self.sentinel_rules()))
    }

    fn line_of(&self, rules: &[String]) -> String {
        format!("ACL SETUSER {} reset on #<SHA-256 of the password> {}", self.user, rules.join(" "))
    }

    fn sentinel_rules(&self) -> Vec<String> {
        let mut rules = vec!["resetchannels".to_owned(), "&+switch-master".to_owned()];
        rules.extend(ON_SENTINELS.iter().map(|command| format!("+{command}")));
        rules
    }

    fn keys(&self) -> BTreeSet<String> {
        // After `~*`, Redis accepts no other key rule.
        if self.patterns.iter().any(Pattern::matches_everything) {
            return BTreeSet::from(["*".to_owned()]);
        }
        let mut keys: BTreeSet<String> = self
            .patterns
            .iter()
            .flat_map(|pattern| [pattern.to_string(), pattern.fence()])
            .collect();
        if self.profile.has_lines() {
            keys.extend(self.patterns.iter().flat_map(Pattern::lines));
        }
        if self.latches || self.semaphores {
            keys.extend(self.patterns.iter().flat_map(Pattern::operations));
        }
        if self.semaphores {
            keys.extend(self.patterns.iter().flat_map(Pattern::permits));
        }
        if self.semaphores && self.profile.has_lines() {
            keys.extend(self.patterns.iter().flat_map(Pattern::heard));
        }
        match self.profile {
            _ if !self.fair_locks => {}
            WireProfile::Native => keys.extend(self.patterns.iter().flat_map(Pattern::marks)),
            WireProfile::Redisson => keys.extend(self.patterns.iter().flat_map(Pattern::queues)),
        }
        if self.rw_locks {
            keys.extend(self.patterns.iter().flat_map(Pattern::readers));
        }
        keys
    }

    fn channels(&self) -> BTreeSet<String> {
        let mut channels: BTreeSet<String> =
            self.patterns.iter().flat_map(|pattern| pattern.channels(self.profile)).collect();
        channels.insert("redisson_lock__client:*".to_owned());
        if self.fair_locks && self.profile == WireProfile::Redisson {
            let of_names = self.patterns.iter().flat_map(|pattern| pattern.channels(self.profile));
            // Each of those who wait has one.
            channels.extend(of_names.map(|channel| format!("{channel}:*")));
        }
        if self.latches {
            let channel = |pattern: &Pattern| latch_channel_around(&pattern.to_string());
            channels.extend(self.patterns.iter().map(channel));
        }
        if self.semaphores {
            channels.extend(self.patterns.iter().flat_map(Pattern::semaphore_channels));
        }
        if self.rw_locks {
            channels.extend(self.patterns.iter().flat_map(Pattern::rw_channels));
        }
        channels
    }

    fn commands(&self) -> Vec<&'static str> {
        let in_cluster = self.topology == Topology::Cluster;
        let mut commands = COMMANDS.to_vec();
        if self.profile.has_lines() {
            commands.extend(ON_LINE);
        }
        match self.profile {
            _ if !self.latches => {}
            WireProfile::Native => commands.extend(ON_LATCH),
            WireProfile::Redisson => commands.extend(ON_LATCH_OF_REDISSON),
        }
        match self.profile {
            _ if !self.semaphores => {}
            WireProfile::Native => commands.extend(ON_SEMAPHORE),
            WireProfile::Redisson => commands.extend(ON_SEMAPHORE_OF_REDISSON),
        }
        match self.profile {
            _ if !self.fair_locks => {}
            WireProfile::Native => commands.extend(ON_MARKS),
            WireProfile::Redisson => {
                commands.extend(ON_QUEUE);
                commands.extend(ON_DEADLINES);
            }
        }
        if self.rw_locks {
            commands.extend(ON_RW_LOCK);
        }
        // Each kind names what it needs beside the reentrant lock.
        let mut seen = BTreeSet::new();
        commands.retain(|command| seen.insert(*command));
        if in_cluster {
            commands.extend(IN_CLUSTER);
        }
        if self.sharding == Sharding::On || self.sharding == Sharding::Auto && in_cluster {
            commands.extend(SHARDED);
        }
        if self.sharding == Sharding::Auto && in_cluster {
            commands.push(TO_DECIDE);
        }
        if self.database {
            commands.push("select");
        }
        commands
    }
}

impl fmt::Display for RequiredAcl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match self.sentinel_line() {
            Some(line) => write!(f, "\n# on every sentinel:\n{line}"),
            None => Ok(()),
        }
    }
}

/// A pattern of lock names.
#[derive(Debug, Clone)]
struct Pattern(Vec<Token>);

#[derive(Debug, Clone)]
enum Token {
    Literal(char),
    /// `*`
    Many,
    /// `?`
    One,
    /// `[…]` as it was written, and whether it matches a `{`.
    Class(String, bool),
}

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let refuse = |allowed: &str| Err(invalid_pattern(text, allowed));
        if text.is_empty() || text.len() > 512 {
            return refuse("1 to 512 bytes");
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return refuse(
                "without white space and control characters; `?` stands for any one byte",
            );
        }
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            let token = match first {
                '*' => {
                    rest = rest.trim_start_matches('*');
                    Token::Many
                }
                '?' => Token::One,
                '[' => {
                    let Some(length) = class_length(rest) else {
                        return refuse("closed by a `]`: `\\[` is a bracket");
                    };
                    let class = &rest[..length];
                    rest = &rest[length + 1..];
                    Token::Class(class.to_owned(), class_takes_brace(class))
                }
                '\\' => {
                    let Some(escaped) = rest.chars().next() else {
                        return refuse("`\\\\` for a backslash");
                    };
                    rest = &rest[escaped.len_utf8()..];
                    Token::Literal(escaped)
                }
                literal => Token::Literal(literal),
            };
            tokens.push(token);
        }
        let pattern = Self(tokens);
        if let Some(name) = pattern.literal(&pattern.0) {
            LockName::new(&name)?;
        }
        Ok(pattern)
    }

    fn matches_everything(&self) -> bool {
        matches!(self.0[..], [Token::Many])
    }

    /// The text of some tokens, if they match only that.
    fn literal(&self, tokens: &[Token]) -> Option<String> {
        tokens
            .iter()
            .map(|token| if let Token::Literal(c) = token { Some(*c) } else { None })
            .collect()
    }

    /// The fence counter of the one slot that all names are in; otherwise a pattern for all fence
    /// counters.
    fn fence(&self) -> String {
        let fixed = self.literal(&self.0).or_else(|| self.fixed_tag());
        match fixed.and_then(|name| LockName::new(&name).ok()) {
            Some(name) => name.fence_key(),
            None => "redisson_lock_fence:{*}".to_owned(),
        }
    }

    /// The `{tag}` that determines the slot of every name, if there is one.
    fn fixed_tag(&self) -> Option<String> {
        let is = |token: &Token, wanted: char| matches!(token, Token::Literal(c) if *c == wanted);
        let open = self
            .0
            .iter()
            .position(|token| !matches!(token, Token::Literal(_)) || is(token, '{'))?;
        let length = self.0[open..].iter().position(|token| is(token, '}'))?;
        self.literal(&self.0[open..=open + length]).filter(|tag| tag.starts_with('{'))
    }

    /// The wake-up channels of the names.
    fn channels(&self, profile: WireProfile) -> Vec<String> {
        self.spelled(&profile.channel_around(&self.to_string()), "redisson_lock__channel:")
    }

    /// The waiting lines of the names.
    fn lines(&self) -> Vec<String> {
        self.spelled(&format!("{LINE_PREFIX}__{{{self}}}"), &format!("{LINE_PREFIX}:"))
    }

    /// The clients that let a reservation of these names run out.
    fn marks(&self) -> Vec<String> {
        self.spelled(&format!("{MARKS_PREFIX}__{{{self}}}"), &format!("{MARKS_PREFIX}:"))
    }

    /// The queues of fair locks of these names, as Redisson has them, and their deadlines.
    fn queues(&self) -> Vec<String> {
        let of = |prefix: &str| self.spelled(&format!("{prefix}{{{self}}}"), prefix);
        [of(QUEUE_PREFIX), of(DEADLINES_PREFIX)].concat()
    }

    /// Where the outcomes of operations on these names are kept.
    fn operations(&self) -> Vec<String> {
        let of_names = self.spelled(&format!("redisson_latch_op:{{{self}}}"), "redisson_latch_op:");
        of_names.into_iter().map(|key| format!("{key}:*")).collect()
    }

    /// The permits of semaphores of these names.
    fn permits(&self) -> Vec<String> {
        let of_names = self.spelled(&format!("{{{self}}}"), "");
        of_names.into_iter().map(|key| format!("{key}:timeout")).collect()
    }

    /// Those who wait for permits.
    fn heard(&self) -> Vec<String> {
        self.spelled(&format!("{HEARD_PREFIX}__{{{self}}}"), &format!("{HEARD_PREFIX}:"))
    }

    fn semaphore_channels(&self) -> Vec<String> {
        self.spelled(&format!("redisson_sc:{{{self}}}"), "redisson_sc:")
    }

    /// The keys by which readers of the names are known to be alive.
    fn readers(&self) -> Vec<String> {
        let of_names = self.spelled(&format!("{{{self}}}"), "");
        of_names.into_iter().map(|key| format!("{key}:*:rwlock_timeout:1")).collect()
    }

    /// The channels of read-write locks of these names.
    fn rw_channels(&self) -> Vec<String> {
        self.spelled(&format!("redisson_rwlock:{{{self}}}"), "redisson_rwlock:")
    }

    /// Channels or keys that contain the names: `without_brace` for names without a brace; those
    /// of a name with a brace are spelled differently, `before_brace` and the name.
    fn spelled(&self, without_brace: &str, before_brace: &str) -> Vec<String> {
        if self.0.iter().any(|token| matches!(token, Token::Literal('{'))) {
            return vec![format!("{before_brace}{self}")];
        }
        let mut all = vec![without_brace.to_owned()];
        for (index, token) in self.0.iter().enumerate() {
            let with_brace: &[Token] = match token {
                Token::Many => &[Token::Many, Token::Literal('{'), Token::Many],
                Token::One | Token::Class(_, true) => &[Token::Literal('{')],
                Token::Literal(_) | Token::Class(_, false) => continue,
            };
            let tokens = [&self.0[..index], with_brace, &self.0[index + 1..]].concat();
            all.push(format!("{before_brace}{}", Self(tokens)));
        }
        all
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.0 {
            match token {
                Token::Literal(c @ ('*' | '?' | '[' | ']' | '\\')) => write!(f, "\\{c}")?,
                Token::Literal(c) => write!(f, "{c}")?,
                Token::Many => f.write_str("*")?,
                Token::One => f.write_str("?")?,
                Token::Class(class, _) => write!(f, "[{class}]")?,
            }
        }
        Ok(())
    }
}

/// The number of bytes up to the bracket that closes a class.
fn class_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.find(|c| {
        let closes = c == ']' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    })
}

fn class_takes_brace(class: &str) -> bool {
    let (negated, rest) = class.strip_prefix('^').map_or((false, class), |rest| (true, rest));
    let characters: Vec<char> = rest.chars().collect();
    let mut rest = &characters[..];
    let mut found = false;
    while let Some(first) = rest.first() {
        rest = match rest {
            ['\\', escaped, after @ ..] => {
                found |= *escaped == '{';
                after
            }
            [from, '-', to, after @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&'{');
                after
            }
            _ => {
                found |= *first == '{';
                &rest[1..]
            }
        };
    }
    found != negated
}

fn invalid_pattern(given: &str, allowed: &str) -> Error {
    Error::InvalidOption {
        option: "ACL name pattern",
        given: format!("{:?}", shown(given)),
        allowed: allowed.to_owned(),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
