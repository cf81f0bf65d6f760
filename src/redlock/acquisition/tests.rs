//! A majority of in-memory servers, on a paused clock.

use super::*;

use std::time::Duration;

use crate::InMemoryServer;
use crate::LockClient;
use crate::Redlock;

const NAME: &str = "orders:42";
const LEASE: Duration = Duration::from_secs(10);

fn servers() -> [InMemoryServer; 3] {
    std::array::from_fn(|_| InMemoryServer::new())
}

/// A client of a server, which starts so long after the others.
async fn client(place: usize, server: &InMemoryServer, late: Duration) -> LockClient {
    tokio::time::sleep(late).await;
    let client = LockClient::builder().in_memory(server).deployment(format!("server {place}"));
    client.lease(LEASE).connect().await.unwrap()
}

fn redlock(clients: &[LockClient]) -> Redlock {
    let redlock = Redlock::new(clients.iter().cloned()).unwrap();
    assert_eq!(redlock.assume_fresh(), clients.len());
    redlock
}

async fn clients(servers: &[InMemoryServer]) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for (place, server) in servers.iter().enumerate() {
        clients.push(client(place, server, Duration::ZERO).await);
    }
    clients
}

fn begin(redlock: &Redlock, options: LockOptions) -> MajorityAcquisition<'_> {
    MajorityAcquisition::begin(&redlock.servers, NAME, options).unwrap()
}

/// Everything that is under way.
async fn let_it_settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_began_at_different_times_have_one_clock() {
    let servers = servers();
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut clients = Vec::new();
        for place in order {
            clients.push(client(place, &servers[place], LEASE * 6).await);
        }
        let redlock = redlock(&clients);
        let guard = redlock.try_lock(NAME).await.unwrap().expect("it is free");
        let remaining = guard.valid_until().remaining();
        assert!(remaining > LEASE / 2 && remaining <= LEASE, "{remaining:?}");
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn final_terms_do_not_take_a_hold_on_a_server_that_was_started_meanwhile() {
    let servers = servers();
    servers[2].set_reachable(false);
    let clients = {
        let mut clients = clients(&servers[..2]).await;
        let last = LockClient::builder().in_memory(&servers[2]).deployment("server 2");
        clients.push(last.lease(LEASE).connect_lazy().unwrap());
        clients
    };
    let redlock = Redlock::new(clients).unwrap();
    assert_eq!(redlock.assume_fresh(), 2);
    for is_restarted in [false, true] {
        let call = begin(&redlock, LockOptions::new().lease(LEASE).wait(Duration::ZERO));
        let MajorityRound::Taken(guards) = call.at_once().await.unwrap() else { panic!("free") };
        if is_restarted {
            servers[0].restart();
            let_it_settle().await;
        }
        let settled = call.settle(guards).await.unwrap();
        assert_eq!(settled.is_err(), is_restarted, "{settled:?}");
        drop(settled);
        let_it_settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_not_taken_is_no_holder() {
    let servers = servers();
    let clients = clients(&servers).await;
    let redlock = redlock(&clients);
    // The counter of the first server is ahead.
    for _ in 0..5 {
        clients[0].mutex(NAME).unwrap().lock().await.unwrap().unlock().await.unwrap();
    }
    let call = begin(&redlock, LockOptions::new().wait(Duration::ZERO));
    let MajorityRound::Taken(guards) = call.at_once().await.unwrap() else { panic!("free") };
    servers[1].set_answering(false);
    servers[2].set_answering(false);
    let tally = call.settle(guards).await.unwrap().expect_err("only one has the token");
    let error = call.is_over(&tally, &mut call.since.clone()).unwrap_err();
    let Error::Unavailable { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.contains("1 of 3 servers") && cause.contains("no token"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_the_middle_of_a_round_is_no_outage() {
    let servers = servers();
    let (ours, theirs) = (clients(&servers).await, clients(&servers).await);
    let (redlock, held) = (redlock(&ours), redlock(&theirs));
    let held = held.lock(NAME).await.unwrap();
    for (server, client) in servers.iter().zip(&ours) {
        server.client(client).set_reply_delay(Duration::from_millis(40));
    }
    for wait in (80..200).cycle().take(300) {
        let asked = redlock.try_lock_for(NAME, Duration::from_millis(wait)).await;
        assert!(asked.expect("its holder is the only reason").is_err());
    }
    assert!(held.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_asked_too_late_is_not_called_silent() {
    let servers = servers();
    let ours = clients(&servers).await;
    let redlock = redlock(&ours);
    servers[0].client(&ours[0]).set_reply_delay(Duration::from_millis(40));
    servers[1].set_reachable(false);
    servers[2].set_reachable(false);
    let_it_settle().await;
    for wait in (80..200).cycle().take(300) {
        let asked = redlock.try_lock_for(NAME, Duration::from_millis(wait)).await;
        let Err(Error::Unavailable { cause, .. }) = asked else { panic!("{asked:?}") };
        assert!(cause.starts_with("1 of 3 servers answered and count"), "{cause}");
        assert!(!cause.contains("no answer came in time"), "{cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_has_some_time() {
    let clients = clients(&servers()).await;
    let limited = |limit| {
        let builder = clients.iter().cloned().fold(Redlock::builder(), |all, one| all.server(one));
        builder.attempt_limit(limit).build()
    };
    let refused = limited(Duration::from_micros(999)).unwrap_err().to_string();
    assert!(refused.contains("attempt_limit") && refused.contains("1ms or more"), "{refused}");
    assert!(limited(Duration::from_millis(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn servers_that_have_lost_their_data_are_no_majority_for_another() {
    let servers = servers();
    let ours = redlock(&clients(&servers).await);
    let theirs = redlock(&clients(&servers).await);
    let held = ours.lock(NAME).await.unwrap();
    let until = held.valid_until();
    servers[0].restart();
    servers[1].restart();
    let asked = theirs.try_lock_for(NAME, LEASE / 4).await;
    assert!(!until.is_past());
    assert!(matches!(&asked, Err(Error::Unavailable { .. })), "{asked:?}");
    drop(held);
    theirs.lock(NAME).await.unwrap().unlock().await.unwrap();
    assert!(until.is_past(), "they count after the longest lease");
}
