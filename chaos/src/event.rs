//! What a worker writes down: a line for each event, in the file before anything else happens, so
//! that nothing is lost with the process.

use std::fmt;

use crate::kind::LockKind;
use crate::kind::Share;

/// Times are nanoseconds of CLOCK_BOOTTIME, which all processes of a machine share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// An operation begins.
    Call {
        op: u64,
        at: u64,
        task: u32,
        what: What,
        name: String,
        hold: String,
        /// What is wanted; of a hold that there is already, all that it has then.
        share: Share,
        kind: LockKind,
    },
    /// It has ended.
    End { op: u64, at: u64, how: How },
    /// What a guard said when it was asked between these two times. `until` is 0 for a hold that
    /// has ended.
    Look { from: u64, to: u64, hold: String, held: bool, until: u64 },
    /// A guard said why its hold is lost.
    Lost { at: u64, hold: String, reason: String },
    /// The client's gauges, when everything was given back.
    Gauges { at: u64, sum: u64 },
    /// The client was shut down; whether its report was clean.
    Bye { at: u64, clean: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Lock,
    Try,
    TryFor,
    /// With a fixed lease.
    Fixed,
    /// A `lock` that is dropped after a while.
    Dropped,
    /// One more level.
    Nested,
    Unlock,
    DropGuard,
    /// A write beside the read of that hold.
    Upgrade,
    /// A write that becomes a read.
    Downgrade,
    /// Of a single flight: it is granted to who computes, and answered with a value to others.
    Run,
    /// Of latches.
    SetCount,
    /// For some time only.
    SetCountFor,
    CountDown,
    Delete,
    Count,
    Wait,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// `count` is what the guard says, `levels` how many guards of the hold the task has.
    Granted {
        hold: String,
        token: u64,
        count: u32,
        levels: u32,
        until: u64,
    },
    /// Somebody else holds it.
    Denied,
    /// The future was dropped.
    Cancelled,
    Released,
    /// A number, or 1 for yes and 0 for no.
    Answered(u64),
    Failed(String),
}

const WHATS: [(What, &str); 17] = [
    (What::Lock, "lock"),
    (What::Try, "try_lock"),
    (What::TryFor, "try_lock_for"),
    (What::Fixed, "fixed"),
    (What::Dropped, "dropped"),
    (What::Nested, "nested"),
    (What::Unlock, "unlock"),
    (What::DropGuard, "drop"),
    (What::Upgrade, "upgrade"),
    (What::Downgrade, "downgrade"),
    (What::Run, "run"),
    (What::SetCount, "set_count"),
    (What::SetCountFor, "set_count_for"),
    (What::CountDown, "count_down"),
    (What::Delete, "delete"),
    (What::Count, "count"),
    (What::Wait, "wait"),
];

impl What {
    /// Whether it wants a hold that there is not yet.
    pub(crate) fn is_acquire(self) -> bool {
        let waits = matches!(self, Self::Lock | Self::TryFor | Self::Fixed | Self::Dropped);
        waits || self.is_try() || self == Self::Run
    }

    /// Whether it is answered at once.
    pub(crate) fn is_try(self) -> bool {
        matches!(self, Self::Try | Self::Upgrade)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WHATS.iter().find(|(what, _)| what == self).map_or("?", |(_, word)| word))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { op, at, task, what, name, hold, share, kind } => {
                write!(f, "call {op} {at} {task} {what} {name} {hold} {share} {kind}")
            }
            Self::End { op, at, how } => {
                write!(f, "end {op} {at} ")?;
                match how {
                    How::Granted { hold, token, count, levels, until } => {
                        write!(f, "granted {hold} {token} {count} {levels} {until}")
                    }
                    How::Denied => f.write_str("denied"),
                    How::Cancelled => f.write_str("cancelled"),
                    How::Released => f.write_str("released"),
                    How::Answered(number) => write!(f, "answered {number}"),
                    How::Failed(why) => write!(f, "failed {why}"),
                }
            }
            Self::Look { from, to, hold, held, until } => {
                write!(f, "look {from} {to} {hold} {} {until}", u8::from(*held))
            }
            Self::Lost { at, hold, reason } => write!(f, "lost {at} {hold} {reason}"),
            Self::Gauges { at, sum } => write!(f, "gauges {at} {sum}"),
            Self::Bye { at, clean } => write!(f, "bye {at} {}", u8::from(*clean)),
        }
    }
}

impl Event {
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Call { at, .. }
            | Self::End { at, .. }
            | Self::Look { from: at, .. }
            | Self::Lost { at, .. }
            | Self::Gauges { at, .. }
            | Self::Bye { at, .. } => *at,
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = match words.next()? {
            "call" => Self::Call {
                op: number(&mut words)?,
                at: number(&mut words)?,
                task: small(&mut words)?,
                what: words.next().and_then(what)?,
                name: words.next()?.to_owned(),
                hold: words.next()?.to_owned(),
                share: words.next().and_then(Share::parse)?,
                // Older histories have no word for it: all their locks are reentrant.
                kind: words.next().map_or(Some(LockKind::Reentrant), LockKind::named)?,
            },
            "end" => Self::End {
                op: number(&mut words)?,
                at: number(&mut words)?,
                how: how(&mut words)?,
            },
            "look" => Self::Look {
                from: number(&mut words)?,
                to: number(&mut words)?,
                hold: words.next()?.to_owned(),
                held: words.next()? == "1",
                until: number(&mut words)?,
            },
            "lost" => Self::Lost {
                at: number(&mut words)?,
                hold: words.next()?.to_owned(),
                reason: words.next()?.to_owned(),
            },
            "gauges" => Self::Gauges { at: number(&mut words)?, sum: number(&mut words)? },
            "bye" => Self::Bye { at: number(&mut words)?, clean: words.next()? == "1" },
            _ => return None,
        };
        words.next().is_none().then_some(event)
    }

    /// What is in a worker's file. The last line of one that was killed may be cut off.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        whole
            .lines()
            .map(|line| Self::parse(line).ok_or_else(|| format!("not understood: {line}")))
            .collect()
    }
}

fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    words.next()?.parse().ok()
}

fn small<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u32> {
    words.next()?.parse().ok()
}

fn what(word: &str) -> Option<What> {
    WHATS.iter().find(|(_, known)| *known == word).map(|(what, _)| *what)
}

fn how<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<How> {
    Some(match words.next()? {
        "granted" => How::Granted {
            hold: words.next()?.to_owned(),
            token: number(words)?,
            count: small(words)?,
            levels: small(words)?,
            until: number(words)?,
        },
        "denied" => How::Denied,
        "cancelled" => How::Cancelled,
        "released" => How::Released,
        "answered" => How::Answered(number(words)?),
        "failed" => How::Failed(words.next()?.to_owned()),
        _ => return None,
    })
}

/// CLOCK_BOOTTIME.
pub(crate) fn now() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written_up_to_a_torn_line() {
        let hold = "c:1".to_owned();
        let granted = How::Granted { hold: hold.clone(), token: 7, count: 1, levels: 1, until: 9 };
        let call = Event::Call {
            op: 1,
            at: 2,
            task: 3,
            what: What::TryFor,
            name: "a".into(),
            hold: "-".into(),
            share: Share { exclusive: 1, reads: 2 },
            kind: LockKind::Pair,
        };
        let mut events = vec![call];
        let failed = How::Failed("lost".into());
        let ends = [granted, How::Denied, How::Cancelled, How::Released, How::Answered(3), failed];
        for how in ends {
            events.push(Event::End { op: 1, at: 4, how });
        }
        events.push(Event::Look { from: 5, to: 6, hold: hold.clone(), held: true, until: 9 });
        events.push(Event::Lost { at: 7, hold, reason: "expired".into() });
        events.push(Event::Gauges { at: 8, sum: 0 });
        events.push(Event::Bye { at: 9, clean: true });
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        assert_eq!(Event::parse_all(&format!("{text}end 4 1")).unwrap(), events);
        assert!(Event::parse_all("end 4 1\n").is_err());
        assert!(Event::parse_all("call 1 2 3 try_lock_for a - 1 unknown_kind\n").is_err());
    }

    #[test]
    fn a_call_without_a_kind_is_about_a_reentrant_lock() {
        let kind = |line| match Event::parse(line) {
            Some(Event::Call { kind, .. }) => kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind("call 1 2 3 lock a - 1"), LockKind::Reentrant);
        assert_eq!(kind("call 1 2 3 lock a - 1 reentrant"), LockKind::Reentrant);
        assert_eq!(kind("call 1 2 3 lock a - 1 pair"), LockKind::Pair);
    }
}
