//! Reading one line of `tests`.
use super::TestPart;
use super::reader::Reader;
use super::who::read_who;
use crate::host::shown;
use crate::yaml::Node;
use crate::{RefUpdate, Who};
use serde_saphyr::Spanned;

/// What a test may expect.
const EXPECTED: &[&str] = &["allow", "deny", "ask", "inspect", "malformed"];

const TEST: &[&str] = &[
    "request", "connect", "headers", "push", "at", "expect", "rule", "who",
];

pub(super) fn read(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<TestPart> {
    let mut fields = reader.fields(node, "a test", TEST)?;
    let request = fields
        .take("request")
        .and_then(|node| reader.text(node, "`request`"));
    let connect = fields
        .take("connect")
        .and_then(|node| reader.text(node, "`connect`"));
    let is_connect = connect.is_some();
    let expect = fields
        .take("expect")
        .and_then(|node| reader.choice(node, "`expect`", EXPECTED));
    let rule = fields.take("rule").and_then(|node| reader.text(node, "`rule`"));
    let who = fields
        .take("who")
        .map(|node| who_values(node, reader))
        .unwrap_or_default();
    let headers = fields
        .take("headers")
        .map(|node| headers(node, reader))
        .unwrap_or_default();
    let push = fields.take("push").map(|node| updates(node, reader));
    let at = fields
        .take("at")
        .and_then(|node| instant(node, reader))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let request = match (request, connect) {
        (Some(_), Some(connect)) => {
            reader.push(
                connect
                    .at
                    .error("a test has either `request` or `connect`, not both"),
            );
            return None;
        }
        (None, None) => {
            reader.push(
                fields
                    .at
                    .error("the test asks nothing")
                    .hint("write `request: \"GET https://host/path\"` or `connect: \"host:port\"`"),
            );
            return None;
        }
        (Some(question), None) | (None, Some(question)) => question,
    };
    if expect.is_none() {
        reader.push(
            fields
                .at
                .error("the test expects nothing")
                .hint("write `expect: allow`, `deny`, `ask` or `inspect`"),
        );
    }
    Some(TestPart {
        request,
        connect: is_connect,
        expect: expect?,
        rule,
        who,
        at,
        headers,
        push,
    })
}

/// Fields by name; a list is a field that occurs more than once.
fn headers(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, node) in reader.entries(node, "`headers`") {
        let values = reader.texts(node, &format!("`{}`", shown(&name.value)));
        let lower = name.value.to_ascii_lowercase();
        fields.extend(values.into_iter().map(|value| (lower.clone(), value.value)));
    }
    fields
}

/// `refs/heads/agent/x`, or with `+` before it where the update is forced.
fn updates(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<RefUpdate> {
    let mut updates = Vec::new();
    for word in reader.texts(node, "`push`") {
        let (name, forced) = match word.value.strip_prefix('+') {
            Some(name) => (name, true),
            None => (word.value.as_str(), false),
        };
        if !name.starts_with("refs/") {
            reader.push(
                word.at
                    .error(format!("`{}` is no full name of a ref", shown(name)))
                    .hint(format!("write `refs/heads/{}` for a branch", shown(name))),
            );
        }
        updates.push(RefUpdate {
            name: name.to_owned(),
            forced,
        });
    }
    updates
}

/// `2026-11-30T09:00:00Z`, or with another offset.
fn instant(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<jiff::Timestamp> {
    let text = reader.text(node, "`at`")?;
    let read = text.value.parse().ok();
    if read.is_none() {
        reader.push(
            text.at
                .error(format!("`{}` is no instant", shown(&text.value)))
                .hint("write for example \"2026-11-30T09:00:00Z\""),
        );
    }
    read
}

/// Facts of a test: one value each.
fn who_values(node: Spanned<Node>, reader: &mut Reader<'_>) -> Who {
    let mut who = Who::default();
    for part in read_who(node, reader) {
        let value = part.values.into_iter().next().unwrap_or_default();
        if !who.set(&part.fact.value, value) {
            reader.push(part.fact.at.error(format!("`{}` is no fact", part.fact.value)));
        }
    }
    who
}
