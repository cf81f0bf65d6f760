//! The rules of the map, of redirections and of subscriptions, each at its limits. Time is paused,
//! and there is no server.

use super::*;

use crate::backend::Call;
use crate::backend::Routes;
use crate::backend::ScriptCall;
use crate::backend::redis::cluster::REDIRECTIONS;
use crate::backend::redis::cluster::RoutedCall;
use crate::backend::redis::cluster::SPARE;
use crate::backend::redis::cluster::scout::KnownNode;
use crate::backend::redis::cluster::slots::SlotMap;
use crate::backend::redis::config::Access;
use crate::backend::redis::tests::driver::ECHO;
use crate::backend::woken::Woken;
use crate::base::name::slot_of;
use crate::settings::address_map::AddressMap;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A reply to CLUSTER SLOTS: first slot, last slot, and the port of the node that has them.
fn map(ranges: &[(u16, u16, u16)]) -> SlotMap {
    let entry = |(first, last, port): &(u16, u16, u16)| {
        let node =
            Value::List(vec![Value::Text("127.0.0.1".to_owned()), Value::Int((*port).into())]);
        Value::List(vec![Value::Int((*first).into()), Value::Int((*last).into()), node])
    };
    SlotMap::read(&Value::List(ranges.iter().map(entry).collect()), &nowhere(1)).expect("a map")
}

/// Two connected nodes, the first of which has all slots.
fn two_nodes_up() -> (ClusterBackend, [ServerId; 2]) {
    let mut cluster = without_servers();
    cluster.adopt(&[map(&[(0, 16_383, 1)])]);
    let nodes = [1, 2].map(|port| cluster.node_at(&nowhere(port)));
    for node in nodes {
        cluster.on_up(node, ServerInfo::default());
        cluster.nodes.get_mut(&node).unwrap().pubsub_up = true;
    }
    cluster.ready.clear();
    (cluster, nodes)
}

fn failed(kind: FailureKind, words: &str) -> Failure {
    Failure::new(kind, words)
}

#[tokio::test(start_paused = true)]
async fn a_redirection_counts_until_other_nodes_have_heard_of_it_and_no_longer() {
    let (mut cluster, [first, second]) = two_nodes_up();
    let before = map(&[(0, 16_383, 1)]);
    cluster.move_slot(7, second);
    assert_eq!((cluster.routes[7], cluster.routes[8]), (second, first));
    for (time, expected) in
        [(Duration::ZERO, second), (4_999 * MS, second), (MS, first), (SECOND, first)]
    {
        tokio::time::advance(time).await;
        cluster.adopt(std::slice::from_ref(&before));
        assert_eq!(cluster.routes[7], expected, "after another {time:?}");
    }
    assert!(cluster.moved.is_empty(), "nothing is remembered for ever");
    // A node that is not connected gets no slots, whatever a redirection said.
    cluster.move_slot(7, second);
    cluster.on_down(second, "cut".to_owned());
    cluster.adopt(&[before]);
    assert_eq!(cluster.routes[7], first);
}

/// This happens when all nodes of a cluster are replaced one by one, or when a name resolves to
/// some of its nodes.
#[tokio::test(start_paused = true)]
async fn only_names_that_lead_to_another_cluster_lead_there() {
    let (mut cluster, [first, second]) = two_nodes_up();
    let before = Arc::clone(&cluster.routes);
    cluster.on_seeds_moved(&[]);
    cluster.on_seeds_moved(&[map(&[(0, 8_000, 1), (8_001, 16_383, 7)])]);
    assert_eq!((cluster.routes == before, cluster.is_up(second)), (true, true), "a node of both");
    cluster.asks(1);
    cluster.on_seeds_moved(&[map(&[(0, 16_383, 7)])]);
    let new = cluster.routes[0];
    assert!(cluster.routes.iter().all(|server| *server == new) && ![first, second].contains(&new));
    assert!(!cluster.is_up(first) && !cluster.is_up(second), "left at once");
    assert!(cluster.refresh.asked.is_empty() && cluster.moved.is_empty());
    let mut unknown = without_servers();
    unknown.on_seeds_moved(&[map(&[(0, 16_383, 7)])]);
    assert!(unknown.routes.is_empty(), "there was none before");
}

#[tokio::test(start_paused = true)]
async fn only_host_names_of_nodes_are_watched() {
    for (seeds, watched) in [
        (&["a.test", "b.test"][..], true),
        (&["a.test", "10.0.0.1"], false),
        (&["10.0.0.1"], false),
        (&["::1"], false),
        (&[], false),
    ] {
        let config = RedisConfig::parse("redis-cluster://a.test").expect("an address");
        let seeds = seeds.iter().map(|host| ((*host).to_owned(), 1)).collect::<Vec<_>>();
        let mut cluster = ClusterBackend::new(config, seeds.clone(), Sharding::Off);
        assert_eq!(cluster.watch.is_some(), watched, "{seeds:?}");
        cluster.close();
        until("closed", &mut cluster, |_, events| {
            events.iter().any(|event| matches!(event, BackendEvent::Closed))
        })
        .await;
    }
}

/// The same address may be announced by one node and given by the user for another.
#[tokio::test(start_paused = true)]
async fn every_known_node_is_asked_once_where_it_can_be_reached() {
    let asked = |cluster: &ClusterBackend| {
        let address = |node: &KnownNode| node.config(&cluster.config).address_in_use();
        cluster.known_nodes().iter().map(address).collect::<Vec<_>>()
    };
    let mut cluster = without_servers();
    cluster.seeds = vec![nowhere(1), nowhere(9)];
    cluster.adopt(&[map(&[(0, 8_000, 1), (8_001, 16_383, 2)])]);
    assert_eq!(asked(&cluster), ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:9"]);
    let access = Access {
        address_map: Some(AddressMap::new(|host, port| (host.to_owned(), port + 8))),
        ..Access::default()
    };
    cluster.config =
        RedisConfig::with_access("redis-cluster://127.0.0.1:1", &access).expect("an address");
    let mapped = [
        "127.0.0.1:1, mapped to 127.0.0.1:9",
        "127.0.0.1:2, mapped to 127.0.0.1:10",
        "127.0.0.1:1",
    ];
    assert_eq!(asked(&cluster), mapped);
}

#[tokio::test(start_paused = true)]
async fn the_map_is_asked_for_again_and_again() {
    let (mut cluster, [first, _]) = two_nodes_up();
    let pause = |cluster: &mut ClusterBackend| {
        cluster.begin_refresh();
        cluster.refresh.at.expect("another one") - Instant::now()
    };
    assert_eq!(pause(&mut cluster), SECOND, "all is well");
    assert_eq!(cluster.refresh.asked.len(), 2, "every primary is asked");
    assert_eq!(pause(&mut cluster), 50 * MS, "the answers are still to come");
    cluster.refresh.asked.clear();
    cluster.on_down(first, "cut".to_owned());
    assert_eq!(pause(&mut cluster), 250 * MS, "one that has slots is away");
    cluster.refresh.asked.clear();
    cluster.on_up(first, ServerInfo::default());
    assert_eq!(pause(&mut cluster), SECOND, "and back");
    cluster.refresh.asked.clear();
    cluster.adopt(&[map(&[(0, 99, 1)])]);
    assert_eq!(pause(&mut cluster), SECOND, "nobody who could be asked has the other slots");
}

#[tokio::test(start_paused = true)]
async fn at_most_five_nodes_are_asked_for_the_map() {
    let mut cluster = without_servers();
    cluster.adopt(&[map(&[(0, 16_383, 1)])]);
    for port in 1..=9 {
        let node = cluster.node_at(&nowhere(port));
        cluster.on_up(node, ServerInfo::default());
    }
    cluster.begin_refresh();
    assert_eq!((cluster.refresh.asked.len(), cluster.refresh.expected), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_map_is_believed_when_more_than_half_of_those_asked_have_answered() {
    let asked_and_answered = |asked: u16, answers: u16| {
        let (mut cluster, [_, second]) = two_nodes_up();
        let ops: Vec<OpId> = (1..=asked).map(|node| cluster.asks(node)).collect();
        cluster.refresh.expected = ops.len();
        for (number, op) in ops.into_iter().enumerate() {
            let outcome = if number < usize::from(answers) {
                Outcome::Done(slots_at(Some(2)))
            } else {
                Outcome::Unknown(failed(FailureKind::Link, "mute"))
            };
            cluster.on_replied(second, op, outcome);
            if cluster.routes[0] == second {
                return Some(number + 1);
            }
        }
        None
    };
    // How many are asked, how many answer, and after how many answers the map is adopted.
    for (asked, answers, believed) in [
        (1, 1, Some(1)),
        (2, 2, Some(2)),
        (2, 1, Some(2)),
        (3, 2, Some(2)),
        (3, 1, Some(3)),
        (5, 5, Some(3)),
        (3, 0, None),
    ] {
        assert_eq!(asked_and_answered(asked, answers), believed, "{answers} of {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_hints_at_another_map_has_it_asked_for_early() {
    let not = |kind, words| Outcome::NotExecuted(failed(kind, words));
    let table = [
        (not(FailureKind::Link, "not connected"), true),
        (Outcome::Unknown(failed(FailureKind::Link, "cut")), true),
        (not(FailureKind::ReadOnly, "READONLY"), true),
        (not(FailureKind::Busy, "CLUSTERDOWN Hash slot not served"), true),
        (not(FailureKind::Busy, "BUSY"), false),
        (not(FailureKind::Busy, "LOADING"), false),
        (not(FailureKind::SlotMoving, "TRYAGAIN"), false),
        (not(FailureKind::OutOfMemory, "OOM"), false),
        (not(FailureKind::Denied, "NOPERM"), false),
        (Outcome::Unknown(failed(FailureKind::Refused, "strange")), false),
        (Outcome::Done(Value::Nil), false),
    ];
    for (outcome, early) in table {
        let (mut cluster, [first, _]) = two_nodes_up();
        cluster.begin_refresh();
        let soon = Instant::now() + 50 * MS;
        cluster.on_replied(first, OpId(1), outcome.clone());
        assert_eq!(cluster.refresh.at.is_some_and(|at| at <= soon), early, "{outcome:?}");
        let told = |event: &BackendEvent| matches!(event, BackendEvent::Replied { outcome: told, .. } if *told == outcome);
        assert!(cluster.ready.iter().any(told), "whoever asked hears of it: {outcome:?}");
    }
}

impl ClusterBackend {
    /// Registers a script call for a key in this slot.
    fn travels(
        &mut self,
        op: u64,
        slot: u16,
        redirections: u32,
        left: Duration,
        asking: bool,
    ) -> OpId {
        let call = Call::Script(ScriptCall::new(&ECHO, ["key"].into(), ["x"].into()).into());
        let deadline = Instant::now() + left;
        self.calls.insert(OpId(op), RoutedCall { call, deadline, redirections, slot, asking });
        OpId(op)
    }

    /// The outcome of a call, if there is one.
    fn end_of(&self, op: OpId) -> Option<(ServerId, Outcome<Value>)> {
        self.ready.iter().find_map(|event| match event {
            BackendEvent::Replied { op: of, server, outcome } if *of == op => {
                Some((*server, outcome.clone()))
            }
            _ => None,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirected_call_goes_on_within_its_own_limits() {
    let (own_time, none) = (SECOND, Duration::ZERO);
    // The reply, redirections before it, time left, whether the other node is connected; and
    // whether the call is sent on.
    let table = [
        ("MOVED 7 127.0.0.1:2", 0, own_time, true, true),
        ("ASK 7 127.0.0.1:2", 0, own_time, true, true),
        ("MOVED 7 127.0.0.1:2", REDIRECTIONS - 1, own_time, true, true),
        ("MOVED 7 127.0.0.1:2", REDIRECTIONS, own_time, true, false),
        ("MOVED 7 127.0.0.1:2", 0, none, true, false),
        ("MOVED 7 127.0.0.1:2", 0, own_time, false, false),
        ("ASK 7 127.0.0.1:2", 0, own_time, false, false),
        ("MOVED nonsense", 0, own_time, true, false),
    ];
    for (words, before, left, connected, goes_on) in table {
        let (mut cluster, [first, second]) = two_nodes_up();
        if !connected {
            cluster.on_down(second, "cut".to_owned());
            cluster.ready.clear();
        }
        let op = cluster.travels(1, 7, before, left, false);
        cluster.on_replied(first, op, Outcome::NotExecuted(failed(FailureKind::Redirected, words)));
        let row = format!("{words}, {before} before, {left:?} left, connected: {connected}");
        let travelling = cluster.calls.get(&op).map(|call| (call.redirections, call.asking));
        if goes_on {
            assert_eq!(travelling, Some((before + 1, words.starts_with("ASK"))), "{row}");
            assert_eq!(cluster.end_of(op), None, "{row}");
        } else {
            let Some((_, Outcome::NotExecuted(failure))) = cluster.end_of(op) else {
                panic!("{row}")
            };
            let kind = if words.contains("nonsense") {
                FailureKind::Redirected
            } else {
                FailureKind::SlotMoving
            };
            assert_eq!(
                (failure.kind, failure.message.contains(words)),
                (kind, true),
                "{row}: {failure}"
            );
        }
        // ASK concerns only this one call.
        let moved = words.starts_with("MOVED 7");
        assert_eq!(cluster.routes[7], if moved { second } else { first }, "{row}");
        let told = cluster
            .ready
            .iter()
            .any(|event| matches!(event, BackendEvent::Routes(Routes::Slots { .. })));
        assert_eq!(told, moved, "{row}");
        assert_eq!(cluster.refresh.at.is_some(), moved || !connected, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn during_the_close_a_redirection_is_not_followed() {
    let (mut cluster, [first, _]) = two_nodes_up();
    let op = cluster.travels(1, 7, 0, SECOND, false);
    cluster.closing = true;
    let moved = failed(FailureKind::Redirected, "MOVED 7 127.0.0.1:2");
    cluster.on_replied(first, op, Outcome::NotExecuted(moved.clone()));
    assert_eq!(cluster.end_of(op), Some((first, Outcome::NotExecuted(moved))));
}

/// A primary that was frozen and replaced may reply to calls.
#[tokio::test(start_paused = true)]
async fn an_answer_from_a_node_that_has_lost_the_slot_proves_nothing() {
    // Which node replies, with ASKING or not, a script or not; and whether the reply is believed.
    for (node, asking, script, believed) in [
        (0, false, true, true),
        (1, false, true, false),
        (1, true, true, true),
        (1, false, false, true),
    ] {
        let (mut cluster, nodes) = two_nodes_up();
        let op = if script { cluster.travels(1, 7, 0, SECOND, asking) } else { OpId(1) };
        cluster.on_replied(nodes[node], op, Outcome::Done(Value::Int(1)));
        let (server, outcome) = cluster.end_of(op).expect("an answer");
        assert_eq!(server, nodes[node]);
        assert_eq!(matches!(outcome, Outcome::Done(_)), believed, "{node}, {asking}, {script}");
        assert!(
            believed || matches!(outcome, Outcome::Unknown(_)),
            "it may well have been executed"
        );
        assert!(cluster.calls.is_empty(), "answered once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_slots_is_kept_for_a_while_and_one_that_has_some_again_for_good() {
    let (mut cluster, [first, second]) = two_nodes_up();
    cluster.leave_unused();
    let leaves = |cluster: &ClusterBackend| cluster.nodes[&second].leaving;
    tokio::time::advance(SPARE).await;
    cluster.leave_unused();
    assert!(!leaves(&cluster), "not yet");
    cluster.adopt(&[map(&[(0, 99, 2), (100, 16_383, 1)])]);
    assert_eq!(cluster.nodes[&second].unused_since, None);
    cluster.adopt(&[map(&[(0, 16_383, 1)])]);
    tokio::time::advance(SPARE).await;
    cluster.leave_unused();
    assert!(!leaves(&cluster), "it counts from when it had the last of them");
    tokio::time::advance(MS).await;
    cluster.leave_unused();
    assert!(leaves(&cluster) && !cluster.nodes[&first].leaving);
    assert_ne!(cluster.node_at(&nowhere(2)), second, "whoever comes back there is another one");
}

fn has_lost(cluster: &ClusterBackend) -> bool {
    cluster.ready.iter().any(|event| matches!(event, BackendEvent::SubscriptionLost { .. }))
}

/// In case the notice about a moved slot was lost.
#[tokio::test(start_paused = true)]
async fn sharded_subscriptions_are_made_again_every_ten_seconds() {
    let (mut cluster, [first, _]) = two_nodes_up();
    let (sharded, plain): (Arc<str>, Arc<str>) = ("sharded".into(), "plain".into());
    cluster.subscribe(Arc::clone(&sharded), true, 1);
    cluster.subscribe(Arc::clone(&plain), false, 2);
    let renewing =
        |cluster: &ClusterBackend, channel: &str| cluster.subscriptions[channel].renewing;
    let look = |cluster: &mut ClusterBackend| {
        cluster.poll_timers(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    };
    tokio::time::advance(10 * SECOND - MS).await;
    look(&mut cluster);
    assert!(!renewing(&cluster, &sharded));
    tokio::time::advance(MS).await;
    look(&mut cluster);
    assert!(renewing(&cluster, &sharded) && !renewing(&cluster, &plain));
    cluster.on_subscribed(first, Arc::clone(&sharded), 1, Ok(()));
    let confirmed = |event: &BackendEvent| matches!(event, BackendEvent::Subscribed { .. });
    assert!(
        !renewing(&cluster, &sharded) && !cluster.ready.iter().any(confirmed),
        "nobody need hear of it"
    );
    tokio::time::advance(10 * SECOND).await;
    look(&mut cluster);
    assert!(renewing(&cluster, &sharded), "and again");
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_subscription_that_is_answered() {
    let (ok, moved) = (Ok(()), || Err(failed(FailureKind::Redirected, "MOVED 7 127.0.0.1:2")));
    let (passing, denied) =
        (|| Err(failed(FailureKind::Link, "cut")), || Err(failed(FailureKind::Denied, "NOPERM")));
    // The result, whether it was a repeated request; the failure reported to the engine, whether a
    // loss is reported, whether the subscription stays.
    let table = [
        (ok.clone(), false, Some(None), false, true),
        (ok, true, None, false, true),
        (moved(), false, Some(Some(FailureKind::SlotMoving)), false, false),
        (moved(), true, None, true, false),
        (passing(), false, Some(Some(FailureKind::SlotMoving)), false, false),
        (passing(), true, None, true, false),
        (denied(), false, Some(Some(FailureKind::Denied)), false, true),
        (denied(), true, Some(Some(FailureKind::Denied)), false, true),
    ];
    for (result, renewing, heard, lost, stays) in table {
        let (mut cluster, [first, second]) = two_nodes_up();
        let channel: Arc<str> = "channel".into();
        cluster.subscribe(Arc::clone(&channel), true, 7);
        cluster.subscriptions.get_mut(&channel).unwrap().renewing = renewing;
        // Answers to earlier requests, or from another node, are ignored.
        cluster.on_subscribed(first, Arc::clone(&channel), 6, denied());
        cluster.on_subscribed(second, Arc::clone(&channel), 7, denied());
        assert!(cluster.ready.is_empty());
        cluster.on_subscribed(first, Arc::clone(&channel), 7, result.clone());
        let told = cluster.ready.iter().find_map(|event| match event {
            BackendEvent::Subscribed { result, .. } => {
                Some(result.as_ref().err().map(|failure| failure.kind))
            }
            _ => None,
        });
        let row = format!("{result:?}, renewing: {renewing}");
        assert_eq!((told, has_lost(&cluster)), (heard, lost), "{row}");
        assert_eq!(cluster.subscriptions[&channel].at.is_some(), stays, "{row}");
        assert_eq!(cluster.refresh.at.is_some(), !stays, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sharded_subscription_follows_its_slot_and_a_plain_one_does_not() {
    let (mut cluster, [_, second]) = two_nodes_up();
    let channel: Arc<str> = "channel".into();
    for (sharded, lost) in [(false, false), (true, true)] {
        cluster.ready.clear();
        cluster.adopt(&[map(&[(0, 16_383, 1)])]);
        cluster.subscribe(Arc::clone(&channel), sharded, 1);
        cluster.ready.clear();
        cluster.move_slot(slot_of(&channel), second);
        assert_eq!(has_lost(&cluster), lost, "sharded: {sharded}");
        cluster.moved.clear();
    }
    assert_eq!(cluster.subscriptions[&channel].at, Some(second));
}

/// The subscriptions end with their own connection only.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_takes_its_own_subscriptions_along() {
    let (mut cluster, [first, second]) = two_nodes_up();
    cluster.subscribe("one".into(), true, 1);
    cluster.on_pubsub_down(second);
    assert!(!has_lost(&cluster));
    cluster.on_pubsub_down(first);
    assert!(has_lost(&cluster) && cluster.subscriptions["one"].at.is_none());
    cluster.on_pubsub_up(first);
    assert_eq!(cluster.subscriptions["one"].at, Some(first));
    cluster.ready.clear();
    cluster.on_subscription_lost(second, "one".into());
    assert!(!has_lost(&cluster), "it is not there");
    cluster.on_subscription_lost(first, "one".into());
    assert!(has_lost(&cluster));
}

/// Failures of a node without slots are not reported.
#[tokio::test(start_paused = true)]
async fn a_failed_connection_is_told_if_the_node_has_slots() {
    let (mut cluster, [first, second]) = two_nodes_up();
    for (node, told) in [(first, true), (second, false)] {
        cluster.ready.clear();
        cluster.refresh.at = None;
        cluster.on_connect_failed(node, failed(FailureKind::Link, "refused"));
        let event =
            cluster.ready.iter().any(|event| matches!(event, BackendEvent::ConnectFailed { .. }));
        assert_eq!(event, told);
        assert!(cluster.refresh.at.is_some(), "the map may say why");
    }
}

fn call_of(key: &str) -> Call {
    Call::Script(ScriptCall::new(&ECHO, [key].into(), ["x"].into()).into())
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_to_its_node_unless_that_one_is_left() {
    let (mut cluster, [first, second]) = two_nodes_up();
    cluster.submit(OpId(1), first, call_of("key"), SECOND);
    let call = &cluster.calls[&OpId(1)];
    assert_eq!((call.deadline, call.slot), (Instant::now() + SECOND, slot_of("key")));
    assert_eq!((call.redirections, call.asking), (0, false));
    cluster.submit(OpId(2), first, Call::Ping, SECOND);
    assert_eq!(cluster.calls.len(), 1, "what has no key is not sent on");
    cluster.submit(OpId(3), first, call_of("key"), Duration::MAX);
    assert!(cluster.ready.is_empty(), "they are on their way");

    let is_refused = |cluster: &ClusterBackend, op| match cluster.end_of(OpId(op)) {
        Some((_, Outcome::NotExecuted(failure))) => failure.kind == FailureKind::Link,
        _ => false,
    };
    cluster.submit(OpId(4), ServerId(99), call_of("key"), SECOND);
    assert!(is_refused(&cluster, 4), "nobody knows it");
    cluster.nodes.get_mut(&second).unwrap().leaving = true;
    cluster.submit(OpId(5), second, call_of("key"), SECOND);
    assert!(is_refused(&cluster, 5) && !cluster.is_up(second), "it is being left");
    cluster.closing = true;
    cluster.submit(OpId(6), first, call_of("key"), SECOND);
    assert!(is_refused(&cluster, 6), "all of them are");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_closed_is_forgotten_and_told_to_be_down_if_it_was_up() {
    let (mut cluster, [first, second]) = two_nodes_up();
    cluster.on_down(second, "cut".to_owned());
    for (node, told) in [(first, true), (second, false)] {
        cluster.ready.clear();
        cluster.on_node(node, BackendEvent::Closed);
        let down = |event: &BackendEvent| matches!(event, BackendEvent::Down { server, .. } if *server == node);
        assert_eq!(cluster.ready.iter().any(down), told);
        assert!(!cluster.nodes.contains_key(&node));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_now_is_done_and_the_alarm_is_set_for_what_is_next() {
    let mut look = std::task::Context::from_waker(std::task::Waker::noop());
    let (mut cluster, _) = two_nodes_up();
    let now = Instant::now();
    cluster.refresh.at = Some(now);
    cluster.poll_timers(&mut look);
    assert_eq!(cluster.refresh.asked.len(), 2);
    assert_eq!(cluster.alarm.deadline(), now + SECOND);
    (cluster.refresh.at, cluster.renew_at) = (None, now);
    cluster.poll_timers(&mut look);
    assert_eq!(cluster.renew_at, now + 10 * SECOND);
    assert_eq!(cluster.alarm.deadline(), now + 10 * SECOND);
}

/// All requests but a call wake the task that polls the backend. After a call the caller polls it.
#[tokio::test(start_paused = true)]
async fn each_request_but_a_call_wakes_the_task_that_polls() {
    type Wish = fn(&mut ClusterBackend, ServerId);
    let wishes: [(usize, Wish); 5] = [
        (0, |cluster, node| cluster.submit(OpId(1), node, call_of("key"), SECOND)),
        (1, |cluster, _| cluster.subscribe("news".into(), false, 1)),
        (1, |cluster, _| cluster.unsubscribe("old".into(), false)),
        (1, |cluster, node| cluster.reconnect(node)),
        (1, |cluster, _| cluster.close()),
    ];
    for (number, (wakes, wish)) in wishes.into_iter().enumerate() {
        let (mut cluster, [first, _]) = two_nodes_up();
        cluster.subscribe("old".into(), false, 1);
        let woken = Arc::new(Woken::default());
        cluster.waker = Some(Arc::clone(&woken).into());
        wish(&mut cluster, first);
        assert_eq!(woken.times(), wakes, "{number}");
    }
}

/// While no slot is assigned, or a node with slots is not connected, the map is requested more
/// often.
#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_map_is_in_trouble() {
    let mut cluster = without_servers();
    cluster.begin_refresh();
    assert!(cluster.refresh.at.expect("another one") <= Instant::now() + 250 * MS);
}

#[tokio::test]
async fn scouts_are_sent_again_while_nobody_answers() {
    let mut cluster = without_servers();
    cluster.refresh.at = Some(Instant::now());
    let failed = |event: &&BackendEvent| {
        matches!(event, BackendEvent::ConnectFailed { server: ServerId::ONLY, .. })
    };
    until("told twice", &mut cluster, |_, events| events.iter().filter(failed).count() >= 2).await;
}

/// If none of the nodes that were asked has answered, others may know.
#[tokio::test(start_paused = true)]
async fn a_scout_is_sent_when_nobody_who_was_asked_has_answered() {
    let (mut cluster, [first, _]) = two_nodes_up();
    let op = cluster.asks(1);
    cluster.refresh.expected = 1;
    let mute = || Outcome::Unknown(failed(FailureKind::Link, "mute"));
    cluster.on_replied(first, op, mute());
    assert!(cluster.refresh.scout.is_some());
    // While others may still answer, they are waited for.
    let (mut cluster, [first, _]) = two_nodes_up();
    let [op, _] = [cluster.asks(1), cluster.asks(2)];
    cluster.refresh.expected = 2;
    cluster.on_replied(first, op, mute());
    assert!(cluster.refresh.scout.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_next_look_is_not_before_the_next_scout_may_go() {
    let mut cluster = without_servers();
    for _ in 0..10 {
        tokio::time::advance(SECOND).await;
        cluster.begin_refresh();
        assert!(cluster.refresh.scout.take().is_some());
    }
    cluster.begin_refresh();
    assert!(cluster.refresh.scout.is_none());
    assert!(cluster.refresh.at.expect("another one") > Instant::now() + 400 * MS);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_subscribed_at_a_node_without_its_connection() {
    let (mut cluster, [first, _]) = two_nodes_up();
    cluster.on_pubsub_down(first);
    cluster.subscribe("one".into(), true, 1);
    assert_eq!(cluster.subscriptions["one"].at, None);
    cluster.on_pubsub_up(first);
    assert_eq!(cluster.subscriptions["one"].at, Some(first));
    // The engine repeats a lost subscription, and must get the answer.
    cluster.subscriptions.get_mut("one").unwrap().renewing = true;
    cluster.on_subscription_lost(first, "one".into());
    assert!(!cluster.subscriptions["one"].renewing);
}

#[tokio::test(start_paused = true)]
async fn locks_are_announced_in_shards_if_every_node_is_known_to_do_so() {
    for (known, told) in [(None, false), (Some(false), false), (Some(true), true)] {
        let (mut cluster, [_, second]) = two_nodes_up();
        cluster.sharded = known;
        cluster.move_slot(7, second);
        let of_shards = cluster.ready.iter().find_map(|event| match event {
            BackendEvent::Routes(Routes::Slots { sharded, .. }) => Some(*sharded),
            _ => None,
        });
        assert_eq!(of_shards, Some(told), "{known:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_slots_is_left_at_the_next_look_at_the_map() {
    let (mut cluster, [first, second]) = two_nodes_up();
    cluster.begin_refresh();
    tokio::time::advance(SPARE + MS).await;
    cluster.refresh.asked.clear();
    cluster.begin_refresh();
    assert!(cluster.nodes[&second].leaving && !cluster.nodes[&first].leaving);
}

/// The call goes to the other node, so this node must not answer that there is no connection.
#[tokio::test]
async fn a_redirected_call_is_answered_by_the_node_that_it_is_sent_on_to() {
    let (mut cluster, [first, second]) = two_nodes_up();
    let op = cluster.travels(1, 7, 0, SECOND, false);
    let moved = failed(FailureKind::Redirected, "MOVED 7 127.0.0.1:2");
    cluster.on_replied(first, op, Outcome::NotExecuted(moved));
    let answered = |event: &BackendEvent| matches!(event, BackendEvent::Replied { op: of, server, .. } if *of == op && *server == second);
    until("answered", &mut cluster, |_, events| events.iter().any(answered)).await;
}
