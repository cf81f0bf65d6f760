//! The conversation with the controller.

use std::future::Future;
use std::io::BufRead;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::Mode;
use crate::Service;
use crate::crowd;
use crate::crowd::Crowd;
use crate::crowd::Times;
use crate::flight;
use crate::pairs;
use crate::store::Store;
use crate::turns;
use crate::wide;
use crate::wide::Guards;
use crate::wide::Many;

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
    let told = Told(&command);
    let name = command["name"].as_str().unwrap_or("bench").to_owned();
    match command["do"].as_str().unwrap_or_default() {
        "pairs" => pairs::run(&*service, &name, told.mode(), told.number("count")).await,
        "crowd" => crowd::run(&*service, &name, told.crowd().await).await,
        "queue" => crowd::queue(&*service, &name, told.number("tasks")).await,
        "turns" => {
            let (hold, pause) = (told.time("hold_us"), told.time("pause_us"));
            turns::run(&*service, &name, told.number("count"), hold, pause).await
        }
        "flight" => {
            let (tasks, takes) = (told.number("tasks"), told.time("us"));
            flight::run(&service, &name, told.text("store"), tasks, takes).await
        }
        "hold" => wide::hold(&service, &guards, &name, told.many()).await,
        "drop" => wide::drop_all::<S>(&guards),
        "release" => wide::release_all::<S>(&guards).await,
        "together" => {
            let loads = command["loads"].as_array().into_iter().flatten();
            let loads =
                loads.map(|one| boxed(Arc::clone(&service), Arc::clone(&guards), one.clone()));
            json!({ "answers": join_all(loads).await })
        }
        other => json!({ "error": format!("no such load: {other}") }),
    }
}

/// A load among others of the same process.
fn boxed<S: Service>(
    service: Arc<S>,
    guards: Arc<Guards<S>>,
    command: Value,
) -> Pin<Box<dyn Future<Output = Value> + Send>> {
    Box::pin(load(service, guards, command))
}

/// The fields of a command.
struct Told<'a>(&'a Value);

impl Told<'_> {
    fn number(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or(0)
    }

    fn time(&self, field: &str) -> Duration {
        Duration::from_micros(self.number(field))
    }

    fn says(&self, field: &str) -> bool {
        self.0[field].as_bool().unwrap_or(false)
    }

    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    fn mode(&self) -> Mode {
        let few = |field: &str| u32::try_from(self.number(field)).unwrap_or(u32::MAX).max(1);
        match self.text("mode") {
            "" | "lock" => Mode::Lock,
            "fair" => Mode::Fair,
            "read" => Mode::Read,
            "write" => Mode::Write,
            "permits" => Mode::Permits { want: few("want"), of: few("of") },
            "multi" => Mode::Multi { want: few("want"), of: few("of") },
            other => panic!("no such mode: {other}"),
        }
    }

    async fn crowd(&self) -> Crowd {
        let times = Times {
            length: self.time("us"),
            hold: self.time("hold_us"),
            pause: self.time("pause_us"),
        };
        let counter = match self.text("counter") {
            "" => None,
            url => Some(Arc::new(Store::connect(url).await)),
        };
        Crowd {
            tasks: self.number("tasks"),
            mode: self.mode(),
            distinct: self.says("distinct"),
            each: self.says("each"),
            times,
            counter,
        }
    }

    fn many(&self) -> Many {
        let at_once = self.0["at_once"].as_u64().unwrap_or(64);
        let one_name = self.says("one_name");
        Many { count: self.number("count"), at_once, mode: self.mode(), one_name }
    }
}
