//! What may go from a policy, in an order in which it can be done, with the evidence.
use super::parts::{Kind, Parts};
use super::{Place, Usage, Use};
use crate::diagnostic::At;
use crate::host::shown;
use serde::Serialize;
use std::fmt;

/// What a policy could do without. `{}` prints a line for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShrinkReport {
    /// How many requests were looked at.
    pub records: u64,
    /// Since when.
    pub since: jiff::Timestamp,
    /// When the first of them was decided.
    pub first: Option<jiff::Timestamp>,
    /// Lines of the log that are no records.
    pub unreadable: u64,
    /// What nobody used; each can be done after those before it.
    pub suggestions: Vec<Suggestion>,
    /// Rules that refuse and met nothing. They protect all the same: nothing is proposed about them.
    pub quiet: Vec<Quiet>,
}

/// Something that nobody used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// `test`, `rule`, `host`, `method`, `path`, `use`, `credential` or `entry`.
    pub what: &'static str,
    /// As it stands in the file.
    pub text: String,
    /// The rule, credential or set to which it belongs.
    pub of: String,
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// When it was used last, if it was before the time that was looked at.
    pub last_use: Option<jiff::Timestamp>,
}

/// A rule that refuses and met nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quiet {
    /// Id.
    pub rule: String,
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// When it refused last, if it did before the time that was looked at.
    pub last_use: Option<jiff::Timestamp>,
}

impl ShrinkReport {
    pub(super) fn new(parts: &Parts, usage: &Usage, since: jiff::Timestamp) -> Self {
        let mut report = Self {
            records: usage.records,
            since,
            first: usage.first,
            unreadable: usage.unreadable,
            suggestions: Vec::new(),
            quiet: Vec::new(),
        };
        // Where nothing was looked at, nothing is known.
        if usage.records > 0 {
            let finder = Finder { parts, usage };
            finder.rules(&mut report);
            finder.within_rules(&mut report.suggestions);
            finder.rest(&mut report.suggestions);
        }
        report
    }
}

struct Finder<'a> {
    parts: &'a Parts,
    usage: &'a Usage,
}

impl Finder<'_> {
    fn of(&self, place: Place) -> Use {
        self.usage.used.get(&place).copied().unwrap_or_default()
    }

    fn is_used(&self, place: Place) -> bool {
        self.of(place).count > 0
    }

    /// Whole rules, and before them the tests that name them.
    fn rules(&self, report: &mut ShrinkReport) {
        let mut rules = Vec::new();
        for (number, rule) in self.parts.rules.iter().enumerate() {
            let place = (number, Kind::Rule, 0);
            if self.is_used(place) || rule.shipped {
                continue;
            }
            let last_use = self.of(place).before;
            if rule.protects {
                report.quiet.push(Quiet {
                    rule: rule.id.value.clone(),
                    file: rule.id.at.file.to_string(),
                    line: rule.id.at.line,
                    last_use,
                });
                continue;
            }
            let tests = self.parts.tests.iter().filter(|test| test.value == rule.id.value);
            report
                .suggestions
                .extend(tests.map(|test| suggestion("test", test, &rule.id.value, last_use)));
            rules.push(suggestion("rule", &rule.id, &rule.id.value, last_use));
        }
        report.suggestions.extend(rules);
    }

    /// Parts of rules that stay; of each kind at least one part is used, or none is proposed.
    fn within_rules(&self, found: &mut Vec<Suggestion>) {
        for (number, rule) in self.parts.rules.iter().enumerate() {
            if rule.protects || rule.shipped || !self.is_used((number, Kind::Rule, 0)) {
                continue;
            }
            let id = rule.id.value.as_str();
            let hosts: Vec<&At<String>> = rule.hosts.iter().map(|host| &host.text).collect();
            let methods: Vec<&At<String>> = rule.methods.iter().collect();
            let paths: Vec<&At<String>> = rule.paths.iter().map(|path| &path.text).collect();
            for (what, kind, texts) in [
                ("host", Kind::Host, hosts),
                ("method", Kind::Method, methods),
                ("path", Kind::Path, paths),
            ] {
                let used = |at: usize| self.is_used((number, kind, at));
                if !(0..texts.len()).any(used) {
                    continue;
                }
                let idle = texts.iter().enumerate().filter(|(at, _)| !used(*at));
                found.extend(
                    idle.map(|(at, text)| suggestion(what, text, id, self.of((number, kind, at)).before)),
                );
            }
        }
    }

    /// Credentials, after their mentions, and entries of sets.
    fn rest(&self, found: &mut Vec<Suggestion>) {
        let mut definitions = Vec::new();
        for (number, credential) in self.parts.credentials.iter().enumerate() {
            let place = (number, Kind::Credential, 0);
            if self.is_used(place) {
                continue;
            }
            let last_use = self.of(place).before;
            for (number, rule) in self.parts.rules.iter().enumerate() {
                let stays = rule.protects || rule.shipped || self.is_used((number, Kind::Rule, 0));
                let mentions = rule
                    .uses
                    .iter()
                    .filter(|name| stays && name.value == credential.value);
                found.extend(mentions.map(|name| suggestion("use", name, &rule.id.value, last_use)));
            }
            definitions.push(suggestion("credential", credential, &credential.value, last_use));
        }
        found.extend(definitions);
        for (number, set) in self.parts.sets.iter().enumerate().filter(|(_, set)| !set.kept) {
            let used = |at: usize| self.is_used((number, Kind::Entry, at));
            if !(0..set.entries.len()).any(used) {
                continue;
            }
            let idle = set.entries.iter().enumerate().filter(|(at, _)| !used(*at));
            found.extend(idle.map(|(at, entry)| {
                suggestion(
                    "entry",
                    entry,
                    &set.name,
                    self.of((number, Kind::Entry, at)).before,
                )
            }));
        }
    }
}

fn suggestion(
    what: &'static str,
    text: &At<String>,
    of: &str,
    last_use: Option<jiff::Timestamp>,
) -> Suggestion {
    Suggestion {
        what,
        text: text.value.clone(),
        of: of.to_owned(),
        file: text.at.file.to_string(),
        line: text.at.line,
        column: text.at.column,
        last_use,
    }
}

impl fmt::Display for ShrinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests since {}", self.records, self.since)?;
        if self.unreadable > 0 {
            writeln!(f, "{} lines of the log cannot be read", self.unreadable)?;
        }
        if self.records == 0 {
            return writeln!(f, "nothing was recorded, so nothing can be said");
        }
        let last = |at: Option<jiff::Timestamp>| match at {
            Some(at) => format!("last used {at}"),
            None => "no use is recorded".to_owned(),
        };
        for it in &self.suggestions {
            let text = shown(&it.text);
            let of = shown(&it.of);
            let what = match it.what {
                "rule" => format!("rule `{text}` was not used"),
                "test" => format!("the test names rule `{text}`, which was not used"),
                "credential" => format!("credential `{text}` was not used"),
                "use" => format!("rule `{of}` names credential `{text}`, which was not used"),
                "entry" => format!("entry `{text}` of set `{of}` was not used"),
                kind => format!("{kind} `{text}` of rule `{of}` was not used"),
            };
            writeln!(
                f,
                "{}:{}:{}: {what}; {}",
                it.file,
                it.line,
                it.column,
                last(it.last_use)
            )?;
        }
        if self.suggestions.is_empty() {
            writeln!(f, "everything was used")?;
        }
        if !self.quiet.is_empty() {
            writeln!(f, "refused nothing, and protect all the same:")?;
        }
        for rule in &self.quiet {
            writeln!(
                f,
                "  {}:{}: rule `{}`; {}",
                rule.file,
                rule.line,
                shown(&rule.rule),
                last(rule.last_use)
            )?;
        }
        Ok(())
    }
}
