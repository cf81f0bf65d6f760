//! The read-write lock: Redisson's `RReadWriteLock` and ours on the same names.

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
        title: "read-write exclusion",
        run: exclusion,
        directions: ONCE,
        needs_newer: false,
    },
    Scenario {
        title: "read-write wake-up",
        run: wake_up,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
    Scenario {
        title: "all readers wake",
        run: all_readers,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
];

const SECTIONS: u64 = 2_000;
/// Readers pause, because with Redisson readers that come all the time keep writers out for ever.
const WRITERS: &str = "kind=write work_us=100 pause_us=200";
const READERS: &str = "kind=read work_us=300 pause_us=2000";

/// Two writers and two readers of each language: the counter is exact, no reader sees it change, and
/// by the clock nobody reads while somebody writes.
fn exclusion(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let until = SECTIONS.min(stage.sections);
    let (name, file) = (stage.name("read-write"), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?;
    let mut clients = Vec::new();
    let mut counts = Vec::new();
    for lang in Lang::BOTH {
        let mut client = stage.client(lang, Lease::Long)?;
        for options in [WRITERS, WRITERS, READERS, READERS] {
            let id = client.begin("count", &name, &format!("{until} {path} {options}"))?;
            counts.push((clients.len(), options == READERS, id));
        }
        clients.push(client);
    }
    let (mut written, mut read): (Vec<Section>, Vec<Section>) = (Vec::new(), Vec::new());
    for (at, reads, id) in counts {
        let client: &mut Client = &mut clients[at];
        let done = client.expect_within(&id, "info", COUNT_LIMIT)?;
        let (lang, changed) = (client.lang.name(), done.number("changed")?);
        check(changed == 0, || format!("the counter changed during {changed} reads of {lang}"))?;
        let all = if reads { &mut read } else { &mut written };
        all.extend(sections(client.lang, &done)?);
    }
    stage.give_back(clients);
    written.sort_by_key(|section| section.number);
    check_alone(&written, &file, until)?;
    check_apart(&written, &read)?;
    for lang in Lang::BOTH {
        let of = |all: &[Section]| all.iter().filter(|section| section.lang == lang).count();
        let (writes, reads) = (of(&written), of(&read));
        stage.note(&format!("{}: {writes} writes, {reads} reads", lang.name()));
        check(writes > 0 && reads > 0, || format!("{} did not take part", lang.name()))?;
    }
    stage.check_free(&name)
}

/// Nobody read while somebody wrote. The writes are in order.
fn check_apart(written: &[Section], read: &[Section]) -> Result<(), String> {
    for reading in read {
        let next = written.partition_point(|write| write.releasing_ns <= reading.granted_ns);
        let beside = written.get(next).filter(|write| write.granted_ns < reading.releasing_ns);
        if let Some(write) = beside {
            let (reader, writer) = (reading.lang.name(), write.lang.name());
            return Err(format!("{reader} read during section {} of {writer}", write.number));
        }
    }
    Ok(())
}

const ROUNDS: usize = 200;
/// What is held, and what is waited for.
const WAITS: [(&str, &str); 3] =
    [("kind=write", "kind=read"), ("kind=read", "kind=write"), ("kind=write", "kind=write")];

/// The one has the lock, the other waits for it, and is asleep: it gets the lock by the message.
fn wake_up(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let (mut holder, mut waiter) = stage.pair(holds, waits, Lease::Long)?;
    let mut times = WAITS.map(|_| Vec::new());
    for round in 0..ROUNDS {
        let (held, wanted) = WAITS[round % WAITS.len()];
        let name = stage.name("read-write");
        let (lock, _) = holder.lock(&name, held)?;
        let waiting = waiter.wait(&name, wanted)?;
        subscribed(stage, &name)?;
        let took = pass_on(&mut holder, &lock, &mut waiter, &waiting)
            .map_err(|reason| format!("round {round}, {held} before {wanted}: {reason}"))?;
        times[round % WAITS.len()].push(took);
        waiter.unlock(&waiting)?;
        stage.check_free(&name)?;
    }
    stage.give_back([holder, waiter]);
    for ((held, wanted), times) in WAITS.into_iter().zip(times) {
        stage.note(&format!("{held} before {wanted}: {}", distribution(times)));
    }
    Ok(())
}

const WAITING_READERS: usize = 4;

/// A writer releases: all readers of a client that wait get the lock, at once and together.
fn all_readers(stage: &mut Stage<'_>, writes: Lang, reads: Lang) -> Result<(), String> {
    let (mut writer, mut reader) = stage.pair(writes, reads, Lease::Long)?;
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let name = stage.name("read-write");
        let (lock, _) = writer.lock(&name, "kind=write")?;
        let waiting = (0..WAITING_READERS)
            .map(|_| reader.wait(&name, "kind=read"))
            .collect::<Result<Vec<_>, _>>()?;
        subscribed(stage, &name)?;
        let released = writer.unlock(&lock)?;
        for reading in &waiting {
            let granted = reader.expect(reading, "granted")?;
            let took = Duration::from_nanos(granted.boot_ns.saturating_sub(released));
            check(took < WAKE_UP_LIMIT, || format!("{name}: a reader slept on: {took:?}"))?;
            longest = longest.max(took);
        }
        for reading in waiting {
            reader.unlock(&reading)?;
        }
        stage.check_free(&name)?;
    }
    stage.give_back([writer, reader]);
    stage.note(&format!("{WAITING_READERS} readers, all awake after {longest:?} at most"));
    Ok(())
}

fn subscribed(stage: &mut Stage<'_>, name: &str) -> Result<(), String> {
    let channel = format!("redisson_rwlock:{{{name}}}");
    stage.eventually("the waiter is subscribed", |stage| {
        stage.redis.subscribers(&channel).map(|number| number == 1)
    })
}
