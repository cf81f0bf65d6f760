//! The task that runs scripts. It connects, passes calls to fred in the order of submission, and
//! reconnects when the connection has ended.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::types::Value as Word;
use futures::FutureExt;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ScriptCall;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::fred::Events;
use crate::backend::fred::link::FredLink;
use crate::backend::fred::link::ask;
use crate::backend::fred::link::ask_first;
use crate::backend::fred::refused;
use crate::backend::fred::settings::Settings;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::calls::in_shape;
use crate::backend::redis::classify::classify;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_no_script;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::denied::name_permission;
use crate::backend::redis::handshake::InfoSections;
use crate::backend::redis::handshake::text;
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::link::RetryPause;
use crate::backend::redis::resp::RespReply;
use crate::base::map::Map;

/// The most calls that are with fred at a time. A call that times out while it waits here was not
/// executed. If it waited inside fred, its outcome would be unknown, because fred does not say
/// whether it has sent a command, and the engine would have to clean up after it.
const AT_A_TIME: usize = 512;
const REPLACED: &str = "replaced: it did not answer, or the server changed its role";

/// A call and its deadline.
pub(super) struct SubmittedCall {
    pub(super) op: OpId,
    pub(super) call: Call,
    pub(super) deadline: Instant,
}

impl SubmittedCall {
    fn keys(&self) -> impl Iterator<Item = &str> {
        let script = match &self.call {
            Call::Script(call) => Some(call),
            Call::Time | Call::Ping | Call::Info => None,
        };
        script.into_iter().flat_map(|call| call.keys.iter())
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

pub(super) struct CommandTask {
    pub(super) settings: Arc<Settings>,
    pub(super) events: Events,
    pub(super) digests: Map<&'static str, String>,
    pub(super) replaced: watch::Receiver<()>,
    pub(super) replace_messages: Arc<watch::Sender<()>>,
}

type PendingReply = Pin<Box<dyn Future<Output = (SubmittedCall, RespReply)> + Send>>;

impl CommandTask {
    /// Returns when the backend is closed and every call is answered.
    pub(super) async fn keep_connected(mut self, mut calls: UnboundedReceiver<SubmittedCall>) {
        let mut pause = RetryPause::default();
        let mut had_primary = self.settings.is_sentinel();
        let mut run_id = String::new();
        loop {
            self.replaced.mark_unchanged();
            let opening = open(&self.settings, had_primary);
            let Some(opened) = self.meanwhile(&mut calls, opening).await else { return };
            match opened {
                Ok((link, server)) => {
                    had_primary = true;
                    self.follow(&mut run_id, &server);
                    self.events.send(BackendEvent::Up(ServerId::ONLY, server));
                    let Some(broken) = self.serve(link, &mut calls).await else { return };
                    self.events
                        .send(BackendEvent::Down { server: ServerId::ONLY, cause: broken.cause });
                    if broken.served {
                        pause = RetryPause::default();
                    }
                }
                Err(failure) => {
                    self.events
                        .send(BackendEvent::ConnectFailed { server: ServerId::ONLY, failure });
                }
            }
            let sleep = tokio::time::sleep(pause.next());
            if self.meanwhile(&mut calls, sleep).await.is_none() {
                return;
            }
        }
    }

    /// Has the connection for messages replaced if the commands now go to another server process:
    /// messages must come from the same one.
    fn follow(&self, run_id: &mut String, server: &ServerInfo) {
        if !run_id.is_empty() && *run_id != server.run_id {
            self.replace_messages.send_replace(());
        }
        run_id.clone_from(&server.run_id);
    }

    /// Runs this future and meanwhile refuses calls. `None`: the backend was closed.
    async fn meanwhile<T>(
        &self,
        calls: &mut UnboundedReceiver<SubmittedCall>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                call = calls.recv() => self.events.send(refused(call?.op, "not connected")),
            }
        }
    }

    /// Runs calls until the connection ends. `None`: the backend was closed and every call is
    /// answered.
    async fn serve(
        &mut self,
        mut link: FredLink,
        calls: &mut UnboundedReceiver<SubmittedCall>,
    ) -> Option<BrokenConnection> {
        let (client, budgets) = (link.client.clone(), self.settings.budgets());
        let mut serving = CallsInFlight {
            client: &client,
            events: &self.events,
            digests: &mut self.digests,
            answers: FuturesUnordered::new(),
            open: BTreeSet::new(),
            newest: BTreeMap::new(),
            served: false,
            ended: None,
        };
        let mut is_open = true;
        let mut silent = pin!(heartbeat(&client, budgets));
        while serving.ended.is_none() && (is_open || !serving.open.is_empty()) {
            tokio::select! {
                biased;
                Some((submitted, reply)) = serving.answers.next() => serving.settle(submitted, reply),
                error = link.ended() => serving.ended = Some(error.details().to_owned()),
                Ok(()) = self.replaced.changed() => serving.ended = Some(REPLACED.to_owned()),
                cause = &mut silent => serving.ended = Some(cause),
                submitted = calls.recv(), if is_open && serving.has_room() => match submitted {
                    Some(submitted) => serving.take(submitted),
                    None => is_open = false,
                },
            }
        }
        // Replies that have arrived by now count. The outcome of all other calls is unknown.
        while let Some(Some((submitted, reply))) = serving.answers.next().now_or_never() {
            serving.settle(submitted, reply);
        }
        let broken = serving.give_up();
        link.end().await;
        is_open.then_some(broken)
    }
}

/// The calls in flight on one connection.
struct CallsInFlight<'a> {
    client: &'a Client,
    events: &'a Events,
    /// The digest of each script that was called, by the script's name.
    digests: &'a mut Map<&'static str, String>,
    answers: FuturesUnordered<PendingReply>,
    open: BTreeSet<OpId>,
    /// For each key of a call in flight, the call on it that was submitted last.
    newest: BTreeMap<String, OpId>,
    /// True once the server has replied to a call.
    served: bool,
    /// Why nothing more is sent over this connection. `None` while it works.
    ended: Option<String>,
}

impl CallsInFlight<'_> {
    fn has_room(&self) -> bool {
        self.open.len() < AT_A_TIME
    }

    fn take(&mut self, submitted: SubmittedCall) {
        if submitted.left().is_zero() {
            return self.events.send(refused(submitted.op, "timed out before it was sent"));
        }
        self.open.insert(submitted.op);
        self.newest.extend(submitted.keys().map(|key| (key.to_owned(), submitted.op)));
        let (command, words) = match &submitted.call {
            Call::Time => ("TIME", Vec::new()),
            Call::Ping => ("PING", Vec::new()),
            Call::Info => ("INFO", Vec::new()),
            Call::Script(call) => {
                let digest =
                    self.digests.entry(call.script.name).or_insert_with(|| call.script.digest());
                ("EVALSHA", words(call, digest))
            }
        };
        self.send(submitted, command, words);
    }

    /// Passes the command to fred before it returns, so that calls reach the server in the order of
    /// submission.
    fn send(&mut self, submitted: SubmittedCall, command: &'static str, words: Vec<Word>) {
        let (client, left) = (self.client.clone(), submitted.left());
        let mut answer: PendingReply = Box::pin(async move {
            let reply = ask(&client, command, words, left).await;
            (submitted, reply)
        });
        match answer.as_mut().now_or_never() {
            Some((submitted, reply)) => self.settle(submitted, reply),
            None => self.answers.push(answer),
        }
    }

    fn settle(&mut self, submitted: SubmittedCall, reply: RespReply) {
        self.served |= reply.as_ref().is_ok();
        match (&submitted.call, reply) {
            (Call::Script(call), Err(error)) if is_reply(&error) && is_no_script(&error) => {
                if !self.is_newest(&submitted) || submitted.left().is_zero() || self.ended.is_some()
                {
                    let words = "the server had lost its scripts; try again";
                    let failure = Failure::new(FailureKind::Busy, words);
                    return self.answer(&submitted, Outcome::NotExecuted(failure));
                }
                // Neither this call nor any later call on its keys was executed.
                let words = words(call, call.script.text());
                self.send(submitted, "EVAL", words);
            }
            (call, Ok(value)) => {
                let outcome = Outcome::Done(in_shape(Some(call), value));
                self.answer(&submitted, outcome);
            }
            (call, Err(error)) => {
                if error.is_about_login() {
                    self.ended = Some(error.details().to_owned());
                }
                let outcome = name_permission(call, classify(&error));
                self.answer(&submitted, outcome);
            }
        }
    }

    /// True if no later call was submitted for any of the call's keys. Otherwise such a call may
    /// have been executed, and this one must not be executed after it.
    fn is_newest(&self, submitted: &SubmittedCall) -> bool {
        submitted.keys().all(|key| self.newest.get(key) == Some(&submitted.op))
    }

    fn answer(&mut self, submitted: &SubmittedCall, outcome: Outcome<Value>) {
        let op = submitted.op;
        self.open.remove(&op);
        for key in submitted.keys() {
            if self.newest.get(key) == Some(&op) {
                self.newest.remove(key);
            }
        }
        self.events.send(BackendEvent::Replied { op, server: ServerId::ONLY, outcome });
    }

    fn give_up(self) -> BrokenConnection {
        let cause = self.ended.unwrap_or_else(|| "closed".to_owned());
        for op in self.open {
            let outcome = Outcome::Unknown(Failure::new(FailureKind::Link, cause.clone()));
            self.events.send(BackendEvent::Replied { op, server: ServerId::ONLY, outcome });
        }
        BrokenConnection { cause, served: self.served }
    }
}

async fn open(settings: &Settings, had_primary: bool) -> Result<(FredLink, ServerInfo), Failure> {
    let greet = async |client: &Client| greet(client, settings, had_primary).await;
    FredLink::open(settings, settings.client(), greet).await
}

/// Checks that the server is a primary, has a supported version and is not a node of a cluster.
async fn greet(
    client: &Client,
    settings: &Settings,
    had_primary: bool,
) -> Result<ServerInfo, Failure> {
    let ask = async |section: &'static str| {
        let reply = ask_first(client, "INFO", vec![section.into()], settings.attempt()).await;
        text(reply.map_err(|error| failure(&error))?)
    };
    let info =
        InfoSections { server: ask("server").await?, replication: ask("replication").await? };
    let instead = "give its configuration to `LockClientBuilder::fred_config`";
    let instead = (!settings.is_sentinel()).then_some(instead);
    info.examine(instead, had_primary, settings.address().to_owned())
}

/// Returns a cause when the server does not answer in time any more, or when fred gives this PING
/// the reply to another command: then other calls may get wrong replies as well. An error reply
/// counts as an answer.
async fn heartbeat(client: &Client, budgets: Budgets) -> String {
    let mut number = 0_u64;
    loop {
        number += 1;
        tokio::time::sleep(budgets.heartbeat()).await;
        let carried = format!("redisson_lock {number}");
        match ask(client, "PING", vec![carried.as_str().into()], budgets.answer()).await {
            Ok(Value::Text(echo)) if echo == carried => {}
            Ok(_) => return "a PING got the reply to another command".to_owned(),
            Err(error) if is_reply(&error) => {}
            Err(error) => return error.details().to_owned(),
        }
    }
}

/// The arguments of EVALSHA or EVAL: the digest or the text of the script, keys and arguments.
fn words(call: &ScriptCall, script: &str) -> Vec<Word> {
    let head = [script.to_owned(), call.keys.len().to_string()];
    let rest = call.keys.iter().chain(call.args.iter()).map(str::to_owned);
    head.into_iter().chain(rest).map(Word::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use fred::types::config::Config;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn messages_come_from_the_process_that_answers_calls() {
        let client = Client::new(Config::default(), None, None, None);
        let settings = Settings::of(&client, Duration::from_secs(1)).expect("one server");
        let replace_messages = Arc::new(watch::Sender::new(()));
        let mut replaced = replace_messages.subscribe();
        let commands = CommandTask {
            settings: Arc::new(settings),
            events: Events(mpsc::unbounded_channel().0),
            digests: Map::default(),
            replaced: watch::Sender::new(()).subscribe(),
            replace_messages,
        };
        let mut known = String::new();
        for (run_id, is_another) in
            [("a", false), ("a", false), ("b", true), ("b", false), ("a", true)]
        {
            let server = ServerInfo { run_id: run_id.to_owned(), ..ServerInfo::default() };
            commands.follow(&mut known, &server);
            assert_eq!(replaced.has_changed().expect("a sender"), is_another, "{run_id}");
            replaced.mark_unchanged();
        }
    }
}
