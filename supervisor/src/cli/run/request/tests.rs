//! Run files on disk, and the requests that come of them.
use super::*;
use crate::cli::run::file::Loaded;
use std::path::Path;

/// A folder with a policy, turns and a run file whose fields from the fourth line on are given.
fn folder(rest: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("policy.yaml", "version: 1\ninclude: [./more.yaml]\n");
    write("more.yaml", "version: 1\n");
    write("turns.yaml", "- say: hello\n");
    write("file.txt", "content");
    write(
        "run.yaml",
        &format!("title: t\ntask: x\npolicy: policy.yaml\n{rest}"),
    );
    folder
}

const SCRIPTED: &str = "model: {kind: scripted, turns: turns.yaml}\n";

fn resolve(folder: &Path) -> Result<RunRequest, Failure> {
    let loaded = Loaded::read(folder)?;
    let mut variables = Variables::default();
    variables
        .add_service("service", r#"{"address": "127.0.0.9", "ca": "file.txt"}"#)
        .unwrap();
    let registries = HostRegistries {
        policy: PolicyText {
            name: "preset:registries".to_owned(),
            text: "version: 1\n".to_owned(),
        },
        env: BTreeMap::from([
            ("A".to_owned(), "host".to_owned()),
            ("B".to_owned(), "host".to_owned()),
        ]),
    };
    let resolver = Resolver::new(&loaded, &variables);
    resolver.request(resolver.wants_registries().then_some(registries))
}

fn failure(rest: &str) -> String {
    resolve(folder(rest).path()).unwrap_err().to_string()
}

#[test]
fn everything_a_run_file_names_is_taken_along() {
    let folder = folder(&format!(
        "{SCRIPTED}environment:\n  name: first\n  registries: host\n  env: {{A: '${{service.address}}'}}\n  hosts: {{git.test: '${{service.address}}'}}\n  upstream_ca: '${{service.ca}}'\n  files: {{/home/x: file.txt}}\n  binds: {{/opt/x: .}}\nwho: {{team: web}}\nstep_limit: 9\n"
    ));
    let request = resolve(folder.path()).unwrap();
    let names: Vec<&str> = request
        .policies
        .iter()
        .map(|policy| policy.name.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(names, ["policy.yaml", "more.yaml", "preset:registries"]);
    assert_eq!(
        request.environment.env["A"], "127.0.0.9",
        "the file's own variable wins"
    );
    assert_eq!(request.environment.env["B"], "host");
    assert_eq!(request.environment.hosts["git.test"].to_string(), "127.0.0.9");
    assert_eq!(request.environment.upstream_roots_pem, "content");
    assert_eq!(request.environment.files["/home/x"], "content");
    assert_eq!(request.environment.binds[0].1, "/opt/x");
    assert_eq!(
        (request.who.team.as_str(), request.who.environment.as_str()),
        ("web", "first")
    );
    assert_eq!(
        request.model,
        ModelChoice::Scripted {
            turns: "- say: hello\n".to_owned()
        }
    );
    assert_eq!(request.step_limit, Some(9));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let missing = failure("model: {kind: scripted, turns: none.yaml}\n");
    assert!(
        missing.contains("run.yaml:4:32: ") && missing.contains("none.yaml"),
        "{missing}"
    );
    assert!(failure("model: {kind: scripted}\n").contains("needs `turns`"));
    assert!(failure("model: {kind: anthropic}\n").contains("needs `model`"));
    assert!(failure("model: {kind: openai, model: m, turns: turns.yaml}\n").contains("no such field"));
    let address = failure(&format!(
        "{SCRIPTED}environment: {{hosts: {{a.test: localhost}}}}\n"
    ));
    assert!(
        address.contains("run.yaml:5:") && address.contains("`a.test`"),
        "{address}"
    );
    let inside = failure(&format!(
        "{SCRIPTED}environment: {{files: {{home/x: file.txt}}}}\n"
    ));
    assert!(inside.contains("absolute path"), "{inside}");
    let bind = failure(&format!("{SCRIPTED}environment: {{binds: {{/x: nowhere}}}}\n"));
    assert!(bind.contains("does not exist"), "{bind}");
    let variable = failure(&format!(
        "{SCRIPTED}environment: {{env: {{A: '${{service.token}}'}}}}\n"
    ));
    assert!(
        variable.contains("run.yaml:5:") && variable.contains("service.token"),
        "{variable}"
    );
}

#[test]
fn a_missing_policy_is_told_with_its_place() {
    let folder = folder(SCRIPTED);
    std::fs::remove_file(folder.path().join("policy.yaml")).unwrap();
    let text = resolve(folder.path()).unwrap_err().to_string();
    assert!(
        text.contains("run.yaml:3:9: ") && text.contains("policy.yaml"),
        "{text}"
    );
}

#[test]
fn the_examples_of_the_repository_are_run_files() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
    let mut seen = 0;
    for example in std::fs::read_dir(examples).unwrap() {
        Loaded::read(&example.unwrap().path()).unwrap();
        seen += 1;
    }
    assert!(seen > 0);
}
