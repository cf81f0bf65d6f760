//! The waiters of a name, first come, first served.

use std::collections::BTreeMap;

use crate::base::map::Map;
use crate::base::owner::OwnerKey;
use crate::engine::event::RequestId;

/// The first waiter is stored by itself, because most often it is the only one, and leaves soon.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    first: Option<QueuedWaiter>,
    /// All later waiters, by ticket.
    others: BTreeMap<u64, (RequestId, OwnerKey)>,
    /// How many of the other waiters belong to an owner.
    owners: Map<OwnerKey, usize>,
}

#[derive(Debug, Clone, Copy)]
struct QueuedWaiter {
    ticket: u64,
    request: RequestId,
    owner: OwnerKey,
}

impl WaitQueue {
    pub(crate) fn insert(&mut self, ticket: u64, request: RequestId, owner: OwnerKey) {
        let new = QueuedWaiter { ticket, request, owner };
        match self.first {
            None => self.first = Some(new),
            Some(first) if ticket < first.ticket => {
                self.first = Some(new);
                self.add_other(first);
            }
            Some(_) => self.add_other(new),
        }
    }

    /// Removes a waiter, and says whether it was there.
    pub(crate) fn remove(&mut self, ticket: u64) -> bool {
        if self.first.is_some_and(|first| first.ticket == ticket) {
            let next = self.others.first_key_value().map(|(ticket, _)| *ticket);
            self.first = next.and_then(|ticket| self.remove_other(ticket));
            return true;
        }
        self.remove_other(ticket).is_some()
    }

    pub(crate) fn first(&self) -> Option<RequestId> {
        self.first.map(|first| first.request)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.first().into_iter().chain(self.others.values().map(|(request, _)| *request))
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn has_owner(&self, owner: OwnerKey) -> bool {
        self.first.is_some_and(|first| first.owner == owner) || self.owners.contains_key(&owner)
    }

    fn add_other(&mut self, place: QueuedWaiter) {
        self.others.insert(place.ticket, (place.request, place.owner));
        *self.owners.entry(place.owner).or_default() += 1;
    }

    fn remove_other(&mut self, ticket: u64) -> Option<QueuedWaiter> {
        let (request, owner) = self.others.remove(&ticket)?;
        if let Some(count) = self.owners.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&owner);
            }
        }
        if self.others.is_empty() {
            // Both keep memory when they are empty, and most names are held without anybody
            // waiting.
            self.others = BTreeMap::new();
            self.owners = Map::default();
        }
        Some(QueuedWaiter { ticket, request, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tickets: &[u64]) -> WaitQueue {
        let mut line = WaitQueue::default();
        tickets.iter().for_each(|&ticket| {
            line.insert(ticket, RequestId(ticket), OwnerKey::from_test(ticket % 2))
        });
        line
    }

    fn requests(line: &WaitQueue) -> Vec<u64> {
        line.iter().map(|request| request.0).collect()
    }

    #[test]
    fn they_stand_in_order_whoever_comes_and_goes() {
        let mut line = line(&[3, 5, 1, 4]);
        assert_eq!(
            (requests(&line), line.len(), line.first()),
            (vec![1, 3, 4, 5], 4, Some(RequestId(1)))
        );
        assert!(line.remove(4) && !line.remove(4) && !line.remove(7));
        assert_eq!(requests(&line), [1, 3, 5]);
        assert!(line.remove(1));
        assert_eq!((requests(&line), line.first()), (vec![3, 5], Some(RequestId(3))));
        line.insert(2, RequestId(20), OwnerKey::from_test(0));
        assert_eq!(requests(&line), [20, 3, 5]);
        assert!(line.remove(2) && line.remove(3) && line.remove(5) && line.is_empty());
        assert_eq!((line.len(), line.first()), (0, None));
    }

    #[test]
    fn an_owner_is_there_until_the_last_of_its_requests_is_gone() {
        let [even, odd] = [0, 1].map(OwnerKey::from_test);
        let mut line = line(&[1, 2, 3, 5]);
        assert!(
            line.has_owner(even) && line.has_owner(odd) && !line.has_owner(OwnerKey::from_test(2))
        );
        assert!(line.remove(2) && !line.has_owner(even));
        assert!(line.remove(1) && line.has_owner(odd), "the next one is");
        assert!(line.remove(5) && line.has_owner(odd) && line.remove(3) && !line.has_owner(odd));
    }
}
