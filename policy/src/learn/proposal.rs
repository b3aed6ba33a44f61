//! The proposed policy as text: rules with their evidence, tests made of what was seen, and what was left out.
use super::rules::{Draft, drafts};
use super::{Evidence, Kind, Learned};
use crate::host::shown;
use crate::{Policy, PolicyText, Problem};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

/// What is left out is told up to this many kinds of request.
const LEFT_OUT_SHOWN: usize = 100;
/// Tests of one rule.
const SAMPLES: usize = 5;

/// A policy to be read, and taken over by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The policy, YAML.
    pub yaml: String,
    /// How many rules it has.
    pub rules: usize,
    /// How many requests it would have allowed.
    pub requests: u64,
    /// How many requests are left out.
    pub left_out: u64,
}

impl Proposal {
    pub(super) fn new(learned: &Learned, name: &str, taken: &HashSet<String>) -> Self {
        let mut drafts: Vec<(String, Draft)> = named(drafts(&learned.wanted), taken);
        let mut left_out: BTreeMap<(String, String), Evidence> = learned.left_out.clone();
        // A rule about which the language itself has a remark is no proposal. Each round takes at least one away.
        loop {
            let written = Written::new(&drafts, name);
            let remarks = remarks(&written.text);
            let odd: BTreeMap<usize, String> = remarks
                .into_iter()
                .map(|problem| (written.rule_at(problem.line), shown(&problem.message)))
                .collect();
            if odd.is_empty() || drafts.is_empty() {
                return Self::written(learned, written, &drafts, &left_out);
            }
            for (at, why) in odd.into_iter().rev() {
                let (_, draft) = drafts.remove(at.min(drafts.len() - 1));
                let hosts: Vec<&str> = draft.hosts.iter().map(String::as_str).collect();
                let what = format!("all of `{}`, port {}", hosts.join("`, `"), draft.port);
                left_out.insert((what, why), draft.evidence);
            }
        }
    }

    fn written(
        learned: &Learned,
        written: Written,
        drafts: &[(String, Draft)],
        left_out: &BTreeMap<(String, String), Evidence>,
    ) -> Self {
        let requests = drafts.iter().map(|(_, draft)| draft.evidence.count).sum();
        let mut yaml = written.text;
        comments(&mut yaml, learned, left_out);
        Self {
            yaml,
            rules: drafts.len(),
            requests,
            left_out: left_out.values().map(|evidence| evidence.count).sum::<u64>() + learned.others,
        }
    }
}

/// What the language says of a policy: errors and warnings alike.
fn remarks(text: &str) -> Vec<Problem> {
    let file = PolicyText {
        name: "proposal".to_owned(),
        text: text.to_owned(),
    };
    match Policy::compile(&[file]) {
        Ok(policy) => policy.warnings().to_vec(),
        Err(problems) => problems,
    }
}

/// A short name for each rule, that no other has.
fn named(drafts: Vec<Draft>, taken: &HashSet<String>) -> Vec<(String, Draft)> {
    let mut taken: HashSet<String> = taken.clone();
    let name = |draft: Draft| {
        let host = draft.hosts.iter().next().map(String::as_str).unwrap_or_default();
        let host: String = host
            .trim_start_matches("*.")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let verb = match draft.kind {
            Kind::Stream => "stream",
            Kind::Tls => "tls",
            Kind::Http { .. }
                if draft
                    .methods
                    .iter()
                    .all(|method| method == "GET" || method == "HEAD") =>
            {
                "read"
            }
            Kind::Http { .. } => "use",
        };
        let base = format!("{verb}-{}", host.trim_matches('-'));
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let id = std::iter::once(base.clone())
            .chain(numbered)
            .find(|id| !taken.contains(id))
            .unwrap_or(base);
        taken.insert(id.clone());
        (id, draft)
    };
    drafts.into_iter().map(name).collect()
}

/// The policy's text, and which lines are whose.
struct Written {
    text: String,
    /// First line of each rule, from 1.
    begins: Vec<u32>,
    /// First line of each rule's tests.
    tests: Vec<u32>,
}

impl Written {
    fn new(drafts: &[(String, Draft)], name: &str) -> Self {
        let mut written = Self {
            text: format!("version: 1\nname: {}\n", quoted(&format!("learned/{name}"))),
            begins: Vec::new(),
            tests: Vec::new(),
        };
        if !drafts.is_empty() {
            written.text.push_str("rules:\n");
        }
        for (id, draft) in drafts {
            written.begins.push(written.line());
            rule(&mut written.text, id, draft);
        }
        if !drafts.is_empty() {
            written.text.push_str("tests:\n");
        }
        for (id, draft) in drafts {
            written.tests.push(written.line());
            tests(&mut written.text, id, draft);
        }
        written
    }

    fn line(&self) -> u32 {
        u32::try_from(self.text.lines().count() + 1).unwrap_or(u32::MAX)
    }

    /// The number of the rule to which a line belongs.
    fn rule_at(&self, line: u32) -> usize {
        let begins = match self.tests.first() {
            Some(first) if line >= *first => &self.tests,
            _ => &self.begins,
        };
        begins.partition_point(|begin| *begin <= line).saturating_sub(1)
    }
}

fn rule(text: &mut String, id: &str, draft: &Draft) {
    let mut to = vec![format!("host: {}", list(&draft.hosts))];
    if draft.port != 443 || draft.kind == Kind::Stream {
        to.push(format!("port: {}", draft.port));
    }
    match draft.kind {
        Kind::Stream => to.push("protocol: tcp".to_owned()),
        Kind::Tls => to.push("protocol: tls".to_owned()),
        Kind::Http { .. } => {
            let methods: Vec<&str> = draft.methods.iter().map(String::as_str).collect();
            to.push(format!("methods: [{}]", methods.join(", ")));
            to.push(format!("path: {}", list(&draft.paths)));
        }
    }
    // Writing into a `String` cannot fail.
    let _ = writeln!(
        text,
        "  # {}\n  - id: {id}\n    to: {{{}}}\n    effect: allow",
        evidence(&draft.evidence),
        to.join(", ")
    );
}

fn tests(text: &mut String, id: &str, draft: &Draft) {
    for sample in draft.samples.iter().take(SAMPLES) {
        let (what, request) = match sample.strip_prefix("connect ") {
            Some(place) => ("connect", place),
            None => ("request", sample.as_str()),
        };
        let _ = writeln!(
            text,
            "  - {{{what}: {}, expect: allow, rule: {id}}}",
            quoted(request)
        );
    }
}

fn evidence(evidence: &Evidence) -> String {
    let count = match evidence.count {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!(
        "{count}, {} to {}, the first is record {}",
        evidence.first,
        evidence.last,
        shown(&evidence.id)
    )
}

fn comments(yaml: &mut String, learned: &Learned, left_out: &BTreeMap<(String, String), Evidence>) {
    let mut notes: Vec<String> = Vec::new();
    if learned.allowed > 0 {
        notes.push(format!("{} requests are allowed already", learned.allowed));
    }
    if learned.nothing > 0 {
        notes.push(format!(
            "{} connections came to no request, or were stopped by a bound or by the address they led to",
            learned.nothing
        ));
    }
    if learned.others > 0 {
        notes.push(format!(
            "{} requests were of too many kinds to look at",
            learned.others
        ));
    }
    if learned.unreadable > 0 {
        notes.push(format!("{} lines of the log cannot be read", learned.unreadable));
    }
    if !left_out.is_empty() {
        notes.push("left out:".to_owned());
    }
    for ((what, why), evidence) in left_out.iter().take(LEFT_OUT_SHOWN) {
        notes.push(format!("  {} ({}): {}", shown(what), evidence.count, shown(why)));
    }
    if left_out.len() > LEFT_OUT_SHOWN {
        notes.push(format!("  and {} more kinds", left_out.len() - LEFT_OUT_SHOWN));
    }
    for note in notes {
        let _ = writeln!(yaml, "# {note}");
    }
}

/// One entry by itself, several as a list.
fn list<'a>(entries: impl IntoIterator<Item = &'a String>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|entry| quoted(entry)).collect();
    match entries.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", entries.join(", ")),
    }
}

/// A YAML scalar: plain where that is plain to see, else in quotes, as JSON writes it.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}
