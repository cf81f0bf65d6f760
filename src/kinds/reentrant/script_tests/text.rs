//! States, calls and answers as text.

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::backend::words::Words;
use crate::kinds::reentrant::ALL;

/// One unit of time to live: long enough that no test lasts a noticeable part of it.
const UNIT_MS: i64 = 1_000_000;

/// The time of each call.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<i64>);

impl Times {
    pub(super) fn push(&mut self, time: i64) {
        self.0.push(time);
    }

    /// `T` for the time of the last call, `T3` for that of the third.
    fn show(&self, number: i64) -> String {
        match self.0.iter().rposition(|time| *time == number) {
            Some(index) if index + 1 == self.0.len() => "T".to_owned(),
            Some(index) => format!("T{}", index + 1),
            None => number.to_string(),
        }
    }
}

/// Reads `release a 0 ch PUBLISH`. `3M` is three units of time, `~` an empty argument, `late` and `soon` deadlines.
pub(super) fn parse_call(text: &str) -> ScriptCall {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap();
    let script = script(name);
    let args: Words = words.map(argument).collect();
    let keys = match name {
        "acquire" | "hand_off" => ["lock", "fence"].into(),
        "renew" | "release_many" if args.len() > 3 => {
            (1..=args.len() / 2).map(|number| format!("lock{number}")).collect()
        }
        _ => ["lock"].into(),
    };
    ScriptCall::new(script, keys, args)
}

pub(super) fn script(name: &str) -> &'static Script {
    ALL.into_iter().find(|script| script.name.rsplit('/').next() == Some(name)).unwrap()
}

fn argument(word: &str) -> String {
    match word {
        "~" => String::new(),
        "late" => "1".to_owned(),
        "soon" => "9007199254740991".to_owned(),
        _ => match word.strip_suffix('M') {
            Some(units) => (units.parse::<i64>().unwrap() * UNIT_MS).to_string(),
            None => word.to_owned(),
        },
    }
}

/// Reads `fence=7 lock={a:1,b:2}@5 other=[x]`.
pub(super) fn parse_keys(text: &str) -> Vec<(String, Stored, Option<i64>)> {
    text.split_whitespace().map(parse_key).collect()
}

fn parse_key(text: &str) -> (String, Stored, Option<i64>) {
    let (key, rest) = text.split_once('=').unwrap();
    let (value, pttl) = match rest.split_once('@') {
        Some((value, units)) => (value, Some(units.parse::<i64>().unwrap() * UNIT_MS)),
        None => (rest, None),
    };
    let inside = |open, close| value.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    let stored = if let Some(fields) = inside('{', '}') {
        let pair =
            |field: &str| field.rsplit_once(':').map(|(field, count)| (field.into(), count.into())).unwrap();
        Stored::Hash(fields.split(',').map(pair).collect())
    } else if let Some(items) = inside('[', ']') {
        Stored::List(items.split(',').map(str::to_owned).collect())
    } else {
        Stored::Text(value.to_owned())
    };
    (key.to_owned(), stored, pttl)
}

pub(super) fn show_keys(dump: &[Dumped], times: &Times) -> String {
    let shown: Vec<String> = dump.iter().map(|dumped| show_key(dumped, times)).collect();
    shown.join(" ")
}

fn show_key(dumped: &Dumped, times: &Times) -> String {
    let value = match &dumped.value {
        Stored::Text(text) => text.parse().map_or_else(|_| text.clone(), |number| times.show(number)),
        Stored::List(items) => format!("[{}]", items.join(",")),
        Stored::Hash(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(field, count)| format!("{field}:{count}")).collect();
            format!("{{{}}}", fields.join(","))
        }
        // No call of these tests makes one.
        Stored::Set(_) | Stored::SortedSet(_) => format!("{:?}", dumped.value),
    };
    let pttl = dumped.pttl.map_or(String::new(), |pttl| format!("@{}", units(pttl)));
    format!("{}={value}{pttl}", dumped.key)
}

/// Whole units: what has passed since the lease was set does not show.
fn units(pttl: i64) -> i64 {
    (pttl + UNIT_MS / 2).div_euclid(UNIT_MS)
}

pub(super) fn show_published(published: &[Published]) -> String {
    let show = |message: &Published| {
        let sharded = if message.sharded { " sharded" } else { "" };
        format!("{}={}{sharded}", message.channel, message.payload)
    };
    published.iter().map(show).collect::<Vec<_>>().join(" ")
}

pub(super) fn time_of(result: &Result<Value, String>) -> Option<i64> {
    match result {
        Ok(Value::List(list)) => match list.get(1)? {
            Value::Int(time) => Some(*time),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn show_reply(call: &ScriptCall, result: &Result<Value, String>, times: &Times) -> String {
    let list = match result {
        Err(text) => return format!("! {}", text.split(" script: ").next().unwrap()),
        Ok(Value::List(list)) => list,
        Ok(other) => return format!("{other:?}"),
    };
    let code = list.first();
    let has_pttl = match call.script.name {
        "reentrant/acquire" => code == Some(&Value::Int(0)),
        "reentrant/inspect" => true,
        _ => false,
    };
    let show = |(index, value): (usize, &Value)| match value {
        Value::Int(pttl) if index == 2 && has_pttl && *pttl > 0 => format!("@{}", units(*pttl)),
        Value::Int(number) => times.show(*number),
        Value::Text(text) if text.is_empty() => "~".to_owned(),
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    };
    list.iter().enumerate().map(show).collect::<Vec<_>>().join(" ")
}
