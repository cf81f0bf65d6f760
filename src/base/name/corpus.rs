//! The names of `tests/names.json`, which covers whatever an outsider may pass.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::name::slot_of;

/// The names that must be refused, and those that must be accepted, including long ones.
fn corpus() -> [Vec<String>; 2] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/names.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let list = |word: &str| -> Vec<String> {
        all[word].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let (mut refused, mut accepted) = (list("refused"), list("accepted"));
    accepted.extend(
        [("x", 511), ("x", 512), ("\u{e9}", 256), ("\u{65e5}", 170), ("\u{1f512}", 128)]
            .map(repeated),
    );
    accepted.extend([format!("{{a}}{}", "x".repeat(509)), format!("{}{{a}}", "x".repeat(509))]);
    refused.extend(
        [("x", 513), ("x", 1 << 20), ("\u{e9}", 257), ("\u{65e5}", 171), ("\u{1f512}", 129)]
            .map(repeated),
    );
    [refused, accepted]
}

fn repeated((text, times): (&str, usize)) -> String {
    text.repeat(times)
}

#[test]
fn every_name_is_refused_or_has_a_place_of_its_own() {
    let [refused, accepted] = corpus();
    for name in &refused {
        let error = LockName::new(name).expect_err(name);
        assert!(error.is_config() && !error.to_string().contains(char::is_control), "{error}");
    }
    let (mut owners, mut lines) = (BTreeMap::new(), BTreeSet::new());
    for text in &accepted {
        let name = LockName::new(text).unwrap();
        assert_eq!(name.as_str(), text);
        let channels =
            [WireProfile::Native, WireProfile::Redisson].map(|profile| name.channel(profile));
        let (fence, line) = (name.fence_key(), name.line_key());
        for derived in [&**text, &fence, &line, &channels[0], &channels[1]] {
            assert_eq!(slot_of(derived), name.slot(), "{derived}");
        }
        assert!(lines.insert(line.clone()), "{line}");
        for own in [fence, line] {
            assert!(LockName::new(&own).is_err(), "{own}");
        }
        for channel in channels {
            owners.entry(channel.to_string()).or_insert_with(Vec::new).push(text);
        }
    }
    for (channel, mut names) in owners {
        names.dedup();
        // This is Redisson's own spelling. These two names wake each other, but each excludes only
        // itself.
        let redissons = names.len() == 2 && *names[0] == format!("{{{}}}", names[1]);
        let redissons = redissons || (names.len() == 2 && *names[1] == format!("{{{}}}", names[0]));
        assert!(
            names.len() == 1 || (redissons && channel.starts_with("redisson_lock__channel:")),
            "{names:?}"
        );
    }
    let mut all: Vec<&String> = refused.iter().chain(&accepted).collect();
    all.sort();
    all.dedup();
    assert!(all.len() >= 200 && all.len() == refused.len() + accepted.len());
    println!("{{\"part\":\"names\",\"names\":{},\"refused\":{}}}", all.len(), refused.len());
}
