//! Runs the program of this package, each time with a server of its own.

#[path = "../../../src/backend/redis/tests/redis_server.rs"]
#[allow(dead_code, reason = "shared with other tests, which use all of it")]
mod redis_server;

use std::process::Command;
use std::process::Output;

use redis_server::RedisServer;

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_processes")).args(words).output().expect("the program starts")
}

#[track_caller]
fn assert_success(done: &Output) {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        done.status.success(),
        "{}\n{}\n{}",
        done.status,
        said(&done.stdout),
        said(&done.stderr)
    );
}

fn fork(scenario: &str) {
    let server = RedisServer::start();
    assert_success(&run(&["fork", scenario, &server.url()]));
}

#[test]
fn in_a_child_a_client_with_a_thread_is_closed() {
    fork("thread");
    fork("thread-on-threads");
}

#[test]
fn in_a_child_a_client_on_the_current_runtime_is_closed() {
    fork("current");
    fork("current-on-threads");
}

#[test]
fn in_a_child_that_goes_on_in_the_same_future_a_client_is_closed() {
    fork("inside");
}

#[test]
fn a_child_that_drops_the_runtime_leaves_the_parents_connections_alone() {
    fork("runtime");
}

#[test]
fn a_child_that_drives_the_runtime_renews_nothing() {
    fork("renewals");
}

#[test]
fn a_child_is_not_caught_in_what_other_threads_were_doing() {
    fork("busy");
}

#[test]
fn in_a_child_a_client_in_memory_is_closed() {
    fork("memory");
}

#[test]
fn in_a_child_a_client_for_threads_is_closed() {
    fork("blocking");
}

/// Twenty times each, since it is a race if it is one at all.
fn end(scenario: &str) {
    let server = RedisServer::start();
    for time in 1..=20 {
        assert_success(&run(&["end", scenario, &server.url()]));
        let left: bool = redis::cmd("EXISTS").arg("ended").query(&mut server.connection()).unwrap();
        assert!(!left, "{scenario}: the lock is still taken after process {time}");
    }
}

#[test]
fn a_guard_that_is_dropped_at_the_end_of_main_is_released() {
    end("drop");
}

#[test]
fn a_guard_that_is_dropped_before_exit_is_released() {
    end("exit");
}

#[test]
fn a_guard_that_is_dropped_by_a_task_is_released() {
    end("worker");
}

#[test]
fn a_guard_that_is_dropped_by_a_task_before_exit_is_released() {
    end("worker-exit");
}

#[test]
fn a_guard_that_is_dropped_by_a_thread_that_does_not_end_is_released() {
    end("thread");
}

#[test]
fn a_guard_in_a_thread_local_is_released_whenever_that_is_dropped() {
    end("thread-local");
}

#[test]
fn a_lock_that_is_given_up_at_the_end_of_main_is_taken_back() {
    end("cancel");
}
