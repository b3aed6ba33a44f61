//! Reading the `to` of a rule: hosts, ports, protocol, methods, paths, and what belongs to single protocols.
use super::ToPart;
use super::conditions::{read_headers, read_query};
use super::git::read_git;
use super::reader::Reader;
use crate::Protocol;
use crate::diagnostic::{At, Position};
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

const TO: &[&str] = &[
    "host",
    "port",
    "protocol",
    "methods",
    "path",
    "encoded-slash",
    "headers",
    "query",
    "private",
    "repository",
    "access",
    "refs",
    "force",
    "database",
    "user",
];

pub(super) fn read_to(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<ToPart> {
    let mut fields = reader.fields(node, "`to`", TO)?;
    Some(ToPart {
        hosts: fields.take("host").map(|node| reader.texts(node, "`host`")),
        ports: fields.take("port").map(|node| read_ports(node, reader)),
        protocol: fields
            .take("protocol")
            .and_then(|node| read_protocol(node, reader)),
        methods: fields.take("methods").map(|node| read_methods(node, reader)),
        paths: fields.take("path").map(|node| reader.texts(node, "`path`")),
        private: fields
            .take("private")
            .and_then(|node| reader.boolean(node, "`private`")),
        encoded_slash: fields
            .take("encoded-slash")
            .and_then(|node| reader.boolean(node, "`encoded-slash`")),
        git: read_git(&mut fields, reader),
        database: fields
            .take("database")
            .map(|node| reader.texts(node, "`database`")),
        user: fields.take("user").map(|node| reader.texts(node, "`user`")),
        headers: fields
            .take("headers")
            .map(|node| read_headers(node, reader))
            .unwrap_or_default(),
        query: fields
            .take("query")
            .map(|node| read_query(node, reader))
            .unwrap_or_default(),
    })
}

fn read_protocol(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<At<Protocol>> {
    let words: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
    let word = reader.choice(node, "`protocol`", &words)?;
    let protocol = Protocol::ALL
        .iter()
        .find(|protocol| protocol.as_str() == word.value)?;
    Some(word.with(*protocol))
}

/// `443`, `"8000-8010"` or a list of those.
fn read_ports(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<(u16, u16)> {
    let items = match node.value {
        Node::List(items) if items.is_empty() => {
            let at = Position::new(&reader.file, node.referenced);
            reader.push(
                at.error("`port` is an empty list")
                    .hint("remove it, or name at least one"),
            );
            return Vec::new();
        }
        Node::List(items) => items,
        _ => vec![node],
    };
    items
        .into_iter()
        .filter_map(|item| read_port(&item, reader))
        .collect()
}

fn read_port(node: &Spanned<Node>, reader: &mut Reader<'_>) -> Option<(u16, u16)> {
    let parsed = match &node.value {
        Node::Int(port) => u16::try_from(*port).ok().map(|port| (port, port)),
        Node::Text(text) => match text.split_once('-') {
            Some((low, high)) => port_number(low).zip(port_number(high)),
            None => port_number(text).map(|port| (port, port)),
        },
        _ => None,
    };
    let at = reader.at(node);
    match parsed {
        Some((low, high)) if low >= 1 && low <= high => Some((low, high)),
        _ => {
            let text = match &node.value {
                Node::Int(n) => n.to_string(),
                Node::Text(text) => shown(text),
                other => other.kind().to_owned(),
            };
            reader.push(
                at.error(format!("`{text}` is not a port"))
                    .hint("a port is 1 to 65535, or a range such as \"8000-8010\""),
            );
            None
        }
    }
}

fn port_number(text: &str) -> Option<u16> {
    let text = text.trim();
    (!text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Methods are tokens and case-sensitive (RFC 9110 section 9.1).
fn read_methods(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<At<String>> {
    let methods = reader.texts(node, "`methods`");
    for method in &methods {
        let upper = method.value.to_ascii_uppercase();
        if !method
            .value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        {
            reader.push(
                method
                    .at
                    .error(format!("`{}` is not a method", shown(&method.value)))
                    .hint("for any method leave `methods` out"),
            );
        } else if method.value == "*" {
            reader.push(
                method
                    .at
                    .error("`*` is not a method")
                    .hint("for any method leave `methods` out"),
            );
        } else if method.value != upper {
            reader.push(
                method
                    .at
                    .error(format!("method `{}` is not in capitals", method.value))
                    .hint(format!("write `{upper}`; methods are case-sensitive")),
            );
        }
    }
    methods
}
