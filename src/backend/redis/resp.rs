//! Encodes commands and decodes replies.
//!
//! The tests compare this decoder with the crate `redis-protocol`. That crate is not used itself:
//! measured in its place (version 6, in November 2026) it made a lock 1.3 to 3.6 % slower, it
//! overflows its stack on deeply nested arrays, and it parses a large reply from its start again
//! with each part that arrives, which is quadratic.

use crate::backend::Value;
use crate::backend::redis::classify::without_arguments;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;

/// A server's reply: a value, or an error with its text.
pub(crate) type RespReply = Result<Value, WireError>;

/// The protocol that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// The most levels of nested lists. No reply has as many, and the decoder recurses for each.
const DEEPEST: usize = 32;
/// The longest line, except for strings whose length is sent before them. No reply has one of this
/// size.
const LONGEST_LINE: usize = 64 * 1024;
/// A list of at least this many elements leaves its memory to the next one.
const LONG: usize = 32;
/// A list of more than this many elements is an exception, and its memory is freed.
const LONGEST_KEPT: usize = 1024;

/// Finds the end of a reply. When more bytes have arrived it continues where it stopped, so that a
/// reply that comes in many parts is scanned once, and is parsed only when it is complete.
#[derive(Debug, Default)]
pub(crate) struct ReplyScanner {
    at: usize,
    /// For each open list, how many of its elements are still to come.
    open: Vec<u64>,
    /// The memory of a long list, kept for the next one, because allocating it takes time.
    spare: Vec<Value>,
}

impl ReplyScanner {
    /// The length of the reply at the start of these bytes; `None` while it is not complete.
    fn follow(&mut self, bytes: &[u8]) -> Result<Option<usize>, WireError> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(line) = end_of_line(&rest[..rest.len().min(LONGEST_LINE)]) else {
                return if rest.len() > LONGEST_LINE {
                    Err(not_understood("a line has no end"))
                } else {
                    Ok(None)
                };
            };
            let (kind, mut end) = (rest[0], self.at + line + 2);
            let mut elements = 0;
            match kind {
                b'$' | b'=' | b'!' => {
                    if let Some(length) = number(&rest[1..line])? {
                        let text = usize::try_from(length)
                            .ok()
                            .and_then(|length| length.checked_add(end + 2));
                        end = text
                            .ok_or_else(|| not_understood("the length of a text is too large"))?;
                        if bytes.len() < end {
                            return Ok(None);
                        }
                    }
                }
                b'*' | b'~' | b'>' => elements = number(&rest[1..line])?.unwrap_or(0),
                b'%' => elements = number(&rest[1..line])?.unwrap_or(0).saturating_mul(2),
                // Attributes precede the value that they belong to, which is the last of these
                // elements.
                b'|' => {
                    elements =
                        number(&rest[1..line])?.unwrap_or(0).saturating_mul(2).saturating_add(1)
                }
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
                _ => return Err(not_understood("its first byte is not one of a reply")),
            }
            self.at = end;
            if elements > 0 {
                self.open.push(elements);
                if self.open.len() > DEEPEST {
                    return Err(not_understood("its lists are nested too deeply"));
                }
            } else if self.complete() {
                return Ok(Some(self.at));
            }
        }
    }

    /// Keeps the memory of a long list that was read.
    pub(crate) fn reuse(&mut self, mut list: Vec<Value>) {
        if (LONG..=LONGEST_KEPT).contains(&list.capacity()) {
            list.clear();
            self.spare = list;
        }
    }

    /// Counts an element. Returns true if it was the last one of the reply.
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

/// Where the line break of the first line begins.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let mut looked_at = 0;
    loop {
        let line = looked_at + bytes[looked_at..].iter().position(|&byte| byte == b'\r')?;
        match bytes.get(line + 1)? {
            b'\n' => return Some(line),
            _ => looked_at = line + 1,
        }
    }
}

/// A length; `None` is a null, which RESP2 writes as -1.
fn number(digits: &[u8]) -> Result<Option<u64>, WireError> {
    match integer(digits) {
        Some(-1) => Ok(None),
        Some(number) => {
            u64::try_from(number).map(Some).map_err(|_| not_understood("a length is negative"))
        }
        None => Err(not_understood("a length is not a number")),
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    // The parser of std checks each digit for an overflow, which is impossible with so few.
    if !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit) {
        return Some(text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A reply or a push at the start of some bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Reply(RespReply),
    /// A message that is not the reply to a command.
    Push(Value),
}

/// Appends a command to `out`: an array of bulk strings.
pub(crate) fn encode<'a>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'a str> + Clone) {
    let digit = |digit: usize| b'0' + u8::try_from(digit).unwrap_or_default();
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(parts.clone().count()).as_bytes());
    for part in parts {
        // Most parts are short: their lengths have one or two digits, and are written with the line
        // breaks in one piece.
        match part.len() {
            length @ ..10 => {
                out.extend_from_slice(&[b'\r', b'\n', b'$', digit(length), b'\r', b'\n'])
            }
            length @ 10..100 => {
                let (tens, ones) = (digit(length / 10), digit(length % 10));
                out.extend_from_slice(&[b'\r', b'\n', b'$', tens, ones, b'\r', b'\n']);
            }
            length => {
                out.extend_from_slice(b"\r\n$");
                out.extend_from_slice(digits.format(length).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// The first reply in these bytes and its length; `None` while it is not complete. `outline` is the
/// state from when fewer bytes had come. After a complete reply it is ready for the next one.
pub(crate) fn decode(
    protocol: Protocol,
    outline: &mut ReplyScanner,
    bytes: &[u8],
) -> Result<Option<(Incoming, usize)>, WireError> {
    let Some(length) = outline.follow(bytes)? else { return Ok(None) };
    outline.at = 0;
    let mut reader = ReplyParser { protocol, rest: &bytes[..length], spare: &mut outline.spare };
    Ok(Some((reader.found()?, length)))
}

/// Parses a reply that an [`ReplyScanner`] has found to be complete and not nested too deeply.
struct ReplyParser<'a> {
    protocol: Protocol,
    rest: &'a [u8],
    spare: &'a mut Vec<Value>,
}

impl<'a> ReplyParser<'a> {
    fn found(&mut self) -> Result<Incoming, WireError> {
        let (kind, line) = self.line()?;
        Ok(match kind {
            b'-' => Incoming::Reply(Err(refusal(text(line)))),
            b'!' => Incoming::Reply(Err(refusal(text(self.text(line)?.unwrap_or_default())))),
            b'>' => Incoming::Push(self.list(line, 1)?),
            b'|' => {
                self.pass_attributes(line)?;
                return self.found();
            }
            _ => Incoming::Reply(Ok(self.value(kind, line)?)),
        })
    }

    fn next(&mut self) -> Result<Value, WireError> {
        let (kind, line) = self.line()?;
        self.value(kind, line)
    }

    /// The type of a line, and its content.
    fn line(&mut self) -> Result<(u8, &'a [u8]), WireError> {
        let line = end_of_line(self.rest).filter(|&line| line > 0);
        let line = self.take(line.ok_or_else(cut_off)?)?;
        self.pass_end()?;
        match (line[0], self.protocol) {
            (b'+' | b'-' | b':' | b'$' | b'*', _) | (_, Protocol::Resp3) => {
                Ok((line[0], &line[1..]))
            }
            _ => Err(not_understood("its type does not exist in this protocol")),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(taken)
    }

    fn pass_end(&mut self) -> Result<(), WireError> {
        match self.take(2)? {
            b"\r\n" => Ok(()),
            _ => Err(not_understood("a text has another length than announced")),
        }
    }

    fn value(&mut self, kind: u8, line: &'a [u8]) -> Result<Value, WireError> {
        Ok(match kind {
            b':' => Value::Int(
                integer(line).ok_or_else(|| not_understood("an integer is not a number"))?,
            ),
            b'$' | b'!' => self.text(line)?.map_or(Value::Nil, |bytes| Value::Text(text(bytes))),
            // A prefix of three letters and a colon is the format of the text.
            b'=' => {
                let said = self.text(line)?.unwrap_or_default();
                let said =
                    said.get(4..).ok_or_else(|| not_understood("a verbatim text has no type"))?;
                Value::Text(text(said))
            }
            b'*' | b'~' | b'>' => self.list(line, 1)?,
            b'%' => self.list(line, 2)?,
            b'+' | b'-' | b',' | b'(' => Value::Text(text(line)),
            b'_' => Value::Nil,
            b'#' => match line {
                b"t" => Value::Int(1),
                b"f" => Value::Int(0),
                _ => return Err(not_understood("a boolean is neither true nor false")),
            },
            b'|' => {
                self.pass_attributes(line)?;
                return self.next();
            }
            _ => return Err(not_understood("its first byte is not one of a reply")),
        })
    }

    /// A string whose length precedes it.
    fn text(&mut self, line: &[u8]) -> Result<Option<&'a [u8]>, WireError> {
        let Some(length) = number(line)? else { return Ok(None) };
        let text = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        self.pass_end()?;
        Ok(Some(text))
    }

    /// A list with as many elements as the line says, each of which consists of `each` values.
    fn list(&mut self, line: &[u8], each: u64) -> Result<Value, WireError> {
        let Some(elements) = number(line)? else { return Ok(Value::Nil) };
        // Every element has at least the three bytes of a type and a line break.
        let values = usize::try_from(elements.saturating_mul(each)).unwrap_or(usize::MAX);
        let room = values.min(self.rest.len() / 3);
        let mut list = if room < LONG { Vec::new() } else { std::mem::take(self.spare) };
        list.reserve_exact(room);
        for _ in 0..values {
            list.push(self.next()?);
        }
        Ok(Value::List(list))
    }

    /// Skips attributes, which precede a value and are not used here.
    fn pass_attributes(&mut self, line: &[u8]) -> Result<(), WireError> {
        self.list(line, 2).map(|_| ())
    }
}

pub(crate) fn not_understood(why: &str) -> WireError {
    WireError::new(ErrorKind::Protocol, format!("its answer is not understood: {why}"))
}

fn cut_off() -> WireError {
    not_understood("it is cut off")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An error reply.
pub(crate) fn refusal(mut words: String) -> WireError {
    words.truncate(without_arguments(&words).len());
    WireError::new(ErrorKind::Reply, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Incoming, usize)>, WireError> {
        decode(protocol, &mut ReplyScanner::default(), bytes)
    }

    #[test]
    fn a_password_that_the_server_repeats_is_cut_off() {
        // Redis cuts off what it repeats after 128 bytes, possibly within a character.
        for repeated in [b"'ann' 'hunter2' \r\n".as_slice(), b"'hunter2\xc3 \r\n"] {
            let reply =
                [b"-ERR unknown command 'AUTH', with args beginning with: ", repeated].concat();
            let Ok(Some((Incoming::Reply(Err(error)), _))) = whole(Protocol::Resp2, &reply) else {
                panic!("no error")
            };
            assert_eq!(error.details(), "ERR unknown command 'AUTH'");
        }
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
            let mut outline = ReplyScanner::default();
            let longer = [reply, b":9\r\n"].concat();
            for length in 0..reply.len() {
                assert_eq!(outline.follow(&longer[..length]).expect("nothing wrong"), None);
            }
            assert_eq!(outline.follow(&longer).expect("a reply"), Some(reply.len()));
        }
    }

    #[test]
    fn numbers_are_read_up_to_the_largest() {
        let cases = [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("99999999999999999999", None),
            ("", None),
            ("1x", None),
        ];
        for (text, number) in cases {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn what_is_nothing_and_what_is_true_or_false_have_their_values() {
        let cases: [(Protocol, &[u8], Value); 7] = [
            (Protocol::Resp2, b"*-1\r\n", Value::Nil),
            (Protocol::Resp2, b"$-1\r\n", Value::Nil),
            (Protocol::Resp2, b"*0\r\n", Value::List(Vec::new())),
            (Protocol::Resp3, b"_\r\n", Value::Nil),
            (Protocol::Resp3, b"%0\r\n", Value::List(Vec::new())),
            (Protocol::Resp3, b"#t\r\n", Value::Int(1)),
            (Protocol::Resp3, b"#f\r\n", Value::Int(0)),
        ];
        for (protocol, bytes, value) in cases {
            let found = whole(protocol, bytes).expect("a reply").expect("all of it");
            assert!(matches!(&found.0, Incoming::Reply(Ok(found)) if *found == value), "{found:?}");
            assert_eq!(found.1, bytes.len(), "{value:?}");
        }
    }

    #[test]
    fn lists_within_lists_and_lines_without_an_end_are_refused() {
        let deep = b"*1\r\n".repeat(100_000);
        let long = [b"+".as_slice(), &[b'x'; 2 * LONGEST_LINE]].concat();
        for bytes in [
            deep.as_slice(),
            &long,
            b"hello\r\n",
            b"$x\r\n",
            b"*-2\r\n",
            b"$9223372036854775807\r\n",
        ] {
            let end = ReplyScanner::default().follow(bytes);
            let waits = bytes.starts_with(b"$9") && matches!(end, Ok(None));
            assert!(waits || end.is_err(), "{end:?}");
        }
    }

    #[test]
    fn a_long_list_leaves_its_memory_to_the_next_long_one() {
        let read = |outline: &mut ReplyScanner, length: usize| {
            let bytes = format!("*{length}\r\n{}", ":7\r\n".repeat(length));
            match decode(Protocol::Resp2, outline, bytes.as_bytes()) {
                Ok(Some((Incoming::Reply(Ok(Value::List(list))), _))) => list,
                other => panic!("{other:?}"),
            }
        };
        let mut outline = ReplyScanner::default();
        let first = read(&mut outline, LONG + 8);
        let memory = first.as_ptr();
        outline.reuse(first);
        assert!(read(&mut outline, 3).capacity() < LONG);
        let second = read(&mut outline, LONG);
        assert_eq!((second.as_ptr(), &*second), (memory, &*vec![Value::Int(7); LONG]));
        let large = read(&mut outline, LONGEST_KEPT + 1);
        outline.reuse(large);
        assert_eq!(outline.spare.capacity(), 0);
    }

    #[test]
    fn what_is_no_answer_is_refused_without_repeating_it() {
        let resp2: [&[u8]; 6] = [
            b":hunter2\r\n",
            b"$7\r\nhunter2xx",
            b"$x\r\n",
            b"_\r\n",
            b">1\r\n+hunter2\r\n",
            b"*1\r\n#t\r\n",
        ];
        let resp3: [&[u8]; 4] =
            [b"#hunter2\r\n", b"=3\r\ntxt\r\n", b"*1\r\n:\r\n", b"|1\r\n+a\r\n:b\r\n:1\r\n"];
        let all = resp2.map(|bytes| (Protocol::Resp2, bytes));
        for (protocol, bytes) in all.into_iter().chain(resp3.map(|bytes| (Protocol::Resp3, bytes)))
        {
            let error = whole(protocol, bytes).expect_err("no answer");
            assert!(!error.details().contains("hunter2"), "{error}");
        }
    }
}

/// Comparison with the decoder of `redis-protocol`.
#[cfg(test)]
mod comparison {
    use super::*;

    use redis_protocol::resp2;
    use redis_protocol::resp3;

    use crate::base::random::Random;

    /// A random reply with lists of up to this many levels.
    fn reply(random: &mut Random, protocol: Protocol, levels: u64, out: &mut Vec<u8>) {
        let kinds: &[u8] = match (protocol, levels) {
            (Protocol::Resp2, 0) => b"+-:$0",
            (Protocol::Resp2, _) => b"+-:$0***n",
            (Protocol::Resp3, 0) => b"+-:$_#,(=",
            (Protocol::Resp3, _) => b"+-:$_#,(=***%~|",
        };
        let kind = kinds[random.index(kinds.len())];
        let (number, length) = (random.below(1 << 40), random.below(20));
        let letters: String =
            (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        // At most one element in a set or map, because the other decoder does not keep their order.
        let elements = if kind == b'*' { random.below(5) } else { 1 };
        let values = if matches!(kind, b'%' | b'|') { 2 } else { elements };
        let line = match kind {
            b'+' | b'-' => letters,
            b':' if length == 0 => format!("-{number}"),
            b':' | b'(' => number.to_string(),
            b',' => format!("{number}.5"),
            b'$' => format!("{}\r\n{letters}\r\n{letters}", 2 * length + 2),
            b'=' => format!("{}\r\ntxt:{letters}", length + 4),
            b'#' => "t".to_owned(),
            b'0' | b'n' => "-1".to_owned(),
            b'_' => String::new(),
            _ => elements.to_string(),
        };
        let kind = match kind {
            b'0' => b'$',
            b'n' => b'*',
            kind => kind,
        };
        out.extend([&[kind], line.as_bytes(), b"\r\n"].concat());
        if matches!(kind, b'*' | b'%' | b'~' | b'|') && line != "-1" {
            // The other decoder accepts no lists in sets or as keys.
            let levels = if kind == b'*' { levels - 1 } else { 0 };
            (0..values).for_each(|_| reply(random, protocol, levels, out));
        }
        if kind == b'|' {
            // The other decoder accepts no attributes before a null.
            out.extend_from_slice(b":7\r\n");
        }
    }

    fn other(protocol: Protocol, bytes: &[u8]) -> Option<(Incoming, usize)> {
        match protocol {
            Protocol::Resp2 => {
                let (frame, length) = resp2::decode::decode(bytes).ok()??;
                Some((of_resp2(frame), length))
            }
            Protocol::Resp3 => {
                let (frame, length) = resp3::decode::complete::decode(bytes).ok()??;
                Some((of_resp3(frame), length))
            }
        }
    }

    fn of_resp2(frame: resp2::types::OwnedFrame) -> Incoming {
        match frame {
            resp2::types::OwnedFrame::Error(words) => Incoming::Reply(Err(refusal(words))),
            frame => Incoming::Reply(Ok(value_of_resp2(frame))),
        }
    }

    fn value_of_resp2(frame: resp2::types::OwnedFrame) -> Value {
        use resp2::types::OwnedFrame as Frame;
        match frame {
            Frame::SimpleString(bytes) | Frame::BulkString(bytes) => Value::Text(text(&bytes)),
            Frame::Error(words) => Value::Text(words),
            Frame::Integer(number) => Value::Int(number),
            Frame::Array(items) => Value::List(items.into_iter().map(value_of_resp2).collect()),
            Frame::Null => Value::Nil,
        }
    }

    fn of_resp3(frame: resp3::types::OwnedFrame) -> Incoming {
        match frame {
            resp3::types::OwnedFrame::SimpleError { data, .. } => {
                Incoming::Reply(Err(refusal(data)))
            }
            frame => Incoming::Reply(Ok(value_of_resp3(frame))),
        }
    }

    fn value_of_resp3(frame: resp3::types::OwnedFrame) -> Value {
        use resp3::types::OwnedFrame as Frame;
        match frame {
            Frame::BlobString { data, .. }
            | Frame::SimpleString { data, .. }
            | Frame::BigNumber { data, .. }
            | Frame::VerbatimString { data, .. } => Value::Text(text(&data)),
            Frame::SimpleError { data, .. } => Value::Text(data),
            Frame::Boolean { data, .. } => Value::Int(i64::from(data)),
            Frame::Null => Value::Nil,
            Frame::Number { data, .. } => Value::Int(data),
            Frame::Double { data, .. } => Value::Text(data.to_string()),
            Frame::Array { data, .. } => {
                Value::List(data.into_iter().map(value_of_resp3).collect())
            }
            Frame::Set { data, .. } => Value::List(data.into_iter().map(value_of_resp3).collect()),
            Frame::Map { data, .. } => {
                let values = data.into_iter().flat_map(|(key, value)| [key, value]);
                Value::List(values.map(value_of_resp3).collect())
            }
            frame => panic!("{frame:?}"),
        }
    }

    #[test]
    fn answers_say_what_another_reader_finds_in_them() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        for round in 0..20_000 {
            let protocol = if round % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
            let mut bytes = Vec::new();
            reply(&mut random, protocol, 3, &mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(b":1\r\n");
            let ours = decode(protocol, &mut ReplyScanner::default(), &bytes).expect("an answer");
            let theirs = other(protocol, &bytes);
            assert_eq!(ours.as_ref().map(|(_, length)| *length), Some(length), "{}", text(&bytes));
            assert_eq!(ours, theirs, "{}", text(&bytes));
        }
    }

    #[test]
    fn nonsense_means_nothing_else_to_another_reader() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut both = 0;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            reply(&mut random, Protocol::Resp2, 2, &mut bytes);
            let place = random.index(bytes.len());
            bytes[place] = b"\r\n+-:$*019x"[random.index(11)];
            let Ok(Some(ours)) = decode(Protocol::Resp2, &mut ReplyScanner::default(), &bytes)
            else {
                continue;
            };
            // The other decoder accepts more, but never less than this one.
            assert_eq!(Some(ours), other(Protocol::Resp2, &bytes), "{}", text(&bytes));
            both += 1;
        }
        assert!(both > 1_000, "{both}");
    }
}
