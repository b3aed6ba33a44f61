//! Searching a stream for patterns, cut anywhere, holding back only what may be the beginning of one.
use super::TooLarge;
use super::candidates::Candidates;
use super::dictionary::Dictionary;
pub(super) use super::dictionary::Pattern;
use bytes::BytesMut;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The patterns of one session, ready to search for. Of several matches the leftmost counts, and of those the longest.
pub(super) struct Scanner {
    candidates: Candidates,
    dictionary: Dictionary,
}

/// A pattern, and where in a text it stands.
struct Hit<'a> {
    at: usize,
    pattern: &'a Pattern,
}

impl Scanner {
    /// Prepares the search; none where there is nothing to look for.
    pub(super) fn build(patterns: Vec<Pattern>) -> Result<Option<Self>, TooLarge> {
        let dictionary = Dictionary::new(patterns)?;
        Ok((!dictionary.patterns().is_empty()).then(|| Self {
            candidates: Candidates::new(texts(&dictionary)),
            dictionary,
        }))
    }

    /// What is looked for.
    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> + Clone {
        texts(&self.dictionary)
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
        Some(self.first(text, 0)?.pattern.owner)
    }

    /// Whether a piece at the beginning of a stream passes as it is: nothing is found in it, and nothing at its end may go on.
    fn passes(&self, piece: &[u8]) -> bool {
        self.finds_nothing(piece) && self.holds_nothing(piece)
    }

    fn finds_nothing(&self, text: &[u8]) -> bool {
        self.candidates
            .none_matches(text, |begin| self.is_at(text, begin))
    }

    /// Whether nothing at the end of a piece may be the beginning of a match.
    pub(super) fn holds_nothing(&self, piece: &[u8]) -> bool {
        self.hold_from(piece, 0) == piece.len()
    }

    /// The leftmost match from `at` on, and of those that begin there the longest.
    fn first(&self, text: &[u8], at: usize) -> Option<Hit<'_>> {
        let at = self.candidates.first(text, at, |begin| self.is_at(text, begin))?;
        let pattern = self.dictionary.at_the_beginning_of(&text[at..])?;
        Some(Hit { at, pattern })
    }

    /// Whether a match begins here.
    pub(super) fn is_at(&self, text: &[u8], begin: usize) -> bool {
        self.dictionary.at_the_beginning_of(&text[begin..]).is_some()
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
            if hit.at >= held {
                break;
            }
            found(hit.pattern)?;
            out.extend_from_slice(&data[at..hit.at]);
            out.extend_from_slice(&hit.pattern.replacement);
            at = hit.at + hit.pattern.pattern.len();
            if at > held {
                held = hold(at);
            }
        }
        out.extend_from_slice(&data[at..held]);
        Ok(held)
    }

    /// The first position, not before `from`, from which on the rest is the beginning of a longer pattern.
    fn hold_from(&self, data: &[u8], from: usize) -> usize {
        let earliest = from.max((data.len() + 1).saturating_sub(self.dictionary.longest()));
        (earliest..data.len())
            .find(|at| self.dictionary.may_go_on(&data[*at..]))
            .unwrap_or(data.len())
    }
}

fn texts(dictionary: &Dictionary) -> impl Iterator<Item = &[u8]> + Clone {
    dictionary
        .patterns()
        .iter()
        .map(|pattern| pattern.pattern.as_slice())
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

    /// Whether this is what is looked for.
    pub(super) fn searches(&self, scanner: &Arc<Scanner>) -> bool {
        Arc::ptr_eq(&self.scanner, scanner)
    }

    /// Looks for something else from now on, also in what is held back.
    pub(super) fn search(&mut self, scanner: Arc<Scanner>) {
        self.scanner = scanner;
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
        let Some(reach) = piece
            .get(..self.scanner.dictionary.longest())
            .filter(|_| !self.is_idle())
        else {
            return;
        };
        let before = self.held.len();
        self.held.extend_from_slice(reach);
        let begins = self.scanner.first(&self.held, 0);
        self.held.truncate(before);
        if begins.is_none_or(|hit| hit.at >= before) {
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
