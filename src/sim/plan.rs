//! What a seed does: how many clients, how fast the network is, and which faults happen how often.

use std::time::Duration;

use crate::sim::chance::Chance;

/// Things that happen from outside, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nemesis {
    CutCommands,
    CutPubSub,
    CutBoth,
    /// Messages are dropped, then the backend says so.
    Lag,
    /// The server does nothing for a while.
    Pause,
    /// Nobody can connect for a while, and everybody is cut.
    Unreachable,
    OutOfMemory,
    /// A process stands still for a while.
    Freeze,
    // ---- declared breaches from here on: a hold that they hit is not protected any more
    Crash,
    /// The server starts anew with its data.
    Restart,
    /// The server starts anew without it.
    DataLoss,
    Delete,
    Plant,
    ClockJump,
}

/// Permille unless said otherwise.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: usize,
    pub(super) tasks: usize,
    pub(super) names: usize,
    /// Longest one-way delay, in µs.
    pub(super) latency: u64,
    /// Up to when tasks begin something new.
    pub(super) horizon: Duration,
    pub(super) lease: Duration,
    pub(super) command_timeout: Duration,
    pub(super) outage_limit: Duration,
    pub(super) fallback: Duration,
    pub(super) hand_off: bool,
    pub(super) max_hold_count: u32,
    /// No faults at all: what has to be quick is checked to be quick.
    pub(super) calm: bool,
    // ---- faults of single commands
    pub(super) lost_request: u64,
    pub(super) lost_reply: u64,
    pub(super) slow: u64,
    pub(super) duplicate: u64,
    pub(super) refused: u64,
    /// Of what was on its way when the connection was cut: executed later.
    pub(super) ghost: u64,
    pub(super) connect_fails: u64,
    pub(super) stale_confirmation: u64,
    pub(super) subscribe_refused: u64,
    // ---- faults from outside
    pub(super) nemeses: Vec<Nemesis>,
    pub(super) nemesis_every: Duration,
    // ---- the server's clock
    pub(super) offset_us: i64,
    /// How much faster than ours, in millionths.
    pub(super) drift: i64,
    // ---- callers
    pub(super) cancel: u64,
    pub(super) lazy: u64,
    pub(super) force: u64,
    pub(super) long_hold: u64,
    pub(super) try_lock: u64,
    pub(super) shutdown: u64,
    pub(super) think: u64,
}

const HARMLESS: [Nemesis; 8] = [
    Nemesis::CutCommands,
    Nemesis::CutPubSub,
    Nemesis::CutBoth,
    Nemesis::Lag,
    Nemesis::Pause,
    Nemesis::Unreachable,
    Nemesis::OutOfMemory,
    Nemesis::Freeze,
];
const BREACHES: [Nemesis; 6] = [
    Nemesis::Crash,
    Nemesis::Restart,
    Nemesis::DataLoss,
    Nemesis::Delete,
    Nemesis::Plant,
    Nemesis::ClockJump,
];

impl Plan {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let calm = chance.permille(200);
        let mut some = |often: u64, most: u64| {
            if calm || !chance.permille(often) { 0 } else { chance.range(1, most) }
        };
        let (lost_request, lost_reply, slow) = (some(400, 60), some(500, 80), some(400, 80));
        let (duplicate, refused, ghost) = (some(300, 100), some(300, 60), some(600, 900));
        let (connect_fails, stale_confirmation) = (some(400, 500), some(400, 900));
        let (subscribe_refused, force) = (some(200, 300), some(300, 60));
        let mut nemeses = Vec::new();
        if !calm {
            nemeses.extend(HARMLESS.into_iter().filter(|_| chance.permille(450)));
            if chance.permille(400) {
                nemeses.extend(BREACHES.into_iter().filter(|_| chance.permille(350)));
            }
        }
        let lease = *chance.pick(&[200, 500, 1_000, 3_000]);
        let timeout = *chance.pick(&[50, 150, 400, 1_000]);
        Self {
            clients: chance.range(1, 4) as usize,
            tasks: chance.range(1, 5) as usize,
            names: chance.range(1, 2) as usize,
            latency: *chance.pick(&[200, 1_000, 5_000, 15_000]),
            horizon: Duration::from_millis(chance.range(1_000, 6_000)),
            lease: Duration::from_millis(lease),
            command_timeout: Duration::from_millis(timeout.min(lease)),
            outage_limit: Duration::from_millis(chance.range(300, 3_000)),
            fallback: Duration::from_millis(*chance.pick(&[500, 1_000, 5_000])),
            hand_off: chance.permille(800),
            max_hold_count: *chance.pick(&[2, 65_535, 65_535]) as u32,
            calm,
            lost_request,
            lost_reply,
            slow,
            duplicate,
            refused,
            ghost,
            connect_fails,
            stale_confirmation,
            subscribe_refused,
            nemeses,
            nemesis_every: Duration::from_millis(chance.range(150, 1_500)),
            offset_us: chance.range(0, 7_200_000_000) as i64 - 3_600_000_000,
            drift: chance.range(0, 8_000) as i64 - 4_000,
            cancel: *chance.pick(&[0, 50, 200, 500]),
            lazy: *chance.pick(&[0, 30, 150]),
            force: if calm { 0 } else { force },
            long_hold: *chance.pick(&[0, 50, 200]),
            try_lock: *chance.pick(&[0, 100, 500]),
            shutdown: if calm { 0 } else { *chance.pick(&[0, 0, 300]) },
            think: *chance.pick(&[500, 5_000, 50_000, 200_000]),
        }
    }

    pub(super) fn has(&self, nemesis: Nemesis) -> bool {
        self.nemeses.contains(&nemesis)
    }
}
