//! A TCP proxy in front of a server. It parses RESP frames and causes faults on request.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

/// The direction in which bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// The connections that a fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Connections that have never subscribed.
    Commands,
    PubSub,
    All,
}

/// What happens to a matching request and its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The reply is dropped and the connection cut, so the client cannot know that the server
    /// executed the request.
    CutBeforeReply,
    /// The reply is dropped. Later replies are forwarded, so the client gets each of them one
    /// request too early.
    DropReply,
    /// From this reply on the connection carries no replies.
    Mute,
    /// The request is sent twice in a row, and the second reply is dropped.
    Duplicate,
    /// These bytes replace the reply; the server has executed the request.
    Forge(Vec<u8>),
    /// These bytes are the reply; the server does not get the request.
    Answer(Vec<u8>),
    /// The connection is cut before the request is sent.
    CutBeforeRequest,
    /// The connection is cut after this many bytes of the request.
    CutRequestAt(usize),
    /// The connection is cut after this many bytes of the reply.
    CutReplyAt(usize),
}

/// A proxy on its own port. Dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    target: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    refusing: bool,
    rules: Vec<Rule>,
    up: Way,
    down: Way,
    kill_every: Option<Duration>,
    seen: HashMap<String, u64>,
    last_id: u64,
    links: HashMap<u64, Link>,
    /// The length of the frame that was cut last.
    cut_frame: usize,
    tap: Option<Tap>,
}

/// Is shown each frame before it is sent on, with the number of its connection.
struct Tap(Box<dyn Tapping>);

trait Tapping: FnMut(u64, Direction, &[u8]) + Send {}

impl<T: FnMut(u64, Direction, &[u8]) + Send> Tapping for T {}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

#[derive(Debug, Default)]
struct Way {
    delay: Duration,
    /// Frames are read and dropped.
    swallowing: bool,
    /// Nothing is read, so that buffers fill up.
    stalled: bool,
    /// The connection that carries this byte is cut after it.
    bytes_left: Option<usize>,
    /// The bandwidth of all connections together.
    bytes_per_second: Option<u32>,
    /// When the link has transferred the last byte that it was given.
    free_at: Option<tokio::time::Instant>,
}

#[derive(Debug)]
struct Rule {
    pattern: Vec<u8>,
    skip: u64,
    times: u64,
    fault: Fault,
}

/// One client's connection, and the proxy's connection to the server for it.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// What to do with each reply that is still to come.
    awaited: VecDeque<Reply>,
    muted: bool,
    subscribes: bool,
    /// Bytes in this direction are dropped, and neither connection is closed.
    lost_up: bool,
    lost_down: bool,
    /// The connection ends after what is being sent now.
    ends: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reply {
    Pass,
    Drop,
    Cut,
    Mute,
    Forge(Vec<u8>),
    CutAt(usize),
}

impl FaultProxy {
    /// In front of `target`, "host:port", which need not be there yet.
    pub(crate) fn start(target: &str) -> Self {
        Self::at("127.0.0.1:0", target).expect("a port for the proxy")
    }

    /// The same at a given address.
    pub(crate) fn at(address: &str, target: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        let killing = Arc::clone(&shared);
        thread::spawn(move || killing.kill_regularly());
        Ok(Self { shared, address })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Applies `fault` to the next request that contains `pattern`.
    pub(crate) fn once(&self, pattern: &str, fault: Fault) {
        self.nth(pattern, 0, 1, fault);
    }

    /// Skips `skip` requests that contain `pattern`, then applies `fault` to the next `times`.
    pub(crate) fn nth(&self, pattern: &str, skip: u64, times: u64, fault: Fault) {
        let rule = Rule { pattern: pattern.as_bytes().to_vec(), skip, times, fault };
        self.state().rules.push(rule);
    }

    /// Removes the faults that have not happened yet. Returns how many there were.
    pub(crate) fn clear(&self) -> usize {
        std::mem::take(&mut self.state().rules).len()
    }

    /// Delays every chunk of bytes.
    pub(crate) fn delay(&self, direction: Direction, delay: Duration) {
        self.change(|state| state.way(direction).delay = delay);
    }

    /// Limits the bandwidth of all connections together in this direction.
    pub(crate) fn limit(&self, direction: Direction, bytes_per_second: Option<u32>) {
        self.change(|state| {
            let way = state.way(direction);
            (way.bytes_per_second, way.free_at) = (bytes_per_second, None);
        });
    }

    /// Drops whole frames in this direction, and keeps the connections open.
    pub(crate) fn swallow(&self, direction: Direction, on: bool) {
        self.change(|state| state.way(direction).swallowing = on);
    }

    /// Drops everything in these directions on the existing connections, as a router does that has
    /// lost its state. New connections work.
    pub(crate) fn forget(&self, which: Which, ways: &[Direction]) {
        self.change(|state| {
            let links = state.links.values_mut();
            for link in links
                .filter(|link| which == Which::All || link.subscribes == (which == Which::PubSub))
            {
                link.lost_up |= ways.contains(&Direction::Up);
                link.lost_down |= ways.contains(&Direction::Down);
            }
        });
    }

    /// Stops reading in this direction, and later continues where it stopped.
    pub(crate) fn stall(&self, direction: Direction, on: bool) {
        self.change(|state| state.way(direction).stalled = on);
    }

    /// Cuts whichever connection carries the `bytes`th byte from now in this direction.
    pub(crate) fn cut_after(&self, direction: Direction, bytes: usize) {
        self.change(|state| state.way(direction).bytes_left = Some(bytes));
    }

    /// The length of the frame that was cut last.
    pub(crate) fn cut_frame(&self) -> usize {
        self.state().cut_frame
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.change(State::cut);
    }

    /// Closes new connections at once.
    pub(crate) fn refuse(&self, on: bool) {
        self.change(|state| state.refusing = on);
    }

    /// Cuts every connection again after each interval.
    pub(crate) fn kill_every(&self, interval: Option<Duration>) {
        self.change(|state| state.kill_every = interval);
    }

    /// Shows this function each frame before it is sent on, with the number of its connection.
    #[allow(dead_code, reason = "chaos listens, the tests do not")]
    pub(crate) fn tap(&self, tap: impl FnMut(u64, Direction, &[u8]) + Send + 'static) {
        self.change(|state| state.tap = Some(Tap(Box::new(tap))));
    }

    /// How many requests of this command came by, in capitals: "EVALSHA".
    pub(crate) fn seen(&self, command: &str) -> u64 {
        self.state().seen.get(command).copied().unwrap_or(0)
    }

    /// How many clients are connected.
    pub(crate) fn connections(&self) -> usize {
        self.state().links.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.change(|state| {
            state.ended = true;
            state.cut();
        });
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn cut(&mut self) {
        for (_, link) in self.links.drain() {
            link.close();
        }
    }

    fn cut_one(&mut self, id: u64) {
        if let Some(link) = self.links.remove(&id) {
            link.close();
        }
    }

    fn fault_for(&mut self, frame: &[u8]) -> Option<Fault> {
        let index = self.rules.iter_mut().position(|rule| rule.applies(frame))?;
        let rule = &mut self.rules[index];
        rule.times -= 1;
        if rule.times == 0 {
            Some(self.rules.remove(index).fault)
        } else {
            Some(rule.fault.clone())
        }
    }

    fn show(&mut self, id: u64, direction: Direction, frame: &[u8]) {
        if let Some(Tap(tap)) = &mut self.tap {
            tap(id, direction, frame);
        }
    }

    /// What is sent to the server instead of a request; `None` cuts the connection.
    fn request(&mut self, id: u64, frame: &[u8]) -> Option<Vec<u8>> {
        self.show(id, Direction::Up, frame);
        let words = words(frame);
        let command = words
            .first()
            .map(|word| String::from_utf8_lossy(word).to_uppercase())
            .unwrap_or_default();
        let replies = match command.as_str() {
            "SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE" => {
                words.len().saturating_sub(1).max(1)
            }
            _ => 1,
        };
        let link = self.links.get_mut(&id)?;
        link.subscribes |= command.ends_with("SUBSCRIBE");
        let lost = link.lost_up;
        *self.seen.entry(command).or_default() += 1;
        if self.up.swallowing || lost {
            return Some(Vec::new());
        }
        let fault = self.fault_for(frame);
        let awaited = &mut self.links.get_mut(&id)?.awaited;
        let first = match &fault {
            None | Some(Fault::Duplicate) => Reply::Pass,
            Some(Fault::CutBeforeReply) => Reply::Cut,
            Some(Fault::DropReply) => Reply::Drop,
            Some(Fault::Mute) => Reply::Mute,
            Some(Fault::Forge(bytes) | Fault::Answer(bytes)) => Reply::Forge(bytes.clone()),
            Some(Fault::CutBeforeRequest) => return None,
            Some(Fault::CutRequestAt(bytes)) => return Some(self.cut_at(id, frame, *bytes)),
            Some(Fault::CutReplyAt(bytes)) => Reply::CutAt(*bytes),
        };
        awaited.push_back(first);
        awaited.extend((1..replies).map(|_| Reply::Pass));
        if matches!(fault, Some(Fault::Answer(_))) {
            // A harmless request instead, so that the reply comes in order.
            return Some(b"*1\r\n$4\r\nPING\r\n".to_vec());
        }
        if fault != Some(Fault::Duplicate) {
            return Some(frame.to_vec());
        }
        awaited.extend((0..replies).map(|_| Reply::Drop));
        Some([frame, frame].concat())
    }

    /// What is sent to the client instead of a reply; `None` cuts the connection.
    fn reply(&mut self, id: u64, frame: &[u8]) -> Option<Vec<u8>> {
        self.show(id, Direction::Down, frame);
        let swallowing = self.down.swallowing;
        let link = self.links.get_mut(&id)?;
        let action = if is_message(frame) {
            Reply::Pass
        } else {
            link.awaited.pop_front().unwrap_or(Reply::Pass)
        };
        link.muted |= action == Reply::Mute;
        if swallowing || link.muted || link.lost_down {
            return Some(Vec::new());
        }
        match action {
            Reply::Pass => Some(frame.to_vec()),
            Reply::Drop | Reply::Mute => Some(Vec::new()),
            Reply::Forge(bytes) => Some(bytes),
            Reply::Cut => None,
            Reply::CutAt(bytes) => Some(self.cut_at(id, frame, bytes)),
        }
    }

    /// The beginning of a frame, after which the connection ends.
    fn cut_at(&mut self, id: u64, frame: &[u8], bytes: usize) -> Vec<u8> {
        self.cut_frame = frame.len();
        if let Some(link) = self.links.get_mut(&id) {
            link.ends = true;
        }
        frame[..bytes.min(frame.len())].to_vec()
    }
}

impl Rule {
    fn applies(&mut self, frame: &[u8]) -> bool {
        if !frame.windows(self.pattern.len()).any(|window| window == self.pattern) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }
}

impl Link {
    fn new(client: TcpStream, server: TcpStream) -> Self {
        Self {
            client,
            server,
            awaited: VecDeque::new(),
            muted: false,
            subscribes: false,
            lost_up: false,
            lost_down: false,
            ends: false,
        }
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let mut state = self.lock();
            if state.ended {
                return;
            }
            if state.refusing {
                continue;
            }
            let connect = || -> io::Result<Link> {
                let client = client?;
                let server = TcpStream::connect(&self.target)?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                Ok(Link::new(client, server))
            };
            let Ok(link) = connect() else { continue };
            let (Ok(client), Ok(server)) = (link.client.try_clone(), link.server.try_clone())
            else {
                continue;
            };
            let (Ok(client_out), Ok(server_out)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            state.last_id += 1;
            let id = state.last_id;
            state.links.insert(id, link);
            let (up, down) = (Arc::clone(self), Arc::clone(self));
            thread::spawn(move || up.pump(id, Direction::Up, client, server_out));
            thread::spawn(move || down.pump(id, Direction::Down, server, client_out));
        }
    }

    fn kill_regularly(&self) {
        let mut state = self.lock();
        while !state.ended {
            let interval = state.kill_every;
            let wait = interval.unwrap_or(Duration::from_secs(3_600));
            let unchanged = |state: &mut State| !state.ended && state.kill_every == interval;
            let (woken, timeout) = self
                .changed
                .wait_timeout_while(state, wait, unchanged)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.kill_every.is_some() {
                state.cut();
            }
        }
    }

    fn pump(&self, id: u64, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut pending = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        while self.may_read(direction) {
            let Ok(count @ 1..) = from.read(&mut chunk) else { break };
            pending.extend_from_slice(&chunk[..count]);
            let Some((out, last)) = self.pass(id, direction, &mut pending) else { break };
            self.travel(direction, out.len());
            // During a stall, bytes that were read before wait as well.
            if !self.may_read(direction) || to.write_all(&out).is_err() || last {
                break;
            }
        }
        self.lock().cut_one(id);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits while stalled. Returns false at the end of the proxy.
    fn may_read(&self, direction: Direction) -> bool {
        let stalled = |state: &mut State| !state.ended && state.way(direction).stalled;
        let state = self
            .changed
            .wait_while(self.lock(), stalled)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        !state.ended
    }

    /// Waits as long as a link of limited bandwidth takes, after everything that it was given
    /// before.
    fn travel(&self, direction: Direction, bytes: usize) {
        let mut state = self.lock();
        let way = state.way(direction);
        let Some(rate) = way.bytes_per_second else { return };
        let now = tokio::time::Instant::now();
        let end = way.free_at.unwrap_or(now).max(now)
            + Duration::from_secs_f64(bytes as f64 / f64::from(rate));
        way.free_at = Some(end);
        let limited =
            |state: &mut State| !state.ended && state.way(direction).bytes_per_second == Some(rate);
        drop(
            self.changed
                .wait_timeout_while(state, end - now, limited)
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
    }

    /// Takes the complete frames out of `pending`. Returns what to forward and whether that is the
    /// last; `None` cuts the connection at once.
    fn pass(
        &self,
        id: u64,
        direction: Direction,
        pending: &mut Vec<u8>,
    ) -> Option<(Vec<u8>, bool)> {
        let mut state = self.lock();
        let delay = state.way(direction).delay;
        if !delay.is_zero() {
            let waiting = |state: &mut State| !state.ended && state.way(direction).delay == delay;
            state = self
                .changed
                .wait_timeout_while(state, delay, waiting)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        let mut out = Vec::new();
        let mut done = 0;
        let (mut cut, mut last) = (false, false);
        while let Some(length) = frame_length(&pending[done..]) {
            let frame = &pending[done..done + length];
            done += length;
            let forwarded = match direction {
                Direction::Up => state.request(id, frame),
                Direction::Down => state.reply(id, frame),
            };
            match forwarded {
                Some(bytes) => {
                    out.extend(bytes);
                    last = state.links.get(&id).is_some_and(|link| link.ends);
                    if last {
                        break;
                    }
                }
                None => {
                    cut = true;
                    break;
                }
            }
        }
        pending.drain(..done);
        if let Some(left) = &mut state.way(direction).bytes_left {
            if *left <= out.len() {
                state.way(direction).bytes_left = None;
                cut = true;
            } else {
                *left -= out.len();
            }
        }
        (!cut).then_some((out, last))
    }
}

/// Length of the first complete RESP2 or RESP3 frame.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    let items = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let length = usize::try_from(number()?).map_or(line, |length| line + length + 2);
            return (bytes.len() >= length).then_some(length);
        }
        b'*' | b'~' | b'>' => number()?,
        b'%' => 2 * number()?,
        b'|' => 2 * number()? + 1,
        _ => 0,
    };
    let mut length = line;
    for _ in 0..items {
        length += frame_length(&bytes[length..])?;
    }
    Some(length)
}

/// The words of a request.
pub(crate) fn words(frame: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let mut at =
        frame.windows(2).position(|pair| pair == b"\r\n").map_or(frame.len(), |end| end + 2);
    while let Some(length) = frame_length(&frame[at..]) {
        let word = &frame[at..at + length];
        let start = word.windows(2).position(|pair| pair == b"\r\n").map_or(0, |end| end + 2);
        words.push(&word[start..word.len().saturating_sub(2).max(start)]);
        at += length;
    }
    words
}

/// True if the frame is not the reply to a request.
pub(crate) fn is_message(frame: &[u8]) -> bool {
    let kinds: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
    matches!(frame.first(), Some(b'*' | b'>'))
        && words(frame).first().is_some_and(|word| kinds.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        for frame in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":12\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nbc\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
            "%1\r\n+a\r\n:1\r\n",
            "|1\r\n+a\r\n:1\r\n+OK\r\n",
            "_\r\n",
        ] {
            let more = format!("{frame}+NEXT\r\n");
            assert_eq!(frame_length(more.as_bytes()), Some(frame.len()), "{frame:?}");
            assert_eq!(frame_length(&frame.as_bytes()[..frame.len() - 1]), None, "{frame:?}");
        }
        assert_eq!(words(b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n"), [b"PING".as_slice(), b"hi"]);
        assert!(is_message(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n"));
        assert!(!is_message(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"));
    }
}
