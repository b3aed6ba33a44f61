//! Paths that tell path patterns apart: one witness for each combination of patterns that some canonical path fits.
use super::globs::{self, Alphabet, Pieces, Sample, TooMany};
use crate::path_pattern::{PathPattern, Segment};
use std::collections::{HashMap, HashSet};

/// Most states that are looked at before the question is given up.
const STATE_LIMIT: usize = 20_000;
/// Most single steps, likewise.
const STEP_LIMIT: usize = 20_000_000;

/// One path, as short as possible, for each combination of patterns that some unambiguous path fits.
pub(super) fn samples(patterns: &[&PathPattern]) -> Result<Vec<Sample>, TooMany> {
    Walk::new(patterns)?.explore()
}

/// The patterns as one automaton over segments.
struct Walk<'p> {
    /// Of all patterns one after the other, each with its end.
    steps: Vec<Step<'p>>,
    starts: Vec<u32>,
    /// Every kind of segment that is not empty, with the matchers that it fits.
    kinds: Vec<Sample>,
    /// For a matcher, the one kind that it fits, where no matcher has gaps; the last kind then fits none.
    only: Option<HashMap<usize, usize>>,
}

enum Step<'p> {
    /// By number among the matchers.
    Matcher(usize),
    Other(&'p Segment),
    End(usize),
}

impl<'p> Walk<'p> {
    fn new(patterns: &[&'p PathPattern]) -> Result<Self, TooMany> {
        let mut matchers: Vec<Pieces> = Vec::new();
        let mut known: HashMap<Pieces, usize> = HashMap::new();
        let (mut steps, mut starts) = (Vec::new(), Vec::new());
        for (number, pattern) in patterns.iter().enumerate() {
            starts.push(steps.len() as u32);
            for segment in pattern.segments() {
                let pieces = match segment {
                    Segment::Literal(text) if !text.is_empty() => vec![text.clone()],
                    Segment::Pieces(pieces) => pieces.clone(),
                    _ => {
                        steps.push(Step::Other(segment));
                        continue;
                    }
                };
                let matcher = *known.entry(pieces.clone()).or_insert_with(|| {
                    matchers.push(pieces);
                    matchers.len() - 1
                });
                steps.push(Step::Matcher(matcher));
            }
            steps.push(Step::End(number));
        }
        let literal = matchers.iter().all(|pieces| pieces.len() == 1);
        let (kinds, only) = if literal {
            let only = (0..matchers.len()).map(|matcher| (matcher, matcher)).collect();
            (literal_kinds(&matchers), Some(only))
        } else {
            (globs::samples(&matchers, Alphabet::Segment)?, None)
        };
        Ok(Self {
            steps,
            starts,
            kinds,
            only,
        })
    }

    fn explore(&self) -> Result<Vec<Sample>, TooMany> {
        let mut start = Vec::new();
        for at in &self.starts {
            self.enter(*at, &mut start);
        }
        tidy(&mut start);
        // The beginning is no path, so that coming back to its state is news.
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        let mut found: HashSet<Vec<usize>> = HashSet::new();
        let mut samples = Vec::new();
        let mut level = vec![(start, String::new())];
        let mut work = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            let mut note = |state: &[u32], text: String| {
                let fits = self.ends(state);
                if found.insert(fits.clone()) {
                    samples.push(Sample { text, fits });
                }
            };
            for (state, path) in level.iter().filter(|(_, path)| !path.is_empty()) {
                note(state, path.clone());
            }
            for (state, path) in level {
                note(&self.advance(&state, None), format!("{path}/"));
                for kind in self.kinds_at(&state) {
                    let after = self.advance(&state, Some(kind));
                    work += state.len() + 1;
                    if seen.insert(after.clone()) {
                        next.push((after, format!("{path}/{}", kind.text)));
                    }
                }
                if seen.len() > STATE_LIMIT || work > STEP_LIMIT {
                    return Err(TooMany);
                }
            }
            level = next;
        }
        Ok(samples)
    }

    /// The kinds of segments that may make a difference here.
    fn kinds_at(&self, state: &[u32]) -> Vec<&Sample> {
        let Some(only) = &self.only else {
            return self.kinds.iter().collect();
        };
        let mut numbers: Vec<usize> = state
            .iter()
            .filter_map(|at| match self.steps.get(*at as usize) {
                Some(Step::Matcher(matcher)) => only.get(matcher).copied(),
                _ => None,
            })
            .chain(self.kinds.len().checked_sub(1))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .into_iter()
            .filter_map(|number| self.kinds.get(number))
            .collect()
    }

    /// By a segment of this kind; without kind by the empty one, which only ends a path.
    fn advance(&self, state: &[u32], kind: Option<&Sample>) -> Vec<u32> {
        let mut after = Vec::new();
        for at in state {
            let (stays, passes) = match (self.steps.get(*at as usize), kind) {
                (Some(Step::Other(Segment::Any)), _) => (true, false),
                (Some(Step::Other(Segment::One)), kind) => (false, kind.is_some()),
                (Some(Step::Other(Segment::Literal(_))), None) => (false, true),
                (Some(Step::Matcher(matcher)), Some(kind)) => {
                    (false, kind.fits.binary_search(matcher).is_ok())
                }
                _ => (false, false),
            };
            if stays {
                self.enter(*at, &mut after);
            } else if passes {
                self.enter(at + 1, &mut after);
            }
        }
        tidy(&mut after);
        after
    }

    /// `**` may stand for nothing, so that what follows it can be reached at once.
    fn enter(&self, mut at: u32, state: &mut Vec<u32>) {
        state.push(at);
        while let Some(Step::Other(Segment::Any)) = self.steps.get(at as usize) {
            at += 1;
            state.push(at);
        }
    }

    fn ends(&self, state: &[u32]) -> Vec<usize> {
        let end = |at: &u32| match self.steps.get(*at as usize) {
            Some(Step::End(number)) => Some(*number),
            _ => None,
        };
        state.iter().filter_map(end).collect()
    }
}

fn tidy(state: &mut Vec<u32>) {
    state.sort_unstable();
    state.dedup();
}

/// Each literal, and last a segment that is none of them.
fn literal_kinds(matchers: &[Pieces]) -> Vec<Sample> {
    let taken: HashSet<&str> = matchers.iter().flatten().map(String::as_str).collect();
    let mut kinds: Vec<Sample> = matchers
        .iter()
        .enumerate()
        .map(|(number, pieces)| Sample {
            text: pieces.concat(),
            fits: vec![number],
        })
        .collect();
    let fresh = (0..=taken.len())
        .map(|n| if n == 0 { "x".to_owned() } else { format!("x{n}") })
        .find(|text| !taken.contains(text.as_str()));
    kinds.push(Sample {
        text: fresh.unwrap_or_default(),
        fits: Vec::new(),
    });
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CanonicalPath;
    use crate::path_pattern::Slashes;
    use proptest::prelude::*;

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts
            .iter()
            .map(|text| PathPattern::parse(text, Slashes::Plain).unwrap())
            .collect()
    }

    fn fits(patterns: &[PathPattern], path: &str) -> Vec<usize> {
        let path = CanonicalPath::parse(path).unwrap();
        (0..patterns.len())
            .filter(|number| patterns[*number].matches(&path))
            .collect()
    }

    #[test]
    fn each_combination_has_the_shortest_path() {
        let patterns = patterns(&["/a/**", "/**/b", "/"]);
        let refs: Vec<&PathPattern> = patterns.iter().collect();
        let mut found: Vec<String> = samples(&refs).unwrap().into_iter().map(|s| s.text).collect();
        found.sort();
        assert_eq!(found, ["/", "/a", "/a/b", "/b", "/x"]);
    }

    const PARTS: &[&str] = &["a", "b", "ab", "*", "**", "a*", "*b", "a*b", ""];
    const SEGMENTS: &[&str] = &["a", "b", "ab", "x", "ba", "aab", "abb", "."];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn samples_fit_what_they_say_and_every_path_has_its_like(
            texts in prop::collection::vec(prop::collection::vec(0..PARTS.len(), 1..4), 1..5),
            paths in prop::collection::vec((prop::collection::vec(0..SEGMENTS.len(), 1..5), any::<bool>()), 20),
        ) {
            let patterns: Vec<PathPattern> = texts
                .iter()
                .filter_map(|parts| {
                    let text: String = parts.iter().map(|part| format!("/{}", PARTS[*part])).collect();
                    PathPattern::parse(&text, Slashes::Plain).ok()
                })
                .collect();
            let refs: Vec<&PathPattern> = patterns.iter().collect();
            let samples = samples(&refs).unwrap();
            for sample in &samples {
                prop_assert!(CanonicalPath::parse(&sample.text).unwrap().ambiguity().is_none());
                prop_assert_eq!(&fits(&patterns, &sample.text), &sample.fits, "{}", &sample.text);
            }
            for (segments, slash) in paths {
                let mut path: String = segments.iter().map(|segment| format!("/{}", SEGMENTS[*segment])).collect();
                path.push_str(if slash { "/" } else { "" });
                let own = fits(&patterns, &path);
                prop_assert!(samples.iter().any(|sample| sample.fits == own), "{path}: {own:?}");
            }
        }
    }
}
