//! JSON, YAML and TOML as one tree of values with their lines.
use super::finds::{Spot, line_at};
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// Largest YAML file that is read, in bytes.
const YAML_LIMIT: usize = 4 * 1024 * 1024;

/// A value, and where it stands.
#[derive(Debug)]
pub(super) struct Tree {
    /// From 1; 0 where the reader tells no lines (JSON).
    line: u32,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
    /// Numbers, booleans, nothing.
    Other,
}

impl Tree {
    /// Reads JSON.
    pub(super) fn json(text: &str) -> Result<Self, String> {
        let text = text.trim_start_matches('\u{feff}');
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self::from_json(value))
    }

    /// Reads JSON with comments and commas too many, as editors write it.
    pub(super) fn json_with_comments(text: &str) -> Result<Self, String> {
        Self::json(&super::json_comments::without(text))
    }

    /// Reads the first document of YAML; merge keys are keys like others.
    pub(super) fn yaml(text: &str) -> Result<Self, String> {
        if text.len() > YAML_LIMIT {
            return Err(format!("it has more than {YAML_LIMIT} bytes"));
        }
        if text.trim().is_empty() {
            return Ok(Self {
                line: 1,
                value: Value::Other,
            });
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: 64,
                flow_nesting_limit: 64,
                max_nodes: 400_000,
                max_events: 1_200_000,
                max_aliases: 4_096,
            },
            merge_keys: serde_saphyr::options::MergeKeyPolicy::AsOrdinary,
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: 200_000,
                max_replay_stack_depth: 16,
            },
            with_snippet: false,
            emit_comments: false,
        };
        let node: Spanned<Node> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
        Ok(Self::from_yaml(node))
    }

    /// Reads TOML.
    pub(super) fn toml(text: &str) -> Result<Self, String> {
        let table = toml::de::DeTable::parse(text).map_err(|error| error.message().to_owned())?;
        let lines = Lines::new(text);
        Ok(Self {
            line: 1,
            value: toml_map(table.into_inner(), &lines),
        })
    }

    fn from_json(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match value {
            Json::String(text) => Value::Text(text),
            Json::Array(items) => Value::List(items.into_iter().map(Self::from_json).collect()),
            Json::Object(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, Self::from_json(value)))
                    .collect(),
            ),
            _ => Value::Other,
        };
        Self { line: 0, value }
    }

    fn from_yaml(node: Spanned<Node>) -> Self {
        let line = u32::try_from(node.referenced.line()).unwrap_or(u32::MAX).max(1);
        let value = match node.value {
            Node::Text(text) => Value::Text(text),
            Node::List(items) => Value::List(items.into_iter().map(Self::from_yaml).collect()),
            Node::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key.value, Self::from_yaml(value)))
                    .collect(),
            ),
            Node::Null | Node::Bool(_) | Node::Int(_) | Node::Float => Value::Other,
        };
        Self { line, value }
    }

    /// The value of a key; of several keys each below the other.
    pub(super) fn at(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |tree, key| {
            tree.entries()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value)
        })
    }

    /// The text under some keys.
    pub(super) fn text_at(&self, keys: &[&str]) -> Option<&str> {
        self.at(keys).and_then(Self::text)
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The entries of a mapping, in no certain order; none of anything else.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Self)> {
        match &self.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        }
        .iter()
        .map(|(key, value)| (key.as_str(), value))
    }

    /// The items of a list; a single value is a list of itself, nothing is none.
    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            Value::Text(_) | Value::Map(_) => std::slice::from_ref(self),
            Value::Other => &[],
        }
    }

    /// Whether it is a mapping.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// Whether it is a mapping or list without anything in it, or nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
            Value::Other => true,
        }
    }

    /// Its line where the reader knows it, else that of the first text like it.
    pub(super) fn spot(&self) -> Spot<'_> {
        match (&self.value, self.line) {
            (Value::Text(text), 0) => Spot::Text(text),
            (_, 0) => Spot::Line(1),
            (_, line) => Spot::Line(line),
        }
    }

    /// Calls with every text in it and the nearest key above.
    pub(super) fn each_text<'t>(&'t self, key: &'t str, call: &mut dyn FnMut(&'t str, &'t Self)) {
        match &self.value {
            Value::Text(_) => call(key, self),
            Value::List(items) => items.iter().for_each(|item| item.each_text(key, call)),
            Value::Map(entries) => entries.iter().for_each(|(key, value)| value.each_text(key, call)),
            Value::Other => {}
        }
    }
}

fn toml_map(table: toml::de::DeTable<'_>, lines: &Lines) -> Value {
    Value::Map(
        table
            .into_iter()
            .map(|(key, value)| (key.into_inner().into_owned(), toml_value(value, lines)))
            .collect(),
    )
}

fn toml_value(value: toml::Spanned<toml::de::DeValue<'_>>, lines: &Lines) -> Tree {
    use toml::de::DeValue;
    let line = lines.line(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Array(items) => Value::List(items.into_iter().map(|item| toml_value(item, lines)).collect()),
        DeValue::Table(table) => toml_map(table, lines),
        _ => Value::Other,
    };
    Tree { line, value }
}

/// Where the lines of a text begin.
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        Self {
            starts: text.match_indices('\n').map(|(at, _)| at + 1).collect(),
        }
    }

    fn line(&self, offset: usize) -> u32 {
        let before = self.starts.partition_point(|start| *start <= offset);
        u32::try_from(before).unwrap_or(u32::MAX - 1) + 1
    }
}

/// Line of an XML node, from 1.
pub(super) fn xml_line(text: &str, node: roxmltree::Node<'_, '_>) -> Spot<'static> {
    Spot::Line(line_at(text, node.range().start))
}

/// Reads XML; a document type is not accepted.
pub(super) fn xml(text: &str) -> Result<roxmltree::Document<'_>, String> {
    let options = roxmltree::ParsingOptions {
        nodes_limit: 200_000,
        ..roxmltree::ParsingOptions::default()
    };
    let text = text.trim_start_matches('\u{feff}');
    roxmltree::Document::parse_with_options(text, options).map_err(|error| error.to_string())
}
