//! The scenes, in the order of the show.

use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::Stage;
use crate::puppet::Event;
use crate::puppet::Puppet;
use crate::puppet::boot_ns;
use crate::servers::Server;

type Scene = fn(&mut Stage) -> Result<(), String>;

pub(super) const ALL: &[(&str, Scene)] = &[
    ("a look at the server first: preflight", preflight),
    ("one owner locks twice: the hold count", nested),
    ("waiters sleep on pub/sub until a release wakes them", wake_up),
    ("the watchdog keeps a short lease alive", watchdog),
    ("the holder is killed: somebody else takes over", take_over),
    ("a force-unlock is noticed by the holder", force_unlock),
    ("two branches of a join!, kept apart by scopes", scopes),
    ("a read-write lock: two read, a writer goes before later reads, and downgrades", read_write),
    ("a fair lock: whoever came first goes first", fair),
    ("a semaphore: the permits of a killed process come back", semaphore),
    ("a count-down latch: who waits goes on when all have counted down", latch),
    ("a multi-lock: all names or none, in whichever order they are given", multi),
    ("a Redlock over three servers: one is killed, and work goes on", redlock),
    ("a single flight: of three processes one computes, and all have the value", flight),
];

const HAND_OVERS: usize = 10;

fn preflight(stage: &mut Stage) -> Result<(), String> {
    let mut a = stage.puppet(&[])?;
    let report = a.ask("p preflight orders:42", "info")?;
    for line in report.text("text").lines() {
        stage.narrate(&format!("  {line}"));
    }
    stage.check(report.text("severity") != "error", "nothing stands in the way of locks")?;
    a.finish()
}

fn nested(stage: &mut Stage) -> Result<(), String> {
    let name = "orders:42";
    let mut a = stage.puppet(&[])?;
    let outer = a.ask(&format!("outer lock {name} owner=checkout"), "granted")?;
    tell_granted(stage, &a, &outer)?;
    let first = stage.show_hash(name)?;
    let inner = a.ask(&format!("inner lock {name} owner=checkout"), "granted")?;
    tell_granted(stage, &a, &inner)?;
    let second = stage.show_hash(name)?;
    unlock(stage, &mut a, "inner")?;
    let third = stage.show_hash(name)?;
    unlock(stage, &mut a, "outer")?;
    let fourth = stage.show_hash(name)?;
    stage.check(
        [first, second, third, fourth] == [1, 2, 1, 0],
        "the hold count goes 1, 2, 1, gone",
    )?;
    let same = outer.number("token")? == inner.number("token")?;
    stage.check(same, "both levels have the same fencing token")?;
    a.finish()
}

fn wake_up(stage: &mut Stage) -> Result<(), String> {
    let name = "report";
    let (mut a, b, c) = (stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?);
    let held = a.ask(&format!("l lock {name}"), "granted")?;
    tell_granted(stage, &a, &held)?;
    let mut waiters = [b, c];
    for waiter in &mut waiters {
        let waiting = waiter.ask(&format!("l0 lock {name}"), "waiting")?;
        stage.tell(waiter, waiting.boot_ns, "waits");
    }
    until_asleep(stage, name, 2)?;
    stage.check(true, "both are subscribed, and no script ran for 500 ms: nobody polls")?;
    let released = unlock(stage, &mut a, "l")?;
    let (mut holder, woken) = first_granted(&mut waiters, "l0")?;
    let mut times = vec![tell_woken(stage, &waiters[holder], &woken, &released)?];
    // From here on the two pass it to each other.
    let mut locks = ["l0".to_owned(), "l0".to_owned()];
    for number in 1..=HAND_OVERS {
        let released = release(&mut waiters[holder], &locks[holder])?;
        let next = 1 - holder;
        let woken = waiters[next].expect(&locks[next], "granted")?;
        times.push(tell_woken(stage, &waiters[next], &woken, &released)?);
        if number < HAND_OVERS {
            locks[holder] = format!("l{number}");
            waiters[holder].ask(&format!("l{number} lock {name}"), "waiting")?;
        }
        holder = next;
    }
    release(&mut waiters[holder], &locks[holder])?;
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    stage.narrate(&format!(
        "  {} hand-overs between processes: median {median} µs, worst {worst} µs",
        times.len()
    ));
    for waiter in &mut waiters {
        let polled = waiter.ask("s stats", "info")?.counter("fallback_grants")?;
        stage.check(
            polled == 0,
            &format!("{} was always woken, never by its fallback poll", waiter.letter),
        )?;
    }
    waiters.into_iter().chain([a]).try_for_each(Puppet::finish)
}

fn watchdog(stage: &mut Stage) -> Result<(), String> {
    let (name, lease) = ("import", 1_000);
    let setting = format!("lease_ms={lease}");
    let mut a = stage.puppet(&[&setting])?;
    let mut b = stage.puppet(&[])?;
    let granted = a.ask(&format!("l lock {name}"), "granted")?;
    tell_granted(stage, &a, &granted)?;
    let (mut lowest, mut highest) = (i64::MAX, i64::MIN);
    while boot_ns() < granted.boot_ns + 3_500_000_000 {
        thread::sleep(Duration::from_millis(50));
        let pttl = stage.pttl(name)?;
        (lowest, highest) = (lowest.min(pttl), highest.max(pttl));
    }
    stage.narrate(&format!(
        "  3.5 leases later: PTTL was between {lowest} and {highest} ms all the time"
    ));
    stage.check(
        lowest > 0 && highest <= lease,
        "the key never ran out and never got more than one lease",
    )?;
    b.ask(&format!("t try {name}"), "denied")?;
    stage.check(
        a.ask("g guard l", "info")?.text("state") == "held",
        "another process is denied, the guard is held",
    )?;
    let renewals = a.ask("s stats", "info")?.counter("renewals")?;
    stage.check(renewals >= 3, &format!("{renewals} renewals were confirmed"))?;
    unlock(stage, &mut a, "l")?;
    a.finish()?;
    b.finish()
}

fn take_over(stage: &mut Stage) -> Result<(), String> {
    let name = "payments";
    let mut a = stage.puppet(&["lease_ms=1000"])?;
    let mut b = stage.puppet(&["lease_ms=1000"])?;
    let old = a.ask(&format!("l lock {name}"), "granted")?;
    tell_granted(stage, &a, &old)?;
    let waiting = b.ask(&format!("l lock {name}"), "waiting")?;
    stage.tell(&b, waiting.boot_ns, "waits");
    let killed_ns = boot_ns();
    stage.tell(&a, killed_ns, "killed with SIGKILL while it holds the lock");
    a.kill();
    stage.show_hash(name)?;
    let new = b.expect("l", "granted")?;
    tell_granted(stage, &b, &new)?;
    let waited = Duration::from_nanos(new.boot_ns.saturating_sub(killed_ns));
    let (old_token, new_token) = (old.number("token")?, new.number("token")?);
    let claim =
        format!("taken over {} ms after the kill, with a lease of 1000 ms", waited.as_millis());
    stage.check(waited < Duration::from_secs(3), &claim)?;
    stage.check(
        new_token > old_token,
        &format!("the new fencing token is larger: {new_token} > {old_token}"),
    )?;
    unlock(stage, &mut b, "l")?;
    b.finish()
}

fn force_unlock(stage: &mut Stage) -> Result<(), String> {
    let name = "nightly";
    let (mut a, mut b) = (stage.puppet(&[])?, stage.puppet(&[])?);
    let granted = a.ask(&format!("l lock {name}"), "granted")?;
    tell_granted(stage, &a, &granted)?;
    let forced_ns = boot_ns();
    let forced = b.ask(&format!("f force {name}"), "info")?;
    stage.tell(&b, forced.boot_ns, &format!("force_unlock of {name}"));
    let lost = a.expect("l", "lost")?;
    let after = micros(lost.boot_ns.saturating_sub(forced_ns));
    let reason = lost.text("reason").to_owned();
    stage.tell(
        &a,
        lost.boot_ns,
        &format!("LOST {name}: {reason}, {after} µs after the force-unlock was asked for"),
    );
    stage.check(reason == "force_unlocked", "the holder was told, and why")?;
    stage.check(
        a.ask("g guard l", "info")?.text("state") == "lost",
        "its guard does not claim to hold",
    )?;
    let refused = a.ask("u unlock l", "error")?;
    stage.check(
        refused.text("kind") == "lost",
        &format!("its unlock says: {}", refused.text("message")),
    )?;
    a.finish()?;
    b.finish()
}

fn scopes(stage: &mut Stage) -> Result<(), String> {
    let name = "cache";
    let mut a = stage.puppet(&[])?;
    stage.narrate("  without scopes both branches are one task, so one owner:");
    a.ask(&format!("l1 lock {name} owner=task"), "granted")?;
    let second = a.ask(&format!("l2 lock {name} owner=task"), "granted")?;
    tell_granted(stage, &a, &second)?;
    stage.check(
        second.number("count")? == 2,
        "the second branch re-entered: nothing keeps them apart",
    )?;
    release(&mut a, "l1")?;
    release(&mut a, "l2")?;
    stage.narrate("  with Owner::new().scope(…) around each branch:");
    let left = a.ask(&format!("left lock {name} owner=left"), "granted")?;
    stage.tell(&a, left.boot_ns, "left branch: granted");
    let waiting = a.ask(&format!("right lock {name} owner=right"), "waiting")?;
    stage.tell(&a, waiting.boot_ns, "right branch: waits");
    let released = release(&mut a, "left")?;
    stage.tell(&a, released.sent_ns, "left branch: releases");
    let right = a.expect("right", "granted")?;
    let after = micros(right.boot_ns.saturating_sub(released.sent_ns));
    stage.tell(&a, right.boot_ns, &format!("right branch: granted, {after} µs later"));
    stage.check(right.boot_ns > released.sent_ns, "the branches never held it together")?;
    release(&mut a, "right")?;
    a.finish()
}

fn read_write(stage: &mut Stage) -> Result<(), String> {
    let name = "catalog";
    let (mut a, mut b, mut c) = (stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?);
    for reader in [&mut a, &mut b] {
        let read = reader.ask(&format!("r lock {name} kind=read"), "granted")?;
        stage.tell(reader, read.boot_ns, &format!("reads {name}"));
    }
    stage.check(true, "two processes read at the same time")?;
    let waiting = c.ask(&format!("w lock {name} kind=write"), "waiting")?;
    stage.tell(&c, waiting.boot_ns, "waits to write");
    until_in_line(stage, name)?;
    a.ask(&format!("t try {name} kind=read owner=late"), "denied")?;
    stage.check(true, "a read that comes later is denied: the writer goes first")?;
    release(&mut a, "r")?;
    let released = release(&mut b, "r")?;
    stage.tell(&b, released.sent_ns, "the last reader releases");
    let write = c.expect("w", "granted")?;
    tell_woken(stage, &c, &write, &released)?;
    let waiting = a.ask(&format!("again lock {name} kind=read"), "waiting")?;
    stage.tell(&a, waiting.boot_ns, "waits to read");
    until_in_line(stage, name)?;
    let asked_ns = boot_ns();
    c.ask("d downgrade w", "info")?;
    stage.tell(&c, asked_ns, "downgrades: it reads from here on");
    let beside = a.expect("again", "granted")?;
    let after = micros(beside.boot_ns.saturating_sub(asked_ns));
    stage.tell(&a, beside.boot_ns, &format!("reads beside it, {after} µs later"));
    let state = c.ask("g guard w", "info")?;
    stage.check(state.text("state") == "held", "the writer became a reader, and another reads")?;
    release(&mut c, "w")?;
    release(&mut a, "again")?;
    [a, b, c].into_iter().try_for_each(Puppet::finish)
}

fn fair(stage: &mut Stage) -> Result<(), String> {
    let name = "tickets";
    let mut till = stage.puppet(&[])?;
    let mut buyers = [stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?];
    let lock = format!("l lock {name} kind=fair");
    let granted = till.ask(&lock, "granted")?;
    tell_granted(stage, &till, &granted)?;
    for (before, buyer) in buyers.iter_mut().enumerate() {
        let waiting = buyer.ask(&lock, "waiting")?;
        stage.tell(buyer, waiting.boot_ns, &format!("waits behind {before} others"));
        until_so_many_in_line(stage, name, before as i64 + 1)?;
    }
    unlock(stage, &mut till, "l")?;
    let mut order = Vec::new();
    for buyer in &mut buyers {
        let granted = buyer.expect("l", "granted")?;
        stage.tell(buyer, granted.boot_ns, "is served");
        order.push(granted.boot_ns);
        release(buyer, "l")?;
    }
    stage.check(order.is_sorted(), "they were served in the order in which they came")?;
    buyers.into_iter().chain([till]).try_for_each(Puppet::finish)
}

/// Waits until somebody stands in the line of a name.
fn until_in_line(stage: &mut Stage, name: &str) -> Result<(), String> {
    until_so_many_in_line(stage, name, 1)
}

fn until_so_many_in_line(stage: &mut Stage, name: &str, places: i64) -> Result<(), String> {
    let line = format!("redisson_lock_line__{{{name}}}");
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let there = stage.redis.int(&["ZCARD", &line]);
        if there.map_err(|error| format!("ZCARD: {error}"))? >= places {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(format!("fewer than {places} stand in the line of {name}"))
}

fn semaphore(stage: &mut Stage) -> Result<(), String> {
    let name = "exports";
    let (mut a, mut b) = (stage.puppet(&["lease_ms=1000"])?, stage.puppet(&[])?);
    let mut c = stage.puppet(&[])?;
    for (puppet, permits) in [(&mut a, 2), (&mut b, 1)] {
        let what = format!("p lock {name} kind=permit of=3 permits={permits}");
        let granted = puppet.ask(&what, "granted")?;
        stage.tell(puppet, granted.boot_ns, &format!("has {permits} of the 3 permits"));
    }
    c.ask(&format!("t try {name} kind=permit of=3"), "denied")?;
    stage.check(true, "there are no more than three permits")?;
    let waiting = c.ask(&format!("p lock {name} kind=permit of=3 permits=2"), "waiting")?;
    stage.tell(&c, waiting.boot_ns, "waits for 2 permits");
    until_in_line(stage, name)?;
    let killed_ns = boot_ns();
    stage.tell(&a, killed_ns, "killed with SIGKILL while it has 2 permits");
    a.kill();
    let granted = c.expect("p", "granted")?;
    let waited = Duration::from_nanos(granted.boot_ns.saturating_sub(killed_ns));
    stage.tell(&c, granted.boot_ns, "has 2 permits");
    stage.check(
        waited < Duration::from_secs(3),
        &format!(
            "they came back {} ms after the kill, with a lease of 1000 ms",
            waited.as_millis()
        ),
    )?;
    release(&mut c, "p")?;
    release(&mut b, "p")?;
    b.finish()?;
    c.finish()
}

/// Two transfers between the same accounts, in opposite directions.
fn multi(stage: &mut Stage) -> Result<(), String> {
    let accounts = ["account:1", "account:2"];
    let [mut a, mut b, mut c] = [stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?];
    let held = c.ask(&format!("l lock {}", accounts[1]), "granted")?;
    stage.tell(&c, held.boot_ns, &format!("has {}", accounts[1]));
    for (puppet, names) in [(&mut a, "account:1,account:2"), (&mut b, "account:2,account:1")] {
        let waiting = puppet.ask(&format!("m multi {names}"), "waiting")?;
        stage.tell(puppet, waiting.boot_ns, &format!("wants {names}, and waits"));
    }
    until_in_line(stage, accounts[1])?;
    let released = unlock(stage, &mut c, "l")?;
    let mut both = [a, b];
    let (first, granted) = first_granted(&mut both, "m")?;
    let after = micros(granted.boot_ns.saturating_sub(released.sent_ns));
    stage.tell(&both[first], granted.boot_ns, &format!("has both accounts, {after} µs later"));
    let all = accounts.iter().all(|account| stage.pttl(account).is_ok_and(|pttl| pttl > 0));
    let alone = both[1 - first].poll("m", "granted").is_none();
    stage.check(all && alone, "both names are held, by one of the two")?;
    release(&mut both[first], "m")?;
    let granted = both[1 - first].expect("m", "granted")?;
    stage.tell(&both[1 - first], granted.boot_ns, "has both accounts");
    stage.check(true, "the other has them next: no deadlock")?;
    release(&mut both[1 - first], "m")?;
    both.into_iter().chain([c]).try_for_each(Puppet::finish)
}

fn latch(stage: &mut Stage) -> Result<(), String> {
    let name = "migration-7";
    let (mut a, mut b, mut c) = (stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?);
    let set = a.ask(&format!("s latch {name} set 2"), "info")?;
    stage.tell(&a, set.boot_ns, &format!("set the count of {name} to 2"));
    c.send(&format!("w latch {name} wait"))?;
    let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
    let until = Instant::now() + Duration::from_secs(10);
    while stage.listeners(&channel)? < 1 {
        if Instant::now() > until {
            return Err("nobody waits for the latch".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    stage.tell(&c, boot_ns(), "waits for the latch");
    let first = a.ask(&format!("d latch {name} down"), "info")?;
    stage.tell(&a, first.boot_ns, "counted down");
    stage.check(
        first.number("count")? == 1 && c.poll("w", "info").is_none(),
        "one is left, and the waiter still waits",
    )?;
    let called_ns = boot_ns();
    let second = b.ask(&format!("d latch {name} down"), "info")?;
    stage.tell(&b, second.boot_ns, "counted down");
    let opened = c.expect("w", "info")?;
    let after = micros(opened.boot_ns.saturating_sub(called_ns));
    stage.tell(&c, opened.boot_ns, &format!("goes on, {after} µs after that was asked for"));
    let is_gone = stage.pttl(name)? == -2;
    stage.check(second.number("count")? == 0 && is_gone, "the count is 0, and the key is gone")?;
    [a, b, c].into_iter().try_for_each(Puppet::finish)
}

fn redlock(stage: &mut Stage) -> Result<(), String> {
    let name = "ledger";
    let mut servers =
        (0..3).map(|_| Server::start(&stage.program)).collect::<Result<Vec<_>, _>>()?;
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let all = format!("redlock={}", urls.join(","));
    // Nobody has used these servers, so that nothing can be held on them.
    let settings = ["assume_fresh=on", "lease_ms=2000"];
    let (mut a, mut b) = (stage.puppet_at(&all, &settings)?, stage.puppet_at(&all, &settings)?);
    let old = a.ask(&format!("l lock {name}"), "granted")?;
    tell_granted(stage, &a, &old)?;
    let waiting = b.ask(&format!("l lock {name}"), "waiting")?;
    stage.tell(&b, waiting.boot_ns, "waits");
    let killed = servers.remove(0);
    stage.narrate(&format!("  killed with SIGKILL: the server with pid {}", killed.pid));
    drop(killed);
    // Longer than the lease, so that it was renewed on the two that are left.
    while boot_ns() < old.boot_ns + 4_000_000_000 {
        thread::sleep(Duration::from_millis(50));
    }
    let held = a.ask("g guard l", "info")?.text("state") == "held";
    stage.check(held && b.poll("l", "granted").is_none(), "two leases later it is held by one")?;
    unlock(stage, &mut a, "l")?;
    let new = b.expect("l", "granted")?;
    tell_granted(stage, &b, &new)?;
    let (old_token, new_token) = (old.number("token")?, new.number("token")?);
    let claim = format!("work goes on, with a larger fencing token: {new_token} > {old_token}");
    stage.check(new_token > old_token, &claim)?;
    let again = b.ask(&format!("t try {name}"), "denied")?;
    stage.tell(&b, again.boot_ns, "denied a second time: two servers are a majority");
    unlock(stage, &mut b, "l")?;
    // What is left on the server that is gone is not waited for.
    for puppet in [&mut a, &mut b] {
        puppet.ask("end shutdown 100", "info")?;
    }
    [a, b].into_iter().try_for_each(Puppet::finish)
}

fn flight(stage: &mut Stage) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("xtask-demo-{}", std::process::id()));
    let log = file.with_extension("log");
    let done = fly(stage, &file, &log);
    let _ = (std::fs::remove_file(&file), std::fs::remove_file(&log));
    done
}

fn fly(stage: &mut Stage, file: &Path, log: &Path) -> Result<(), String> {
    let mut all = [stage.puppet(&[])?, stage.puppet(&[])?, stage.puppet(&[])?];
    for puppet in &mut all {
        puppet.send(&format!("f flight statistics {} work_ms=300", file.display()))?;
        stage.tell(puppet, boot_ns(), "wants the value, which takes 300 ms to compute");
    }
    let mut values = Vec::new();
    let mut leaders = 0;
    for puppet in &mut all {
        let value = puppet.expect("f", "info")?;
        let led = value.fields["led"] == true;
        leaders += usize::from(led);
        let how = if led { "computed it" } else { "was given it" };
        stage.tell(puppet, value.boot_ns, &format!("{how}: {}", value.text("value")));
        values.push(value.text("value").to_owned());
    }
    let computed = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
    stage.check(
        leaders == 1 && computed.lines().count() == 1,
        "one process computed the value, once",
    )?;
    stage.check(values.iter().all(|value| *value == values[0]), "all three have the same value")?;
    all.into_iter().try_for_each(Puppet::finish)
}

// ===== steps =====

/// When a release was sent, and when it was answered.
struct Released {
    sent_ns: u64,
    done_ns: u64,
}

/// Unlocks what command `lock` of a puppet was granted.
fn release(puppet: &mut Puppet, lock: &str) -> Result<Released, String> {
    let id = format!("u-{lock}");
    let sent_ns = puppet.ask(&format!("{id} unlock {lock}"), "releasing")?.boot_ns;
    Ok(Released { sent_ns, done_ns: puppet.expect(&id, "unlocked")?.boot_ns })
}

/// As `release`, and says so.
fn unlock(stage: &Stage, puppet: &mut Puppet, lock: &str) -> Result<Released, String> {
    let released = release(puppet, lock)?;
    stage.tell(puppet, released.done_ns, "unlocked one level");
    Ok(released)
}

fn tell_granted(stage: &Stage, puppet: &Puppet, granted: &Event) -> Result<(), String> {
    let (name, token, count) =
        (granted.text("name"), granted.number("token")?, granted.number("count")?);
    stage.tell(
        puppet,
        granted.boot_ns,
        &format!("granted {name}: hold count {count}, fencing token {token}"),
    );
    Ok(())
}

/// Prints a grant with the time since the release that caused it, and gives that time in
/// microseconds.
fn tell_woken(
    stage: &Stage,
    puppet: &Puppet,
    granted: &Event,
    released: &Released,
) -> Result<u64, String> {
    let after = micros(granted.boot_ns.saturating_sub(released.sent_ns));
    let token = granted.number("token")?;
    let text = format!("woken and granted {after} µs after the release, fencing token {token}");
    stage.tell(puppet, granted.boot_ns, &text);
    Ok(after)
}

/// Which of two waiters got the lock first.
fn first_granted(waiters: &mut [Puppet; 2], id: &str) -> Result<(usize, Event), String> {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        for (index, waiter) in waiters.iter_mut().enumerate() {
            if let Some(event) = waiter.poll(id, "granted") {
                return Ok((index, event));
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err("neither waiter was woken".into())
}

/// Waits until so many are subscribed and no script has run for 500 ms.
fn until_asleep(stage: &mut Stage, name: &str, sleepers: i64) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let before = stage.evalsha_calls()?;
        thread::sleep(Duration::from_millis(500));
        if stage.subscribers(name)? == sleepers && stage.evalsha_calls()? == before {
            return Ok(());
        }
    }
    Err(format!("the waiters of {name} do not come to rest"))
}

fn micros(nanos: u64) -> u64 {
    nanos / 1_000
}
