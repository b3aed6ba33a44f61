//! Where in a text a pattern may begin: most bytes of most texts are never looked at (S. Wu and U. Manber, "A fast algorithm
//! for multi-pattern searching", 1994, with blocks of four bytes, by a hash).
/// Bytes of a block: so few that most patterns hold several, so many that hardly one stands in a text by chance.
const BLOCK: usize = 4;
/// Places in the table of blocks, as a power of two.
const TABLE_BITS: u32 = 16;
/// Pairs that there are.
const PAIRS: usize = 1 << 16;
/// Longer windows would skip further, but more blocks would stand in them.
const WIDEST: usize = 16;

/// Places that are looked at in turn, so that the processor waits for several tables at once.
const LANES: usize = 4;
/// A lane shorter than this is not worth its beginning.
const SHORTEST_LANE: usize = 256;

/// Tables over the beginnings of all patterns, each of which has a block at least.
pub(super) struct Skip {
    /// Bytes of a pattern's beginning that are looked at: no pattern is shorter.
    window: usize,
    /// By the last block in the window: how far the next beginning is away at least; 0 where one may be here.
    shift: Box<[u8]>,
    /// By pair: whether a pattern begins with it.
    opens: Box<[bool]>,
}

impl Skip {
    /// Over these patterns.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let shortest = patterns.clone().map(<[u8]>::len).min().unwrap_or(WIDEST);
        let window = shortest.clamp(BLOCK, WIDEST);
        let blocks = window - BLOCK + 1;
        let mut shift = vec![away(blocks); 1 << TABLE_BITS];
        let mut opens = vec![false; PAIRS];
        for pattern in patterns {
            for (at, block) in pattern.windows(BLOCK).take(blocks).enumerate() {
                if let Some(block) = block.first_chunk() {
                    let place = &mut shift[hashed(*block)];
                    *place = (*place).min(away(blocks - 1 - at));
                }
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
            match self.away(text, at)? {
                0 => return Some(at),
                away => at += away,
            }
        }
    }

    /// How far from here the next beginning is at least; none where no whole pattern can follow.
    fn away(&self, text: &[u8], at: usize) -> Option<usize> {
        let block = text.get(at + self.window - BLOCK..)?.first_chunk()?;
        Some(usize::from(self.shift[hashed(*block)]))
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
        // A lane that steps over its end into the next one only looks at what that one looks at too.
        while at.iter().zip(&ends).all(|(at, end)| at < end) {
            let mut candidate = false;
            for place in &mut at {
                let Some(away) = self.away(text, *place) else {
                    break;
                };
                candidate |= away == 0;
                *place += away;
            }
            if candidate {
                for place in &mut at {
                    if self.away(text, *place) == Some(0) {
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
        while at < end {
            match self.away(text, at) {
                Some(0) if is_match(at) => return false,
                Some(0) => at += 1,
                Some(away) => at += away,
                // No whole pattern can follow.
                None => return true,
            }
        }
        true
    }

    /// Whether a pattern begins with these two bytes.
    pub(super) fn opens(&self, first: u8, second: u8) -> bool {
        self.opens[index(first, second)]
    }
}

fn index(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Its place in the table (D. Knuth's multiplicative hashing).
fn hashed(block: [u8; BLOCK]) -> usize {
    (u32::from_le_bytes(block).wrapping_mul(0x9e37_79b1) >> (u32::BITS - TABLE_BITS)) as usize
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
            patterns in prop::collection::vec(prop::collection::vec(b'a'..b'd', 4..20), 1..6),
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
