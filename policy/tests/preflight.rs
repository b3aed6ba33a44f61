//! What a repository needs, held against policies: met, refused, asked for, and what would close the gaps.
use proptest::prelude::*;
use sallyport_policy::preflight::{
    Against, Certainty, NeedKind, Outcome, Report, RepositoryFile, compare, is_interesting, needs,
};
use sallyport_policy::{Policy, PolicyText, Who};

const PYTHON: &str = "version: 1\nsets: {python: [py.test, files.py.test]}\nrules:\n  - {id: python-read, to: {host: python, methods: [GET, HEAD]}, effect: allow}\n";
const NPM: &str = "version: 1\nsets: {npm: [npm.test]}\nrules:\n  - {id: npm-read, to: {host: npm, methods: [GET, HEAD]}, effect: allow}\n";
const REGISTRIES: &str = "version: 1\nrules:\n  - {id: registry-1, to: {host: mirror.corp.test, port: 8443, methods: [GET, HEAD]}, effect: allow}\n";

fn text(name: &str, text: &str) -> PolicyText {
    PolicyText {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn texts(policy: &str) -> Vec<PolicyText> {
    vec![
        text("policy.yaml", policy),
        text("preset:python", PYTHON),
        text("preset:npm", NPM),
        text("preset:registries", REGISTRIES),
    ]
}

fn file(path: &str, text: &str) -> RepositoryFile {
    RepositoryFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// The report on some files under a policy, for a run of a team.
fn report_for(policy: &str, files: &[RepositoryFile], team: &str) -> Report {
    let mut texts = texts(policy);
    if !policy.contains("preset:registries") {
        texts.pop();
    }
    let compiled = Policy::compile(&texts).expect("a good policy");
    let who = Who {
        team: team.to_owned(),
        ..Who::default()
    };
    let against = Against {
        policy: &compiled,
        who: &who,
        now: jiff::Timestamp::UNIX_EPOCH,
        presets: &texts,
    };
    compare(&needs(files), against)
}

fn report(policy: &str, files: &[RepositoryFile]) -> Report {
    report_for(policy, files, "")
}

/// A line for each need: what it is and what becomes of it.
fn told(report: &Report) -> Vec<String> {
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Met { by } => format!("met by {by}"),
        Outcome::Ask { refusal, .. } => format!("ask {}", refusal.reason.rule),
        Outcome::Refused { refusal, .. } => format!("refused by {}", refusal.reason.rule),
        Outcome::NoCredential => "no credential".to_owned(),
        Outcome::Unused { credential } => format!("unused {credential}"),
        Outcome::Unknown => "unknown".to_owned(),
    };
    report
        .findings
        .iter()
        .map(|finding| format!("{}: {}", finding.need, outcome(&finding.outcome)))
        .collect()
}

/// Several ecosystems, a private registry with a token, a git dependency.
fn repository() -> Vec<RepositoryFile> {
    vec![
        file(
            "requirements.txt",
            "flask\nlib @ git+https://git.test/acme/lib.git\n",
        ),
        file(
            "web/package-lock.json",
            r#"{"packages": {"node_modules/a": {"resolved": "https://npm.test/a/-/a-1.0.0.tgz"},
                "node_modules/@acme/b": {"resolved": "https://npm.acme.test/@acme/b/-/b-1.0.0.tgz"}}}"#,
        ),
        file(
            "web/.npmrc",
            "@acme:registry=https://npm.acme.test/\n//npm.acme.test/:_authToken=${NPM_TOKEN}\n",
        ),
        file("setup.sh", "curl -fsSL https://tools.test/install.sh | sh\n"),
    ]
}

#[test]
fn an_empty_policy_has_a_gap_for_everything_the_sure_ones_first() {
    let report = report("version: 1\n", &repository());
    assert_eq!(
        told(&report),
        [
            "python packages: clone https://git.test/acme/lib.git: refused by default",
            "python packages from the registries of `python`: refused by default",
            "npm packages: GET https://npm.acme.test/ and 1 more path: refused by default",
            "npm packages: GET https://npm.test/a/-/a-1.0.0.tgz: refused by default",
            "a log-in in `NPM_TOKEN` for https://npm.acme.test: no credential",
            "a download of a script: GET https://tools.test/install.sh: refused by default",
        ]
    );
    assert_eq!(report.sure_gaps().count(), 5);
    assert_eq!(report.likely_gaps().count(), 1);
}

#[test]
fn what_is_suggested_closes_the_sure_gaps() {
    let first = report("version: 1\n", &repository());
    let suggestion = first.suggestion.to_string();
    assert!(
        suggestion.starts_with("include: [preset:npm, preset:python]    # closes 2 gaps\n"),
        "{suggestion}"
    );
    let second = report(&format!("version: 1\n{suggestion}\n"), &repository());
    assert_eq!(second.sure_gaps().count(), 0, "{suggestion}\n{second}");
    assert_eq!(second.likely_gaps().count(), 1);
}

#[test]
fn what_a_rule_refuses_is_told_with_the_rule_and_not_argued_with() {
    let policy = "version: 1\nrules:\n  - {id: no-git, to: {host: git.test}, effect: deny, grantable: {by: person}, hint: Vendor it.}\n";
    let files = [file(
        "requirements.txt",
        "lib @ git+https://git.test/acme/lib.git\n",
    )];
    let report = report(policy, &files);
    assert_eq!(
        told(&report),
        ["python packages: clone https://git.test/acme/lib.git: refused by no-git"]
    );
    assert!(report.suggestion.rules.is_empty());
    let text = report.to_string();
    for expected in [
        "gaps: 1\n",
        "from requirements.txt:1",
        "is refused by `no-git`",
        "the agent may ask, and a person decides",
        "hint: Vendor it.",
        "met: 0 of 1",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn an_ask_is_no_gap_but_told() {
    let policy = "version: 1\nrules:\n  - {id: maybe, to: {host: files.test}, effect: ask}\n";
    let report = report(policy, &[file("requirements.txt", "https://files.test/a.whl\n")]);
    assert_eq!(
        told(&report),
        ["python packages: GET https://files.test/a.whl: ask maybe"]
    );
    assert_eq!(report.sure_gaps().count(), 0);
    assert!(report.to_string().starts_with("a person must agree to: 1\n"));
}

#[test]
fn rules_for_others_are_gaps() {
    let policy =
        "version: 1\nrules:\n  - {id: web, to: {host: files.test}, who: {team: web}, effect: allow}\n";
    let files = [file("requirements.txt", "https://files.test/a.whl\n")];
    assert_eq!(report_for(policy, &files, "web").sure_gaps().count(), 0);
    assert_eq!(report_for(policy, &files, "data").sure_gaps().count(), 1);
}

#[test]
fn one_refused_path_of_a_host_is_a_gap() {
    let policy = "version: 1\nrules:\n  - {id: a, to: {host: files.test, path: \"/a/**\"}, effect: allow}\n";
    let both = "https://files.test/a/x.whl\nhttps://files.test/b/x.whl\n";
    let report = report(policy, &[file("requirements.txt", both)]);
    let refused = report.sure_gaps().next().expect("a gap");
    let Outcome::Refused { request, .. } = &refused.outcome else {
        panic!("{refused:?}")
    };
    assert_eq!(request, "GET https://files.test/b/x.whl");
}

#[test]
fn registries_of_the_machine_stand_for_the_default_ones() {
    let files = [
        file("requirements.txt", "flask\n"),
        file(
            "package-lock.json",
            r#"{"packages": {"node_modules/a": {"resolved": "https://npm.test/a/-/a-1.0.0.tgz"}}}"#,
        ),
    ];
    let report = report("version: 1\ninclude: [preset:registries]\n", &files);
    assert_eq!(
        told(&report),
        [
            "python packages from the registries of `python`: met by registry-1",
            "npm packages: GET https://npm.test/a/-/a-1.0.0.tgz: met by registry-1",
        ]
    );
}

#[test]
fn credentials_must_be_bound_and_used() {
    let files = [
        file(".npmrc", "//npm.acme.test/:_authToken=${NPM_TOKEN}\n"),
        file(".env.example", "API_TOKEN=\nOTHER_TOKEN=\n"),
    ];
    let policy = |uses: &str| {
        format!(
            "version: 1\ncredentials:\n  npm: {{from: {{store: npm}}, hosts: [npm.acme.test], in: [bearer], env: NPM_TOKEN}}\n  api: {{from: {{store: api}}, hosts: [api.test], in: [bearer], env: API_TOKEN}}\nrules:\n  - {{id: npm, to: {{host: npm.acme.test}}{uses}, effect: allow}}\n  - {{id: api, to: {{host: api.test}}, use: [api], effect: allow}}\n"
        )
    };
    assert_eq!(
        told(&report(&policy(", use: [npm]"), &files)),
        [
            "a secret in `OTHER_TOKEN`: no credential",
            "a log-in in `NPM_TOKEN` for https://npm.acme.test: met by npm",
            "a secret in `API_TOKEN`: met by api",
        ]
    );
    let unused = report(&policy(""), &files);
    assert_eq!(
        told(&unused)[0],
        "a log-in in `NPM_TOKEN` for https://npm.acme.test: unused npm"
    );
    assert!(
        unused.suggestion.to_string().contains("use: [npm]"),
        "{}",
        unused.suggestion
    );
}

#[test]
fn shipped_presets_say_where_ecosystems_are() {
    let policy = Policy::compile(&[text(
        "policy.yaml",
        "version: 1\ninclude: [preset:python, preset:cargo, preset:go, preset:containers, preset:debian, preset:github]\n",
    )])
    .expect("a good policy");
    let files = [
        file("requirements.txt", "flask\n"),
        file("Cargo.toml", "[dependencies]\nserde = \"1\"\n"),
        file("go.mod", "module a.test/b\nrequire c.test/d v1.0.0\n"),
        file("Dockerfile", "FROM debian:13\nRUN apt-get update\n"),
        file("package.json", "{\"dependencies\": {\"a\": \"acme/a\"}}"),
        file("Gemfile", "gem 'rails'\n"),
    ];
    let against = Against {
        policy: &policy,
        who: &Who::default(),
        now: jiff::Timestamp::UNIX_EPOCH,
        presets: &[],
    };
    let report = compare(&needs(&files), against);
    let gaps: Vec<String> = report
        .sure_gaps()
        .map(|finding| finding.need.to_string())
        .collect();
    assert_eq!(gaps, ["ruby gems from the registries of `rubygems`"], "{report}");
    assert_eq!(
        report.suggestion.include.keys().collect::<Vec<_>>(),
        ["preset:rubygems"]
    );
}

#[test]
fn samples_are_only_likely_and_broken_files_are_noted() {
    let found = needs(&[
        file("tests/fixtures/requirements.txt", "https://files.test/a.whl\n"),
        file("package.json", "{"),
        file("pom.xml", "<project>"),
        file("Cargo.lock", "[[package"),
        file("compose.yaml", "services: ["),
        file("requirements.txt", "https://${HOST}/a.whl\n"),
    ]);
    assert_eq!(found.needs[0].certainty, Certainty::Likely);
    let begins = [
        "package.json could not be read: ",
        "pom.xml could not be read: ",
        "Cargo.lock could not be read: ",
        "compose.yaml could not be read: ",
        "requirements.txt:1: `https://${HOST}/a.whl` has its host from a variable",
    ];
    assert_eq!(found.notes.len(), begins.len(), "{:#?}", found.notes);
    for (note, begin) in found.notes.iter().zip(begins) {
        assert!(note.starts_with(begin), "{note}");
    }
}

#[test]
fn many_places_of_one_host_are_one_need() {
    let lines: String = (0..1000)
        .map(|n| format!("https://files.test/{n}.whl\n"))
        .collect();
    let found = needs(&[file("requirements.txt", &lines)]);
    assert_eq!(found.needs.len(), 1);
    let NeedKind::Host { paths, .. } = &found.needs[0].kind else {
        panic!("{found:?}")
    };
    assert_eq!(
        (paths.len(), found.needs[0].from.len(), found.needs[0].more),
        (256, 5, 995)
    );
}

#[test]
fn a_report_is_json_too() {
    let json = serde_json::to_value(report("version: 1\n", &repository())).expect("JSON");
    let first = &json["findings"][0];
    assert_eq!(first["kind"], "git");
    assert_eq!(first["outcome"]["result"], "refused");
    assert_eq!(first["from"][0]["line"], 2);
}

const NAMES: &[&str] = &[
    "requirements.txt",
    "pyproject.toml",
    "Pipfile",
    "Pipfile.lock",
    "poetry.lock",
    "uv.lock",
    "setup.cfg",
    "pip.conf",
    "package.json",
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    ".npmrc",
    ".yarnrc.yml",
    "Cargo.toml",
    "Cargo.lock",
    ".cargo/config.toml",
    "go.mod",
    "go.env",
    "go.sum",
    "pom.xml",
    "settings.xml",
    "build.gradle",
    "gradle/wrapper/gradle-wrapper.properties",
    "Dockerfile",
    "compose.yaml",
    ".devcontainer/devcontainer.json",
    ".gitmodules",
    ".lfsconfig",
    ".gitattributes",
    ".pre-commit-config.yaml",
    ".github/workflows/ci.yml",
    "Makefile",
    "setup.sh",
    "Gemfile",
    "Gemfile.lock",
    "composer.json",
    ".tool-versions",
    "mise.toml",
    "main.tf",
    ".env.example",
];

/// Pieces of which files of many kinds are made.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\n\u{e9}]{0,12}",
        prop::sample::select(vec![
            "https://",
            "git+",
            "${A}",
            "@",
            "[package]\n",
            "url = \"",
            "\"",
            "{",
            "}",
            "[",
            "]",
            ":",
            "FROM ",
            "RUN ",
            "<a>",
            "</a>",
            "- ",
            "\\\n",
            "\n",
            "\n  ",
            "resolved ",
            "replace ",
            "=> ",
            "secrets.",
            "$",
            "/*",
            "//",
            "a.test",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn any_text_in_any_file_has_an_answer(pieces in prop::collection::vec(piece(), 0..20)) {
        let text = pieces.concat();
        let files: Vec<RepositoryFile> = NAMES.iter().map(|name| file(name, &text)).collect();
        for name in NAMES {
            prop_assert!(is_interesting(name), "{}", name);
        }
        let found = needs(&files);
        for need in &found.needs {
            prop_assert!(!need.from.is_empty());
            prop_assert!(need.from.iter().all(|place| place.line >= 1));
            prop_assert!(!need.to_string().is_empty());
        }
    }
}
