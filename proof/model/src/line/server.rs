//! The server: it executes commands, or refuses them because the slot moves; keys run out.

use crate::explore::SERVER;
use crate::explore::Step;
use crate::line::Line;
use crate::line::rules::Switch;
use crate::line::scripts::attempt;
use crate::line::state::Answer;
use crate::line::state::Command;
use crate::line::state::Hold;
use crate::line::state::Keys;
use crate::line::state::Message;
use crate::line::state::Mode;
use crate::line::state::NEVER;
use crate::line::state::Purpose;
use crate::line::state::Refusal;
use crate::line::state::State;

impl Line {
    pub(crate) fn server_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut last = None;
        for (at, message) in state.wire.iter().enumerate() {
            // Two equal messages: one of them is enough.
            if message.answer.is_some() || last.replace(message) == Some(message) {
                continue;
            }
            let needs_line = self.needs_line(state, message.command);
            if !(state.moving && needs_line && self.is_a_key_absent(state)) {
                self.execute(state, at, next);
            }
            if state.moving && needs_line {
                next.push(self.refuse(state, at));
            }
        }
    }

    /// Whether the command declares the line's key besides the lock's.
    fn needs_line(&self, state: &State, command: Command) -> bool {
        match command {
            Command::Acquire { .. }
                if self.breaks(Switch::AcquiresWhileSlotMoves) && state.data.lock.is_none() =>
            {
                false
            }
            Command::Acquire { keys, .. } | Command::Release { keys, .. } => {
                keys == Keys::LockAndLine
            }
            Command::HandOff { line_first, .. } => line_first,
            // It has both forms, and takes that for the lock alone.
            Command::ForceRelease { .. } => false,
        }
    }

    /// Such a command cannot run while the slot moves: the key may be on the other server.
    fn is_a_key_absent(&self, state: &State) -> bool {
        state.data.lock.is_none() || state.data.line.is_empty()
    }

    fn refuse(&self, state: &State, at: usize) -> (Step, State) {
        let mut state = state.clone();
        let message = state.wire.remove(at);
        self.answer(&mut state, message, Answer::TryAgain);
        (Step::new(SERVER, "answers TRYAGAIN, for its slot moves"), state)
    }

    /// Executes a command; and again, in another future, with a command of `pass_on` refused.
    fn execute(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        next.push(self.execute_with(state, at, None));
        if state.left.refusals == 0 {
            return;
        }
        for refusal in [Refusal::Publish, Refusal::Write] {
            let (mut step, mut refused) = self.execute_with(state, at, Some(refusal));
            if refused.refusal.take().is_some() {
                continue;
            }
            if refused.left.refusals != NEVER {
                refused.left.refusals -= 1;
            }
            step.what = match refusal {
                Refusal::Publish => "executes a command, its PUBLISH is refused: for hold",
                Refusal::Write => "executes a command, it announces but cannot write: for hold",
            };
            next.push((step, refused));
        }
    }

    fn execute_with(&self, state: &State, at: usize, refusal: Option<Refusal>) -> (Step, State) {
        let mut state = state.clone();
        state.refusal = refusal;
        let message = state.wire.remove(at);
        let answer = self.run(&mut state, &message);
        self.answer(&mut state, message, answer);
        let (what, id) = words(message.command);
        (Step::about(SERVER, what, id), state)
    }

    fn answer(&self, state: &mut State, message: Message, answer: Answer) {
        if message.awaited {
            state.put(Message { answer: Some((answer, state.now)), ..message });
        }
    }

    fn run(&self, state: &mut State, message: &Message) -> Answer {
        match message.command {
            // With the lock alone, it can pick up, and do nothing else.
            Command::Acquire { id, keys: Keys::LockAlone, .. }
                if state.data.lock.is_none_or(|lock| lock.id != id) =>
            {
                Answer::TryAgain
            }
            Command::Acquire { id, mode, ticket, hears, .. } => {
                self.acquire(state, &attempt(message, id, mode, ticket, hears))
            }
            Command::Release { id, keys, purpose } => {
                self.release(state, id, keys, purpose == Purpose::Hold)
            }
            Command::HandOff { from, to, line_first, hears } => {
                self.hand_off(state, from, &attempt(message, to, Mode::First, 0, hears), line_first)
            }
            Command::ForceRelease { id } => {
                if state.now <= message.not_after {
                    self.force_release(state, id);
                }
                Answer::Freed
            }
        }
    }

    /// Time passes: keys and validities run out.
    pub(crate) fn tick(&self, state: &State) -> State {
        let mut state = state.clone();
        self.count_idle_time(&mut state);
        state.now += 1;
        let now = state.now;
        if state.data.lock.is_some_and(|lock| lock.expires <= now) {
            self.note_expiry(&mut state);
            state.data.lock = None;
        }
        if state.data.line_expires <= now {
            state.data.line.clear();
            state.data.line_expires = 0;
        }
        for client in &mut state.clients {
            if matches!(client.hold, Hold::Held { until, .. } if until <= now) {
                client.hold = Hold::None;
                client.duty |= client.waiting > 0;
                client.hand_offs = 0;
            }
        }
        let enters_late = self.breaks(Switch::EntersLate);
        state.wire.retain(|message| {
            let releases =
                matches!(message.command, Command::Release { .. } | Command::HandOff { .. });
            releases || message.awaited || now <= message.not_after || enters_late
        });
        state
    }
}

fn words(command: Command) -> (&'static str, u8) {
    match command {
        Command::Acquire { id, keys: Keys::LockAlone, .. } => {
            ("executes acquire with the lock alone of hold", id)
        }
        Command::Acquire { id, mode: Mode::Try, .. } => ("executes try of hold", id),
        Command::Acquire { id, mode: Mode::First, .. } => ("executes acquire (first) of hold", id),
        Command::Acquire { id, mode: Mode::Again, .. } => ("executes acquire (again) of hold", id),
        Command::Release { id, keys: Keys::LockAndLine, .. } => ("executes release(0) of hold", id),
        Command::Release { id, keys: Keys::LockAlone, .. } => {
            ("executes release(0) of the lock alone of hold", id)
        }
        Command::HandOff { to, line_first: true, .. } => {
            ("executes hand-off, the line first, to hold", to)
        }
        Command::HandOff { to, line_first: false, .. } => ("executes hand-off to hold", to),
        Command::ForceRelease { id } => ("executes force-release of hold", id),
    }
}
