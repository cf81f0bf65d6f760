//! How calls end, with the server's end of the connection controlled by the test.

mod batch;

use super::*;

use std::future::poll_fn;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::DuplexStream;

use crate::backend::redis::tests::driver::ECHO;
use crate::backend::redis::tests::driver::connection;
use crate::backend::redis::tests::driver::script;
use crate::backend::woken::Woken;

const SECOND: Duration = Duration::from_secs(1);
const BUDGETS: Budgets = Budgets::of(SECOND);

/// Calls on a connection with this many bytes of room in each direction, to a server that has the
/// script; and the server's end.
fn connected(room: usize) -> (Calls, DuplexStream) {
    let (connection, server) = connection(room);
    let mut calls = Calls::new(None, BUDGETS);
    calls.connected(connection);
    (calls, server)
}

fn echo(text: &str) -> CallRequest {
    CallRequest::Call(script(&ECHO, &[], &[text]))
}

/// Calls on a connection to a primary, whose term is over once the counter changes.
fn connected_to_a_primary() -> (Calls, DuplexStream, Arc<AtomicU64>) {
    let (mut calls, server) = connected(1_000);
    let changes = Arc::new(AtomicU64::new(1));
    calls.term = PrimaryTerm::now(&changes);
    (calls, server, changes)
}

async fn answer(calls: &mut Calls) -> (u64, Outcome<Value>) {
    let (op, outcome) = poll_fn(|cx| calls.poll_answer(cx)).await;
    (op.0, outcome)
}

/// A proxy may support EVALSHA only.
#[tokio::test]
async fn a_script_that_is_not_known_though_its_text_was_sent_is_refused() {
    let (mut calls, mut server) = connected(1_000);
    calls.submit(OpId(1), echo("1"), Duration::from_secs(60));
    for read in ["EVALSHA", "EVAL\r\n"] {
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut request = Vec::new();
        server.read_buf(&mut request).await.expect("a request");
        assert!(String::from_utf8_lossy(&request).contains(read), "{read}");
        server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    }
    let (_, outcome) = answer(&mut calls).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_script_is_not_asked_again_for_want_of_one() {
    let (mut calls, mut server) = connected(1_000);
    calls.submit(OpId(1), CallRequest::Call(Call::Ping), Duration::from_secs(60));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    let (op, outcome) = answer(&mut calls).await;
    let busy =
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy);
    assert!(op == 1 && busy, "{outcome:?}");
}

/// The last call in flight is not written yet when it times out.
#[tokio::test(start_paused = true)]
async fn calls_held_back_for_lost_scripts_are_sent_whatever_becomes_of_those_before() {
    let (mut calls, mut server) = connected(1_000);
    let seconds = |number| Duration::from_secs(number);
    calls.submit(OpId(1), echo("1"), seconds(60));
    calls.submit(OpId(2), echo(&"x".repeat(200_000)), seconds(1));
    calls.submit(OpId(3), echo("3"), seconds(2));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    calls.submit(OpId(4), echo("4"), seconds(60));
    calls.submit(OpId(5), echo("5"), seconds(1));
    let mut refused = Vec::new();
    for _ in 0..4 {
        let (op, outcome) = answer(&mut calls).await;
        refused.push((op, matches!(outcome, Outcome::NotExecuted(_))));
    }
    refused.sort_unstable();
    // The first must not come after the second, which may have been executed.
    assert_eq!(refused, [(1, true), (2, false), (3, true), (5, true)]);
    let serve = async {
        let mut read = Vec::new();
        while !read.ends_with(b"$1\r\n4\r\n") {
            server.read_buf(&mut read).await.expect("a part");
        }
        server.write_all(b":2\r\n$1\r\n4\r\n").await.expect("room");
    };
    let ((), answered) = tokio::join!(serve, answer(&mut calls));
    assert_eq!(answered, (4, Outcome::Done(Value::Text("4".to_owned()))));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_behind_a_script_that_was_given_up() {
    let (mut calls, mut server) = connected(1_000);
    calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
    calls.submit(OpId(2), echo("2"), Duration::from_secs(1));
    assert!(matches!(answer(&mut calls).await, (2, Outcome::Unknown(_))));
    server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    let (op, outcome) = answer(&mut calls).await;
    let busy =
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy);
    assert!(op == 1 && busy, "{outcome:?}");
}

/// Replies arrive all the time.
#[tokio::test(start_paused = true)]
async fn a_call_has_its_time_however_busy_the_connection_is() {
    let (mut calls, mut server) = connected(100_000);
    calls.submit(OpId(1), echo(&"x".repeat(200_000)), Duration::from_secs(600));
    calls.submit(OpId(2), echo("late"), Duration::from_secs(1));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    tokio::time::advance(Duration::from_secs(2)).await;
    server.write_all(b":1\r\n").await.expect("room");
    let (op, outcome) = answer(&mut calls).await;
    assert!(op == 2 && matches!(outcome, Outcome::NotExecuted(_)), "{outcome:?}");
    assert_eq!(answer(&mut calls).await, (1, Outcome::Done(Value::Int(1))));
}

#[tokio::test]
async fn nothing_is_written_to_a_server_once_it_is_deposed() {
    let (mut calls, mut server, changes) = connected_to_a_primary();
    calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
    changes.fetch_add(1, Ordering::Release);
    assert!(matches!(answer(&mut calls).await, (1, Outcome::Unknown(_))));
    calls.submit(OpId(2), echo("2"), Duration::from_secs(9));
    assert!(matches!(answer(&mut calls).await, (2, Outcome::NotExecuted(_))));
    let mut read = Vec::new();
    server.read_to_end(&mut read).await.expect("the end");
    assert!(read.is_empty(), "{read:?}");
}

/// True if the connection was told to end, so that a new one is made.
fn is_replaced(end: &Notify) -> bool {
    end.notified().now_or_never().is_some()
}

/// The same together with the notification for `is_replaced`.
fn connected_until_replaced() -> (Calls, DuplexStream, Arc<Notify>) {
    let (calls, server) = connected(1_000);
    let end = Arc::clone(&calls.connection.as_ref().expect("a connection").end);
    (calls, server, end)
}

/// Submits a call that times out.
async fn in_vain(calls: &mut Calls, op: u64) {
    calls.submit(OpId(op), echo("x"), BUDGETS.silence());
    assert!(matches!(answer(calls).await, (other, Outcome::Unknown(_)) if other == op));
}

/// Waits until silence would be acted on.
async fn second_look(calls: &mut Calls) {
    let more = tokio::time::timeout(2 * SECOND_LOOK, answer(calls)).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_one_connection_is_not_held_against_the_next() {
    let (mut calls, _first) = connected(1_000);
    in_vain(&mut calls, 1).await;
    calls.disconnected("cut");
    let (next, _second) = connection(1_000);
    let end = Arc::clone(&next.end);
    calls.connected(next);
    in_vain(&mut calls, 2).await;
    second_look(&mut calls).await;
    assert!(!is_replaced(&end));
    in_vain(&mut calls, 3).await;
    second_look(&mut calls).await;
    assert!(is_replaced(&end));
}

/// The process was stopped, or its runtime was blocked, so the timer fires before replies are read.
#[tokio::test(start_paused = true)]
async fn what_came_while_nobody_looked_is_no_silence() {
    let (mut calls, mut server, end) = connected_until_replaced();
    for op in 1..3 {
        calls.submit(OpId(op), echo("x"), BUDGETS.silence());
    }
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    server.write_all(b"$1\r\nx\r\n$1\r\nx\r\n").await.expect("room");
    tokio::time::advance(5 * BUDGETS.silence()).await;
    for op in 1..3 {
        let told = answer(&mut calls).await;
        assert!(matches!(told, (given_up, Outcome::Unknown(_)) if given_up == op), "{told:?}");
    }
    second_look(&mut calls).await;
    assert!(!is_replaced(&end));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_replies_are_late_is_not_silent() {
    let (mut calls, mut server, end) = connected_until_replaced();
    for op in 1..6 {
        in_vain(&mut calls, op).await;
        server.write_all(b"$1\r\nx\r\n").await.expect("room");
        second_look(&mut calls).await;
        assert!(!is_replaced(&end), "after {op}");
    }
}

/// Submits a call that times out, and returns the text of its error.
async fn words_in_vain(calls: &mut Calls, op: u64, timeout: Duration) -> String {
    calls.submit(OpId(op), echo("x"), timeout);
    match answer(calls).await {
        (other, Outcome::Unknown(failure)) if other == op => failure.message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_too_slow_is_told_from_one_that_is_dead_with_both_figures() {
    let (mut calls, mut server) = connected(1_000);
    assert_eq!(words_in_vain(&mut calls, 1, SECOND).await, "no answer within 1s");
    tokio::time::advance(SECOND / 2).await;
    server.write_all(b"$1\r\nx\r\n").await.expect("room");
    let slow = "answers come, but too late: the last one took 1.5s, the command timeout is 1s";
    assert_eq!(words_in_vain(&mut calls, 2, SECOND).await, slow);
    let impatient = "answers come, but too late: the last one took 1.5s, its time is 100ms";
    assert_eq!(words_in_vain(&mut calls, 3, SECOND / 10).await, impatient);
    server.write_all(b"$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n").await.expect("room");
    calls.submit(OpId(4), echo("x"), SECOND);
    assert!(matches!(answer(&mut calls).await, (4, Outcome::Done(_))));
    assert_eq!(
        words_in_vain(&mut calls, 5, SECOND).await,
        "no answer within 1s",
        "the last came in time"
    );
    // A new connection starts without that history.
    calls.disconnected("cut");
    while calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_ready() {}
    for (round_trip, words) in [(3 * SECOND / 2, slow), (SECOND, "no answer within 1s")] {
        let (next, _open) = connection(1_000);
        calls.connected(Connection { round_trip, ..next });
        assert_eq!(words_in_vain(&mut calls, 6, SECOND).await, words, "greeted in {round_trip:?}");
    }
}

/// Otherwise a script would never run over a link on which a reply takes more than half of the
/// timeout.
#[tokio::test(start_paused = true)]
async fn a_script_that_was_said_to_be_unknown_too_late_is_sent_in_full_next_time() {
    let (mut calls, mut server) = connected(1_000);
    words_in_vain(&mut calls, 1, SECOND).await;
    server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    words_in_vain(&mut calls, 2, SECOND).await;
    calls.submit(OpId(3), echo("x"), SECOND);
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut sent = Vec::new();
    while let Some(Ok(1..)) = server.read_buf(&mut sent).now_or_never() {}
    let sent = String::from_utf8(sent).expect("text");
    let commands: Vec<&str> = sent.split("\r\n").filter(|word| word.starts_with("EVAL")).collect();
    assert_eq!(commands, ["EVALSHA", "EVALSHA", "EVAL"]);
}

/// With a credential provider a refused login is transient.
#[tokio::test]
async fn a_refused_login_is_final_unless_a_provider_can_be_asked_again() {
    for (asks_again, kind) in [(true, FailureKind::Busy), (false, FailureKind::Auth)] {
        let (mut connection, mut server) = connection(1_000);
        connection.asks_again = asks_again;
        let mut calls = Calls::new(None, BUDGETS);
        calls.connected(connection);
        calls.submit(OpId(1), CallRequest::Call(Call::Ping), SECOND);
        server.write_all(b"-NOAUTH Authentication required.\r\n").await.expect("room");
        let (_, outcome) = answer(&mut calls).await;
        let Outcome::NotExecuted(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, kind);
        // A missing permission is not transient.
        calls.submit(OpId(2), CallRequest::Call(Call::Ping), SECOND);
        server.write_all(b"-NOPERM no\r\n").await.expect("room");
        let (_, outcome) = answer(&mut calls).await;
        let Outcome::NotExecuted(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, FailureKind::Denied);
    }
}

#[tokio::test]
async fn the_time_has_seconds_and_microseconds() {
    let (mut calls, mut server) = connected(1_000);
    calls.submit(OpId(1), CallRequest::Call(Call::Time), SECOND);
    server.write_all(b"*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n").await.expect("room");
    let time = Value::List(vec![Value::Int(1_700_000_000_123_456)]);
    assert_eq!(answer(&mut calls).await, (1, Outcome::Done(time)));
}

#[tokio::test]
async fn a_new_login_and_the_calls_around_it_get_their_own_answers() {
    let (mut calls, mut server) = connected(1_000);
    let ping = || CallRequest::Call(Call::Ping);
    calls.submit(OpId(1), ping(), SECOND);
    let (told, login) = oneshot::channel();
    calls.log_in(&Credentials::new("", "secret"), told);
    calls.submit(OpId(2), ping(), SECOND);
    server.write_all(b"+PONG\r\n-WRONGPASS no\r\n+PONG\r\n").await.expect("room");
    for op in 1..=2 {
        let (answered, outcome) = answer(&mut calls).await;
        assert!(answered == op && matches!(outcome, Outcome::Done(_)), "{answered}: {outcome:?}");
    }
    assert!(login.await.expect("told").is_err_and(|words| words.contains("WRONGPASS")));
}

/// Queued commands are limited, so that they do not fill the memory.
#[tokio::test]
async fn what_is_too_much_to_be_written_is_refused_at_once() {
    let (mut calls, _server) = connected(10);
    calls.submit(OpId(0), echo(&"x".repeat(200_000)), SECOND);
    let mut looked = Context::from_waker(Waker::noop());
    for op in 1..=WAITING as u64 {
        calls.submit(OpId(op), CallRequest::Call(Call::Ping), SECOND);
    }
    assert!(calls.poll_answer(&mut looked).is_pending(), "so many may wait");
    calls.submit(OpId(99_999), CallRequest::Call(Call::Ping), SECOND);
    let Poll::Ready((op, Outcome::NotExecuted(failure))) = calls.poll_answer(&mut looked) else {
        panic!("not refused")
    };
    assert_eq!((op.0, failure.kind), (99_999, FailureKind::Busy));
}

#[tokio::test]
async fn nothing_is_sent_over_a_connection_that_is_known_to_be_broken() {
    let (mut calls, server) = connected(1_000);
    drop(server);
    // Long enough to be written at once.
    calls.submit(OpId(1), echo(&"x".repeat(20_000)), SECOND);
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_ready(), "its end");
    calls.submit(OpId(2), echo("2"), SECOND);
    let (op, outcome) = answer(&mut calls).await;
    let Outcome::NotExecuted(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((op, &*failure.message), (2, "not connected"));
}

#[tokio::test(start_paused = true)]
async fn a_login_without_an_answer_ends_in_time() {
    let (mut calls, _server) = connected(1_000);
    calls.submit(OpId(1), echo("x"), BUDGETS.silence());
    let (told, login) = oneshot::channel();
    calls.log_in(&Credentials::new("", "secret"), told);
    // The timer expires for the call first.
    assert!(matches!(answer(&mut calls).await, (1, Outcome::Unknown(_))));
    let ended = tokio::time::timeout(2 * BUDGETS.answer(), async {
        tokio::select! {
            result = login => result,
            early = answer(&mut calls) => panic!("{early:?}"),
        }
    });
    assert_eq!(ended.await.expect("in time").expect("told"), Err("no answer within 2s".to_owned()));
}

#[tokio::test]
async fn every_call_is_answered_when_a_connection_breaks_that_has_lost_its_scripts() {
    let (mut calls, mut server) = connected(1_000);
    for op in 1..3 {
        calls.submit(OpId(op), echo("x"), Duration::from_secs(9));
    }
    server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    calls.submit(OpId(3), echo("x"), Duration::from_secs(9));
    calls.disconnected("cut");
    let mut answers = Vec::new();
    while let Poll::Ready((op, outcome)) =
        calls.poll_answer(&mut Context::from_waker(Waker::noop()))
    {
        answers.push((op.0, matches!(outcome, Outcome::NotExecuted(_))));
    }
    answers.sort_unstable();
    assert_eq!(answers, [(1, true), (2, false), (3, true)]);
    assert!(calls.is_idle());
}

#[tokio::test]
async fn a_call_in_flight_wakes_nobody_before_its_answer() {
    let (mut calls, _server) = connected(1_000);
    let woken = Arc::<Woken>::default();
    for number in 1..4 {
        calls.submit(OpId(number), CallRequest::Call(Call::Ping), Duration::from_secs(9));
        let waker = Arc::clone(&woken).into();
        assert!(calls.poll_answer(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(woken.times(), 0);
    }
}

#[tokio::test]
async fn an_answer_that_already_lies_there_does_not_count_either() {
    let (mut calls, mut server, changes) = connected_to_a_primary();
    calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    server.write_all(b"$7\r\ngranted\r\n").await.expect("room");
    changes.fetch_add(1, Ordering::Release);
    let told = answer(&mut calls).await;
    assert!(matches!(told, (1, Outcome::Unknown(_))), "{told:?}");
}
