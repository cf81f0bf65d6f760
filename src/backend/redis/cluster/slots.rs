//! The map of slots to nodes: parses the answers of nodes, and merges answers that contradict each
//! other.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::Value;
use crate::backend::redis::config::Address;
use crate::base::name::SLOTS;

/// One node's answer to CLUSTER SLOTS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SlotMap {
    /// First slot, last slot, and their primary. Sorted, without overlaps.
    ranges: Vec<(u16, u16, Address)>,
    /// Further nodes that can be asked.
    pub(super) replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// Parses `[[first, last, [host, port, …], replica…]…]`. A node that does not know its own host
    /// leaves it empty; it then has the host at which it was asked. `None` if the reply has another
    /// form.
    pub(super) fn read(value: &Value, asked: &Address) -> Option<Self> {
        let Value::List(entries) = value else { return None };
        let mut map = Self::default();
        for entry in entries {
            let Value::List(parts) = entry else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = parts.as_slice()
            else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            map.ranges.push((first, last, node(primary, asked)?));
            map.replicas.extend(replicas.iter().filter_map(|replica| node(replica, asked)));
        }
        map.ranges.sort();
        let overlap = map.ranges.windows(2).any(|pair| pair[0].1 >= pair[1].0);
        (!overlap).then_some(map)
    }

    /// True for a node that knows of no other node, because it was reset or has lost its
    /// configuration.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn nodes(&self) -> BTreeSet<&Address> {
        self.primaries().into_iter().chain(&self.replicas).collect()
    }

    pub(super) fn primaries(&self) -> BTreeSet<&Address> {
        self.ranges.iter().map(|(_, _, primary)| primary).collect()
    }

    /// The primary of each slot.
    pub(super) fn by_slot(&self) -> Vec<Option<&Address>> {
        let mut slots = vec![None; usize::from(SLOTS)];
        for (first, last, primary) in &self.ranges {
            slots[usize::from(*first)..=usize::from(*last)].fill(Some(primary));
        }
        slots
    }

    /// Merges answers slot by slot. The claim of most answers wins. In a tie, a claim that names a
    /// node wins over none, and one that differs from `current` over one that does not, because a
    /// node hears of a change late but never early.
    pub(super) fn agree(answers: &[Self], current: &Self) -> Self {
        let replicas = answers.iter().flat_map(|answer| answer.replicas.iter().cloned()).collect();
        let [first, rest @ ..] = answers else { return current.clone() };
        if rest.iter().all(|other| other.ranges == first.ranges) {
            return Self { ranges: first.ranges.clone(), replicas };
        }
        let claims: Vec<_> = answers.iter().map(Self::by_slot).collect();
        let known = current.by_slot();
        let winners = (0..usize::from(SLOTS)).map(|slot| {
            let mut voices: BTreeMap<Option<&Address>, usize> = BTreeMap::new();
            for claim in &claims {
                *voices.entry(claim[slot]).or_default() += 1;
            }
            let rank = |(who, voices): &(Option<&Address>, usize)| {
                (*voices, who.is_some(), *who != known[slot])
            };
            voices.into_iter().max_by_key(rank).and_then(|(who, _)| who)
        });
        Self { ranges: ranges(winners), replicas }
    }
}

fn ranges<'a>(slots: impl Iterator<Item = Option<&'a Address>>) -> Vec<(u16, u16, Address)> {
    let mut ranges: Vec<(u16, u16, Address)> = Vec::new();
    for (slot, primary) in (0..SLOTS).zip(slots) {
        let Some(primary) = primary else { continue };
        match ranges.last_mut() {
            Some((_, last, owner)) if *last + 1 == slot && owner == primary => *last = slot,
            _ => ranges.push((slot, slot, primary.clone())),
        }
    }
    ranges
}

fn node(value: &Value, asked: &Address) -> Option<Address> {
    let Value::List(parts) = value else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match host {
        Value::Text(host) if !host.is_empty() && host != "?" => host.clone(),
        _ => asked.0.clone(),
    };
    Some((host, u16::try_from(*port).ok()?))
}

/// A parsed MOVED or ASK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirection {
    pub(super) slot: u16,
    pub(super) to: Address,
    /// True for ASK: for this one call only, with ASKING.
    pub(super) ask: bool,
}

impl Redirection {
    /// Reads `MOVED 3999 127.0.0.1:6381`.
    pub(super) fn read(words: &str, from: &Address) -> Option<Self> {
        let mut words = words.split_whitespace();
        let ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let host = if host.is_empty() || host == "?" { &from.0 } else { host };
        Some(Self { slot, to: (host.to_owned(), port.parse().ok()?), ask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        ("10.0.0.1".to_owned(), port)
    }

    fn entry(first: i64, last: i64, ports: &[i64]) -> Value {
        let nodes = ports.iter().map(|port| {
            Value::List(vec![
                Value::Text("10.0.0.1".to_owned()),
                Value::Int(*port),
                Value::Text("id".to_owned()),
            ])
        });
        Value::List([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    fn map(entries: &[(i64, i64, i64)]) -> SlotMap {
        let entries =
            entries.iter().map(|(first, last, port)| entry(*first, *last, &[*port])).collect();
        SlotMap::read(&Value::List(entries), &address(1)).expect("a map")
    }

    #[test]
    fn an_answer_is_read() {
        let value = Value::List(vec![entry(8_192, 16_383, &[2, 4]), entry(0, 8_191, &[1, 3])]);
        let map = SlotMap::read(&value, &address(9)).expect("a map");
        assert_eq!(map.primaries(), BTreeSet::from([&address(1), &address(2)]));
        assert_eq!(map.replicas, BTreeSet::from([address(3), address(4)]));
        let slots = map.by_slot();
        assert_eq!(
            (slots[0], slots[8_191], slots[8_192]),
            (Some(&address(1)), Some(&address(1)), Some(&address(2)))
        );
    }

    #[test]
    fn a_node_that_does_not_know_its_host_is_where_it_was_asked() {
        for host in [Value::Nil, Value::Text(String::new()), Value::Text("?".to_owned())] {
            let node = Value::List(vec![host, Value::Int(7)]);
            let value = Value::List(vec![Value::List(vec![Value::Int(0), Value::Int(1), node])]);
            let map = SlotMap::read(&value, &address(7)).expect("a map");
            assert_eq!(map.primaries(), BTreeSet::from([&address(7)]));
        }
    }

    #[test]
    fn nonsense_is_no_map() {
        let bad = [
            Value::Nil,
            Value::List(vec![Value::Int(1)]),
            Value::List(vec![entry(5, 4, &[1])]),
            Value::List(vec![entry(0, 16_384, &[1])]),
            Value::List(vec![entry(-1, 4, &[1])]),
            Value::List(vec![entry(0, 4, &[70_000])]),
            Value::List(vec![entry(0, 4, &[])]),
            Value::List(vec![entry(0, 4, &[1]), entry(4, 5, &[2])]),
        ];
        for value in bad {
            assert_eq!(SlotMap::read(&value, &address(1)), None, "{value:?}");
        }
    }

    #[test]
    fn most_voices_win_and_a_change_wins_a_tie() {
        let old = map(&[(0, 16_383, 1)]);
        let new = map(&[(0, 99, 2), (100, 16_383, 1)]);
        assert_eq!(
            SlotMap::agree(&[new.clone(), old.clone(), old.clone()], &old).ranges,
            old.ranges
        );
        assert_eq!(
            SlotMap::agree(&[old.clone(), new.clone(), new.clone()], &old).ranges,
            new.ranges
        );
        assert_eq!(SlotMap::agree(&[old.clone(), new.clone()], &old).ranges, new.ranges);
        assert_eq!(
            SlotMap::agree(&[old.clone(), old.clone(), new.clone()], &old).ranges,
            old.ranges
        );
        assert_eq!(
            SlotMap::agree(&[new.clone(), old.clone(), new.clone()], &old).ranges,
            new.ranges
        );
        assert_eq!(SlotMap::agree(&[new.clone(), old.clone()], &old).ranges, new.ranges);
        let half = map(&[(0, 8_191, 1)]);
        assert_eq!(SlotMap::agree(&[half, old.clone()], &old).ranges, old.ranges, "one knows less");
        assert_eq!(SlotMap::agree(&[old.clone(), new.clone()], &new).ranges, old.ranges);
        assert_eq!(SlotMap::agree(&[], &old), old);
        let unserved = map(&[(100, 16_383, 1)]);
        assert_eq!(
            SlotMap::agree(&[unserved.clone(), unserved.clone(), old.clone()], &old).ranges,
            unserved.ranges
        );
    }

    #[test]
    fn redirections_are_read() {
        let read = |words| Redirection::read(words, &address(1));
        let moved = Redirection { slot: 3_999, to: ("h".to_owned(), 6_381), ask: false };
        assert_eq!(read("MOVED 3999 h:6381"), Some(moved.clone()));
        assert_eq!(read("ASK 3999 h:6381"), Some(Redirection { ask: true, ..moved }));
        assert_eq!(read("MOVED 1 :6381").expect("host left out").to, address(6_381));
        assert_eq!(read("MOVED 1 [::1]:6381").expect("IPv6").to, ("::1".to_owned(), 6_381));
        for bad in
            ["", "MOVED", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h", "MOVED 1 h:x", "ERR 1 h:1"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
