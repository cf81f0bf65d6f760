//! Harm to those who wait for a fair lock, and to what the server keeps of them.

use std::time::Duration;

use redis_reentrant_lock::Result;

use super::Nemesis;
use crate::event::now;
use crate::history::Breach;
use crate::place::line_of;
use crate::plan::WORKERS;
use crate::support::client;

/// So long after an error a command that was sent may still be executed, in ns.
const LATE: u64 = 500_000_000;

impl Nemesis<'_> {
    fn name(&self, number: usize) -> String {
        self.plan.names[number].text.clone()
    }

    // ---- who waits

    pub(super) fn kill_head(&mut self, name: usize) {
        if let Some(worker) = self.head(name) {
            self.kill_worker(worker);
        }
    }

    pub(super) fn freeze_head(&mut self, name: usize) {
        if let Some(worker) = self.head(name) {
            self.freeze_worker(worker);
        }
    }

    /// The worker that is the first in line, if it runs.
    fn head(&mut self, name: usize) -> Option<usize> {
        let name = self.name(name);
        let client = self.place.head(&name)?;
        let mut wires = self.place.wires.iter();
        let worker = wires.position(|wires| wires[0].client().as_ref() == Some(&client))?;
        let process = self.workers.get(worker)?.as_ref();
        let runs = process.is_some_and(|process| !process.is_frozen());
        if !runs {
            return None;
        }
        self.heads.push(worker);
        self.counts.heads += 1;
        self.say(format!("worker {worker} is the first in the line of {name}"));
        Some(worker)
    }

    pub(super) fn mend_heads(&mut self) -> std::result::Result<(), String> {
        for worker in std::mem::take(&mut self.heads) {
            self.thaw_worker(worker);
            self.start_worker(worker)?;
        }
        Ok(())
    }

    // ---- keys

    pub(super) fn remove_line(&mut self, name: usize) {
        let (name, from) = (self.name(name), now());
        self.place.everywhere(&["DEL", &line_of(&name)]);
        self.counts.lines_removed += 1;
        self.say(format!("the line of {name} is removed"));
        self.unsure.push(Breach { from, to: now(), two_servers: false, names: vec![name] });
    }

    pub(super) fn force_unlock(&mut self, name: usize) {
        let (name, from) = (self.name(name), now());
        let done = unlock(&self.place.url(WORKERS), &name);
        let to = if done.is_ok() { now() } else { now() + LATE };
        self.counts.force_unlocks += u64::from(matches!(done, Ok(true)));
        self.say(format!("{name} is unlocked by force: {done:?}"));
        self.breaches.push(Breach { from, to, two_servers: false, names: vec![name] });
    }

    /// Places may be lost while the server refuses what enters them.
    pub(super) fn begin_refusals(&mut self) {
        self.refuses.get_or_insert_with(now);
    }

    pub(super) fn end_refusals(&mut self) {
        if let Some(from) = self.refuses.take() {
            self.unsure.push(Breach { from, to: now(), two_servers: false, names: Vec::new() });
        }
    }
}

/// With a client of its own.
fn unlock(url: &str, name: &str) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let builder = client::builder(url).command_timeout(Duration::from_nanos(LATE));
        let client = builder.connect().await?;
        let unlocked = client.fair_lock(name)?.force_unlock().await;
        client.shutdown(Duration::from_secs(1)).await?;
        unlocked
    })
}
