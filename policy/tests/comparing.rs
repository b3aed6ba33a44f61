//! Comparing policies of the largest size takes seconds.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use sallyport_policy::{Policy, PolicyText};
use std::fmt::Write as _;

const FILES: usize = 10;

/// 10,000 rules that name 100,000 hosts in all; `path` is that of the last one.
fn large(path: &str) -> Policy {
    let names: Vec<String> = (0..FILES).map(|file| format!("./{file}.yaml")).collect();
    let mut texts = vec![PolicyText {
        name: "large.yaml".into(),
        text: format!("version: 1\ninclude: [{}]\nrules: []\n", names.join(", ")),
    }];
    for file in 0..FILES {
        let mut text = String::from("version: 1\nrules:\n");
        for rule in (file * 10_000 / FILES)..((file + 1) * 10_000 / FILES) {
            let hosts: Vec<String> = (0..10).map(|host| format!("h{host}.r{rule}.test")).collect();
            let path = if rule == 9_999 { path } else { "/a/**" };
            let effect = ["allow", "deny", "ask"][rule % 3];
            let to = format!(
                "{{host: [{}], methods: [GET, HEAD], path: {path}}}",
                hosts.join(", ")
            );
            writeln!(text, "  - {{id: r{rule}, to: {to}, effect: {effect}}}").unwrap();
        }
        texts.push(PolicyText {
            name: format!("{file}.yaml"),
            text,
        });
    }
    Policy::compile(&texts).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

/// `cargo test --release -p sallyport-policy --test comparing -- --nocapture` tells how long it takes.
#[test]
fn ten_thousand_rules_and_a_hundred_thousand_hosts_are_compared_in_seconds() {
    let (before, after) = (large("/a/**"), large("/b/**"));
    let begun = std::time::Instant::now();
    let diff = before.diff(&after, jiff::Timestamp::UNIX_EPOCH);
    let took = begun.elapsed();
    assert_eq!(diff.changes.len(), 2, "{diff}");
    assert!(took.as_secs() < 30, "{took:?}");
    let allowing = Policy::compile(&[PolicyText {
        name: "allow.yaml".into(),
        text: "version: 1\ndefault: allow\nrules: []\n".into(),
    }])
    .unwrap();
    let begun = std::time::Instant::now();
    let diff = before.diff(&allowing, jiff::Timestamp::UNIX_EPOCH);
    let whole = begun.elapsed();
    assert!(!diff.is_empty() && diff.unknown.is_empty());
    assert!(whole.as_secs() < 60, "{whole:?}");
    let told = format!(
        "one rule differs: {took:?}; all do: {whole:?}, {} changes",
        diff.changes.len()
    );
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{told}\n").as_bytes());
}
