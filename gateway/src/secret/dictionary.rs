//! Many patterns in order: which of them stands at the beginning of a text, and whether one may go on behind its end.
use super::TooLarge;
use hashbrown::HashMap;
use std::ops::Range;
use zeroize::Zeroizing;

/// One thing to look for.
pub(super) struct Pattern {
    /// What to find; at least [`SHORTEST`] bytes.
    pub(super) pattern: Zeroizing<Vec<u8>>,
    /// What stands there instead.
    pub(super) replacement: Vec<u8>,
    /// Index of the binding.
    pub(super) owner: usize,
}

/// Bytes by which patterns are found; shorter ones are not looked for.
pub(super) const SHORTEST: usize = 4;
/// Pairs of bytes that there are.
const PAIRS: usize = 1 << 16;
/// More patterns than any session has; their places are kept in half a word.
const MOST: usize = 1 << 24;

/// Patterns in the order of their bytes, each once.
pub(super) struct Dictionary {
    patterns: Vec<Pattern>,
    /// By pattern: the longest other one that it begins with.
    inside: Vec<Option<u32>>,
    /// By first bytes: where those stand that begin with them.
    first: [bool; 256],
    pairs: Box<[bool]>,
    fours: HashMap<[u8; SHORTEST], Range<u32>>,
    longest: usize,
}

impl Dictionary {
    /// Of these patterns, without those that are too short and those that stand there twice.
    pub(super) fn new(mut patterns: Vec<Pattern>) -> Result<Self, TooLarge> {
        patterns.retain(|pattern| pattern.pattern.len() >= SHORTEST);
        patterns.sort_by(|a, b| a.pattern.cmp(&b.pattern));
        patterns.dedup_by(|later, first| later.pattern == first.pattern);
        if patterns.len() > MOST {
            return Err(TooLarge(format!("{} patterns", patterns.len())));
        }
        let mut made = Self {
            inside: Vec::with_capacity(patterns.len()),
            first: [false; 256],
            pairs: vec![false; PAIRS].into(),
            fours: HashMap::new(),
            longest: patterns
                .iter()
                .map(|pattern| pattern.pattern.len())
                .max()
                .unwrap_or(0),
            patterns,
        };
        for index in 0..made.patterns.len() {
            made.enter(index);
        }
        Ok(made)
    }

    fn enter(&mut self, index: usize) {
        let pattern = &self.patterns[index].pattern;
        #[expect(clippy::cast_possible_truncation, reason = "there are at most MOST patterns")]
        let place = index as u32;
        // Whatever it begins with stands before it, and between them only what begins with that too.
        let before = place.checked_sub(1);
        self.inside
            .push(before.and_then(|before| self.innermost(before, pattern)));
        if let [first, second, ..] = pattern.as_slice() {
            self.first[usize::from(*first)] = true;
            self.pairs[pair(*first, *second)] = true;
        }
        if let Some(four) = pattern.first_chunk() {
            self.fours.entry(*four).or_insert(place..place).end = place + 1;
        }
    }

    /// Of a pattern and those that it begins with, the longest with which a text begins.
    fn innermost(&self, from: u32, text: &[u8]) -> Option<u32> {
        let mut next = Some(from);
        while let Some(place) = next {
            if text.starts_with(&self.patterns[place as usize].pattern) {
                return Some(place);
            }
            next = self.inside[place as usize];
        }
        None
    }

    /// The patterns.
    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Bytes of the longest pattern.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The longest pattern with which a text begins.
    pub(super) fn at_the_beginning_of(&self, text: &[u8]) -> Option<&Pattern> {
        let fitting = self.fours.get(text.first_chunk::<SHORTEST>()?)?;
        let range = fitting.start as usize..fitting.end as usize;
        let text = &text[..text.len().min(self.longest)];
        let behind = self.patterns[range].partition_point(|pattern| pattern.pattern.as_slice() <= text);
        // Every pattern with which the text begins is one with which the last pattern before it begins, or that one.
        let last = (fitting.start as usize + behind).checked_sub(1)?;
        let place = self.innermost(u32::try_from(last).ok()?, text)?;
        Some(&self.patterns[place as usize])
    }

    /// Whether a longer pattern begins with these bytes.
    pub(super) fn may_go_on(&self, bytes: &[u8]) -> bool {
        let known = match bytes {
            [] => false,
            [first] => self.first[usize::from(*first)],
            [first, second, ..] => {
                let four = bytes.first_chunk();
                self.pairs[pair(*first, *second)] && four.is_none_or(|four| self.fours.contains_key(four))
            }
        };
        if !known {
            return false;
        }
        let behind = self
            .patterns
            .partition_point(|pattern| pattern.pattern.as_slice() <= bytes);
        self.patterns
            .get(behind)
            .is_some_and(|pattern| pattern.pattern.starts_with(bytes))
    }
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_says_what_a_walk_over_all_patterns_says(
            patterns in prop::collection::vec(prop::collection::vec(b'a'..b'c', 4..12), 0..12),
            text in prop::collection::vec(b'a'..b'c', 0..14),
        ) {
            let dictionary = Dictionary::new(patterns.iter().map(|pattern| Pattern {
                pattern: Zeroizing::new(pattern.clone()),
                replacement: Vec::new(),
                owner: 0,
            }).collect()).unwrap();
            let longest = patterns.iter().filter(|pattern| text.starts_with(pattern)).map(Vec::len).max();
            let found = dictionary.at_the_beginning_of(&text).map(|pattern| pattern.pattern.len());
            prop_assert_eq!(found, longest);
            let goes_on = patterns.iter().any(|pattern| pattern.len() > text.len() && pattern.starts_with(&text));
            prop_assert_eq!(dictionary.may_go_on(&text), goes_on && !text.is_empty());
        }
    }
}
