//! Texts that tell patterns apart: one witness for each combination of globs that some text fits.
use std::collections::{HashMap, HashSet};

/// Most states that are looked at before the question is given up.
const STATE_LIMIT: usize = 20_000;
/// Progress through the dots of a segment: nothing, `.` and `..` are no segments of a canonical path. The last also stands for
/// the beginning of a word, which is not empty.
const DOTS: [u32; 3] = [u32::MAX - 2, u32::MAX - 1, u32::MAX];

/// In a segment it stands between two names, neither of them empty or of dots: other ones can be read in two ways.
const SLASH: &str = "%2F";

/// What the texts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// Any text that is not empty; a gap stands for text without `/`.
    Words,
    /// Any text; a gap stands for any text.
    Text,
    /// A segment of a canonical path, never empty.
    Segment,
}

/// Too many combinations to look at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A text, and which of the globs it fits (by number, ascending).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) text: String,
    pub(super) fits: Vec<usize>,
}

/// A glob: literal pieces with a gap between each two.
pub(super) type Pieces = Vec<String>;

/// The pieces of a glob in which `*` is a gap.
pub(super) fn pieces(glob: &str) -> Pieces {
    glob.split('*').map(str::to_owned).collect()
}

#[derive(Clone, Copy)]
enum Step {
    Token(usize),
    Gap,
    End(usize),
}

/// All globs in one row of steps, and the tokens that occur in them.
struct Automaton {
    alphabet: Alphabet,
    steps: Vec<Step>,
    starts: Vec<u32>,
    /// The first stands for every token that no glob has.
    tokens: Vec<String>,
}

/// One sample, as short as possible, for each combination of globs that some text of the alphabet fits.
pub(super) fn samples(globs: &[Pieces], alphabet: Alphabet) -> Result<Vec<Sample>, TooMany> {
    Automaton::new(globs, alphabet).explore()
}

impl Automaton {
    fn new(globs: &[Pieces], alphabet: Alphabet) -> Self {
        let mut automaton = Self {
            alphabet,
            steps: Vec::new(),
            starts: Vec::new(),
            tokens: vec![String::new()],
        };
        let mut known: HashMap<String, usize> = HashMap::new();
        if alphabet == Alphabet::Words && globs.iter().any(|pieces| pieces.len() > 1) {
            automaton.token("/", &mut known);
        }
        for (number, pieces) in globs.iter().enumerate() {
            automaton.starts.push(automaton.steps.len() as u32);
            for (place, piece) in pieces.iter().enumerate() {
                if place > 0 {
                    automaton.steps.push(Step::Gap);
                }
                for token in tokens_of(piece, alphabet) {
                    let token = automaton.token(token, &mut known);
                    automaton.steps.push(Step::Token(token));
                }
            }
            automaton.steps.push(Step::End(number));
        }
        automaton.tokens[0] = stranger(&known);
        automaton
    }

    fn token(&mut self, text: &str, known: &mut HashMap<String, usize>) -> usize {
        *known.entry(text.to_owned()).or_insert_with(|| {
            self.tokens.push(text.to_owned());
            self.tokens.len() - 1
        })
    }

    fn explore(&self) -> Result<Vec<Sample>, TooMany> {
        let mut start: Vec<u32> = Vec::new();
        for at in &self.starts {
            self.enter(*at, &mut start);
        }
        match self.alphabet {
            Alphabet::Text => {}
            Alphabet::Words => start.push(DOTS[2]),
            Alphabet::Segment => start.push(DOTS[0]),
        }
        start.sort_unstable();
        let mut seen: HashSet<Vec<u32>> = HashSet::from([start.clone()]);
        let mut found: HashSet<Vec<usize>> = HashSet::new();
        let mut samples = Vec::new();
        let mut level = vec![(start, String::new())];
        while !level.is_empty() {
            let mut next = Vec::new();
            for (state, text) in level {
                if self.is_text(&state) {
                    let fits = self.ends(&state);
                    if found.insert(fits.clone()) {
                        samples.push(Sample {
                            text: text.clone(),
                            fits,
                        });
                    }
                }
                for (token, spelling) in self.tokens.iter().enumerate() {
                    if spelling == SLASH && !self.is_text(&state) {
                        continue;
                    }
                    let after = self.advance(&state, token);
                    if seen.insert(after.clone()) {
                        next.push((after, format!("{text}{spelling}")));
                    }
                }
                if seen.len() > STATE_LIMIT {
                    return Err(TooMany);
                }
            }
            level = next;
        }
        Ok(samples)
    }

    /// Whether what led here is a text of the alphabet.
    fn is_text(&self, state: &[u32]) -> bool {
        match self.alphabet {
            Alphabet::Text => true,
            Alphabet::Words | Alphabet::Segment => !state.last().is_some_and(|last| DOTS.contains(last)),
        }
    }

    fn ends(&self, state: &[u32]) -> Vec<usize> {
        let end = |at: &u32| match self.steps.get(*at as usize) {
            Some(Step::End(number)) => Some(*number),
            _ => None,
        };
        state.iter().filter_map(end).collect()
    }

    fn advance(&self, state: &[u32], token: usize) -> Vec<u32> {
        let spelling = self.tokens.get(token).map_or("", String::as_str);
        let mut after = Vec::new();
        for at in state {
            match self.steps.get(*at as usize) {
                Some(Step::Token(own)) if *own == token => self.enter(at + 1, &mut after),
                Some(Step::Gap) if self.alphabet != Alphabet::Words || spelling != "/" => {
                    self.enter(*at, &mut after)
                }
                Some(_) => {}
                None if spelling == "." && *at < DOTS[2] => after.push(at + 1),
                None => {}
            }
        }
        if spelling == SLASH && self.alphabet == Alphabet::Segment {
            after.push(DOTS[0]);
        }
        after.sort_unstable();
        after.dedup();
        after
    }

    /// A gap may be empty, so that what follows it can be reached at once.
    fn enter(&self, mut at: u32, state: &mut Vec<u32>) {
        state.push(at);
        while let Some(Step::Gap) = self.steps.get(at as usize) {
            at += 1;
            state.push(at);
        }
    }
}

/// Characters; in paths an escaped character is one token with all its octets.
fn tokens_of(piece: &str, alphabet: Alphabet) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = piece;
    while let Some(first) = rest.chars().next() {
        let octets = match rest.get(1..3) {
            Some(digits) if alphabet == Alphabet::Segment && first == '%' => {
                u8::from_str_radix(digits, 16).map_or(0, utf8_length)
            }
            _ => 0,
        };
        let length = if octets == 0 { first.len_utf8() } else { 3 * octets };
        let (token, tail) = rest.split_at_checked(length).unwrap_or((rest, ""));
        tokens.push(token);
        rest = tail;
    }
    tokens
}

/// How many octets the character has that begins with this one (RFC 3629 section 3).
fn utf8_length(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
        _ => 1,
    }
}

/// A token that no glob has.
fn stranger(known: &HashMap<String, usize>) -> String {
    let letters = "xyzabcdefghijklmnopqrstuvw0123456789_-~XYZABCDEFGHIJKLMNOPQRSTUVW!$'()+,=:@";
    letters
        .chars()
        .map(String::from)
        .find(|letter| !known.contains_key(letter))
        // A policy is smaller than the private use area of Unicode; escaped, so that paths may have them too.
        .unwrap_or_else(|| "%F4%8F%BF%BD".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(globs: &[&str], alphabet: Alphabet) -> Vec<(String, Vec<usize>)> {
        let globs: Vec<Pieces> = globs.iter().map(|glob| pieces(glob)).collect();
        let mut found: Vec<(String, Vec<usize>)> = samples(&globs, alphabet)
            .unwrap()
            .into_iter()
            .map(|sample| (sample.text, sample.fits))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn each_combination_that_some_text_fits_has_the_shortest_such_text() {
        assert_eq!(
            all(&["ab*", "*b"], Alphabet::Segment),
            [
                ("ab".into(), vec![0, 1]),
                ("abx".into(), vec![0]),
                ("b".into(), vec![1]),
                ("x".into(), vec![])
            ]
        );
        assert_eq!(
            all(&["a", "a*a"], Alphabet::Text),
            [("".into(), vec![]), ("a".into(), vec![0]), ("aa".into(), vec![1])]
        );
    }

    #[test]
    fn dot_segments_stand_for_nothing_but_longer_texts_of_dots_do() {
        assert_eq!(
            all(&[".*", "*.", "x*"], Alphabet::Segment),
            [
                (".y".into(), vec![0]),
                (".y.".into(), vec![0, 1]),
                ("x".into(), vec![2]),
                ("x.".into(), vec![1, 2]),
                ("y".into(), vec![]),
                ("y.".into(), vec![1])
            ]
        );
        assert_eq!(
            all(&[".*", "*.", "..*"], Alphabet::Segment)
                .into_iter()
                .find(|(_, fits)| fits == &[0, 1, 2]),
            Some(("...".into(), vec![0, 1, 2]))
        );
    }

    #[test]
    fn an_encoded_slash_stands_between_two_names() {
        let found = all(&["*%2F*"], Alphabet::Segment);
        assert_eq!(found, [("x".into(), vec![]), ("x%2Fx".into(), vec![0])]);
    }

    #[test]
    fn a_gap_between_words_has_no_slash() {
        assert_eq!(
            all(&["acme/*"], Alphabet::Words),
            [("acme/".into(), vec![0]), ("x".into(), vec![])]
        );
        assert_eq!(
            all(&["*"], Alphabet::Words),
            [("/".into(), vec![]), ("x".into(), vec![0])]
        );
    }

    #[test]
    fn an_escaped_character_is_never_torn() {
        assert_eq!(
            tokens_of("a%20%C3%A9b", Alphabet::Segment),
            ["a", "%20", "%C3%A9", "b"]
        );
        assert_eq!(tokens_of("é%", Alphabet::Text), ["é", "%"]);
    }

    #[test]
    fn too_many_combinations_are_given_up_not_guessed() {
        let globs: Vec<Pieces> = (0..40).map(|n| pieces(&format!("*{n}a*"))).collect();
        assert_eq!(samples(&globs, Alphabet::Text), Err(TooMany));
    }
}
