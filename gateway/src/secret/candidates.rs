//! Where in a text one of many patterns may begin: long ones by samples, short ones by skipping.
use super::sampled::{self, Sampled};
use super::skip::Skip;

/// A filter before a search: it asks only where a pattern may begin, and everywhere where one does.
pub(super) struct Candidates {
    long: Option<Sampled>,
    short: Option<Skip>,
}

impl Candidates {
    /// Of these patterns, which have 4 bytes at least.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let is_long = |pattern: &&[u8]| pattern.len() >= sampled::SHORTEST;
        Self {
            long: Sampled::new(patterns.clone().filter(is_long)),
            short: Skip::new(patterns.filter(move |pattern| !is_long(pattern))),
        }
    }

    /// The first position from `at` on at which `is_match` holds; it is asked for some positions at which no pattern begins.
    pub(super) fn first(&self, text: &[u8], at: usize, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        let long = self
            .long
            .as_ref()
            .and_then(|long| long.first(text, at, &is_match));
        let short = self.short.as_ref().and_then(|short| {
            let until = long.unwrap_or(text.len());
            short.first(text, at..until, &is_match)
        });
        short.or(long)
    }

    /// Whether `is_match` holds nowhere.
    pub(super) fn none_matches(&self, text: &[u8], is_match: impl Fn(usize) -> bool) -> bool {
        let none_long = |long: &Sampled| long.first(text, 0, &is_match).is_none();
        let none_short = |short: &Skip| short.none_matches(text, &is_match);
        self.long.as_ref().is_none_or(none_long) && self.short.as_ref().is_none_or(none_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn letters(of: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(b'a'..b'c', of)
    }

    proptest! {
        #[test]
        fn it_finds_what_a_naive_search_finds(
            patterns in prop::collection::vec(prop_oneof![letters(4..16), letters(16..24), letters(24..60)], 1..6),
            texts in prop::collection::vec(prop_oneof![letters(0..40), Just(vec![b' '; 9])], 0..8),
            chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            at in 0_usize..60,
        ) {
            // Words by chance, with some of the patterns between them.
            let mut text = Vec::new();
            for (index, word) in texts.iter().enumerate() {
                text.extend_from_slice(word);
                if let Some(chosen) = chosen.get(index) {
                    text.extend_from_slice(chosen.get(&patterns).as_slice());
                }
            }
            let candidates = Candidates::new(patterns.iter().map(Vec::as_slice));
            let begins = |at: usize| patterns.iter().any(|pattern| text[at..].starts_with(pattern));
            prop_assert_eq!(candidates.first(&text, at, begins), (at..text.len()).find(|at| begins(*at)));
            prop_assert_eq!(candidates.none_matches(&text, begins), !(0..text.len()).any(begins));
        }
    }
}
