//! Going through every kind of request that hosts of one group may see, axis by axis, and joining again what is alike.
use super::axis::{self, Axis, Setting, Slot, Split, Spoken};
use super::cover::{Extent, Part};
use super::globs::TooMany;
use super::{git, kinds, matters, refs, repositories};
use crate::rule::Rule;
use crate::{
    CanonicalPath, Destination, Host, HttpRequest, Moment, PostgresRequest, Request, SshRequest, Who,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// What a finding about the moment of connecting is about.
const WHOLE_CONNECTIONS: &str = "whole connections";
/// Port of an example, where it may be.
const USUAL_PORT: u16 = 443;

/// A rule of one of the policies that are looked at together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'p> {
    pub(crate) side: usize,
    pub(crate) number: usize,
    pub(crate) rule: &'p Rule,
}

/// One request, with all else that an answer depends on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) request: Request,
    pub(crate) who: Who,
    pub(crate) at: jiff::Timestamp,
}

/// What holds of the requests that a finding is about; an axis that is not named makes no difference.
pub(crate) type Conditions = BTreeMap<Axis, Extent>;

/// What is noted beside a finding: a side, and the id of a rule there.
pub(crate) type Notes = BTreeSet<(usize, String)>;

/// Requests of which a judge says the same.
#[derive(Debug, Clone)]
pub(crate) struct Found<L> {
    pub(crate) label: L,
    pub(crate) conditions: Conditions,
    /// One of these requests.
    pub(crate) point: Point,
    /// What the judge noted of any of them.
    pub(crate) notes: Notes,
}

/// What is looked for.
pub(crate) trait Judge {
    type Label: Clone + Eq + Hash;

    /// Whether requests that meet these rules and no others need not be looked at.
    fn skips(&mut self, candidates: &[Candidate<'_>]) -> bool;

    /// What there is to say of this request and all that are like it; these rules may match it, and no others do.
    fn judge(&mut self, point: &Point, candidates: &[Candidate<'_>]) -> Option<(Self::Label, Notes)>;
}

/// Goes through the requests to one host. Gives up when `budget`, in rules weighed, is used up.
pub(crate) struct Walk<'j, J> {
    pub(crate) judge: &'j mut J,
    pub(crate) from: jiff::Timestamp,
    pub(crate) budget: &'j mut u64,
}

impl<J: Judge> Walk<'_, J> {
    /// Every kind of connection and request to this host.
    pub(crate) fn host(
        &mut self,
        host: &Host,
        candidates: &[Candidate<'_>],
    ) -> Result<Vec<Found<J::Label>>, TooMany> {
        let point = Point {
            request: Request {
                destination: Destination {
                    host: host.clone(),
                    port: USUAL_PORT,
                },
                moment: Moment::Connect,
            },
            who: Who::default(),
            at: self.from,
        };
        let rules = || candidates.iter().map(|candidate| candidate.rule);
        let facts: BTreeSet<&str> = rules()
            .flat_map(|rule| &rule.who)
            .map(|(fact, _)| fact.as_str())
            .collect();
        let mut axes = vec![Axis::Port];
        axes.extend(facts.into_iter().map(|fact| Axis::Who(fact.to_owned())));
        axes.push(Axis::Time);
        let mut found = self.along(&axes, candidates, &point)?;
        for found in &mut found {
            let whole = Extent(vec![Part::of(WHOLE_CONNECTIONS)]);
            found.conditions.insert(Axis::Protocol, whole);
        }
        axes.push(Axis::Protocol);
        found.extend(self.along(&axes, candidates, &point)?);
        Ok(found)
    }

    fn along(
        &mut self,
        axes: &[Axis],
        candidates: &[Candidate<'_>],
        point: &Point,
    ) -> Result<Vec<Found<J::Label>>, TooMany> {
        if self.judge.skips(candidates) {
            return Ok(Vec::new());
        }
        let Some((axis, rest)) = axes.split_first() else {
            self.spend(candidates.len() + 1)?;
            let judged = self.judge.judge(point, candidates);
            return Ok(judged
                .map(|(label, notes)| Found {
                    label,
                    conditions: Conditions::new(),
                    point: point.clone(),
                    notes,
                })
                .into_iter()
                .collect());
        };
        let rules: Vec<&Rule> = candidates.iter().map(|candidate| candidate.rule).collect();
        let split = split(axis, &rules, point)?;
        self.spend(split.slots.len() * rules.len())?;
        let mut joined = Joined::default();
        for slots in alike(&split.slots) {
            let Some(slot) = example(&split, &slots) else {
                continue;
            };
            let kept: Vec<Candidate<'_>> = slot
                .keeps
                .iter()
                .filter_map(|place| candidates.get(*place as usize).copied())
                .collect();
            let mut next = point.clone();
            set(&mut next, axis, &slot.setting)?;
            let mut after = rest.to_vec();
            if *axis == Axis::Protocol {
                after.extend(kinds::of_protocol(&next.request.moment, &rules));
            }
            if *axis == Axis::Git {
                after.extend(kinds::of_git(&next.request.moment, &rules));
            }
            for found in self.along(&after, &kept, &next)? {
                joined.add(found, &slots);
            }
        }
        Ok(joined.finish(axis, &split))
    }

    fn spend(&mut self, rules: usize) -> Result<(), TooMany> {
        *self.budget = self.budget.checked_sub(rules as u64).ok_or(TooMany)?;
        Ok(())
    }
}

/// The slot that people would take for an example.
fn example<'s>(split: &'s Split, slots: &[usize]) -> Option<&'s Slot> {
    let slots = || slots.iter().filter_map(|slot| split.slots.get(*slot));
    let usual =
        |slot: &&Slot| matches!(slot.setting, Setting::Port(low, high) if (low..=high).contains(&USUAL_PORT));
    slots().find(usual).or_else(|| slots().next())
}

/// Findings that differ on one axis only, put together.
struct Joined<L> {
    found: Vec<(Found<L>, BTreeSet<usize>)>,
    known: HashMap<(L, Conditions), usize>,
}

impl<L> Default for Joined<L> {
    fn default() -> Self {
        Self {
            found: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl<L: Clone + Eq + Hash> Joined<L> {
    fn add(&mut self, found: Found<L>, slots: &[usize]) {
        let next = self.found.len();
        let place = *self
            .known
            .entry((found.label.clone(), found.conditions.clone()))
            .or_insert(next);
        match self.found.get_mut(place) {
            Some((first, members)) => {
                members.extend(slots);
                first.notes.extend(found.notes);
            }
            None => self.found.push((found, slots.iter().copied().collect())),
        }
    }

    fn finish(self, axis: &Axis, split: &Split) -> Vec<Found<L>> {
        let mut all = self.found;
        for (found, slots) in &mut all {
            let extent = split.describe(slots);
            if !extent.0.is_empty() {
                found.conditions.insert(axis.clone(), extent);
            }
        }
        all.into_iter().map(|(found, _)| found).collect()
    }
}

/// Slots in which the same rules may still match, by number.
fn alike(slots: &[Slot]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<(&[u32], usize), usize> = HashMap::new();
    for (number, slot) in slots.iter().enumerate() {
        let next = groups.len();
        let group = *known.entry((&slot.keeps, slot.flavour)).or_insert(next);
        match groups.get_mut(group) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    groups
}

fn split(axis: &Axis, rules: &[&Rule], point: &Point) -> Result<Split, TooMany> {
    let moment = &point.request.moment;
    Ok(match axis {
        Axis::Port => axis::ports(rules),
        Axis::Protocol => axis::protocols(rules),
        Axis::Git => git::kinds(moment, rules)?,
        Axis::Repository => repositories::repositories(moment, rules)?,
        Axis::Refs => refs::pushes(rules)?,
        Axis::Method => axis::methods(rules, moment),
        Axis::Path => matters::paths(rules, moment)?,
        Axis::QueryForm => matters::query_forms(rules),
        Axis::Query(name) => matters::values(rules, &|rule| {
            rule.query
                .iter()
                .filter(|own| own.name == *name)
                .cloned()
                .collect()
        })?,
        Axis::Header(name) => matters::values(rules, &|rule| {
            rule.headers
                .iter()
                .filter(|own| own.name == *name)
                .cloned()
                .collect()
        })?,
        Axis::Database => matters::log_ins(rules, |rule| &rule.databases)?,
        Axis::User => matters::log_ins(rules, |rule| &rule.users)?,
        Axis::Who(fact) => matters::facts(rules, fact)?,
        Axis::Time => axis::times(rules, point.at),
    })
}

fn set(point: &mut Point, axis: &Axis, setting: &Setting) -> Result<(), TooMany> {
    let moment = &mut point.request.moment;
    match (setting, axis) {
        (Setting::Port(low, high), _) => {
            let usual = (*low..=*high).contains(&USUAL_PORT);
            point.request.destination.port = if usual { USUAL_PORT } else { *low };
        }
        (Setting::Protocol(spoken), _) => *moment = first_moment(*spoken)?,
        (Setting::Fact(value), Axis::Who(fact)) => {
            point.who.set(fact, value.clone());
        }
        (Setting::At(instant), _) => point.at = *instant,
        (Setting::Kind(kind), _) => moment.clone_from(kind),
        (Setting::Pushed(pushed), _) => match moment {
            Moment::Http(http) => http.pushed.clone_from(pushed),
            Moment::Ssh(ssh) => {
                if let Some(git) = &mut ssh.git {
                    git.pushed.clone_from(pushed);
                }
            }
            _ => {}
        },
        (Setting::LogIn(name), _) => match moment {
            Moment::Postgres(login) if *axis == Axis::Database => login.database.clone_from(name),
            Moment::Postgres(login) => login.user.clone_from(name),
            Moment::Ssh(ssh) => ssh.user.clone_from(name),
            _ => {}
        },
        _ => {
            let Moment::Http(http) = moment else {
                return Ok(());
            };
            set_http(http, axis, setting)?;
        }
    }
    Ok(())
}

fn first_moment(spoken: Spoken) -> Result<Moment, TooMany> {
    Ok(match spoken {
        Spoken::Https | Spoken::PlainHttp => {
            let path = CanonicalPath::parse("/").map_err(|_| TooMany)?;
            Moment::Http(HttpRequest::new("GET", path, None, spoken == Spoken::Https))
        }
        Spoken::Unread => Moment::Opaque,
        Spoken::Ssh => Moment::Ssh(SshRequest {
            user: "x".to_owned(),
            git: None,
        }),
        Spoken::Postgres => Moment::Postgres(PostgresRequest {
            database: "x".to_owned(),
            user: "x".to_owned(),
        }),
    })
}

fn set_http(http: &mut HttpRequest, axis: &Axis, setting: &Setting) -> Result<(), TooMany> {
    match (setting, axis) {
        (Setting::Method(method), _) => http.method.clone_from(method),
        (Setting::Path(path), _) => http.path = CanonicalPath::parse(path).map_err(|_| TooMany)?,
        (Setting::QueryForm(false), _) => http.query = Some("%".to_owned()),
        (Setting::Values(values), Axis::Header(name)) => {
            let fields = values.iter().map(|value| (name.clone(), value.clone()));
            http.headers.extend(fields);
        }
        (Setting::Values(values), Axis::Query(name)) if http.query.as_deref() != Some("%") => {
            for value in values {
                let parameter = format!("{}={}", escaped(name), escaped(value));
                http.query = Some(match http.query.take() {
                    Some(query) => format!("{query}&{parameter}"),
                    None => parameter,
                });
            }
        }
        _ => {}
    }
    Ok(())
}

/// Everything but unreserved octets (RFC 3986 section 2.3) as escapes.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
