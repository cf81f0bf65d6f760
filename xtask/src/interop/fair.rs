//! The fair lock: Redisson's `RFairLock` and ours on the same names.

use std::time::Duration;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::ONCE;
use crate::interop::contention::check_alone;
use crate::interop::contention::distribution;
use crate::interop::permits::counted;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::check;
use crate::interop::stage::pass_on;

pub(crate) const ALL: &[Scenario] = &[
    Scenario { title: "fair lock: exclusion", run: exclusion, directions: ONCE, needs_newer: true },
    Scenario {
        title: "fair lock: wake-up",
        run: wake_up,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
    Scenario { title: "fair lock: order", run: order, directions: ONCE, needs_newer: true },
    Scenario {
        title: "fair lock: who gives up leaves no place",
        run: gives_up,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
    Scenario {
        title: "fair lock: dead waiter",
        run: dead_waiter,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
];

const FAIR: &str = "kind=fair";
const SECTIONS: u64 = 2_000;

/// A counter that the lock protects is exact.
fn exclusion(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let until = SECTIONS.min(stage.sections);
    let (name, file) = (stage.name("fair"), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let sections = counted(stage, &name, &format!("{until} {path} {FAIR} work_us=100"))?;
    check_alone(&sections, &file, until)?;
    check_nothing_left(stage, &name)
}

const ROUNDS: usize = 200;
/// A wake-up by anything but a message takes seconds.
const MEDIAN: Duration = Duration::from_millis(5);

/// The one has the lock, the other waits for it, and is asleep: it gets the lock by the message.
fn wake_up(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let (mut holder, mut waiter) = stage.pair(holds, waits, Lease::Long)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let name = stage.name("fair");
        let (lock, _) = holder.lock(&name, FAIR)?;
        let waiting = waiter.wait(&name, FAIR)?;
        so_many_wait(stage, &name, 1)?;
        let took = pass_on(&mut holder, &lock, &mut waiter, &waiting)
            .map_err(|reason| format!("round {round}: {reason}"))?;
        times.push(took);
        waiter.unlock(&waiting)?;
        check_nothing_left(stage, &name)?;
    }
    stage.give_back([holder, waiter]);
    times.sort_unstable();
    let median = times[times.len() / 2];
    stage.note(&distribution(times));
    check(median < MEDIAN, || format!("the median is {median:?}"))
}

/// Waiters of both languages, one after the other: the lock goes round in that order.
fn order(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    for first in Lang::BOTH {
        let name = stage.name("fair");
        let holder = if first == Lang::Java { &mut java } else { &mut rust };
        let (lock, _) = holder.lock(&name, FAIR)?;
        let mut waiting = Vec::new();
        for number in 0..8 {
            let is_java = (number % 3 == 0) == (first == Lang::Java);
            let waiter = if is_java { &mut java } else { &mut rust };
            waiting.push((is_java, waiter.wait(&name, FAIR)?));
            so_many_wait(stage, &name, number + 1)?;
        }
        let holder = if first == Lang::Java { &mut java } else { &mut rust };
        holder.unlock(&lock)?;
        for (at, (is_java, id)) in waiting.iter().enumerate() {
            let waiter = if *is_java { &mut java } else { &mut rust };
            waiter.expect(id, "granted")?;
            for (later_is_java, later) in &waiting[at + 1..] {
                let other = if *later_is_java { &mut java } else { &mut rust };
                check(other.poll(later, "granted").is_none(), || format!("{later} overtook"))?;
            }
            let waiter = if *is_java { &mut java } else { &mut rust };
            waiter.unlock(id)?;
        }
        check_nothing_left(stage, &name)?;
    }
    stage.give_back([java, rust]);
    Ok(())
}

/// A waiter whose time is over does not stand in the way of the one behind it.
fn gives_up(stage: &mut Stage<'_>, gives_up: Lang, waits: Lang) -> Result<(), String> {
    let (mut first, mut second) = stage.pair(gives_up, waits, Lease::Long)?;
    let name = stage.name("fair");
    let (lock, _) = second.lock(&name, FAIR)?;
    let trying = first.begin("try", &name, &format!("{FAIR} wait_ms=1000"))?;
    so_many_wait(stage, &name, 1)?;
    let waiting = second.wait(&name, FAIR)?;
    so_many_wait(stage, &name, 2)?;
    first.expect(&trying, "denied")?;
    so_many_wait(stage, &name, 1)?;
    second.unlock(&lock)?;
    second.expect(&waiting, "granted")?;
    second.unlock(&waiting)?;
    check_nothing_left(stage, &name)?;
    stage.give_back([first, second]);
    Ok(())
}

/// How long a Java waiter counts beyond the lease that it saw.
const WAIT: Duration = Duration::from_secs(5);
/// How long one of ours counts.
const OURS: Duration = Duration::from_secs(15);

/// The first in the queue is killed: the next gets the lock when its place does not count any more.
fn dead_waiter(stage: &mut Stage<'_>, dies: Lang, waits: Lang) -> Result<(), String> {
    let (mut dead, mut waiter) = stage.pair(dies, waits, Lease::Short)?;
    let name = stage.name("fair");
    let (lock, _) = waiter.lock(&name, FAIR)?;
    dead.begin("try", &name, &format!("{FAIR} wait_ms={}", WAIT.as_millis()))?;
    so_many_wait(stage, &name, 1)?;
    let waiting = waiter.wait(&name, FAIR)?;
    so_many_wait(stage, &name, 2)?;
    dead.kill();
    let released = waiter.unlock(&lock)?;
    let bound =
        if dies == Lang::Java { WAIT } else { OURS } + Lease::SHORT + Duration::from_secs(5);
    let granted = waiter.expect_within(&waiting, "granted", 2 * bound)?;
    let took = Duration::from_nanos(granted.boot_ns.saturating_sub(released));
    stage.note(&format!("{took:?} after the release"));
    check(took < bound, || format!("only after {took:?}"))?;
    waiter.unlock(&waiting)?;
    check_nothing_left(stage, &name)?;
    stage.give_back([waiter]);
    Ok(())
}

fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}

/// So many stand in the queue, and each of them is subscribed to its channel.
fn so_many_wait(stage: &mut Stage<'_>, name: &str, number: usize) -> Result<(), String> {
    let channel = stage.channel(name);
    stage.eventually(&format!("{number} wait"), |stage| {
        let places = stage.redis.texts(&["LRANGE", &queue(name), "0", "-1"])?;
        for place in &places {
            if stage.redis.subscribers(&format!("{channel}:{place}"))? != 1 {
                return Ok(false);
            }
        }
        Ok(places.len() == number)
    })
}

fn check_nothing_left(stage: &mut Stage<'_>, name: &str) -> Result<(), String> {
    let deadlines = format!("redisson_lock_timeout:{{{name}}}");
    let keys = [name.to_owned(), queue(name), deadlines];
    stage.eventually("nothing is left", |stage| {
        for key in &keys {
            if stage.redis.exists(key)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}
