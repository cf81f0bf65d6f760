//! Commands and replies as bytes. Replies are read by the `redis-protocol` crate, as fred's are.

use fred::error::Error as FredError;
use fred::error::ErrorKind;
use redis_protocol::error::RedisProtocolError;
use redis_protocol::resp2;
use redis_protocol::resp3;

use crate::backend::Value;
use crate::backend::redis::classify::without_arguments;

/// What a server answered: a value, or an error in its own words.
pub(crate) type Reply = Result<Value, FredError>;

/// Which protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// No reply has this many levels of lists, and the reader takes stack for each.
const DEEPEST: usize = 32;
/// No reply has a line of this size, apart from texts whose length is said before.
const LONGEST_LINE: usize = 64 * 1024;

/// Where a reply ends. Goes on from where it was when more has come, so that a reply in many parts is walked through
/// once, and is not read before all of it is there.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    at: usize,
    /// For each list that is open, how many of its elements are still to come.
    open: Vec<u64>,
}

impl Outline {
    /// The length of the reply that these bytes begin with; `None` while it is not complete. The next one has an outline
    /// of its own.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> Result<Option<usize>, FredError> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(line) = rest.windows(2).take(LONGEST_LINE).position(|two| two == b"\r\n") else {
                return if rest.len() > LONGEST_LINE {
                    Err(not_understood("a line without an end"))
                } else {
                    Ok(None)
                };
            };
            let (kind, mut end) = (rest[0], self.at + line + 2);
            let mut elements = 0;
            match kind {
                b'$' | b'=' | b'!' => {
                    if let Some(length) = number(&rest[1..line])? {
                        let text =
                            usize::try_from(length).ok().and_then(|length| length.checked_add(end + 2));
                        end = text.ok_or_else(|| not_understood("a text of no size"))?;
                        if bytes.len() < end {
                            return Ok(None);
                        }
                    }
                }
                b'*' | b'~' | b'>' => elements = number(&rest[1..line])?.unwrap_or(0),
                b'%' => elements = number(&rest[1..line])?.unwrap_or(0).saturating_mul(2),
                // Attributes stand before what they belong to, which is the last of these elements.
                b'|' => elements = number(&rest[1..line])?.unwrap_or(0).saturating_mul(2).saturating_add(1),
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
                _ => return Err(not_understood("not an answer")),
            }
            self.at = end;
            if elements > 0 {
                self.open.push(elements);
                if self.open.len() > DEEPEST {
                    return Err(not_understood("lists within lists"));
                }
            } else if self.complete() {
                return Ok(Some(self.at));
            }
        }
    }

    /// Counts an element, and says whether it was the last of all.
    fn complete(&mut self) -> bool {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// A length; `None` is nothing at all, which RESP2 calls -1.
fn number(digits: &[u8]) -> Result<Option<u64>, FredError> {
    match std::str::from_utf8(digits).ok().map(str::parse::<i64>) {
        Some(Ok(-1)) => Ok(None),
        Some(Ok(number)) => {
            u64::try_from(number).map(Some).map_err(|_| not_understood("a length below nothing"))
        }
        _ => Err(not_understood("a length that is no number")),
    }
}

/// What was found at the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    Reply(Reply),
    /// Nobody has asked for it.
    Push(Value),
}

/// Adds a command to `out`: an array of bulk strings.
pub(crate) fn encode<'a>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'a str> + Clone) {
    let mut digits = itoa::Buffer::new();
    let mut length = |out: &mut Vec<u8>, sign: u8, length: usize| {
        out.push(sign);
        out.extend_from_slice(digits.format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    length(out, b'*', parts.clone().count());
    for part in parts {
        length(out, b'$', part.len());
        out.extend_from_slice(part.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// The first reply of these bytes and its length; `None` while it is not complete.
pub(crate) fn decode(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Found, usize)>, FredError> {
    let found = match protocol {
        Protocol::Resp2 => {
            resp2::decode::decode(bytes).map(|found| found.map(|(frame, length)| (of_resp2(frame), length)))
        }
        Protocol::Resp3 => resp3::decode::complete::decode(bytes)
            .map(|found| found.map(|(frame, length)| (of_resp3(frame), length))),
    };
    // Not the error's own words: they repeat what was read, and a server repeats passwords.
    found.map_err(|error: RedisProtocolError| not_understood(error.kind().to_str()))
}

pub(crate) fn not_understood(why: &str) -> FredError {
    FredError::new(ErrorKind::Protocol, format!("its answer is not understood: {why}"))
}

fn of_resp2(frame: resp2::types::OwnedFrame) -> Found {
    use resp2::types::OwnedFrame as Frame;
    match frame {
        Frame::Error(words) => Found::Reply(Err(refusal(words))),
        frame => Found::Reply(Ok(value_of_resp2(frame))),
    }
}

fn value_of_resp2(frame: resp2::types::OwnedFrame) -> Value {
    use resp2::types::OwnedFrame as Frame;
    match frame {
        Frame::SimpleString(bytes) | Frame::BulkString(bytes) => Value::Text(text(bytes)),
        Frame::Error(words) => Value::Text(words),
        Frame::Integer(number) => Value::Int(number),
        Frame::Array(items) => Value::List(items.into_iter().map(value_of_resp2).collect()),
        Frame::Null => Value::Nil,
    }
}

fn of_resp3(frame: resp3::types::OwnedFrame) -> Found {
    use resp3::types::OwnedFrame as Frame;
    match frame {
        Frame::SimpleError { data, .. } => Found::Reply(Err(refusal(data))),
        Frame::BlobError { data, .. } => Found::Reply(Err(refusal(text(data)))),
        frame @ Frame::Push { .. } => Found::Push(value_of_resp3(frame)),
        frame => Found::Reply(Ok(value_of_resp3(frame))),
    }
}

fn value_of_resp3(frame: resp3::types::OwnedFrame) -> Value {
    use resp3::types::OwnedFrame as Frame;
    let list = |items: Vec<Frame>| Value::List(items.into_iter().map(value_of_resp3).collect());
    match frame {
        Frame::BlobString { data, .. }
        | Frame::BlobError { data, .. }
        | Frame::SimpleString { data, .. }
        | Frame::BigNumber { data, .. }
        | Frame::VerbatimString { data, .. }
        | Frame::ChunkedString(data) => Value::Text(text(data)),
        Frame::SimpleError { data, .. } => Value::Text(data),
        Frame::Boolean { data, .. } => Value::Int(i64::from(data)),
        Frame::Null | Frame::Hello { .. } => Value::Nil,
        Frame::Number { data, .. } => Value::Int(data),
        Frame::Double { data, .. } => Value::Text(data.to_string()),
        Frame::Array { data, .. } | Frame::Push { data, .. } => list(data),
        Frame::Set { data, .. } => list(data.into_iter().collect()),
        Frame::Map { data, .. } => list(data.into_iter().flat_map(|(key, value)| [key, value]).collect()),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// An error reply. A kind of fred's only where somebody looks at it.
pub(crate) fn refusal(mut words: String) -> FredError {
    words.truncate(without_arguments(&words).len());
    let kind = match words.split_whitespace().next() {
        Some("NOAUTH" | "WRONGPASS") => ErrorKind::Auth,
        _ => ErrorKind::Unknown,
    };
    FredError::new(kind, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_the_server_repeats_is_cut_off() {
        let reply = b"-ERR unknown command 'AUTH', with args beginning with: 'ann' 'hunter2' \r\n";
        let Ok(Some((Found::Reply(Err(error)), _))) = decode(Protocol::Resp2, reply) else {
            panic!("no error")
        };
        assert_eq!(error.details(), "ERR unknown command 'AUTH'");
        // Redis cuts what it repeats after 128 bytes, within a character if it so happens.
        let cut = b"-ERR unknown command 'AUTH', with args beginning with: 'hunter2\xc3 \r\n";
        let error = decode(Protocol::Resp2, cut).expect_err("no text");
        assert!(!error.details().contains("hunter2") && !error.details().contains("104, 117"), "{error}");
    }

    #[test]
    fn a_reply_ends_where_it_ends_however_it_comes() {
        let replies: [&[u8]; 8] = [
            b":1\r\n",
            b"-ERR no\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*3\r\n:1\r\n*2\r\n$4\r\na\r\nb\r\n$0\r\n\r\n_\r\n",
            b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
            b"|1\r\n+a\r\n+b\r\n:7\r\n",
        ];
        for reply in replies {
            let mut outline = Outline::default();
            let longer = [reply, b":9\r\n"].concat();
            for length in 0..reply.len() {
                assert_eq!(outline.follow(&longer[..length]).expect("nothing wrong"), None);
            }
            assert_eq!(outline.follow(&longer).expect("a reply"), Some(reply.len()));
        }
    }

    #[test]
    fn lists_within_lists_and_lines_without_an_end_are_refused() {
        let deep = b"*1\r\n".repeat(100_000);
        let long = [b"+".as_slice(), &[b'x'; 2 * LONGEST_LINE]].concat();
        for bytes in
            [deep.as_slice(), &long, b"hello\r\n", b"$x\r\n", b"*-2\r\n", b"$9223372036854775807\r\n"]
        {
            let end = Outline::default().follow(bytes);
            let waits = bytes.starts_with(b"$9") && matches!(end, Ok(None));
            assert!(waits || end.is_err(), "{end:?}");
        }
    }
}
