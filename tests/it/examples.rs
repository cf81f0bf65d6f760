//! The examples that are services, as processes: what becomes of them at SIGTERM, when a lock is
//! lost, and without a server.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::sync::OnceLock;

use redis::Connection;
use redis_reentrant_lock::LockClient;

use crate::support::ROOT;
use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

const EXAMPLES: [&str; 10] = [
    "axum",
    "blocking",
    "cache_refill",
    "cron_job",
    "fair_lock",
    "migration",
    "payment_worker",
    "rw_lock",
    "semaphore",
    "transfer",
];

/// Where cargo puts the examples. They are built first if nothing has built them.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("a program");
        let profile = own.ancestors().nth(2).expect("the folder of the profile");
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a name");
        let name = if name == "debug" { "dev" } else { name };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--features=blocking,in-memory,rustls", "--profile", name]);
        build.args(EXAMPLES.iter().flat_map(|example| ["--example", example]));
        build.arg("--target-dir").arg(profile.parent().expect("the folder of what is built"));
        let built = build.current_dir(ROOT).status();
        assert!(built.expect("cargo runs").success(), "the examples do not build");
        profile.join("examples")
    })
}

/// A process of an example. Killed when dropped.
struct Example {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Example {
    fn start(name: &str, words: &[&str], url: &str, settings: &[(&str, &str)]) -> Self {
        let mut child = Command::new(folder().join(name))
            .args(words)
            .env("REDIS_URL", url)
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn terminate(&self) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        let id = rustix::process::Pid::from_raw(id).expect("a process id");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
    }

    /// Waits for its end: the exit code, and what it has said since the last line.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("text");
        (self.child.wait().expect("its end").code(), said)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exists(redis: &mut Connection, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(redis).expect("an answer")
}

/// No lock is taken any more.
fn is_free(redis: &mut Connection) -> bool {
    let prefixes = ["example:orders:", "example:invoices:", "example:migration"];
    look::lock_keys(redis).iter().all(|key| !prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

async fn take_away(server: &RedisServer, name: &str) {
    let client = LockClient::connect(server.url()).await.expect("the server is there");
    assert!(client.mutex(name).expect("a name").force_unlock().await.expect("an answer"));
}

// ---- axum

/// The service, its address, and a request in progress that holds its lock.
fn serve(
    server: &RedisServer,
    work_ms: &str,
) -> (Example, String, std::thread::JoinHandle<String>) {
    let settings = [("ADDRESS", "127.0.0.1:0"), ("WORK_MS", work_ms)];
    let mut service = Example::start("axum", &[], &server.url(), &settings);
    let line = service.line();
    let address = line.strip_prefix("serving on http://").expect("its address").to_owned();
    let mut stream = TcpStream::connect(&address).expect("a connection");
    let request = "POST /orders/7/ship HTTP/1.1\r\nHost: example\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut redis = server.connection();
    eventually("the request holds its lock", || exists(&mut redis, "example:orders:7"));
    let answer = std::thread::spawn(move || {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    });
    (service, address, answer)
}

#[test]
fn at_sigterm_a_request_in_progress_is_finished_and_its_lock_released() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let (service, address, answer) = serve(&server, "1500");
    service.terminate();
    eventually("no more requests are taken", || TcpStream::connect(&address).is_err());
    assert!(exists(&mut redis, "example:orders:7"), "the request is in progress");
    let (code, said) = service.end();
    let answer = answer.join().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"order\":7"), "{answer}");
    assert_eq!((code, said.trim()), (Some(0), "ended: no lock was held"));
    assert!(is_free(&mut redis));
}

#[test]
fn what_a_request_that_is_cut_short_holds_is_released() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let (service, address, answer) = serve(&server, "60000");
    service.terminate();
    eventually("no more requests are taken", || TcpStream::connect(&address).is_err());
    service.terminate();
    let (code, said) = service.end();
    assert!(said.contains("cut short") && said.ends_with("ended: 1 lock released\n"), "{said}");
    assert_eq!(code, Some(0));
    assert!(is_free(&mut redis));
    let answer = answer.join().expect("an end");
    assert!(!answer.contains("200 OK"), "{answer}");
}

// ---- payments

fn number(redis: &mut Connection, hash: &str, field: &str) -> u64 {
    let number: Option<u64> =
        redis::cmd("HGET").arg(hash).arg(field).query(redis).expect("an answer");
    number.unwrap_or(0)
}

fn due(redis: &mut Connection) -> usize {
    redis::cmd("SCARD").arg("example:due").query(redis).expect("an answer")
}

fn charges(redis: &mut Connection) -> usize {
    redis::cmd("HLEN").arg("example:charges").query(redis).expect("an answer")
}

#[test]
fn invoices_that_two_workers_pay_at_once_are_charged_once() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    redis::cmd("SADD").arg("example:due").arg(&["1", "2", "3"]).exec(&mut redis).expect("added");
    let workers = [(); 2].map(|()| Example::start("payment_worker", &["4"], &server.url(), &[]));
    for worker in workers {
        assert_eq!(worker.end().0, Some(0));
    }
    assert_eq!((due(&mut redis), charges(&mut redis)), (0, 4));
    assert!(is_free(&mut redis));
}

#[tokio::test]
async fn a_worker_that_loses_its_lock_in_the_middle_does_not_pay_twice() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let settings = [("CHARGE_MS", "1500")];
    let worker = Example::start("payment_worker", &["1"], &server.url(), &settings);
    eventually("it is being charged", || number(&mut redis, "example:attempts", "invoice-1") == 1);
    take_away(&server, "example:invoices:1").await;
    let (code, said) = worker.end();
    assert_eq!((code, said.matches("invoice 1: paid").count()), (Some(0), 1), "{said}");
    assert_eq!(
        number(&mut redis, "example:attempts", "invoice-1"),
        2,
        "the first went on in its thread"
    );
    assert_eq!((due(&mut redis), charges(&mut redis)), (0, 1));
}

#[test]
fn at_sigterm_a_worker_finishes_its_payment_and_begins_no_other() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    redis::cmd("SADD").arg("example:due").arg(&["1", "2"]).exec(&mut redis).expect("added");
    let settings = [("CHARGE_MS", "1000")];
    let worker = Example::start("payment_worker", &["serve"], &server.url(), &settings);
    eventually("one is being charged", || exists(&mut redis, "example:attempts"));
    worker.terminate();
    let (code, said) = worker.end();
    assert!(said.contains(": paid\n") && said.ends_with("no lock was held\n"), "{said}");
    assert_eq!((code, due(&mut redis), charges(&mut redis)), (Some(0), 1, 1));
    assert!(is_free(&mut redis));
}

// ---- threads

/// How often each part was imported.
fn imports(redis: &mut Connection) -> Vec<u64> {
    (0..8).map(|part| number(redis, "example:imported", &part.to_string())).collect()
}

#[test]
fn parts_that_threads_of_two_processes_import_are_imported_once() {
    let server = RedisServer::start();
    let settings = [("PART_MS", "300")];
    let processes = [(); 2].map(|()| Example::start("blocking", &[], &server.url(), &settings));
    for process in processes {
        let (code, said) = process.end();
        assert!(code == Some(0) && said.ends_with("no lock was held\n"), "{said}");
    }
    assert_eq!(imports(&mut server.connection()), [1; 8]);
}

#[test]
fn the_parts_of_a_killed_process_are_imported_by_another() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let settings = [("PART_MS", "600000")];
    let killed = Example::start("blocking", &[], &server.url(), &settings);
    let mut held = || look::lock_keys(&mut redis).len();
    eventually("each of its threads holds a lock", || held() == 4);
    drop(killed);
    let (code, said) = Example::start("blocking", &[], &server.url(), &[]).end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(imports(&mut server.connection()), [1; 8]);
}

// ---- the semaphore

fn permits(redis: &mut Connection) -> usize {
    redis::cmd("ZCARD").arg("{example:exports}:timeout").query(redis).expect("ZCARD")
}

#[test]
fn two_processes_export_no_more_than_two_at_once() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let both = [(); 2].map(|()| Example::start("semaphore", &[], &server.url(), &[]));
    let mut most = 0;
    eventually("somebody exports", || permits(&mut redis) > 0);
    eventually("all is done", || {
        most = most.max(permits(&mut redis));
        look::keys(&mut redis).is_empty()
    });
    assert!((1..=2).contains(&most), "{most}");
    for process in both {
        let (code, output) = process.end();
        assert_eq!(code, Some(0), "{output}");
        assert_eq!(output.matches("is done").count(), 5, "{output}");
        assert!(output.contains("export 5 begins, with 2 of 2 permits"), "{output}");
    }
}

#[test]
fn at_sigterm_exports_give_their_permits_back() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let settings = [("EXPORT_MS", "60000")];
    let process = Example::start("semaphore", &[], &server.url(), &settings);
    eventually("it exports", || permits(&mut redis) == 2);
    process.terminate();
    let (code, output) = process.end();
    assert_eq!(code, Some(1), "{output}");
    eventually("its permits are free", || look::keys(&mut redis).is_empty());
}

// ---- the migration

#[test]
fn of_three_replicas_one_migrates_and_all_go_on() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let replicas = [(); 3].map(|()| Example::start("migration", &[], &server.url(), &[]));
    let ends = replicas.map(Example::end);
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{ends:?}");
    let said: String = ends.into_iter().map(|(_, said)| said).collect();
    assert_eq!(
        (said.matches("at version 0 of 3").count(), said.matches("at version 3 of 3").count()),
        (1, 2)
    );
    assert_eq!(said.matches("copy the rows").count(), 1, "{said}");
    assert!(is_free(&mut redis));
}

#[tokio::test]
async fn a_migration_ends_with_its_lock_and_another_replica_goes_on() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let settings = [("STEP_MS", "700")];
    let mut first = Example::start("migration", &[], &server.url(), &settings);
    while first.line() != "copy the rows" {}
    let second = Example::start("migration", &[], &server.url(), &settings);
    take_away(&server, "example:migration").await;
    let (code, said) = first.end();
    assert!(code == Some(1) && !said.contains("drop the old table"), "{said}");
    let (code, said) = second.end();
    assert!(code == Some(0) && said.starts_with("at version 1 of 3"), "{said}");
    assert_eq!(number(&mut redis, "example:schema", "version"), 3);
}

#[test]
fn at_sigterm_a_migration_gives_its_lock_back() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let mut replica = Example::start("migration", &[], &server.url(), &[("STEP_MS", "60000")]);
    while replica.line() != "create the table" {}
    replica.terminate();
    // The release is on its way when the client is shut down, or has just been answered.
    let (code, said) = replica.end();
    assert!(
        code == Some(1) && ["1 lock released", "no lock was held"].contains(&said.trim()),
        "{said}"
    );
    assert!(is_free(&mut redis));
    assert_eq!(number(&mut redis, "example:schema", "version"), 0);
}

// ---- the job of each tick

#[test]
fn a_job_runs_once_for_each_tick_and_its_name_stays_taken_when_its_process_ends() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let mut service = Example::start("cron_job", &[], &server.url(), &[]);
    while !service.line().starts_with("tick 1: first ran: true, second ran: false") {}
    service.terminate();
    let (code, said) = service.end();
    assert!(code == Some(0) && said.starts_with("ended by SIGTERM\n"), "{said}");
    assert!(exists(&mut redis, "example:cron"), "for the rest of its time");
    eventually("its time is over", || !exists(&mut redis, "example:cron"));

    let once = || Example::start("cron_job", &["once"], &server.url(), &[]).end();
    assert_eq!(once(), (Some(0), "this process: running the job\n".to_owned()));
    assert!(exists(&mut redis, "example:cron-once"));
    assert_eq!(once(), (Some(0), "somebody has run it already\n".to_owned()));
}

// ---- without a server

#[test]
fn without_a_server_a_migration_ends_with_an_error_and_a_cache_computes() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.stop();
    let migration = Example::start("migration", &[], &url, &[]);
    let cache = Example::start("cache_refill", &[], &url, &[]);
    assert_eq!(migration.end().0, Some(1));
    let (code, said) = cache.end();
    assert!(
        code == Some(0) && said.contains("Fresh") && !said.contains("computed 1 times"),
        "{said}"
    );
}

#[test]
fn requests_for_a_value_that_has_expired_compute_it_once() {
    let server = RedisServer::start();
    let (code, said) = Example::start("cache_refill", &[], &server.url(), &[]).end();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("computed 1 times\n") && said.contains("computed 2 times in all"),
        "{said}"
    );
}

#[test]
fn a_catalog_is_read_by_many_and_written_by_one() {
    let server = RedisServer::start();
    let (code, said) = Example::start("rw_lock", &[], &server.url(), &[]).end();
    assert_eq!(code, Some(0), "{said}");
    let words = [
        "3 read at the same time\n",
        "a reader was kept out: true\n",
        "a reader was let in: true\n",
        "which would wait for itself",
    ];
    for words in words {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn tickets_go_to_those_who_came_first() {
    let server = RedisServer::start();
    let (code, said) = Example::start("fair_lock", &[], &server.url(), &[]).end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("sold to [0, 1, 2, 3, 4]\n"), "{said}");
}

#[test]
fn transfers_in_both_directions_lose_nothing() {
    let server = RedisServer::start();
    let (code, said) = Example::start("transfer", &[], &server.url(), &[]).end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("30 transfers done, and the accounts have 300 together\n"), "{said}");
}
