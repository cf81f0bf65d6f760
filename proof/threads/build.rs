//! Takes the library's own sources, with the locks and atomics of loom, and of shuttle, in place of
//! std's; and once more for each rule, with that rule broken.

use std::env;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;

/// A rule, broken: which model must notice, and what is changed where.
struct Broken {
    name: &'static str,
    model: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

include!("broken.rs");

/// From each file what threads share, without its tests.
const FILES: [&str; 7] = [
    "base/cell.rs",
    "driver/slot.rs",
    "driver/wakes.rs",
    "driver/desk.rs",
    "driver/mailbox.rs",
    "driver/seat.rs",
    "driver/shared.rs",
];

/// Of this file the end of the mailbox.
const ENDING: &str = "driver/task/ending.rs";

/// What `loom` has to see. `Arc` and `OnceLock` stay std's: what they guard is guarded by a lock
/// within, too.
const SEEN: [(&str, &str); 13] = [
    ("use std::sync::atomic::", "use crate::sync::"),
    ("use std::sync::Mutex;", "use crate::sync::Mutex;"),
    ("use std::sync::MutexGuard;", "use crate::sync::MutexGuard;"),
    ("use tokio::task::consume_budget;", "use crate::sync::consume_budget;"),
    ("use tokio::sync::Notify;", "use crate::sync::Notify;"),
    ("use tokio::sync::mpsc::UnboundedSender;", "use crate::sync::UnboundedSender;"),
    ("use tokio::sync::mpsc::UnboundedReceiver;", "use crate::sync::UnboundedReceiver;"),
    ("tokio::sync::mpsc::unbounded_channel()", "crate::sync::unbounded_channel()"),
    ("use super::drive::", "use crate::drive::"),
    ("use crate::driver::background::", "use crate::background::"),
    ("use super::settle;", "use crate::settle;"),
    ("enum Message", "pub(crate) enum Message"),
    ("pub(super)", "pub(crate)"),
];

fn main() {
    let src = manifest().join("../../src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=broken.rs");
    println!("cargo::rerun-if-changed=src/models.rs");
    println!("cargo::rerun-if-changed=src/sync.rs");
    println!("cargo::rerun-if-changed={}", src.display());
    let mut text = variant(&src, "good", None, false) + &variant(&src, "good_shuttle", None, true);
    writeln!(text, "mod shuttle_sync {{\n{}\n}}", shuttle(&read(&manifest().join("src/sync.rs"))))
        .expect("text");
    let mut list = String::from("pub(crate) const BROKEN: &[(&str, &str, [Model; 2])] = &[\n");
    for broken in BROKEN {
        let Broken { name, model, .. } = broken;
        text.push_str(&variant(&src, name, Some(broken), false));
        text.push_str(&variant(&src, &format!("{name}_shuttle"), Some(broken), true));
        let entry =
            |name: &str| format!("({name}::models::{model}, {name}::models::check_outcomes)");
        let (loom, shuttle) = (entry(name), entry(&format!("{name}_shuttle")));
        writeln!(list, "    (\"{name}\", \"{model}\", [{loom}, {shuttle}]),").expect("text");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("variants.rs");
    fs::write(out, format!("{text}{list}];\n")).expect("the output directory is writable");
}

fn manifest() -> PathBuf {
    PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"))
}

/// With shuttle's locks in place of loom's.
fn shuttle(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    text.replace("loom::", "shuttle::").replace("crate::sync::", "crate::shuttle_sync::")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The sources as modules of a module of their own; the models as well, unless they are built in
/// place.
fn variant(src: &Path, name: &str, broken: Option<&Broken>, on_shuttle: bool) -> String {
    let changed = |file: &str, text: String| match broken {
        Some(broken) if broken.file == file => {
            let [place] = &places(&text, broken.from)[..] else {
                panic!("{name}: {file} has changed");
            };
            [&text[..place.start], broken.to, &text[place.end..]].concat()
        }
        _ => text,
    };
    let [cell, slot, wakes, desk, mailbox, seat, shared] =
        FILES.map(|file| prepared(&changed(file, read(&src.join(file))), name));
    let driver = prepared(&message(&changed("driver.rs", read(&src.join("driver.rs")))), name);
    let ending = prepared(&ending(&changed(ENDING, read(&src.join(ENDING)))), name);
    let models = if name == "good" {
        String::new()
    } else {
        let text = read(&manifest().join("src/models.rs"));
        let text = prepared(&text.replace("crate::good::", &format!("crate::{name}::")), name);
        format!("pub(crate) mod models {{\n{text}\n}}\n")
    };
    let text = format!(
        "#[allow(warnings, clippy::all, reason = \"a part of what is shipped\")]\n\
         pub(crate) mod {name} {{\n\
         pub(crate) mod cell {{\n{cell}\n}}\npub(crate) mod slot {{\n{slot}\n}}\n\
         pub(crate) mod wakes {{\n{wakes}\n}}\n\
         pub(crate) mod driver {{\n{driver}\npub(crate) mod desk {{\n{desk}\n}}\n\
         pub(crate) mod mailbox {{\n{mailbox}\n}}\npub(crate) mod seat {{\n{seat}\n}}\n\
         pub(crate) mod shared {{\n{shared}\n}}\npub(crate) mod ending {{\n{ending}\n}}\n}}\n{models}}}\n"
    );
    if on_shuttle { shuttle(&text) } else { text }
}

/// Where `wanted` stands in the text. Spaces and line breaks, which the formatter moves, do not count.
fn places(text: &str, wanted: &str) -> Vec<Range<usize>> {
    let visible = |text: &str| -> Vec<(usize, char)> {
        text.char_indices().filter(|(_, letter)| !letter.is_whitespace()).collect()
    };
    let wanted: Vec<char> = visible(wanted).into_iter().map(|(_, letter)| letter).collect();
    let windows = visible(text);
    let windows = windows.windows(wanted.len());
    let found = windows.filter(|window| window.iter().map(|(_, letter)| letter).eq(&wanted));
    let ends = found.filter_map(|window| {
        let (last, letter) = window.last()?;
        Some(window.first()?.0..last + letter.len_utf8())
    });
    ends.collect()
}

/// Without the page's own comment and its tests, and with the other locks.
fn prepared(text: &str, name: &str) -> String {
    let text = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    let mut text: String = lines.flat_map(|line| [line, "\n"]).collect();
    for (from, to) in SEEN {
        text = text.replace(from, to);
    }
    // Each variant has these of its own; for the rest of these folders there are stand-ins.
    text = text.replace("crate::base::", "crate::").replace("crate::settings::", "crate::");
    text = text
        .replace("crate::driver::slot", "crate::slot")
        .replace("crate::driver::wakes", "crate::wakes");
    for module in ["cell", "slot", "wakes"] {
        text = text.replace(&format!("crate::{module}::"), &format!("crate::{name}::{module}::"));
    }
    text
}

/// The messages of the mailbox.
fn message(driver: &str) -> String {
    let at = driver.find("use std::sync::mpsc;").expect("driver.rs has changed");
    driver[at..].to_owned()
}

/// What the driver does with its callers when it ends.
fn ending(task: &str) -> String {
    let farewell = between(
        task,
        "/// The answers to the callers of `shutdown`, delivered once nothing of the driver is left.",
        "impl Task {",
    );
    let turn_away = between(task, "    /// Closes the mailbox.", "    async fn close_backend");
    format!(
        "use std::sync::Arc;\nuse crate::engine::event::Answer;\nuse crate::engine::event::Fates;\nuse crate::slot::Ticket;\nuse crate::wakes::Wakes;\n\
         use super::Message;\nuse super::desk::Desk;\nuse super::mailbox::Inbox;\n\
         pub(crate) struct Ending {{ pub(crate) messages: Inbox, pub(crate) desk: Desk, \
         pub(crate) farewell: Farewell }}\n{}\nimpl Ending {{\n{}}}\n",
        farewell,
        turn_away.replace("async fn turn_callers_away", "pub(crate) async fn turn_callers_away")
    )
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("{ENDING} has changed: {from}"));
    let end = text[start..].find(to).unwrap_or_else(|| panic!("{ENDING} has changed: {to}"));
    &text[start..start + end]
}
