//! Golden policies: each file's own `tests` hold, and each bad one tells exactly what is wrong with it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use sallyport_policy::{Overlay, Policy, PolicyText, Problem, Request, Who};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The YAML files of a folder, by name.
fn files(folder: &Path) -> Vec<(PathBuf, PolicyText)> {
    let mut found: Vec<(PathBuf, PolicyText)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (path, PolicyText { name, text })
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(!found.is_empty(), "{} is empty", folder.display());
    found
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Compares with the `.expected` file beside; `UPDATE_GOLDEN=1` writes it anew.
fn compare(path: &Path, problems: &[Problem], wrong: &mut Vec<String>) {
    let expected = path.with_extension("expected");
    let text = listed(problems);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&expected, &text).unwrap();
    } else if std::fs::read_to_string(&expected).unwrap_or_default() != text {
        wrong.push(format!("{}: got\n{text}", expected.display()));
    }
}

#[test]
fn golden_policies_decide_as_they_say() {
    let mut wrong = String::new();
    for (path, text) in files(&folder("")) {
        match Policy::compile(&[text]) {
            Ok(policy) => {
                let report = policy.run_tests();
                assert!(report.total > 2, "{} has no tests", path.display());
                wrong.push_str(&listed(&report.failures));
            }
            Err(problems) => wrong.push_str(&listed(&problems)),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn bad_policies_are_refused_with_every_problem_at_its_place() {
    let mut wrong = Vec::new();
    for (path, text) in files(&folder("bad")) {
        match Policy::compile(&[text]) {
            Ok(_) => wrong.push(format!("{} compiles", path.display())),
            Err(problems) => compare(&path, &problems, &mut wrong),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn doubtful_policies_compile_with_warnings() {
    let mut wrong = Vec::new();
    for (path, text) in files(&folder("warnings")) {
        match Policy::compile(&[text]) {
            Ok(policy) => compare(&path, policy.warnings(), &mut wrong),
            Err(problems) => wrong.push(listed(&problems)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The example that shows the whole language, with the file that it includes beside it.
fn example() -> Policy {
    let texts: Vec<PolicyText> = files(&folder("example"))
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    Policy::compile(&texts)
        .map_err(|problems| listed(&problems))
        .unwrap()
}

#[test]
fn the_example_of_the_whole_language_compiles_and_passes_its_own_tests() {
    let policy = example();
    let report = policy.run_tests();
    assert_eq!((report.total, listed(&report.failures)), (3, String::new()));
    assert_eq!(policy.credentials().len(), 3);
}

#[test]
fn the_example_decides_by_every_kind_of_rule() {
    let policy = example();
    let who = Who {
        team: "web".into(),
        environment: "staging".into(),
        ..Who::default()
    };
    for (request, at, expected) in [
        (
            "GET https://github.com/acme/web.git/info/refs?service=git-receive-pack",
            NOON,
            "allow read-github",
        ),
        (
            "POST https://github.com/acme/web.git/git-receive-pack",
            NOON,
            "inspect",
        ),
        (
            "POST https://github.com/other/web.git/git-receive-pack",
            NOON,
            "deny default",
        ),
        (
            "PUT https://api.github.com/repos/acme/web/pulls/7/merge",
            NOON,
            "ask merge",
        ),
        ("GET https://docs.rs/", NOON, "deny docs"),
        ("GET https://x.partner.example/", NOON, "allow partners"),
        ("GET https://203.0.113.9/", NOON, "allow partners"),
        (
            "postgres agent@db.staging.acme.example:5432/shop",
            NOON,
            "allow staging-database",
        ),
        (
            "postgres agent@db.staging.acme.example:5432/shop",
            "2026-11-30T20:00:00Z",
            "deny default",
        ),
        (
            "connect db.staging.acme.example:5432",
            "2026-11-29T12:00:00Z",
            "deny default",
        ),
        ("connect db.staging.acme.example:5432", NOON, "inspect"),
    ] {
        let asked = Request::parse(request).unwrap();
        let verdict = policy
            .explain(&asked, &who, &Overlay::default(), at.parse().unwrap())
            .verdict;
        let rule = verdict.reason.map(|reason| format!(" {}", reason.rule));
        let answer = format!("{}{}", verdict.decision, rule.unwrap_or_default());
        assert_eq!(answer, expected, "{request} at {at}");
    }
}

/// A Monday.
const NOON: &str = "2026-11-30T11:00:00Z";
