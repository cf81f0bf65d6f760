//! What the locks protect: a counter that trusts its writers, and one that checks tokens. One
//! thread's state, so that there is one order of all reads and writes.

use std::collections::HashMap;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use crate::event::now;

/// Which of the two counters of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    Trusting,
    Fenced,
}

/// A request that came to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) at: u64,
    pub(crate) which: Which,
    pub(crate) name: String,
    pub(crate) hold: String,
    pub(crate) token: u64,
    /// A write: the version that its writer had read.
    pub(crate) base: Option<u64>,
    /// How many writes there had been before it.
    pub(crate) version: u64,
    /// Its token was smaller than one that had been here.
    pub(crate) refused: bool,
}

#[derive(Debug, Default)]
struct State {
    counters: HashMap<(Which, String), Counter>,
    seen: Vec<Access>,
}

#[derive(Debug, Default)]
struct Counter {
    version: u64,
    /// When it was last written.
    written: u64,
    token: u64,
}

/// Listens on a socket until the program ends.
#[derive(Debug, Clone)]
pub(crate) struct Store(Arc<Mutex<State>>);

impl Store {
    pub(crate) fn start(socket: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let store = Self(Arc::default());
        let accepting = store.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let store = accepting.clone();
                thread::spawn(move || store.serve(&stream));
            }
        });
        Ok(store)
    }

    /// All that has come so far, in the order in which it came.
    pub(crate) fn seen(&self) -> Vec<Access> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seen.clone()
    }

    fn serve(&self, stream: &UnixStream) {
        let mut out = stream;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Some(answer) = self.answer(&line) else { return };
            if out.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn look(&self, name: &str) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = state.counters.get(&(Which::Fenced, name.to_owned()));
        let (version, written) = counter.map_or((0, 0), |it| (it.version, it.written));
        format!("{version} {}\n", now().saturating_sub(written) / 1_000)
    }

    /// `t|f NAME HOLD TOKEN` reads, and `t|f NAME HOLD TOKEN VERSION` writes on top of that
    /// version. The answer is the version, or `no`. `l NAME` looks at the counter that checks tokens,
    /// without one: the answer is the version, and how old it is in us.
    fn answer(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["l", name] = words[..] {
            return Some(self.look(name));
        }
        let which = if *words.first()? == "f" { Which::Fenced } else { Which::Trusting };
        let (name, hold) = ((*words.get(1)?).to_owned(), (*words.get(2)?).to_owned());
        let token = words.get(3)?.parse().ok()?;
        let base = words.get(4).map(|word| word.parse()).transpose().ok()?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = state.counters.entry((which, name.clone())).or_default();
        let refused = which == Which::Fenced && token < counter.token;
        let version = counter.version;
        if !refused {
            // Reading counts too: what was read may not be written over by somebody with a smaller
            // token.
            counter.token = token;
            if base.is_some() {
                (counter.version, counter.written) = (version + 1, now());
            }
        }
        let answer = if refused { "no\n".to_owned() } else { format!("{}\n", counter.version) };
        state.seen.push(Access { at: now(), which, name, hold, token, base, version, refused });
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fenced_counter_refuses_smaller_tokens_and_the_other_does_not() {
        let store = Store(Arc::default());
        let ask = |line: &str| store.answer(line).unwrap();
        assert_eq!(ask("f a h:1 5"), "0\n");
        assert_eq!(ask("f a h:2 6"), "0\n");
        assert_eq!(ask("f a h:1 5 0"), "no\n");
        assert_eq!(ask("f a h:2 6 0"), "1\n");
        assert_eq!(ask("t a h:2 6"), "0\n");
        assert_eq!(ask("t a h:1 5 0"), "1\n");
        let seen = store.seen();
        assert_eq!(
            seen.iter().map(|access| access.refused).collect::<Vec<_>>(),
            [false, false, true, false, false, false]
        );
        assert_eq!((seen[3].base, seen[3].version), (Some(0), 0));
        assert_eq!(store.answer("f a"), None);
        assert!(ask("l a").starts_with("1 "), "{}", ask("l a"));
        assert!(ask("l b").starts_with("0 "), "{}", ask("l b"));
    }
}
