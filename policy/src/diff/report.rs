//! A difference as people read it.
use super::{Change, ChangeKind, Diff};
use crate::space::{Axis, Conditions, Extent, Point};
use crate::{Moment, RefUpdate, wording};
use std::fmt;

/// The witness as people write requests, with what else it depends on.
pub(super) fn example(point: &Point, conditions: &Conditions) -> String {
    let mut text = wording::whole(&point.request);
    for axis in conditions.keys() {
        match axis {
            Axis::Who(fact) => match point.who.fact(fact) {
                "" => text.push_str(&format!(", {fact} unknown")),
                value => text.push_str(&format!(", {fact} {}", crate::host::shown(value))),
            },
            Axis::Refs => text.push_str(&pushed(&point.request.moment)),
            Axis::Time => text.push_str(&format!(", at {}", point.at)),
            _ => {}
        }
    }
    text
}

/// What a push changes, as far as it is known.
fn pushed(moment: &Moment) -> String {
    let updates = match moment {
        Moment::Http(http) => http.pushed.as_ref(),
        Moment::Ssh(ssh) => ssh.git.as_ref().and_then(|git| git.pushed.as_ref()),
        _ => None,
    };
    let Some(updates) = updates else {
        return ", refs not read yet".to_owned();
    };
    let one = |update: &RefUpdate| {
        let force = if update.forced { " by force" } else { "" };
        format!("{}{force}", crate::host::shown(&update.name))
    };
    let all: Vec<String> = updates.iter().map(one).collect();
    match all.is_empty() {
        true => ", of no ref".to_owned(),
        false => format!(", of {}", all.join(" and ")),
    }
}

impl ChangeKind {
    fn title(self) -> &'static str {
        match self {
            Self::NewlyAllowed => "newly allowed",
            Self::NewlyDenied => "newly denied",
            Self::NewlyAsked => "newly asked",
            Self::NoLongerAsked => "no longer asked",
            Self::Changed => "changed",
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for change in &self.changes {
            if last != Some(change.kind) {
                writeln!(f, "{}:", change.kind.title())?;
                last = Some(change.kind);
            }
            writeln!(f, "{change}")?;
        }
        for hosts in &self.unknown {
            writeln!(
                f,
                "not known:\n  {hosts}\n    its rules cannot all be compared: they have too many combinations"
            )?;
        }
        let timed = self
            .changes
            .iter()
            .any(|change| change.requests.contains_key(&Axis::Time));
        if timed {
            writeln!(
                f,
                "windows of time were compared over the year from {}",
                self.from
            )?;
        }
        match (self.changes.len(), self.unknown.is_empty()) {
            (0, true) => f.write_str("no request is treated differently"),
            (0, false) => f.write_str("no difference was found where policies could be compared"),
            (1, _) => f.write_str("1 difference"),
            (many, _) => write!(f, "{many} differences"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: Vec<String> = self
            .requests
            .iter()
            .map(|(axis, extent)| clause(axis, extent))
            .collect();
        writeln!(f, "  {}", self.hosts)?;
        match requests.is_empty() {
            true => writeln!(f, "    whatever is sent")?,
            false => writeln!(f, "    {}", requests.join("; "))?,
        }
        let by = |rules: &[String]| match rules {
            [] => String::new(),
            [first, second] => format!(", by {first} or {second}"),
            rules => format!(", by {}", crate::space::few(rules)),
        };
        writeln!(f, "    before: {}{}", self.before, by(&self.before_by))?;
        writeln!(f, "    after:  {}{}", self.after, by(&self.after_by))?;
        write!(f, "    example: {}", self.example)
    }
}

fn clause(axis: &Axis, extent: &Extent) -> String {
    match axis {
        Axis::Protocol | Axis::Git => extent.to_string(),
        _ => format!("{axis} {extent}"),
    }
}
