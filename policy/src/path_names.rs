//! Path entries of rules: sets are put in their places, everything else is read as a pattern.
use crate::Problem;
use crate::diagnostic::At;
use crate::document::closest;
use crate::host::shown;
use crate::path_pattern::{PathPattern, Slashes};
use crate::sets::{Kind, Sets};

/// The patterns of a `path` list.
pub(crate) fn resolve(
    entries: &[At<String>],
    sets: &mut Sets<'_>,
    slashes: Slashes,
    problems: &mut Vec<Problem>,
) -> Vec<PathPattern> {
    let mut patterns = Vec::new();
    for entry in entries {
        let Some(set) = sets.get(&entry.value) else {
            match PathPattern::parse(&entry.value, slashes) {
                Ok(pattern) => patterns.push(pattern),
                Err((why, hint)) => problems.push(fault(entry, sets, why, hint)),
            }
            continue;
        };
        if !sets.admit(set, Kind::Paths, &entry.at, problems) {
            continue;
        }
        for path in &set.entries {
            match PathPattern::parse(&path.value, slashes) {
                Ok(pattern) => patterns.push(pattern),
                // What is wrong in a set was said at the set; this goes wrong here alone.
                Err((why, hint)) if PathPattern::parse(&path.value, Slashes::Encoded).is_ok() => {
                    let mut problem = entry.at.error(format!("set `{}`: {why}", set.name.value));
                    problem.hint = hint;
                    problems.push(problem);
                }
                Err(_) => {}
            }
        }
    }
    patterns
}

/// What is no pattern may be meant as a set.
fn fault(entry: &At<String>, sets: &Sets<'_>, why: String, hint: Option<String>) -> Problem {
    let text = entry.value.as_str();
    let mut problem = entry.at.error(why);
    problem.hint = hint;
    if let Some(preset) = text.strip_prefix("preset:") {
        return problem.hint(format!("add `preset:{}` to `include`", shown(preset)));
    }
    let known: Vec<&str> = sets.names(Kind::Paths).collect();
    match closest(text, &known).filter(|_| !text.starts_with('/')) {
        Some(near) => problem.hint(format!("did you mean the set `{near}`?")),
        None => problem,
    }
}
