//! What happened, a line each: kept when somebody wants to read it, or only its hash.

use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::sim::client::Request;
use crate::sim::plan::START;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Hash,
    Keep,
}

#[derive(Debug)]
pub(super) struct Trace {
    mode: Mode,
    lines: Vec<String>,
    hash: u64,
    ids: Vec<String>,
}

impl Trace {
    fn new(mode: Mode) -> Self {
        Self { mode, lines: Vec::new(), hash: 0xcbf2_9ce4_8422_2325, ids: Vec::new() }
    }

    pub(super) fn off() -> Self {
        Self::new(Mode::Off)
    }

    pub(super) fn hashed() -> Self {
        Self::new(Mode::Hash)
    }

    pub(super) fn kept() -> Self {
        Self::new(Mode::Keep)
    }

    /// Clients are called by their numbers.
    pub(super) fn with_ids(mut self, ids: Vec<String>) -> Self {
        self.ids = ids;
        self
    }

    pub(super) fn is_kept(&self) -> bool {
        self.mode == Mode::Keep
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Without what repeats in every line.
    pub(super) fn short(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, id) in self.ids.iter().enumerate() {
            text = text.replace(id, &format!("c{index}"));
        }
        text
    }

    pub(super) fn say(&mut self, now: Moment, line: impl FnOnce() -> String) {
        if self.mode == Mode::Off {
            return;
        }
        let since = now.0.saturating_sub(START.0) as f64 / 1e6;
        let line = format!("{since:>10.3} ms  {}", self.short(&line()));
        if self.mode == Mode::Keep {
            self.lines.push(line);
            return;
        }
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(super) fn event(&mut self, now: Moment, client: usize, event: &Event) {
        if !matches!(event, Event::Tick) {
            self.say(now, || match event {
                Event::Acquire(acquire) => format!(
                    "{client} -> wish {} for {}: {:?} {:?} max_hold {:?} at_least {:?} of {:?}",
                    acquire.request.0,
                    acquire.name,
                    acquire.wait,
                    acquire.lease,
                    acquire.max_hold,
                    acquire.at_least,
                    acquire.owner
                ),
                Event::Replied { op, server, outcome } => match outcome {
                    Outcome::Done(reply) => {
                        format!("{client} -> {} of {}: {:?}", op.0, server.0, reply.body)
                    }
                    other => format!("{client} -> {} of {}: {other:?}", op.0, server.0),
                },
                Event::Routes(_) => format!("{client} -> other routes"),
                other => format!("{client} -> {other:?}"),
            });
        }
    }

    pub(super) fn effects(&mut self, now: Moment, client: usize, effects: &[Effect]) {
        for effect in effects {
            self.say(now, || match effect {
                Effect::Send { op, to, command, .. } => {
                    format!("{client} <- {} to {}: {}", op.0, to.0, words(command))
                }
                Effect::Answer { request, answer } => {
                    format!("{client} <- wish {}: {answer:?}", request.0)
                }
                other => format!("{client} <- {other:?}"),
            });
        }
    }

    pub(super) fn executed(&mut self, now: Moment, request: &Request, outcome: &Outcome<Value>) {
        self.say(now, || {
            let command = words(&request.command);
            format!(
                "s{} executes {} of {}: {command} = {outcome:?}",
                request.process, request.op.0, request.client
            )
        });
    }
}

fn words(command: &Command) -> String {
    match command {
        Command::Acquire { name, field, share, lease, line, wait, .. } => {
            let wait = match wait {
                WaitMode::Try => "try".to_owned(),
                WaitMode::First { hears } => format!("first, hears {hears}"),
                WaitMode::Again { ticket, hears, .. } => format!("again {ticket}, hears {hears}"),
            };
            let (count, lease) = (share.total(), lease.millis());
            format!("acquire {name} {field} count {count} lease {lease} ms, {wait}, line {line}")
        }
        Command::Release { name, field, share, announce, .. } => {
            let (count, line) = (share.total(), announce.line);
            format!("release {name} {field} count {count}, line {line}")
        }
        Command::ReleaseAt { name, field, free_at, .. } => {
            format!("release {name} {field} at {}", free_at.0)
        }
        Command::ReleaseMany(holds) => {
            let holds: Vec<String> =
                holds.iter().map(|item| format!("{} {}", item.name, item.field)).collect();
            format!("release_many {}", holds.join(", "))
        }
        Command::Renew { holds, .. } => {
            let holds: Vec<String> = holds
                .iter()
                .map(|item| format!("{} {} {} ms", item.name, item.field, item.lease.millis()))
                .collect();
            format!("renew {}", holds.join(", "))
        }
        Command::HandOff { name, from, to, lease, line_first, .. } => {
            let lease = lease.millis();
            format!("hand_off {name} {from} to {to} lease {lease} ms, line first {line_first}")
        }
        Command::ForceRelease { name, expected, .. } => format!("force_release {name} {expected}"),
        other => other.label().to_owned(),
    }
}
