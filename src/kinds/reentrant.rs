//! The scripts of `lua/reentrant/`.

use std::sync::LazyLock;

use crate::backend::OneOf;
use crate::backend::Script;
use crate::backend::Several;
use crate::kinds::Scripts;

/// What follows in a script is done by several, too: they know its keys and arguments, and the time.
const COMMON: &str = "-- From here on several do the same.";

pub(crate) static ACQUIRE: Script = script!("reentrant/acquire");
pub(crate) static RELEASE: Script = script!("reentrant/release");
pub(crate) static RELEASE_MANY: Script = script!("reentrant/release_many");
pub(crate) static RELEASE_AT: Script = script!("reentrant/release_at");
pub(crate) static RENEW: Script = script!("reentrant/renew");
pub(crate) static HAND_OFF: Script = script!("reentrant/hand_off");
pub(crate) static INSPECT: Script = script!("reentrant/inspect");
pub(crate) static FORCE_RELEASE: Script = script!("reentrant/force_release");

/// Runs several of the first two, by their own texts.
static SEVERAL: LazyLock<Script> = LazyLock::new(|| {
    let Script { name, source } = script!("several/reentrant");
    let source = source.replace("-- acquire.lua", &body(&ACQUIRE)).replace("-- release.lua", &body(&RELEASE));
    Script { name, source: source.leak() }
});

/// What a script has in common with that of several, which does without a table for each reply.
fn body(script: &Script) -> String {
    let (_, body) = script.source.split_once(COMMON).expect("the line that tells what is common");
    let mut parts = body.split("return {");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((list, rest)) if !list.starts_with("err") => {
                debug_assert!(!list.contains('{'), "{list}: the bracket that was found is another's");
                text.extend(["return ", list, rest]);
            }
            _ => text.extend(["return {", part]),
        }
    }
    text
}

/// Which calls may be run together.
pub(crate) fn several() -> Several {
    static OF: [OneOf; 2] = [
        OneOf { script: &ACQUIRE, mark: 'a', usual: &[1, 2, 3] },
        OneOf { script: &RELEASE, mark: 'r', usual: &[1, 3] },
    ];
    Several { script: &SEVERAL, of: &OF }
}

pub(crate) static SCRIPTS: Scripts = Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &RELEASE,
    release_many: &RELEASE_MANY,
    release_at: &RELEASE_AT,
    renew: &RENEW,
    hand_off: &HAND_OFF,
    inspect: &INSPECT,
    force_release: &FORCE_RELEASE,
};

/// Every script, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) static ALL: [&Script; 8] =
    [&ACQUIRE, &RELEASE, &RELEASE_MANY, &RELEASE_AT, &RENEW, &HAND_OFF, &INSPECT, &FORCE_RELEASE];

#[cfg(all(test, feature = "in-memory"))]
mod script_tests;
