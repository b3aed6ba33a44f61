//! What is looked for in requests, values and placeholders, by one look at each piece.
use super::scanner::Scanner;
use super::skip::Skip;
use std::sync::Arc;

/// Two scanners that are asked together: a piece is looked through once for both.
pub(super) struct Both {
    skip: Skip,
    scanners: [Arc<Scanner>; 2],
}

impl Both {
    /// Of these.
    pub(super) fn new(scanners: [Arc<Scanner>; 2]) -> Self {
        let patterns = scanners.iter().flat_map(|scanner| &scanner.patterns);
        let skip = Skip::new(patterns.map(|pattern| pattern.pattern.as_slice()));
        Self { skip, scanners }
    }

    /// Whether a piece passes both as it is, where neither holds anything back.
    pub(super) fn passes(&self, piece: &[u8]) -> bool {
        let [one, other] = &self.scanners;
        let is_match = |begin| one.at(piece, begin).is_some() || other.at(piece, begin).is_some();
        self.skip.none_matches(piece, is_match) && one.holds_nothing(piece) && other.holds_nothing(piece)
    }
}
