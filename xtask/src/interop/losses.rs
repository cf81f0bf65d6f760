//! Holds that end otherwise than by their owner's release, and those that must not end.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Client;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::WAKE_UP_LIMIT;
use crate::interop::stage::check;
use crate::interop::stage::pass_on;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        title: "fixed lease runs out",
        run: expiry,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
    Scenario { title: "watchdog", run: watchdog, directions: BOTH_WAYS, needs_newer: true },
    Scenario { title: "force-unlock", run: force, directions: BOTH_WAYS, needs_newer: true },
    Scenario {
        title: "force-unlock wakes",
        run: force_wakes,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
    Scenario {
        title: "killed holder",
        run: killed_holder,
        directions: BOTH_WAYS,
        needs_newer: true,
    },
    Scenario {
        title: "killed waiters",
        run: killed_waiters,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
];

/// The first takes a fixed lease and forgets it; the second waits for its end.
fn expiry(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("expiry");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Long)?;
    let (lock, granted) = holder.lock(&name, "lease_ms=700")?;
    other.denied(&name)?;
    let waiting = other.wait(&name, "")?;
    let taken = other.expect(&waiting, "granted")?;
    let after = Duration::from_nanos(taken.boot_ns.saturating_sub(granted.boot_ns));
    check(after < WAKE_UP_LIMIT, || {
        format!("{} took over after {after:?} only", other.lang.name())
    })?;
    holder.unlock_lost(&lock)?;
    stage.check_hash(&name, taken.text("holder"), 1)?;
    other.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.note(&format!(
        "taken over {} ms after the grant, with a lease of 700 ms",
        after.as_millis()
    ));
    stage.give_back([holder, other]);
    Ok(())
}

/// The first holds for many leases of its own; the second never gets in.
fn watchdog(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("watchdog");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Short)?;
    let (lock, granted) = holder.lock(&name, "")?;
    let until = Instant::now() + 4 * Lease::SHORT;
    while Instant::now() < until {
        other.denied(&name)?;
        stage.check_hash(&name, granted.text("holder"), 1)?;
        thread::sleep(Duration::from_millis(200));
    }
    let waiting = other.wait(&name, "")?;
    holder.unlock(&lock)?;
    other.expect(&waiting, "granted")?;
    other.unlock(&waiting)?;
    stage.give_back([holder, other]);
    Ok(())
}

/// The second takes the first one's lock away; the first notices by its next renewal.
fn force(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("force");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Short)?;
    let (lock, _) = holder.lock(&name, "")?;
    stage.eventually("the watchdog is at work", is_renewing)?;
    force_by(&mut other, &name)?;
    stage.check_free(&name)?;
    notices(stage, &mut holder, &lock)?;
    let (taken, granted) = other.lock(&name, "")?;
    holder.unlock_lost(&lock)?;
    stage.check_hash(&name, granted.text("holder"), 1)?;
    other.unlock(&taken)?;
    stage.give_back([holder, other]);
    Ok(())
}

/// The same while the second waits: it gets the lock at once, and the first finds another's.
fn force_wakes(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("force");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Short)?;
    let (lock, _) = holder.lock(&name, "")?;
    let waiting = other.wait(&name, "")?;
    force_by(&mut other, &name)?;
    let granted = other.expect(&waiting, "granted")?;
    if holder.lang == Lang::Rust {
        let lost = holder.expect(&lock, "lost")?;
        check(lost.text("reason") == "taken_over", || format!("the reason is wrong: {lost:?}"))?;
    }
    holder.unlock_lost(&lock)?;
    // Longer than any lease: whoever renews wrongly would have lost it, whoever is renewed wrongly
    // too.
    thread::sleep(2 * Lease::SHORT);
    stage.check_hash(&name, granted.text("holder"), 1)?;
    other.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.give_back([holder, other]);
    Ok(())
}

fn force_by(client: &mut Client, name: &str) -> Result<(), String> {
    let forced = client.ask("force", name, "", "info")?;
    check(forced.fields["forced"] == true, || format!("somebody should have lost it: {forced:?}"))
}

/// Rust says so; Redisson only stops renewing.
fn notices(stage: &mut Stage<'_>, holder: &mut Client, lock: &str) -> Result<(), String> {
    match holder.lang {
        Lang::Rust => {
            let lost = holder.expect(lock, "lost")?;
            check(lost.text("reason") == "removed", || format!("the reason is wrong: {lost:?}"))
        }
        Lang::Java => stage.eventually("Java renews no more", |stage| {
            is_renewing(stage).map(|renewing| !renewing)
        }),
    }
}

/// Whether any script runs within a lease. Nobody but the holder does anything then.
fn is_renewing(stage: &mut Stage<'_>) -> Result<bool, String> {
    let scripts = |stage: &mut Stage<'_>| {
        Ok::<_, String>(stage.redis.calls("evalsha")? + stage.redis.calls("eval")?)
    };
    let before = scripts(stage)?;
    thread::sleep(Lease::SHORT);
    Ok(scripts(stage)? > before)
}

/// The first is killed while it holds; the second gets the lock when the lease is over.
fn killed_holder(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("killed");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Short)?;
    holder.lock(&name, "")?;
    let waiting = other.wait(&name, "")?;
    thread::sleep(2 * Lease::SHORT);
    check(other.poll(&waiting, "granted").is_none(), || "granted while it was held".to_owned())?;
    let killed = crate::puppet::boot_ns();
    holder.kill();
    let granted = other.expect(&waiting, "granted")?;
    let after = Duration::from_nanos(granted.boot_ns.saturating_sub(killed));
    check(after < WAKE_UP_LIMIT, || format!("taken over after {after:?} only"))?;
    stage.check_hash(&name, granted.text("holder"), 1)?;
    other.unlock(&waiting)?;
    stage.note(&format!(
        "taken over {} ms after the kill, with a lease of 1500 ms",
        after.as_millis()
    ));
    stage.give_back([other]);
    Ok(())
}

/// Waiters of both languages are killed; the one that is left gets the lock.
fn killed_waiters(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("killed");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Long)?;
    let (lock, _) = holder.lock(&name, "")?;
    let mut victims =
        [stage.client(Lang::Java, Lease::Long)?, stage.client(Lang::Rust, Lease::Long)?];
    for victim in &mut victims {
        victim.wait(&name, "")?;
    }
    let waiting = other.wait(&name, "")?;
    for victim in victims {
        victim.kill();
    }
    pass_on(&mut holder, &lock, &mut other, &waiting)?;
    other.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.give_back([holder, other]);
    Ok(())
}
