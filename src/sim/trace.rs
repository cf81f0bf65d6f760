//! What happened, a line each; only kept when somebody wants to read it.

use crate::backend::Outcome;
use crate::backend::Value;
use crate::clock::Moment;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::sim::client::Request;

#[derive(Debug)]
pub(super) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new(on: bool) -> Self {
        Self { lines: on.then(Vec::new) }
    }

    pub(super) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    pub(super) fn say(&mut self, now: Moment, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.3} {}", now.0 as f64 / 1e6, line()));
        }
    }

    pub(super) fn event(&mut self, now: Moment, client: usize, event: &Event) {
        if !matches!(event, Event::Tick) {
            self.say(now, || format!("{client}> {event:?}"));
        }
    }

    pub(super) fn effects(&mut self, now: Moment, client: usize, effects: &[Effect]) {
        for effect in effects {
            self.say(now, || match effect {
                Effect::Send { op, command, timeout, .. } => {
                    format!("{client}<   {op:?} {timeout:?} {command:?}")
                }
                other => format!("{client}<   {other:?}"),
            });
        }
    }

    pub(super) fn executed(&mut self, now: Moment, request: &Request, outcome: &Outcome<Value>) {
        self.say(now, || {
            format!(
                "{}   {:?} executed: {} -> {outcome:?}",
                request.client,
                request.op,
                request.command.label()
            )
        });
    }
}
