//! Two well-behaved clients: nested holds, limited waits, names.

use std::time::Duration;

use crate::interop::client::BOTH_WAYS;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::check;
use crate::interop::stage::pass_on;
use crate::puppet::boot_ns;

pub(crate) const ALL: &[Scenario] = &[
    Scenario { title: "nested holds", run: nested, directions: BOTH_WAYS, needs_newer: false },
    Scenario {
        title: "wait timeout",
        run: wait_timeout,
        directions: BOTH_WAYS,
        needs_newer: false,
    },
    Scenario { title: "names", run: names, directions: BOTH_WAYS, needs_newer: false },
];

/// Braces, colons, what is not ASCII, what wants quoting.
const NAMES: &[&str] = &[
    "{orders}:42",
    "a:b::c",
    ":",
    "{{nested}}",
    "{a}b{c}",
    "заказ:42",
    "名{標}前",
    "😀",
    "sp ace \"quoted\" \\ back",
];

fn nested(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let name = stage.name("nested");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Long)?;
    let (outer, granted) = holder.lock(&name, "owner=o")?;
    let field = granted.text("holder").to_owned();
    check(field.starts_with(holder.uuid()), || format!("{field} is not of {}", holder.uuid()))?;
    stage.check_hash(&name, &field, 1)?;
    let (inner, granted) = holder.lock(&name, "owner=o")?;
    check(granted.number("count") == Ok(2), || format!("the hold count should be 2: {granted:?}"))?;
    stage.check_hash(&name, &field, 2)?;
    other.denied(&name)?;
    holder.unlock(&inner)?;
    stage.check_hash(&name, &field, 1)?;
    other.denied(&name)?;
    let query = other.ask("query", &name, "", "info")?;
    check(query.fields["locked"] == true, || {
        format!("{} sees no lock: {query:?}", other.lang.name())
    })?;
    check(query.number("remaining_ms").is_ok_and(|left| left > 20_000), || format!("{query:?}"))?;

    let waiting = other.wait(&name, "owner=o")?;
    holder.unlock(&outer)?;
    let granted = other.expect(&waiting, "granted")?;
    let (again, twice) = other.lock(&name, "owner=o")?;
    check(twice.number("count") == Ok(2), || format!("the hold count should be 2: {twice:?}"))?;
    stage.check_hash(&name, granted.text("holder"), 2)?;
    holder.denied(&name)?;
    other.unlock(&again)?;
    other.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.give_back([holder, other]);
    Ok(())
}

fn wait_timeout(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    const WAIT: Duration = Duration::from_millis(400);
    let name = stage.name("timeout");
    let (mut holder, mut other) = stage.pair(first, second, Lease::Long)?;
    let (lock, granted) = holder.lock(&name, "")?;
    let called = boot_ns();
    let denied = other.ask("try", &name, &format!("wait_ms={}", WAIT.as_millis()), "denied")?;
    let waited = Duration::from_nanos(denied.boot_ns.saturating_sub(called));
    check(waited >= WAIT, || format!("{} waited only {waited:?}", other.lang.name()))?;
    stage.check_hash(&name, granted.text("holder"), 1)?;
    let channel = stage.channel(&name);
    stage.eventually("nobody is subscribed any more", |stage| {
        stage.redis.subscribers(&channel).map(|number| number == 0)
    })?;

    // A limited wait that is long enough ends in a grant.
    let waiting = other.begin("try", &name, "wait_ms=20000")?;
    other.expect(&waiting, "waiting")?;
    pass_on(&mut holder, &lock, &mut other, &waiting)?;
    other.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.give_back([holder, other]);
    Ok(())
}

fn names(stage: &mut Stage<'_>, first: Lang, second: Lang) -> Result<(), String> {
    let (mut holder, mut other) = stage.pair(first, second, Lease::Long)?;
    for name in NAMES {
        let trouble = |reason: String| format!("the name `{name}`: {reason}");
        let (lock, granted) = holder.lock(name, "").map_err(trouble)?;
        stage.check_hash(name, granted.text("holder"), 1)?;
        other.denied(name).map_err(trouble)?;
        let waiting = other.wait(name, "").map_err(trouble)?;
        pass_on(&mut holder, &lock, &mut other, &waiting).map_err(trouble)?;
        other.unlock(&waiting).map_err(trouble)?;
        stage.check_free(name)?;
    }
    stage.give_back([holder, other]);
    Ok(())
}
