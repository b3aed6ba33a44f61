//! Taking typed values out of a tree, one problem noted for each that does not fit.
use crate::diagnostic::{At, Position};
use crate::host::shown;
use crate::yaml::Node;
use crate::{Code, Problem};
use serde_saphyr::Spanned;
use std::sync::Arc;

/// Most entries of one list or mapping.
const COUNT_LIMIT: usize = 20_000;

/// Where values are read from, and where problems go.
pub(super) struct Reader<'a> {
    pub(super) file: Arc<str>,
    pub(super) problems: &'a mut Vec<Problem>,
}

/// A mapping whose keys are all known.
pub(super) struct Fields {
    pub(super) at: Position,
    entries: Vec<(Spanned<String>, Spanned<Node>)>,
}

impl Fields {
    pub(super) fn take(&mut self, name: &str) -> Option<Spanned<Node>> {
        let index = self.entries.iter().position(|(key, _)| key.value == name)?;
        Some(self.entries.swap_remove(index).1)
    }

    /// Takes an entry with the position of its key.
    pub(super) fn take_with_key(
        &mut self,
        name: &str,
        reader: &Reader<'_>,
    ) -> Option<(Position, Spanned<Node>)> {
        let index = self.entries.iter().position(|(key, _)| key.value == name)?;
        let (key, node) = self.entries.swap_remove(index);
        Some((reader.at(&key), node))
    }
}

impl Reader<'_> {
    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(super) fn at<T>(&self, node: &Spanned<T>) -> Position {
        Position::new(&self.file, node.referenced)
    }

    fn mismatch(&mut self, node: &Spanned<Node>, what: &str, expected: &str) {
        let problem = self
            .at(node)
            .error(format!("{what} must be {expected}, not {}", node.value.kind()))
            .code(Code::WrongType);
        let problem = match node.value {
            Node::Bool(_) | Node::Int(_) | Node::Float if expected.contains("text") => {
                problem.hint("put it in quotes if it is meant as text")
            }
            _ => problem,
        };
        self.push(problem);
    }

    /// A mapping with these keys only.
    pub(super) fn fields(&mut self, node: Spanned<Node>, what: &str, known: &[&str]) -> Option<Fields> {
        let at = self.at(&node);
        let Node::Map(entries) = node.value else {
            self.mismatch(&node, what, "a mapping");
            return None;
        };
        for (key, _) in &entries {
            if !known.contains(&key.value.as_str()) {
                let problem = self
                    .at(key)
                    .error(format!("{what} has no field `{}`", shown(&key.value)))
                    .code(Code::UnknownField);
                let problem = match closest(&key.value, known) {
                    Some(near) => problem.hint(format!("did you mean `{near}`?")),
                    None => problem.hint(format!("it has {}", listed(known))),
                };
                self.push(problem);
            }
        }
        Some(Fields { at, entries })
    }

    /// Whether a list or mapping is short enough to be looked at.
    fn is_bounded(&mut self, at: &Position, count: usize, what: &str) -> bool {
        let fits = count <= COUNT_LIMIT;
        if !fits {
            self.push(at.error(format!("{what} has more than {COUNT_LIMIT} entries")));
        }
        fits
    }

    /// A mapping with free keys.
    pub(super) fn entries(&mut self, node: Spanned<Node>, what: &str) -> Vec<(At<String>, Spanned<Node>)> {
        let at = self.at(&node);
        match node.value {
            Node::Null => Vec::new(),
            Node::Map(entries) if self.is_bounded(&at, entries.len(), what) => entries
                .into_iter()
                .map(|(key, node)| {
                    let at = self.at(&key);
                    let value = key.value;
                    (At { value, at }, node)
                })
                .collect(),
            Node::Map(_) => Vec::new(),
            _ => {
                self.mismatch(&node, what, "a mapping");
                Vec::new()
            }
        }
    }

    /// A list.
    pub(super) fn items(&mut self, node: Spanned<Node>, what: &str) -> Vec<Spanned<Node>> {
        let at = self.at(&node);
        match node.value {
            Node::Null => Vec::new(),
            Node::List(items) if self.is_bounded(&at, items.len(), what) => items,
            Node::List(_) => Vec::new(),
            _ => {
                self.mismatch(&node, what, "a list");
                Vec::new()
            }
        }
    }

    pub(super) fn text(&mut self, node: Spanned<Node>, what: &str) -> Option<At<String>> {
        let at = self.at(&node);
        match node.value {
            Node::Text(value) if !value.trim().is_empty() => Some(At { value, at }),
            Node::Text(_) => {
                self.push(at.error(format!("{what} is empty")));
                None
            }
            _ => {
                self.mismatch(&node, what, "a text");
                None
            }
        }
    }

    /// One text or a list of them; an empty list is an error, since it could be read as none or as any.
    pub(super) fn texts(&mut self, node: Spanned<Node>, what: &str) -> Vec<At<String>> {
        let at = self.at(&node);
        let Node::List(items) = node.value else {
            return self.text_or_list(node, what);
        };
        if items.is_empty() {
            self.push(
                at.error(format!("{what} is an empty list"))
                    .hint("remove it, or name at least one"),
            );
        }
        if !self.is_bounded(&at, items.len(), what) {
            return Vec::new();
        }
        let entry = format!("an entry of {what}");
        items
            .into_iter()
            .filter_map(|item| self.text(item, &entry))
            .collect()
    }

    fn text_or_list(&mut self, node: Spanned<Node>, what: &str) -> Vec<At<String>> {
        if matches!(node.value, Node::Text(_)) {
            return self.text(node, what).into_iter().collect();
        }
        self.mismatch(&node, what, "a text or a list of texts");
        Vec::new()
    }

    pub(super) fn integer(&mut self, node: Spanned<Node>, what: &str) -> Option<At<i64>> {
        match node.value {
            Node::Int(value) => Some(At {
                value,
                at: self.at(&node),
            }),
            _ => {
                self.mismatch(&node, what, "a whole number");
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, node: Spanned<Node>, what: &str) -> Option<At<bool>> {
        match node.value {
            Node::Bool(value) => Some(At {
                value,
                at: self.at(&node),
            }),
            _ => {
                self.mismatch(&node, what, "`true` or `false`");
                None
            }
        }
    }

    /// One of these words.
    pub(super) fn choice(&mut self, node: Spanned<Node>, what: &str, words: &[&str]) -> Option<At<String>> {
        let word = self.text(node, what)?;
        if words.contains(&word.value.as_str()) {
            return Some(word);
        }
        let problem = word
            .at
            .error(format!("{what} cannot be `{}`", shown(&word.value)))
            .code(Code::UnknownWord);
        let hint = match closest(&word.value, words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it is one of {}", listed(words)),
        };
        self.push(problem.hint(hint));
        None
    }
}

/// The word that was probably meant.
pub(crate) fn closest<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    words
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&word.to_lowercase(), known), *known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min()
        .map(|(_, known)| known)
}

fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
