//! The list of the rules. The library includes it only with `--cfg seeded`; `xtask` includes it, too.

/// What notices that a rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finder {
    /// The simulation, within so many seeds.
    Sim(u64),
    /// A unit test of the library.
    Test(&'static str),
}

macro_rules! rules {
    ($($(#[doc = $line:literal])+ $rule:ident: $finder:ident($found_by:literal),)+) => {
        /// A rule that can be broken. Numbers are those of the list of what must be true, in `docs/proof.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Rule {
            $($(#[doc = $line])+ $rule,)+
        }

        impl Rule {
            pub(crate) const ALL: &[Self] = &[$(Self::$rule),+];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => stringify!($rule),)+
                }
            }

            /// What the rule says.
            pub(crate) fn words(self) -> &'static str {
                match self {
                    $(Self::$rule => concat!($($line),+).trim_ascii(),)+
                }
            }

            pub(crate) fn finder(self) -> Finder {
                match self {
                    $(Self::$rule => Finder::$finder($found_by),)+
                }
            }
        }
    };
}

rules! {
    /// A hold id is never used again.
    HoldIdIsNew: Sim(500),
    /// Scripts take the hold count that is wanted, never one more.
    CountIsAbsolute: Sim(500),
    /// Nothing is granted after `not_after`.
    NotAfter: Sim(500),
    /// The release of a dead hold id is repeated until the server's time is past `not_after`.
    CleanUpUntilNotAfter: Sim(500),
    /// Renewals end before the release is sent.
    RenewalsEndFirst: Sim(500),
    /// A hold is renewed once its guard is picked up.
    RenewedOncePickedUp: Sim(500),
    /// Validity counts from before the request was sent.
    ValidityFromSending: Sim(500),
    /// Validity counts on a clock that runs through suspend.
    ClockThroughSuspend: Test("base::clock::tests::suspend_counts"),
    /// A hold whose key is gone is lost with the answer that says so.
    GoneIsLost: Sim(500),
    /// A subscription is confirmed before the last attempt ahead of the sleep.
    AttemptOnceSubscribed: Sim(2_000),
    /// A new connection, and a channel that is subscribed anew, wake the contender.
    ReconnectWakes: Sim(2_000),
    /// The duty to try passes on with the contender's role.
    DutyPassesOn: Sim(2_000),
    /// The last release always publishes.
    ReleasePublishes: Sim(2_000),
    /// Only the hold's own field can be released.
    OwnFieldReleased: Sim(500),
    /// The token grows through lost data.
    TokenGrowsThroughLoss: Sim(2_000),
    /// A re-entry has the token of its hold.
    ReentryKeepsToken: Sim(500),
}

/// Rules that scripts keep: what stands in their texts, and what does when the rule is broken.
pub(crate) const SCRIPTS: &[(Rule, &str, &str)] = &[
    (
        Rule::CountIsAbsolute,
        "redis.call(\"HSET\", lock, field, count)\n  if pttl",
        "redis.call(\"HSET\", lock, field, tonumber(mine) + 1)\n  if pttl",
    ),
    (Rule::NotAfter, "if now > not_after then return {-1, now} end\n\nlocal pttl", "\nlocal pttl"),
    (
        Rule::OwnFieldReleased,
        "if redis.call(\"HDEL\", lock, field) == 0 then return {-3, now} end",
        "redis.call(\"DEL\", lock)",
    ),
    (
        Rule::ReleasePublishes,
        "field) == 0 then return {-3, now} end\nlocal receivers = redis.pcall(verb, channel, \"0\")",
        "field) == 0 then return {-3, now} end\nlocal receivers = 0",
    ),
    (Rule::TokenGrowsThroughLoss, "local token = now", "local token = 1"),
];
