//! What was done to a latch.

use std::time::Duration;

use super::Latch;
use super::Op;
use super::Step;
use crate::event::How;
use crate::event::What;
use crate::history::Breach;
use crate::history::History;
use crate::history::NEVER;
use crate::history::Operation;
use crate::kind::LATCH_LIFE;

/// A latch may end so much earlier than it seems, since Redis counts in milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);

pub(super) fn all(history: &History, name: &str, operations: &[&Operation]) -> Vec<Op> {
    let first = operations.iter().map(|operation| operation.called).min().unwrap_or(0);
    let of_name = |breach: &&Breach| breach.is_of(name) && breach.to >= first;
    let breaches: Vec<&Breach> = history.breaches.iter().filter(of_name).collect();
    // Where two servers answer, some of what they did is lost and some is not.
    let known = breaches.iter().filter(|breach| breach.two_servers).map(|breach| breach.from).min();
    let known = known.unwrap_or(NEVER);
    let mut ops = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let ended = operation.ended.as_ref().map_or(NEVER, |(at, _)| *at);
        if operation.called >= known {
            continue;
        }
        let answer = match &operation.ended {
            Some((at, How::Answered(answer))) if *at < known => Some(*answer),
            _ => None,
        };
        ops.extend(op(number, operation, answer));
        // What the server remembered of it was lost as well, so that a copy may be executed, too.
        let during = |breach: &&&Breach| operation.called <= breach.to && breach.from <= ended;
        let copies = breaches.iter().filter(during).filter_map(|_| op(number, operation, None));
        ops.extend(copies);
        if operation.what == What::SetCountFor {
            let life = u64::try_from((LATCH_LIFE - ROUNDED).as_nanos()).unwrap_or(0);
            ops.push(by_itself(Latch::Over(number), operation.called + life));
        }
    }
    ops.extend(breaches.iter().map(|breach| by_itself(Latch::Forgotten, breach.from)));
    ops.sort_by_key(|op| op.called);
    ops
}

/// None: nothing is known of it, and it changes nothing.
fn op(number: usize, operation: &Operation, answer: Option<u64>) -> Option<Op> {
    let done = answer.map(|answer| answer == 1);
    let step = match operation.what {
        What::SetCount | What::SetCountFor => {
            Latch::Set { number, count: operation.share.exclusive.into(), done }
        }
        What::CountDown => Latch::Down { left: answer },
        What::Delete => Latch::Delete { done },
        What::Count => Latch::Count(answer?),
        What::Wait => Latch::Count(answer.map(|_| 0)?),
        _ => return None,
    };
    let ended = operation.ended.as_ref().filter(|_| answer.is_some()).map_or(NEVER, |(at, _)| *at);
    let says = match answer {
        Some(answer) => format!("{} that was answered {answer}", operation.what),
        None => format!("{} without an answer", operation.what),
    };
    Some(Op { step: Step::Latch(step), called: operation.called, ended, strict: true, says })
}

fn by_itself(step: Latch, called: u64) -> Op {
    Op { step: Step::Latch(step), called, ended: NEVER, strict: false, says: "its end".to_owned() }
}
