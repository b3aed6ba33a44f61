//! The redactor, with patterns made as the gateway makes them.

#[path = "../../src/secret/dictionary.rs"]
mod dictionary;
#[path = "../../src/secret/forms.rs"]
mod forms;
#[path = "../../src/secret/redact.rs"]
mod redact;
#[path = "../../src/secret/scanner.rs"]
mod scanner;
#[path = "../../src/secret/candidates.rs"]
mod candidates;
#[path = "../../src/secret/sampled.rs"]
mod sampled;
#[path = "../../src/secret/skip.rs"]
mod skip;

use bytes::BytesMut;
use redact::Redactor;
use scanner::{Pattern, Scanner};
use std::sync::Arc;

/// As in the gateway's own module: what is shorter is looked for in no form.
const SHORTEST_VALUE: usize = 8;

/// As in the gateway's own module.
#[derive(Debug)]
pub struct TooLarge(pub String);

/// Redactors for two values, one of which begins the other.
pub struct Redactors {
    scanner: Arc<Scanner>,
    names: Arc<[String]>,
}

impl Redactors {
    /// Builds the automaton.
    pub fn new(values: &[(&str, &str)]) -> Self {
        let patterns = values.iter().enumerate().flat_map(|(owner, (value, stand_in))| {
            let forms = forms::forms(value.as_bytes(), stand_in.as_bytes());
            forms.into_iter().map(move |(pattern, replacement)| Pattern {
                pattern,
                replacement,
                owner,
            })
        });
        let scanner = Scanner::build(patterns.collect());
        Self {
            scanner: Arc::new(scanner.expect("small").expect("there are patterns")),
            names: values.iter().map(|(value, _)| (*value).to_owned()).collect(),
        }
    }

    /// Redacts pieces, one after the other; what came out, and what was found.
    pub fn redact<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> (BytesMut, Vec<String>) {
        let mut redactor = Redactor::new(Some(self.scanner.clone()), self.names.clone());
        let mut out = BytesMut::new();
        for piece in pieces {
            redactor.push(piece, &mut out);
        }
        redactor.finish(&mut out);
        (out, redactor.found().to_vec())
    }
}
