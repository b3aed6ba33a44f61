//! Where in a text a pattern may begin: most bytes of most texts are never looked at (S. Wu and U. Manber, "A fast algorithm
//! for multi-pattern searching", 1994, with pairs of bytes).
/// Pairs that there are.
const PAIRS: usize = 1 << 16;
/// Longer windows would skip further, but more pairs would stand in them.
const WIDEST: usize = 16;

/// Places that are looked at in turn, so that the processor waits for several tables at once.
const LANES: usize = 4;
/// A lane shorter than this is not worth its beginning.
const SHORTEST_LANE: usize = 256;

/// Tables over the beginnings of all patterns, each of which has two bytes at least.
pub(super) struct Skip {
    /// Bytes of a pattern's beginning that are looked at: no pattern is shorter.
    window: usize,
    /// By the last pair in the window: how far the next beginning is away at least; 0 where one may be here.
    shift: Box<[u8]>,
    /// By pair: whether a pattern begins with it.
    opens: Box<[bool]>,
}

impl Skip {
    /// Over these patterns.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let shortest = patterns.clone().map(<[u8]>::len).min().unwrap_or(WIDEST);
        let window = shortest.clamp(2, WIDEST);
        let mut shift = vec![away(window - 1); PAIRS];
        let mut opens = vec![false; PAIRS];
        for pattern in patterns {
            for (at, pair) in pattern.windows(2).take(window - 1).enumerate() {
                let place = &mut shift[index(pair[0], pair[1])];
                *place = (*place).min(away(window - 2 - at));
            }
            if let [first, second, ..] = pattern {
                opens[index(*first, *second)] = true;
            }
        }
        Self {
            window,
            shift: shift.into(),
            opens: opens.into(),
        }
    }

    /// The first position from `at` on at which a pattern may begin; none where no whole one can follow.
    pub(super) fn next(&self, text: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let pair = text.get(at + self.window - 2..at + self.window)?;
            match self.shift[index(pair[0], pair[1])] {
                0 => return Some(at),
                away => at += usize::from(away),
            }
        }
    }

    /// Whether `is_match` holds nowhere in a text where a pattern may begin. Looks at a long text in several places at once.
    pub(super) fn none_matches(&self, text: &[u8], is_match: impl Fn(usize) -> bool) -> bool {
        let lane = text.len() / LANES;
        if lane < SHORTEST_LANE {
            return self.none_from(text, 0, text.len(), &is_match);
        }
        // Each begins where the one before ends: a lane answers for the patterns that begin in it.
        let mut at: [usize; LANES] = std::array::from_fn(|index| index * lane);
        let ends: [usize; LANES] = std::array::from_fn(|index| (index + 1) * lane);
        // No step is longer than the window, so that none leaves its lane in the middle of a round.
        while at.iter().zip(&ends).all(|(at, end)| at < end) {
            let mut candidate = false;
            for place in &mut at {
                let Some(pair) = text.get(*place + self.window - 2..*place + self.window) else {
                    break;
                };
                let away = self.shift[index(pair[0], pair[1])];
                candidate |= away == 0;
                *place += usize::from(away);
            }
            if candidate {
                for place in &mut at {
                    if self.may_begin(text, *place) {
                        if is_match(*place) {
                            return false;
                        }
                        *place += 1;
                    }
                }
            }
        }
        (0..LANES).all(|lane| {
            let end = if lane + 1 == LANES { text.len() } else { ends[lane] };
            self.none_from(text, at[lane], end, &is_match)
        })
    }

    fn none_from(&self, text: &[u8], mut at: usize, end: usize, is_match: &impl Fn(usize) -> bool) -> bool {
        while let Some(begin) = self.next(text, at).filter(|begin| *begin < end) {
            if is_match(begin) {
                return false;
            }
            at = begin + 1;
        }
        true
    }

    fn may_begin(&self, text: &[u8], at: usize) -> bool {
        let pair = text.get(at + self.window - 2..at + self.window);
        pair.is_some_and(|pair| self.shift[index(pair[0], pair[1])] == 0)
    }

    /// Whether a pattern begins with these two bytes.
    pub(super) fn opens(&self, first: u8, second: u8) -> bool {
        self.opens[index(first, second)]
    }
}

fn index(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

fn away(distance: usize) -> u8 {
    // The window is narrower than 256 bytes, so that nothing is cut; too short a way would only be slower.
    u8::try_from(distance).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn several_places_at_once_find_what_one_finds(
            text in prop::collection::vec(b'a'..b'f', 0..3000),
            patterns in prop::collection::vec(prop::collection::vec(b'a'..b'f', 4..9), 1..4),
        ) {
            let skip = Skip::new(patterns.iter().map(Vec::as_slice));
            let begins = |at: usize| patterns.iter().any(|pattern| text[at..].starts_with(pattern));
            prop_assert_eq!(skip.none_matches(&text, begins), !(0..text.len()).any(begins));
        }

        #[test]
        fn no_beginning_is_skipped(
            patterns in prop::collection::vec(prop::collection::vec(b'a'..b'd', 2..20), 1..6),
            text in prop::collection::vec(b'a'..b'd', 0..200),
        ) {
            let skip = Skip::new(patterns.iter().map(Vec::as_slice));
            let mut at = 0;
            for begin in 0..text.len() {
                if patterns.iter().any(|pattern| text[begin..].starts_with(pattern)) {
                    // Everything that is skipped lies before it.
                    while let Some(next) = skip.next(&text, at).filter(|next| *next < begin) {
                        at = next + 1;
                    }
                    prop_assert_eq!(skip.next(&text, at), Some(begin));
                    prop_assert!(skip.opens(text[begin], text[begin + 1]));
                }
            }
        }
    }
}
