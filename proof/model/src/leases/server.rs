//! The server: what the scripts do, and what the network does to what is on its way.

use crate::explore::NOBODY;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::leases::LEASE;
use crate::leases::Leases;
use crate::leases::rules::Switch;
use crate::leases::state::Answer;
use crate::leases::state::Command;
use crate::leases::state::Key;
use crate::leases::state::Message;
use crate::leases::state::State;

/// Tokens that one tick has room for.
const TOKENS: u8 = 8;

impl Leases {
    pub(crate) fn server_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut last = None;
        for (at, message) in state.wire.iter().enumerate() {
            // Two equal messages: one of them is enough.
            if message.answer.is_some() || last.replace(message) == Some(message) {
                continue;
            }
            next.push(self.execute(state, at));
            if state.left.copies > 0 && message.awaited {
                let mut doubled = state.clone();
                doubled.left.copies -= 1;
                doubled.put(*message);
                next.push((
                    Step::about(NOBODY, "a copy is made of a command of client", message.client),
                    doubled,
                ));
            }
        }
        if state.left.data_losses > 0 && state.now < self.scope.end {
            // A restart takes longer than the time between two tokens.
            let mut lost = state.clone();
            lost.left.data_losses -= 1;
            if let Some(key) = lost.key.take() {
                lost.breached.add(key.id);
            }
            lost.fence = 0;
            lost.now += 1;
            self.run_out(&mut lost);
            next.push((Step::new(SERVER, "loses its data and restarts, a tick later"), lost));
        }
    }

    fn execute(&self, state: &State, at: usize) -> (Step, State) {
        let mut state = state.clone();
        let message = state.wire.remove(at);
        let before = state.key;
        let answer = self.run(&mut state, &message);
        let answerable = !matches!(message.command, Command::Force { .. });
        if message.awaited && answerable {
            state.put(Message { answer: Some((answer, state.now)), ..message });
        }
        self.check_stranger(&mut state, before, message.command);
        let (what, id) = words(message.command);
        (Step::about(SERVER, what, id), state)
    }

    /// A command of one hold must leave the key of another alone.
    fn check_stranger(&self, state: &mut State, before: Option<Key>, command: Command) {
        let concerned = command.ids();
        if let Some(key) = before {
            if !concerned.contains(&key.id) && state.key != before {
                state.flaw = Some("only the owner's commands touch a key");
            }
        }
    }

    fn run(&self, state: &mut State, message: &Message) -> Answer {
        let late = state.now > message.not_after;
        let not_after = message.not_after;
        match message.command {
            Command::Acquire { .. } if late && !self.breaks(Switch::NoNotAfter) => Answer::Late,
            Command::Acquire { id, count: 1, lease, max_end } => {
                self.acquire(state, id, lease, not_after, max_end)
            }
            Command::Acquire { id, count, lease, max_end } => {
                self.reenter(state, id, count, lease, not_after, max_end)
            }
            Command::Release { id, count, own, .. } => self.release(state, id, count, own),
            Command::Renew { .. } if late && !self.breaks(Switch::RenewWithoutNotAfter) => {
                Answer::Late
            }
            Command::Renew { id, lease, guarded } => {
                self.renew(state, id, lease, guarded, not_after)
            }
            Command::HandOff { from, to, max_end } => {
                let refused = late && !self.breaks(Switch::NoNotAfter);
                self.hand_off(state, from, to, not_after, max_end, refused)
            }
            Command::Force { .. } if late => Answer::Late,
            Command::Force { id } => self.force(state, id),
        }
    }

    fn acquire(&self, state: &mut State, id: u8, lease: u8, not_after: u8, max_end: u8) -> Answer {
        let expires = state.now + lease;
        match &mut state.key {
            Some(key) if key.id == id => {
                key.expires = if self.breaks(Switch::RepeatShortens) {
                    expires
                } else {
                    key.expires.max(expires)
                };
                key.bound = key.bound.max(not_after + LEASE);
                key.count += u8::from(self.breaks(Switch::PlusOne));
            }
            Some(_) => return Answer::Refused,
            None => {
                state.key = Some(Key { id, count: 1, expires, bound: not_after + LEASE, max_end });
            }
        }
        self.mint(state);
        Answer::Granted
    }

    fn reenter(
        &self,
        state: &mut State,
        id: u8,
        count: u8,
        lease: u8,
        not_after: u8,
        max_end: u8,
    ) -> Answer {
        let expires = state.now + lease;
        match &mut state.key {
            Some(key) if key.id == id => {
                key.count = if self.breaks(Switch::PlusOne) { key.count + 1 } else { count };
                key.expires = if self.breaks(Switch::RepeatShortens) {
                    expires
                } else {
                    key.expires.max(expires)
                };
                key.bound = key.bound.max(not_after + LEASE);
                key.max_end = max_end;
                Answer::Granted
            }
            Some(_) => Answer::Foreign,
            None => Answer::Gone,
        }
    }

    fn release(&self, state: &mut State, id: u8, count: u8, own: u8) -> Answer {
        let Some(key) = &mut state.key else { return Answer::Gone };
        if key.id != id && !self.breaks(Switch::ReleaseWithoutOwnField) {
            return Answer::Foreign;
        }
        let left = if self.breaks(Switch::PlusOne) { key.count - 1 } else { count };
        if self.breaks(Switch::ReleaseComparesCounts) && own != 0 && key.count != own {
            return Answer::Foreign;
        }
        key.count = left;
        if left == 0 {
            state.key = None;
        }
        Answer::Done
    }

    fn renew(&self, state: &mut State, id: u8, lease: u8, guarded: bool, not_after: u8) -> Answer {
        let expires = state.now + lease;
        match &mut state.key {
            Some(key) if key.id == id => {
                key.expires = key.expires.max(expires);
                if guarded {
                    key.bound = key.bound.max(not_after + LEASE);
                }
                Answer::Done
            }
            Some(_) => Answer::Foreign,
            None if self.breaks(Switch::RenewCreates) => {
                state.key =
                    Some(Key { id, count: 1, expires, bound: not_after + LEASE, max_end: 0 });
                Answer::Done
            }
            None => Answer::Gone,
        }
    }

    fn hand_off(
        &self,
        state: &mut State,
        from: u8,
        to: u8,
        not_after: u8,
        max_end: u8,
        late: bool,
    ) -> Answer {
        let expires = state.now + LEASE;
        let bound = not_after + LEASE;
        match &mut state.key {
            Some(key) if key.id == from && late => {
                state.key = None;
                Answer::Late
            }
            Some(key) if key.id == to && late => Answer::Late,
            Some(key) if key.id == from => {
                *key = Key { id: to, count: 1, expires, bound, max_end };
                self.mint(state);
                Answer::Granted
            }
            Some(key) if key.id == to => {
                key.expires = key.expires.max(expires);
                key.bound = key.bound.max(bound);
                self.mint(state);
                Answer::Granted
            }
            Some(_) => Answer::Foreign,
            None => Answer::Gone,
        }
    }

    fn force(&self, state: &mut State, expected: u8) -> Answer {
        match state.key {
            Some(key) if key.id == expected || self.breaks(Switch::ForceWithoutCompare) => {
                state.breached.add(expected);
                state.key = None;
                Answer::Done
            }
            Some(_) => Answer::Foreign,
            None => Answer::Gone,
        }
    }

    /// The fencing token of a grant.
    fn mint(&self, state: &mut State) {
        if !self.scope.tokens {
            return;
        }
        let time = state.now * TOKENS;
        let token = if self.breaks(Switch::TokenIsTime) {
            time
        } else if self.breaks(Switch::TokenIsCounter) {
            state.fence + 1
        } else {
            time.max(state.fence + 1)
        };
        if token <= state.top {
            state.flaw = Some("each grant has a higher token than all before");
        }
        state.fence = token;
        state.top = state.top.max(token);
    }
}

fn words(command: Command) -> (&'static str, u8) {
    match command {
        Command::Acquire { id, count: 1, .. } => ("executes acquire of hold", id),
        Command::Acquire { id, .. } => ("executes acquire(2) of hold", id),
        Command::Release { id, count: 0, .. } => ("executes release(0) of hold", id),
        Command::Release { id, .. } => ("executes release(1) of hold", id),
        Command::Renew { id, .. } => ("executes renew of hold", id),
        Command::HandOff { from, .. } => ("executes hand-off from hold", from),
        Command::Force { id } => ("executes force-release of hold", id),
    }
}
