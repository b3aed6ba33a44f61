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
        "bad.yaml:3:18: error: `to` has no field `hosts`\n  hint: did you mean `host`?",
        "bad.yaml:3:42: error: `effect` cannot be `alow`\n  hint: did you mean `allow`?",
        "bad.yaml:4:24: error: `10.0.0.1/8` has bits set after its prefix",
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
            text.contains("good.yaml:3:11: error: `./parts/more.yaml` is not among")
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
        (code, text.ends_with("good.yaml: 2 of 2 tests passed\n")),
        (0, true),
        "{text}"
    );
    let failing = GOOD.replace("expect: inspect", "expect: deny");
    std::fs::write(folder.path().join("good.yaml"), failing).unwrap();
    let (code, text) = sallyport(folder.path(), &["test", "DIR/good.yaml"]);
    assert_eq!(code, 1);
    assert!(
        text.contains(
            "good.yaml:9:15: error: `connect more.test:443` was expected to give `deny`, but gives `inspect`"
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
