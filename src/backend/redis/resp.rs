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

/// What was found at the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    Reply(Reply),
    /// Nobody has asked for it.
    Push,
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
    found.map_err(|error| unreadable(&error))
}

fn unreadable(error: &RedisProtocolError) -> FredError {
    FredError::new(ErrorKind::Protocol, format!("its answer is not understood: {error}"))
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
        Frame::Push { .. } => Found::Push,
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
fn refusal(mut words: String) -> FredError {
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
    }
}
