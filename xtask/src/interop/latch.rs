//! The count-down latch: Redisson's `RCountDownLatch` and ours on the same names.

use std::time::Duration;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Client;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::WAKE_UP_LIMIT;
use crate::interop::stage::check;
use crate::puppet::boot_ns;

pub(crate) const ALL: &[Scenario] =
    &[Scenario { title: "latch wake-up", run: wake_up, directions: BOTH_WAYS, needs_newer: false }];

const ROUNDS: usize = 200;

/// One counts down, the other waits: at 1 it still waits, at 0 it goes on by the message.
fn wake_up(stage: &mut Stage<'_>, counts: Lang, waits: Lang) -> Result<(), String> {
    let (mut counting, mut waiting) = stage.pair(counts, waits, Lease::Long)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let name = stage.name("ready");
        // Both set counts that the other one understands.
        let sets = if round % 2 == 0 { &mut counting } else { &mut waiting };
        let set = sets.ask("latch", &name, "set 2", "info")?;
        check(set.fields["set"] == true, || format!("{name} was not set: {set:?}"))?;
        times.push(one(stage, &name, &mut counting, &mut waiting)?);
        let again = waiting.ask("latch", &name, "count", "info")?;
        check(again.number("count") == Ok(0), || format!("{again:?}"))?;
        stage.check_free(&name)?;
    }
    times.sort_unstable();
    stage.note(&format!(
        "{} latches, {} counts down: woken after {:?} (median), {:?} (worst)",
        times.len(),
        counts.name(),
        times[times.len() / 2],
        times[times.len() - 1]
    ));
    stage.give_back([counting, waiting]);
    Ok(())
}

/// How long it took until the waiter went on, after the last count-down was asked for.
fn one(
    stage: &mut Stage<'_>,
    name: &str,
    counting: &mut Client,
    waiting: &mut Client,
) -> Result<Duration, String> {
    let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
    let wait = waiting.begin("latch", name, "wait")?;
    stage.eventually("it is subscribed", |stage| {
        stage.redis.subscribers(&channel).map(|number| number == 1)
    })?;
    let left = counting.ask("latch", name, "down", "info")?;
    check(left.number("count") == Ok(1), || format!("one of two is left: {left:?}"))?;
    check(waiting.poll(&wait, "info").is_none(), || format!("{name} opened at 1"))?;
    let called = boot_ns();
    counting.ask("latch", name, "down", "info")?;
    let opened = waiting.expect(&wait, "info")?;
    let took = Duration::from_nanos(opened.boot_ns.saturating_sub(called));
    check(took < WAKE_UP_LIMIT, || format!("{name}: a wake-up was missed: {took:?}"))?;
    Ok(took)
}
