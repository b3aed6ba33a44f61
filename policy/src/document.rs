//! A policy file as read: every value with its position, nothing resolved yet.
mod conditions;
mod credentials;
mod during;
mod expectations;
mod git;
mod known_hosts;
mod leaks;
mod limit;
mod mode;
mod places;
mod quantities;
mod reader;
mod rules;
mod sources;
mod terms;
mod to;
mod who;
mod widen;

use crate::diagnostic::{At, Position};
use crate::during::During;
use crate::known_host::KnownHost;
use crate::leaks::Leaks;
use crate::limits::Limits;
use crate::{Layer, Place, PolicyText, Problem, Source, yaml};
pub use quantities::parse_duration as read_duration;
pub(crate) use reader::closest;
use reader::{Fields, Reader};
use std::sync::Arc;

/// One policy file.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) file: Arc<str>,
    pub(crate) default: Option<At<DefaultPart>>,
    /// `mode: observe`, where it stands.
    pub(crate) observe: Option<Position>,
    /// What it says of secrets in whatever is allowed.
    pub(crate) leaks: Leaks,
    pub(crate) widen: WidenPart,
    pub(crate) include: Vec<At<String>>,
    pub(crate) sets: Vec<SetPart>,
    pub(crate) credentials: Vec<CredentialPart>,
    pub(crate) known_hosts: Vec<KnownHost>,
    pub(crate) rules: Vec<RulePart>,
    pub(crate) tests: Vec<TestPart>,
}

/// What becomes of what no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultPart {
    Deny,
    Allow,
    /// What the layer above says; below another layer only.
    Inherit,
}

/// What layers below may do besides narrowing.
#[derive(Debug, Default)]
pub(crate) struct WidenPart {
    /// Allow what no rule here names.
    pub(crate) reach: Vec<At<Layer>>,
    /// Bind credentials of their own.
    pub(crate) credentials: Vec<At<Layer>>,
}

/// A named list of hosts and addresses, or of paths.
#[derive(Debug)]
pub(crate) struct SetPart {
    pub(crate) name: At<String>,
    pub(crate) entries: Vec<At<String>>,
}

/// A credential binding.
#[derive(Debug)]
pub(crate) struct CredentialPart {
    pub(crate) name: At<String>,
    pub(crate) from: Source,
    pub(crate) hosts: Vec<At<String>>,
    pub(crate) places: Vec<Place>,
    pub(crate) env: Option<At<String>>,
    /// How long a value fetched from its source may be used; absent means as the source says.
    pub(crate) ttl: Option<jiff::SignedDuration>,
    /// What it is for.
    pub(crate) purpose: Option<String>,
    /// The user name that belongs to it.
    pub(crate) user: Option<String>,
    /// Who lends it, where it must be asked for.
    pub(crate) terms: Option<At<TermsPart>>,
}

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Allow,
    Deny,
    Ask,
}

impl TermsPart {
    /// An `ask` without `grant`: any number of uses, for the default time.
    pub(crate) fn person() -> Self {
        Self {
            by_rule: false,
            uses: None,
            expires: terms::DEFAULT_EXPIRY,
            scope: GrantScope::Host,
            approvers: Vec::new(),
        }
    }
}

impl Effect {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

/// One rule.
#[derive(Debug)]
pub(crate) struct RulePart {
    pub(crate) id: At<String>,
    pub(crate) effect: At<Effect>,
    pub(crate) to: ToPart,
    pub(crate) who: Vec<WhoPart>,
    pub(crate) uses: Vec<At<String>>,
    pub(crate) terms: Option<At<TermsPart>>,
    pub(crate) hint: Option<String>,
    /// `mode: observe`, where it stands.
    pub(crate) observe: Option<Position>,
    pub(crate) limit: Option<At<Limits>>,
    pub(crate) leaks: Option<At<Leaks>>,
    pub(crate) during: Option<At<During>>,
    /// Layers below that may allow what this rule refuses.
    pub(crate) widen: Vec<At<Layer>>,
}

/// The `to` of a rule. `None` means any.
#[derive(Debug, Default)]
pub(crate) struct ToPart {
    pub(crate) hosts: Option<Vec<At<String>>>,
    pub(crate) ports: Option<Vec<(u16, u16)>>,
    pub(crate) protocol: Option<At<crate::Protocol>>,
    pub(crate) methods: Option<Vec<At<String>>>,
    pub(crate) paths: Option<Vec<At<String>>>,
    pub(crate) private: Option<At<bool>>,
    /// An encoded slash is a part of its segment, not a second way to read the path.
    pub(crate) encoded_slash: Option<At<bool>>,
    pub(crate) git: GitPart,
    pub(crate) database: Option<Vec<At<String>>>,
    /// Log-in name of ssh or PostgreSQL.
    pub(crate) user: Option<Vec<At<String>>>,
    pub(crate) headers: Vec<ConditionPart>,
    pub(crate) query: Vec<ConditionPart>,
}

/// What a rule with `protocol: git` says of repositories and refs. `None` means any.
#[derive(Debug, Default)]
pub(crate) struct GitPart {
    pub(crate) repository: Option<Vec<At<String>>>,
    pub(crate) access: Option<At<crate::GitAccess>>,
    pub(crate) refs: Option<Vec<At<String>>>,
    pub(crate) force: Option<At<bool>>,
}

/// A header field or query parameter with the values that will do (`*` as wildcard).
#[derive(Debug)]
pub(crate) struct ConditionPart {
    pub(crate) name: At<String>,
    pub(crate) values: Vec<At<String>>,
}

/// One fact that must hold, with the values that will do (`*` as wildcard).
#[derive(Debug)]
pub(crate) struct WhoPart {
    /// `team`, or `labels.NAME`.
    pub(crate) fact: At<String>,
    pub(crate) values: Vec<String>,
}

/// Who lifts a refusal, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TermsPart {
    /// By the policy itself; else by a person.
    pub(crate) by_rule: bool,
    pub(crate) uses: Option<u64>,
    /// The longest time that a grant lasts.
    pub(crate) expires: jiff::SignedDuration,
    /// How much one grant may cover.
    pub(crate) scope: GrantScope,
    /// Who may agree: `team:NAME` or `user:NAME`; empty means anybody who may approve at all.
    pub(crate) approvers: Vec<String>,
}

/// How wide a grant may be that an agent asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantScope {
    /// All that the rule names on the host and port asked for.
    Host,
    /// One method on one path.
    Request,
}

/// One line of `tests`.
#[derive(Debug)]
pub(crate) struct TestPart {
    pub(crate) request: At<String>,
    pub(crate) connect: bool,
    pub(crate) expect: At<String>,
    pub(crate) rule: Option<At<String>>,
    pub(crate) who: crate::Who,
    /// The instant at which it is asked, for `during`.
    pub(crate) at: jiff::Timestamp,
    /// Header fields of a request over HTTP, by lower-case name.
    pub(crate) headers: Vec<(String, String)>,
    /// The refs that a push changes; `None` where they are not known.
    pub(crate) push: Option<Vec<crate::RefUpdate>>,
}

impl Document {
    /// Reads one file; problems are added to `problems`, and what could be read comes back all the same.
    pub(crate) fn read(text: &PolicyText, problems: &mut Vec<Problem>) -> Self {
        let file: Arc<str> = text.name.as_str().into();
        let mut document = Self {
            file: file.clone(),
            default: None,
            observe: None,
            leaks: Leaks::default(),
            widen: WidenPart::default(),
            include: Vec::new(),
            sets: Vec::new(),
            credentials: Vec::new(),
            known_hosts: Vec::new(),
            rules: Vec::new(),
            tests: Vec::new(),
        };
        match yaml::read(text) {
            Ok(node) => document.fill(node, &mut Reader { file, problems }),
            Err(problem) => problems.push(problem),
        }
        document
    }

    fn fill(&mut self, node: serde_saphyr::Spanned<yaml::Node>, reader: &mut Reader<'_>) {
        const KNOWN: &[&str] = &[
            "version",
            "name",
            "default",
            "mode",
            "leaks",
            "widen",
            "include",
            "sets",
            "credentials",
            "known-hosts",
            "rules",
            "tests",
        ];
        if matches!(node.value, yaml::Node::Null) {
            return;
        }
        let Some(mut fields) = reader.fields(node, "a policy", KNOWN) else {
            return;
        };
        self.head(&mut fields, reader);
        if let Some(node) = fields.take("include") {
            self.include = reader.texts(node, "`include`");
        }
        for (name, node) in fields
            .take("sets")
            .map(|node| reader.entries(node, "`sets`"))
            .unwrap_or_default()
        {
            let what = format!("set `{}`", name.value);
            let entries = reader.texts(node, &what);
            self.sets.push(SetPart { name, entries });
        }
        let credentials = fields
            .take("credentials")
            .map(|node| reader.entries(node, "`credentials`"));
        for (name, node) in credentials.unwrap_or_default() {
            self.credentials.extend(credentials::read(name, node, reader));
        }
        if let Some(node) = fields.take("known-hosts") {
            self.known_hosts = known_hosts::read(node, reader);
        }
        for node in fields
            .take("rules")
            .map(|node| reader.items(node, "`rules`"))
            .unwrap_or_default()
        {
            self.rules.extend(rules::read(node, reader));
        }
        for node in fields
            .take("tests")
            .map(|node| reader.items(node, "`tests`"))
            .unwrap_or_default()
        {
            self.tests.extend(expectations::read(node, reader));
        }
    }

    /// `version`, `name`, `default`, `mode`, `leaks`, `widen`.
    fn head(&mut self, fields: &mut Fields, reader: &mut Reader<'_>) {
        match fields
            .take("version")
            .map(|node| reader.integer(node, "`version`"))
        {
            Some(Some(version)) if version.value != 1 => {
                let message = format!("version `{}` is not known", version.value);
                reader.push(version.at.error(message).hint("this language has version 1"));
            }
            Some(_) => {}
            None => reader.push(fields.at.error("`version` is missing").hint("write `version: 1`")),
        }
        if let Some(node) = fields.take("name") {
            // Only its form matters here: it is for readers.
            let _name = reader.text(node, "`name`");
        }
        if let Some(node) = fields.take("default")
            && let Some(default) = reader.choice(node, "`default`", &["deny", "allow", "inherit"])
        {
            self.default = Some(default.with(match default.value.as_str() {
                "allow" => DefaultPart::Allow,
                "inherit" => DefaultPart::Inherit,
                _ => DefaultPart::Deny,
            }));
        }
        self.observe = mode::read_mode(fields, reader);
        if let Some(node) = fields.take("leaks")
            && let Some(leaks) = leaks::read_leaks(node, reader)
        {
            self.leaks = leaks.value;
        }
        if let Some(node) = fields.take("widen") {
            self.widen = widen::read_widen(node, reader);
        }
    }
}
