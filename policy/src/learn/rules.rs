//! From requests to rules: what reads together, hosts that are used alike, and domains that are used as a whole.
use super::{Evidence, Key, Kind, paths};
use crate::Host;
use std::collections::{BTreeMap, BTreeSet};

/// So many names under one domain are named by the domain.
const SUBDOMAINS: usize = 3;
/// Domains under which strangers have names, though the Public Suffix List does not say so.
const SHARED: &[&str] = &[
    "amazonaws.com",
    "azure.com",
    "windows.net",
    "googleapis.com",
    "googleusercontent.com",
    "cloudfront.net",
    "akamaized.net",
    "akamaihd.net",
    "fastly.net",
    "sharepoint.com",
    "slack.com",
];

/// A rule in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    /// As policies write them.
    pub(super) hosts: BTreeSet<String>,
    pub(super) port: u16,
    pub(super) kind: Kind,
    /// Empty means any.
    pub(super) methods: BTreeSet<String>,
    /// Empty means any.
    pub(super) paths: Vec<String>,
    pub(super) evidence: Evidence,
    /// A request of each host or domain.
    pub(super) samples: BTreeSet<String>,
}

/// What is asked of hosts together: methods that go together, with their patterns.
type Uses = BTreeMap<&'static str, BTreeMap<String, BTreeMap<String, Evidence>>>;

/// One host and port.
type Place = (String, u16, Kind);

pub(super) fn drafts(wanted: &BTreeMap<Key, Evidence>) -> Vec<Draft> {
    let mut places: BTreeMap<Place, Uses> = BTreeMap::new();
    let domains = domains(wanted);
    for (key, evidence) in wanted {
        let own = written(&key.host);
        let host = domains
            .get(&shape(key, wanted))
            .filter(|domain| is_under(&own, domain));
        let host = host.map_or_else(|| own.clone(), |domain| format!("*.{domain}"));
        let place = (host, key.port, key.kind);
        let class = match key.method.as_str() {
            "GET" | "HEAD" => "read",
            _ => "write",
        };
        places
            .entry(place)
            .or_default()
            .entry(class)
            .or_default()
            .entry(key.method.clone())
            .or_default()
            .entry(key.path.clone())
            .and_modify(|known| known.add(evidence))
            .or_insert_with(|| evidence.clone());
    }
    let mut drafts: Vec<Draft> = Vec::new();
    for ((host, port, kind), uses) in places {
        let place = (host, port, kind);
        for draft in of_place(&place, uses) {
            alike(&mut drafts, draft);
        }
    }
    drafts
}

/// Adds a rule, or its host to one that says the same of another.
fn alike(drafts: &mut Vec<Draft>, draft: Draft) {
    let same = drafts.iter_mut().find(|other| {
        (other.port, other.kind, &other.methods, &other.paths)
            == (draft.port, draft.kind, &draft.methods, &draft.paths)
    });
    match same {
        Some(other) => {
            other.hosts.extend(draft.hosts);
            other.evidence.add(&draft.evidence);
            other.samples.extend(draft.samples);
        }
        None => drafts.push(draft),
    }
}

/// The rules of one place: methods with the same paths together.
fn of_place(place: &Place, uses: Uses) -> Vec<Draft> {
    let (host, port, kind) = place;
    let mut drafts: Vec<Draft> = Vec::new();
    for (class, methods) in uses {
        // Reading is one thing, whichever of its methods was used where.
        let groups: Vec<(BTreeSet<String>, BTreeMap<String, Evidence>)> = match class {
            "read" => {
                let mut all = BTreeMap::new();
                for (path, evidence) in methods.values().flatten() {
                    all.entry(path.clone())
                        .and_modify(|known: &mut Evidence| known.add(evidence))
                        .or_insert_with(|| evidence.clone());
                }
                let read = ["GET", "HEAD"].map(str::to_owned).into();
                vec![(read, all)]
            }
            _ => methods
                .into_iter()
                .map(|(method, paths)| (BTreeSet::from([method]), paths))
                .collect(),
        };
        for (methods, requests) in groups {
            let Some(evidence) = sum(requests.values()) else {
                continue;
            };
            let http = matches!(kind, Kind::Http { .. });
            let paths = match http {
                true => paths::merged(requests.keys().map(String::as_str)),
                false => Vec::new(),
            };
            let draft = Draft {
                hosts: BTreeSet::from([host.clone()]),
                port: *port,
                kind: *kind,
                methods: if http { methods } else { BTreeSet::new() },
                paths,
                samples: BTreeSet::from([evidence.sample.clone()]),
                evidence,
            };
            match drafts.iter_mut().find(|other| other.paths == draft.paths) {
                Some(other) => {
                    other.methods.extend(draft.methods);
                    other.evidence.add(&draft.evidence);
                    other.samples.extend(draft.samples);
                }
                None => drafts.push(draft),
            }
        }
    }
    drafts
}

fn sum<'a>(evidence: impl Iterator<Item = &'a Evidence>) -> Option<Evidence> {
    evidence.cloned().reduce(|mut sum, one| {
        sum.add(&one);
        sum
    })
}

/// The domains of which several names are used alike: same port, same kind, same methods.
fn domains(wanted: &BTreeMap<Key, Evidence>) -> BTreeMap<Shape, String> {
    let mut under: BTreeMap<Shape, BTreeSet<&Host>> = BTreeMap::new();
    for key in wanted.keys() {
        if let Some((_, domain)) = key.host.name().and_then(|name| name.split_once('.'))
            && is_owned(domain)
        {
            under.entry(shape(key, wanted)).or_default().insert(&key.host);
        }
    }
    under.retain(|_, hosts| hosts.len() >= SUBDOMAINS);
    under
        .into_keys()
        .map(|shape| (shape.clone(), shape.domain))
        .collect()
}

/// What names of one domain must have in common to be named by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    domain: String,
    port: u16,
    kind: Kind,
    methods: BTreeSet<String>,
}

fn shape(key: &Key, wanted: &BTreeMap<Key, Evidence>) -> Shape {
    let from = Key {
        method: String::new(),
        path: String::new(),
        ..key.clone()
    };
    let methods = wanted
        .range(from..)
        .map(|(other, _)| other)
        .take_while(|other| (&other.host, other.port, other.kind) == (&key.host, key.port, key.kind))
        .map(|other| match other.method.as_str() {
            "HEAD" => "GET".to_owned(),
            method => method.to_owned(),
        });
    let domain = key.host.name().and_then(|name| name.split_once('.'));
    Shape {
        domain: domain.map(|(_, domain)| domain.to_owned()).unwrap_or_default(),
        port: key.port,
        kind: key.kind,
        methods: methods.collect(),
    }
}

/// Whether all names under a domain are its owner's.
fn is_owned(domain: &str) -> bool {
    let shared = |shared: &str| domain == shared || is_under(domain, shared);
    domain.contains('.')
        && !SHARED.iter().any(|own| shared(own))
        && psl::suffix(domain.as_bytes()).is_none_or(|suffix| suffix != domain)
}

fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// As policies write it: a name of one label has a dot at its end, so that it is no set's.
fn written(host: &Host) -> String {
    match host {
        Host::Name(name) if !name.contains('.') && &**name != "localhost" => format!("{name}."),
        host => host.to_string(),
    }
}
