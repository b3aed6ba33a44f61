//! Problems of policies as SARIF 2.1.0 (OASIS), which code review and its tools read.
use sallyport_policy::{Code, PolicyText, Problem, Severity};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The schema's address, as the standard gives it.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// One run of the tool over these policies, each with its files. What two policies include is told once.
pub(super) fn log<'a>(found: impl Iterator<Item = (&'a [Problem], &'a [PolicyText])>) -> Value {
    let mut results: Vec<Value> = Vec::new();
    let mut codes: BTreeSet<Code> = BTreeSet::new();
    for (problems, texts) in found {
        for problem in problems {
            codes.insert(problem.code);
            let result = result(problem, texts);
            if !results.contains(&result) {
                results.push(result);
            }
        }
    }
    let index = |result: &Value| codes.iter().position(|code| result["ruleId"] == code.as_str());
    let places: Vec<Option<usize>> = results.iter().map(index).collect();
    for (result, place) in results.iter_mut().zip(places) {
        result["ruleIndex"] = json!(place);
    }
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| json!({"id": code.as_str(), "shortDescription": {"text": code.description()}}))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "sallyport policy check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(problem: &Problem, texts: &[PolicyText]) -> Value {
    let message = match &problem.hint {
        Some(hint) => format!("{} ({hint})", problem.message),
        None => problem.message.clone(),
    };
    let mut region = json!({"startLine": problem.line, "startColumn": problem.column});
    if let Some(source) = source(problem, texts) {
        let length = u32::try_from(problem.length(source)).unwrap_or(1);
        region["endColumn"] = json!(problem.column.saturating_add(length));
    }
    json!({
        "ruleId": problem.code.as_str(),
        "level": match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "message": {"text": message},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": uri(&problem.file)},
            "region": region,
        }}],
    })
}

fn source<'t>(problem: &Problem, texts: &'t [PolicyText]) -> Option<&'t str> {
    let text = texts.iter().find(|text| text.name == problem.file)?;
    text.text.lines().nth((problem.line as usize).checked_sub(1)?)
}

/// A file's name as a reference (RFC 3986): relative ones stay so, `preset:NAME` is one already.
fn uri(file: &str) -> String {
    if file.starts_with("preset:") {
        return file.to_owned();
    }
    if let Ok(url) = url::Url::from_file_path(file) {
        return url.into();
    }
    let segments = file.split('/').map(|segment| match segment {
        "." | ".." | "" => segment.to_owned(),
        _ => url::Url::from_file_path(format!("/{segment}"))
            .map(|url| url.path().trim_start_matches('/').replace(':', "%3A"))
            .unwrap_or_default(),
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn file_names_become_references() {
        assert_eq!(uri("policies/team web.yaml"), "policies/team%20web.yaml");
        assert_eq!(uri("../a:b.yaml"), "../a%3Ab.yaml");
        assert_eq!(uri("/etc/policy.yaml"), "file:///etc/policy.yaml");
        assert_eq!(uri("preset:python"), "preset:python");
    }
}
