//! The presets that are shipped: each is a good policy, and says in tests what it does.
#![expect(clippy::panic, reason = "helpers of tests may fail the test")]

use sallyport_policy::{Decision, Policy, PolicyText, Preset, Problem, Request, presets};

fn text(name: &str, text: &str) -> PolicyText {
    PolicyText {
        name: name.into(),
        text: text.into(),
    }
}

fn compile(texts: &[PolicyText]) -> Policy {
    match Policy::compile(texts) {
        Ok(policy) => policy,
        Err(problems) => panic!("{}", listed(&problems)),
    }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn allows(policy: &Policy, request: &str) -> bool {
    let request = Request::parse(request).expect("a request");
    let decision = policy.decide(
        &request,
        &Default::default(),
        &Default::default(),
        jiff::Timestamp::UNIX_EPOCH,
    );
    matches!(decision, Decision::Allow(_))
}

#[test]
fn every_file_of_the_folder_is_shipped_and_says_what_it_is_for() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut shipped: Vec<String> = presets().map(|preset| format!("{}.yaml", preset.name)).collect();
    files.sort();
    shipped.sort();
    assert_eq!(files, shipped);
    for preset in presets() {
        let head = preset.text.lines().next().unwrap_or_default();
        assert!(
            head.starts_with("# ") && head.ends_with('.'),
            "{}: {head}",
            preset.name
        );
        assert!(preset.purpose().len() > 20, "{}", preset.name);
        assert!(
            preset.text.contains(&format!("name: preset/{}\n", preset.name)),
            "{} has another name inside",
            preset.name
        );
        let rules: Vec<&str> = preset
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("  - id: "))
            .collect();
        assert!(!rules.is_empty(), "{} has no rules", preset.name);
        for rule in rules {
            assert!(
                rule.starts_with(&format!("{}-", preset.name)),
                "{rule} of {}",
                preset.name
            );
        }
    }
}

#[test]
fn each_preset_is_good_alone_and_passes_its_tests() {
    for Preset { name, text: yaml } in presets() {
        let policy = compile(&[text(&format!("preset:{name}"), yaml)]);
        assert!(policy.warnings().is_empty(), "{}", listed(policy.warnings()));
        let report = policy.run_tests();
        assert!(report.failures.is_empty(), "{}", listed(&report.failures));
        let expects = |what: &str| yaml.matches(&format!("expect: {what}")).count();
        assert!(expects("deny") > 0, "{name} tests no refusal");
        assert!(
            expects("allow") > 0 || !yaml.contains("effect: allow"),
            "{name} tests no permission"
        );
    }
}

#[test]
fn all_presets_go_together() {
    let names: Vec<String> = presets()
        .map(|preset| format!("\"preset:{}\"", preset.name))
        .collect();
    let policy = compile(&[text(
        "p.yaml",
        &format!("version: 1\ninclude: [{}]\n", names.join(", ")),
    )]);
    assert!(policy.warnings().is_empty(), "{}", listed(policy.warnings()));
}

#[test]
fn a_preset_need_not_be_given_and_gives_its_set() {
    let policy = compile(&[text(
        "p.yaml",
        "version: 1\ninclude: [preset:python]\nrules: [{id: write, to: {host: 'preset:python', methods: [PUT]}, effect: allow}]\n",
    )]);
    for preset in presets().filter(|preset| preset.name == "python") {
        let (_, hosts) = preset.text.split_once("  python: [").expect("a set");
        let (host, _) = hosts.split_once(',').expect("a host");
        assert!(allows(&policy, &format!("GET https://{host}/simple/")));
        assert!(allows(&policy, &format!("PUT https://{host}/simple/")));
    }
}

#[test]
fn a_text_that_is_given_stands_for_the_preset_of_its_name() {
    let own = "version: 1\nrules: [{id: own, to: {host: mirror.test}, effect: allow}]\n";
    let including = text("p.yaml", "version: 1\ninclude: [preset:python]\n");
    let shipped = compile(std::slice::from_ref(&including));
    let given = compile(&[including, text("preset:python", own)]);
    assert!(allows(&given, "GET https://mirror.test/"));
    assert!(!allows(&shipped, "GET https://mirror.test/"));
    assert_ne!(shipped.hash(), given.hash());
}

#[test]
fn what_a_shipped_preset_says_counts_in_the_hash() {
    let preset = presets().next().expect("a preset");
    let name = format!("preset:{}", preset.name);
    let including = text("p.yaml", &format!("version: 1\ninclude: ['{name}']\n"));
    let given = compile(&[including.clone(), text(&name, preset.text)]);
    assert_eq!(compile(std::slice::from_ref(&including)).hash(), given.hash());
    let other = format!("{}# changed\n", preset.text);
    assert_ne!(
        compile(&[including.clone(), text(&name, &other)]).hash(),
        given.hash()
    );
}

#[test]
fn a_misspelt_preset_is_told_with_its_likely_name() {
    let problems = Policy::compile(&[text("p.yaml", "version: 1\ninclude: [preset:pyton]\n")])
        .expect_err("there is none of that name");
    assert_eq!(
        listed(&problems),
        "p.yaml:2:11: error: `preset:pyton` is not among the files of this policy\n  hint: did you mean `preset:python`?\n"
    );
}
