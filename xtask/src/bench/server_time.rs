//! What the server spends on the script that acquires a free lock.

use serde_json::json;

use crate::resp::Connection;
use crate::servers::Server;

use super::Plan;
use super::figures::Sent;
use super::fleet::Worker;
use super::programs::Programs;
use super::programs::everybody;
use super::report::Report;
use super::report::Row;

const LOAD: &str = "acquire-script";
const LOCKS: u32 = 50;

/// Each round takes locks one after the other and keeps them, so that no other script runs;
/// releases do not count.
pub(crate) fn all(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    report: &mut Report,
) -> Result<(), String> {
    let kinds = plan.kinds(LOAD, programs, &everybody(), report);
    println!("{LOAD}: {}", kinds.join(", "));
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let mut fleet = Vec::new();
    for kind in kinds {
        match Worker::start(programs, kind, server) {
            Ok(worker) => fleet.push(worker),
            Err(reason) => report.add(Row::stalled(LOAD, kind, reason)),
        }
    }
    let mut done: Vec<Vec<Sent>> = fleet.iter().map(|_| Vec::new()).collect();
    for (round, at) in plan.turns(fleet.len()) {
        let sent = block(&mut fleet[at], &mut connection, round)?;
        if round > 0 {
            done[at].push(sent);
        }
    }
    for (worker, blocks) in fleet.iter().zip(done) {
        report.add(row(worker.kind, &blocks));
    }
    Ok(())
}

fn block(worker: &mut Worker, connection: &mut Connection, round: usize) -> Result<Sent, String> {
    let name = format!("script:{}:{round}", worker.pid);
    let before = Sent::so_far(connection).map_err(|error| error.to_string())?;
    worker.ask(&json!({ "do": "hold", "name": name, "count": LOCKS, "at_once": 1 }))?;
    let after = Sent::so_far(connection).map_err(|error| error.to_string())?;
    worker.ask(&json!({ "do": "release" }))?;
    Ok(after.since(before))
}

/// Not a number for those that acquire without a script.
fn row(kind: &str, blocks: &[Sent]) -> Row {
    let times = blocks.iter().map(|sent| sent.usec / sent.scripts);
    let mut row = Row::new(LOAD, kind, times.collect());
    let scripts: f64 = blocks.iter().map(|sent| sent.scripts).sum();
    #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
    let acquired = f64::from(LOCKS) * blocks.len() as f64;
    row.figure("scripts/acquire", scripts / acquired);
    row
}
