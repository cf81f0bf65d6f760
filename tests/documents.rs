//! The documents: their links lead somewhere, their lines are short, the README stays a page.

use std::fs;
use std::path::Path;

const DOCS_RS: &str = "https://docs.rs/redis-reentrant-lock/latest/redis_reentrant_lock/";
const SOURCE: &str = "https://docs.rs/crate/redis-reentrant-lock/latest/source/";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Every document that users read, by its path.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "docs/", "examples/"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        found.extend(
            names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")),
        );
    }
    assert!(found.len() > 12, "{found:?}");
    found
}

/// The text without its blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut code = false;
    let prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    text.lines().filter(prose).collect()
}

/// `[label]: target`
fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!label.contains(']')).then_some((label, target))
}

/// What stands between `](` and `)`, or between `][` and `]`.
fn used<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    text.split(open)
        .skip(1)
        .filter_map(|rest| rest.split_once(close))
        .map(|(inside, _)| inside)
        .collect()
}

/// The anchor of a heading, as GitHub and rustdoc make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let headings = text.lines().map(|line| line.trim_start_matches("//!").trim_start());
    headings
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// Why a target leads nowhere.
fn lost(from: &str, target: &str) -> Option<String> {
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(from).parent().unwrap().to_str().unwrap();
    let file = if let Some(page) = path.strip_prefix(DOCS_RS) {
        match page.strip_suffix("index.html").map(|folder| folder.trim_end_matches('/')) {
            None => return Some(format!("{from}: {target}: docs.rs wants index.html")),
            Some("") => "src/lib.rs".to_owned(),
            Some("docs") => "docs/README.md".to_owned(),
            Some(page) => format!("{page}.md"),
        }
    } else if let Some(source) = path.strip_prefix(SOURCE) {
        source.to_owned()
    } else if path.starts_with("https://") {
        return None;
    } else if path.is_empty() {
        from.to_owned()
    } else {
        format!("{folder}/{path}").trim_start_matches('/').to_owned()
    };
    if !root().join(&file).exists() {
        return Some(format!("{from}: {target}: there is no {file}"));
    }
    let missing = !fragment.is_empty() && !has_anchor(&read(&file), fragment);
    missing.then(|| format!("{from}: {target}: {file} has no such heading"))
}

#[test]
fn links_lead_somewhere() {
    let rustdoc = read("src/docs_links.md");
    let in_rustdoc: Vec<&str> =
        rustdoc.lines().filter_map(definition).map(|(label, _)| label).collect();
    let mut wrong = Vec::new();
    for file in documents() {
        let text = read(&file);
        let prose = prose(&text);
        let defined: Vec<_> = prose.iter().filter_map(|line| definition(line)).collect();
        let running = prose.join("\n");
        let targets = defined.iter().map(|(_, target)| *target).chain(used(&running, "](", ')'));
        wrong.extend(targets.filter_map(|target| lost(&file, target)));
        for label in used(&running, "][", ']') {
            let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
            if !defined.iter().any(|(defined, _)| *defined == label) {
                wrong.push(format!("{file}: [{label}] is not defined"));
            }
        }
        // rustdoc shows the pages of docs/ elsewhere, so that links between files need a place
        // there, too.
        if file.starts_with("docs/") {
            let unknown = defined.iter().filter(|(label, _)| !in_rustdoc.contains(label));
            wrong.extend(
                unknown.map(|(label, _)| format!("{file}: src/docs_links.md lacks [{label}]")),
            );
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn lines_are_short() {
    let long = |line: &&str| {
        line.chars().count() > 100
            && !line.trim_start().starts_with('|')
            && definition(line).is_none()
    };
    for file in documents() {
        let text = read(&file);
        let found = prose(&text).into_iter().find(long);
        assert_eq!(found, None, "{file}");
    }
}

#[test]
fn the_readme_is_a_page() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= 1_000, "{words} words");
}
