//! The axes that requests of each kind have.
use super::axis::Axis;
use super::git;
use crate::Moment;
use crate::rule::Rule;
use std::collections::BTreeSet;

/// The axes that only this protocol has.
pub(super) fn of_protocol(moment: &Moment, rules: &[&Rule]) -> Vec<Axis> {
    match moment {
        Moment::Connect | Moment::Opaque => Vec::new(),
        Moment::Http(_) if git::is_looked_at(rules) => vec![Axis::Git],
        Moment::Ssh(_) if git::is_looked_at(rules) => vec![Axis::User, Axis::Git],
        Moment::Http(_) => of_http(&[Axis::Method, Axis::Path], rules),
        Moment::Ssh(_) => vec![Axis::User],
        Moment::Postgres(_) => vec![Axis::Database, Axis::User],
    }
}

/// The axes that only requests of this kind have, where rules look at git. What is unclear is so whatever it pushes.
pub(super) fn of_git(moment: &Moment, rules: &[&Rule]) -> Vec<Axis> {
    let view = git::view(moment);
    let pushes = view
        .as_ref()
        .is_some_and(|view| view.push.is_some() && view.doubt.is_none());
    let named = view.as_ref().is_some_and(|view| view.repository.is_some());
    let is_clear = view.as_ref().is_some_and(|view| view.doubt.is_none());
    let mut axes = match (moment, named, is_clear) {
        (Moment::Http(_), true, true) => of_headers(&[Axis::Repository], rules),
        (Moment::Http(http), true, false) if http.query.as_deref().is_some_and(git::asks) => {
            of_headers(&[Axis::Repository, Axis::Method], rules)
        }
        (Moment::Http(_), true, false) => of_http(&[Axis::Repository, Axis::Method], rules),
        (Moment::Http(_), false, _) => of_http(&[Axis::Path, Axis::Method], rules),
        (_, true, _) => vec![Axis::Repository],
        _ => Vec::new(),
    };
    if pushes {
        axes.push(Axis::Refs);
    }
    axes
}

fn of_headers(first: &[Axis], rules: &[&Rule]) -> Vec<Axis> {
    let mut axes = first.to_vec();
    let names = rules.iter().flat_map(|rule| &rule.headers);
    let names: BTreeSet<String> = names.map(|condition| condition.name.clone()).collect();
    axes.extend(names.into_iter().map(Axis::Header));
    axes
}

fn of_http(first: &[Axis], rules: &[&Rule]) -> Vec<Axis> {
    let mut axes = of_headers(first, rules);
    let names = rules.iter().flat_map(|rule| &rule.query);
    let names: BTreeSet<String> = names.map(|condition| condition.name.clone()).collect();
    if !names.is_empty() {
        axes.push(Axis::QueryForm);
    }
    axes.extend(names.into_iter().map(Axis::Query));
    axes
}
