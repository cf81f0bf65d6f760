//! What clients send and hear (P17): tickets, subscriptions, rows of hand-offs, and claims that end.

use std::time::Duration;

use crate::backend::Outcome;
use crate::base::clock::Moment;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;
use crate::sim::checker::Checker;
use crate::sim::checker::line::told_by;
use crate::sim::client::Client;
use crate::sim::client::Flight;

/// Hand-offs in a row that do not look at the line, and for how long.
const HAND_OFFS: u32 = 16;
const HAND_OFFS_FOR: Duration = Duration::from_millis(50);

impl Checker {
    /// P17: a ticket ends with the grant, or with the last waiter.
    pub(in crate::sim::checker) fn look_at_ticket(
        &self,
        client: usize,
        command: &Command,
    ) -> Result<(), String> {
        let Command::Acquire { name, wait: WaitMode::Again { ticket, .. }, .. } = command else {
            return Ok(());
        };
        if !self.plan.has_line_of_clients(name) {
            return Ok(());
        }
        let over = self.names.get(name.as_str()).and_then(|name| name.line.over.get(&client));
        match over {
            Some(over) if over == ticket && *ticket > 0 => {
                Err(format!("P17: client {client} has no ticket {ticket} any more: {command:?}"))
            }
            _ => Ok(()),
        }
    }

    /// P17: only a client that is subscribed says that it hears.
    pub(in crate::sim) fn look_at_hearing(
        &self,
        now: Moment,
        command: &Command,
        to: &Client,
        is_subscribed: bool,
    ) -> Result<(), String> {
        let (name, hears) = match command {
            Command::Acquire {
                name,
                wait: WaitMode::First { hears } | WaitMode::Again { hears, .. },
                ..
            }
            | Command::HandOff { name, hears, .. } => (name, *hears),
            _ => return Ok(()),
        };
        let calm = now.since(to.calm_since(name)) > self.promptness();
        match hears && !is_subscribed && calm && self.plan.has_line(name) {
            true => Err(format!("P17: {command:?} of one that is not subscribed")),
            false => Ok(()),
        }
    }

    /// P17: a row of hand-offs has an end.
    pub(in crate::sim::checker) fn look_at_hand_off(
        &self,
        now: Moment,
        client: usize,
        command: &Command,
    ) -> Result<(), String> {
        let Command::HandOff { name, line_first: false, .. } = command else { return Ok(()) };
        let known = self.names.get(name.as_str()).filter(|_| self.plan.has_line(name));
        let Some((number, since)) = known.and_then(|known| known.line.rows.get(&client)) else {
            return Ok(());
        };
        if *number >= HAND_OFFS || now.since(*since) >= HAND_OFFS_FOR {
            return Err(format!(
                "P17: client {client} hands {name} off past the line, {number} times since {since:?}"
            ));
        }
        Ok(())
    }

    pub(in crate::sim::checker) fn note_line_answer(
        &mut self,
        now: Moment,
        client: usize,
        command: &Command,
        outcome: &Outcome<Reply>,
    ) {
        let (Command::Acquire { name, share: Share::ONE, .. } | Command::HandOff { name, .. }) =
            command
        else {
            return;
        };
        let Some(line) = self.names.get_mut(name.as_str()).map(|name| &mut name.line) else {
            return;
        };
        match outcome {
            Outcome::Unknown(_) => line.lose_place(client),
            Outcome::NotExecuted(_) => {}
            Outcome::Done(reply) => match (command, &reply.body) {
                (_, Body::Acquire(Acquired::Late)) => line.lose_place(client),
                (_, Body::Acquire(Acquired::Granted { .. }))
                | (_, Body::HandOff(HandedOff::LineFirst { .. }))
                | (
                    Command::HandOff { line_first: true, .. },
                    Body::HandOff(HandedOff::Granted { .. }),
                ) => {
                    line.rows.insert(client, (0, now));
                }
                (_, Body::HandOff(HandedOff::Granted { .. })) => {
                    line.rows.entry(client).or_insert((0, now)).0 += 1;
                }
                _ => {}
            },
        }
        if let Outcome::Done(reply) = outcome {
            if let (
                Command::Acquire { wait: WaitMode::Again { ticket, .. }, .. },
                Body::Acquire(Acquired::Granted { .. }),
            ) = (command, &reply.body)
            {
                line.over.insert(client, *ticket);
            }
            if let (Some(_), Some(claim)) = (told_by(command, reply), line.claims.get_mut(&client))
            {
                claim.told = true;
            }
        }
    }

    /// Nobody of a client waits any more: it has no claim.
    pub(in crate::sim::checker) fn forget_claims(&mut self, client: usize, to: &Client) {
        for (key, name) in &mut self.names {
            let Some(claim) = name.line.claims.get(&client).copied() else { continue };
            if to.serves() && to.waits_for(key) {
                continue;
            }
            name.line.claims.remove(&client);
            // The place is given up once no attempt is on the wire. Until then a new waiter may go
            // on with it.
            let attempt = |flight: &Flight| flight.request.command.name() == Some(&name.lock);
            if claim.told && !to.flights.values().any(attempt) {
                name.line.over.insert(client, claim.ticket);
            }
        }
    }
}
