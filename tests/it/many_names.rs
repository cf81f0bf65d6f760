//! Many tasks, each on a name of its own: what they ask for goes to the server together.

use std::sync::Arc;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::look::lock_keys;
use crate::support::look::script_runs;
use crate::support::redis_server::RedisServer;

const TASKS: u64 = 200;
const PAIRS: u64 = 20;

fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [several, Builder::new_current_thread().enable_all().build()]
        .map(|runtime| runtime.expect("a runtime"))
}

async fn connect(url: &str, driver: Driver) -> LockClient {
    LockClient::builder().url(url).driver(driver).connect().await.expect("connected")
}

/// Each takes and releases its own lock again and again; ends when all are done.
async fn pairs(client: &LockClient) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = client.reentrant_lock(format!("name:{task}")).expect("a name");
        tasks.spawn(async move {
            let mut last = 0;
            for _ in 0..PAIRS {
                let guard = lock.lock().await.expect("granted");
                assert!(guard.is_held() && guard.fencing_token() > last);
                last = guard.fencing_token();
                guard.unlock().await.expect("released");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics");
    }
}

#[test]
fn many_names_are_served_in_few_scripts() {
    for runtime in runtimes() {
        for driver in [Driver::Thread, Driver::Current] {
            let server = RedisServer::start();
            let mut connection = server.connection();
            runtime.block_on(async {
                let client = connect(&server.url(), driver).await;
                tokio::time::timeout(Duration::from_secs(60), pairs(&client))
                    .await
                    .expect("all are served");
                client.shutdown(Duration::from_secs(5)).await.expect("nothing is left");
            });
            assert!(lock_keys(&mut connection).is_empty());
            let (scripts, asked) = (script_runs(&mut connection), 2 * TASKS * PAIRS);
            assert!(scripts < asked / 2, "{scripts} scripts for {asked} operations, {driver}");
        }
    }
}

/// Nobody who was answered asks for anything before the last one is. So many that a driver which
/// only looks at the clock now and then would not come to the end.
#[test]
fn all_are_granted_though_none_of_them_goes_on() {
    for runtime in runtimes() {
        for driver in [Driver::Thread, Driver::Current] {
            let server = RedisServer::start();
            runtime.block_on(async {
                let client = connect(&server.url(), driver).await;
                let mut tasks = JoinSet::new();
                let all = Arc::new(Barrier::new(2_000));
                for task in 0..2_000 {
                    let (lock, all) =
                        (client.mutex(format!("name:{task}")).expect("a name"), Arc::clone(&all));
                    tasks.spawn(async move {
                        let guard = lock.lock().await.expect("granted");
                        all.wait().await;
                        guard.unlock().await.expect("released");
                    });
                }
                let ended =
                    async { while tasks.join_next().await.is_some_and(|task| task.is_ok()) {} };
                tokio::time::timeout(Duration::from_secs(20), ended)
                    .await
                    .expect("all are granted");
                client.shutdown(Duration::from_secs(5)).await.expect("nothing is left");
            });
        }
    }
}

/// Redis looks at the keys of a script before it runs it, and refuses all for one.
#[test]
fn a_name_that_is_not_allowed_keeps_nobody_else_from_his() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let user = "ACL SETUSER ann on >secret resetkeys ~name:* ~redisson_lock_* allchannels \
                allcommands";
    let mut command = redis::cmd("ACL");
    for word in user.split(' ').skip(1) {
        command.arg(word);
    }
    command.exec(&mut connection).expect("a user");
    let url = server.url().replace("redis://", "redis://ann:secret@");
    for runtime in runtimes() {
        for driver in [Driver::Thread, Driver::Current] {
            runtime.block_on(async {
                let client = connect(&url, driver).await;
                let others = async {
                    for number in 0..PAIRS {
                        let name = format!("forbidden:{number}");
                        let error = client
                            .mutex(&name)
                            .expect("a name")
                            .try_lock()
                            .await
                            .expect_err("refused");
                        assert!(error.is_config() && error.to_string().contains(&name), "{error}");
                    }
                };
                let both = async { tokio::join!(pairs(&client), others) };
                tokio::time::timeout(Duration::from_secs(60), both)
                    .await
                    .expect("all are answered");
                client.shutdown(Duration::from_secs(5)).await.expect("nothing is left");
            });
            assert!(lock_keys(&mut connection).is_empty());
        }
    }
}
