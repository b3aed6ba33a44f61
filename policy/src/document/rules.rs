//! Reading one rule, and one line of `tests`.
use super::reader::{Fields, Reader};
use super::{Effect, RulePart, TermsPart, TestPart, ToPart, WhoPart};
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use crate::{Protocol, Who};
use serde_saphyr::Spanned;

const RULE: &[&str] = &[
    "id",
    "to",
    "who",
    "use",
    "effect",
    "grantable",
    "grant",
    "hint",
    "limit",
    "during",
    "when",
];
const TO: &[&str] = &[
    "host",
    "port",
    "protocol",
    "methods",
    "path",
    "private",
    "repository",
    "access",
    "refs",
    "force",
    "database",
    "user",
    "query",
    "headers",
];
const FACTS: &[&str] = &[
    "run",
    "user",
    "team",
    "repository",
    "environment",
    "machine",
    "parent_run",
    "labels",
];
/// A grant without `expires` ends after this.
pub(super) const DEFAULT_EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// No grant lasts longer.
const LONGEST_EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 366);

pub(super) fn read(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<RulePart> {
    let mut fields = reader.fields(node, "a rule", RULE)?;
    for name in ["limit", "during", "when"] {
        if let Some((at, _)) = fields.take_with_key(name, reader) {
            reader.unsupported(&at, name);
        }
    }
    let id = match fields.take("id") {
        Some(node) => reader.text(node, "`id`"),
        None => {
            reader.push(
                fields
                    .at
                    .error("the rule has no `id`")
                    .hint("give it a short name; refusals and logs use it"),
            );
            None
        }
    };
    let effect = effect(&mut fields, reader);
    let to = match fields.take("to") {
        Some(node) => read_to(node, reader),
        None => Some(ToPart::default()),
    };
    let who = fields
        .take("who")
        .map(|node| read_who(node, reader))
        .unwrap_or_default();
    let uses = fields
        .take("use")
        .map(|node| reader.texts(node, "`use`"))
        .unwrap_or_default();
    let hint = fields
        .take("hint")
        .and_then(|node| reader.text(node, "`hint`"))
        .map(|hint| hint.value);
    let grantable = fields.take_with_key("grantable", reader);
    let grant = fields.take_with_key("grant", reader);
    let effect = effect?;
    let mut terms = None;
    if let Some((at, node)) = grantable {
        if effect.value == Effect::Deny {
            terms = read_terms(node, true, reader);
        } else {
            let word = effect.value.as_str();
            reader.push(
                at.error(format!("`grantable` has no meaning with `effect: {word}`"))
                    .hint("it belongs to `effect: deny`; terms of `ask` stand in `grant`"),
            );
        }
    }
    if let Some((at, node)) = grant {
        if effect.value == Effect::Ask {
            terms = read_terms(node, false, reader);
        } else {
            let word = effect.value.as_str();
            reader.push(
                at.error(format!("`grant` has no meaning with `effect: {word}`"))
                    .hint("it belongs to `effect: ask`; a refusal that may be lifted has `grantable`"),
            );
        }
    }
    Some(RulePart {
        id: id?,
        effect,
        to: to?,
        who,
        uses,
        terms,
        hint,
    })
}

fn effect(fields: &mut Fields, reader: &mut Reader<'_>) -> Option<At<Effect>> {
    let Some(node) = fields.take("effect") else {
        reader.push(
            fields
                .at
                .error("the rule has no `effect`")
                .hint("it is one of `allow`, `deny`, `ask`"),
        );
        return None;
    };
    let word = reader.choice(node, "`effect`", &["allow", "deny", "ask"])?;
    Some(word.with(match word.value.as_str() {
        "allow" => Effect::Allow,
        "ask" => Effect::Ask,
        _ => Effect::Deny,
    }))
}

fn read_to(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<ToPart> {
    let mut fields = reader.fields(node, "`to`", TO)?;
    for name in [
        "repository",
        "access",
        "refs",
        "force",
        "database",
        "user",
        "query",
        "headers",
    ] {
        if let Some((at, _)) = fields.take_with_key(name, reader) {
            reader.unsupported(&at, name);
        }
    }
    let mut to = ToPart::default();
    to.hosts = fields.take("host").map(|node| reader.texts(node, "`host`"));
    to.ports = fields.take("port").map(|node| read_ports(node, reader));
    if let Some(node) = fields.take("protocol") {
        to.protocol = read_protocol(node, reader);
    }
    to.methods = fields.take("methods").map(|node| read_methods(node, reader));
    to.paths = fields.take("path").map(|node| reader.texts(node, "`path`"));
    to.private = fields
        .take("private")
        .and_then(|node| reader.boolean(node, "`private`"));
    Some(to)
}

fn read_protocol(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<At<Protocol>> {
    let word = reader.choice(
        node,
        "`protocol`",
        &["http", "tls", "tcp", "git", "ssh", "postgres"],
    )?;
    let protocol = match word.value.as_str() {
        "http" => Protocol::Http,
        "tls" => Protocol::Tls,
        "tcp" => Protocol::Tcp,
        other => {
            reader.push(
                word.at
                    .error(format!("`protocol: {other}` is not supported yet; remove it"))
                    .hint(match other {
                        "git" => "git over https is ordinary `http`: allow GET and POST with paths",
                        _ => "`protocol: tcp` passes it unread",
                    }),
            );
            return None;
        }
    };
    Some(word.with(protocol))
}

/// `443`, `"8000-8010"` or a list of those.
fn read_ports(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<(u16, u16)> {
    let items = match node.value {
        Node::List(items) if items.is_empty() => {
            let at = crate::diagnostic::Position::new(&reader.file, node.referenced);
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

fn read_who(node: Spanned<Node>, reader: &mut Reader<'_>) -> Vec<WhoPart> {
    let Some(mut fields) = reader.fields(node, "`who`", FACTS) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    for fact in FACTS {
        let Some((at, node)) = fields.take_with_key(fact, reader) else {
            continue;
        };
        if *fact == "labels" {
            for (name, node) in reader.entries(node, "`labels`") {
                let values = reader
                    .texts(node, "a label")
                    .into_iter()
                    .map(|v| v.value)
                    .collect();
                parts.push(WhoPart {
                    fact: name.with(format!("labels.{}", name.value)),
                    values,
                });
            }
        } else {
            let values = reader
                .texts(node, &format!("`{fact}`"))
                .into_iter()
                .map(|v| v.value)
                .collect();
            parts.push(WhoPart {
                fact: At {
                    value: (*fact).to_owned(),
                    at,
                },
                values,
            });
        }
    }
    parts
}

/// `grantable` (with `by`) or `grant` (always a person).
fn read_terms(node: Spanned<Node>, grantable: bool, reader: &mut Reader<'_>) -> Option<At<TermsPart>> {
    let (what, known): (&str, &[&str]) = match grantable {
        true => ("`grantable`", &["by", "uses", "expires", "approvers"]),
        false => ("`grant`", &["uses", "expires", "approvers"]),
    };
    let mut fields = reader.fields(node, what, known)?;
    if let Some((at, _)) = fields.take_with_key("approvers", reader) {
        reader.unsupported(&at, "approvers");
    }
    let by = fields
        .take("by")
        .and_then(|node| reader.choice(node, "`by`", &["rule", "person"]));
    if grantable && by.is_none() {
        reader.push(
            fields
                .at
                .error("`grantable` does not say by whom")
                .hint("write `by: rule` or `by: person`"),
        );
    }
    let uses = fields
        .take("uses")
        .and_then(|node| reader.integer(node, "`uses`"))
        .and_then(|uses| {
            let count = u64::try_from(uses.value).ok().filter(|n| *n > 0);
            if count.is_none() {
                reader.push(
                    uses.at
                        .error(format!("`uses: {}` grants nothing", uses.value))
                        .hint("name 1 or more, or remove it for any number"),
                );
            }
            count
        });
    let expires = fields
        .take("expires")
        .and_then(|node| reader.text(node, "`expires`"));
    let expires = expires.and_then(|text| {
        let read = read_duration(&text.value);
        if read.is_none() {
            reader.push(
                text.at
                    .error(format!("`{}` is not a duration", shown(&text.value)))
                    .hint("write for example `30m`, `8h` or `7d`, up to 366d"),
            );
        }
        read
    });
    let by_rule = by.is_some_and(|by| by.value == "rule");
    Some(At {
        at: fields.at.clone(),
        value: TermsPart {
            by_rule,
            uses,
            expires: expires.unwrap_or(DEFAULT_EXPIRY),
        },
    })
}

/// `90s`, `30m`, `8h`, `7d`, or several in a row.
fn read_duration(text: &str) -> Option<jiff::SignedDuration> {
    let mut total: i64 = 0;
    let mut digits = String::new();
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    let total = jiff::SignedDuration::from_secs(total);
    (digits.is_empty() && total.is_positive() && total <= LONGEST_EXPIRY).then_some(total)
}

pub(super) fn read_test(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<TestPart> {
    let mut fields = reader.fields(node, "a test", &["request", "connect", "expect", "rule", "who"])?;
    let request = fields
        .take("request")
        .and_then(|node| reader.text(node, "`request`"));
    let connect = fields
        .take("connect")
        .and_then(|node| reader.text(node, "`connect`"));
    let is_connect = connect.is_some();
    let expect = fields
        .take("expect")
        .and_then(|node| reader.choice(node, "`expect`", &["allow", "deny", "ask", "inspect"]));
    let rule = fields.take("rule").and_then(|node| reader.text(node, "`rule`"));
    let who = fields
        .take("who")
        .map(|node| who_values(node, reader))
        .unwrap_or_default();
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
    })
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
