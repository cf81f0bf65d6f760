//! States, calls and answers as text.
//!
//! `key=word`, `key=[item,item]`, `key=<member,member>`, `key={field:value,…}`,
//! `key=(member:score,…)`, each with `@5` behind it if it has a time to live of five units. A value or score `@5` is a time: the end of
//! five units from now, in ms on the server's clock; `@15s` is that of 15 seconds.

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::backend::words::Words;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::last_word;

/// One unit of time to live: long enough that no test lasts a noticeable part of it.
const UNIT_MS: i64 = 1_000_000;
/// The times to live that scripts set by themselves are much shorter. What is left of one of these
/// is written as the whole.
const SHORT: [(&str, i64); 5] =
    [("1.5s", 1_500), ("12s", 12_000), ("13.5s", 13_500), ("15s", 15_000), ("300s", 300_000)];
/// Less than this is written as nothing.
const NOTHING_MS: i64 = 10;

/// The time of each call.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<i64>);

impl Times {
    pub(crate) fn push(&mut self, time: i64) {
        self.0.push(time);
    }

    /// The time here of the call that had this time in others.
    pub(crate) fn of_the_same_call(&self, others: &Self, time: i64) -> Option<i64> {
        let call = others.0.iter().position(|other| *other == time)?;
        self.0.get(call).copied()
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

/// Reads `release a 0 ch PUBLISH`. `3M` is three units of time, `~` an empty argument, `late` and
/// `soon` deadlines. `+release` names the line of each lock as well.
pub(crate) fn parse_call(suite: &Suite, text: &str) -> ScriptCall {
    let mut words = text.split_whitespace();
    let word = words.next().unwrap();
    let args: Words = words.map(argument).collect();
    let name = word.trim_start_matches('+');
    ScriptCall::new(suite.script(name), (suite.keys)(name, &args, name != word), args)
}

/// The keys of the scripts of `kinds::Scripts`.
pub(crate) fn keys_of_rows(script: &str, args: &Words, line: bool) -> Words {
    let keys: Words = match script {
        "acquire" | "hand_off" | "raise" => ["lock", "fence"].into(),
        "renew" | "release_many" if args.len() > 3 => {
            (1..=args.len() / 2).map(|number| format!("lock{number}")).collect()
        }
        _ => ["lock"].into(),
    };
    let lines = keys.iter().filter_map(|key| key.strip_prefix("lock")).filter(|_| line);
    let lines: Vec<String> = lines.map(|number| format!("line{number}")).collect();
    keys.iter().chain(lines.iter().map(String::as_str)).collect()
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

/// Reads `fence=7 lock={a:1,b:2}@5 other=[x] line=(a:7,b:@5)@12s`, at this time of the server.
pub(crate) fn parse_keys(text: &str, now_us: i64) -> Vec<(String, Stored, Option<i64>)> {
    text.split_whitespace().map(|key| parse_key(key, now_us)).collect()
}

fn parse_key(text: &str, now_us: i64) -> (String, Stored, Option<i64>) {
    let (key, rest) = text.split_once('=').unwrap();
    let end_of_value =
        rest.rfind(['}', ']', ')', '>']).map_or_else(|| rest.find('@'), |at| Some(at + 1));
    let (value, pttl) = rest.split_at(end_of_value.unwrap_or(rest.len()));
    let in_units = |units: &str| units.parse::<i64>().unwrap() * UNIT_MS;
    let pttl = pttl.strip_prefix('@').map(|pttl| {
        let short = SHORT.iter().find(|(short, _)| *short == pttl);
        short.map_or_else(|| in_units(pttl), |(_, ms)| *ms)
    });
    let inside =
        |open, close| value.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    let pair = |pair: &str| {
        let (field, value) = pair.rsplit_once(':').unwrap();
        let in_ms = |left: &str| match left.strip_suffix('s') {
            Some(seconds) => seconds.parse::<i64>().unwrap() * 1_000,
            None => in_units(left),
        };
        let end = |left| (now_us.div_euclid(1_000) + in_ms(left)).to_string();
        (field.to_owned(), value.strip_prefix('@').map_or_else(|| value.to_owned(), end))
    };
    let stored = if let Some(fields) = inside('{', '}') {
        Stored::Hash(fields.split(',').map(pair).collect())
    } else if let Some(members) = inside('(', ')') {
        let scored = |(member, score): (String, String)| (score.parse().unwrap(), member);
        Stored::SortedSet(members.split(',').map(pair).map(scored).collect())
    } else if let Some(members) = inside('<', '>') {
        Stored::Set(members.split(',').map(str::to_owned).collect())
    } else if let Some(items) = inside('[', ']') {
        Stored::List(items.split(',').map(str::to_owned).collect())
    } else {
        Stored::Text(value.to_owned())
    };
    (key.to_owned(), stored, pttl)
}

pub(crate) fn show_keys(suite: &Suite, dump: &[Dumped], times: &Times, now_us: i64) -> String {
    let shown: Vec<String> =
        dump.iter().map(|dumped| show_key(suite, dumped, times, now_us)).collect();
    shown.join(" ")
}

fn show_key(suite: &Suite, dumped: &Dumped, times: &Times, now_us: i64) -> String {
    let pair = |field: &str, value: &str| match value.parse::<i64>() {
        Ok(end) if (suite.is_end)(&dumped.key, field) => {
            let left = end - now_us.div_euclid(1_000);
            match suite.ends_are_near {
                true => format!("{field}:@{}s", seconds(left)),
                false => format!("{field}:@{}", units(left)),
            }
        }
        _ => format!("{field}:{value}"),
    };
    let value = match &dumped.value {
        Stored::Text(text) => {
            text.parse().map_or_else(|_| text.clone(), |number| times.show(number))
        }
        Stored::List(items) => format!("[{}]", items.join(",")),
        Stored::Hash(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(field, value)| pair(field, value)).collect();
            format!("{{{}}}", fields.join(","))
        }
        Stored::SortedSet(members) => {
            let scored = |(score, member): &(f64, String)| {
                let score = score.to_string();
                let time = score.parse().map(|number| times.show(number));
                match time {
                    Ok(time) if !(suite.is_end)(&dumped.key, member) => format!("{member}:{time}"),
                    _ => pair(member, &score),
                }
            };
            format!("({})", members.iter().map(scored).collect::<Vec<_>>().join(","))
        }
        Stored::Set(members) => {
            format!("<{}>", members.iter().map(String::as_str).collect::<Vec<_>>().join(","))
        }
    };
    let pttl = dumped.pttl.map_or(String::new(), |pttl| format!("@{}", left(pttl)));
    format!("{}={value}{pttl}", dumped.key)
}

fn left(pttl: i64) -> String {
    let short = SHORT.iter().find(|(_, ms)| (NOTHING_MS..=*ms).contains(&pttl));
    short.map_or_else(|| units(pttl).to_string(), |(short, _)| (*short).to_owned())
}

/// Whole units: what has passed since the lease was set does not show.
fn units(pttl: i64) -> i64 {
    (pttl + UNIT_MS / 2).div_euclid(UNIT_MS)
}

/// In steps of five seconds: what has passed since the end was set does not show.
fn seconds(left: i64) -> i64 {
    (left + 4_900).div_euclid(5_000) * 5
}

pub(crate) fn show_published(published: &[Published]) -> String {
    let show = |message: &Published| {
        let sharded = if message.sharded { " sharded" } else { "" };
        format!("{}={}{sharded}", message.channel, message.payload)
    };
    published.iter().map(show).collect::<Vec<_>>().join(" ")
}

pub(crate) fn time_of(result: &Result<Value, String>) -> Option<i64> {
    match result {
        Ok(Value::List(list)) => match list.get(1)? {
            Value::Int(time) => Some(*time),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn show_reply(
    call: &ScriptCall,
    result: &Result<Value, String>,
    times: &Times,
) -> String {
    let list = match result {
        Err(text) => return format!("! {}", text.split(" script: ").next().unwrap()),
        Ok(Value::List(list)) => list,
        Ok(other) => return format!("{other:?}"),
    };
    let code = list.first();
    let has_pttl = match last_word(call.script) {
        "acquire" => code == Some(&Value::Int(0)),
        "hand_off" => code == Some(&Value::Int(5)),
        "inspect" | "look" => true,
        _ => false,
    };
    let pttl_at = if last_word(call.script) == "look" { 3 } else { 2 };
    let show = |(index, value): (usize, &Value)| match value {
        Value::Int(pttl) if index == pttl_at && has_pttl && *pttl > 0 => {
            format!("@{}", left(*pttl))
        }
        Value::Int(number) => times.show(*number),
        Value::Text(text) if text.is_empty() => "~".to_owned(),
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    };
    list.iter().enumerate().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_are_shown_as_they_were_written() {
    static SUITE: Suite = Suite { is_end: |_, field| field.starts_with("ends"), ..Suite::EMPTY };
    let now_us = 1_750_000_000_000_000;
    let text = "fence=7 line=(a:7,ends:@5)@9 list=[x,y] lock={a:1,ends:@-1,a:b:x}@5 set=<x,y>@5 short={a:0}@1.5s \
                word=text@12s";
    let dumped = |(key, value, pttl)| Dumped { key, value, pttl };
    let dump: Vec<Dumped> = parse_keys(text, now_us).into_iter().map(dumped).collect();
    assert_eq!(show_keys(&SUITE, &dump, &Times::default(), now_us), text);
    assert_eq!(
        [9, 10, 1_500, 1_501, 12_000, 12_001, 13_500, 13_501, 15_001, 300_001].map(left),
        ["0", "1.5s", "1.5s", "12s", "12s", "13.5s", "13.5s", "15s", "300s", "0"]
    );
}
