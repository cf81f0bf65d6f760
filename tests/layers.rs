//! Who may name whom in `src/`, and that no two types have the same name. Reads one `crate::x` per
//! path, so imports are written one per line, unnested.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Modules, lowest layer first. A module may name those of earlier rows only.
const LAYERS: &[&[&str]] = &[
    &[
        "base::clock",
        "base::error",
        "base::kind",
        "base::log",
        "base::map",
        "base::random",
        "base::seeded",
        "base::yielding",
    ],
    &["base::lease", "base::name", "base::owner", "base::process", "base::stats"],
    &["base::cell"],
    &["base::majority"],
    &["settings::address_map", "settings::credentials", "settings::tls"],
    &["settings::config"],
    &["backend"],
    &["kinds"],
    &["engine"],
    &["driver::wakes"],
    &["driver::slot", "driver::trace"],
    &["driver"],
    &["locks::loss_signal"],
    &["locks::guard"],
    &["locks::lock"],
    &["locks::multi", "locks::multi::acquisition"],
    &[
        "locks::mutex",
        "locks::fair",
        "locks::reentrant",
        "locks::rw_lock",
        "locks::latch",
        "locks::semaphore",
        "locks::single_flight",
    ],
    &["client::acl"],
    &["client::preflight"],
    &["client"],
    &["redlock"],
    &["blocking"],
    &["fuzzing", "sim"],
];

/// What only a part of the tree may name: the words, and where they are allowed.
const ONLY_IN: &[(&str, &str)] = &[("fred::", "backend/fred"), ("mlua::", "backend/memory")];

/// What the engine must not name: the kind of a lock is asked, time and chance are arguments.
const NOT_IN_ENGINE: &[&str] = &[
    "Kind::",
    "kinds::reentrant",
    "kinds::fair",
    "std::time::Instant",
    "SystemTime",
    "tokio::time",
    "clock::Clock",
    "rand::",
    "uuid::",
];

/// The entry of `LAYERS` that a path belongs to, which may be that of its folder, and the row of
/// that.
fn layer(path: &str) -> Option<(&'static str, usize)> {
    let two: Vec<&str> = path.split("::").take(2).collect();
    let find = |module: &str| {
        let row = LAYERS.iter().position(|row| row.contains(&module))?;
        LAYERS[row].iter().find(|known| **known == module).map(|known| (*known, row))
    };
    find(&two.join("::")).or_else(|| find(two[0]))
}

/// A folder whose entries all have rows of their own has only a list of modules itself.
fn is_a_list(path: &str) -> bool {
    matches!(path, "base.rs" | "settings.rs" | "locks.rs")
}

/// What is wrong with one file, given by its path below `src/`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut say =
        |number: usize, what: String| found.push(format!("src/{path}:{}: {what}", number + 1));
    if is_a_list(path) {
        return found;
    }
    let Some((module, own)) = layer(&path.trim_end_matches(".rs").replace('/', "::")) else {
        say(0, "it has no row in LAYERS".to_owned());
        return found;
    };
    let mut in_tests = path.contains("test");
    for (number, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        let code = line.split("//").next().unwrap();
        for named in code.split("crate::").skip(1) {
            let named: String = named
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                .collect();
            if named.is_empty() {
                say(number, "nested import: write one `crate::` path per line".to_owned());
            }
            let Some((other, row)) = layer(&named) else { continue };
            let within = other == module || other.starts_with(&format!("{module}::"));
            if !within && row >= own {
                say(number, format!("`{module}` names `{other}`, which is not below it"));
            }
        }
        for (word, place) in ONLY_IN {
            if names(code, word) && !path.starts_with(place) {
                say(number, format!("names `{word}`, which only {place} may"));
            }
        }
        for word in NOT_IN_ENGINE {
            if path.starts_with("engine") && !in_tests && names(code, word) {
                say(number, format!("the engine names `{word}`"));
            }
        }
    }
    found
}

/// Whether `word` begins at a word boundary somewhere in `code`, and not within a path of this
/// crate.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && !before.ends_with("crate::backend::")
    })
}

/// The name of the type that a line defines. Associated types are indented, and belong to their
/// traits.
fn defined_type(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (keyword, rest) = code.split_once(' ')?;
    let defines = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (defines && end > 0).then(|| &rest[..end])
}

/// The types that are defined more than once. Tests and the simulation may reuse a name of the
/// product, and a type of the blocking API that of the async type that it stands for.
fn types_defined_twice(files: &[(String, String)]) -> Vec<String> {
    let mut places = BTreeMap::<(bool, &str), Vec<String>>::new();
    for (path, text) in
        files.iter().filter(|(path, _)| !path.contains("test") && !path.starts_with("sim"))
    {
        let mut tests_end_with = None;
        for (number, line) in text.lines().enumerate() {
            if line.trim_end().ends_with("mod tests {") && tests_end_with.is_none() {
                let indentation = line.len() - line.trim_start().len();
                tests_end_with = Some(format!("{}}}", &line[..indentation]));
            }
            match (&tests_end_with, defined_type(line)) {
                (Some(end), _) if end == line => tests_end_with = None,
                (None, Some(name)) => {
                    let key = (path.starts_with("blocking"), name);
                    places.entry(key).or_default().push(format!("src/{path}:{}", number + 1));
                }
                _ => {}
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
        .into_iter()
        .map(|((_, name), places)| format!("`{name}` is defined in {}", places.join(", ")))
        .collect()
}

/// All files below `src/`, by their paths there, with their texts.
fn sources() -> Vec<(String, String)> {
    let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../src"));
    let (mut files, mut folders) = (Vec::new(), vec![src.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if below.ends_with(".rs") {
                files.push((below, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(files.len() > 10);
    files
}

#[test]
fn modules_depend_downwards() {
    let files = sources().into_iter().filter(|(path, _)| path != "lib.rs");
    let found: Vec<String> = files.flat_map(|(path, text)| violations(&path, &text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_two_types_have_the_same_name() {
    let found = types_defined_twice(&sources());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_second_definition_is_found() {
    let count = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        types_defined_twice(&files.collect::<Vec<_>>()).len()
    };
    let known = ("engine/hold.rs", "pub(crate) struct Hold {\n    id: u64,\n}");
    assert_eq!(count(&[known]), 0);
    for second in
        ["enum Hold {", "pub trait Hold: Send {", "    pub(super) struct Hold<'a>(&'a str);"]
    {
        assert_eq!(count(&[known, ("driver.rs", second)]), 1, "{second}");
    }
    assert_eq!(count(&[known, ("driver.rs", "pub(crate) type Hold = u64;")]), 1);
    assert_eq!(count(&[known, ("driver.rs", "impl X for Y {\n    type Hold = u64;\n}")]), 0);
    assert_eq!(count(&[known, ("driver.rs", "struct Holds;\nuse crate::engine::hold::Hold;")]), 0);
    assert_eq!(
        count(&[known, ("engine/tests.rs", "struct Hold;"), ("sim/world.rs", "struct Hold;")]),
        0
    );
    let blocking = ("blocking/guard.rs", "pub struct Hold;");
    assert_eq!(count(&[known, blocking]), 0);
    assert_eq!(count(&[known, blocking, ("blocking.rs", "struct Hold;")]), 1);
    let tests = "mod tests {\n    struct Hold;\n}\n";
    assert_eq!(count(&[known, ("driver.rs", tests)]), 0);
    assert_eq!(count(&[known, ("driver.rs", &format!("{tests}struct Hold;"))]), 1);
}

#[test]
fn a_planted_violation_is_found() {
    let count = |path, text| violations(path, text).len();
    assert_eq!(count("engine/hold.rs", "use crate::driver::Shared;"), 1);
    assert_eq!(count("engine/hold.rs", "use crate::engine::event::Event; // crate::driver"), 0);
    assert_eq!(count("base/clock.rs", "let x = crate::base::owner::OwnerKey::unique();"), 1);
    assert_eq!(count("driver/slot.rs", "use crate::driver::wakes::Wakes;"), 0);
    assert_eq!(count("driver/wakes.rs", "use crate::driver::Shared;"), 1);
    assert_eq!(count("locks/guard.rs", "use crate::client::LockClient;"), 1);
    assert_eq!(count("client.rs", "use crate::blocking::guard::Guard;"), 1);
    assert_eq!(count("locks/guard.rs", "use crate::{base::cell, base::clock};"), 1);
    assert_eq!(count("client/builder.rs", "use fred::types::config::Config;"), 1);
    assert_eq!(count("client/builder.rs", "use crate::backend::fred::FredClient;"), 0);
    assert_eq!(count("client/builder.rs", "let x = ::fred::types::Value::Null;"), 1);
    assert_eq!(count("backend/fred/events.rs", "use fred::types::config::Config;"), 0);
    assert_eq!(count("engine.rs", "use std::time::Instant;\nlet x = tokio::time::sleep(d);"), 2);
    assert_eq!(count("engine.rs", "#[cfg(test)]\nuse std::time::Instant;"), 0);
    assert_eq!(count("new_module.rs", ""), 1);
}
