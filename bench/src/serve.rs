//! The conversation with the controller.

use std::io::BufRead;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::Service;
use crate::crowd;
use crate::crowd::Crowd;
use crate::pairs;
use crate::turns;
use crate::wide;
use crate::wide::Guards;

/// Does what standard input says until it ends. Loads run as tasks of `runtime`.
///
/// # Panics
///
/// When a load panics: a lock that cannot be had is no measurement.
pub fn serve<S: Service>(runtime: &Runtime, service: S) {
    let service = Arc::new(service);
    let guards: Arc<Guards<S>> = Arc::default();
    say(&json!({ "ready": true }));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let command: Value = serde_json::from_str(&line).expect("a line of JSON");
        let load = load(Arc::clone(&service), Arc::clone(&guards), command);
        say(&runtime.block_on(runtime.spawn(load)).expect("the load to be done"));
    }
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}

async fn load<S: Service>(service: Arc<S>, guards: Arc<Guards<S>>, command: Value) -> Value {
    let name = command["name"].as_str().unwrap_or("bench").to_owned();
    let number = |field: &str| command[field].as_u64().unwrap_or(0);
    let length = |field: &str| Duration::from_micros(number(field));
    match command["do"].as_str().unwrap_or_default() {
        "pairs" => pairs::run(&*service, &name, number("count")).await,
        "crowd" => {
            let said = |field: &str| command[field].as_bool().unwrap_or(false);
            let (tasks, hold, length) = (number("tasks"), length("hold_us"), length("us"));
            let crowd =
                Crowd { tasks, distinct: said("distinct"), each: said("each"), length, hold };
            crowd::run(&*service, &name, crowd).await
        }
        "queue" => crowd::queue(&*service, &name, number("tasks")).await,
        "turns" => {
            turns::run(&*service, &name, number("count"), length("hold_us"), length("pause_us"))
                .await
        }
        "hold" => {
            let at_once = command["at_once"].as_u64().unwrap_or(64);
            wide::hold(&service, &guards, &name, number("count"), at_once).await
        }
        "drop" => wide::drop_all::<S>(&guards),
        "release" => wide::release_all::<S>(&guards).await,
        other => json!({ "error": format!("no such load: {other}") }),
    }
}
