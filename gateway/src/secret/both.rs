//! What is looked for in requests, values and placeholders, by one look at each piece.
use super::candidates::Candidates;
use super::scanner::Scanner;
use std::sync::Arc;

/// Two scanners that are asked together: a piece is looked through once for both.
pub(super) struct Both {
    candidates: Candidates,
    scanners: [Arc<Scanner>; 2],
}

impl Both {
    /// Of these.
    pub(super) fn new(scanners: [Arc<Scanner>; 2]) -> Self {
        let candidates = Candidates::new(scanners.iter().flat_map(|scanner| scanner.texts()));
        Self { candidates, scanners }
    }

    /// Whether a piece passes both as it is, where neither holds anything back.
    pub(super) fn passes(&self, piece: &[u8]) -> bool {
        let [one, other] = &self.scanners;
        let is_match = |begin| one.is_at(piece, begin) || other.is_at(piece, begin);
        self.candidates.none_matches(piece, is_match)
            && one.holds_nothing(piece)
            && other.holds_nothing(piece)
    }
}
