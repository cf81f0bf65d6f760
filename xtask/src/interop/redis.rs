//! Looking into a single server or a cluster.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use crate::resp::Connection;
use crate::resp::Reply;

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Redis {
    nodes: Vec<String>,
    connections: HashMap<String, Connection>,
}

impl Redis {
    pub(crate) fn new(ports: Range<u16>) -> Self {
        let nodes = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        Self { nodes, connections: HashMap::new() }
    }

    /// What the first server is told, by whom ever, while something is done.
    pub(crate) fn told(
        &mut self,
        done: impl FnOnce() -> Result<(), String>,
    ) -> Result<Vec<String>, String> {
        const MARK: &str = "that is all";
        let trouble = |error: std::io::Error| format!("MONITOR: {error}");
        let mut monitor = Connection::tcp(&self.nodes[0], ANSWER_LIMIT).map_err(trouble)?;
        monitor.command(&["MONITOR"]).map_err(trouble)?;
        done()?;
        self.command(&["ECHO", MARK])?;
        let mut lines = Vec::new();
        loop {
            match text(&monitor.next().map_err(trouble)?) {
                line if line.contains(MARK) => return Ok(lines),
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// Runs a command where its key is.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<Reply, String> {
        let mut node = self.nodes[0].clone();
        for _ in 0..3 {
            match self.at(&node, words) {
                Err(error) if error.starts_with("MOVED ") => {
                    error.rsplit(' ').next().unwrap_or_default().clone_into(&mut node);
                }
                done => return done,
            }
        }
        Err(format!("{words:?} is sent around"))
    }

    fn at(&mut self, node: &str, words: &[&str]) -> Result<Reply, String> {
        if !self.connections.contains_key(node) {
            let connection =
                Connection::tcp(node, ANSWER_LIMIT).map_err(|error| format!("{node}: {error}"))?;
            self.connections.insert(node.to_owned(), connection);
        }
        let connection = self.connections.get_mut(node).ok_or("just connected")?;
        connection.command(words).map_err(|error| error.to_string())
    }

    /// Runs a command on every server.
    pub(crate) fn everywhere(&mut self, words: &[&str]) -> Result<Vec<Reply>, String> {
        self.nodes.clone().iter().map(|node| self.at(node, words)).collect()
    }

    pub(crate) fn int(&mut self, words: &[&str]) -> Result<i64, String> {
        match self.command(words)? {
            Reply::Int(number) => Ok(number),
            other => Err(format!("{words:?}: {other:?}")),
        }
    }

    pub(crate) fn exists(&mut self, key: &str) -> Result<bool, String> {
        self.int(&["EXISTS", key]).map(|number| number == 1)
    }

    pub(crate) fn pttl(&mut self, key: &str) -> Result<i64, String> {
        self.int(&["PTTL", key])
    }

    /// The fields of a lock and their values.
    pub(crate) fn fields(&mut self, name: &str) -> Result<Vec<(String, String)>, String> {
        let Reply::List(words) = self.command(&["HGETALL", name])? else { return Ok(Vec::new()) };
        let words: Vec<String> = words.iter().map(|word| text(word).to_owned()).collect();
        Ok(words
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair.get(1).cloned().unwrap_or_default()))
            .collect())
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, words: &[&str]) -> Result<Vec<String>, String> {
        match self.command(words)? {
            Reply::List(all) => Ok(all.iter().map(|one| text(one).to_owned()).collect()),
            other => Err(format!("{words:?}: {other:?}")),
        }
    }

    /// Connections subscribed to the lock channel of a name, in either way.
    pub(crate) fn subscribers(&mut self, channel: &str) -> Result<i64, String> {
        let mut number = 0;
        for verb in ["NUMSUB", "SHARDNUMSUB"] {
            for reply in self.everywhere(&["PUBSUB", verb, channel])? {
                if let Reply::List(pair) = reply {
                    number += pair
                        .get(1)
                        .map_or(0, |count| if let Reply::Int(count) = count { *count } else { 0 });
                }
            }
        }
        Ok(number)
    }

    /// How often a command was called, by all clients, those in scripts too.
    pub(crate) fn calls(&mut self, command: &str) -> Result<u64, String> {
        let prefix = format!("cmdstat_{command}:calls=");
        let mut calls = 0;
        for reply in self.everywhere(&["INFO", "commandstats"])? {
            let line = text(&reply).lines().find_map(|line| line.strip_prefix(&prefix));
            calls += line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(calls)
    }

    /// The string keys that begin so, with their values.
    pub(crate) fn strings(&mut self, prefix: &str) -> Result<Vec<(String, String)>, String> {
        let mut found = Vec::new();
        for node in self.nodes.clone() {
            let Reply::List(keys) = self.at(&node, &["KEYS", &format!("{prefix}*")])? else {
                continue;
            };
            for key in keys {
                // A replica has the key too, and sends who asks for it to the primary.
                if let Ok(Reply::Text(value)) = self.at(&node, &["GET", text(&key)]) {
                    found.push((text(&key).to_owned(), value));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

pub(crate) fn text(reply: &Reply) -> &str {
    if let Reply::Text(text) = reply { text } else { "" }
}
