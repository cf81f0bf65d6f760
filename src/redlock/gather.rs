//! The answers of several servers, of which a majority is enough.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::Either;
use futures::future::select;
use futures::stream::FuturesUnordered;

use crate::driver::Shared;

/// What the others get at least once a majority has answered.
const GRACE: Duration = Duration::from_millis(5);

/// Takes the answers of all, or of so many good ones and then those that come as soon again. The
/// others are dropped. Each answer comes with its place.
pub(super) async fn gather<T>(
    shared: &Arc<Shared>,
    asked: impl Iterator<Item = (usize, impl Future<Output = T>)>,
    is_good: impl Fn(&T) -> bool,
    enough: usize,
) -> Vec<(usize, T)> {
    let since = shared.now();
    let mut asked: FuturesUnordered<_> =
        asked.map(|(place, asked)| async move { (place, asked.await) }).collect();
    let mut answers = Vec::with_capacity(asked.len());
    let mut good = 0;
    while good < enough {
        let Some((place, answer)) = asked.next().await else { return answers };
        good += usize::from(is_good(&answer));
        answers.push((place, answer));
    }
    let grace = shared.now().since(since).max(GRACE);
    let mut over = pin!(shared.sleep(grace));
    while let Either::Left((Some(answer), _)) = select(asked.next(), over.as_mut()).await {
        answers.push(answer);
    }
    answers
}

/// What is asked for, unless something else comes first.
pub(super) async fn either<T>(asked: impl Future<Output = T>, first: impl Future) -> Option<T> {
    match select(pin!(asked), pin!(first)).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}

/// What comes of it within the limit.
pub(super) async fn within<T>(
    shared: &Arc<Shared>,
    limit: Duration,
    asked: impl Future<Output = T>,
) -> Option<T> {
    either(asked, shared.sleep(limit)).await
}
