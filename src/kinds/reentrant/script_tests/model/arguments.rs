//! What a call asks for, or the place of an argument that is not allowed.

use crate::backend::ScriptCall;
use crate::backend::words::Words;

const LARGEST: i64 = (1 << 53) - 1;
const LONGEST_LEASE: i64 = 86_400_000;
const MOST_LEVELS: i64 = 65_535;

/// What becomes of a freed lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announce<'a> {
    pub(super) line: Option<&'a str>,
    /// Those of a fair lock.
    pub(super) marks: Option<&'a str>,
    pub(super) channel: &'a str,
    pub(super) sharded: bool,
}

/// One hold of many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) lock: &'a str,
    pub(super) field: &'a str,
    pub(super) announce: Announce<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Try,
    First,
    Again,
}

/// An acquire with the count 1.
#[derive(Debug, Clone)]
pub(super) struct Attempt<'a> {
    pub(super) is_fair: bool,
    pub(super) lock: &'a str,
    pub(super) fence: &'a str,
    pub(super) field: &'a str,
    pub(super) lease: i64,
    pub(super) mode: Mode,
    /// 0: none.
    pub(super) ticket: i64,
    pub(super) hears: bool,
    /// Other waiters of the client, which have places.
    pub(super) others: Vec<&'a str>,
    /// The channel is empty unless the mode is *again*, or the lock is a fair one.
    pub(super) announce: Announce<'a>,
}

#[derive(Debug)]
pub(super) enum Request<'a> {
    Acquire {
        attempt: Attempt<'a>,
        count: i64,
        not_after: i64,
    },
    Release {
        /// Tells the ticket of the place that it gives up.
        tells_ticket: bool,
        lock: &'a str,
        field: &'a str,
        count: i64,
        announce: Announce<'a>,
    },
    ReleaseMany(Vec<Item<'a>>),
    ReleaseAt {
        lock: &'a str,
        field: &'a str,
        free_at: i64,
        most: i64,
        announce: Announce<'a>,
    },
    Renew {
        holds: Vec<(&'a str, &'a str, i64)>,
        not_after: i64,
    },
    HandOff {
        from: &'a str,
        /// The lock, the hold that begins, and its place.
        to: Attempt<'a>,
        not_after: i64,
        line_first: bool,
    },
    Inspect {
        lock: &'a str,
    },
    Raise {
        lock: &'a str,
        fence: &'a str,
        field: &'a str,
        token: i64,
    },
    Force {
        lock: &'a str,
        expected: &'a str,
        not_after: i64,
        announce: Announce<'a>,
        client_channel: &'a str,
    },
}

impl Request<'_> {
    pub(super) fn not_after(&self) -> Option<i64> {
        match self {
            Self::Acquire { not_after, .. }
            | Self::Renew { not_after, .. }
            | Self::HandOff { not_after, .. }
            | Self::Force { not_after, .. } => Some(*not_after),
            Self::Release { .. }
            | Self::ReleaseMany(_)
            | Self::ReleaseAt { .. }
            | Self::Inspect { .. }
            | Self::Raise { .. } => None,
        }
    }
}

/// A whole number within limits, in the spellings of Lua, which reads it.
pub(super) fn number(text: &str, low: i64, high: i64) -> Option<i64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (low..=high).contains(&number).then_some(number)
}

/// Arguments in their places, from 1 on.
struct Arguments<'a>(&'a Words);

impl<'a> Arguments<'a> {
    fn text(&self, place: usize) -> Result<&'a str, i64> {
        self.0.iter().nth(place - 1).filter(|text| !text.is_empty()).ok_or(as_place(place))
    }

    fn number(&self, place: usize, low: i64, high: i64) -> Result<i64, i64> {
        self.0.iter().nth(place - 1).and_then(|text| number(text, low, high)).ok_or(as_place(place))
    }

    fn not_after(&self, place: usize) -> Result<i64, i64> {
        self.number(place, 0, LARGEST)
    }

    fn lease(&self, place: usize) -> Result<i64, i64> {
        self.number(place, 1, LONGEST_LEASE)
    }

    fn flag(&self, place: usize) -> Result<bool, i64> {
        match self.text(place)? {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(as_place(place)),
        }
    }

    fn mode(&self, place: usize) -> Result<Mode, i64> {
        match self.text(place)? {
            "try" => Ok(Mode::Try),
            "first" => Ok(Mode::First),
            "again" => Ok(Mode::Again),
            _ => Err(as_place(place)),
        }
    }

    /// The channel is in this place, the verb behind it.
    fn announce(&self, line: Option<&'a str>, place: usize) -> Result<Announce<'a>, i64> {
        let (channel, sharded) = (self.text(place)?, self.sharded(place + 1)?);
        Ok(Announce { line, marks: None, channel, sharded })
    }

    /// The same, with the marks that stand behind the line.
    fn announce_of(&self, call: &'a ScriptCall, place: usize) -> Result<Announce<'a>, i64> {
        let mut keys = call.keys.iter().skip(1);
        let (line, marks) = (keys.next(), keys.next());
        Ok(Announce { marks, ..self.announce(line, place)? })
    }

    fn sharded(&self, place: usize) -> Result<bool, i64> {
        match self.text(place)? {
            "PUBLISH" => Ok(false),
            "SPUBLISH" => Ok(true),
            _ => Err(as_place(place)),
        }
    }
}

fn as_place(place: usize) -> i64 {
    i64::try_from(place).unwrap()
}

/// The first place that is wrong is the one that is named.
pub(super) fn understand<'a>(call: &'a ScriptCall) -> Result<Request<'a>, i64> {
    let (args, keys) = (Arguments(&call.args), &call.keys);
    let key = |place: usize| keys.iter().nth(place);
    let lock = key(0).unwrap_or_default();
    Ok(match call.script.name.rsplit('/').next().unwrap_or_default() {
        "acquire" => acquire(call)?,
        "release" | "undo" => Request::Release {
            tells_ticket: call.script.name.ends_with("undo"),
            lock,
            field: args.text(1)?,
            count: args.number(2, 0, MOST_LEVELS)?,
            announce: args.announce_of(call, 3)?,
        },
        "release_many" => release_many(call)?,
        "release_at" => Request::ReleaseAt {
            lock,
            field: args.text(1)?,
            free_at: args.not_after(2)?,
            most: args.lease(3)?,
            announce: args.announce_of(call, 4)?,
        },
        "renew" => {
            let not_after = args.not_after(1)?;
            if call.args.len() != 1 + 2 * keys.len() {
                return Err(as_place(call.args.len()));
            }
            let hold = |(at, key): (usize, &'a str)| {
                Ok((key, args.text(2 * at + 2)?, args.lease(2 * at + 3)?))
            };
            let holds = keys.iter().enumerate().map(hold).collect::<Result<_, i64>>()?;
            Request::Renew { holds, not_after }
        }
        "hand_off" => hand_off(call)?,
        "inspect" => Request::Inspect { lock },
        "raise" => Request::Raise {
            lock,
            fence: key(1).unwrap_or_default(),
            field: args.text(1)?,
            token: args.number(2, 1, LARGEST - 1)?,
        },
        "force_release" => Request::Force {
            lock,
            expected: args.text(1)?,
            not_after: args.not_after(2)?,
            announce: args.announce_of(call, 3)?,
            client_channel: args.text(5)?,
        },
        other => panic!("no such script: {other}"),
    })
}

fn acquire<'a>(call: &'a ScriptCall) -> Result<Request<'a>, i64> {
    let (args, mut keys) = (Arguments(&call.args), call.keys.iter());
    let (lock, fence, line, marks) = (keys.next(), keys.next(), keys.next(), keys.next());
    let is_fair = call.script.name.starts_with("fair/");
    let field = args.text(1)?;
    let count = args.number(2, 1, MOST_LEVELS)?;
    let (lease, not_after) = (args.lease(3)?, args.not_after(4)?);
    let (mode, ticket, hears) = (args.mode(5)?, args.number(6, 0, LARGEST)?, args.flag(7)?);
    let announces = if is_fair { count == 1 } else { mode == Mode::Again };
    let announce = match announces && line.is_some() {
        true => Announce { marks, ..args.announce(line, 8)? },
        false => Announce { line, marks, channel: "", sharded: false },
    };
    let (lock, fence) = (lock.unwrap_or_default(), fence.unwrap_or_default());
    let others = call.args.iter().skip(9).filter(|_| is_fair).collect();
    let attempt =
        Attempt { is_fair, lock, fence, field, lease, mode, ticket, hears, others, announce };
    Ok(Request::Acquire { attempt, count, not_after })
}

fn hand_off<'a>(call: &'a ScriptCall) -> Result<Request<'a>, i64> {
    let (args, mut keys) = (Arguments(&call.args), call.keys.iter());
    let (lock, fence, line) = (keys.next(), keys.next(), keys.next());
    let (from, field) = (args.text(1)?, args.text(2)?);
    if from == field {
        return Err(2);
    }
    let (lease, not_after) = (args.lease(3)?, args.not_after(4)?);
    let announce = args.announce(line, 5)?;
    let (line_first, hears) = (args.flag(7)?, args.flag(8)?);
    let (lock, fence) = (lock.unwrap_or_default(), fence.unwrap_or_default());
    let (mode, ticket) = (Mode::Again, 0);
    let (is_fair, others) = (false, Vec::new());
    let to = Attempt { is_fair, lock, fence, field, lease, mode, ticket, hears, others, announce };
    Ok(Request::HandOff { from, to, not_after, line_first })
}

/// The lines of all holds stand behind their locks, or nowhere.
fn release_many<'a>(call: &'a ScriptCall) -> Result<Request<'a>, i64> {
    let (args, keys) = (Arguments(&call.args), &call.keys);
    let sharded = args.sharded(1)?;
    let holds = (call.args.len() - 1) / 2;
    let whole = call.args.len() == 1 + 2 * holds;
    if !whole || holds == 0 || (keys.len() != holds && keys.len() != 2 * holds) {
        return Err(as_place(call.args.len()));
    }
    let item = |(at, lock): (usize, &'a str)| {
        let (field, channel) = (args.text(2 * at + 2)?, args.text(2 * at + 3)?);
        let announce =
            Announce { line: keys.iter().nth(holds + at), marks: None, channel, sharded };
        Ok(Item { lock, field, announce })
    };
    let items = keys.iter().take(holds).enumerate().map(item);
    Ok(Request::ReleaseMany(items.collect::<Result<_, i64>>()?))
}
