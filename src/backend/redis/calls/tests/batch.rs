//! Batches of calls, with the server's end of the connection controlled by the test.

use super::*;

use crate::backend::BatchableScript;
use crate::backend::redis::tests::driver::COUNT;

static TOGETHER: Script = Script { name: "test/together", source: "return {}" };
static OF: [BatchableScript; 1] =
    [BatchableScript { script: &COUNT, mark: 'c', keys: 1, args: 0, common: &[] }];
const MANY: u64 = 8;
/// One call fewer than a batch needs.
const FEW: u64 = 3;
const LONG: Duration = Duration::from_secs(60);

fn count(key: u64) -> CallRequest {
    CallRequest::Call(script(&COUNT, &[&format!("key{key}")], &[]))
}

/// Calls with this many other calls in flight, numbered from 1; the server has all scripts.
async fn busy(calls_on_their_way: usize) -> (Calls, DuplexStream) {
    let (connection, mut server) = connection(100_000);
    let mut calls =
        Calls::new(Some(BatchScript { script: &TOGETHER, begin: '+', of: &OF }), BUDGETS);
    calls.connected(connection);
    (1..=calls_on_their_way as u64).for_each(|op| calls.submit(OpId(op), echo("x"), LONG));
    let sent = sent(&mut calls, &mut server).await;
    assert_eq!(sent.matches("EVALSHA").count(), calls_on_their_way);
    (calls, server)
}

/// What was written by the time that the connection has nothing more to do.
async fn sent(calls: &mut Calls, server: &mut DuplexStream) -> String {
    // Tokio makes both ends wait when they have transferred much.
    tokio::task::yield_now().await;
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut bytes = Vec::new();
    while let Some(Ok(1..)) = server.read_buf(&mut bytes).now_or_never() {}
    String::from_utf8(bytes).expect("text")
}

async fn reply(server: &mut DuplexStream, words: &str) {
    server.write_all(words.replace(' ', "\r\n").as_bytes()).await.expect("room");
    server.write_all(b"\r\n").await.expect("room");
}

/// Answers the calls that were in flight before.
async fn others(calls: &mut Calls, server: &mut DuplexStream) {
    for op in 1..=BUSY as u64 {
        reply(server, ":0").await;
        assert_eq!(answer(calls).await.0, op);
    }
}

/// One batch of calls, numbered from 100, is in flight, and nothing else.
async fn many_alone(calls: &mut Calls, server: &mut DuplexStream) {
    (100..100 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    sent(calls, server).await;
    others(calls, server).await;
}

/// The outcome of one call: its number, the time 9, and its number again.
fn said(number: i64) -> (u64, Outcome<Value>) {
    let parts = [number, 9, number].map(Value::Int).into();
    (100 + number as u64, Outcome::Done(Value::List(parts)))
}

async fn answers(calls: &mut Calls, many: usize) -> Vec<(u64, Outcome<Value>)> {
    let mut all = Vec::new();
    for _ in 0..many {
        all.push(answer(calls).await);
    }
    all.sort_by_key(|(op, _)| *op);
    all
}

#[tokio::test]
async fn what_comes_at_once_goes_together_and_each_has_its_own_reply() {
    let (mut calls, mut server) = busy(BUSY).await;
    (100..100 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    let sent = sent(&mut calls, &mut server).await;
    assert_eq!(sent.matches("EVALSHA").count(), 1, "{sent}");
    let digest = TOGETHER.digest();
    let keys: String = (100..100 + MANY).map(|op| format!("$6\r\nkey{op}\r\n")).collect();
    assert!(sent.ends_with(&format!("{digest}\r\n$1\r\n8\r\n{keys}$9\r\n+cccccccc\r\n")), "{sent}");
    others(&mut calls, &mut server).await;
    reply(&mut server, "*17 :9 :1 :0 :9 :1 :17 :2 :25 :3 :33 :4 :41 :5 :49 :6 :57 :7").await;
    let expected: Vec<_> = (0..8).map(said).collect();
    assert_eq!(answers(&mut calls, 8).await, expected);
    assert!(calls.is_idle());
}

/// A call that is alone, or one of few, does not wait for others.
#[tokio::test]
async fn few_calls_go_by_themselves() {
    for (before, many, scripts) in
        [(BUSY, FEW, FEW), (BUSY, FEW + 1, 1), (BUSY - 1, MANY, MANY), (0, 1, 1)]
    {
        let (mut calls, mut server) = busy(before).await;
        (100..100 + many).for_each(|op| calls.submit(OpId(op), count(op), LONG));
        let sent = sent(&mut calls, &mut server).await;
        assert_eq!(sent.matches("EVALSHA").count() as u64, scripts, "{sent}");
    }
}

#[tokio::test]
async fn the_order_is_kept() {
    let (mut calls, mut server) = busy(BUSY).await;
    (100..100 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    calls.submit(OpId(200), echo("after"), LONG);
    (300..300 + 2 * MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    let sent = sent(&mut calls, &mut server).await;
    let at = |words: &str| sent.find(words).unwrap_or_else(|| panic!("no {words}: {sent}"));
    assert!(
        at("key107") < at("after") && at("after") < at("key300") && at("key300") < at("key315")
    );
    assert_eq!(sent.matches("EVALSHA").count(), 3);
}

#[tokio::test]
async fn what_is_refused_among_others_is_sent_again_alone() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    reply(&mut server, "*15 :9 :1 :0 $3 OOM :17 :2 $4 WHAT :33 :4 :41 :5 :49 :6 :57 :7").await;
    let answered = answers(&mut calls, 7).await;
    assert!(answered.iter().all(|(op, _)| *op != 101), "{answered:?}");
    let strange = answered.iter().find(|(op, _)| *op == 103).map(|(_, outcome)| outcome);
    assert!(matches!(strange, Some(Outcome::Unknown(_))), "{strange:?}");
    let again = sent(&mut calls, &mut server).await;
    assert!(again.contains(&COUNT.digest()) && again.ends_with("key101\r\n"), "{again}");
    reply(&mut server, "-OOM").await;
    let (op, outcome) = answer(&mut calls).await;
    let refused = matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::OutOfMemory);
    assert!(op == 101 && refused, "{outcome:?}");
}

/// The user has no permission for one of the keys, and Redis checks all keys before it runs the
/// script.
#[tokio::test]
async fn calls_that_are_refused_together_go_apart_from_then_on() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    reply(&mut server, "-NOPERM").await;
    let again = sent(&mut calls, &mut server).await;
    assert_eq!(again.matches("EVALSHA").count() as u64, MANY, "{again}");
    (200..200 + BUSY as u64).for_each(|op| calls.submit(OpId(op), echo("x"), LONG));
    (300..300 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    let apart = sent(&mut calls, &mut server).await;
    assert_eq!(apart.matches("EVALSHA").count(), BUSY + MANY as usize, "{apart}");
}

#[tokio::test]
async fn a_reply_of_another_shape_is_nobody_s() {
    let (short, cut, long) = (
        "*8 :9 :0 :0 :0 :0 :0 :0 :0",
        "*9 :9 :0 :0 :0 :0 :0 :0 :0 :1",
        "*10 :9 :0 :0 :0 :0 :0 :0 :0 :0 :0",
    );
    for shape in [":1", "*0", "*2 :1 :2", "$2 no", short, cut, long] {
        let (mut calls, mut server) = busy(BUSY).await;
        many_alone(&mut calls, &mut server).await;
        reply(&mut server, shape).await;
        let answered = answers(&mut calls, 8).await;
        assert!(
            answered.iter().all(|(_, outcome)| *outcome == Outcome::Done(Value::Nil)),
            "{answered:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_several_has_its_own_time() {
    let (mut calls, mut server) = busy(BUSY).await;
    for op in 100..100 + MANY {
        calls.submit(OpId(op), count(op), if op < 103 { Duration::from_secs(1) } else { LONG });
    }
    sent(&mut calls, &mut server).await;
    for (op, outcome) in answers(&mut calls, 3).await {
        assert!(op < 103 && matches!(outcome, Outcome::Unknown(_)), "{op}: {outcome:?}");
    }
    others(&mut calls, &mut server).await;
    reply(&mut server, "*17 :9 :1 :0 :9 :1 :17 :2 :25 :3 :33 :4 :41 :5 :49 :6 :57 :7").await;
    let expected: Vec<_> = (3..8).map(said).collect();
    assert_eq!(answers(&mut calls, 5).await, expected);
    assert!(calls.is_idle());
}

/// An answered call has no part in the reply.
#[tokio::test(start_paused = true)]
async fn what_is_late_before_it_is_sent_is_left_out() {
    let (mut calls, mut server) = busy(BUSY).await;
    for op in 100..100 + MANY {
        calls.submit(OpId(op), count(op), if op == 103 { Duration::from_millis(10) } else { LONG });
    }
    tokio::time::advance(Duration::from_millis(20)).await;
    // Sends what was submitted before, without polling the timer.
    calls.submit(OpId(200), echo("x"), LONG);
    let Poll::Ready((op, outcome)) = calls.poll_answer(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("an answer that nobody hears of");
    };
    assert!(op == OpId(103) && matches!(outcome, Outcome::NotExecuted(_)), "{op:?}: {outcome:?}");
    let sent = sent(&mut calls, &mut server).await;
    assert!(sent.matches("EVALSHA").count() == 2 && !sent.contains("key103"), "{sent}");
    others(&mut calls, &mut server).await;
    reply(&mut server, "*15 :9 :1 :0 :9 :1 :17 :2 :33 :4 :41 :5 :49 :6 :57 :7").await;
    let expected = [0, 1, 2, 4, 5, 6, 7].map(said);
    assert_eq!(answers(&mut calls, 7).await, expected);
}

/// A call that was submitted later for the same lock must not be overtaken.
#[tokio::test]
async fn what_is_refused_among_others_is_not_sent_behind_its_successor() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    calls.submit(OpId(200), count(101), LONG);
    sent(&mut calls, &mut server).await;
    reply(&mut server, "*16 :9 :1 :0 $3 OOM :17 :2 :25 :3 :33 :4 :41 :5 :49 :6 :57 :7").await;
    let answered = answers(&mut calls, 8).await;
    assert!(matches!(answered[1], (101, Outcome::NotExecuted(_))), "{answered:?}");
}

#[tokio::test]
async fn what_is_refused_among_others_is_not_sent_behind_one_of_them() {
    let (mut calls, mut server) = busy(BUSY).await;
    for (op, key) in [(100, 100), (101, 101), (102, 102), (103, 101)] {
        calls.submit(OpId(op), count(key), LONG);
    }
    assert_eq!(sizes(&sent(&mut calls, &mut server).await), [4]);
    others(&mut calls, &mut server).await;
    reply(&mut server, "*8 :9 :1 :0 $3 OOM :17 :2 :25 :3").await;
    let answered = answers(&mut calls, 4).await;
    assert!(matches!(answered[1], (101, Outcome::NotExecuted(_))), "{answered:?}");
}

/// The late batch may be executed all the same, before the call.
#[tokio::test(start_paused = true)]
async fn what_is_refused_among_others_is_not_sent_behind_what_was_given_up() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    calls.submit(OpId(200), count(101), Duration::from_secs(1));
    sent(&mut calls, &mut server).await;
    let (op, outcome) = answer(&mut calls).await;
    assert!(op == 200 && matches!(outcome, Outcome::Unknown(_)), "{op} {outcome:?}");
    reply(&mut server, "-BUSY").await;
    let answered = answers(&mut calls, MANY as usize).await;
    assert!(
        answered.iter().all(|(_, outcome)| matches!(outcome, Outcome::NotExecuted(_))),
        "{answered:?}"
    );
}

/// The error of Redis is about the whole script, and does not tell which call it means.
#[tokio::test]
async fn what_all_were_refused_for_is_not_the_last_word_to_one_with_a_successor() {
    for (words, expected) in [("-NOPERM", FailureKind::Busy), ("-READONLY", FailureKind::ReadOnly)]
    {
        let (mut calls, mut server) = busy(BUSY).await;
        many_alone(&mut calls, &mut server).await;
        calls.submit(OpId(200), count(101), LONG);
        sent(&mut calls, &mut server).await;
        reply(&mut server, words).await;
        let (op, outcome) = answer(&mut calls).await;
        let kind = match &outcome {
            Outcome::NotExecuted(failure) => failure.kind,
            other => panic!("{other:?}"),
        };
        assert_eq!((op, kind), (101, expected));
    }
}

#[tokio::test]
async fn what_nobody_understands_is_not_asked_for_again() {
    for shape in [":1", "*2 :1 :2", "-WHAT"] {
        let (mut calls, mut server) = busy(BUSY).await;
        many_alone(&mut calls, &mut server).await;
        reply(&mut server, shape).await;
        answers(&mut calls, MANY as usize).await;
        (200..200 + BUSY as u64).for_each(|op| calls.submit(OpId(op), echo("x"), LONG));
        (300..300 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
        let apart = sent(&mut calls, &mut server).await;
        assert_eq!(apart.matches("EVALSHA").count(), BUSY + MANY as usize, "{apart}");
    }
}

/// The timer has expired, and is not polled again before the call is written.
#[tokio::test(start_paused = true)]
async fn what_may_go_together_has_its_time_from_the_first_poll_on() {
    let (mut calls, _server) = busy(0).await;
    calls.submit(OpId(1), count(1), Duration::from_secs(1));
    assert!(matches!(answer(&mut calls).await, (1, Outcome::Unknown(_))));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    calls.submit(OpId(2), count(2), Duration::from_secs(1));
    let woken = Arc::<Woken>::default();
    assert!(calls.poll_answer(&mut Context::from_waker(&Arc::clone(&woken).into())).is_pending());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(woken.times(), 1);
}

#[tokio::test]
async fn the_script_for_several_may_be_lost_like_any_other() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    reply(&mut server, "-NOSCRIPT").await;
    let again = sent(&mut calls, &mut server).await;
    assert!(again.contains(&format!("EVAL\r\n$9\r\n{}\r\n", TOGETHER.source)), "{again}");
    reply(&mut server, "*17 :9 :1 :0 :9 :1 :17 :2 :25 :3 :33 :4 :41 :5 :49 :6 :57 :7").await;
    assert_eq!(answers(&mut calls, 8).await.len(), 8);
    assert!(calls.is_idle());
}

#[tokio::test]
async fn the_end_of_the_connection_answers_each() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    (200..203).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    calls.disconnected("gone");
    for (op, outcome) in answers(&mut calls, 11).await {
        let expected = if op < 200 {
            matches!(outcome, Outcome::Unknown(_))
        } else {
            matches!(outcome, Outcome::NotExecuted(_))
        };
        assert!(expected, "{op}: {outcome:?}");
    }
    assert!(calls.is_idle());
}

/// The timer has expired for the call, and expires again at once until the call is answered.
#[tokio::test(start_paused = true)]
async fn what_is_late_before_it_is_sent_is_given_up_by_the_first_ring() {
    let (mut calls, _server) = busy(0).await;
    calls.submit(OpId(1), count(1), Duration::from_millis(10));
    tokio::time::advance(Duration::from_millis(40)).await;
    // Tokio's cooperative budget would end it.
    let once = poll_fn(|cx| {
        Poll::Ready(calls.poll_timer(cx).is_ready() && calls.poll_timer(cx).is_pending())
    });
    assert!(tokio::task::unconstrained(once).await);
    assert!(matches!(answer(&mut calls).await, (1, Outcome::NotExecuted(_))));
}

/// The timer has expired for another call, which was answered first.
#[tokio::test(start_paused = true)]
async fn a_ring_for_another_leaves_what_may_go_together_its_time() {
    let (mut calls, _server) = busy(0).await;
    calls.submit(OpId(1), echo("x"), Duration::from_secs(1));
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
    tokio::time::advance(Duration::from_secs(1)).await;
    calls.submit(OpId(2), count(2), Duration::from_secs(1));
    let woken = Arc::<Woken>::default();
    let waker = Arc::clone(&woken).into();
    assert!(calls.poll_answer(&mut Context::from_waker(&waker)).is_ready());
    assert!(calls.poll_answer(&mut Context::from_waker(&waker)).is_pending());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(woken.times(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_held_and_given_up_takes_nobody_s_place() {
    let (mut calls, mut server) = busy(2).await;
    reply(&mut server, "-NOSCRIPT").await;
    sent(&mut calls, &mut server).await;
    (0..WAITING as u64)
        .for_each(|op| calls.submit(OpId(1_000 + op), echo("x"), Duration::from_millis(10)));
    answers(&mut calls, WAITING).await;
    calls.submit(OpId(90_000), echo("x"), LONG);
    assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// The number of calls in each script.
fn sizes(sent: &str) -> Vec<usize> {
    sent.split("EVALSHA").skip(1).map(|script| script.matches("key").count()).collect()
}

#[tokio::test]
async fn a_script_is_longer_where_the_server_has_plenty_to_do() {
    let (mut calls, mut server) = busy(BUSY).await;
    (100..166).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    assert_eq!(sizes(&sent(&mut calls, &mut server).await), [64, 1, 1], "beside sixteen others");
    let (mut calls, mut server) = busy(BUSY).await;
    (100..116).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    sent(&mut calls, &mut server).await;
    others(&mut calls, &mut server).await;
    (200..236).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    assert_eq!(sizes(&sent(&mut calls, &mut server).await), [32, 4], "beside one of sixteen");
}

#[tokio::test]
async fn calls_wait_for_others_while_much_is_on_its_way() {
    let (mut calls, mut server) = busy(BUSY).await;
    calls.gather(Some(BUSY));
    for op in 100..115 {
        calls.submit(OpId(op), count(op), LONG);
        assert_eq!(sent(&mut calls, &mut server).await, "", "{op}");
    }
    calls.submit(OpId(115), count(115), LONG);
    assert_eq!(sizes(&sent(&mut calls, &mut server).await), [16]);
    calls.submit(OpId(200), count(200), LONG);
    assert_eq!(sent(&mut calls, &mut server).await, "");
    calls.submit(OpId(201), echo("x"), LONG);
    let sent = sent(&mut calls, &mut server).await;
    assert!(sent.find("key200") < sent.find("x") && sent.contains("key200"), "{sent}");
}

/// The calls go in a batch because they have waited, although the server is not busy any more.
#[tokio::test]
async fn the_next_reply_ends_the_wait_for_others() {
    for (many, scripts) in [(MANY, vec![MANY as usize]), (FEW, vec![1; FEW as usize])] {
        let (mut calls, mut server) = busy(BUSY).await;
        calls.gather(Some(BUSY));
        (100..100 + many).for_each(|op| calls.submit(OpId(op), count(op), LONG));
        assert_eq!(sent(&mut calls, &mut server).await, "");
        reply(&mut server, ":0").await;
        assert_eq!(answer(&mut calls).await.0, 1);
        assert_eq!(sizes(&sent(&mut calls, &mut server).await), scripts);
        for op in 2..=BUSY as u64 {
            reply(&mut server, ":0").await;
            assert_eq!(answer(&mut calls).await.0, op);
        }
        (200..200 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
        let after = sizes(&sent(&mut calls, &mut server).await);
        assert_eq!(after, vec![1; MANY as usize], "of those nobody has waited");
    }
}

#[tokio::test]
async fn with_less_on_its_way_nobody_waits_for_others() {
    let (mut calls, mut server) = busy(BUSY - 1).await;
    calls.gather(Some(BUSY));
    (100..100 + MANY).for_each(|op| calls.submit(OpId(op), count(op), LONG));
    assert_eq!(sizes(&sent(&mut calls, &mut server).await), vec![1; MANY as usize]);
}

/// A frozen server replies to nothing. Calls that wait for it time out all the same.
#[tokio::test(start_paused = true)]
async fn what_waits_for_others_is_given_up_in_time() {
    let (mut calls, mut server) = busy(BUSY).await;
    calls.gather(Some(BUSY));
    (100..103).for_each(|op| calls.submit(OpId(op), count(op), Duration::from_secs(1)));
    assert_eq!(sent(&mut calls, &mut server).await, "");
    for (op, outcome) in answers(&mut calls, 3).await {
        assert!(op >= 100 && matches!(outcome, Outcome::NotExecuted(_)), "{op}: {outcome:?}");
    }
    assert_eq!(sent(&mut calls, &mut server).await, "");
}

#[tokio::test]
async fn calls_that_go_apart_wait_for_nobody() {
    let (mut calls, mut server) = busy(BUSY).await;
    many_alone(&mut calls, &mut server).await;
    reply(&mut server, "-NOPERM").await;
    sent(&mut calls, &mut server).await;
    calls.gather(Some(BUSY));
    (200..200 + BUSY as u64).for_each(|op| calls.submit(OpId(op), echo("x"), LONG));
    calls.submit(OpId(300), count(300), LONG);
    assert!(sent(&mut calls, &mut server).await.contains("key300"));
}

/// Only calls of scripts that the batch script includes are part of a batch.
#[tokio::test]
async fn scripts_of_another_kind_go_by_themselves() {
    let (mut calls, mut server) = busy(BUSY).await;
    (100..100 + MANY).for_each(|op| calls.submit(OpId(op), echo("x"), LONG));
    let sent = sent(&mut calls, &mut server).await;
    assert_eq!(sent.matches(&ECHO.digest()).count() as u64, MANY);
}
