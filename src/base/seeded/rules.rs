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
        /// A rule that can be broken. The groups are those of "Which rule is kept where" in `ARCHITECTURE.md`.
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
    // Repeating a command changes nothing.
    /// A hold id is never used again.
    HoldIdIsNew: Sim(100),
    /// After an attempt without an answer the next one has a new hold id.
    NewIdAfterUnknown: Sim(500),
    /// Scripts take the hold count that is wanted, never one more.
    CountIsAbsolute: Sim(100),
    /// A further level needs its hold, and never takes a free lock.
    NestedNeedsItsHold: Sim(500),
    /// A repeated acquire never shortens the time to live.
    RepeatNeverShortens: Sim(500),
    /// A release looks for its field, and compares no counts.
    ReleaseComparesNoCounts: Sim(500),
    /// One command of a hold is on the wire at a time, renewals apart.
    OneCommandAtATime: Sim(500),
    /// A release without an answer is sent again.
    ReleaseIsRepeated: Sim(500),

    // A grant that no caller takes is undone.
    /// Nothing is granted after `not_after`.
    NotAfter: Sim(100),
    /// `not_after` follows the earliest time that the server's clock may show.
    NotAfterIsNotLate: Sim(500),
    /// An attempt without an answer leaves a dead hold id, which is released.
    UnknownIsCleanedUp: Sim(500),
    /// The same is true of the hold that a hand-off without an answer was to grant.
    HandOffIsCleanedUp: Sim(500),
    /// The release of a dead hold id is repeated until the server's time is past `not_after`.
    CleanUpUntilNotAfter: Sim(100),
    /// A name is not tried again before the release of its dead hold ids is on its way.
    DeadIdsFirst: Sim(500),
    /// A grant whose caller has gone is released.
    UntakenGrantIsUndone: Sim(500),
    /// A grant that came after its validity was over is nobody's.
    LateGrantIsNobodys: Sim(500),
    /// A grant that its caller does not pick up is taken back.
    OfferEnds: Sim(500),
    /// A late hand-off grants nothing.
    LateHandOffGrantsNothing: Sim(500),

    // No lock is held forever.
    /// Renewals end before the release is sent.
    RenewalsEndFirst: Sim(500),
    /// A grant is not renewed before its caller has picked it up.
    UntakenIsNotRenewed: Sim(500),
    /// A late renewal extends nothing.
    LateRenewalExtendsNothing: Sim(500),
    /// A renewal never creates the key.
    RenewalNeverCreates: Sim(500),
    /// After a hand-off the key has a time to live.
    HandOffSetsTimeToLive: Sim(500),
    /// No lease that is sent goes beyond the end of `max_hold`.
    MaxHoldCutsLeases: Sim(500),
    /// After a hand-off without an answer the hold that was to end is released alone.
    HandOffReleasesFirst: Sim(500),
    /// A name stays taken for `at_least`.
    AtLeastIsKept: Sim(500),
    /// A level that no caller took has no `at_least`.
    UntakenLevelKeepsNothing: Sim(500),
    /// A guard that was left to its lease is not released.
    LeftIsNotReleased: Sim(500),

    // Validity counts from before sending.
    /// Validity counts from before the request was sent.
    ValidityFromSending: Sim(100),
    /// Validity counts on a clock that runs through suspend.
    ClockThroughSuspend: Test("base::clock::tests::suspend_counts"),
    /// A hold is renewed once its guard is picked up.
    RenewedOncePickedUp: Sim(100),
    /// A renewal that failed is repeated soon.
    FailedRenewalIsRepeated: Sim(500),
    /// A renewal never shortens the time to live.
    RenewalNeverShortens: Sim(500),
    /// A hold whose key is gone is lost with the answer that says so.
    GoneIsLost: Sim(100),
    /// A hold that a server lost with its data ends with that reason.
    LostDataIsTold: Sim(500),
    /// A hint that a lock was taken away is looked into.
    HintIsChecked: Sim(500),

    // No lost wake-up.
    /// A subscription is confirmed before the last attempt ahead of the sleep.
    AttemptOnceSubscribed: Sim(500),
    /// Only the answer to the newest SUBSCRIBE counts.
    NewestSubscribeCounts: Sim(500),
    /// A message that comes during an attempt leads to the next one.
    WakeUpDuringAttempt: Sim(500),
    /// A new connection, and a channel that is subscribed anew, wake the contender.
    ReconnectWakes: Sim(500),
    /// Slots that move to another server wake the contenders of their names.
    MovedSlotsWake: Sim(500),
    /// A lost hold wakes the waiters of its name in the same client.
    LossWakes: Sim(500),
    /// The duty to try passes on with the contender's role.
    DutyPassesOn: Sim(1_000),
    /// A contender sleeps at most until the holder's time to live ends.
    SleepEndsWithKey: Sim(500),
    /// A contender never sleeps without an end.
    SleepEnds: Sim(500),
    /// The last release always publishes.
    ReleasePublishes: Sim(100),

    // One release wakes one waiter per process, and others get their turn.
    /// While a client has the lock, its waiters send nothing.
    OwnHoldFirst: Sim(500),
    /// After 16 hand-offs, or 50 ms of them, other clients may have the lock.
    HandOffsEnd: Sim(500),

    // Only the owner releases and renews.
    /// Only the hold's own field can be released.
    OwnFieldReleased: Sim(100),
    /// A force-unlock removes the hold that it names, and no other.
    ForceNamesItsHold: Sim(500),

    // Guards work anywhere, and everything is bounded.
    /// `Guard::run` does not poll its future past the end of the hold.
    RunEndsWithHold: Test("locks::guard::tests"),
    /// Scripts of releases that nobody waits for are counted until they are answered.
    DropsAreCounted: Sim(500),
    /// A hold has at most 65,535 levels.
    HoldCountIsBounded: Test("engine::tests::limits"),
    /// A name has at most 100,000 waiters in one client.
    QueueIsBounded: Test("engine::tests::limits"),

    // Tokens grow.
    /// The token grows through lost data.
    TokenGrowsThroughLoss: Sim(500),
    /// A re-entry has the token of its hold.
    ReentryKeepsToken: Sim(100),

    // A server's times count for that server only, and outages end.
    /// A reply tells the time of the server that answered, not of the one that was asked.
    TimesOfOneServer: Sim(500),
    /// What was known of a server's clock is forgotten with the connection.
    NewConnectionNewClock: Sim(500),
    /// A jump of the server's clock is noticed, and what was known of it forgotten.
    ClockJumpIsSeen: Sim(500),
    /// `lock()` ends after `outage_limit` without a good answer.
    OutageHasALimit: Sim(500),
    /// A call on its way when its connection breaks may have been executed.
    BrokenConnectionIsUnknown: Test("backend::redis::calls::tests"),
    /// The answers of a deposed primary do not count.
    DeposedIsNotBelieved: Test("backend::redis::calls::tests"),
    /// Nor do those of a node of a cluster that another one has followed by then.
    FrozenPrimaryIsUnknown: Test("backend::redis::cluster::tests"),
}

/// Rules that scripts keep: what stands in their texts, and what does when the rule is broken.
pub(crate) const SCRIPTS: &[(Rule, &str, &str)] = &[
    (
        Rule::CountIsAbsolute,
        r#""HSET", lock, field, count)
  if pttl"#,
        r#""HSET", lock, field, tonumber(mine) + 1)
  if pttl"#,
    ),
    (Rule::NestedNeedsItsHold, "if pttl == -2 and count > 1 then return {-2, now} end", ""),
    (
        Rule::RepeatNeverShortens,
        "if pttl < lease then redis.call(\"PEXPIRE\", lock, lease_text) end",
        "redis.call(\"PEXPIRE\", lock, lease_text)",
    ),
    (
        Rule::RepeatNeverShortens,
        "if pttl < lease then redis.call(\"PEXPIRE\", lock, lease) end",
        "redis.call(\"PEXPIRE\", lock, lease)",
    ),
    (
        Rule::ReleaseComparesNoCounts,
        "-- With its last field the key is gone.\n",
        "if redis.call(\"HGET\", lock, field) ~= \"1\" then return {-3, now} end\n",
    ),
    (Rule::NotAfter, "if now > not_after then return {-1, now} end\n\nlocal pttl", "\n\nlocal pttl"),
    (Rule::LateHandOffGrantsNothing, "local late = now > not_after", "local late = false"),
    (
        Rule::LateRenewalExtendsNothing,
        "if now > not_after then return {-1, now} end\n\nlocal function renew",
        "\n\nlocal function renew",
    ),
    (
        Rule::RenewalNeverCreates,
        "if redis.call(\"EXISTS\", lock) == 0 then return 0 end",
        "if redis.call(\"EXISTS\", lock) == 0 then redis.call(\"HSET\", lock, field, \"1\") redis.call(\"PEXPIRE\", lock, lease) return 1 end",
    ),
    (Rule::HandOffSetsTimeToLive, "redis.call(\"PEXPIRE\", lock, ARGV[3])\nreturn", "return"),
    (
        Rule::RenewalNeverShortens,
        "if lease > 1 and redis.call(\"PTTL\", lock) < lease then",
        "if lease > 1 then",
    ),
    (
        Rule::ReleasePublishes,
        "field) == 0 then return {-3, now} end\nlocal receivers = redis.pcall(verb, channel, \"0\")",
        "field) == 0 then return {-3, now} end\nlocal receivers = 0",
    ),
    (
        Rule::OwnFieldReleased,
        "if redis.call(\"HDEL\", lock, field) == 0 then return {-3, now} end",
        "redis.call(\"DEL\", lock)",
    ),
    (
        Rule::ForceNamesItsHold,
        "if redis.call(\"HDEL\", lock, expected) == 0 then return {-3, now} end",
        "redis.call(\"DEL\", lock)",
    ),
    (Rule::TokenGrowsThroughLoss, "local token = now", "local token = 1"),
];
