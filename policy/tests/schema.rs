//! The published schema takes every policy that is good, and refuses those whose form is wrong.
#![cfg(feature = "schema")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use jsonschema::Validator;
use sallyport_policy::json_schema;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn schema() -> Validator {
    let schema: Value = serde_json::from_str(&json_schema().unwrap()).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// What is wrong with the form of a document, one line each.
fn faults(schema: &Validator, document: &str) -> String {
    // As policies are read: `no` is a text.
    let options = serde_saphyr::options! { strict_booleans: true };
    let document: Value = serde_saphyr::from_str_with_options(document, options).unwrap();
    let fault = |fault: jsonschema::ValidationError<'_>| format!("  {}: {fault}\n", fault.instance_path());
    schema.iter_errors(&document).map(fault).collect()
}

/// The policies of a folder of this repository.
fn policies(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let found: Vec<(PathBuf, String)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .filter(|(_, text)| text.lines().any(|line| line == "version: 1"))
        .collect();
    assert!(!found.is_empty(), "{} has no policies", folder.display());
    found
}

#[test]
fn every_good_policy_has_the_form_of_the_schema() {
    let schema = schema();
    let mut wrong = String::new();
    for folder in [
        "policy/tests/golden",
        "policy/tests/golden/example",
        "policy/tests/golden/warnings",
        "policy/presets",
        "deploy/policies",
        "deploy/examples/first-run",
    ] {
        for (path, text) in policies(folder) {
            let faults = faults(&schema, &text);
            if !faults.is_empty() {
                wrong.push_str(&format!("{}\n{faults}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_examples_of_the_guide_have_the_form_of_the_schema() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policies/README.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let examples: Vec<&str> = guide
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("\n```")?.0))
        .collect();
    assert!(examples.len() > 3, "{} examples", examples.len());
    let schema = schema();
    for example in examples {
        assert_eq!(faults(&schema, example), "", "\n{example}");
    }
}

#[test]
fn golden_policies_of_a_bad_form_are_refused() {
    let schema = schema();
    for name in BAD_FORMS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/bad/{name}.yaml"));
        let text = std::fs::read_to_string(path).unwrap();
        assert_ne!(faults(&schema, &text), "", "{name}.yaml has a good form");
    }
}

/// Those of the bad golden policies in which more than names and values is wrong.
const BAD_FORMS: &[&str] = &[
    "during",
    "limits",
    "misspelt",
    "modes",
    "protocols",
    "sources",
    "terms",
    "types",
    "version",
];

#[test]
fn each_fault_of_the_form_is_seen_alone() {
    let schema = schema();
    let rule = |fields: &str| format!("version: 1\nrules: [{{id: a, to: {{host: a.test}}, {fields}}}]\n");
    let to = |fields: &str| format!("version: 1\nrules: [{{id: a, to: {{{fields}}}, effect: allow}}]\n");
    let test = |fields: &str| format!("version: 1\ntests: [{{{fields}}}]\n");
    assert_eq!(faults(&schema, &rule("effect: allow")), "");
    assert_eq!(
        faults(&schema, &to("host: a.test, port: [443, \"8000-8010\"]")),
        ""
    );
    assert_eq!(
        faults(
            &schema,
            &test("request: r, push: [\"+refs/heads/x\"], expect: ask")
        ),
        ""
    );
    for document in [
        "verson: 1\n".to_owned(),
        "rules: []\n".to_owned(),
        "version: \"1\"\n".to_owned(),
        "version: 2\n".to_owned(),
        "version: 1\ndefault: maybe\n".to_owned(),
        "version: 1\ninclude: 5\n".to_owned(),
        "version: 1\nsets: [a, b]\n".to_owned(),
        "version: 1\nsets: {a: []}\n".to_owned(),
        "version: 1\ncredentials: {a: b}\n".to_owned(),
        "version: 1\ncredentials: {a: {from: {store: x}, in: [bearer]}}\n".to_owned(),
        "version: 1\ntests: {}\n".to_owned(),
        "version: 1\nwiden: [team]\n".to_owned(),
        "version: 1\nrules: [just text]\n".to_owned(),
        "version: 1\nrules: [{id: 7, effect: deny}]\n".to_owned(),
        "version: 1\nrules: [{effect: deny}]\n".to_owned(),
        rule("effect: alow"),
        rule("effect: allow, uses: [x]"),
        rule("effect: allow, mode: observed"),
        rule("effect: allow, when: \"true\""),
        rule("effect: allow, who: {teem: web}"),
        rule("effect: deny, grantable: {uses: 1}"),
        rule("effect: deny, grantable: {by: rules}"),
        rule("effect: ask, grant: {uses: 0}"),
        rule("effect: ask, grant: {scope: path}"),
        rule("effect: allow, limit: {bytes: 1}"),
        rule("effect: allow, limit: {request_bytes: -1}"),
        rule("effect: allow, during: {days: mon-fri}"),
        to("hosts: a.test"),
        to("host: [1]"),
        to("host: a.test, port: 0"),
        to("host: a.test, protocol: ftp"),
        to("host: a.test, private: \"yes\""),
        to("host: a.test, protocol: git, access: push"),
        test("request: r"),
        test("request: r, expect: allowed"),
        test("request: r, expect: allow, push: 5"),
        test("request: r, expect: allow, push: [1]"),
        test("request: r, expect: allow, headers: [a]"),
    ] {
        assert_ne!(faults(&schema, &document), "", "it has a good form: {document}");
    }
}
