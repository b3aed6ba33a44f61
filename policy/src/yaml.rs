//! YAML text to a tree of values with positions, within bounds of size and nesting.
use crate::diagnostic::Position;
use crate::host::shown;
use crate::{Code, PolicyText, Problem};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use std::sync::Arc;

/// Largest policy file, in bytes.
pub(crate) const FILE_LIMIT: usize = 8 * 1024 * 1024;

/// A YAML value; numbers keep no more than rules need.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Float,
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(i64::try_from(value).map_or(Node::Float, Node::Int))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Float)
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

/// Reads one file. An empty text is `Null`. The error is the first problem: YAML that is broken has no second one.
pub(crate) fn read(text: &PolicyText) -> Result<Spanned<Node>, Problem> {
    let file: Arc<str> = text.name.as_str().into();
    let start = Position {
        file: file.clone(),
        line: 1,
        column: 1,
    };
    if text.text.len() > FILE_LIMIT {
        let size = text.text.len();
        return Err(start
            .error(format!(
                "the file has {size} bytes; at most {FILE_LIMIT} are read"
            ))
            .code(Code::InvalidYaml)
            .hint("split it with `include`"));
    }
    if text.text.trim().is_empty() {
        return Ok(Spanned::new(
            Node::Null,
            serde_saphyr::Location::UNKNOWN,
            serde_saphyr::Location::UNKNOWN,
        ));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 24,
            flow_nesting_limit: 24,
            max_nodes: 600_000,
            max_events: 1_800_000,
            max_documents: 1,
            max_aliases: 256,
            max_merge_keys: 0,
        },
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 4,
        },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
        emit_comments: false,
    };
    serde_saphyr::from_str_with_options(&text.text, options).map_err(|error| {
        let at = error
            .location()
            .map_or(start, |location| Position::new(&file, location));
        let problem = at.error(format!("this is not valid YAML: {}", plain(&error)));
        let problem = problem.code(Code::InvalidYaml);
        match error.without_snippet() {
            serde_saphyr::Error::UnknownAnchor { .. } => {
                problem.hint("a text that begins with `*` stands in quotes, for example \"*.example.com\"")
            }
            _ => problem,
        }
    })
}

/// The library's message in one line, without its position and its advice to programmers.
fn plain(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{}` stands here twice", shown(key))
        }
        Error::MergeKeyNotAllowed { .. } => "merge keys (`<<`) are not accepted".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an alias contains itself".to_owned(),
        Error::UnknownAnchor { .. } => "`*` begins an alias, and nothing has that name".to_owned(),
        Error::Budget { .. } => "it is too large, too deep, or has more than one document".to_owned(),
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            "its aliases expand to too much".to_owned()
        }
        other => {
            let text = other.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            let line = text.lines().next().unwrap_or_default();
            let cut = line.find(" at line ").map_or(line, |at| &line[..at]);
            shown(
                cut.trim_start_matches("error: ")
                    .trim_end_matches([' ', ',', ':']),
            )
        }
    }
}
