//! The commands on real files.
use super::{Args, Failure, execute};
use clap::Parser as _;
use std::path::Path;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

const GOOD: &str = r#"
version: 1
include: [./parts/more.yaml]
rules:
  - {id: docs, to: {host: docs.test, methods: [GET]}, effect: allow}
  - {id: staging, to: {host: staging.test}, who: {team: web}, effect: allow}
tests:
  - {request: "GET https://docs.test/a", expect: allow, rule: docs}
  - {connect: "more.test:443", expect: inspect}
"#;
const MORE: &str = "version: 1\nrules:\n  - {id: more, to: {host: more.test}, effect: allow}\n";

/// Runs `sallyport policy ...` with `DIR` standing for the folder; the code and what was printed.
fn sallyport(folder: &Path, words: &[&str]) -> (u8, String) {
    let folder = folder.to_str().unwrap();
    let words = words.iter().map(|word| word.replace("DIR", folder));
    let cli = Cli::try_parse_from(std::iter::once("policy".to_owned()).chain(words)).unwrap();
    let mut out = Vec::new();
    match execute(cli.args, &|| Err(Failure::new("no state here")), &mut out) {
        Ok(code) => (code, String::from_utf8(out).unwrap()),
        Err(failure) => (failure.code(), failure.to_string()),
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    std::fs::write(folder.path().join("good.yaml"), GOOD).unwrap();
    std::fs::write(folder.path().join("parts/more.yaml"), MORE).unwrap();
    folder
}

#[test]
fn a_good_policy_is_good_with_all_that_it_includes() {
    let folder = folder();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/good.yaml"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("good.yaml: good, no warnings\n"), "{text}");
}

#[test]
fn every_error_is_told_with_its_place_and_a_hint() {
    let folder = folder();
    std::fs::write(
        folder.path().join("bad.yaml"),
        "version: 1\nrules:\n  - {id: a, to: {hosts: a.test}, effect: alow}\n  - {id: b, to: {host: 10.0.0.1/8}, effect: allow}\n",
    )
    .unwrap();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/bad.yaml", "DIR/good.yaml"]);
    assert_eq!(code, 3, "{text}");
    for expected in [
        "bad.yaml:3:18: error[unknown-field]: `to` has no field `hosts`\n   |\n 3 |   - {id: a, to: {hosts: a.test}, effect: alow}\n   |                  ^^^^^\n  hint: did you mean `host`?",
        "bad.yaml:3:42: error[unknown-word]: `effect` cannot be `alow`",
        "  hint: did you mean `allow`?",
        "bad.yaml:4:24: error[invalid-value]: `10.0.0.1/8` has bits set after its prefix",
        "|                        ^^^^^^^^^^\n",
        "bad.yaml: 3 errors",
        "good.yaml: good",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let folder = folder();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/none.yaml"]);
    assert_eq!(code, 1);
    assert!(text.contains("none.yaml` cannot be read: No such file"), "{text}");
    std::fs::write(folder.path().join("binary.yaml"), [0xff, 0xfe, 0]).unwrap();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/binary.yaml"]);
    assert_eq!((code, text.contains("not UTF-8")), (1, true), "{text}");
    std::fs::remove_file(folder.path().join("parts/more.yaml")).unwrap();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/good.yaml"]);
    assert_eq!(
        (
            code,
            text.contains("good.yaml:3:11: error[bad-include]: `./parts/more.yaml` is not among")
        ),
        (3, true),
        "{text}"
    );
}

#[test]
fn explaining_tells_the_decision_and_each_rule() {
    let folder = folder();
    let (code, text) = sallyport(
        folder.path(),
        &["explain", "DIR/good.yaml", "POST", "https://docs.test/a/../b"],
    );
    assert_eq!(code, 0, "{text}");
    for expected in [
        "POST https://docs.test/b\n",
        "decision: deny\n",
        "docs (allow,",
        "the method is not GET",
        "2 more name other hosts",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    let ask = |who: &str| {
        sallyport(
            folder.path(),
            &[
                "explain",
                "DIR/good.yaml",
                "GET https://staging.test/",
                "--json",
                "--who",
                who,
            ],
        )
    };
    let (_, text) = ask("team=web");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["verdict"]["decision"], "allow");
    let (_, text) = ask("team=other");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["verdict"]["decision"], "deny");
    assert_eq!(ask("colour=red").0, 2);
    assert_eq!(
        sallyport(
            folder.path(),
            &["explain", "DIR/good.yaml", "GET https://u:p@a.test/"]
        )
        .0,
        2
    );
}

#[test]
fn the_tests_of_a_policy_are_run() {
    let folder = folder();
    let (code, text) = sallyport(folder.path(), &["test", "DIR/good.yaml"]);
    assert_eq!(
        (
            code,
            text.contains(
                "good.yaml: 2 of 2 tests passed\nrule coverage: 1 of 3; never exercised: staging ("
            )
        ),
        (0, true),
        "{text}"
    );
    assert!(text.contains("good.yaml:6:10), more ("), "{text}");
    let failing = GOOD.replace("expect: inspect", "expect: deny");
    std::fs::write(folder.path().join("good.yaml"), failing).unwrap();
    let (code, text) = sallyport(folder.path(), &["test", "DIR/good.yaml"]);
    assert_eq!(code, 1);
    assert!(
        text.contains(
            "good.yaml:9:15: error[failed-test]: `connect more.test:443` was expected to give `deny`, but gives `inspect`"
        ),
        "{text}"
    );
}

#[test]
fn the_presets_are_listed_printed_and_included() {
    let folder = folder();
    let (code, text) = sallyport(folder.path(), &["presets"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("python "), "{text}");
    let (code, text) = sallyport(folder.path(), &["presets", "preset:paste-sites"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\nname: preset/paste-sites\n"), "{text}");
    assert_eq!(sallyport(folder.path(), &["presets", "none"]).0, 2);
    let policy = "version: 1\ninclude: [preset:python, preset:debian]\n";
    std::fs::write(folder.path().join("p.yaml"), policy).unwrap();
    let (code, text) = sallyport(folder.path(), &["check", "DIR/p.yaml"]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn tests_beside_a_policy_are_run_and_rules_are_counted() {
    let folder = folder();
    let beside = "version: 1\ntests:\n  - {request: \"GET https://more.test/\", expect: allow, rule: more}\n  - {request: \"GET https://staging.test/\", expect: allow, who: {team: web}}\n";
    std::fs::write(folder.path().join("good.tests.yaml"), beside).unwrap();
    let test = |words: &[&str]| sallyport(folder.path(), &[&["test", "DIR/good.yaml"], words].concat());
    let (code, text) = test(&["--min-coverage", "100"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.ends_with("good.yaml: 4 of 4 tests passed\nrule coverage: 3 of 3\n"),
        "{text}"
    );
    let failing = beside.replace("team: web", "team: other");
    std::fs::write(folder.path().join("good.tests.yaml"), failing).unwrap();
    let (code, text) = test(&["--min-coverage", "90"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("good.tests.yaml:4:15: error[failed-test]"),
        "{text}"
    );
    assert!(
        text.contains("rule coverage is 66 %, and 90 % are asked for"),
        "{text}"
    );
    let (code, text) = test(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &json["covered"], &json["total"]),
        (1, &66.into(), &4.into())
    );
    let more = "version: 1\nrules: [{id: x, to: {host: x.test}, effect: allow}]\ntests: [{connect: \"a.test:1\", expect: deny, rule: nobody}]\n";
    std::fs::write(folder.path().join("more.yaml"), more).unwrap();
    let (code, text) = test(&["--tests", "DIR/more.yaml"]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("a file of tests holds") && text.contains("no rule is called `nobody`"),
        "{text}"
    );
}

#[test]
fn rules_of_presets_are_counted_apart() {
    let folder = folder();
    let policy = "version: 1\ninclude: [preset:debian]\nrules: [{id: a, to: {host: a.test}, effect: allow}]\ntests: [{request: \"GET https://a.test/\", expect: allow}]\n";
    std::fs::write(folder.path().join("p.yaml"), policy).unwrap();
    let (code, text) = sallyport(folder.path(), &["test", "DIR/p.yaml", "--min-coverage", "100"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("rule coverage: 1 of 1\ncoverage of included rules: 0 of 1; never exercised: debian-read (preset:debian:"),
        "{text}"
    );
}

const DOUBTFUL: &str = "version: 1\nrules:\n  - {id: a, to: {host: \"*\"}, effect: allow}\n  - {id: b, to: {host: b.test}, effect: ask, grant: {expires: 2d}}\n";

#[test]
fn warnings_fail_where_they_are_denied() {
    let folder = folder();
    std::fs::write(folder.path().join("p.yaml"), DOUBTFUL).unwrap();
    let check = |words: &[&str]| sallyport(folder.path(), &[&["check", "DIR/p.yaml"], words].concat());
    let (code, text) = check(&[]);
    assert_eq!((code, text.ends_with("good, 1 warning\n")), (0, true), "{text}");
    assert_eq!(check(&["--deny-warnings"]).0, 3);
    let (_, text) = check(&["--longest-run", "24h"]);
    assert!(
        text.contains("warning[long-grant]") && text.ends_with("good, 2 warnings\n"),
        "{text}"
    );
}

#[test]
fn problems_are_told_to_programs_and_nothing_else_is() {
    let folder = folder();
    std::fs::write(
        folder.path().join("p.yaml"),
        DOUBTFUL.replace("effect: ask", "effect: aks"),
    )
    .unwrap();
    let check = |format: &str| {
        let (code, text) = sallyport(
            folder.path(),
            &["check", "DIR/p.yaml", "DIR/good.yaml", "--format", format],
        );
        assert_eq!(code, 3, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let json = check("json");
    assert_eq!(json[0]["problems"][1]["code"], "unknown-word");
    assert_eq!((&json[0]["errors"], &json[1]["errors"]), (&1.into(), &0.into()));
    let sarif = check("sarif");
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    assert_eq!(run["results"].as_array().unwrap().len(), 2);
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
        assert!(result["message"]["text"].is_string());
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(uri.starts_with("file:///") && uri.ends_with("/p.yaml"), "{uri}");
        let region = &place["region"];
        assert!(
            region["startLine"].as_u64() >= Some(1)
                && region["endColumn"].as_u64() > region["startColumn"].as_u64()
        );
    }
}

#[test]
fn a_policy_is_read_below_those_that_bind_it() {
    let folder = folder();
    let ceiling = "version: 1\nrules:\n  - {id: ceiling, to: {host: [docs.test, more.test], methods: [GET]}, effect: allow}\n";
    std::fs::write(folder.path().join("ceiling.yaml"), ceiling).unwrap();
    let explain = |words: &[&str]| {
        let all = [
            "explain",
            "DIR/good.yaml",
            "GET https://staging.test/",
            "--who",
            "team=web",
            "--json",
        ];
        sallyport(folder.path(), &[&all, words].concat())
    };
    let decision =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["verdict"]["decision"].clone();
    assert_eq!(decision(&explain(&[]).1), "allow");
    assert_eq!(
        decision(&explain(&["--above", "organisation=DIR/ceiling.yaml"]).1),
        "deny"
    );
    let (code, text) = sallyport(
        folder.path(),
        &[
            "check",
            "DIR/good.yaml",
            "--layer",
            "team",
            "--above",
            "run=DIR/ceiling.yaml",
        ],
    );
    assert_eq!(
        (code, text.contains("is not above the layer `team`")),
        (2, true),
        "{text}"
    );
}

#[test]
fn two_policies_are_compared_as_traffic() {
    let folder = folder();
    let other = GOOD.replace("methods: [GET]", "methods: [GET, HEAD]");
    std::fs::write(folder.path().join("other.yaml"), other).unwrap();
    let (code, text) = sallyport(folder.path(), &["diff", "DIR/good.yaml", "DIR/other.yaml"]);
    assert_eq!(code, 4, "{text}");
    assert!(
        text.starts_with("newly allowed:\n  docs.test\n    port 443; http; methods HEAD\n"),
        "{text}"
    );
    assert!(text.ends_with("1 difference\n"), "{text}");
    let (code, text) = sallyport(folder.path(), &["diff", "DIR/good.yaml", "DIR/good.yaml"]);
    assert_eq!((code, text.as_str()), (0, "no request is treated differently\n"));
    let (code, text) = sallyport(
        folder.path(),
        &["diff", "DIR/good.yaml", "DIR/other.yaml", "--json"],
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["changes"][0]["kind"]), (4, &"newly-allowed".into()));
    assert_eq!(json["changes"][0]["requests"]["methods"][0]["of"][0], "HEAD");
}
