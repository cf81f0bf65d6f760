//! Multi-locks: Redisson's `RedissonMultiLock` and ours over the same names.

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::ONCE;
use crate::interop::contention::check_alone;
use crate::interop::contention::distribution;
use crate::interop::permits::counted;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::pass_on;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        title: "multi-lock: exclusion",
        run: exclusion,
        directions: ONCE,
        needs_newer: true,
    },
    Scenario {
        title: "multi-lock: wake-up",
        run: wake_up,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
    Scenario {
        title: "multi-lock: in the opposite order",
        run: opposite,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
];

const SECTIONS: u64 = 2_000;
const ROUNDS: usize = 100;
const KIND: &str = "kind=multi";

/// A counter that three names protect together is exact.
fn exclusion(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let until = SECTIONS.min(stage.sections);
    let (names, file) = (three(stage), stage.counter()?);
    let path = file.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let options = format!("{until} {path} {KIND} work_us=100");
    let sections = counted(stage, &names.join(","), &options)?;
    check_alone(&sections, &file, until)?;
    are_free(stage, &names)
}

/// The one has all names, the other waits for the first of them.
fn wake_up(stage: &mut Stage<'_>, holds: Lang, waits: Lang) -> Result<(), String> {
    let (mut holder, mut waiter) = stage.pair(holds, waits, Lease::Long)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let names = three(stage);
        let all = names.join(",");
        let (lock, _) = holder.lock(&all, KIND)?;
        let waiting = waiter.wait(&all, KIND)?;
        let channel = stage.channel(&names[0]);
        stage.eventually("the waiter is subscribed", |stage| {
            stage.redis.subscribers(&channel).map(|number| number == 1)
        })?;
        let took = pass_on(&mut holder, &lock, &mut waiter, &waiting)
            .map_err(|reason| format!("round {round}: {reason}"))?;
        times.push(took);
        waiter.unlock(&waiting)?;
        are_free(stage, &names)?;
    }
    stage.give_back([holder, waiter]);
    stage.note(&distribution(times));
    Ok(())
}

/// Each has what the other wants next. Neither waits for ever: this crate gives up what it has after
/// a lease. Redisson does so after 1.5 s for each name, but then takes it again at once.
fn opposite(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let (mut one, mut other) = stage.pair(first, second, Lease::Short)?;
    let names = three(stage);
    let (middle, _) = one.lock(&names[1], "")?;
    let forth = one.begin("lock", &names.join(","), KIND)?;
    let backwards: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let back = other.begin("lock", &backwards.join(","), KIND)?;
    for (client, id) in [(&mut one, &forth), (&mut other, &back)] {
        client.expect(id, "waiting")?;
    }
    one.unlock(&middle)?;
    let mut left = vec![(one, forth), (other, back)];
    while !left.is_empty() {
        let mut granted = None;
        stage.eventually("one of them has all names", |_| {
            granted = left.iter_mut().position(|(client, id)| client.poll(id, "granted").is_some());
            Ok(granted.is_some())
        })?;
        let (mut client, id) = left.swap_remove(granted.unwrap_or(0));
        client.unlock(&id)?;
        stage.give_back([client]);
    }
    are_free(stage, &names)
}

fn three(stage: &mut Stage<'_>) -> [String; 3] {
    ["a", "b", "c"].map(|word| stage.name(word))
}

fn are_free(stage: &mut Stage<'_>, names: &[String]) -> Result<(), String> {
    names.iter().try_for_each(|name| stage.check_free(name))
}
