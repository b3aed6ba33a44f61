//! Lines of a network log, in the making.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use sallyport_policy::Who;
use std::fmt::Write as _;

/// Lines of a log, in the making.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) lines: String,
    count: u32,
}

impl Log {
    /// One record; `more` overrides or adds fields.
    pub(crate) fn add(&mut self, url: &str, verdict: &str, rule: &str, more: serde_json::Value) {
        let (method, rest) = url.split_once(' ').unwrap();
        let rest = rest.trim_start_matches("https://");
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        self.count += 1;
        let mut record = serde_json::json!({
            "sequence": self.count, "id": format!("d-{}", self.count), "at": format!("2026-05-01T10:{:02}:00Z", self.count % 60),
            "session": "run-1", "user": "ada", "kind": "http", "host": host, "port": 443, "method": method, "path": path,
            "verdict": verdict, "rule": rule, "reason": format!("rule `{rule}` said so"), "refusal": null, "policy_hash": "ff",
            "status": 200, "bytes_out": 0, "bytes_in": 0, "duration_ms": 1, "credentials_used": [], "credentials_redacted": [],
            "ending": "complete", "tls": true, "chain": "",
        });
        if verdict == "denied" || verdict == "asked" {
            record["refusal"] = serde_json::json!({"reason": {"rule": rule, "text": ""}, "remedy": {"kind": "none"}, "hint": null});
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            record[name] = value.clone();
        }
        writeln!(self.lines, "{record}").unwrap();
    }

    /// Tells whose `run-1` is.
    pub(crate) fn session(&mut self, who: &Who) {
        let who = serde_json::to_value(who).unwrap();
        self.add(
            "GET ",
            "allowed",
            "",
            serde_json::json!({"kind": "session", "who": who, "host": ""}),
        );
    }
}

/// No other fields.
pub(crate) fn none() -> serde_json::Value {
    serde_json::Value::Null
}

/// Compares with a file; `UPDATE_GOLDEN=1` writes it anew.
pub(crate) fn golden(name: &str, text: &str) {
    let hash = without_hash(text);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/reports")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &hash).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        hash,
        "{}",
        path.display()
    );
}

/// The policy's hash is not what these files are about.
fn without_hash(text: &str) -> String {
    let lines = text.lines().map(|line| match line.contains("\"policy_hash\"") {
        true => "  \"policy_hash\": \"...\",",
        false => line,
    });
    lines.fold(String::new(), |all, line| all + line + "\n")
}
