//! `cargo xtask api`: what the library offers, an item a line, held against `docs/public-api.txt`.
//!
//! Rustdoc's JSON says which items are public; their text is that of the source. The JSON is
//! unstable: with a compiler whose JSON has another shape, this ends with an error.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::process;
use crate::process::Echo;
use crate::process::cargo;

const RECORD: &str = "docs/public-api.txt";
const LIMIT: Duration = Duration::from_secs(900);
/// Those of the compiler's own traits that users notice when a type loses them.
const AUTO_TRAITS: [&str; 3] = ["Send", "Sync", "Unpin"];

/// True if the record says the same, or was written.
pub(crate) fn run(write: bool) -> Result<bool, String> {
    let path = crate::root().join(RECORD);
    let found = Listing::of(&rustdoc()?)?;
    if write {
        let text: String = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).map_err(|error| format!("{RECORD}: {error}"))?;
        println!("{} items in {RECORD}", found.len());
        return Ok(true);
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{RECORD}: {error}"))?;
    let recorded: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    recorded.difference(&found).for_each(|line| println!("- {line}"));
    found.difference(&recorded).for_each(|line| println!("+ {line}"));
    let same = found == recorded;
    if same {
        println!("{} items, as {RECORD} says", found.len());
    } else {
        println!(
            "FAILED: not what {RECORD} says. If that is as it should be: cargo xtask api --write"
        );
    }
    Ok(same)
}

/// What rustdoc says of the library with all features.
fn rustdoc() -> Result<Value, String> {
    let target =
        std::path::absolute(crate::root().join("target")).map_err(|error| error.to_string())?;
    let mut command =
        cargo(&["rustdoc", "--package", "redis-reentrant-lock", "--lib", "--all-features"]);
    command
        .args(["--target-dir".as_ref(), target.as_os_str()])
        .env("RUSTDOC", unstable_rustdoc(&target)?);
    command.args(["--", "-Z", "unstable-options", "--output-format", "json"]);
    let done = process::run(command, LIMIT, Echo::Off)?;
    if !done.success {
        return Err(format!("rustdoc failed:\n{}", done.output));
    }
    let path = target.join("doc/redis_reentrant_lock.json");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A script that runs rustdoc with its unstable options. The variable is set for rustdoc only:
/// build scripts look at it, and would run again with everything that depends on them.
fn unstable_rustdoc(target: &std::path::Path) -> Result<PathBuf, String> {
    let path = target.join("unstable-rustdoc");
    let write = || {
        fs::create_dir_all(target)?;
        fs::write(&path, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// A line for each item, method, field, variant and implementation.
struct Listing<'a> {
    items: &'a Value,
    lines: BTreeSet<String>,
    /// The public path of each type.
    paths: BTreeMap<String, String>,
    sources: BTreeMap<String, Vec<String>>,
}

impl<'a> Listing<'a> {
    fn of(rustdoc: &'a Value) -> Result<BTreeSet<String>, String> {
        let items = &rustdoc["index"];
        let (lines, paths, sources) = Default::default();
        let mut listing = Self { items, lines, paths, sources };
        let root = &items[key(&rustdoc["root"])]["inner"]["module"]["items"];
        root.as_array().into_iter().flatten().try_for_each(|id| listing.item(id, ""))?;
        for item in items.as_object().ok_or("rustdoc's JSON has no index")?.values() {
            listing.implementation(&item["inner"]["impl"])?;
        }
        if listing.lines.is_empty() { Err("no public item".into()) } else { Ok(listing.lines) }
    }

    /// An item of the module or type at this path.
    fn item(&mut self, id: &Value, path: &str) -> Result<(), String> {
        let item = &self.items[key(id)];
        let (kind, inner) =
            kind(item).ok_or_else(|| format!("rustdoc says nothing of {id}, in {path}"))?;
        let name = inner["name"].as_str().or(item["name"].as_str()).unwrap_or_default();
        let own = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        if kind == "use" {
            return if self.items[key(&inner["id"])].is_null() {
                self.lines
                    .insert(format!("{own}: use {}", inner["source"].as_str().unwrap_or_default()));
                Ok(())
            } else {
                self.item_named(&inner["id"], path, name)
            };
        }
        self.item_named(id, path, name)
    }

    fn item_named(&mut self, id: &Value, path: &str, name: &str) -> Result<(), String> {
        let item = &self.items[key(id)];
        let (kind, inner) =
            kind(item).ok_or_else(|| format!("rustdoc says nothing of {path}::{name}"))?;
        let own = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        self.paths.insert(key(id), own.clone());
        let text = match kind {
            "module" => "mod".to_owned(),
            // Their fields have lines of their own.
            "struct" => format!("pub struct {name}"),
            "struct_field" => self.name(inner),
            _ => self.text(item)?,
        };
        self.lines.insert(format!("{own}: {}{text}", open(item)));
        let inside = match kind {
            "module" | "trait" => &inner["items"],
            "struct" | "variant" => fields(&inner["kind"]),
            "enum" => &inner["variants"],
            _ => &Value::Null,
        };
        let inside = inside.as_array().into_iter().flatten().filter(|id| !id.is_null());
        inside.into_iter().try_for_each(|id| self.item(id, &own))
    }

    /// Methods, and which type has which trait.
    fn implementation(&mut self, inner: &Value) -> Result<(), String> {
        let Some(whose) = inner.get("for").filter(|_| inner["blanket_impl"].is_null()) else {
            return Ok(());
        };
        let whose = self.name(whose);
        let of = &inner["trait"];
        if of.is_null() {
            let methods = inner["items"].as_array().into_iter().flatten();
            return methods.into_iter().try_for_each(|id| self.item(id, &whose));
        }
        let automatic = inner["is_synthetic"] == true;
        let name = of["path"].as_str().unwrap_or_default();
        let not = if inner["is_negative"] == true { "!" } else { "" };
        // The compiler derives this one with `PartialEq`.
        if name != "StructuralPartialEq" && (!automatic || AUTO_TRAITS.contains(&name)) {
            self.lines.insert(format!("{whose}: impl {not}{name}{}", self.arguments(&of["args"])));
        }
        Ok(())
    }

    /// As short as it is unambiguous: what a type is called where it is used.
    fn name(&self, of: &Value) -> String {
        let Some((kind, inner)) = of.as_object().and_then(|of| of.iter().next()) else {
            return "_".into();
        };
        match kind.as_str() {
            "resolved_path" => {
                let path = self.paths.get(&key(&inner["id"])).map(String::as_str);
                let path = path.or(inner["path"].as_str()).unwrap_or("_");
                format!("{path}{}", self.arguments(&inner["args"]))
            }
            "borrowed_ref" => format!("&{}", self.name(&inner["type"])),
            "slice" => format!("[{}]", self.name(inner)),
            "generic" | "primitive" => inner.as_str().unwrap_or("_").to_owned(),
            "tuple" => {
                let types: Vec<_> =
                    inner.as_array().into_iter().flatten().map(|of| self.name(of)).collect();
                format!("({})", types.join(", "))
            }
            other => format!("a type that is not public, of kind {other}"),
        }
    }

    fn arguments(&self, args: &Value) -> String {
        let types = args["angle_bracketed"]["args"].as_array().into_iter().flatten();
        let types: Vec<_> =
            types.filter_map(|arg| arg.get("type")).map(|of| self.name(of)).collect();
        if types.is_empty() { String::new() } else { format!("<{}>", types.join(", ")) }
    }

    /// Its declaration in the source, without a body.
    fn text(&mut self, item: &Value) -> Result<String, String> {
        let span = &item["span"];
        let file = span["filename"].as_str().ok_or("rustdoc's JSON has no place of an item")?;
        if !self.sources.contains_key(file) {
            let text = fs::read_to_string(crate::root().join(file));
            let text = text.map_err(|error| format!("{file}: {error}"))?;
            self.sources.insert(file.to_owned(), text.lines().map(str::to_owned).collect());
        }
        let number = |place: &str, at: usize| {
            span[place][at].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
        };
        let lines = &self.sources[file];
        let lines = &lines[number("begin", 0).saturating_sub(1)..number("end", 0).min(lines.len())];
        Ok(declaration(&lines.join("\n")))
    }
}

/// The text up to its body or its end, with single spaces.
fn declaration(text: &str) -> String {
    let mut depth = 0_i32;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        depth == 0 && matches!(c, '{' | ';')
    });
    let words: Vec<_> = text[..end.map_or(text.len(), |(at, _)| at)].split_whitespace().collect();
    // `mut` before an argument is no part of what callers see.
    words
        .join(" ")
        .trim_end_matches(',')
        .replace("( ", "(")
        .replace(", )", ")")
        .replace("(mut ", "(")
}

/// Those of a struct or a variant; null for each that is private.
fn fields(kind: &Value) -> &Value {
    ["plain", "struct"]
        .iter()
        .map(|word| &kind[word]["fields"])
        .find(|list| !list.is_null())
        .unwrap_or(&kind["tuple"])
}

/// That it may grow, if it says so.
fn open(item: &Value) -> &'static str {
    let grows = item["attrs"].to_string().contains("non_exhaustive");
    if grows { "#[non_exhaustive] " } else { "" }
}

fn kind(item: &Value) -> Option<(&str, &Value)> {
    item["inner"].as_object()?.iter().next().map(|(kind, inner)| (kind.as_str(), inner))
}

/// An id as the index has it.
fn key(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_ends_at_its_body() {
        assert_eq!(
            declaration("    pub fn a(\n        &self,\n    ) -> [u8; 2] {\n 1 }"),
            "pub fn a(&self) -> [u8; 2]"
        );
        assert_eq!(declaration("    pub const A: u8 = 1;"), "pub const A: u8 = 1");
        assert_eq!(declaration("    pub fn a(mut self) {}"), "pub fn a(self)");
        assert_eq!(declaration("    Variant,"), "Variant");
    }

    #[test]
    fn every_kind_of_item_has_its_line() {
        let rustdoc = serde_json::json!({"root": 0, "index": {
            "0": {"name": "a", "attrs": [], "inner": {"module": {"items": [1, 2]}}},
            "1": {"name": null, "inner": {"use": {"name": "B", "id": 3, "source": "b::B"}}},
            "2": {"name": null, "inner": {"use": {"name": "C", "id": 9, "source": "other::C"}}},
            "3": {"name": "B", "attrs": ["#[non_exhaustive]"], "inner": {"enum": {"variants": []}},
                  "span": {"filename": "src/base/lease.rs", "begin": [1, 1], "end": [1, 9]}},
            "4": {"inner": {"impl": {"trait": {"path": "From", "args": {"angle_bracketed": {"args":
                  [{"type": {"primitive": "str"}}]}}}, "for": {"resolved_path": {"id": 3, "path": "b::B"}}}}},
            "5": {"inner": {"impl": {"trait": {"path": "Freeze", "args": null}, "is_synthetic": true,
                  "for": {"resolved_path": {"id": 3, "path": "b::B"}}}}},
        }});
        let lines: Vec<_> = Listing::of(&rustdoc).unwrap().into_iter().collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("B: #[non_exhaustive] //!"), "{lines:?}");
        assert_eq!(lines[1..], ["B: impl From<str>", "C: use other::C"]);
    }
}
