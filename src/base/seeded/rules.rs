//! The list of the rules. The library includes it only with `--cfg seeded`; `xtask` includes it,
//! too.

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
        /// A rule that can be broken, in groups by subject.
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
    // 1. Repeating a command changes nothing.
    /// A hold id is never used again.
    HoldIdIsNew: Sim(100),
    /// After an attempt without an answer the next one has a new hold id.
    NewIdAfterUnknown: Sim(100),
    /// Scripts take the hold count that is wanted, never one more.
    CountIsAbsolute: Sim(100),
    /// A further level needs its hold, and never takes a free lock.
    NestedNeedsItsHold: Test(
        "kinds::reentrant::script_tests::refused_commands_leave_nothing_half_done"
    ),
    /// A repeated acquire never shortens the time to live.
    RepeatNeverShortens: Sim(100),
    /// A release looks for its field, and compares no counts.
    ReleaseComparesNoCounts: Sim(500),
    /// One command of a hold is on the wire at a time, renewals apart.
    OneCommandAtATime: Sim(100),
    /// A release without an answer is sent again.
    ReleaseIsRepeated: Test(
        "engine::tests::alone::an_unknown_release_is_repeated_and_an_absent_key_is_then_success"
    ),

    // 2. A grant that no caller takes is undone.
    /// Nothing is granted after `not_after`.
    NotAfter: Sim(100),
    /// `not_after` follows the earliest time that the server's clock may show.
    NotAfterIsNotLate: Test("engine::server_clock::tests::the_best_lower_bound_counts"),
    /// An attempt without an answer leaves a dead hold id, which is released.
    UnknownIsCleanedUp: Sim(100),
    /// A hand-off without an answer leaves a dead hold id: that of the hold that it was to grant.
    HandOffIsCleanedUp: Sim(100),
    /// The release of a dead hold id is repeated until the server's time is past `not_after`.
    CleanUpUntilNotAfter: Sim(100),
    /// A name is not tried again before the release of its dead hold ids is on its way.
    DeadIdsFirst: Test(
        "engine::tests::conditions::a_name_is_not_tried_before_each_of_its_clean_ups_is_under_way"
    ),
    /// A grant whose caller has gone is released.
    UntakenGrantIsUndone: Sim(100),
    /// A grant that came after its validity was over is nobody's.
    LateGrantIsNobodys: Sim(100),
    /// A grant that its caller does not pick up is taken back.
    OfferEnds: Sim(500),
    /// A late hand-off grants nothing.
    LateHandOffGrantsNothing: Sim(500),
    /// A write beside its owner's read is removed when it has run out: the key goes on with the read.
    LostWriteIsRemoved: Test(
        "engine::tests::read_write::a_write_that_has_run_out_is_removed_from_beside_the_read"
    ),

    // 3. No lock is held forever.
    /// Renewals end before the release is sent.
    RenewalsEndFirst: Sim(500),
    /// A grant is not renewed before its caller has picked it up.
    UntakenIsNotRenewed: Test(
        "engine::tests::details::what_is_not_picked_up_is_asked_about_and_not_extended"
    ),
    /// A late renewal extends nothing.
    LateRenewalExtendsNothing: Sim(100),
    /// A renewal never creates the key.
    RenewalNeverCreates: Sim(1_000),
    /// After a hand-off the key has a time to live.
    HandOffSetsTimeToLive: Sim(100),
    /// No lease that is sent goes beyond the end of `max_hold`.
    MaxHoldCutsLeases: Test(
        "engine::tests::details::no_ttl_reaches_beyond_max_hold_and_its_end_is_a_loss"
    ),
    /// After a hand-off that failed the hold that was to end is released alone.
    HandOffReleasesFirst: Test(
        "engine::tests::unknown::an_unknown_hand_off_kills_the_new_id_and_releases_the_old"
    ),
    /// A name stays taken for `at_least`.
    AtLeastIsKept: Sim(100),
    /// A level that no caller took has no `at_least`.
    UntakenLevelKeepsNothing: Test(
        "engine::tests::kept::a_nested_level_that_nobody_took_counts_for_nothing"
    ),
    /// A guard that was left to its lease is not released.
    LeftIsNotReleased: Sim(500),

    // 4. Validity counts from before sending.
    /// Validity counts from before the request was sent.
    ValidityFromSending: Sim(100),
    /// Validity counts on a clock that runs through suspend.
    ClockThroughSuspend: Test("base::clock::tests::suspend_counts"),
    /// A hold is renewed once its guard is picked up.
    RenewedOncePickedUp: Sim(100),
    /// A renewal that failed is repeated soon.
    FailedRenewalIsRepeated: Test(
        "engine::tests::details::a_renewal_without_an_answer_is_repeated_soon"
    ),
    /// A renewal never shortens the time to live.
    RenewalNeverShortens: Sim(100),
    /// A hold whose key is gone is lost with the answer that says so.
    GoneIsLost: Sim(100),
    /// A hold that a server lost with its data ends with that reason.
    LostDataIsTold: Test("engine::tests::loss::each_loss_has_its_reason"),
    /// A hint that a lock was taken away is looked into.
    HintIsChecked: Test("engine::tests::loss::each_loss_has_its_reason"),

    // 5. No lost wake-up.
    /// A subscription is confirmed before the last attempt ahead of the sleep.
    AttemptOnceSubscribed: Sim(500),
    /// Who is refused after another has subscribed for all tries once more, and so gets its place.
    RefusedLateTriesAgain: Test(
        "engine::tests::permits::who_is_refused_after_another_has_subscribed_tries_once_more"
    ),
    /// Only the answer to the newest SUBSCRIBE counts.
    NewestSubscribeCounts: Test(
        "engine::tests::waiting::a_confirmed_subscription_is_followed_by_one_more_try"
    ),
    /// A message that comes during an attempt leads to the next one.
    WakeUpDuringAttempt: Sim(500),
    /// A new connection, and a channel that is subscribed anew, wake the contender.
    ReconnectWakes: Sim(500),
    /// Slots that move to another server wake the contenders of their names.
    MovedSlotsWake: Sim(1_000),
    /// A lost hold wakes the waiters of its name in the same client.
    LossWakes: Test("engine::tests::details::a_local_loss_wakes_a_contender_that_would_sleep_on"),
    /// The duty to try passes on with the contender's role.
    DutyPassesOn: Test("engine::tests::waiting::the_role_passes_on_with_a_pending_wake_up"),
    /// A contender sleeps at most until the holder's time to live ends.
    SleepEndsWithKey: Sim(100),
    /// A contender never sleeps without an end.
    SleepEnds: Sim(1_000),
    /// The last release always passes the lock on, to the first in line or by a message to all.
    ReleasePublishes: Sim(100),

    // Watching: waiting without acquiring.
    /// Who watches a lock looks at it once more when its subscription is confirmed.
    LookOnceSubscribed: Test(
        "engine::tests::watching::a_watch_looks_once_subscribed_and_ends_when_the_key_is_gone"
    ),
    /// A message that comes during a look at the lock leads to the next look.
    MessageDuringLook: Test(
        "engine::tests::watching::a_message_during_a_look_is_followed_by_another_look"
    ),
    /// A watch ends when another has the lock.
    WatchEndsWithHolder: Test("engine::tests::watching::a_watch_ends_when_another_has_the_lock"),
    /// Who watches looks again at the end of the lease, and after the longest sleep.
    WatchSleepEnds: Test(
        "engine::tests::watching::a_watch_looks_at_the_end_of_the_lease_and_after_the_longest_sleep"
    ),
    /// Whoever holds a lock that others watch releases it with a message, and never hands it off.
    LeaderTellsAll: Test(
        "engine::tests::watching::a_leader_never_hands_off_what_others_watch"
    ),

    /// A look that was on the wire before a call came is not that call's: what it found is over.
    LookAfterCall: Test(
        "engine::tests::watching::a_watcher_that_comes_during_a_look_waits_for_the_next"
    ),
    /// A connection that comes back is a reason to look.
    WatchLooksAfterOutage: Test(
        "engine::tests::watching::a_connection_that_comes_back_is_a_reason_to_look"
    ),
    /// A look without an answer is repeated.
    LookIsRepeated: Test("engine::tests::watching::a_look_without_an_answer_is_repeated"),
    /// A watch ends when there has been no good answer for the outage limit.
    WatchHasAnOutageLimit: Test("engine::tests::watching::a_watch_ends_after_the_outage_limit"),
    /// A subscription of a watch that was refused for now is tried again.
    WatchSubscribesAgain: Test(
        "engine::tests::watching::a_subscription_that_was_refused_for_now_is_tried_again"
    ),

    // The count-down latch, and operations: what is done once.
    /// A latch is open only at 0, or when it is gone.
    LatchOpensAtZero: Test("engine::tests::operations::who_waits_for_a_latch_looks_at_its_count"),
    /// All copies of an operation have its id.
    OperationKeepsItsId: Test(
        "engine::tests::operations::all_copies_are_equal_and_no_two_operations_share_an_id"
    ),
    /// An operation without an answer is sent again.
    OperationIsRepeated: Test(
        "engine::tests::operations::all_copies_are_equal_and_no_two_operations_share_an_id"
    ),
    /// Whoever has no answer asks for as long as the server remembers.
    OperationAsksWhileKept: Test(
        "engine::tests::operations::an_unanswered_caller_asks_for_as_long_as_the_server_remembers"
    ),
    /// "Late" is no proof that nothing was done, once the server may have forgotten.
    LateMayBeForgotten: Test(
        "engine::tests::operations::a_late_answer_in_time_says_that_nothing_was_done"
    ),
    /// An operation of which an earlier copy was executed does nothing.
    OperationIsDoneOnce: Test("kinds::latch::script_tests::in_memory::count_down"),
    /// An operation that comes late does nothing.
    LateOperationDoesNothing: Test("kinds::latch::script_tests::in_memory::try_set_count"),
    /// That there was no latch is remembered: a copy must not count down the next one.
    NoLatchIsRemembered: Test("kinds::latch::script_tests::in_memory::count_down"),
    /// A latch goes only when its count is 0.
    LatchGoesAtZero: Test("kinds::latch::script_tests::in_memory::count_down"),
    /// The last count-down tells those who wait.
    LastCountDownIsTold: Test("kinds::latch::script_tests::in_memory::count_down"),
    /// Whoever deletes a latch tells those who wait.
    DeletionIsTold: Test("kinds::latch::script_tests::in_memory::delete"),
    /// A count is set only if there is none.
    CountIsSetOnce: Test("kinds::latch::script_tests::in_memory::try_set_count"),
    /// What Redis refuses in the middle of an operation was not done, so that a copy does it.
    RefusedIsNotDone: Test("kinds::latch::script_tests::edges"),

    // The read-write lock.
    /// Nobody writes while others read.
    WriteExcludesReaders: Sim(500),
    /// Nobody reads while another writes.
    WriteExcludesLaterReaders: Sim(500),
    /// A writer that waits goes before reads that come later.
    LaterReadsWait: Test("kinds::read_write::script_tests::in_memory::acquire"),
    /// Readers do not wait for a writer that was not heard of for as long as a line lives.
    SilentWriterMakesWay: Test("kinds::read_write::script_tests::in_memory::acquire"),
    /// After a writer all readers that wait go before the next writer.
    ReadersGoAfterWriter: Test("kinds::read_write::script_tests::in_memory::release"),
    /// A reader has a key that says that it is alive.
    ReaderHasItsKey: Sim(500),
    /// The key of a reader ends with its hold.
    ReaderKeyGoes: Test("kinds::read_write::script_tests::in_memory::release"),
    /// A reader whose key is gone does not keep a writer out.
    DeadReaderIsRemoved: Test("kinds::read_write::script_tests::in_memory::upgrade"),
    /// A reader that is alive is not removed.
    LivingReaderStays: Sim(500),
    /// A renewal brings no reader back whose key is gone.
    DeadReaderStaysDead: Test("kinds::read_write::script_tests::in_memory::renew"),
    /// A downgrade lets those in who wait to read.
    DowngradeLetsReadersIn: Test("kinds::read_write::script_tests::in_memory::downgrade"),
    /// A downgrade does not shorten what its owner believes in.
    DowngradeNeverShortens: Test("kinds::read_write::script_tests::in_memory::downgrade"),
    /// Only the owner of the only reader may upgrade.
    UpgradeIsForOne: Test("kinds::read_write::script_tests::in_memory::upgrade"),
    /// What an earlier upgrade has left does not end the read.
    UpgradeKeepsReads: Test("kinds::read_write::script_tests::in_memory::upgrade"),
    /// An owner that only reads does not wait for itself to write.
    ReaderDoesNotAwaitItself: Test(
        "engine::tests::read_write::an_owner_that_only_reads_cannot_wait_to_write"
    ),
    /// The release of a writer does not wait for its slot to arrive.
    WriterNamesLockAlone: Test(
        "engine::tests::read_write::the_release_of_a_writer_names_the_lock_alone_while_its_slot_moves"
    ),

    // The semaphore.
    /// No more permits are granted than there are.
    PermitsAreCounted: Sim(500),
    /// No more permits are reserved than are free.
    ReservedPermitsAreCounted: Sim(500),
    /// What a hold wants is reserved whole or not at all.
    WantIsReservedWhole: Test("kinds::semaphore::script_tests::in_memory::release"),
    /// A permit that has run out is free.
    PermitsRunOut: Test("kinds::semaphore::script_tests::in_memory::acquire"),
    /// A release brings back what it has removed, and no more.
    ReleaseBringsBackItsOwn: Sim(500),
    /// A hold that lacks one of its permits is lost.
    RenewsAllOrNone: Test("kinds::semaphore::script_tests::in_memory::renew"),
    /// Nobody takes permits past those who wait in line.
    PermitsGoByLine: Test("kinds::semaphore::script_tests::in_memory::acquire"),
    /// What a grant leaves goes to those behind it.
    LeftPermitsPassOn: Test("kinds::semaphore::script_tests::in_memory::acquire"),
    /// Who was not heard of for long keeps nobody waiting.
    SilentPlaceMakesWay: Test("kinds::semaphore::script_tests::in_memory::release"),
    /// Who is reserved for has no place in the line any more.
    ReservedPermitsLeaveLine: Test("kinds::semaphore::script_tests::in_memory::release"),
    /// Who wants more than there are is told, and does not wait for ever.
    TooManyAreRefused: Test("kinds::semaphore::script_tests::in_memory::acquire"),
    /// The number that somebody has set holds for everybody.
    NumberIsForAll: Test("kinds::semaphore::script_tests::in_memory::acquire"),
    /// A number of permits is added once, however often the command arrives.
    PermitsAreAddedOnce: Test("kinds::semaphore::script_tests::in_memory::set_permits"),
    /// Where Redisson counts the free permits, what ran out is counted when it is taken back.
    FreePermitsAreCounted: Test("kinds::permit_expirable::script_tests::in_memory::acquire"),
    /// Beside Redisson, a permit's end is later than its lease, by what clocks may be off.
    PermitOutlastsLease: Sim(500),

    // The fair lock.
    /// A fair lock that is freed goes to the one that came first.
    FairGoesToFirst: Test("kinds::fair::script_tests::in_memory::release"),
    /// Who asks for a free fair lock lets those who came earlier go first.
    FairAttemptWaitsItsTurn: Test("kinds::fair::script_tests::in_memory::acquire"),
    /// A try gets a free fair lock only if nobody waits for it.
    FairTryWaitsItsTurn: Test("kinds::fair::script_tests::in_memory::acquire"),
    /// A client that lets a reservation run out is passed over the next time.
    SilentClientIsMarked: Test("kinds::fair::script_tests::in_memory::release"),
    /// A client that is heard of keeps its places.
    HeardClientIsUnmarked: Test("kinds::fair::script_tests::in_memory::acquire"),
    /// Who gives up what is left of a place is told its ticket, which the next attempt names.
    UndoTellsTicket: Test("kinds::fair::script_tests::in_memory::undo"),

    // The Redlock.
    /// A server that was started a short time ago does not count.
    StartedServerWaits: Test(
        "redlock::acquisition::tests::servers_that_have_lost_their_data_are_no_majority_for_another"
    ),
    /// A lock is held by more than half of the servers.
    HalfIsNoMajority: Test("redlock::simulation::nobody_is_granted_what_another_holds"),
    /// The largest token of all servers is raised on a majority before the lock is granted.
    TokenIsRaised: Test("redlock::acquisition::tests::a_token_that_was_not_taken_is_no_holder"),
    /// A majority that was lost is not brought back by later grants.
    LostMajorityStaysLost: Test(
        "base::majority::tests::a_loss_that_nobody_has_seen_is_final_too"
    ),

    // 6. One release wakes one client, and others get their turn.
    /// While a client has the lock, its waiters send nothing.
    OwnHoldFirst: Sim(100),
    /// After 16 hand-offs, or 50 ms of them, other clients may have the lock.
    HandOffsEnd: Sim(100),

    // 7. The lock goes by ticket.
    /// A freed lock goes to the first in line.
    FreedGoesToFirst: Sim(100),
    /// Whoever leaves the line passes on a lock that is free.
    LeavingPassesOn: Sim(1_000),
    /// What is reserved has no place in the line.
    ReservedLeavesLine: Sim(100),
    /// A reservation keeps others out.
    ReservationKeepsOut: Sim(100),
    /// A reservation has an end.
    ReservationEnds: Sim(100),
    /// A line has an end.
    LineEnds: Sim(500),
    /// What is picked up has the lease that was asked for, and not the rest of the reservation.
    PickUpSetsLease: Sim(100),
    /// Whoever was told to wait takes no free lock past the line.
    AgainGoesByLine: Sim(500),
    /// Each attempt that waits sets the time to live of the line anew.
    WaitingRenewsLine: Sim(100),
    /// Whoever does not hear messages has no place.
    DeafHasNoPlace: Sim(100),
    /// A row of hand-offs ends with one that lets the line go first.
    LineGoesFirst: Sim(500),
    /// An attempt names the ticket that its client was told.
    TicketIsNamed: Sim(500),
    /// Only whoever is subscribed says that it hears.
    HearsOnceConfirmed: Sim(100),
    /// The place in line passes on with the role of the contender.
    PlacePassesOn: Sim(500),
    /// The last waiter leaves the line.
    LastWaiterLeaves: Sim(100),
    /// A ticket ends with the grant.
    TicketEndsWithGrant: Sim(100),
    /// The ticket is kept when an attempt has no answer.
    TicketOutlivesUnknown: Sim(1_000),
    /// What is reserved for a waiter is a reason to try.
    OwnReservationWakes: Sim(100),
    /// At the end of another's reservation the first in line try.
    ReservationIsTimed: Test(
        "engine::tests::line::only_the_first_eight_try_when_a_reservation_of_another_is_over"
    ),
    /// A release of the lock alone is followed by one with the line.
    LineIsOwed: Test(
        "engine::tests::line::a_release_whose_line_is_out_of_reach_names_the_lock_alone_and_owes_one_with_the_line"
    ),

    // 8. Only the owner releases and renews.
    /// Only the hold's own field can be released.
    OwnFieldReleased: Sim(100),
    /// A force-unlock removes the hold that it names, and no other.
    ForceNamesItsHold: Sim(100),

    // 9 and 10. Guards work anywhere, and everything is bounded.
    /// `Guard::run` does not poll its future past the end of the hold.
    RunEndsWithHold: Test(
        "locks::guard::tests::a_guard_sees_the_end_of_its_hold_whatever_became_of_the_driver"
    ),
    /// Scripts of releases that nobody waits for are counted until they are answered.
    DropsAreCounted: Sim(100),
    /// A hold has at most 65,535 levels.
    HoldCountIsBounded: Test(
        "engine::tests::alone::the_hold_count_has_a_limit_and_nothing_is_sent_beyond_it"
    ),
    /// A name has at most 100,000 waiters in one client.
    QueueIsBounded: Test("engine::tests::waiting::there_is_a_limit_to_the_waiters_of_a_name"),

    // Tokens grow.
    /// The token grows through lost data.
    TokenGrowsThroughLoss: Sim(500),
    /// A re-entry has the token of its hold.
    ReentryKeepsToken: Sim(100),

    // A server's times count for that server only, and outages end.
    /// A reply tells the time of the server that answered, not of the one that was asked.
    TimesOfOneServer: Test(
        "engine::tests::servers::a_slot_on_its_way_goes_by_the_clock_of_who_answers"
    ),
    /// What was known of a server's clock is forgotten with the connection.
    NewConnectionNewClock: Test(
        "engine::tests::kept::another_server_counts_the_rest_by_its_own_clock"
    ),
    /// A jump of the server's clock is noticed, and what was known of it forgotten.
    ClockJumpIsSeen: Test(
        "engine::server_clock::tests::jumps_in_both_directions_are_seen_and_reset"
    ),
    /// `lock()` ends after `outage_limit` without a good answer.
    OutageHasALimit: Sim(100),
    /// A call on its way when its connection breaks may have been executed.
    BrokenConnectionIsUnknown: Test(
        "backend::redis::calls::tests::every_call_is_answered_when_a_connection_breaks_that_has_lost_its_scripts"
    ),
    /// The answers of a deposed primary do not count.
    DeposedIsNotBelieved: Test(
        "backend::redis::calls::tests::nothing_is_written_to_a_server_once_it_is_deposed"
    ),
    /// The answers of a node of a cluster do not count once another node has the slot.
    FrozenPrimaryIsUnknown: Test(
        "backend::redis::cluster::tests::rules::an_answer_from_a_node_that_has_lost_the_slot_proves_nothing"
    ),
}

/// Rules that scripts keep: what stands in their texts, and what does when the rule is broken.
pub(crate) const SCRIPTS: &[(Rule, &str, &str)] = &[
    (
        Rule::CountIsAbsolute,
        "lock, field, count)\n  if pttl",
        "lock, field, tonumber(mine) + 1)\n  if pttl",
    ),
    (Rule::NestedNeedsItsHold, "if pttl == -2 and count > 1 then return {-2, now} end", ""),
    (
        Rule::RepeatNeverShortens,
        r#"if pttl < lease or reserved then redis.call("PEXPIRE", lock, lease_text) end"#,
        r#"redis.call("PEXPIRE", lock, lease_text)"#,
    ),
    (
        Rule::RepeatNeverShortens,
        r#"if pttl < lease then redis.call("PEXPIRE", lock, lease) end"#,
        r#"redis.call("PEXPIRE", lock, lease)"#,
    ),
    (
        Rule::ReleaseComparesNoCounts,
        r#"fields > 0 and redis.call("HDEL", lock, field) == 1"#,
        concat!(
            r#"fields > 0 and tonumber(redis.call("HGET", lock, field) or 1) <= 1 "#,
            r#"and redis.call("HDEL", lock, field) == 1"#
        ),
    ),
    (
        Rule::NotAfter,
        "if now > not_after then return {-1, now} end\n\nlocal pttl",
        "\n\nlocal pttl",
    ),
    (Rule::LateHandOffGrantsNothing, "local late = now > not_after", "local late = false"),
    (
        Rule::LateRenewalExtendsNothing,
        "if now > not_after then return {-1, now} end\n\nlocal function renew",
        "\n\nlocal function renew",
    ),
    (
        Rule::RenewalNeverCreates,
        r#"if redis.call("EXISTS", lock) == 0 then return 0 end"#,
        concat!(
            r#"if redis.call("EXISTS", lock) == 0 then redis.call("HSET", lock, field, "1") "#,
            r#"redis.call("PEXPIRE", lock, lease) return 1 end"#
        ),
    ),
    (Rule::HandOffSetsTimeToLive, "redis.call(\"PEXPIRE\", lock, ARGV[3])\nreturn", "return"),
    (
        Rule::RenewalNeverShortens,
        r#"if lease > 1 and redis.call("PTTL", lock) < lease then"#,
        "if lease > 1 then",
    ),
    (
        Rule::ReleasePublishes,
        r#"if not receivers then receivers = redis.pcall(verb, channel, "0") end"#,
        "receivers = receivers or 0",
    ),
    (
        Rule::OwnFieldReleased,
        r#"fields > 0 and redis.call("HDEL", lock, field) == 1"#,
        r#"fields > 0 and redis.call("DEL", lock) == 1"#,
    ),
    (
        Rule::ForceNamesItsHold,
        r#"if redis.call("HDEL", lock, expected) == 0 then return {-3, now} end"#,
        r#"redis.call("DEL", lock)"#,
    ),
    (
        Rule::FreedGoesToFirst,
        "local first = line and redis.pcall(\"ZRANGE\", line, 0, 0)[1]\n  local receivers",
        "local first = line and redis.pcall(\"ZRANGE\", line, -1, -1)[1]\n  local receivers",
    ),
    (
        Rule::FreedGoesToFirst,
        "local first = redis.pcall(\"ZRANGE\", line, 0, 0)[1]\n  receivers",
        "local first = redis.pcall(\"ZRANGE\", line, -1, -1)[1]\n  receivers",
    ),
    (
        Rule::LeavingPassesOn,
        "receivers = first and reserve(lock, line, first, channel, verb)\nend",
        "receivers = is_own and first and reserve(lock, line, first, channel, verb)\nend",
    ),
    (
        Rule::ReservedLeavesLine,
        r#"if type(redis.pcall("ZREM", line, first)) == "table" then return nil end"#,
        "",
    ),
    (
        Rule::ReservationKeepsOut,
        "holder, left = redis.call(\"HKEYS\", lock)[1], pttl\n",
        concat!(
            r#"local other = redis.call("HKEYS", lock)[1] "#,
            "if redis.call(\"HGET\", lock, other) ~= \"0\" then holder, left = other, pttl end\n"
        ),
    ),
    (Rule::ReservationEnds, "local RESERVATION_MS = 1500", "local RESERVATION_MS = 15000"),
    (Rule::LineEnds, "local LINE_MS = 12000", "local LINE_MS = 120000"),
    (Rule::PickUpSetsLease, "if pttl < lease or reserved then", "if pttl < lease then"),
    (
        Rule::AgainGoesByLine,
        r#"local passes_on = mode == "again" and pttl == -2"#,
        "local passes_on = false",
    ),
    (
        Rule::WaitingRenewsLine,
        r#"local is_there = redis.pcall("PEXPIRE", line, LINE_MS)"#,
        r#"local is_there = redis.call("EXISTS", line)"#,
    ),
    (Rule::DeafHasNoPlace, "if not hears then\n", "if false then\n"),
    (Rule::LineGoesFirst, r#"if line and line_first == "1" and not has_to then"#, "if false then"),
    (Rule::TokenGrowsThroughLoss, "local token = now", "local token = 1"),
    (Rule::OperationIsDoneOnce, "if before then return say(before) end", ""),
    (
        Rule::LateOperationDoesNothing,
        "if now > not_after then return {-1, now} end\n\nlocal found",
        "\n\nlocal found",
    ),
    (
        Rule::LateOperationDoesNothing,
        "if now > not_after then return {-1, now} end\n\nlocal count",
        "\n\nlocal count",
    ),
    (
        Rule::NoLatchIsRemembered,
        "redis.call(\"SET\", op, left, \"PX\", life)",
        "if left ~= -1 then redis.call(\"SET\", op, left, \"PX\", life) end",
    ),
    (Rule::LatchGoesAtZero, "if left == 0 then\n  redis.call", "if left <= 1 then\n  redis.call"),
    (Rule::LastCountDownIsTold, r#"if left == 0 then redis.pcall(verb, channel, "0") end"#, ""),
    (
        Rule::DeletionIsTold,
        "redis.call(\"SET\", op, done, \"PX\", life)\nredis.pcall(verb, channel, \"0\")",
        "redis.call(\"SET\", op, done, \"PX\", life)",
    ),
    (Rule::CountIsSetOnce, "if found then done = 0 end", ""),
    (
        Rule::RefusedIsNotDone,
        r#"redis.call("SET", op, "", "PX", life)"#,
        r#"redis.call("SET", op, "0", "PX", life)"#,
    ),
    (
        Rule::WriteExcludesReaders,
        r#"local waits = held and not reserved and (is_writer or held == "write")"#,
        r#"local waits = held == "write" and not reserved"#,
    ),
    (
        Rule::WriteExcludesLaterReaders,
        r#"local waits = held and not reserved and (is_writer or held == "write")"#,
        "local waits = held and not reserved and is_writer",
    ),
    (
        Rule::LaterReadsWait,
        "if dropped or looks and is_behind",
        "if dropped or not held and is_behind",
    ),
    (
        Rule::SilentWriterMakesWay,
        "local dropped = looks and held and drop_silent(line, base)",
        "local dropped = false",
    ),
    (
        Rule::ReadersGoAfterWriter,
        "pass_on(lock, line, base, channel, verb, held, writing)",
        "pass_on(lock, line, base, channel, verb, held, false)",
    ),
    (
        Rule::ReaderHasItsKey,
        "redis.call(\"SET\", timeout, \"1\", \"PX\", lease_text)\n  redis.call(\"HSET\"",
        "redis.call(\"HSET\"",
    ),
    (
        Rule::ReaderKeyGoes,
        "if timeout then redis.pcall(\"DEL\", timeout) end\nif fields == 1",
        "if fields == 1",
    ),
    (
        Rule::DeadReaderIsRemoved,
        r#"removed = removed + redis.call("HDEL", lock, reader)"#,
        "removed = removed + 0",
    ),
    (
        Rule::LivingReaderStays,
        r#"redis.call("EXISTS", KEYS[#KEYS - told + i]) == 0 and reader"#,
        "reader",
    ),
    (
        Rule::DeadReaderStaysDead,
        r#"if not writing and redis.call("EXISTS", timeout) == 0 then return 0 end"#,
        "",
    ),
    (
        Rule::DowngradeLetsReadersIn,
        "local receivers = line and reserve_readers(lock, line, base, channel, verb, true)",
        "local receivers = 0",
    ),
    (Rule::DowngradeNeverShortens, "if left < lease then left = lease end", "left = lease"),
    (Rule::UpgradeIsForOne, "if fields - removed > 2 then", "if false then"),
    (
        Rule::PermitsAreCounted,
        "if first or taken + want > most then\n    local nearest",
        "if first then\n    local nearest",
    ),
    (Rule::ReservedPermitsAreCounted, "if fits and taken + want > most then", "if false then"),
    (
        Rule::WantIsReservedWhole,
        "local refused = take(permits, field, want, RESERVATION_MS, now_ms)",
        "local refused = take(permits, field, math.ceil(want / 2), RESERVATION_MS, now_ms)",
    ),
    (
        Rule::PermitsRunOut,
        r#"local taken = redis.pcall("ZCOUNT", permits, from_now, "+inf")"#,
        r#"local taken = redis.pcall("ZCOUNT", permits, "-inf", "+inf")"#,
    ),
    (
        Rule::ReleaseBringsBackItsOwn,
        r#"local taken = redis.pcall("ZCARD", permits)"#,
        r#"local taken = redis.call("ZCARD", permits) - there"#,
    ),
    (
        Rule::RenewsAllOrNone,
        "if not ends or tonumber(ends) <= now_ms then return 0 end",
        "if i == want and (not ends or tonumber(ends) <= now_ms) then return 0 end",
    ),
    (Rule::PermitsGoByLine, "if others then\n    taken, first", "if false then\n    taken, first"),
    (
        Rule::LeftPermitsPassOn,
        "if others then\n  taken = redis.call(\"ZCARD\"",
        "if false then\n  taken = redis.call(\"ZCARD\"",
    ),
    (
        Rule::SilentPlaceMakesWay,
        "if taken >= most or is_heard(heard, field, now_ms) then",
        "if true then",
    ),
    (
        Rule::ReservedPermitsLeaveLine,
        r#"local removed = redis.pcall("ZREM", line, field)"#,
        "local removed = 0",
    ),
    (Rule::TooManyAreRefused, "if want > most then\n", "if false then\n"),
    (Rule::NumberIsForAll, "local most = number or own\n\n", "local most = own\n\n"),
    (Rule::PermitsAreAddedOnce, "if done then return {1, now, tonumber(done)} end", ""),
    (Rule::FreePermitsAreCounted, r#"redis.call("INCRBY", lock, over)"#, ""),
    (
        Rule::PermitOutlastsLease,
        "now_ms + lease + SLACK_MS, permit_of",
        "now_ms + lease, permit_of",
    ),
    (
        Rule::FairGoesToFirst,
        "MOST_REMOVED do\n    local first = redis.pcall(\"ZRANGE\", line, 0, 0, ",
        "MOST_REMOVED do\n    local first = redis.pcall(\"ZRANGE\", line, -1, -1, ",
    ),
    (
        Rule::FairAttemptWaitsItsTurn,
        "pass_to_next(lock, line, channel, verb, ticket)",
        "pass_to_next(lock, line, channel, verb, 0)",
    ),
    (
        Rule::FairTryWaitsItsTurn,
        "local next, _, _, rest = pass_to_next(lock, line, channel, verb, BEHIND_ALL)",
        "local next, _, _, rest = pass_to_next(lock, line, channel, verb, 0)",
    ),
    (Rule::SilentClientIsMarked, r#"redis.pcall("SADD", marks, client_of(field))"#, ""),
    (
        Rule::HeardClientIsUnmarked,
        r#"if marks then redis.pcall("SREM", marks, client_of(field)) end"#,
        "",
    ),
    (Rule::UndoTellsTicket, "return {5, now, tonumber(ticket)}", "return answer"),
    (
        Rule::UpgradeKeepsReads,
        "if held == \"write\" then return {0, now, 0} end",
        "if held == \"write\" then return {-2, now} end",
    ),
];
