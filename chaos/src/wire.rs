//! What clients of a fair lock and the server say to each other: the calls of its scripts and their
//! replies, as a proxy between them sees them. They tell who stands in line, with which ticket.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use crate::event::now;
use crate::support::proxy::Direction;
use crate::support::proxy::FaultProxy;
use crate::support::proxy::frame_length;
use crate::support::proxy::is_message;
use crate::support::proxy::words;

/// A script that was called, and what the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// When the request came by. Times are those of events; the server's are brought to that clock.
    pub(crate) sent: u64,
    pub(crate) name: String,
    /// Who asks: client and hold id.
    pub(crate) field: String,
    pub(crate) asks: Asks,
    /// None if none came by.
    pub(crate) reply: Option<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// For the lock. `ticket` is the one that it names, or 0. Whoever has to wait has a place in
    /// the line only if it `stays`.
    Lock { ticket: u64, stays: bool },
    /// To give up all that this field has: a hold, a place, or what is reserved.
    Leave,
}

/// `at` is when the server executed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        at: u64,
    },
    /// Another has the lock, or it is reserved for it. `ticket`: of whoever waits.
    Refused {
        at: u64,
        holder: String,
        ticket: Option<u64>,
    },
    Done {
        at: u64,
    },
    /// It may have come to something or not.
    Error {
        at: u64,
    },
}

impl Call {
    pub(crate) fn client(&self) -> &str {
        client_of(&self.field)
    }
}

/// The part of a field that says which client it is of.
pub(crate) fn client_of(field: &str) -> &str {
    field.split(':').next().unwrap_or(field)
}

/// All that went over one proxy.
#[derive(Debug, Clone)]
pub(crate) struct Wire(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    calls: Vec<Call>,
    granted: u64,
    /// Of each connection, its requests without a reply; with the number of the call, if it is one.
    open: HashMap<u64, VecDeque<Option<usize>>>,
    /// The last one that has asked for something.
    client: Option<String>,
}

/// What is added to a time of a server, in ns, to make it one of events: the same for all that is
/// compared.
fn offset() -> i128 {
    static OFFSET: LazyLock<i128> = LazyLock::new(|| {
        let server = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        i128::from(now()) - i128::try_from(server).unwrap_or(0)
    });
    *OFFSET
}

impl Wire {
    /// Listens to all that a proxy carries.
    pub(crate) fn of(proxy: &FaultProxy) -> Self {
        let wire = Self(Arc::default());
        let listening = wire.clone();
        proxy.tap(move |link, direction, frame| {
            let mut heard = listening.heard();
            match direction {
                Direction::Up => heard.request(link, frame),
                Direction::Down => heard.reply(link, frame),
            }
        });
        wire
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client that has asked for something last.
    pub(crate) fn client(&self) -> Option<String> {
        self.heard().client.clone()
    }

    /// How often the lock was granted.
    pub(crate) fn granted(&self) -> u64 {
        self.heard().granted
    }

    /// All calls so far.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.heard().calls)
    }
}

impl Heard {
    fn request(&mut self, link: u64, frame: &[u8]) {
        let words = words(frame);
        let call = asked(&words).map(|(name, field, asks)| {
            let (name, field) = (name.to_owned(), field.to_owned());
            Call { sent: now(), name, field, asks, reply: None }
        });
        if let Some(client) = words.iter().find_map(|word| client_in(word))
            && self.client.as_deref() != Some(client)
        {
            self.client = Some(client.to_owned());
        }
        let number = call.map(|call| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        self.open.entry(link).or_default().push_back(number);
    }

    fn reply(&mut self, link: u64, frame: &[u8]) {
        if is_message(frame) {
            return;
        }
        let Some(Some(number)) = self.open.get_mut(&link).and_then(VecDeque::pop_front) else {
            return;
        };
        let Some(call) = self.calls.get_mut(number) else { return };
        call.reply = answered(call.asks, frame, offset());
        self.granted += u64::from(matches!(call.reply, Some(Reply::Granted { .. })));
    }
}

/// The client, if this is a field of a lock: `<uuid>:<hold id>`.
fn client_in(word: &[u8]) -> Option<&str> {
    let (client, hold) = std::str::from_utf8(word).ok()?.split_once(':')?;
    let is_uuid = client.len() == 36 && client.as_bytes().get(8) == Some(&b'-');
    (is_uuid && hold.starts_with(|digit: char| digit.is_ascii_digit())).then_some(client)
}

/// What a request asks of a fair lock: the name, the field, and what for. Its acquire is told from
/// that of a plain lock by the key of the marks. Other scripts than these give nobody a place, and
/// take none away.
fn asked<'a>(words: &[&'a [u8]]) -> Option<(&'a str, &'a str, Asks)> {
    let text = |word: &&'a [u8]| std::str::from_utf8(word).ok();
    let command = words.first().and_then(text)?;
    if !command.eq_ignore_ascii_case("evalsha") && !command.eq_ignore_ascii_case("eval") {
        return None;
    }
    let keys: usize = words.get(2).and_then(text)?.parse().ok()?;
    let name = words.get(3).and_then(text)?;
    let marks = words.get(2 + keys).and_then(text)?;
    let args: Vec<&str> =
        words.get(3 + keys..)?.iter().map(|word| text(word).unwrap_or("")).collect();
    let field = args.first().copied().filter(|field| field.contains(':'))?;
    let is_fair = marks.starts_with("redisson_lock_marks");
    let mode = args.get(4).copied();
    if let Some(mode @ ("try" | "first" | "again")) = mode {
        if !is_fair || args[1] != "1" {
            return None;
        }
        let ticket = args.get(5)?.parse().ok()?;
        let stays = mode == "first" || mode == "again" && args.get(6) == Some(&"1");
        return Some((name, field, Asks::Lock { ticket, stays }));
    }
    let gives_up = args.contains(&"PUBLISH") || args.contains(&"SPUBLISH");
    // A partial release only counts.
    let is_partial = args.len() == 4 && args[1] != "0";
    (gives_up && !is_partial).then_some((name, field, Asks::Leave))
}

/// What a reply says. None: the script was not executed, or has done nothing.
fn answered(asks: Asks, frame: &[u8], offset: i128) -> Option<Reply> {
    if frame.starts_with(b"-NOSCRIPT") {
        return None;
    }
    let read = || {
        let items = items(frame)?;
        let code: i64 = items.first()?.parse().ok()?;
        let time: i128 = items.get(1)?.parse().ok()?;
        let at = u64::try_from(time * 1_000 + offset).ok()?;
        Some(match (asks, code) {
            (Asks::Lock { .. }, 1) => Some(Reply::Granted { at }),
            (Asks::Lock { .. }, 0) => {
                let holder = (*items.get(3)?).to_owned();
                let ticket = items.get(4).and_then(|word| word.parse().ok());
                Some(Reply::Refused { at, holder, ticket })
            }
            // It was late, for example.
            (Asks::Lock { .. }, _) => None,
            (Asks::Leave, _) => Some(Reply::Done { at }),
        })
    };
    read().unwrap_or_else(|| Some(Reply::Error { at: now() }))
}

/// The numbers and texts in an array.
fn items(frame: &[u8]) -> Option<Vec<&str>> {
    let line_end = |at: usize| {
        let end = frame[at..].windows(2).position(|pair| pair == b"\r\n")?;
        Some(at + end + 2)
    };
    if frame.first() != Some(&b'*') {
        return None;
    }
    let mut at = line_end(0)?;
    let mut items = Vec::new();
    while at < frame.len() {
        let end = at + frame_length(&frame[at..])?;
        let begin = if frame[at] == b'$' { line_end(at)? } else { at + 1 };
        items.push(std::str::from_utf8(frame.get(begin..end - 2).unwrap_or_default()).ok()?);
        at = end;
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(words: &[&str]) -> Vec<u8> {
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        frame.into_bytes()
    }

    fn ask(words: &str) -> Option<Asks> {
        let frame = frame(&words.split(' ').collect::<Vec<_>>());
        let (name, field, asks) = asked(&super::words(&frame))?;
        assert_eq!((name, field), ("n0", "c:1"), "{words}");
        Some(asks)
    }

    #[test]
    fn the_scripts_of_a_fair_lock_are_told_apart() {
        let keys =
            "4 n0 redisson_lock_fence:{n0} redisson_lock_line__{n0} redisson_lock_marks__{n0}";
        let acquire = |rest: &str| ask(&format!("EVALSHA ab {keys} c:1 {rest} ch PUBLISH"));
        let lock = |ticket, stays| Some(Asks::Lock { ticket, stays });
        assert_eq!(acquire("1 300 99 first 0 0"), lock(0, true));
        assert_eq!(acquire("1 300 99 again 7 1"), lock(7, true));
        assert_eq!(acquire("1 300 99 again 7 0"), lock(7, false));
        assert_eq!(acquire("1 300 99 try 0 0"), lock(0, false));
        assert_eq!(acquire("2 300 99 again 0 0"), None);
        let plain =
            "EVALSHA ab 3 n0 fence redisson_lock_line__{n0} c:1 1 300 99 first 0 0 ch PUBLISH";
        assert_eq!(ask(plain), None);
        let keys = "3 n0 redisson_lock_line__{n0} redisson_lock_marks__{n0}";
        assert_eq!(ask(&format!("EVALSHA ab {keys} c:1 0 ch PUBLISH")), Some(Asks::Leave));
        assert_eq!(ask(&format!("EVALSHA ab {keys} c:1 2 ch PUBLISH")), None);
        assert_eq!(ask(&format!("EVAL text {keys} c:1 99 9 ch SPUBLISH")), Some(Asks::Leave));
        assert_eq!(ask("EVALSHA ab 1 n0 99 c:1 300"), None);
        assert_eq!(ask("PING"), None);
    }

    #[test]
    fn replies_are_read_with_the_time_of_the_server() {
        let lock = Asks::Lock { ticket: 0, stays: true };
        let reply = |asks, frame: &str| answered(asks, frame.as_bytes(), 500);
        assert_eq!(reply(lock, "*3\r\n:1\r\n:70\r\n:70\r\n"), Some(Reply::Granted { at: 70_500 }));
        let refused = "*7\r\n:0\r\n:70\r\n:9\r\n$3\r\nd:2\r\n:60\r\n:1\r\n:0\r\n";
        let (at, holder) = (70_500, "d:2".to_owned());
        assert_eq!(reply(lock, refused), Some(Reply::Refused { at, holder, ticket: Some(60) }));
        assert_eq!(reply(Asks::Leave, "*3\r\n:1\r\n:70\r\n:0\r\n"), Some(Reply::Done { at }));
        assert_eq!(reply(lock, "-NOSCRIPT none\r\n"), None);
        assert_eq!(reply(lock, "*2\r\n:-1\r\n:70\r\n"), None);
        assert!(matches!(reply(lock, "-OOM no memory\r\n"), Some(Reply::Error { .. })));
    }
}
