//! The command on a real folder with several ecosystems.
use super::{Args, run};
use std::path::Path;

const POLICY: &str = r#"
version: 1
rules:
  - {id: files, to: {host: files.test, methods: [GET]}, effect: allow}
  - {id: tools, to: {host: tools.test, methods: [GET]}, who: {team: web}, effect: allow}
"#;

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("policy.yaml", POLICY),
        (
            "repo/api/requirements.txt",
            "https://files.test/a.whl\nhttps://tools.test/b.whl\n",
        ),
        (
            "repo/web/.npmrc",
            "@acme:registry=https://npm.test/\n//npm.test/:_authToken=${NPM_TOKEN}\n",
        ),
        (
            "repo/web/node_modules/a/package.json",
            "{\"dependencies\": {\"b\": \"https://inside.test/b.tgz\"}}",
        ),
        ("repo/go/go.mod", "module own.test/a\nrequire mod.test/b v1.0.0\n"),
        ("repo/go/vendor/modules.txt", "# mod.test/b v1.0.0\n"),
        (
            "repo/go/vendor/mod.test/b/setup.sh",
            "curl https://vendored.test/x\n",
        ),
        ("repo/.git/hooks/x.sh", "curl https://hook.test/x\n"),
        ("repo/broken/package.json", "{"),
        ("outside/setup.sh", "curl https://outside.test/x\n"),
    ] {
        write(folder.path(), name, text);
    }
    std::os::unix::fs::symlink(folder.path().join("outside"), folder.path().join("repo/link")).unwrap();
    std::fs::write(folder.path().join("repo/Makefile"), [0xff, 0xfe]).unwrap();
    folder
}

/// Runs the command; the code and what was printed, or what failed.
fn preflight(folder: &Path, who: &[&str], json: bool) -> (u8, String) {
    let args = Args {
        repository: folder.join("repo"),
        policy: folder.join("policy.yaml"),
        who: who.iter().map(|fact| (*fact).to_owned()).collect(),
        json,
    };
    let mut out = Vec::new();
    match run(&args, &mut out) {
        Ok(code) => (code, String::from_utf8(out).unwrap()),
        Err(failure) => (failure.code(), failure.to_string()),
    }
}

#[test]
fn gaps_of_several_ecosystems_are_named_with_their_places() {
    let folder = repository();
    let (code, text) = preflight(folder.path(), &["team=web"], false);
    assert_eq!(code, 4, "{text}");
    for expected in [
        "5 files, 4 needs, 2 sure gaps, no likely gaps\n",
        "npm packages: GET https://npm.test/\n    from web/.npmrc:1\n",
        "a log-in in `NPM_TOKEN` for https://npm.test\n    from web/.npmrc:2\n",
        "met: 2 of 4\n",
        "Makefile could not be read: it is not UTF-8 text\n",
        "broken/package.json could not be read: ",
        "left out: 1 `.git` folders\n",
        "left out: 1 `node_modules` folders\n",
        "left out: 1 `vendor` folders\n",
        "left out: 1 links\n",
        "hosts: [\"npm.test\"]",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    for absent in [
        "inside.test",
        "hook.test",
        "outside.test",
        "vendored.test",
        "go modules",
    ] {
        assert!(!text.contains(absent), "{absent} is in\n{text}");
    }
}

#[test]
fn facts_about_the_run_count_and_json_is_printed() {
    let folder = repository();
    let (code, text) = preflight(folder.path(), &[], true);
    assert_eq!(code, 4);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let refused = |json: &serde_json::Value| {
        let findings = json["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["outcome"]["result"] == "refused")
            .count()
    };
    assert_eq!(refused(&json), 2, "{text}");
    assert_eq!(preflight(folder.path(), &["colour=red"], false).0, 2);
}

#[test]
fn no_gap_is_success_and_a_missing_folder_is_named() {
    let folder = repository();
    std::fs::remove_dir_all(folder.path().join("repo/web")).unwrap();
    let (code, text) = preflight(folder.path(), &["team=web"], false);
    assert_eq!(code, 0, "{text}");
    std::fs::remove_dir_all(folder.path().join("repo")).unwrap();
    let (code, text) = preflight(folder.path(), &[], false);
    assert_eq!(code, 1);
    assert!(
        text.contains("repo` is no folder; name the folder of a local clone"),
        "{text}"
    );
    std::fs::write(folder.path().join("policy.yaml"), "version: 2\n").unwrap();
    assert_eq!(preflight(folder.path(), &[], false).0, 3);
}
