//! Secrets that the gateway does not know, recognised by the forms that providers give theirs (`shapes.json`).
use super::scanner::Scanner;
use aho_corasick::AhoCorasick;
use regex::bytes::Regex;
use serde::Deserialize;
use std::sync::{Arc, LazyLock};
use zeroize::Zeroizing;

/// The forms: a data file, so that one can be added without code.
const FORMS: &str = include_str!("shapes.json");
/// How far before its keyword a secret may begin, in bytes.
const BEFORE: usize = 128;
/// How far behind its keyword's beginning it may end, in bytes.
const AFTER: usize = 576;
/// What a search over a stream keeps of what has passed, in bytes.
const KEPT: usize = BEFORE + AFTER;

/// All forms, ready to search for.
struct Shapes {
    keywords: AhoCorasick,
    /// The form of each keyword.
    of: Vec<usize>,
    shapes: Vec<(String, Regex)>,
}

/// One form. The id stands in the log. The keywords are looked for first, without regard to case: where none of them stands, the
/// pattern (syntax of `regex`, over bytes) is not tried. It matches a whole secret, with its random part counted so that prose does not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    id: String,
    keywords: Vec<String>,
    pattern: String,
}

/// Made when they are asked for the first time.
static SHAPES: LazyLock<Option<Shapes>> = LazyLock::new(|| match Shapes::read(FORMS) {
    Ok(shapes) => Some(shapes),
    Err(error) => {
        tracing::error!(
            error,
            "unknown secrets are not looked for: their forms cannot be read"
        );
        None
    }
});

impl Shapes {
    fn read(text: &str) -> Result<Self, String> {
        let forms: Vec<Form> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (mut keywords, mut of, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for form in forms {
            of.extend(form.keywords.iter().map(|_| shapes.len()));
            keywords.extend(form.keywords);
            let pattern = Regex::new(&format!("(?-u){}", form.pattern));
            shapes.push((form.id, pattern.map_err(|error| error.to_string())?));
        }
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(&keywords)
            .map_err(|error| error.to_string())?;
        Ok(Self { keywords, of, shapes })
    }

    /// The ids of the forms found in a text, but for what `known` says of.
    fn find(&self, text: &[u8], known: impl Fn(&[u8]) -> bool) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for keyword in self.keywords.find_overlapping_iter(text) {
            let Some((id, pattern)) = self
                .of
                .get(keyword.pattern().as_usize())
                .map(|at| &self.shapes[*at])
            else {
                continue;
            };
            let begin = keyword.start().saturating_sub(BEFORE);
            let end = text.len().min(keyword.start() + AFTER);
            let mut matches = pattern.find_iter(&text[begin..end]);
            if !found.contains(&id.as_str()) && matches.any(|it| !known(it.as_bytes())) {
                found.push(id);
            }
        }
        found
    }
}

/// The ids of the forms of unknown secrets in a text; placeholders are none.
pub(super) fn unknown(text: &[u8], placeholders: Option<&Scanner>) -> Vec<&'static str> {
    let known = |text: &[u8]| placeholders.is_some_and(|scanner| scanner.find(text).is_some());
    match &*SHAPES {
        Some(shapes) => shapes.find(text, known),
        None => Vec::new(),
    }
}

/// A search over the beginning of one stream.
pub(super) struct Watch {
    placeholders: Option<Arc<Scanner>>,
    /// The end of what has passed, in which something may begin.
    kept: Zeroizing<Vec<u8>>,
    left: usize,
    found: Vec<&'static str>,
}

impl Watch {
    /// Over the first `bound` bytes.
    pub(super) fn new(placeholders: Option<Arc<Scanner>>, bound: usize) -> Self {
        Self {
            placeholders,
            kept: Zeroizing::default(),
            left: bound,
            found: Vec::new(),
        }
    }

    /// Looks at a piece.
    pub(super) fn look(&mut self, piece: &[u8]) {
        let piece = &piece[..piece.len().min(self.left)];
        if piece.is_empty() {
            return;
        }
        self.left -= piece.len();
        self.kept.extend_from_slice(piece);
        for id in unknown(&self.kept, self.placeholders.as_deref()) {
            if !self.found.contains(&id) {
                self.found.push(id);
            }
        }
        let over = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..over);
    }

    /// The ids of what was found.
    pub(super) fn found(&self) -> &[&'static str] {
        &self.found
    }
}

#[cfg(test)]
mod tests;
