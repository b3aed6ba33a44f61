//! Where in a text a pattern may begin: most bytes of most texts are never looked at (S. Wu and U. Manber, "A fast algorithm
//! for multi-pattern searching", 1994, with blocks of four bytes, by a hash).
use std::ops::Range;

/// Bytes of a block: so few that most patterns hold several, so many that hardly one stands in a text by chance.
const BLOCK: usize = 4;
/// Places in the table of blocks, as a power of two.
const TABLE_BITS: u32 = 16;
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
}

impl Skip {
    /// Over these patterns; none where there is no pattern.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let shortest = patterns.clone().map(<[u8]>::len).min()?;
        let window = shortest.clamp(BLOCK, WIDEST);
        let blocks = window - BLOCK + 1;
        let mut shift = vec![away(blocks); 1 << TABLE_BITS];
        for pattern in patterns {
            for (at, block) in pattern.windows(BLOCK).take(blocks).enumerate() {
                if let Some(block) = block.first_chunk() {
                    let place = &mut shift[hashed(*block)];
                    *place = (*place).min(away(blocks - 1 - at));
                }
            }
        }
        Some(Self {
            window,
            shift: shift.into(),
        })
    }

    /// The first position in `range` at which `is_match` holds, which is asked only where a pattern may begin.
    pub(super) fn first(
        &self,
        text: &[u8],
        range: Range<usize>,
        is_match: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut at = range.start;
        while at < range.end {
            match self.away(text, at)? {
                0 if is_match(at) => return Some(at),
                0 => at += 1,
                away => at += away,
            }
        }
        None
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
            return self.first(text, 0..text.len(), &is_match).is_none();
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
            self.first(text, at[lane]..end, &is_match).is_none()
        })
    }
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
            let skip = Skip::new(patterns.iter().map(Vec::as_slice)).unwrap();
            let begins = |at: usize| patterns.iter().any(|pattern| text[at..].starts_with(pattern));
            prop_assert_eq!(skip.none_matches(&text, begins), !(0..text.len()).any(begins));
            prop_assert_eq!(skip.first(&text, 0..text.len(), &begins), (0..text.len()).find(|at| begins(*at)));
        }
    }
}
