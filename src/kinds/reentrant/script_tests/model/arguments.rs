//! What a call asks for, or the place of an argument that is not allowed.

use crate::backend::ScriptCall;
use crate::backend::words::Words;

const LARGEST: i64 = (1 << 53) - 1;
const LONGEST_LEASE: i64 = 86_400_000;
const MOST_LEVELS: i64 = 65_535;

#[derive(Debug)]
pub(super) enum Request<'a> {
    Acquire {
        lock: &'a str,
        fence: &'a str,
        field: &'a str,
        count: i64,
        lease: i64,
        not_after: i64,
    },
    Release {
        lock: &'a str,
        field: &'a str,
        count: i64,
        channel: &'a str,
        sharded: bool,
    },
    ReleaseMany {
        holds: Vec<(&'a str, &'a str, &'a str)>,
        sharded: bool,
    },
    ReleaseAt {
        lock: &'a str,
        field: &'a str,
        free_at: i64,
        most: i64,
        channel: &'a str,
        sharded: bool,
    },
    Renew {
        holds: Vec<(&'a str, &'a str, i64)>,
        not_after: i64,
    },
    HandOff {
        lock: &'a str,
        fence: &'a str,
        from: &'a str,
        to: &'a str,
        lease: i64,
        not_after: i64,
        channel: &'a str,
        sharded: bool,
    },
    Inspect {
        lock: &'a str,
    },
    Force {
        lock: &'a str,
        expected: &'a str,
        not_after: i64,
        channel: &'a str,
        sharded: bool,
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
            | Self::ReleaseMany { .. }
            | Self::ReleaseAt { .. }
            | Self::Inspect { .. } => None,
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
    let lock = keys.first().unwrap_or_default();
    let fence = keys.iter().nth(1).unwrap_or_default();
    Ok(match call.script.name.rsplit('/').next().unwrap_or_default() {
        "acquire" => Request::Acquire {
            lock,
            fence,
            field: args.text(1)?,
            count: args.number(2, 1, MOST_LEVELS)?,
            lease: args.lease(3)?,
            not_after: args.not_after(4)?,
        },
        "release" => Request::Release {
            lock,
            field: args.text(1)?,
            count: args.number(2, 0, MOST_LEVELS)?,
            channel: args.text(3)?,
            sharded: args.sharded(4)?,
        },
        "release_many" => {
            let sharded = args.sharded(1)?;
            if call.args.len() != 1 + 2 * keys.len() {
                return Err(as_place(call.args.len()));
            }
            let hold = |(at, key): (usize, &'a str)| {
                Ok((key, args.text(2 * at + 2)?, args.text(2 * at + 3)?))
            };
            let holds = keys.iter().enumerate().map(hold).collect::<Result<_, i64>>()?;
            Request::ReleaseMany { holds, sharded }
        }
        "release_at" => Request::ReleaseAt {
            lock,
            field: args.text(1)?,
            free_at: args.not_after(2)?,
            most: args.lease(3)?,
            channel: args.text(4)?,
            sharded: args.sharded(5)?,
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
        "hand_off" => {
            let (from, to) = (args.text(1)?, args.text(2)?);
            if from == to {
                return Err(2);
            }
            Request::HandOff {
                lock,
                fence,
                from,
                to,
                lease: args.lease(3)?,
                not_after: args.not_after(4)?,
                channel: args.text(5)?,
                sharded: args.sharded(6)?,
            }
        }
        "inspect" => Request::Inspect { lock },
        "force_release" => Request::Force {
            lock,
            expected: args.text(1)?,
            not_after: args.not_after(2)?,
            channel: args.text(3)?,
            sharded: args.sharded(4)?,
            client_channel: args.text(5)?,
        },
        other => panic!("no such script: {other}"),
    })
}
