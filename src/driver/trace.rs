//! The log events, under stable names.
//!
//! The names are `acquire`, `wait`, `renew`, `release`, `lost` and `link`. Lock names are escaped;
//! ids of clients are cut to their first eight characters.

use std::fmt;

use tracing::Level;
use tracing::Span;
use tracing::event;

use crate::base::log::TARGET;
use crate::base::log::tell;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Report;

/// The span around one acquisition.
pub(crate) fn acquire_span(name: &LockName, owner: &OwnerKey) -> Span {
    tracing::debug_span!(
        target: TARGET,
        "acquire",
        name = ?name,
        owner = owner.kind(),
        outcome = tracing::field::Empty,
    )
}

/// The span around one release that a caller waits for.
pub(crate) fn release_span(name: &LockName) -> Span {
    tracing::debug_span!(target: TARGET, "release", name = ?name, outcome = tracing::field::Empty)
}

/// A hold field with a shortened client id.
pub(crate) struct ShortField<'a>(pub(crate) &'a str);

impl fmt::Display for ShortField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, hold) = self.0.split_once(':').unwrap_or((self.0, ""));
        let shown: String = client.chars().take(8).collect();
        if hold.is_empty() { write!(f, "{shown}") } else { write!(f, "{shown}:{hold}") }
    }
}

impl fmt::Debug for ShortField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Logs a report. The event has no parent span, because the span of whichever caller happens to run
/// would be wrong.
pub(crate) fn report(report: Report) {
    tell(|| report_course(report));
}

/// Logs reports about the course of a hold.
fn report_course(report: Report) {
    match report {
        Report::Granted { name, hold, token, waited } => {
            event!(name: "acquire", target: TARGET, parent: None, Level::DEBUG, ?name, hold, token, ?waited, "granted");
        }
        Report::Waiting { name, holder, pttl } => {
            let holder = ShortField(&holder);
            event!(name: "wait", target: TARGET, parent: None, Level::DEBUG, ?name, %holder, pttl, "held by another");
        }
        Report::Renewed { holds } => {
            event!(name: "renew", target: TARGET, parent: None, Level::TRACE, holds, "renewed");
        }
        Report::RenewalFailed { holds, cause } => {
            event!(name: "renew", target: TARGET, parent: None, Level::WARN, holds, %cause, "renewal failed");
        }
        Report::Released { name, hold } => {
            event!(name: "release", target: TARGET, parent: None, Level::DEBUG, ?name, hold, "released");
        }
        Report::LeftToLease { name, hold } => {
            event!(
                name: "release", target: TARGET, parent: None, Level::DEBUG, ?name, hold,
                "not released on purpose: the lock stays taken until its lease ends"
            );
        }
        Report::ReleasedAgain { name, hold } => {
            event!(
                name: "release", target: TARGET, parent: None, Level::INFO, ?name, hold,
                "a hold of this client that is over still has the lock on the server: it is released"
            );
        }
        Report::ReleaseFailed { name, hold, cause } => {
            event!(
                name: "release", target: TARGET, parent: None, Level::WARN, ?name, hold, %cause,
                "the release of a dropped guard ended in an error"
            );
        }
        Report::Suspect { name, hold, holds } => {
            event!(name: "renew", target: TARGET, parent: None, Level::WARN, ?name, hold, holds, "no renewal was confirmed for half of the lease");
        }
        Report::Lost { name, hold, reason, client, address, held } => {
            let client = ShortField(&client);
            event!(
                name: "lost", target: TARGET, parent: None, Level::WARN, ?name, hold,
                reason = reason.as_str(), %client, %address, ?held, "lost"
            );
        }
        other => report_surroundings(other),
    }
}

/// Logs reports that are not about the course of a hold.
fn report_surroundings(report: Report) {
    match report {
        Report::WaitingOnSelf { name, hold } => {
            event!(
                name: "wait", target: TARGET, parent: None, Level::WARN, ?name, hold,
                "waiting for 10 s for a hold of this same client: does a task wait for another task that it blocks?"
            );
        }
        Report::WaitingLong { name, holder, waited } => {
            let holder = ShortField(&holder);
            event!(name: "wait", target: TARGET, parent: None, Level::INFO, ?name, %holder, ?waited, "still held by another");
        }
        Report::WakeUpsMissing { name, in_a_row } => {
            event!(
                name: "wait", target: TARGET, parent: None, Level::WARN, ?name, in_a_row,
                "several grants in a row without a wake-up: do all clients use the same wire profile and sharding?"
            );
        }
        Report::ReservationsMissed { name, in_a_row } => {
            event!(
                name: "wait", target: TARGET, parent: None, Level::WARN, ?name, in_a_row,
                "the lock was reserved for this client several times in a row, and each reservation was over before its attempt arrived: do messages or replies take longer than 1.5 s?"
            );
        }
        Report::PublishRefused { name } => {
            event!(
                name: "release", target: TARGET, parent: None, Level::WARN, ?name,
                "released, but Redis refused to publish the release: waiters find out late"
            );
        }
        Report::ClockJump => {
            event!(name: "renew", target: TARGET, parent: None, Level::WARN, "the server's clock jumped");
        }
        Report::LinkUp { client, address, version, away } => {
            let client = ShortField(&client);
            event!(
                name: "link", target: TARGET, parent: None, Level::INFO, %client, %address, %version,
                away = away.map(tracing::field::debug), "connected"
            );
        }
        Report::LinkDown { client, address, cause, holds, lasted } => {
            let client = ShortField(&client);
            event!(
                name: "link", target: TARGET, parent: None, Level::WARN, %client, %address, %cause, holds,
                ?lasted, "disconnected"
            );
        }
        Report::ConnectFailed { client, address, cause } => {
            let client = ShortField(&client);
            event!(
                name: "link", target: TARGET, parent: None, Level::WARN, %client, %address, %cause,
                "connecting failed; it is tried again"
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use tracing::Event;
    use tracing::Subscriber;
    use tracing_subscriber::layer::Context;
    use tracing_subscriber::layer::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    use crate::base::log::hearing::hear;

    /// Set when an event arrives that belongs to no span.
    struct EventWithoutSpan(Arc<AtomicBool>);

    impl<S: Subscriber> Layer<S> for EventWithoutSpan {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.store(event.is_root(), Ordering::SeqCst);
        }
    }

    #[test]
    fn a_report_is_not_told_as_a_part_of_the_call_during_which_it_comes() {
        let seen = Arc::<AtomicBool>::default();
        let subscriber = tracing_subscriber::registry().with(EventWithoutSpan(Arc::clone(&seen)));
        let _heard = hear(subscriber);
        release_span(&LockName::new("orders:42").unwrap()).in_scope(|| report(Report::ClockJump));
        assert!(seen.load(Ordering::SeqCst));
    }

    #[test]
    fn client_ids_are_shortened() {
        assert_eq!(
            ShortField("6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731").to_string(),
            "6e3d30b7:731"
        );
        assert_eq!(ShortField("6e3d30b7-83b1-433a-9335-5e8b9916d3ac").to_string(), "6e3d30b7");
        assert_eq!(ShortField("ä").to_string(), "ä");
    }
}
