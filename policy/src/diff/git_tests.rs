//! Differences in what rules say of git, and that none is missed or invented over http and ssh.
use super::*;
use crate::path_pattern::{PathPattern, Slashes};
use crate::{CanonicalPath, Decision, GitAccess, GitRequest, Host, Overlay, RefUpdate};
use crate::{Destination, HttpRequest, Moment, PolicyText, SshRequest};
use proptest::prelude::*;

fn policy(rules: &[String]) -> Policy {
    let rules: Vec<String> = rules
        .iter()
        .enumerate()
        .map(|(number, rule)| format!("  - {{id: r{number}, {rule}}}\n"))
        .collect();
    let rules = if rules.is_empty() {
        "  []\n".to_owned()
    } else {
        rules.concat()
    };
    let text = PolicyText {
        name: "p.yaml".into(),
        text: format!("version: 1\nrules:\n{rules}"),
    };
    Policy::compile(&[text]).unwrap_or_else(|problems| panic!("{}{rules}", problems[0]))
}

fn now() -> jiff::Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn git(of: &str) -> String {
    format!("to: {{host: a.test, protocol: git, {of}}}, effect: allow")
}

fn told(before: &str, after: &str) -> String {
    let (before, after) = (policy(&[git(before)]), policy(&[git(after)]));
    assert!(before.diff(&before, now()).is_empty());
    let diff = before.diff(&after, now());
    assert!(diff.unknown.is_empty());
    diff.to_string()
}

#[test]
fn a_narrowed_repository_is_told_with_what_is_lost() {
    let text = told(
        "repository: 'acme/*', access: read",
        "repository: acme/web, access: read",
    );
    assert!(
        text.contains(
            "newly denied:\n  a.test\n    port 443; http, ssh; git read; repository acme/* except acme/web\n"
        ),
        "{text}"
    );
    assert!(text.ends_with("1 difference"), "{text}");
}

#[test]
fn another_access_is_told_as_both_kinds_of_traffic() {
    let text = told(
        "repository: acme/web, access: read",
        "repository: acme/web, access: write",
    );
    assert!(
        text.contains("newly allowed:\n  a.test\n    port 443; http, ssh; git write; repository acme/web\n"),
        "{text}"
    );
    assert!(
        text.contains("newly denied:\n  a.test\n    port 443; http, ssh; git read; repository acme/web\n"),
        "{text}"
    );
    assert!(text.ends_with("2 differences"), "{text}");
}

#[test]
fn added_refs_and_force_are_told_as_pushes() {
    let plain = "repository: acme/web, access: write, refs: ['agent/**'], force: false";
    let text = told(plain, &plain.replace("['agent/**']", "['agent/**', 'docs/*']"));
    let docs = "repository acme/web; refs only refs/heads/agent/** or refs/heads/docs/* not forced \
        except only refs/heads/agent/** not forced\n";
    assert!(
        text.contains(&format!("port 443; http; the git write itself; {docs}")),
        "{text}"
    );
    assert!(
        text.contains(&format!("port 443; ssh; git write; {docs}")),
        "{text}"
    );
    assert!(text.ends_with("2 differences"), "{text}");
    let text = told(plain, &plain.replace(", force: false", ""));
    assert!(
        text.contains("refs only refs/heads/agent/** except only refs/heads/agent/** not forced\n"),
        "{text}"
    );
    assert!(
        text.contains("refs/heads/agent/") && text.contains(" by force"),
        "{text}"
    );
    assert!(text.ends_with("2 differences"), "{text}");
}

#[test]
fn refs_that_only_together_make_a_difference_are_found() {
    let push = |refs: &str| git(&format!("access: write, refs: [{refs}]"));
    let pairs = ["a, b", "b, c", "a, c"].map(push).to_vec();
    let with = [pairs.clone(), vec![push("a, b, c")]].concat();
    let diff = policy(&pairs).diff(&policy(&with), now());
    // Over http and over ssh.
    assert_eq!(diff.changes.len(), 2, "{diff}");
    let text = diff.to_string();
    assert_eq!(
        text.matches("refs/heads/a and refs/heads/b and refs/heads/c")
            .count(),
        2,
        "{text}"
    );
}

#[test]
fn lints_look_at_git() {
    let lints = |rules: &[String]| -> Vec<String> {
        policy(rules)
            .lints(now())
            .into_iter()
            .map(|problem| problem.message)
            .collect()
    };
    let narrow = git("repository: acme/web, access: write, refs: [main]");
    let found = lints(&[
        git("repository: 'acme/*'"),
        git("repository: acme/web, access: read"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("rule `r1` changes nothing: rule `r0`"),
        "{found:?}"
    );
    let refuse = git("access: write").replace("effect: allow", "effect: deny");
    let found = lints(&[narrow.clone(), refuse]);
    assert!(
        found.contains(&"rule `r0` never decides: rule `r1` refuses all that it names".to_owned()),
        "{found:?}"
    );
    assert!(lints(&[narrow]).is_empty());
}

fn rule() -> impl Strategy<Value = String> {
    let of_git = (
        prop::sample::select(
            &[
                "",
                ", repository: 'acme/*'",
                ", repository: acme/web",
                ", repository: '**/web'",
                ", repository: ['acme/**', b]",
                ", repository: 'w*'",
            ][..],
        ),
        prop::sample::select(
            &[
                "",
                ", access: read",
                ", access: write",
                ", refs: [main]",
                ", refs: ['agent/**', main]",
                ", refs: ['**']",
                ", access: write, force: F",
            ][..],
        ),
        prop::sample::select(&["allow", "allow", "deny", "ask"][..]),
    )
        .prop_map(|(repository, fine, effect)| {
            let force = if effect == "allow" { "false" } else { "true" };
            format!(
                "to: {{host: a.test, protocol: git{repository}{}}}, effect: {effect}",
                fine.replace('F', force)
            )
        });
    let of_http = (
        prop::sample::select(
            &[
                "",
                ", path: /acme/**",
                ", methods: [POST]",
                ", path: '/*/web.git/**'",
                ", query: {service: [git-upload-pack]}",
                ", path: '/{x}', encoded-slash: true",
            ][..],
        ),
        prop::sample::select(&["allow", "deny", "ask"][..]),
    )
        .prop_map(|(fine, effect)| format!("to: {{host: a.test{fine}}}, effect: {effect}"));
    prop_oneof![3 => of_git, 1 => of_http]
}

fn moments() -> Vec<Moment> {
    let refs = |names: &[(&str, bool)]| -> Vec<RefUpdate> {
        let update = |(name, forced): &(&str, bool)| RefUpdate {
            name: (*name).into(),
            forced: *forced,
        };
        names.iter().map(update).collect()
    };
    let (main, agent, tag) = ("refs/heads/main", "refs/heads/agent/x", "refs/tags/v1");
    let pushes = [
        None,
        Some(refs(&[])),
        Some(refs(&[(main, false)])),
        Some(refs(&[(main, true)])),
        Some(refs(&[(agent, false), (main, false)])),
        Some(refs(&[(tag, false), (agent, true)])),
    ];
    let mut moments = Vec::new();
    for name in [
        "acme/web",
        "acme/other",
        "b",
        "x/y/web",
        "acme/web.git",
        "w",
        "acme//x",
        ".git",
    ] {
        for service in [
            "info/refs",
            "git-upload-pack",
            "git-receive-pack",
            "HEAD",
            "info%2Frefs",
        ] {
            for (method, query) in [
                ("GET", None),
                ("POST", None),
                ("GET", Some("service=git-upload-pack")),
                ("HEAD", Some("service=git-receive-pack")),
                ("GET", Some("service=git-receive-pack")),
                ("POST", Some("a=b")),
            ] {
                for pushed in &pushes {
                    let path = CanonicalPath::parse(&format!("/{name}/{service}")).unwrap();
                    let mut http = HttpRequest::new(method, path, query.map(str::to_owned), true);
                    http.pushed.clone_from(pushed);
                    moments.push(Moment::Http(http));
                }
            }
        }
        for access in [GitAccess::Read, GitAccess::Write] {
            for pushed in &pushes {
                let git = GitRequest {
                    repository: name.into(),
                    access,
                    pushed: pushed.clone(),
                };
                moments.push(Moment::Ssh(SshRequest {
                    user: "git".into(),
                    git: Some(git),
                }));
            }
        }
    }
    moments
}

/// What becomes of it, without words.
fn answer(policy: &Policy, request: &Request) -> u8 {
    match policy.decide(request, &Who::default(), &Overlay::default(), now()) {
        Decision::Allow(_) => 0,
        Decision::Ask(_) => 1,
        Decision::Deny(_) => 2,
        Decision::Inspect => 3,
    }
}

/// Whether a request lies in what an entry says of git; none where the words leave it open.
fn is_in(change: &Change, moment: &Moment) -> Option<bool> {
    let mut open = false;
    for (axis, extent) in &change.requests {
        let mut inside = Some(false);
        for part in &extent.0 {
            let within = all(part.of.iter().map(|of| axis_is_in(axis, of, moment)));
            let outside = any(part.except.iter().map(|of| axis_is_in(axis, of, moment)));
            inside = any([inside, all([within, outside.map(|outside| !outside)].into_iter())].into_iter());
        }
        match inside {
            Some(true) => {}
            Some(false) => return Some(false),
            None => open = true,
        }
    }
    (!open).then_some(true)
}

fn all(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let answers: Vec<Option<bool>> = answers.collect();
    match answers.contains(&Some(false)) {
        true => Some(false),
        false => (!answers.contains(&None)).then_some(true),
    }
}

fn any(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    all(answers.map(|answer| answer.map(|answer| !answer))).map(|none| !none)
}

fn axis_is_in(axis: &Axis, part: &str, moment: &Moment) -> Option<bool> {
    let view = crate::space::git_view(moment);
    let clear = view.as_ref().filter(|view| view.doubt.is_none());
    match (axis, part) {
        (_, "*") => Some(true),
        (Axis::Port, _) => Some(part == "443"),
        (Axis::Protocol, "ssh") => Some(matches!(moment, Moment::Ssh(_))),
        (Axis::Protocol, "http" | "https") => Some(matches!(moment, Moment::Http(_))),
        (Axis::Protocol, _) => Some(false),
        (Axis::Git, "requests that are not git's") => Some(view.is_none()),
        (Axis::Git, "git read or write") => clear.map(|_| true),
        (Axis::Git, "git read") => clear.map(|view| view.access == Some(GitAccess::Read)),
        (Axis::Git, "git write") => clear.map(|view| view.access == Some(GitAccess::Write)),
        (Axis::Repository, pattern) if !pattern.starts_with("path ") => {
            let repository = clear?.repository.as_ref()?;
            let pattern = PathPattern::parse(&format!("/{pattern}"), Slashes::Plain).unwrap();
            Some(pattern.matches_relative(repository))
        }
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_git_request_that_differs_is_told_and_no_other(
        shared in prop::collection::vec(rule(), 0..3),
        a in prop::collection::vec(rule(), 0..2),
        b in prop::collection::vec(rule(), 0..2),
    ) {
        let (one, two) = (policy(&[shared.clone(), a.clone()].concat()), policy(&[shared.clone(), b.clone()].concat()));
        let diff = one.diff(&two, now());
        prop_assert!(diff.unknown.is_empty());
        prop_assert!(one.diff(&one, now()).is_empty());
        let known: Vec<(&Change, (u8, u8))> = diff.changes.iter().map(|change| {
            let request = &change.witness.0;
            (change, (answer(&one, request), answer(&two, request)))
        }).collect();
        for moment in moments() {
            let destination = Destination { host: Host::parse("a.test").unwrap(), port: 443 };
            let request = Request { destination, moment };
            let answers = (answer(&one, &request), answer(&two, &request));
            let told = known.iter().any(|(change, of)| *of == answers && is_in(change, &request.moment) != Some(false));
            prop_assert!(
                answers.0 == answers.1 || told,
                "{request:?} {answers:?} is missing in {diff}\n{shared:?}\n{a:?}\n{b:?}"
            );
            let wrong = known.iter().find(|(change, of)| *of != answers && is_in(change, &request.moment) == Some(true));
            prop_assert!(
                wrong.is_none(),
                "{request:?} {answers:?} is told wrongly in {diff}\n{shared:?}\n{a:?}\n{b:?}"
            );
        }
    }
}
