//! The surroundings of a violation, for people.

use crate::event::Event;
use crate::event::How;
use crate::history::History;
use crate::history::Process;
use crate::history::Violation;

const BEFORE: u64 = 60_000_000;
const AFTER: u64 = 10_000_000;
const LINES: usize = 80;

/// What happened to the name shortly before and after, and what was done to anybody at any time
/// before.
pub(crate) fn around(history: &History, violation: &Violation) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for Process { label, events, .. } in &history.processes {
        let mut named = std::collections::HashMap::new();
        let mut holds = std::collections::HashSet::new();
        for event in events {
            let about = match event {
                Event::Call { op, name, hold, .. } => {
                    named.insert(*op, name == &violation.name);
                    if name == &violation.name {
                        holds.insert(hold.clone());
                    }
                    name == &violation.name
                }
                Event::End { op, how, .. } => {
                    let about = named.get(op) == Some(&true);
                    if let (true, How::Granted { hold, .. }) = (about, how) {
                        holds.insert(hold.clone());
                    }
                    about
                }
                Event::Look { hold, .. } | Event::Lost { hold, .. } => holds.contains(hold),
                Event::Gauges { .. } | Event::Bye { .. } => true,
            };
            let near = event.at() + BEFORE >= violation.at && event.at() <= violation.at + AFTER;
            if about && near {
                lines.push((event.at(), format!("{label:<6} {}", short(&event.to_string()))));
            }
        }
    }
    let near_accesses = history.accesses.iter().filter(|access| {
        access.name == violation.name
            && access.at + BEFORE >= violation.at
            && access.at <= violation.at + AFTER
    });
    for access in near_accesses {
        let did = match access.base {
            None => "reads".to_owned(),
            Some(base) => format!("writes on top of {base}"),
        };
        let refused = if access.refused { ", refused" } else { "" };
        let hold = short(&access.hold);
        let what =
            format!("store  {hold} {did}, at {}{refused} ({:?})", access.version, access.which);
        lines.push((access.at, what));
    }
    lines.sort();
    let skipped = lines.len().saturating_sub(LINES);
    lines.drain(..skipped);
    let harm = history.harm.iter().map(|(at, what)| (*at, format!("** {what}")));
    lines.extend(harm.filter(|(at, _)| *at <= violation.at + AFTER));
    lines.push((violation.at, format!("!! {}: {}", violation.name, short(&violation.what))));
    lines.sort();
    let start = lines.first().map_or(0, |(at, _)| *at);
    let show =
        |(at, what): &(u64, String)| format!("{:>12.3} ms  {what}\n", (at - start) as f64 / 1e6);
    lines.iter().map(show).collect()
}

/// With ids of clients cut to eight characters.
fn short(text: &str) -> String {
    let cut = |word: &str| match word.split_once(':') {
        Some((uuid, hold)) if uuid.len() == 36 => format!("{}:{hold}", &uuid[..8]),
        _ => word.to_owned(),
    };
    text.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}
