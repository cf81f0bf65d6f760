//! Gives arbitrary addresses, errors and bytes to the parsers of this backend; for
//! `crate::fuzzing`.

use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::redis::classify;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::denied;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::resp::ReplyScanner;
use crate::backend::redis::resp::decode;
use crate::backend::words::Words;

const PASSWORD: &str = "pass-7c1f09-word";

/// An address is refused or accepted, and its password appears in no text.
pub(crate) fn url(text: &str) {
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let scheme = text.split_once("://").map_or("redis", |(scheme, _)| scheme);
    for url in [text.to_owned(), format!("{scheme}://user:{PASSWORD}@{after_scheme}")] {
        let shown = match RedisConfig::read(&url) {
            Ok(config) => format!("{config:?} {}", config.address()),
            Err(error) => format!("{error:?} {error}"),
        };
        assert!(text.contains(PASSWORD) || !shown.contains(PASSWORD), "{url:?}: {shown}");
    }
}

/// No error is taken for an answer, and its text reaches the user.
pub(crate) fn error(text: &str, scripts: &[&'static Script]) {
    let kinds =
        [ErrorKind::Io, ErrorKind::Timeout, ErrorKind::Protocol, ErrorKind::Tls, ErrorKind::Reply];
    for kind in kinds {
        let error = WireError::new(kind, text.to_owned());
        let failure = classify::failure(&error);
        assert_eq!(failure.message, text);
        for &script in scripts {
            let call = ScriptCall::new(script, ["lock"].into(), Words::default());
            let before = classify::classify::<()>(&error);
            let after = denied::name_permission(&Call::Script(call.into()), before.clone());
            let (Outcome::NotExecuted(one), Outcome::NotExecuted(other)) = (before, after) else {
                continue;
            };
            assert_eq!(one.kind, other.kind);
            assert!(other.message.contains(one.message.trim()), "{other:?}");
        }
        let named = denied::name_channel("channel", failure.clone());
        assert!(named.kind == failure.kind && named.message.contains(failure.message.trim()));
        assert!(failure.kind != FailureKind::Redirected || !classify::is_no_script(&error));
    }
}

/// A reply ends at the same byte however much follows and in however many parts it comes, and no
/// part of it is taken for all of it.
pub(crate) fn bytes(data: &[u8]) {
    let whole = |protocol, bytes| decode(protocol, &mut ReplyScanner::default(), bytes);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let Ok(Some((found, length))) = whole(protocol, data) else { continue };
        assert!((1..=data.len()).contains(&length), "{length} of {}", data.len());
        let mut outline = ReplyScanner::default();
        for part in 0..length {
            let said = decode(protocol, &mut outline, &data[..part]);
            assert!(matches!(said, Ok(None)), "{part} of {length}: {said:?}");
        }
        let in_parts = decode(protocol, &mut outline, &data[..length]).expect("it was understood");
        assert_eq!(in_parts, Some((found, length)));
    }
}
