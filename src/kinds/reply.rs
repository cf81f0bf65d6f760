//! What commands are answered with.

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::kind::Kind;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::conflict::conflict;
use crate::kinds::conflict::conflict_of_holder;
use crate::kinds::latch;
use crate::kinds::operation::Change;
use crate::kinds::operation::Operated;

/// An answered command. `time` is the server's clock during the script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) time: Option<ServerTime>,
    pub(crate) body: Body,
}

/// What an answered command said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// TIME and PING.
    Pong,
    Info(String),
    /// An entry for each pair, or `None`: the server cannot tell.
    Permissions(Option<Vec<Permission>>),
    Acquire(Acquired),
    Release(Released),
    /// One entry for each hold. `None`: not done.
    ReleaseMany(Vec<Option<Released>>),
    /// One entry for each hold, or `None`: late.
    Renew(Option<Vec<Renewed>>),
    HandOff(HandedOff),
    Inspect(KeyState),
    Raised(Raised),
    Operated(Operated),
    /// Of a latch, or what its key is instead.
    Count(Result<u64, &'static str>),
    Force(Forced),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The token is 0 for a count of 2 and more.
    Granted {
        token: u64,
    },
    /// Time to live in ms, negative without one, and the field of the holder, or of the one for
    /// which the lock is reserved.
    Held {
        pttl: i64,
        holder: String,
        /// Of somebody who waits and has named the line.
        place: Option<Place>,
        /// Of somebody who wants an exclusive share beside shared ones.
        others: Option<Others>,
    },
    /// A semaphore has only so many permits, fewer than were wanted.
    TooMany {
        permits: u32,
    },
    /// The line's key was not named, and the lock is not this hold's.
    NotOwn,
    Late,
    Gone,
    Foreign,
    Conflict(&'static str),
}

/// Holds that are in the way. Some of them may be dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Others {
    /// This attempt has removed dead ones, so that there may be further dead ones behind them.
    pub(crate) removed: bool,
    /// Their fields.
    pub(crate) fields: Vec<String>,
}

/// Where a waiter stands in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ticket: u64,
    /// How many have a lower ticket.
    pub(crate) rank: u64,
}

/// What a user may do with a command and a key or channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Given,
    Missing,
    /// The server has no such command.
    Unknown,
}

/// A hold was given up, and the hash still has fields of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// `None`: Redis refused to publish it.
    pub(crate) receivers: Option<u64>,
    /// They keep the time to live that the lock had.
    pub(crate) ends: bool,
}

impl Leftover {
    /// What is under the key now.
    pub(crate) fn found(self) -> &'static str {
        if self.ends {
            "other fields of its hash were kept; they end with the time to live that the lock had, \
             unless somebody takes it off (PERSIST)"
        } else {
            "other fields of its hash were kept, without a time to live"
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// `None`: freed, but Redis refused to publish it.
    Freed {
        receivers: Option<u64>,
    },
    InOtherUse(Leftover),
    /// Given up, and nobody may have the lock for a while.
    Kept {
        /// `None`: Redis refused to publish it.
        receivers: Option<u64>,
    },
    CountSet,
    /// It had a place in the line, and nothing else.
    LeftLine {
        ticket: u64,
    },
    Gone,
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    Gone,
    Foreign,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandedOff {
    Granted {
        token: u64,
    },
    Gone,
    Foreign,
    /// Nothing granted; `from` is released. `None`: Redis refused to publish it.
    ReleasedOnly {
        late: bool,
        receivers: Option<u64>,
    },
    /// The same, whether late or not.
    InOtherUse(Leftover),
    /// `from` is released, and the lock reserved for the first in line, for so many ms. `to` waits.
    LineFirst {
        pttl: i64,
        holder: String,
        place: Place,
    },
}

/// What a lock's key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyState {
    Absent,
    Hash {
        pttl: i64,
        fields: i64,
        field: String,
        count: String,
    },
    ReadWriteLock,
    /// Of a semaphore, or of nothing at all: how many permits there are, if somebody has set the number,
    /// and how many are taken.
    Permits {
        number: Option<u32>,
        taken: u32,
    },
    /// A hash of another kind, by the number of the conflict.
    OtherKind(i64),
    Other,
}

impl KeyState {
    /// What makes it no lock of this kind, in the order and the words of an acquire that meets it.
    pub(crate) fn conflict(&self, kind: Kind) -> Option<&'static str> {
        match self {
            Self::Absent | Self::Permits { .. } => None,
            Self::Other => conflict(1),
            Self::ReadWriteLock => conflict(4),
            Self::OtherKind(what) => conflict(*what),
            Self::Hash { fields, .. } if *fields > kind.most_fields() => conflict(2),
            Self::Hash { pttl, field, .. } => conflict_of_holder(kind, *pttl, field),
        }
    }
}

/// What became of a raised token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raised {
    Yes,
    /// The hold does not have the lock.
    NotHeld,
    Conflict(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    Freed { receivers: Option<u64> },
    InOtherUse(Leftover),
    Gone,
    Late,
    Foreign,
}

impl Command {
    /// Reads the reply to this command. A reply of another shape is `Unknown`: something was
    /// executed.
    pub(crate) fn read(&self, value: Value) -> Outcome<Reply> {
        match self.parse(&value) {
            Some(Ok(reply)) => Outcome::Done(reply),
            Some(Err(failure)) => Outcome::NotExecuted(failure),
            None => {
                let shown = format!("{value:?}");
                let message = format!("unexpected reply {shown:.200} to {}", self.label());
                Outcome::Unknown(Failure::new(FailureKind::Refused, message))
            }
        }
    }

    fn parse(&self, value: &Value) -> Option<Result<Reply, Failure>> {
        let mut fields = Fields::of(value)?;
        match self {
            Self::Ping => return Some(Ok(Reply { time: None, body: Body::Pong })),
            Self::Info => return Some(Ok(Reply { time: None, body: Body::Info(fields.text()?) })),
            Self::Time => {
                return Some(Ok(Reply { time: Some(ServerTime(fields.int()?)), body: Body::Pong }));
            }
            _ => {}
        }
        let code = fields.int()?;
        let time = Some(ServerTime(fields.int()?));
        if code == -9 {
            let message =
                format!("{} script: ARGV[{}] is not allowed", self.label(), fields.int()?);
            return Some(Err(Failure::new(FailureKind::Refused, message)));
        }
        let body = match self {
            Self::Acquire { .. } => Body::Acquire(match code {
                1 => Acquired::Granted { token: fields.uint()? },
                0 => Acquired::Held {
                    pttl: fields.int()?,
                    holder: fields.text()?,
                    // Whoever has no place in the line has no ticket.
                    place: match fields.is_over() {
                        true => None,
                        false => Some(fields.place()?).filter(|place| place.ticket > 0),
                    },
                    others: if fields.is_over() { None } else { Some(fields.others()?) },
                },
                -6 => Acquired::TooMany { permits: fields.uint()?.try_into().ok()? },
                -5 => Acquired::NotOwn,
                -1 => Acquired::Late,
                -2 => Acquired::Gone,
                -3 => Acquired::Foreign,
                -4 => Acquired::Conflict(conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::Upgrade { .. } => Body::Acquire(match code {
                1 => Acquired::Granted { token: fields.uint()? },
                0 => {
                    let others = Some(fields.others()?);
                    Acquired::Held { pttl: 0, holder: String::new(), place: None, others }
                }
                -1 => Acquired::Late,
                -2 => Acquired::Gone,
                -4 => Acquired::Conflict(conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::Downgrade { .. } => Body::Release(match code {
                1 | 2 => Released::CountSet,
                0 => Released::Gone,
                -3 => Released::Foreign,
                _ => return None,
            }),
            Self::Release { .. } => Body::Release(match code {
                1 => Released::Freed { receivers: fields.receivers()? },
                2 => Released::CountSet,
                3 | 4 => Released::InOtherUse(fields.leftover(code)?),
                5 => Released::LeftLine { ticket: fields.uint()? },
                0 => Released::Gone,
                -3 => Released::Foreign,
                _ => return None,
            }),
            Self::ReleaseAt { .. } => Body::Release(match code {
                1 => Released::Freed { receivers: fields.receivers()? },
                2 => Released::Kept { receivers: fields.receivers()? },
                3 | 4 => Released::InOtherUse(fields.leftover(code)?),
                0 => Released::Gone,
                -3 => Released::Foreign,
                _ => return None,
            }),
            Self::ReleaseMany(holds) => Body::ReleaseMany(match code {
                1 => holds.iter().map(|_| Some(released(fields.int()?))).collect::<Option<_>>()?,
                _ => return None,
            }),
            Self::Renew { holds, .. } => Body::Renew(match code {
                1 => Some(holds.iter().map(|_| renewed(fields.int()?)).collect::<Option<_>>()?),
                -1 => None,
                _ => return None,
            }),
            Self::HandOff { .. } => Body::HandOff(match code {
                1 => HandedOff::Granted { token: fields.uint()? },
                0 => HandedOff::Gone,
                2 => HandedOff::ReleasedOnly { late: false, receivers: fields.receivers()? },
                3 | 4 => HandedOff::InOtherUse(fields.leftover(code)?),
                5 => HandedOff::LineFirst {
                    pttl: fields.int()?,
                    holder: fields.text()?,
                    place: fields.place()?,
                },
                -1 => HandedOff::ReleasedOnly { late: true, receivers: fields.receivers()? },
                -3 => HandedOff::Foreign,
                _ => return None,
            }),
            Self::Raise { .. } => Body::Raised(match code {
                1 => Raised::Yes,
                0 => Raised::NotHeld,
                -4 => Raised::Conflict(conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::Inspect { .. } => Body::Inspect(match code {
                0 => KeyState::Absent,
                1 => KeyState::Hash {
                    pttl: fields.int()?,
                    fields: fields.int()?,
                    field: fields.text()?,
                    count: fields.text()?,
                },
                2 => KeyState::Other,
                3 => KeyState::ReadWriteLock,
                4 => {
                    fields.int()?;
                    let (number, taken) = (fields.int()?, fields.uint()?);
                    KeyState::Permits {
                        number: number.try_into().ok(),
                        taken: taken.try_into().ok()?,
                    }
                }
                6 => {
                    fields.int()?;
                    KeyState::OtherKind(fields.int().filter(|what| conflict(*what).is_some())?)
                }
                _ => return None,
            }),
            Self::Operate(operation) => Body::Operated(match code {
                1 => Operated::Done(match operation.change {
                    Change::SetCount { .. } | Change::Delete => 1,
                    _ => fields.uint()?,
                }),
                -6 => Operated::TooMany { permits: fields.uint()? },
                0 => Operated::Nothing,
                -1 => Operated::Late,
                -4 if operation.name.kind().has_permits() => {
                    Operated::Conflict(conflict(fields.int()?)?)
                }
                -4 => Operated::Conflict(latch::conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::Count { .. } => Body::Count(match code {
                1 => Ok(fields.int()?.try_into().unwrap_or(0)),
                0 => Ok(0),
                -4 => Err(latch::conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::ForceRelease { .. } => Body::Force(match code {
                1 => Forced::Freed { receivers: fields.receivers()? },
                3 | 4 => Forced::InOtherUse(fields.leftover(code)?),
                0 => Forced::Gone,
                -1 => Forced::Late,
                -3 => Forced::Foreign,
                _ => return None,
            }),
            Self::Permissions(pairs) => Body::Permissions(match code {
                1 => Some(pairs.iter().map(|_| permission(fields.int()?)).collect::<Option<_>>()?),
                0 => None,
                _ => return None,
            }),
            Self::Time | Self::Ping | Self::Info => return None,
        };
        Some(Ok(Reply { time, body }))
    }
}

fn permission(answer: i64) -> Option<Permission> {
    Some(match answer {
        1 => Permission::Given,
        0 => Permission::Missing,
        -1 => Permission::Unknown,
        _ => return None,
    })
}

/// Of one hold of many.
fn released(answer: i64) -> Option<Released> {
    match answer {
        -5 => None,
        receivers => Some(Released::Freed { receivers: receivers.try_into().ok() }),
    }
}

fn renewed(code: i64) -> Option<Renewed> {
    Some(match code {
        1 => Renewed::Yes,
        0 => Renewed::Gone,
        -3 => Renewed::Foreign,
        -5 => Renewed::Refused,
        _ => return None,
    })
}

/// The entries of a reply, taken one after the other.
struct Fields<'a>(std::slice::Iter<'a, Value>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::List(list) => Some(Self(list.iter())),
            _ => None,
        }
    }

    fn int(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn uint(&mut self) -> Option<u64> {
        self.int()?.try_into().ok()
    }

    /// A count of receivers; -1 says that publishing was refused.
    fn receivers(&mut self) -> Option<Option<u64>> {
        Some(self.int()?.try_into().ok())
    }

    fn place(&mut self) -> Option<Place> {
        Some(Place { ticket: self.uint()?, rank: self.uint()? })
    }

    fn others(&mut self) -> Option<Others> {
        let removed = self.int()? == 1;
        let fields = std::iter::from_fn(|| (!self.is_over()).then(|| self.text()));
        Some(Others { removed, fields: fields.collect::<Option<_>>()? })
    }

    fn is_over(&self) -> bool {
        self.0.len() == 0
    }

    /// Of a reply with the code 3 or 4.
    fn leftover(&mut self, code: i64) -> Option<Leftover> {
        Some(Leftover { receivers: self.receivers()?, ends: code == 4 })
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lease::LeaseMs;
    use crate::base::name::LockName;
    use crate::kinds::command::WaitMode;
    use crate::kinds::share::Share;

    #[test]
    fn a_reply_of_another_shape_is_unknown() {
        let command = Command::Inspect { name: LockName::new("n").unwrap() };
        for value in [
            Value::Nil,
            Value::Int(1),
            Value::List(vec![]),
            Value::List(vec![Value::Int(7), Value::Int(1)]),
        ] {
            assert!(matches!(command.read(value), Outcome::Unknown(_)));
        }
    }

    /// A writer that does not wait, or where there is no line.
    #[test]
    fn a_ticket_of_0_is_no_place() {
        let command = Command::Acquire {
            name: LockName::new("n").unwrap().of_kind(Kind::ReadWrite),
            field: "a".to_owned(),
            share: Share::ONE,
            lease: LeaseMs::PROBE,
            not_after: ServerTime(1),
            line: true,
            wait: WaitMode::Try,
            announce: None,
            told: Box::default(),
        };
        let read = |ticket| {
            let numbers = |numbers: &[i64]| numbers.iter().map(|n| Value::Int(*n)).collect();
            let text = || vec![Value::Text("b".to_owned())];
            let parts: [Vec<Value>; 4] =
                [numbers(&[0, 1, 5]), text(), numbers(&[ticket, 0, 1]), text()];
            match command.read(Value::List(parts.concat())) {
                Outcome::Done(Reply {
                    body: Body::Acquire(Acquired::Held { place, others, .. }),
                    ..
                }) => (place, others.unwrap()),
                other => panic!("{other:?}"),
            }
        };
        let others = Others { removed: true, fields: vec!["b".to_owned()] };
        assert_eq!(read(0), (None, others.clone()));
        assert_eq!(read(7), (Some(Place { ticket: 7, rank: 0 }), others));
    }
}
