//! Policies of several files, and files that are too much.
use sallyport_policy::{Policy, PolicyText, Problem, included_names};

fn text(name: &str, text: &str) -> PolicyText {
    PolicyText {
        name: name.into(),
        text: text.into(),
    }
}

fn problems(texts: &[PolicyText]) -> Vec<String> {
    match Policy::compile(texts) {
        Ok(policy) => policy.warnings().iter().map(Problem::to_string).collect(),
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    }
}

const PASTE: &str = "version: 1\nsets: {paste-sites: [paste.test, '*.bin.test']}\n";

#[test]
fn an_included_file_brings_its_rules_and_sets() {
    let base = text(
        "policies/base.yaml",
        "version: 1\ninclude: [./parts/more.yaml, 'preset:paste-sites']\nrules: [{id: no-paste, to: {host: 'preset:paste-sites'}, effect: deny}, {id: p, to: {host: partners}, effect: allow}]\ntests: [{request: 'GET https://x.bin.test/', expect: deny, rule: no-paste}, {request: 'GET https://more.test/', expect: allow, rule: more}, {request: 'GET https://p.test/', expect: allow, rule: p}]\n",
    );
    assert_eq!(
        included_names(&base),
        ["policies/parts/more.yaml", "preset:paste-sites"]
    );
    let more = text(
        "policies/parts/more.yaml",
        "version: 1\ninclude: ../deep.yaml\nrules: [{id: more, to: {host: more.test}, effect: allow}]\n",
    );
    let deep = text("policies/deep.yaml", "version: 1\nsets: {partners: [p.test]}\n");
    let policy = Policy::compile(&[base, text("preset:paste-sites", PASTE), deep, more]).unwrap();
    let report = policy.run_tests();
    assert_eq!((report.total, report.failures), (3, Vec::new()));
    assert_eq!(policy.hash().len(), 64);
}

#[test]
fn a_circle_of_files_is_an_error() {
    let a = text("a.yaml", "version: 1\ninclude: [./b.yaml]\n");
    let b = text("b.yaml", "version: 1\ninclude: [./c.yaml]\n");
    let c = text("c.yaml", "version: 1\ninclude: [./a.yaml]\n");
    assert_eq!(
        problems(&[a, b, c]),
        ["c.yaml:2:11: error: `./a.yaml` includes itself: `a.yaml` -> `b.yaml` -> `c.yaml` -> `a.yaml`"]
    );
    let itself = text("a.yaml", "version: 1\ninclude: a.yaml\n");
    assert!(problems(&[itself])[0].contains("includes itself"));
}

#[test]
fn a_file_that_two_others_include_counts_once() {
    let a = text("a.yaml", "version: 1\ninclude: [b.yaml, c.yaml]\n");
    let b = text("b.yaml", "version: 1\ninclude: [d.yaml]\n");
    let c = text("c.yaml", "version: 1\ninclude: [d.yaml]\n");
    let d = text(
        "d.yaml",
        "version: 1\nrules: [{id: d, to: {host: d.test}, effect: allow}]\n",
    );
    assert_eq!(problems(&[a, b, c, d]), Vec::<String>::new());
}

#[test]
fn what_two_files_define_is_told_with_both_places() {
    let a = text(
        "a.yaml",
        "version: 1\ninclude: [b.yaml]\nsets: {s: [a.test]}\ncredentials: {c: {from: {store: c}, hosts: [a.test], in: [bearer]}}\nrules: [{id: r, to: {host: a.test}, use: [c], effect: allow}]\n",
    );
    let b = text(
        "b.yaml",
        "version: 1\ndefault: allow\nsets: {s: [a.test]}\ncredentials: {c: {from: {store: c}, hosts: [a.test], in: [bearer]}}\nrules: [{id: r, to: {host: a.test}, effect: allow}]\n",
    );
    let told = problems(&[a, b]).join("\n");
    for expected in [
        "b.yaml:2:10: error: an included file cannot set `default: allow`",
        "b.yaml:3:8: error: set `s` is defined twice; first at a.yaml:3:8",
        "b.yaml:4:15: error: credential `c` is defined twice; first at a.yaml:4:15",
        "b.yaml:5:14: error: rule `r` is defined twice; first at a.yaml:5:14",
    ] {
        assert!(told.contains(expected), "{expected} is missing in\n{told}");
    }
}

#[test]
fn an_empty_document_denies_all() {
    for empty in ["", " \n", "# nothing\n", "---\n", "version: 1", "~"] {
        let policy = Policy::compile(&[text("p.yaml", empty)]).unwrap();
        let request = sallyport_policy::Request::parse("GET https://a.test/").unwrap();
        let decision = policy.decide(
            &request,
            &Default::default(),
            &Default::default(),
            jiff::Timestamp::UNIX_EPOCH,
        );
        assert!(
            matches!(decision, sallyport_policy::Decision::Deny(_)),
            "{empty:?}"
        );
    }
    assert!(Policy::compile(&[]).is_ok());
}

#[test]
fn files_that_are_too_much_are_refused() {
    let bomb = "version: 1\nsets:\n  a: &a [x.test,x.test,x.test,x.test,x.test,x.test,x.test,x.test,x.test]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
    let large = format!("version: 1\nname: {}\n", "x".repeat(9_000_000));
    let many = format!("version: 1\nrules:\n{}", "  - {}\n".repeat(700_000));
    let nested = format!(
        "version: 1\nrules: {}{}\n",
        "{a: ".repeat(5_000),
        "}".repeat(5_000)
    );
    let hosts = vec!["x.test"; 15_000].join(",");
    let rules: String = (0..20)
        .map(|n| format!("  - {{id: r{n}, to: {{host: s}}, effect: allow}}\n"))
        .collect();
    let wide = format!("version: 1\nsets: {{s: [{hosts}]}}\nrules:\n{rules}");
    for (what, bad) in [
        ("bomb", bomb),
        ("large", &large),
        ("many", &many),
        ("nested", &nested),
        ("wide", &wide),
    ] {
        assert!(
            Policy::compile(&[text("p.yaml", bad)]).is_err(),
            "{what} compiles"
        );
    }
}

#[test]
fn a_policy_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Policy>();
    shared::<sallyport_policy::Permit>();
}
