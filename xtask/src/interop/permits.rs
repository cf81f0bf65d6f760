//! The semaphore: Redisson's `RPermitExpirableSemaphore` and ours on the same names.

use std::time::Duration;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Client;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::ONCE;
use crate::interop::contention::COUNT_LIMIT;
use crate::interop::contention::Section;
use crate::interop::contention::check_alone;
use crate::interop::contention::distribution;
use crate::interop::contention::sections;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::WAKE_UP_LIMIT;
use crate::interop::stage::check;
use crate::interop::stage::pass_on;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        title: "one permit: exclusion",
        run: exclusion,
        directions: ONCE,
        needs_newer: false,
    },
    Scenario {
        title: "three permits: never more at once",
        run: at_once,
        directions: ONCE,
        needs_newer: false,
    },
    Scenario { title: "permits: wake-up", run: wake_up, directions: BOTH_WAYS, needs_newer: false },
    Scenario {
        title: "permits: killed holder",
        run: killed_holder,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
    Scenario {
        title: "permits: both count the same",
        run: numbers,
        directions: ONCE,
        needs_newer: false,
    },
];

const SECTIONS: u64 = 2_000;
/// How many of each language contend.
const CONTENDERS: usize = 4;

/// A counter that one permit protects is exact.
fn exclusion(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let until = SECTIONS.min(stage.sections);
    let (name, file) = (stage.name("permit"), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let sections = counted(stage, &name, &format!("{until} {path} kind=permit of=1 work_us=100"))?;
    check_alone(&sections, &file, until)?;
    check_free(stage, &name, 1)
}

/// With three permits the counter may miss some, but by the clock never more than three are inside.
fn at_once(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    const PERMITS: usize = 3;
    let until = SECTIONS.min(stage.sections);
    let (name, file) = (stage.name("permits"), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let options = format!("{until} {path} kind=permit of={PERMITS} work_us=1000");
    let sections = counted(stage, &name, &options)?;
    let most = most_at_once(&sections);
    stage.note(&format!("{} sections, {most} at once", sections.len()));
    check(most <= PERMITS, || format!("{most} were inside at once"))?;
    check(most == PERMITS, || format!("only {most} were inside at once"))?;
    check_free(stage, &name, PERMITS as i64)
}

/// The sections of both languages, in the order of the counter.
pub(crate) fn counted(
    stage: &mut Stage<'_>,
    name: &str,
    options: &str,
) -> Result<Vec<Section>, String> {
    let (java, rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    let mut clients = [java, rust];
    let all = counted_by(stage, &mut clients, name, options)?;
    stage.give_back(clients);
    check_both(&all)?;
    Ok(all)
}

/// The same with clients of the caller's.
pub(crate) fn counted_by(
    stage: &Stage<'_>,
    clients: &mut [Client; 2],
    name: &str,
    options: &str,
) -> Result<Vec<Section>, String> {
    let mut counts = Vec::new();
    for (at, client) in clients.iter_mut().enumerate() {
        for _ in 0..CONTENDERS {
            counts.push((at, client.begin("count", name, options)?));
        }
    }
    let mut all = Vec::new();
    for (at, id) in counts {
        let done = clients[at].expect_within(&id, "info", COUNT_LIMIT)?;
        all.extend(sections(clients[at].lang, &done)?);
    }
    all.sort_by_key(|section| section.number);
    tell_shares(stage, &all);
    Ok(all)
}

fn tell_shares(stage: &Stage<'_>, all: &[Section]) {
    for lang in Lang::BOTH {
        stage.note(&format!("{}: {} sections", lang.name(), of(all, lang)));
    }
}

fn of(all: &[Section], lang: Lang) -> usize {
    all.iter().filter(|section| section.lang == lang).count()
}

/// Each language had a section.
pub(crate) fn check_both(all: &[Section]) -> Result<(), String> {
    let absent = Lang::BOTH.into_iter().find(|lang| of(all, *lang) == 0);
    absent.map_or(Ok(()), |lang| Err(format!("{} did not take part", lang.name())))
}

fn most_at_once(sections: &[Section]) -> usize {
    let begins = sections.iter().map(|section| (section.granted_ns, true));
    let ends = sections.iter().map(|section| (section.releasing_ns, false));
    let mut moments: Vec<(u64, bool)> = begins.chain(ends).collect();
    moments.sort_unstable();
    let (mut inside, mut most) = (0_usize, 0);
    for (_, begins) in moments {
        inside = if begins { inside + 1 } else { inside.saturating_sub(1) };
        most = most.max(inside);
    }
    most
}

const ROUNDS: usize = 200;

/// The one has the permit, the other waits for it, and is asleep: it gets the permit by the message.
fn wake_up(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let (mut holder, mut waiter) = stage.pair(holds, waits, Lease::Long)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let name = stage.name("permit");
        let (lock, _) = holder.lock(&name, ONE)?;
        let waiting = waiter.wait(&name, ONE)?;
        subscribed(stage, &name)?;
        let took = pass_on(&mut holder, &lock, &mut waiter, &waiting)
            .map_err(|reason| format!("round {round}: {reason}"))?;
        times.push(took);
        waiter.unlock(&waiting)?;
        check_free(stage, &name, 1)?;
    }
    stage.give_back([holder, waiter]);
    stage.note(&distribution(times));
    Ok(())
}

const ONE: &str = "kind=permit of=1";
const LEASE: Duration = Duration::from_secs(2);
/// What ends have beside a lease of ours, and what is waited for after an end of Redisson's.
const SLACK: Duration = Duration::from_secs(5);

/// What a killed process has held comes back, to those who wait as well.
fn killed_holder(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let (mut holder, mut waiter) = stage.pair(holds, waits, Lease::Long)?;
    let name = stage.name("permit");
    let (_, granted) = holder.lock(&name, &format!("{ONE} lease_ms={}", LEASE.as_millis()))?;
    let waiting = waiter.wait(&name, ONE)?;
    subscribed(stage, &name)?;
    holder.kill();
    let taken = waiter.expect_within(&waiting, "granted", 3 * SLACK)?;
    let after = Duration::from_nanos(taken.boot_ns.saturating_sub(granted.boot_ns));
    stage.note(&format!("{after:?} after the grant, with a lease of {LEASE:?}"));
    check((LEASE..LEASE + SLACK + WAKE_UP_LIMIT).contains(&after), || {
        format!("taken over after {after:?}")
    })?;
    waiter.unlock(&waiting)?;
    check_free(stage, &name, 1)?;
    stage.give_back([waiter]);
    Ok(())
}

/// What Redisson says is free is what there is, whoever has set the number.
fn numbers(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    for first in Lang::BOTH {
        let name = stage.name("permits");
        let of = if first == Lang::Java { 5 } else { 7 };
        let by = if first == Lang::Java { &mut java } else { &mut rust };
        let (lock, _) = by.lock(&name, &format!("kind=permit of={of}"))?;
        let (two, _) = rust.lock(&name, "kind=permit permits=2 of=9")?;
        let (one, _) = java.lock(&name, "kind=permit of=9")?;
        let free =
            |java: &mut Client| java.ask("available", &name, "", "info")?.number("available");
        let found = free(&mut java)?;
        check(found == of - 4, || format!("{found} of {of} free, and 4 held"))?;
        rust.unlock(&two)?;
        java.unlock(&one)?;
        let by = if first == Lang::Java { &mut java } else { &mut rust };
        by.unlock(&lock)?;
        let found = free(&mut java)?;
        check(found == of, || format!("{found} of {of} free, and nothing held"))?;
        check_free(stage, &name, i64::try_from(of).unwrap_or(0))?;
    }
    stage.give_back([java, rust]);
    Ok(())
}

/// So many are free, and none is out.
fn check_free(stage: &mut Stage<'_>, name: &str, permits: i64) -> Result<(), String> {
    stage.eventually("all permits are free", |stage| {
        let free = stage.redis.int(&["INCRBY", name, "0"])?;
        Ok(free == permits && !stage.redis.exists(&format!("{{{name}}}:timeout"))?)
    })
}

fn subscribed(stage: &mut Stage<'_>, name: &str) -> Result<(), String> {
    let channel = format!("redisson_sc:{{{name}}}");
    stage.eventually("the waiter is subscribed", |stage| {
        stage.redis.subscribers(&channel).map(|number| number == 1)
    })
}
