//! What holds for any input: nothing panics, and more refusing never allows more.

mod generators;

use generators::{any_rule, document, pushed, request, rule};
use proptest::prelude::*;
use sallyport_policy::{
    Decision, Host, Moment, Overlay, Policy, PolicyText, RefUpdate, Request, Severity, SshRequest, Who,
};

fn compile(text: &str) -> Result<Policy, Vec<sallyport_policy::Problem>> {
    Policy::compile(&[PolicyText {
        name: "p.yaml".into(),
        text: text.into(),
    }])
}

/// How much an answer lets pass.
fn rank(decision: &Decision) -> u8 {
    match decision {
        Decision::Deny(_) => 0,
        Decision::Ask(_) => 1,
        Decision::Inspect => 2,
        Decision::Allow(_) => 3,
    }
}

fn decide(policy: &Policy, request: &Request) -> Decision {
    policy.decide(
        request,
        &Who::default(),
        &Overlay::default(),
        jiff::Timestamp::UNIX_EPOCH,
    )
}

const INSPECT: u8 = 2;

/// The request with other refs, where it is one that can have some.
fn with_refs(request: &Request, refs: Option<Vec<RefUpdate>>) -> Request {
    let mut request = request.clone();
    match &mut request.moment {
        Moment::Http(http) => http.pushed = refs,
        Moment::Ssh(SshRequest { git: Some(git), .. }) => git.pushed = refs,
        _ => {}
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_compiles_or_has_a_problem_with_a_place(text in "(.|[\n :{}\\[\\]\"'&*!|>-]){0,200}") {
        if let Err(problems) = compile(&text) {
            prop_assert!(problems.iter().any(|p| p.severity == Severity::Error));
            prop_assert!(problems.iter().all(|p| p.line >= 1 && p.column >= 1 && !p.message.is_empty()));
        }
    }

    #[test]
    fn a_damaged_policy_never_panics(cut in 0usize..2000, insert in "[ \n:{}\\[\\]\"*&a-z0-9.,/-]{0,4}") {
        let mut text = include_str!("golden/effects.yaml").to_owned();
        let at = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &insert);
        let _ = compile(&text);
        text.truncate(at);
        let _ = compile(&text);
    }

    #[test]
    fn one_more_deny_never_allows_more(rules in prop::collection::vec(any_rule(), 0..6), deny in rule("deny"), requests in prop::collection::vec(request(), 1..20), at in 0usize..6) {
        let before = compile(&document(&rules)).unwrap();
        let mut more = rules.clone();
        more.insert(at.min(more.len()), deny);
        let after = compile(&document(&more)).unwrap();
        for request in &requests {
            let (before, after) = (decide(&before, request), decide(&after, request));
            prop_assert!(rank(&after) <= rank(&before), "{request:?}: {before:?} became {after:?}\n{}", document(&more));
        }
    }

    #[test]
    fn the_order_of_rules_changes_no_answer(rules in prop::collection::vec(any_rule(), 0..6), requests in prop::collection::vec(request(), 1..20)) {
        let forward = compile(&document(&rules)).unwrap();
        let mut reversed = rules.clone();
        reversed.reverse();
        let backward = compile(&document(&reversed)).unwrap();
        for request in &requests {
            prop_assert_eq!(rank(&decide(&forward, request)), rank(&decide(&backward, request)));
        }
    }

    #[test]
    fn what_is_refused_at_connect_is_never_allowed_later(rules in prop::collection::vec(any_rule(), 0..6), requests in prop::collection::vec(request(), 1..20)) {
        let policy = compile(&document(&rules)).unwrap();
        for request in &requests {
            let connect = Request { destination: request.destination.clone(), moment: Moment::Connect };
            if rank(&decide(&policy, &connect)) == 0 {
                prop_assert_eq!(rank(&decide(&policy, request)), 0);
            }
        }
    }

    #[test]
    fn explaining_agrees_with_deciding(rules in prop::collection::vec(any_rule(), 0..6), request in request()) {
        let policy = compile(&document(&rules)).unwrap();
        let explanation = policy.explain(&request, &Who::default(), &Overlay::default(), jiff::Timestamp::UNIX_EPOCH);
        let word = ["deny", "ask", "inspect", "allow"][usize::from(rank(&decide(&policy, &request)))];
        prop_assert_eq!(&explanation.verdict.decision, word);
        prop_assert_eq!(explanation.rules.len(), rules.len());
        prop_assert!(explanation.to_string().contains(word));
    }

    #[test]
    fn what_is_sure_before_the_refs_are_known_stays(rules in prop::collection::vec(any_rule(), 0..6), requests in prop::collection::vec((request(), pushed()), 1..20)) {
        let policy = compile(&document(&rules)).unwrap();
        for (request, refs) in &requests {
            let (before, after) = (decide(&policy, &with_refs(request, None)), decide(&policy, &with_refs(request, refs.clone())));
            if rank(&before) != INSPECT {
                prop_assert_eq!(rank(&before), rank(&after), "{:?}\n{}", request, document(&rules));
            }
        }
    }

    #[test]
    fn what_explaining_prints_can_be_asked_again(request in request()) {
        let policy = compile("version: 1").unwrap();
        let explanation = policy.explain(&request, &Who::default(), &Overlay::default(), jiff::Timestamp::UNIX_EPOCH);
        let again = Request::parse(&explanation.request).unwrap();
        let mut told = with_refs(&request, None);
        if let Moment::Http(http) = &mut told.moment {
            http.headers.clear();
        }
        prop_assert_eq!(again, told);
    }

    #[test]
    fn no_special_address_is_dialled_unless_a_rule_names_it(rules in prop::collection::vec(any_rule(), 0..6), request in request()) {
        let policy = compile(&document(&rules)).unwrap();
        if let Decision::Allow(permit) = decide(&policy, &request) {
            for address in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
                prop_assert!(permit.admits_address(address.parse().unwrap()).is_err());
            }
            prop_assert!(permit.admits_address("9.9.9.9".parse().unwrap()).is_ok());
            let special = matches!(permit.destination().host, Host::Address(address) if sallyport_policy::classify(address).is_some());
            prop_assert!(!special);
        }
    }
}
