//! What a comparison found, for people and programs: gaps first, then what may be one, then what is met.
use super::finding::{Finding, Outcome};
use super::need::{Certainty, Need};
use super::suggest::Suggestion;
use crate::host::shown;
use crate::{Refusal, Remedy};
use serde::Serialize;
use std::fmt;

/// All needs with what a policy says to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Gaps that are sure, then likely ones, then what a person must agree to, then what is met.
    pub findings: Vec<Finding>,
    /// What would close the sure gaps.
    pub suggestion: Suggestion,
    /// What could not be read or was left out, a sentence each.
    pub notes: Vec<String>,
    /// Hash of the policy.
    pub policy_hash: String,
}

impl Report {
    /// What is certainly needed and missing.
    pub fn sure_gaps(&self) -> impl Iterator<Item = &Finding> {
        self.gaps(Certainty::Sure)
    }

    /// What may be needed and is missing.
    pub fn likely_gaps(&self) -> impl Iterator<Item = &Finding> {
        self.gaps(Certainty::Likely)
    }

    fn gaps(&self, certainty: Certainty) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |finding| finding.outcome.is_gap() && finding.need.certainty == certainty)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asks = self
            .findings
            .iter()
            .filter(|finding| matches!(finding.outcome, Outcome::Ask { .. }));
        part(f, "gaps", self.sure_gaps())?;
        part(f, "likely gaps", self.likely_gaps())?;
        part(f, "a person must agree to", asks)?;
        let met = self
            .findings
            .iter()
            .filter(|finding| matches!(finding.outcome, Outcome::Met { .. }))
            .count();
        writeln!(f, "met: {met} of {}", self.findings.len())?;
        if !self.notes.is_empty() {
            writeln!(f, "notes:")?;
            for note in &self.notes {
                writeln!(f, "  {note}")?;
            }
        }
        if !self.suggestion.is_empty() {
            writeln!(f, "this would close the gaps; review it before adding it:")?;
            for line in self.suggestion.to_string().lines() {
                writeln!(f, "  {line}")?;
            }
        }
        write!(f, "policy: {}", self.policy_hash)
    }
}

fn part<'a>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    findings: impl Iterator<Item = &'a Finding>,
) -> fmt::Result {
    let findings: Vec<&Finding> = findings.collect();
    if findings.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}: {}", findings.len())?;
    for finding in findings {
        writeln!(f, "  {}", finding.need)?;
        writeln!(f, "    from {}", places(&finding.need))?;
        for line in details(&finding.outcome) {
            writeln!(f, "    {line}")?;
        }
    }
    Ok(())
}

fn places(need: &Need) -> String {
    let named: Vec<String> = need.from.iter().map(ToString::to_string).collect();
    match need.more {
        0 => named.join(", "),
        1 => format!("{} and 1 more place", named.join(", ")),
        more => format!("{} and {more} more places", named.join(", ")),
    }
}

fn details(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Met { by } => vec![format!("met by `{by}`")],
        Outcome::Ask { request, refusal } | Outcome::Refused { request, refusal } => answer(request, refusal),
        Outcome::NoCredential => vec!["no credential of the policy is for this".to_owned()],
        Outcome::Unused { credential } => vec![format!(
            "credential `{credential}` is bound, and no rule with `use: [{credential}]` lets it go out"
        )],
        Outcome::Unknown => vec!["no preset says where this comes from".to_owned()],
    }
}

fn answer(request: &str, refusal: &Refusal) -> Vec<String> {
    let mut lines = vec![format!(
        "`{}` is refused by `{}`: {}",
        shown(request),
        refusal.reason.rule,
        refusal.reason.text
    )];
    match refusal.remedy {
        Remedy::RequestAccess => lines.push("the agent may ask, and gets it at once".to_owned()),
        Remedy::AskPerson => lines.push("the agent may ask, and a person decides".to_owned()),
        Remedy::None => {}
    }
    lines.extend(refusal.hint.iter().map(|hint| format!("hint: {hint}")));
    lines
}
