//! One connection for subscriptions. Each subscription is confirmed by the server's own reply;
//! messages may come at any time. The connection is polled where it is used, and dropping it closes
//! it.
//!
//! The server answers commands in order: with an error, with a confirmation that names the channel,
//! or with the text of a PING. If a reply does not fit the first command that waits for one, the
//! connection is ended.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use tokio::time::Instant;

use crate::backend::Failure;
use crate::backend::Value;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::classify::failure;
use crate::backend::redis::denied::name_channel;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake::name_pubsub;
use crate::backend::redis::resp::Incoming;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::timer::SECOND_LOOK;
use crate::backend::redis::timer::Timer;
use crate::backend::redis::wire::Wire;

/// A request to subscribe to a channel or to end the subscription.
#[derive(Debug)]
pub(crate) struct SubscriptionRequest {
    pub(crate) channel: Arc<str>,
    pub(crate) sharded: bool,
    /// `None` ends the subscription.
    pub(crate) generation: Option<u64>,
}

impl SubscriptionRequest {
    /// The command, which is also the first word of its confirmation.
    fn command(&self) -> &'static str {
        match (self.generation, self.sharded) {
            (Some(_), false) => "SUBSCRIBE",
            (Some(_), true) => "SSUBSCRIBE",
            (None, false) => "UNSUBSCRIBE",
            (None, true) => SHARDED_END,
        }
    }
}

/// The server also sends it for every subscription in a slot that it gives away.
const SHARDED_END: &str = "SUNSUBSCRIBE";

/// What the connection receives.
#[derive(Debug)]
pub(crate) enum SubscriberEvent {
    Message {
        channel: Arc<str>,
        payload: String,
    },
    Answered {
        request: SubscriptionRequest,
        result: Result<(), Failure>,
    },
    /// The server has ended this sharded subscription by itself.
    Lost {
        channel: Arc<str>,
    },
    Reply(RespReply),
    /// The reply to a PING. An error is an answer as well: sentinels of Redis 6.2 accept no
    /// argument of PING.
    Pong(Result<(), WireError>),
}

/// A command whose reply has not come.
enum AwaitedReply {
    Request(SubscriptionRequest),
    Question,
    Ping(u64),
}

pub(crate) struct Subscriber {
    wire: Wire,
    awaited: VecDeque<AwaitedReply>,
    /// When the last answer came, or when the command that has waited longest was sent.
    waits_since: Instant,
    beat_at: Instant,
    budgets: Budgets,
    pings: u64,
    timer: Timer,
    /// True if an answer was late at the last look. The connection is ended if it is still missing
    /// at the next one.
    late: bool,
}

impl Subscriber {
    /// Must be called within a runtime.
    pub(crate) fn new(wire: Wire, budgets: Budgets) -> Self {
        let now = Instant::now();
        let beat_at = now + budgets.heartbeat();
        let mut timer = Timer::new();
        timer.not_after(beat_at);
        Self {
            wire,
            awaited: VecDeque::new(),
            waits_since: now,
            beat_at,
            budgets,
            pings: 0,
            timer,
            late: false,
        }
    }

    /// Checks that the server echoes the text of a PING, which everything later depends on, and
    /// that it accepts UNSUBSCRIBE, since nobody would notice a later refusal.
    pub(crate) async fn check(&mut self) -> Result<Result<(), Failure>, WireError> {
        self.request(SubscriptionRequest {
            channel: "redisson_lock__client".into(),
            sharded: false,
            generation: None,
        });
        self.ping();
        loop {
            match poll_fn(|cx| self.poll(cx)).await? {
                SubscriberEvent::Answered { result: Err(failure), .. } => return Ok(Err(failure)),
                SubscriberEvent::Pong(pong) => return pong.map(Ok),
                SubscriberEvent::Answered { .. }
                | SubscriberEvent::Message { .. }
                | SubscriberEvent::Lost { .. }
                | SubscriberEvent::Reply(_) => {}
            }
        }
    }

    /// Sends a request. The caller polls afterwards; nothing is written before.
    pub(crate) fn request(&mut self, request: SubscriptionRequest) {
        let (channel, command) = (Arc::clone(&request.channel), request.command());
        self.send(&[command, &channel], AwaitedReply::Request(request));
        if command == SHARDED_END {
            // By the time that this PING is answered, the server has sent everything it sends about
            // the SUNSUBSCRIBE: see `refused`.
            self.ping();
        }
    }

    /// Sends any other command, which is possible only with RESP3. Its reply comes as
    /// [`SubscriberEvent::Reply`].
    pub(crate) fn ask(&mut self, words: &[&str]) {
        self.send(words, AwaitedReply::Question);
    }

    fn ping(&mut self) {
        self.pings += 1;
        self.send(&["PING", &self.pings.to_string()], AwaitedReply::Ping(self.pings));
    }

    fn send(&mut self, words: &[&str], awaited: AwaitedReply) {
        if self.awaited.is_empty() {
            self.waits_since = Instant::now();
            self.timer.not_after(self.waits_since + self.budgets.answer());
        }
        self.awaited.push_back(awaited);
        self.wire.send(0, false, words.iter().copied());
    }

    /// The next event. An error is the end of the connection.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SubscriberEvent, WireError>> {
        loop {
            // What has arrived is read first, however late this is polled.
            if let Poll::Ready(found) = self.wire.poll_found(cx) {
                if let Some(heard) = self.understand(found?)? {
                    return Poll::Ready(Ok(heard));
                }
                continue;
            }
            ready!(self.timer.poll(cx));
            self.look_at_the_clock(Instant::now())?;
        }
    }

    fn look_at_the_clock(&mut self, now: Instant) -> Result<(), WireError> {
        let late_at = self.waits_since + self.budgets.answer();
        if !self.awaited.is_empty() && late_at <= now {
            if self.late {
                return Err(self.given_up());
            }
            self.late = true;
            self.timer.not_after(now + SECOND_LOOK);
            return Ok(());
        }
        if self.beat_at <= now {
            self.beat_at = now + self.budgets.heartbeat();
            if self.awaited.is_empty() {
                self.ping();
            }
        }
        let late_at = self.waits_since + self.budgets.answer();
        self.timer.not_after(if self.awaited.is_empty() {
            self.beat_at
        } else {
            self.beat_at.min(late_at)
        });
        Ok(())
    }

    fn given_up(&self) -> WireError {
        let what = match self.awaited.front() {
            Some(AwaitedReply::Request(request)) => request.command(),
            Some(AwaitedReply::Ping(_)) => "PING",
            Some(AwaitedReply::Question) | None => "a question",
        };
        let words = format!("no answer to {what} within {:?}", self.budgets.answer());
        WireError::new(ErrorKind::Timeout, words)
    }

    /// `None`: nothing that the user of the connection needs.
    fn understand(&mut self, found: Incoming) -> Result<Option<SubscriberEvent>, WireError> {
        let (value, pushed) = match found {
            Incoming::Reply(reply)
                if matches!(self.awaited.front(), Some(AwaitedReply::Question)) =>
            {
                self.answered();
                return Ok(Some(SubscriberEvent::Reply(reply)));
            }
            Incoming::Reply(Err(error)) => return self.refused(error),
            Incoming::Reply(Ok(value)) => (value, false),
            Incoming::Push(value) => (value, true),
        };
        match PubSubReply::of(value) {
            PubSubReply::Message { channel, payload } => {
                Ok(Some(SubscriberEvent::Message { channel: channel.into(), payload }))
            }
            PubSubReply::Confirmation { word, channel } => {
                self.confirmed(&word, &channel).map(Some)
            }
            PubSubReply::Echo(text) => self.echoed(&text).map(Some),
            PubSubReply::Other if pushed => Ok(None),
            PubSubReply::Other => Err(out_of_step()),
        }
    }

    fn confirmed(&mut self, word: &str, channel: &str) -> Result<SubscriberEvent, WireError> {
        let fits = |request: &SubscriptionRequest| {
            request.command().eq_ignore_ascii_case(word) && *request.channel == *channel
        };
        match self.awaited.front() {
            Some(AwaitedReply::Request(request)) if fits(request) => self.request_answered(Ok(())),
            _ if word.eq_ignore_ascii_case(SHARDED_END) => {
                Ok(SubscriberEvent::Lost { channel: channel.into() })
            }
            _ => Err(out_of_step()),
        }
    }

    fn echoed(&mut self, text: &str) -> Result<SubscriberEvent, WireError> {
        match self.awaited.front() {
            Some(AwaitedReply::Ping(number)) if number.to_string() == text => {
                self.answered();
                Ok(SubscriberEvent::Pong(Ok(())))
            }
            Some(AwaitedReply::Ping(_)) => {
                Err(WireError::new(ErrorKind::Protocol, "it does not echo PING's argument"))
            }
            _ => Err(out_of_step()),
        }
    }

    fn refused(&mut self, error: WireError) -> Result<Option<SubscriberEvent>, WireError> {
        match self.awaited.front() {
            // Valkey 8.0 replies this after it has checked the permission: the channel was not
            // subscribed.
            Some(AwaitedReply::Request(request))
                if request.generation.is_none() && error.details().starts_with("NOSUB") =>
            {
                self.request_answered(Ok(())).map(Some)
            }
            Some(AwaitedReply::Request(request)) => {
                let failure = name_pubsub(name_channel(&request.channel, failure(&error)));
                self.request_answered(Err(failure)).map(Some)
            }
            // The reply to an SUNSUBSCRIBE of a subscription that the server had ended by itself.
            // The server's own notice was taken for the answer before.
            Some(AwaitedReply::Ping(_)) if is_about_a_slot(&error) => Ok(None),
            Some(AwaitedReply::Ping(_)) => {
                self.answered();
                Ok(Some(SubscriberEvent::Pong(Err(error))))
            }
            // A server that turns a client away says why.
            Some(AwaitedReply::Question) | None => Err(error),
        }
    }

    fn request_answered(
        &mut self,
        result: Result<(), Failure>,
    ) -> Result<SubscriberEvent, WireError> {
        match self.answered() {
            Some(AwaitedReply::Request(request)) => {
                Ok(SubscriberEvent::Answered { request, result })
            }
            _ => Err(out_of_step()),
        }
    }

    fn answered(&mut self) -> Option<AwaitedReply> {
        self.late = false;
        self.wire.settle_first();
        self.waits_since = Instant::now();
        self.awaited.pop_front()
    }
}

/// True for a redirection, which is never the answer to a PING.
fn is_about_a_slot(error: &WireError) -> bool {
    ["MOVED ", "CLUSTERDOWN "].iter().any(|word| error.details().starts_with(word))
}

fn out_of_step() -> WireError {
    WireError::new(ErrorKind::Protocol, "an answer to another command")
}

/// What a server sends on such a connection.
enum PubSubReply {
    Message { channel: String, payload: String },
    Confirmation { word: String, channel: String },
    Echo(String),
    Other,
}

impl PubSubReply {
    /// Parses it. With RESP2 the answer to a PING is `["pong", text]` while something is
    /// subscribed, and the text otherwise.
    fn of(value: Value) -> Self {
        let items = match value {
            Value::Text(text) => return Self::Echo(text),
            Value::List(items) => items,
            Value::Int(_) | Value::Nil => return Self::Other,
        };
        let mut texts = items.into_iter().map(|item| match item {
            Value::Text(text) => Some(text),
            Value::Int(_) | Value::Nil | Value::List(_) => None,
        });
        let mut next = || texts.next().flatten();
        match (next(), next(), next()) {
            (Some(word), Some(channel), payload) if word == "message" || word == "smessage" => {
                Self::Message { channel, payload: payload.unwrap_or_default() }
            }
            (Some(word), Some(channel), _) if word.ends_with("subscribe") => {
                Self::Confirmation { word, channel }
            }
            (Some(word), Some(text), _) if word == "pong" => Self::Echo(text),
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::task::Waker;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    use tokio::io::DuplexStream;

    use crate::backend::FailureKind;
    use crate::backend::redis::resp::Protocol;

    fn connected(protocol: Protocol) -> (Subscriber, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(10_000);
        (
            Subscriber::new(
                Wire::new(Box::new(ours), protocol),
                Budgets::of(Duration::from_secs(1)),
            ),
            theirs,
        )
    }

    fn request(channel: &str, sharded: bool, generation: Option<u64>) -> SubscriptionRequest {
        SubscriptionRequest { channel: channel.into(), sharded, generation }
    }

    fn try_hear(subscriber: &mut Subscriber) -> Poll<Result<SubscriberEvent, WireError>> {
        subscriber.poll(&mut Context::from_waker(Waker::noop()))
    }

    async fn hear(subscriber: &mut Subscriber) -> Result<SubscriberEvent, WireError> {
        poll_fn(|cx| subscriber.poll(cx)).await
    }

    /// A short form for comparisons.
    fn shown(heard: SubscriberEvent) -> String {
        match heard {
            SubscriberEvent::Message { channel, payload } => format!("{channel}={payload}"),
            SubscriberEvent::Answered { request, result: Ok(()) } => {
                format!("{} {}", request.command(), request.channel)
            }
            SubscriberEvent::Answered { request, result: Err(failure) } => {
                format!("{} {}: {:?}", request.command(), request.channel, failure.kind)
            }
            SubscriberEvent::Lost { channel } => format!("lost {channel}"),
            SubscriberEvent::Reply(reply) => {
                format!("told {:?}", reply.map_err(|error| error.details().to_owned()))
            }
            SubscriberEvent::Pong(pong) => if pong.is_ok() { "echo" } else { "no echo" }.to_owned(),
        }
    }

    fn bulk(words: &[&str]) -> String {
        words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect()
    }

    /// What the server says of a channel, as either protocol writes it.
    fn said(mark: char, words: &[&str]) -> String {
        format!("{mark}{}\r\n{}:1\r\n", words.len() + 1, bulk(words))
    }

    fn message(mark: char, kind: &str, channel: &str, payload: &str) -> String {
        format!("{mark}3\r\n{}", bulk(&[kind, channel, payload]))
    }

    /// Replies that arrived while the connection was not polled are read before silence is acted
    /// on.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_late_is_looked_for_once_more() {
        let (mut subscriber, _server) = connected(Protocol::Resp2);
        let begun = Instant::now();
        subscriber.request(request("c", false, Some(1)));
        let Err(end) = hear(&mut subscriber).await else { panic!("answered") };
        assert!(end.details().starts_with("no answer to SUBSCRIBE within"), "{end}");
        let waited = begun.elapsed();
        let least = Budgets::of(Duration::from_secs(1)).answer() + SECOND_LOOK;
        assert!(waited >= least && waited < least + Duration::from_millis(50), "{waited:?}");
    }

    #[tokio::test]
    async fn every_answer_finds_its_command_and_messages_come_between_however_the_bytes_are_cut() {
        for (protocol, mark, pong) in [
            (Protocol::Resp2, '*', format!("*2\r\n{}", bulk(&["pong", "1"]))),
            (Protocol::Resp3, '>', bulk(&["1"])),
        ] {
            let bytes = [
                said(mark, &["subscribe", "a"]),
                message(mark, "message", "a", "0"),
                "-NOPERM this user has no permissions to access one of the channels\r\n".to_owned(),
                message(mark, "smessage", "s", "\u{e9}"),
                said(mark, &["ssubscribe", "s"]),
                said(mark, &["sunsubscribe", "other"]),
                pong,
                said(mark, &["unsubscribe", "a"]),
                said(mark, &["sunsubscribe", "s"]),
                bulk(&["2"]),
            ]
            .concat();
            for cut in 1..bytes.len() {
                let (mut subscriber, mut server) = connected(protocol);
                subscriber.request(request("a", false, Some(1)));
                subscriber.request(request("b", false, Some(2)));
                subscriber.request(request("s", true, Some(3)));
                subscriber.ping();
                subscriber.request(request("a", false, None));
                subscriber.request(request("s", true, None));
                let mut heard = Vec::new();
                for part in bytes.as_bytes().chunks(cut) {
                    // Otherwise Tokio makes both ends wait for the test to yield.
                    tokio::task::yield_now().await;
                    server.write_all(part).await.expect("room");
                    while let Poll::Ready(one) = try_hear(&mut subscriber) {
                        heard.push(shown(one.expect("no end")));
                    }
                }
                let expected = "SUBSCRIBE a, a=0, SUBSCRIBE b: Denied, s=\u{e9}, SSUBSCRIBE s, lost other, echo, \
                                UNSUBSCRIBE a, SUNSUBSCRIBE s, echo";
                assert_eq!(heard.join(", "), expected, "{protocol:?}, cut at {cut}");
                assert!(subscriber.awaited.is_empty());
            }
        }
    }

    /// The server gives the slot away while the client ends the subscription. It sends its notice,
    /// and then a redirection as the reply to the SUNSUBSCRIBE.
    #[tokio::test]
    async fn the_end_of_a_subscription_that_has_ended_shifts_nothing() {
        let (mut subscriber, mut server) = connected(Protocol::Resp3);
        subscriber.request(request("s", true, None));
        subscriber.request(request("t", true, Some(1)));
        let bytes = [
            said('>', &["sunsubscribe", "s"]),
            "-MOVED 1 127.0.0.1:1\r\n".to_owned(),
            bulk(&["1"]),
            said('>', &["ssubscribe", "t"]),
        ];
        server.write_all(bytes.concat().as_bytes()).await.expect("room");
        let mut heard = Vec::new();
        while let Poll::Ready(one) = try_hear(&mut subscriber) {
            heard.push(shown(one.expect("no end")));
        }
        assert_eq!(heard, ["SUNSUBSCRIBE s", "echo", "SSUBSCRIBE t"]);
        assert!(subscriber.awaited.is_empty());
    }

    #[tokio::test]
    async fn what_is_asked_beside_subscriptions_is_told_in_turn() {
        let (mut subscriber, mut server) = connected(Protocol::Resp3);
        subscriber.request(request("a", false, Some(1)));
        subscriber.ask(&["X"]);
        subscriber.ask(&["Y"]);
        let bytes = format!(
            "{}*1\r\n:7\r\n{}-ERR no\r\n",
            said('>', &["subscribe", "a"]),
            said('>', &["invalidate", "x"])
        );
        server.write_all(bytes.as_bytes()).await.expect("room");
        let mut heard = Vec::new();
        while let Poll::Ready(one) = try_hear(&mut subscriber) {
            heard.push(shown(one.expect("no end")));
        }
        assert_eq!(heard, ["SUBSCRIBE a", "told Ok(List([Int(7)]))", "told Err(\"ERR no\")"]);
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_is_the_end() {
        let wrong = [
            said('*', &["subscribe", "b"]),
            said('*', &["unsubscribe", "a"]),
            format!("*2\r\n{}", bulk(&["pong", "1"])),
            bulk(&["1"]),
            ":1\r\n".to_owned(),
            "what is this\r\n".to_owned(),
            format!("{}{}", said('*', &["subscribe", "a"]), said('*', &["subscribe", "a"])),
            format!("{}-ERR another\r\n", said('*', &["subscribe", "a"])),
        ];
        for bytes in wrong {
            let (mut subscriber, mut server) = connected(Protocol::Resp2);
            subscriber.request(request("a", false, Some(1)));
            server.write_all(bytes.as_bytes()).await.expect("room");
            let end = loop {
                match try_hear(&mut subscriber) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => break true,
                    Poll::Pending => break false,
                }
            };
            assert!(end, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_server_is_taken_that_unsubscribes_and_echoes() {
        let unsubscribed = said('*', &["unsubscribe", "redisson_lock__client"]);
        let denied = "-NOPERM this user has no permissions to run the 'unsubscribe' command\r\n";
        let nothing = "-NOSUB 'unsubscribe' command executed not in subscribed mode\r\n";
        for (bytes, kind) in [
            (format!("{unsubscribed}{}", bulk(&["1"])), None),
            (format!("{nothing}{}", bulk(&["1"])), None),
            (format!("{denied}{}", bulk(&["1"])), Some(FailureKind::Denied)),
        ] {
            let (mut subscriber, mut server) = connected(Protocol::Resp2);
            server.write_all(bytes.as_bytes()).await.expect("room");
            let checked = subscriber.check().await.expect("an answer");
            assert_eq!(checked.err().map(|failure| failure.kind), kind);
        }
        for (pong, words) in
            [("+PONG\r\n", "does not echo"), ("-ERR unknown command 'ping'\r\n", "unknown command")]
        {
            let (mut subscriber, mut server) = connected(Protocol::Resp2);
            server.write_all(format!("{unsubscribed}{pong}").as_bytes()).await.expect("room");
            let end = subscriber.check().await.expect_err("no answer");
            assert!(end.details().contains(words), "{end}");
        }
        let (mut subscriber, mut server) = connected(Protocol::Resp2);
        server.write_all(b"-ERR max number of clients reached\r\n").await.expect("room");
        let turned_away = subscriber.check().await.expect("its words").expect_err("no room");
        assert!(turned_away.message.contains("max number of clients"), "{turned_away}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_server_is_asked_and_one_that_stays_silent_is_given_up() {
        let (mut subscriber, mut server) = connected(Protocol::Resp2);
        let begin = Instant::now();
        let serve = async {
            for beat in 1..=3 {
                let mut read = Vec::new();
                while !read
                    .ends_with(format!("${}\r\n{beat}\r\n", beat.to_string().len()).as_bytes())
                {
                    server.read_buf(&mut read).await.expect("a part");
                }
                // The third is not answered; messages are not answers.
                if beat < 3 {
                    server.write_all(bulk(&[&beat.to_string()]).as_bytes()).await.expect("room");
                }
            }
            loop {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let sent = server.write_all(message('*', "message", "a", "0").as_bytes()).await;
                if sent.is_err() {
                    return;
                }
            }
        };
        let listen = async {
            let mut echoes = 0;
            let end = loop {
                match hear(&mut subscriber).await {
                    Ok(heard) => {
                        echoes += u32::from(matches!(heard, SubscriberEvent::Pong(Ok(()))))
                    }
                    Err(end) => break end,
                }
            };
            drop(subscriber);
            (echoes, end, begin.elapsed())
        };
        let ((), (echoes, end, spent)) = tokio::join!(serve, listen);
        assert_eq!((echoes, end.kind()), (2, ErrorKind::Timeout));
        // Three heartbeats, and the time limit of an answer.
        assert_eq!(spent.as_millis() / 100, 65);
    }

    /// When a quiet server is asked, and when it is given up, in tenths of a second.
    #[tokio::test(start_paused = true)]
    async fn a_server_has_its_time_by_the_command_timeout() {
        for (command_timeout, asked, given_up) in
            [(10, 15, 35), (1_000, 15, 35), (20_000, 300, 700)]
        {
            let (ours, mut server) = tokio::io::duplex(1_000);
            let wire = Wire::new(Box::new(ours), Protocol::Resp2);
            let budgets = Budgets::of(Duration::from_millis(command_timeout));
            let mut subscriber = Subscriber::new(wire, budgets);
            let begin = Instant::now();
            let first = async {
                server.read_buf(&mut Vec::new()).await.expect("a PING");
                begin.elapsed().as_millis() / 100
            };
            let listen = async {
                let end = hear(&mut subscriber).await.expect_err("no answer");
                (end, begin.elapsed().as_millis() / 100)
            };
            let (beat, (end, spent)) = tokio::join!(first, listen);
            assert_eq!((beat, spent), (asked, given_up), "{command_timeout} ms");
            let words = format!("no answer to PING within {:?}", budgets.answer());
            assert_eq!((end.kind(), end.details()), (ErrorKind::Timeout, words.as_str()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_come_counts_however_late_it_is_looked_at() {
        let (mut subscriber, mut server) = connected(Protocol::Resp2);
        subscriber.request(request("a", false, Some(1)));
        assert!(try_hear(&mut subscriber).is_pending());
        server.write_all(said('*', &["subscribe", "a"]).as_bytes()).await.expect("room");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(matches!(
            try_hear(&mut subscriber),
            Poll::Ready(Ok(SubscriberEvent::Answered { .. }))
        ));
        assert!(try_hear(&mut subscriber).is_pending(), "it is asked whether it is there");
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_have_their_time_as_long_as_answers_come() {
        let (mut subscriber, mut server) = connected(Protocol::Resp2);
        for _ in 0..5 {
            subscriber.request(request("a", false, Some(1)));
        }
        for _ in 0..5 {
            // A late reply ends the connection at the second look only.
            for _ in 0..3 {
                assert!(try_hear(&mut subscriber).is_pending());
                tokio::time::advance(Duration::from_millis(600)).await;
            }
            server.write_all(said('*', &["subscribe", "a"]).as_bytes()).await.expect("room");
            assert!(matches!(hear(&mut subscriber).await, Ok(SubscriberEvent::Answered { .. })));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_that_is_refused_is_an_answer() {
        let (mut subscriber, mut server) = connected(Protocol::Resp2);
        subscriber.ping();
        server
            .write_all(b"-NOPERM this user has no permissions to run the 'ping' command\r\n")
            .await
            .expect("room");
        assert!(matches!(hear(&mut subscriber).await, Ok(SubscriberEvent::Pong(Err(_)))));
        assert!(try_hear(&mut subscriber).is_pending());
    }
}
