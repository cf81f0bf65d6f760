//! Commands on sorted sets.

use std::cmp::Ordering;
use std::ops::Range;

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Content;
use super::Refusal;
use super::SYNTAX;
use super::Store;
use super::Stored;
use super::command;
use super::numbers;
use super::numbers::end_of_scores;
use super::numbers::integer;
use super::numbers::number_of;
use super::numbers::positions;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("ZADD", (4, ANY), 1, CommandEffect::Grows, |store, words| store.zadd(words, false)),
    command("ZINCRBY", (4, 4), 1, CommandEffect::Grows, |store, words| store.zadd(words, true)),
    command("ZREM", (3, ANY), 1, CommandEffect::Writes, Store::zrem),
    command("ZSCORE", (3, 3), 1, CommandEffect::Reads, Store::zscore),
    command("ZMSCORE", (3, ANY), 1, CommandEffect::Reads, Store::zmscore),
    command("ZCARD", (2, 2), 1, CommandEffect::Reads, Store::zcard),
    command("ZCOUNT", (4, 4), 1, CommandEffect::Reads, Store::zcount),
    command("ZRANK", (3, 3), 1, CommandEffect::Reads, |store, words| store.zrank(words, false)),
    command("ZREVRANK", (3, 3), 1, CommandEffect::Reads, |store, words| store.zrank(words, true)),
    command("ZRANGE", (4, ANY), 1, CommandEffect::Reads, |store, words| {
        store.zrange(words, None, None)
    }),
    command("ZREVRANGE", (4, ANY), 1, CommandEffect::Reads, |store, words| {
        store.zrange(words, Some(RangeBy::Rank), Some(true))
    }),
    command("ZRANGEBYSCORE", (4, ANY), 1, CommandEffect::Reads, |store, words| {
        store.zrange(words, Some(RangeBy::Score), Some(false))
    }),
    command("ZREVRANGEBYSCORE", (4, ANY), 1, CommandEffect::Reads, |store, words| {
        store.zrange(words, Some(RangeBy::Score), Some(true))
    }),
    command("ZREMRANGEBYRANK", (4, 4), 1, CommandEffect::Writes, |store, words| {
        store.zremrange(words, RangeBy::Rank)
    }),
    command("ZREMRANGEBYSCORE", (4, 4), 1, CommandEffect::Writes, |store, words| {
        store.zremrange(words, RangeBy::Score)
    }),
    command("ZPOPMIN", (2, ANY), 1, CommandEffect::Writes, |store, words| store.zpop(words, false)),
    command("ZPOPMAX", (2, ANY), 1, CommandEffect::Writes, |store, words| store.zpop(words, true)),
];

/// Members with their scores, ordered by score, and by the bytes of the member for equal scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SortedSet(Vec<(f64, String)>);

impl SortedSet {
    fn members(&self) -> &[(f64, String)] {
        &self.0
    }

    fn rank(&self, member: &str) -> Option<usize> {
        self.0.iter().position(|(_, known)| known == member)
    }

    fn score(&self, member: &str) -> Option<f64> {
        self.rank(member).map(|rank| self.0[rank].0)
    }

    /// Adds a member or moves it. The score must be a number; -0 becomes 0, as in a small sorted
    /// set of Redis.
    fn put(&mut self, member: &str, score: f64) {
        self.remove(member);
        let score = score + 0.0;
        let is_before = |(other, known): &(f64, String)| {
            let by_score = other.partial_cmp(&score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| known.as_bytes().cmp(member.as_bytes())) == Ordering::Less
        };
        let rank = self.0.partition_point(is_before);
        self.0.insert(rank, (score, member.to_owned()));
    }

    fn remove(&mut self, member: &str) -> bool {
        let rank = self.rank(member);
        rank.map(|rank| self.0.remove(rank)).is_some()
    }
}

#[cfg(test)]
impl FromIterator<(f64, String)> for SortedSet {
    fn from_iter<T: IntoIterator<Item = (f64, String)>>(members: T) -> Self {
        let mut set = Self::default();
        members.into_iter().for_each(|(score, member)| set.put(&member, score));
        set
    }
}

#[cfg(test)]
impl SortedSet {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(f64, String)> {
        self.0.iter()
    }
}

impl Content for SortedSet {
    fn of(value: &mut Stored) -> Option<&mut Self> {
        match value {
            Stored::SortedSet(set) => Some(set),
            _ => None,
        }
    }

    fn into_stored(self) -> Stored {
        Stored::SortedSet(self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The options of ZADD between the key and the scores.
#[derive(Default)]
struct AddOptions {
    /// NX: add only members that do not exist.
    absent: bool,
    /// XX: change only members that exist.
    present: bool,
    /// GT: give an existing member only a greater score.
    greater: bool,
    /// LT: give an existing member only a smaller score.
    less: bool,
    /// CH: count moved members as well.
    count_changes: bool,
    /// INCR: add the score to the present one.
    increment: bool,
}

/// What ZADD did with one member.
#[derive(Clone, Copy)]
enum ZaddOutcome {
    /// The member did not exist.
    New(f64),
    Moved(f64),
    /// The member already had this score.
    Same(f64),
    /// An option prevented the change.
    Nothing,
}

/// What the limits of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeBy {
    Rank,
    Score,
    Lex,
}

/// The members between two limits.
enum MemberRange<'a> {
    Ranks(i64, i64),
    Scores(RangeEnd<f64>, RangeEnd<f64>),
    /// By text, where all scores are equal.
    Texts(RangeEnd<&'a [u8]>, RangeEnd<&'a [u8]>),
}

/// One limit of a range.
#[derive(Clone, Copy)]
enum RangeEnd<T> {
    Including(T),
    Excluding(T),
    /// Before every member: `-`.
    First,
    /// After every member: `+`.
    Last,
}

/// The options of ZRANGE after the two limits.
struct RangeOptions {
    by: RangeBy,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl Store {
    /// ZADD; with `increment` ZINCRBY.
    fn zadd(&mut self, words: &[String], increment: bool) -> CommandResult {
        let (options, pairs) = AddOptions::read(&words[2..], increment)?;
        // All scores are parsed before anything is added.
        let scores = pairs.chunks_exact(2).map(|pair| numbers::score(&pair[0]));
        let scores = scores.collect::<Result<Vec<f64>, Refusal>>()?;
        let members = pairs.chunks_exact(2).map(|pair| pair[1].as_str()).zip(scores);
        let add = |set: &mut SortedSet| {
            let added = members.map(|(member, score)| options.add(set, member, score));
            added.collect::<Result<Vec<ZaddOutcome>, Refusal>>()
        };
        // If the key does not exist, no member does.
        let added = match options.present {
            true => self.change(&words[1], add)?.unwrap_or(Ok(Vec::new()))?,
            false => self.change_or_create(&words[1], add)??,
        };
        Ok(options.answer(&added))
    }

    fn zrem(&mut self, words: &[String]) -> CommandResult {
        let removed = self.change(&words[1], |set: &mut SortedSet| {
            words[2..].iter().filter(|member| set.remove(member)).count()
        })?;
        Ok(CommandReply::count(removed.unwrap_or(0)))
    }

    fn zscore(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<SortedSet>(&words[1])?;
        Ok(score_or_nil(set.and_then(|set| set.score(&words[2]))))
    }

    fn zmscore(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<SortedSet>(&words[1])?;
        let scores =
            words[2..].iter().map(|member| score_or_nil(set.and_then(|set| set.score(member))));
        Ok(CommandReply::List(scores.collect()))
    }

    fn zcard(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<SortedSet>(&words[1])?;
        Ok(CommandReply::count(set.map_or(0, |set| set.members().len())))
    }

    fn zcount(&mut self, words: &[String]) -> CommandResult {
        let between = MemberRange::read(RangeBy::Score, &words[2], &words[3])?;
        let set = self.content::<SortedSet>(&words[1])?;
        Ok(CommandReply::count(set.map_or(0, |set| between.ranks(set).len())))
    }

    fn zrank(&mut self, words: &[String], reverse: bool) -> CommandResult {
        let Some(set) = self.content::<SortedSet>(&words[1])? else { return Ok(CommandReply::Nil) };
        let Some(rank) = set.rank(&words[2]) else { return Ok(CommandReply::Nil) };
        Ok(CommandReply::count(if reverse { set.members().len() - 1 - rank } else { rank }))
    }

    /// ZRANGE. Its older variants have some of its options in their names.
    fn zrange(
        &mut self,
        words: &[String],
        by: Option<RangeBy>,
        reverse: Option<bool>,
    ) -> CommandResult {
        let options = RangeOptions::read(&words[4..], by, reverse)?;
        let (first, second) = (&words[2], &words[3]);
        let swapped = options.reverse && options.by != RangeBy::Rank;
        let (from, to) = if swapped { (second, first) } else { (first, second) };
        let between = MemberRange::read(options.by, from, to)?;
        let set = self.content::<SortedSet>(&words[1])?;
        Ok(set.map_or(CommandReply::List(Vec::new()), |set| options.answer(set, &between)))
    }

    fn zremrange(&mut self, words: &[String], by: RangeBy) -> CommandResult {
        let between = MemberRange::read(by, &words[2], &words[3])?;
        let removed = self.change(&words[1], |set: &mut SortedSet| {
            let ranks = between.ranks(set);
            set.0.drain(ranks).count()
        })?;
        Ok(CommandReply::count(removed.unwrap_or(0)))
    }

    fn zpop(&mut self, words: &[String], greatest: bool) -> CommandResult {
        let number = match &words[2..] {
            [] => 1,
            [number] => number_of(number)?,
            _ => return Err(SYNTAX),
        };
        let popped = self.change(&words[1], |set: &mut SortedSet| {
            let (length, number) = (set.0.len(), number.min(set.0.len()));
            match greatest {
                true => set.0.drain(length - number..).rev().collect(),
                false => set.0.drain(..number).collect::<Vec<_>>(),
            }
        })?;
        Ok(listed(popped.unwrap_or_default().iter(), true))
    }
}

impl AddOptions {
    /// Parses the options; returns them and the pairs of score and member that follow.
    fn read(words: &[String], increment: bool) -> Result<(Self, &[String]), Refusal> {
        let mut options = Self { increment, ..Self::default() };
        let mut pairs = words;
        while let [word, rest @ ..] = pairs {
            match word.to_ascii_uppercase().as_str() {
                "NX" => options.absent = true,
                "XX" => options.present = true,
                "GT" => options.greater = true,
                "LT" => options.less = true,
                "CH" => options.count_changes = true,
                "INCR" => options.increment = true,
                _ => break,
            }
            pairs = rest;
        }
        if pairs.is_empty() || pairs.len() % 2 != 0 {
            return Err(SYNTAX);
        }
        options.check(pairs.len() / 2)?;
        Ok((options, pairs))
    }

    fn check(&self, pairs: usize) -> Result<(), Refusal> {
        let Self { absent, greater, less, .. } = *self;
        if absent && self.present {
            return Err(Refusal::new("ERR XX and NX options at the same time are not compatible"));
        }
        if absent && (greater || less) || greater && less {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(Refusal::new(text));
        }
        if self.increment && pairs > 1 {
            return Err(Refusal::new("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    fn add(&self, set: &mut SortedSet, member: &str, score: f64) -> Result<ZaddOutcome, Refusal> {
        let Some(before) = set.score(member) else {
            if self.present {
                return Ok(ZaddOutcome::Nothing);
            }
            set.put(member, score);
            return Ok(ZaddOutcome::New(score));
        };
        if self.absent {
            return Ok(ZaddOutcome::Nothing);
        }
        let score = if self.increment { before + score } else { score };
        if score.is_nan() {
            return Err(Refusal::new("ERR resulting score is not a number (NaN)"));
        }
        if self.less && score >= before || self.greater && score <= before {
            return Ok(ZaddOutcome::Nothing);
        }
        if score == before {
            return Ok(ZaddOutcome::Same(score));
        }
        set.put(member, score);
        Ok(ZaddOutcome::Moved(score))
    }

    fn answer(&self, added: &[ZaddOutcome]) -> CommandReply {
        if self.increment {
            return match added {
                [
                    ZaddOutcome::New(score) | ZaddOutcome::Moved(score) | ZaddOutcome::Same(score),
                ] => score_or_nil(Some(*score)),
                _ => CommandReply::Nil,
            };
        }
        let counts = |added: &&ZaddOutcome| match added {
            ZaddOutcome::New(_) => true,
            ZaddOutcome::Moved(_) => self.count_changes,
            ZaddOutcome::Same(_) | ZaddOutcome::Nothing => false,
        };
        CommandReply::count(added.iter().filter(counts).count())
    }
}

impl RangeOptions {
    fn read(
        mut words: &[String],
        by: Option<RangeBy>,
        reverse: Option<bool>,
    ) -> Result<Self, Refusal> {
        let (mut by, mut reverse, mut with_scores, mut offset, mut limit) =
            (by, reverse, false, 0, -1);
        while let [word, rest @ ..] = words {
            words = rest;
            match (word.to_ascii_uppercase().as_str(), rest) {
                ("WITHSCORES", _) => with_scores = true,
                ("LIMIT", [from, most, rest @ ..]) => {
                    (offset, limit) = (integer(from)?, integer(most)?);
                    words = rest;
                }
                ("REV", _) if reverse.is_none() => reverse = Some(true),
                ("BYLEX", _) if by.is_none() => by = Some(RangeBy::Lex),
                ("BYSCORE", _) if by.is_none() => by = Some(RangeBy::Score),
                _ => return Err(SYNTAX),
            }
        }
        let (by, reverse) = (by.unwrap_or(RangeBy::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == RangeBy::Rank {
            let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(Refusal::new(text));
        }
        if with_scores && by == RangeBy::Lex {
            let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
            return Err(Refusal::new(text));
        }
        Ok(Self { by, reverse, with_scores, offset, limit })
    }

    fn answer(&self, set: &SortedSet, between: &MemberRange<'_>) -> CommandReply {
        let ranks = match (between, self.reverse) {
            // Positions that are counted from the end.
            (MemberRange::Ranks(start, stop), true) => {
                let length = set.members().len();
                let ranks = positions(*start, *stop, length);
                length - ranks.end..length - ranks.start
            }
            _ => between.ranks(set),
        };
        let members = &set.members()[ranks];
        // A negative offset skips everything; a negative limit means no limit.
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let most = usize::try_from(self.limit).unwrap_or(usize::MAX);
        match self.reverse {
            true => listed(members.iter().rev().skip(skipped).take(most), self.with_scores),
            false => listed(members.iter().skip(skipped).take(most), self.with_scores),
        }
    }
}

impl<'a> MemberRange<'a> {
    fn read(by: RangeBy, from: &'a str, to: &'a str) -> Result<Self, Refusal> {
        match by {
            RangeBy::Rank => Ok(Self::Ranks(integer(from)?, integer(to)?)),
            RangeBy::Score => {
                let ends = RangeEnd::of_scores(from).zip(RangeEnd::of_scores(to));
                let (from, to) = ends.ok_or(Refusal::new("ERR min or max is not a float"))?;
                Ok(Self::Scores(from, to))
            }
            RangeBy::Lex => {
                let ends = RangeEnd::of_texts(from).zip(RangeEnd::of_texts(to));
                let (from, to) =
                    ends.ok_or(Refusal::new("ERR min or max not valid string range item"))?;
                Ok(Self::Texts(from, to))
            }
        }
    }

    /// The positions of the members in this range.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let members = set.members();
        let between = |before: &dyn Fn(&(f64, String)) -> bool,
                       up_to: &dyn Fn(&(f64, String)) -> bool| {
            let start = members.partition_point(before);
            start..members.partition_point(up_to).max(start)
        };
        match self {
            Self::Ranks(start, stop) => positions(*start, *stop, members.len()),
            Self::Scores(from, to) => {
                between(&|(score, _)| from.is_behind(score), &|(score, _)| !to.is_before(score))
            }
            Self::Texts(from, to) => {
                between(&|(_, member)| from.is_behind(&member.as_bytes()), &|(_, member)| {
                    !to.is_before(&member.as_bytes())
                })
            }
        }
    }
}

impl RangeEnd<f64> {
    fn of_scores(text: &str) -> Option<Self> {
        match text.strip_prefix('(') {
            Some(text) => end_of_scores(text).map(Self::Excluding),
            None => end_of_scores(text).map(Self::Including),
        }
    }
}

impl<'a> RangeEnd<&'a [u8]> {
    fn of_texts(text: &'a str) -> Option<Self> {
        match text.as_bytes() {
            b"-" => Some(Self::First),
            b"+" => Some(Self::Last),
            [b'[', text @ ..] => Some(Self::Including(text)),
            [b'(', text @ ..] => Some(Self::Excluding(text)),
            _ => None,
        }
    }
}

impl<T: PartialOrd> RangeEnd<T> {
    /// As the lower limit: true if `other` is below it.
    fn is_behind(&self, other: &T) -> bool {
        match self {
            Self::Including(end) => other < end,
            Self::Excluding(end) => other <= end,
            Self::First => false,
            Self::Last => true,
        }
    }

    /// As the upper limit: true if `other` is above it.
    fn is_before(&self, other: &T) -> bool {
        match self {
            Self::Including(end) => other > end,
            Self::Excluding(end) => other >= end,
            Self::First => true,
            Self::Last => false,
        }
    }
}

fn score_or_nil(score: Option<f64>) -> CommandReply {
    CommandReply::text_or_nil(score.map(numbers::text_of))
}

fn listed<'a>(members: impl Iterator<Item = &'a (f64, String)>, with_scores: bool) -> CommandReply {
    let words = members.flat_map(|(score, member)| {
        let score = with_scores.then(|| numbers::text_of(*score));
        [Some(member.clone()), score].into_iter().flatten()
    });
    CommandReply::texts(words)
}
