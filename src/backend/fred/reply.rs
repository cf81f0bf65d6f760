//! Converts what fred returns into replies and errors of this crate.

use fred::error::Error as FredError;
use fred::error::ErrorKind as FredKind;
use fred::types::Resp3Frame as Frame;

use crate::backend::Value;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::resp::refusal;

/// Converts the result of a command whose reply was requested as a raw frame. So an error reply of
/// the server is a frame, and an `Err` is an error of fred itself, which does not say for certain
/// whether the command was executed, whatever its text is.
pub(super) fn reply(result: Result<Frame, FredError>) -> RespReply {
    match result {
        Ok(Frame::SimpleError { data, .. }) => Err(refusal((*data).to_owned())),
        Ok(Frame::BlobError { data, .. }) => Err(refusal(text(&data))),
        Ok(frame) => Ok(value(frame)),
        Err(error) => Err(local(&error)),
    }
}

fn value(frame: Frame) -> Value {
    match frame {
        // `Hello` replies only to HELLO, which is not sent here.
        Frame::Null | Frame::Hello { .. } => Value::Nil,
        Frame::Number { data, .. } => Value::Int(data),
        Frame::Boolean { data, .. } => Value::Int(i64::from(data)),
        Frame::Double { data, .. } => Value::Text(data.to_string()),
        Frame::BlobString { data, .. }
        | Frame::SimpleString { data, .. }
        | Frame::BigNumber { data, .. }
        | Frame::VerbatimString { data, .. }
        | Frame::BlobError { data, .. }
        | Frame::ChunkedString(data) => Value::Text(text(&data)),
        Frame::SimpleError { data, .. } => Value::Text((*data).to_owned()),
        Frame::Array { data, .. } | Frame::Push { data, .. } => list(data),
        Frame::Set { data, .. } => list(data),
        Frame::Map { data, .. } => list(data.into_iter().flat_map(|(key, value)| [key, value])),
    }
}

fn list(frames: impl IntoIterator<Item = Frame>) -> Value {
    Value::List(frames.into_iter().map(value).collect())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An error of fred itself, which is not a reply of the server.
pub(super) fn local(error: &FredError) -> WireError {
    let kind = match error.kind() {
        FredKind::Timeout => ErrorKind::Timeout,
        FredKind::Protocol => ErrorKind::Protocol,
        _ => ErrorKind::Io,
    };
    WireError::new(kind, error.details().to_owned())
}

/// An error while connecting or subscribing. It may be a reply of the server, since fred does not
/// tell them apart; only the text for the user depends on it.
pub(super) fn local_or_reply(error: &FredError) -> WireError {
    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    if *error.kind() == FredKind::Tls {
        return WireError::new(ErrorKind::Tls, error.details().to_owned());
    }
    match error.kind() {
        FredKind::IO
        | FredKind::Timeout
        | FredKind::Protocol
        | FredKind::Canceled
        | FredKind::Routing
        | FredKind::Sentinel
        | FredKind::Backpressure => local(error),
        _ => refusal(error.details().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::FailureKind;
    use crate::backend::Outcome;
    use crate::backend::redis::classify::classify;

    fn outcome(result: Result<Frame, FredError>) -> Outcome<Value> {
        reply(result).map_or_else(|error| classify(&error), Outcome::Done)
    }

    #[test]
    fn a_frame_says_what_it_says() {
        let number = |data| Frame::Number { data, attributes: None };
        let string = Frame::BlobString { data: "abc".into(), attributes: None };
        let inner = Frame::Array { data: vec![string, Frame::Null], attributes: None };
        let frame = Frame::Array { data: vec![number(-2), inner], attributes: None };
        let inner = Value::List(vec![Value::Text("abc".to_owned()), Value::Nil]);
        assert_eq!(outcome(Ok(frame)), Outcome::Done(Value::List(vec![Value::Int(-2), inner])));
    }

    #[test]
    fn only_the_servers_own_words_say_that_nothing_was_executed() {
        let words = "OOM command not allowed when used memory > 'maxmemory'.";
        let replied = Frame::SimpleError { data: words.into(), attributes: None };
        assert!(
            matches!(outcome(Ok(replied)), Outcome::NotExecuted(failure) if failure.kind == FailureKind::OutOfMemory)
        );
        for kind in
            [FredKind::Unknown, FredKind::IO, FredKind::Timeout, FredKind::Canceled, FredKind::Auth]
        {
            for details in
                [words, "Failed to route command.", "Client is not initialized.", "NOSCRIPT no"]
            {
                let outcome = outcome(Err(FredError::new(kind.clone(), details)));
                assert!(
                    matches!(&outcome, Outcome::Unknown(failure) if failure.kind == FailureKind::Link),
                    "{outcome:?}"
                );
            }
        }
    }

    #[test]
    fn a_refused_login_is_told_as_one() {
        let refused = FredError::new(FredKind::Auth, "WRONGPASS invalid username-password pair");
        assert!(local_or_reply(&refused).is_about_login());
        assert_eq!(
            local_or_reply(&FredError::new(FredKind::Sentinel, "WRONGPASS")).kind(),
            ErrorKind::Io
        );
    }
}
