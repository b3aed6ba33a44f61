//! Searching a stream for patterns, cut anywhere, holding back only what may be the beginning of one.
use super::TooLarge;
use super::skip::Skip;
use aho_corasick::{AhoCorasick, Anchored, Input, Match, MatchKind, StartKind};
use bytes::BytesMut;
use std::collections::HashSet;
use std::sync::Arc;
use zeroize::Zeroizing;

/// One thing to look for.
pub(super) struct Pattern {
    /// What to find; at least 4 bytes.
    pub(super) pattern: Zeroizing<Vec<u8>>,
    /// What stands there instead.
    pub(super) replacement: Vec<u8>,
    /// Index of the binding.
    pub(super) owner: usize,
}

/// The patterns of one session, ready to search for. Of several matches the leftmost counts, and of those the longest.
pub(super) struct Scanner {
    /// Asked only where a pattern may begin.
    automaton: AhoCorasick,
    skip: Skip,
    pub(super) patterns: Vec<Pattern>,
    first_bytes: [bool; 256],
    beginnings: HashSet<[u8; BEGINNING]>,
    longest: usize,
}

const BEGINNING: usize = 4;

impl Scanner {
    /// Builds the automaton; none where there is nothing to look for.
    pub(super) fn build(mut patterns: Vec<Pattern>) -> Result<Option<Self>, TooLarge> {
        patterns.retain(|pattern| pattern.pattern.len() >= BEGINNING);
        patterns.sort_by(|a, b| a.pattern.cmp(&b.pattern));
        patterns.dedup_by(|later, first| later.pattern == first.pattern);
        if patterns.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(StartKind::Anchored)
            .build(patterns.iter().map(|pattern| pattern.pattern.as_slice()))
            .map_err(|error| TooLarge(error.to_string()))?;
        let mut first_bytes = [false; 256];
        let mut beginnings = HashSet::new();
        for Pattern { pattern, .. } in &patterns {
            first_bytes[usize::from(pattern[0])] = true;
            beginnings.extend(pattern.first_chunk::<BEGINNING>());
        }
        let longest = patterns
            .iter()
            .map(|pattern| pattern.pattern.len())
            .max()
            .unwrap_or(0);
        Ok(Some(Self {
            automaton,
            skip: Skip::new(patterns.iter().map(|pattern| pattern.pattern.as_slice())),
            patterns,
            first_bytes,
            beginnings,
            longest,
        }))
    }

    /// The whole text with every match replaced, and the owners of what was found; none where nothing was.
    pub(super) fn replace_all(&self, text: &[u8]) -> Option<(Vec<u8>, Vec<usize>)> {
        self.first(text, 0)?;
        let (mut clean, mut owners) = (BytesMut::with_capacity(text.len()), Vec::new());
        let mut found = |pattern: &Pattern| {
            owners.push(pattern.owner);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(_) = self.run(text, true, &mut clean, &mut found);
        Some((clean.to_vec(), owners))
    }

    /// The owner of the first match.
    pub(super) fn find(&self, text: &[u8]) -> Option<usize> {
        let found = self.first(text, 0)?;
        Some(self.patterns[found.pattern().as_usize()].owner)
    }

    /// Whether a piece at the beginning of a stream passes as it is: nothing is found in it, and nothing at its end may go on.
    fn passes(&self, piece: &[u8]) -> bool {
        self.finds_nothing(piece) && self.holds_nothing(piece)
    }

    fn finds_nothing(&self, text: &[u8]) -> bool {
        self.skip
            .none_matches(text, |begin| self.at(text, begin).is_some())
    }

    /// Whether nothing at the end of a piece may be the beginning of a match.
    pub(super) fn holds_nothing(&self, piece: &[u8]) -> bool {
        self.hold_from(piece, 0) == piece.len()
    }

    /// The leftmost match from `at` on, and of those that begin there the longest.
    fn first(&self, text: &[u8], mut at: usize) -> Option<Match> {
        loop {
            let begin = self.skip.next(text, at)?;
            if let Some(found) = self.at(text, begin) {
                return Some(found);
            }
            at = begin + 1;
        }
    }

    /// The longest match that begins here.
    pub(super) fn at(&self, text: &[u8], begin: usize) -> Option<Match> {
        self.automaton
            .find(Input::new(text).range(begin..).anchored(Anchored::Yes))
    }

    /// Searches, appends what is settled to `out`, and returns how many bytes of `data` that was.
    fn run<E>(
        &self,
        data: &[u8],
        last: bool,
        out: &mut BytesMut,
        found: &mut dyn FnMut(&Pattern) -> Result<(), E>,
    ) -> Result<usize, E> {
        let hold = |from: usize| {
            if last {
                data.len()
            } else {
                self.hold_from(data, from)
            }
        };
        let (mut at, mut held) = (0, hold(0));
        if self.finds_nothing(data) {
            out.extend_from_slice(&data[..held]);
            return Ok(held);
        }
        while let Some(hit) = self.first(data, at) {
            // A match that begins where a longer or earlier one may still come is not settled.
            if hit.start() >= held {
                break;
            }
            let pattern = &self.patterns[hit.pattern().as_usize()];
            found(pattern)?;
            out.extend_from_slice(&data[at..hit.start()]);
            out.extend_from_slice(&pattern.replacement);
            at = hit.end();
            if at > held {
                held = hold(at);
            }
        }
        out.extend_from_slice(&data[at..held]);
        Ok(held)
    }

    /// The first position, not before `from`, from which on the rest is the beginning of a longer pattern.
    fn hold_from(&self, data: &[u8], from: usize) -> usize {
        let earliest = from.max((data.len() + 1).saturating_sub(self.longest));
        (earliest..data.len())
            .find(|at| self.begins(&data[*at..]))
            .unwrap_or(data.len())
    }

    fn begins(&self, rest: &[u8]) -> bool {
        let opens = match rest {
            [first, second, ..] => self.skip.opens(*first, *second),
            [first] => self.first_bytes[usize::from(*first)],
            [] => false,
        };
        if !opens {
            return false;
        }
        if rest
            .first_chunk::<BEGINNING>()
            .is_some_and(|beginning| !self.beginnings.contains(beginning))
        {
            return false;
        }
        let at = self
            .patterns
            .partition_point(|pattern| pattern.pattern.as_slice() <= rest);
        self.patterns
            .get(at)
            .is_some_and(|pattern| pattern.pattern.starts_with(rest))
    }
}

/// A search over one stream.
pub(super) struct Window {
    scanner: Arc<Scanner>,
    held: Zeroizing<Vec<u8>>,
}

impl Window {
    /// The beginning of a stream.
    pub(super) fn new(scanner: Arc<Scanner>) -> Self {
        Self {
            scanner,
            held: Zeroizing::new(Vec::new()),
        }
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub(super) fn passes(&self, piece: &[u8]) -> bool {
        self.is_idle() && self.scanner.passes(piece)
    }

    /// Whether nothing is held back.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes a piece; appends what is settled to `out`. An error of `found` ends the search before the match is let go.
    pub(super) fn push<E>(
        &mut self,
        piece: &[u8],
        out: &mut BytesMut,
        found: &mut dyn FnMut(&Pattern) -> Result<(), E>,
    ) -> Result<(), E> {
        self.settle(piece, out);
        if self.held.is_empty() {
            let settled = self.scanner.run(piece, false, out, found)?;
            self.held.extend_from_slice(&piece[settled..]);
            return Ok(());
        }
        self.held.extend_from_slice(piece);
        let settled = self.scanner.run(&self.held, false, out, found)?;
        self.held.drain(..settled);
        Ok(())
    }

    /// Lets go what is held where no match that begins in it goes on in a piece that would hold it whole.
    fn settle(&mut self, piece: &[u8], out: &mut BytesMut) {
        let Some(reach) = piece.get(..self.scanner.longest).filter(|_| !self.is_idle()) else {
            return;
        };
        let before = self.held.len();
        self.held.extend_from_slice(reach);
        let begins = self.scanner.first(&self.held, 0);
        self.held.truncate(before);
        if begins.is_none_or(|hit| hit.start() >= before) {
            out.extend_from_slice(&self.held);
            self.held.clear();
        }
    }

    /// The end of the stream: everything is settled.
    pub(super) fn finish<E>(
        &mut self,
        out: &mut BytesMut,
        found: &mut dyn FnMut(&Pattern) -> Result<(), E>,
    ) -> Result<(), E> {
        let held = std::mem::take(&mut self.held);
        self.scanner.run(&held, true, out, found)?;
        Ok(())
    }
}
