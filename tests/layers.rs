//! Who may name whom in `src/`. Reads one `crate::x` per path, so imports are written one per line, unnested.

use std::fs;
use std::path::Path;

/// Modules, lowest layer first. A module may name those of earlier rows only.
const LAYERS: &[&[&str]] = &[
    &["clock", "credentials", "error", "log", "map", "random", "tls"],
    &["address_map"],
    &["lease", "name", "owner", "process", "stats"],
    &["cell", "config"],
    &["acl"],
    &["backend"],
    &["scripts"],
    &["engine"],
    &["wakes"],
    &["loss_signal", "slot", "trace"],
    &["keeper"],
    &["guard"],
    &["lock"],
    &["mutex", "preflight", "reentrant_lock"],
    &["client"],
    &["fuzzing", "sim"],
];

/// What only a part of the tree may name: the words, and where they are allowed.
const ONLY_IN: &[(&str, &str)] = &[("fred::", "backend/fred"), ("mlua::", "backend/memory")];

/// What the engine must not name: time and chance are arguments.
const NOT_IN_ENGINE: &[&str] =
    &["std::time::Instant", "SystemTime", "tokio::time", "clock::Clock", "rand::", "uuid::"];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// What is wrong with one file, given by its path below `src/`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let module = path.split(['/', '.']).next().unwrap();
    let mut found = Vec::new();
    let mut say = |number: usize, what: String| found.push(format!("src/{path}:{}: {what}", number + 1));
    let Some(own) = layer(module) else {
        say(0, format!("`{module}` has no row in LAYERS"));
        return found;
    };
    let mut in_tests = path.contains("test");
    for (number, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        let code = line.split("//").next().unwrap();
        for named in code.split("crate::").skip(1) {
            let name: String = named.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name.is_empty() {
                say(number, "nested import: write one `crate::` path per line".to_owned());
            }
            if name != module && layer(&name).is_some_and(|other| other >= own) {
                say(number, format!("`{module}` names `{name}`, which is not below it"));
            }
        }
        for (word, place) in ONLY_IN {
            if names(code, word) && !path.starts_with(place) {
                say(number, format!("names `{word}`, which only {place} may"));
            }
        }
        for word in NOT_IN_ENGINE {
            if module == "engine" && !in_tests && names(code, word) {
                say(number, format!("the engine names `{word}`"));
            }
        }
    }
    found
}

/// Whether `word` begins at a word boundary somewhere in `code`, and not within a path of this crate.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("crate::backend::")
    })
}

fn walk(src: &Path, dir: &Path, found: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let below = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            files += walk(src, &path, found);
        } else if below.ends_with(".rs") && below != "lib.rs" {
            found.extend(violations(&below, &fs::read_to_string(&path).unwrap()));
            files += 1;
        }
    }
    files
}

#[test]
fn modules_depend_downwards() {
    let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../src"));
    let mut found = Vec::new();
    assert!(walk(src, src, &mut found) > 10);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_violation_is_found() {
    let count = |path, text| violations(path, text).len();
    assert_eq!(count("engine/hold.rs", "use crate::keeper::Keeper;"), 1);
    assert_eq!(count("engine/hold.rs", "use crate::engine::event::Event; // crate::keeper"), 0);
    assert_eq!(count("name.rs", "let x = crate::owner::OwnerKey::unique();"), 1);
    assert_eq!(count("guard.rs", "use crate::client::LockClient;"), 1);
    assert_eq!(count("guard.rs", "use crate::{cell, clock};"), 1);
    assert_eq!(count("client/builder.rs", "use fred::types::config::Config;"), 1);
    assert_eq!(count("client/builder.rs", "use crate::backend::fred::FredClient;"), 0);
    assert_eq!(count("client/builder.rs", "let x = ::fred::types::Value::Null;"), 1);
    assert_eq!(count("backend/fred/events.rs", "use fred::types::config::Config;"), 0);
    assert_eq!(count("engine.rs", "use std::time::Instant;\nlet x = tokio::time::sleep(d);"), 2);
    assert_eq!(count("engine.rs", "#[cfg(test)]\nuse std::time::Instant;"), 0);
    assert_eq!(count("new_module.rs", ""), 1);
}
