//! Each Lua file against its own header, and against what scripts may use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::support::ROOT;
use crate::support::look;
use crate::support::redis_server::RedisServer;

const FUNCTIONS: [&str; 12] = [
    "redis.call",
    "redis.pcall",
    "pcall",
    "tonumber",
    "math.floor",
    "math.max",
    "math.min",
    "string.byte",
    "string.format",
    "string.gsub",
    "string.match",
    "type",
];
/// What may stand in front of a bracket or after a dot beside the functions.
const WORDS: [&str; 9] = ["and", "elseif", "if", "not", "or", "return", "function", "in", "while"];
const FIELDS: [&str; 2] = ["err", "ok"];

struct Lua {
    name: String,
    source: String,
    header: String,
    /// Without comments.
    body: String,
}

/// The scripts as clients send them, with the bodies that they include.
fn files() -> Vec<Lua> {
    let (_, paths) = bodies_and_scripts();
    assert!(paths.len() >= 6, "{paths:?}");
    paths.iter().map(|path| read(path)).collect()
}

/// The files that are included by scripts, and the scripts.
fn bodies_and_scripts() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut paths = Vec::new();
    find(&Path::new(ROOT).join("lua"), &mut paths);
    paths.sort();
    paths.into_iter().partition(|path| path.parent().unwrap().ends_with("body"))
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "lua") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> Lua {
    let source = look::script_as_sent(path);
    let name = path.display().to_string();
    let (header, body) = source
        .strip_prefix("--[[\n")
        .and_then(|rest| rest.split_once("\n]]\n"))
        .unwrap_or_else(|| panic!("{name} does not begin with a header"));
    Lua { name, header: header.to_owned(), body: without_comments(body), source: source.clone() }
}

fn without_comments(body: &str) -> String {
    body.lines().map(|line| line.split("--").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Every `KEYS[..]` or `ARGV[..]`, the index without spaces and `*`.
fn indexes(text: &str, array: &str) -> BTreeSet<String> {
    let start = format!("{array}[");
    let ends = text.match_indices(&start).map(|(at, _)| &text[at + start.len()..]);
    let index = |rest: &str| rest.split(']').next().unwrap().replace([' ', '*'], "");
    // A header explains an error by "ARGV[n]", which stands for all.
    ends.map(index).filter(|index| index != "n").collect()
}

/// The replies `{code, time, ...}`: code and number of entries; any number where the header says
/// `...`.
fn replies(text: &str, time: &str) -> BTreeSet<(i64, usize)> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices('{') {
        let entries = entries(&text[at + 1..]);
        let Some(code) = entries.first().and_then(|code| code.parse().ok()) else { continue };
        if entries.get(1).is_some_and(|second| second == time) {
            let open = entries.last().is_some_and(|last| last == "...");
            found.insert((code, if open { 2 } else { entries.len() }));
        }
    }
    found
}

/// What stands between commas, up to the closing brace; commas within brackets do not count.
fn entries(text: &str) -> Vec<String> {
    let (mut entries, mut depth) = (vec![String::new()], 0);
    for letter in text.chars() {
        match letter {
            '}' if depth == 0 => break,
            ',' if depth == 0 => entries.push(String::new()),
            _ => {
                depth += i32::from("({[".contains(letter)) - i32::from(")}]".contains(letter));
                entries.last_mut().unwrap().push(letter);
            }
        }
    }
    entries.iter().map(|entry| entry.trim().to_owned()).collect()
}

/// The body with `""` for each string.
fn without_strings(body: &str) -> String {
    body.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Names that are called: words, with dots, in front of a bracket.
fn called(code: &str) -> BTreeSet<&str> {
    let brackets = code.match_indices('(').map(|(at, _)| code[..at].trim_end_matches(' '));
    let name = |before: &'_ str| {
        before.len() - before.chars().rev().take_while(|c| is_name(*c) || *c == '.').count()
    };
    brackets.map(|before| &before[name(before)..]).filter(|name| !name.is_empty()).collect()
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn defined(code: &str) -> BTreeSet<&str> {
    let names = code.split("local function ").skip(1);
    names.map(|rest| rest.split('(').next().unwrap()).collect()
}

/// What is wrong with a file.
fn faults(lua: &Lua) -> Vec<String> {
    let mut faults = Vec::new();
    for array in ["KEYS", "ARGV"] {
        let (said, used) = (indexes(&lua.header, array), indexes(&lua.body, array));
        for index in said.symmetric_difference(&used) {
            faults.push(format!("{array}[{index}] is not in both header and body"));
        }
    }
    let (said, mut used) = (replies(&lua.header, "time"), replies(&lua.body, "now"));
    if lua.name.contains("/lua/several/") {
        // The bodies answer to this script, which replies for all of them in another form.
        used.clear();
    }
    for (code, length) in said.symmetric_difference(&used) {
        faults.push(format!("a reply {code} of {length} entries is not in both header and body"));
    }
    let mut code = without_strings(&lua.body);
    if lua.name.contains("/lua/preflight/") {
        // What asks about permissions changes nothing, and looks first whether the server can tell.
        code = code.replace("redis.acl_check_cmd", "type");
    }
    faults.extend(strangers(&code));
    faults
}

/// What scripts must not use.
fn strangers(code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let own = defined(code);
    for name in called(code) {
        if !FUNCTIONS.contains(&name) && !WORDS.contains(&name) && !own.contains(name) {
            faults.push(format!("calls {name}"));
        }
    }
    if code.contains("..") {
        faults.push("joins strings, which turns a token into 1.79e+15".to_owned());
    }
    if code.contains(':') {
        faults.push("calls a method".to_owned());
    }
    for (at, _) in code.match_indices('.') {
        let field: String = code[at + 1..].chars().take_while(|c| is_name(*c)).collect();
        let known = FUNCTIONS.iter().any(|function| function.ends_with(&format!(".{field}")));
        if !known && !FIELDS.contains(&&*field) && !field.starts_with(|c: char| c.is_ascii_digit())
        {
            faults.push(format!("uses the field {field}"));
        }
    }
    faults
}

#[test]
fn headers_say_what_the_bodies_do() {
    let mut all = Vec::new();
    for lua in files() {
        all.extend(faults(&lua).into_iter().map(|fault| format!("{}: {fault}", lua.name)));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

/// What the comment of a body that begins with `Uses` lists.
fn said_to_be_used(body: &str) -> BTreeSet<String> {
    let comments = body.lines().skip_while(|line| !line.starts_with("-- Uses "));
    let comments = comments.map_while(|line| line.strip_prefix("-- "));
    let list = comments.collect::<Vec<_>>().join(" ");
    let list = list.strip_prefix("Uses ").into_iter().flat_map(|list| list.split(", "));
    list.map(str::to_owned).collect()
}

/// The words of the code of a body that it does not define: local variables of the scripts that
/// include it.
fn taken_from_outside(body: &str) -> BTreeSet<String> {
    let code = without_strings(&without_comments(body));
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !is_name(c) && c != '.');
        let words = words.map(|word| word.split('.').next().unwrap().to_owned());
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).collect()
    };
    let of =
        |word| code.split(word).skip(1).map(|rest| rest.split(['=', ')', '\n']).next().unwrap());
    let own = of("local ").chain(of("for ")).flat_map(words);
    let others = WORDS
        .into_iter()
        .chain(["break", "do", "else", "end", "false", "for", "local", "nil", "then", "true"]);
    let others = others.chain(FIELDS).chain(["ARGV", "KEYS"]);
    let functions = FUNCTIONS.into_iter().map(|function| function.split('.').next().unwrap());
    let known: BTreeSet<String> = own.chain(others.chain(functions).map(str::to_owned)).collect();
    words(&code).difference(&known).cloned().collect()
}

#[test]
fn a_body_uses_what_it_says_and_the_scripts_that_include_it_define_that() {
    let (bodies, scripts) = bodies_and_scripts();
    assert!(bodies.len() >= 2, "{bodies:?}");
    for path in bodies {
        let body = fs::read_to_string(&path).unwrap();
        let said = said_to_be_used(&body);
        let sent = look::script_as_sent(&path);
        let path = path.strip_prefix(Path::new(ROOT).join("lua")).unwrap().display().to_string();
        // What the files define that it includes in turn is there.
        let mut taken = taken_from_outside(&body);
        for line in sent.lines().filter_map(|line| line.strip_prefix("local ")) {
            let names = line.trim_start_matches("function ").split(['=', '(']).next().unwrap();
            for name in names.split(", ") {
                taken.remove(name.trim());
            }
        }
        assert_eq!(said, taken, "{path}");
        let mut includes = Vec::new();
        for script in &scripts {
            let text = look::script_as_sent(script);
            let Some((before, _)) = text.split_once(&format!("-- include {path}\n")) else {
                continue;
            };
            let locals =
                before.split("local ").skip(1).map(|rest| rest.split(['=', ')']).next().unwrap());
            let defined: BTreeSet<&str> =
                locals.flat_map(|names| names.split([' ', ',', '(', '\n'])).collect();
            for name in &said {
                assert!(
                    defined.contains(&**name),
                    "{}: no local {name} for {path}",
                    script.display()
                );
            }
            includes.push(
                script.strip_prefix(Path::new(ROOT).join("lua")).unwrap().display().to_string(),
            );
        }
        assert!(includes.len() >= 2, "{path} is included by {includes:?}");
    }
}

#[test]
fn redis_loads_every_script() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for lua in files() {
        let loaded: redis::RedisResult<String> =
            redis::cmd("SCRIPT").arg("LOAD").arg(&lua.source).query(&mut connection);
        assert_eq!(loaded.map(|digest| digest.len()), Ok(40), "{}", lua.name);
    }
}

#[test]
fn a_difference_between_header_and_body_is_found() {
    let header = "  KEYS[1]  lock\n  ARGV[1]  field\n  {1, time, token}  granted\n  {-9, time, n}  ARGV[n] not allowed";
    let body = r#"
        local now = tonumber(redis.call("TIME")[1])
        if not ARGV[1] then return {-9, now, 1} end
        return {1, now, redis.call("GET", KEYS[1])}
    "#;
    let count = |from: &str, to: &str| {
        let (name, source) = (String::new(), String::new());
        assert!(header.contains(from) || body.contains(from));
        faults(&Lua {
            name,
            source,
            header: header.replacen(from, to, 1),
            body: body.replacen(from, to, 1),
        })
        .len()
    };
    assert_eq!(count("lock", "lock"), 0);
    assert_eq!(count("  ARGV[1]  field\n", ""), 1);
    assert_eq!(count("KEYS[1]", "KEYS[2]"), 0, "in both");
    assert_eq!(count("  {1, time, token}  granted\n", ""), 1);
    assert_eq!(count("{1, time, token}", "{1, time}"), 2);
    assert_eq!(count("return {-9, now, 1}", "return {-8, now, 1}"), 2);
    assert_eq!(count("tonumber(", "tostring("), 1);
    assert_eq!(count("now, redis.call", "now, ARGV[1] .. redis.call"), 3);
    assert_eq!(count("redis.call(\"GET\"", "redis.sha1hex(\"GET\""), 2);
}
