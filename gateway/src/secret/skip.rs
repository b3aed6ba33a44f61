//! Where in a text a pattern may begin: most bytes of most texts are never looked at (S. Wu and U. Manber, "A fast algorithm
//! for multi-pattern searching", 1994, with pairs of bytes).
/// Pairs that there are.
const PAIRS: usize = 1 << 16;
/// Longer windows would skip further, but more pairs would stand in them.
const WIDEST: usize = 16;

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
