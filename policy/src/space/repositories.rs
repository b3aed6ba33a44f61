//! Repositories that tell rules apart, by the paths that lead to them or by their names over ssh.
use super::axis::{Setting, Slot, Split, keep};
use super::globs::TooMany;
use super::{git, paths};
use crate::path_pattern::{PathPattern, Segment};
use crate::rule::Rule;
use crate::{CanonicalPath, Moment, Protocol};
use percent_encoding::percent_decode_str;

/// Services of smart HTTP, each the end of a path.
const SERVICES: &[&str] = &["info/refs", "git-upload-pack", "git-receive-pack"];
/// Of the name of a repository nothing else tells.
const SUFFIX: &str = ".git";

/// Every kind of repository that rules tell apart, for the service at hand.
pub(super) fn repositories(moment: &Moment, rules: &[&Rule]) -> Result<Split, TooMany> {
    let mut own: Vec<&PathPattern> = rules.iter().flat_map(|rule| &rule.git.repositories).collect();
    own.sort_by_key(|pattern| pattern.as_str());
    own.dedup();
    let is_http = matches!(moment, Moment::Http(_));
    let mut paths: Vec<&PathPattern> = rules
        .iter()
        .filter(|_| is_http)
        .flat_map(|rule| &rule.paths)
        .collect();
    paths.sort_by_key(|pattern| pattern.as_str());
    paths.dedup();
    let moments = match moment {
        Moment::Http(http) => {
            let service = SERVICES
                .iter()
                .find(|service| http.path.as_str().ends_with(*service));
            over_http(service.ok_or(TooMany)?, &own, &paths)?
                .into_iter()
                .map(|path| {
                    let mut http = http.clone();
                    http.path = path;
                    Moment::Http(http)
                })
                .collect()
        }
        Moment::Ssh(_) => over_ssh(moment, &own)?,
        _ => return Err(TooMany),
    };
    let slots = moments.iter().map(|moment| Slot {
        setting: Setting::Kind(moment.clone()),
        keeps: keep(rules, |rule| stays(rule, moment)),
        flavour: 0,
    });
    let fitting = |fits: &dyn Fn(&Moment) -> bool| -> Vec<usize> {
        let inside = moments.iter().enumerate().filter(|(_, moment)| fits(moment));
        inside.map(|(slot, _)| slot).collect()
    };
    let names = own.iter().map(|pattern| {
        let slots = fitting(&|moment| names(pattern, moment));
        (bare(pattern).to_owned(), slots)
    });
    let by_path = paths.iter().map(|pattern| {
        let slots = fitting(&|moment| matches!(moment, Moment::Http(http) if pattern.matches(&http.path)));
        (format!("path {}", pattern.as_str()), slots)
    });
    Ok(Split::named(slots.collect(), names.chain(by_path).collect()))
}

/// A pattern over names as people write it, without the slash at its beginning.
pub(super) fn bare(pattern: &PathPattern) -> &str {
    pattern.as_str().trim_start_matches('/')
}

fn names(pattern: &PathPattern, moment: &Moment) -> bool {
    let view = git::view(moment);
    let repository = view.as_ref().and_then(|view| view.repository.as_ref());
    repository.is_some_and(|repository| pattern.matches_relative(repository))
}

fn stays(rule: &Rule, moment: &Moment) -> bool {
    let any = |patterns: &[PathPattern], fits: &dyn Fn(&PathPattern) -> bool| {
        patterns.is_empty() || patterns.iter().any(fits)
    };
    match (rule.protocol, moment) {
        (Some(Protocol::Git), _) => any(&rule.git.repositories, &|pattern| names(pattern, moment)),
        (None | Some(Protocol::Http), Moment::Http(http)) => {
            any(&rule.paths, &|pattern| pattern.matches(&http.path))
        }
        _ => true,
    }
}

/// Paths that end in this service; those whose repository is written with `.git`, as most are, first.
fn over_http(
    service: &str,
    own: &[&PathPattern],
    paths: &[&PathPattern],
) -> Result<Vec<CanonicalPath>, TooMany> {
    let literal = |text: &str| Segment::Literal(text.to_owned());
    let tail: Vec<Segment> = service.split('/').map(literal).collect();
    let ends = |head: Vec<Segment>| PathPattern::of([head, tail.clone()].concat());
    let named = Segment::Pieces(vec![String::new(), SUFFIX.to_owned()]);
    let mut made = vec![
        ends(vec![Segment::Any]),
        ends(Vec::new()),
        ends(vec![Segment::Any, named]),
        ends(vec![Segment::Any, literal(SUFFIX)]),
    ];
    for pattern in own {
        made.push(ends(pattern.segments().to_vec()));
        made.extend(with_suffix(pattern.segments()).into_iter().map(ends));
    }
    let explored: Vec<&PathPattern> = made.iter().chain(paths.iter().copied()).collect();
    let mut samples = paths::samples(&explored)?;
    samples.retain(|sample| sample.fits.contains(&0));
    samples.sort_by_key(|sample| !sample.fits.contains(&2) || sample.fits.contains(&3));
    let path = |text: &str| CanonicalPath::parse(text).map_err(|_| TooMany);
    samples.iter().map(|sample| path(&sample.text)).collect()
}

/// Names with `.git` at their ends, which is no part of what the pattern names.
fn with_suffix(segments: &[Segment]) -> Vec<Vec<Segment>> {
    let Some((last, before)) = segments.split_last() else {
        return Vec::new();
    };
    let with = |last: Segment| [before, &[last]].concat();
    let any = |pieces: Vec<String>| Segment::Pieces(pieces);
    match last {
        Segment::Literal(text) => vec![with(Segment::Literal(format!("{text}{SUFFIX}")))],
        Segment::One => vec![with(any(vec![String::new(), SUFFIX.to_owned()]))],
        Segment::Pieces(pieces) => {
            let mut pieces = pieces.clone();
            if let Some(tail) = pieces.last_mut() {
                tail.push_str(SUFFIX);
            }
            vec![with(any(pieces))]
        }
        Segment::Any => {
            let mut all = with_suffix(before);
            all.push([segments, &[any(vec![String::new(), SUFFIX.to_owned()])]].concat());
            all
        }
    }
}

fn over_ssh(moment: &Moment, own: &[&PathPattern]) -> Result<Vec<Moment>, TooMany> {
    let mut moments = Vec::new();
    // A path that ends in a slash names no repository: it must not stand for those that do.
    let folder = PathPattern::folder();
    let explored: Vec<&PathPattern> = own.iter().copied().chain([&folder]).collect();
    for sample in paths::samples(&explored)? {
        let Ok(name) = percent_decode_str(&sample.text).decode_utf8() else {
            continue;
        };
        let mut next = moment.clone();
        if let Moment::Ssh(ssh) = &mut next
            && let Some(git) = &mut ssh.git
        {
            git.repository = format!("{}{SUFFIX}", name.trim_start_matches('/'));
        }
        if !name.ends_with('/') && git::view(&next).is_some_and(|view| view.doubt.is_none()) {
            moments.push(next);
        }
    }
    Ok(moments)
}
