//! Lua texts with one small mistake each.

use crate::backend::Script;

/// A script with a mistake in it.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// What was changed, as text that stays the same when other lines change.
    pub(crate) change: String,
    pub(crate) source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    Text,
    Sign,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    at: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Every mutant of a script, in the order of the text.
pub(crate) fn mutants(script: &Script) -> Vec<Mutant> {
    let tokens = tokens(script.source);
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        for text in replacements(&tokens, index) {
            edits.push((token.at, token.end(), text));
        }
        edits.extend(call_dropped(&tokens, index).map(|end| (token.at, end, "false".to_owned())));
    }
    edits.extend(
        statements(script.source, &tokens).into_iter().map(|(from, to)| (from, to, String::new())),
    );
    let mut known: Vec<String> = Vec::new();
    let mutant = |(from, to, text): (usize, usize, String)| {
        let source = format!("{}{text}{}", &script.source[..from], &script.source[to..]);
        let change = change(script, from, to, &text);
        let before = known.iter().filter(|other| **other == change).count();
        known.push(change.clone());
        let change = if before == 0 { change } else { format!("{change} (number {})", before + 1) };
        Mutant { change, source }
    };
    edits.into_iter().map(mutant).collect()
}

/// `reentrant/release: if count > 0 then => if count >= 0 then`
fn change(script: &Script, from: usize, to: usize, text: &str) -> String {
    let source = script.source;
    let start = source[..from].rfind('\n').map_or(0, |at| at + 1);
    let end = source[to..].find('\n').map_or(source.len(), |at| to + at);
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = one_line(&source[start..end]);
    let after = one_line(&format!("{}{text}{}", &source[start..from], &source[to..end]));
    format!("{}: {before} => {after}", script.name).trim_end().to_owned()
}

// ---- what a token may become

fn replacements(tokens: &[Token<'_>], index: usize) -> Vec<String> {
    let token = tokens[index];
    let texts: &[&str] = match (token.kind, token.text) {
        (Kind::Sign, "==") => &["~="],
        (Kind::Sign, "~=") => &["=="],
        (Kind::Sign, "<") => &["<=", ">="],
        (Kind::Sign, "<=") => &["<", ">"],
        (Kind::Sign, ">") => &[">=", "<="],
        (Kind::Sign, ">=") => &[">", "<"],
        (Kind::Sign, "+") => &["-"],
        (Kind::Sign, "*") => &["+"],
        (Kind::Sign, "/") => &["*"],
        (Kind::Sign, "-") if !is_minus(tokens, index) => &["+"],
        (Kind::Name, "and") => &["or"],
        (Kind::Name, "or") => &["and"],
        (Kind::Sign, "-") | (Kind::Name, "not") => &[""],
        (Kind::Name, "true") => &["false"],
        (Kind::Name, "false") => &["true"],
        (Kind::Name, "pcall") => &["call"],
        (Kind::Text, _) => return vec![mistyped(token.text)],
        (Kind::Number, _) => return numbers(token.text),
        _ => &[],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A minus in front of a constant.
fn is_minus(tokens: &[Token<'_>], index: usize) -> bool {
    let before = index.checked_sub(1).map(|index| tokens[index]);
    before.is_none_or(|token| match token.kind {
        Kind::Name => matches!(token.text, "return" | "and" | "or" | "not"),
        Kind::Sign => !matches!(token.text, ")" | "]"),
        Kind::Number | Kind::Text => false,
    })
}

fn numbers(text: &str) -> Vec<String> {
    let number: i128 = text.parse().unwrap_or_else(|_| panic!("{text} is no whole number"));
    [number + 1, number - 1].into_iter().map(|number| format!("{number}")).collect()
}

fn mistyped(text: &str) -> String {
    let inside = text.trim_matches('"');
    format!("\"{inside}x\"")
}

/// The end of a call of Redis whose value is used: it is made to be `false`. As a statement it is
/// deleted instead.
fn call_dropped(tokens: &[Token<'_>], index: usize) -> Option<usize> {
    let [redis, dot, call, open, ..] = &tokens[index..] else { return None };
    let is_call = redis.text == "redis"
        && dot.text == "."
        && matches!(call.text, "call" | "pcall" | "acl_check_cmd")
        && open.text == "(";
    let used =
        index > 0 && (tokens[index - 1].kind == Kind::Sign || tokens[index - 1].text == "return");
    if !is_call || !used || tokens[index - 1].text == ")" {
        return None;
    }
    let mut depth = 0;
    for token in &tokens[index + 3..] {
        depth += i32::from(token.text == "(") - i32::from(token.text == ")");
        if depth == 0 {
            return Some(token.end());
        }
    }
    None
}

// ---- statements

/// From and to of each statement that can be deleted: a line, or the lines of a block.
fn statements(source: &str, tokens: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let end = start + line.trim_end().len();
        let inside: Vec<&Token<'_>> =
            tokens.iter().filter(|token| (start..end).contains(&token.at)).collect();
        let net: i32 = inside.iter().map(|token| nesting(token)).sum();
        lines.push((start, end, net, inside.first().map(|token| token.text)));
        start += line.len();
    }
    let mut found = Vec::new();
    for (number, &(from, to, net, first)) in lines.iter().enumerate() {
        match first {
            None | Some("else" | "elseif" | "end") => continue,
            Some(_) if net == 0 => found.push((from, to)),
            Some(_) => {
                let mut depth = 0;
                let end = lines[number..].iter().find(|(_, _, net, _)| {
                    depth += net;
                    depth <= 0
                });
                found.extend(end.map(|(_, end, ..)| (from, *end)));
            }
        }
    }
    found
}

fn nesting(token: &Token<'_>) -> i32 {
    match (token.kind, token.text) {
        (Kind::Name, "then" | "do" | "function") => 1,
        (Kind::Name, "end" | "elseif") => -1,
        _ => 0,
    }
}

// ---- tokens

const SIGNS: [&str; 4] = ["==", "~=", "<=", ">="];

fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = if rest.starts_with("--[[") {
            rest.find("]]").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let (kind, length) = token(rest, first);
            found.push(Token { kind, text: &rest[..length], at });
            length
        };
        at += length;
    }
    found
}

fn token(rest: &str, first: char) -> (Kind, usize) {
    let run =
        |is_part: fn(char) -> bool| rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    if first == '"' {
        (Kind::Text, rest[1..].find('"').map_or(rest.len(), |end| end + 2))
    } else if first.is_ascii_digit() {
        (Kind::Number, run(|letter| letter.is_ascii_digit()))
    } else if first.is_ascii_alphabetic() || first == '_' {
        (Kind::Name, run(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
    } else if SIGNS.iter().any(|sign| rest.starts_with(sign)) {
        (Kind::Sign, 2)
    } else {
        (Kind::Sign, first.len_utf8())
    }
}

#[test]
fn each_kind_of_mistake_is_made() {
    static SCRIPT: Script = Script {
        name: "x",
        source: "--[[ 1 == 2\n]]\nlocal a = redis.call(\"GET\", KEYS[1]) -- not here\n\
                 if a and a < 3 then\n  return {-4, a + 1}\nend\nredis.call(\"DEL\", KEYS[1])\n",
    };
    let all = mutants(&SCRIPT);
    let has = |change: &str| all.iter().any(|mutant| mutant.change == format!("x: {change}"));
    let get = "local a = redis.call(\"GET\", KEYS[1]) -- not here";
    assert!(has(&format!("{get} => local a = false -- not here")));
    assert!(has(&format!("{get} => local a = redis.call(\"GETx\", KEYS[1]) -- not here")));
    assert!(has(&format!("{get} => local a = redis.call(\"GET\", KEYS[2]) -- not here")));
    assert!(has(&format!("{get} =>")));
    assert!(has("if a and a < 3 then => if a or a < 3 then"));
    assert!(has("if a and a < 3 then => if a and a <= 3 then"));
    assert!(has("if a and a < 3 then return {-4, a + 1} end =>"));
    assert!(has("return {-4, a + 1} => return {4, a + 1}"));
    assert!(has("return {-4, a + 1} => return {-4, a - 1}"));
    assert!(has("redis.call(\"DEL\", KEYS[1]) =>"));
    assert!(!all.iter().any(|mutant| mutant.change.contains("1 ~= 2")), "comments are left alone");
}
