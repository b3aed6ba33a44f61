//! `${...}` in a run file: `${here}`, `${state}`, and what services print, as `${NAME.FIELD}`.
use std::collections::BTreeMap;

/// What may be put in place of `${...}`.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, String>,
}

impl Variables {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    /// Takes a service's ready line: a flat JSON object of texts, numbers and booleans.
    pub(super) fn add_service(&mut self, name: &str, line: &str) -> Result<(), String> {
        let told: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)
            .map_err(|error| format!("its first line is no JSON object ({error})"))?;
        for (field, value) in told {
            let text = match value {
                serde_json::Value::String(text) => text,
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::Bool(truth) => truth.to_string(),
                _ => return Err(format!("its field `{field}` is neither text nor number")),
            };
            self.set(format!("{name}.{field}"), text);
        }
        Ok(())
    }

    /// Replaces every `${NAME}`; `$${` stands for `${` itself. The error says which name is unknown and which
    /// are known.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            out.push_str(&rest[..at]);
            let Some(end) = rest[at..].find('}') else {
                return Err("`${` has no `}`; write `$${` for the characters themselves".to_owned());
            };
            let name = &rest[at + 2..at + end];
            let value = self.values.get(name).ok_or_else(|| self.unknown(name))?;
            out.push_str(value);
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self.values.keys().map(String::as_str).collect();
        format!("`${{{name}}}` is not known here; known are {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.set("here", "/h");
        variables
            .add_service("service", r#"{"address":"127.0.0.1","port":8443}"#)
            .unwrap();
        variables
    }

    #[test]
    fn names_are_replaced_and_doubled_dollars_are_not() {
        let variables = variables();
        assert_eq!(variables.fill("${here}/x:${service.port}").unwrap(), "/h/x:8443");
        assert_eq!(variables.fill("$${here} $HOME $").unwrap(), "${here} $HOME $");
        assert_eq!(variables.fill("ü${here}ü").unwrap(), "ü/hü");
    }

    #[test]
    fn unknown_and_unclosed_names_are_refused() {
        let variables = variables();
        let unknown = variables.fill("${service.token}").unwrap_err();
        assert!(
            unknown.contains("service.token") && unknown.contains("service.port"),
            "{unknown}"
        );
        assert!(variables.fill("${here").unwrap_err().contains("no `}`"));
    }

    #[test]
    fn a_ready_line_must_be_a_flat_object() {
        let mut variables = Variables::default();
        assert!(
            variables
                .add_service("s", "ready")
                .unwrap_err()
                .contains("no JSON object")
        );
        assert!(
            variables
                .add_service("s", r#"{"a":[1]}"#)
                .unwrap_err()
                .contains("`a`")
        );
    }

    proptest::proptest! {
        #[test]
        fn filling_never_panics(text in "[${}a-zü]{0,20}") {
            let _ = variables().fill(&text);
        }
    }
}
