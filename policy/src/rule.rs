//! One compiled rule, and how well it fits a request.
use crate::address::{AddressClass, classify};
use crate::diagnostic::Position;
use crate::document::{Effect, TermsPart};
use crate::during::During;
use crate::host_pattern::HostPattern;
use crate::limits::Limits;
use crate::path_pattern::PathPattern;
use crate::{Destination, GitAccess, Host, HttpRequest, Layer, Moment, Protocol, Request, Who};
use ipnet::IpNet;
use std::net::IpAddr;

/// A rule with all names resolved.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) at: Position,
    pub(crate) effect: Effect,
    pub(crate) hosts: Vec<HostPattern>,
    /// Inclusive ranges; empty means any.
    pub(crate) ports: Vec<(u16, u16)>,
    /// `None` (deny and ask only) means any.
    pub(crate) protocol: Option<Protocol>,
    /// Empty means any.
    pub(crate) methods: Vec<String>,
    /// Empty means any.
    pub(crate) paths: Vec<PathPattern>,
    /// The addresses that `private: true` opens.
    pub(crate) private: Vec<IpNet>,
    pub(crate) who: Vec<(String, Vec<String>)>,
    /// Indices of credentials.
    pub(crate) uses: Vec<usize>,
    pub(crate) terms: Option<TermsPart>,
    pub(crate) hint: Option<String>,
    pub(crate) layer: Layer,
    /// Its refusals are told, not enforced.
    pub(crate) observe: bool,
    pub(crate) limits: Option<Limits>,
    pub(crate) during: Option<During>,
    /// Layers below that may allow what it refuses.
    pub(crate) widen: Vec<Layer>,
    pub(crate) encoded_slash: bool,
    pub(crate) git: GitMatch,
    /// Globs; empty means any.
    pub(crate) databases: Vec<String>,
    /// Globs for the log-in name of ssh or PostgreSQL; empty means any.
    pub(crate) users: Vec<String>,
    /// All must hold.
    pub(crate) headers: Vec<Condition>,
    /// All must hold.
    pub(crate) query: Vec<Condition>,
}

/// What a rule says of git. Empty means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitMatch {
    /// Globs in which `*` stands within a segment and `**` for any number of them.
    pub(crate) repositories: Vec<PathPattern>,
    pub(crate) access: Option<GitAccess>,
    /// As `repositories`; `agent/**` means `refs/heads/agent/**`.
    pub(crate) refs: Vec<PathPattern>,
    pub(crate) force: Option<bool>,
}

/// A header field or query parameter, and the globs of which one must match its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// How well a rule fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It does not, and no later moment will change that.
    Miss(Miss),
    /// It may, once more is known.
    Later,
    /// It does.
    Full,
    /// It refuses since the path can be read in more than one way.
    Ambiguous,
    /// It refuses since it needs to look, and cannot.
    Unread,
}

/// The first thing that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Host,
    Port,
    Who,
    Protocol,
    Method,
    Path,
    AmbiguousPath,
    /// Outside the hours of `during`.
    Time,
    Address(AddressClass),
}

impl Rule {
    /// Whether it looks at more than host, port and who.
    pub(crate) fn is_fine(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// How it fits what is known of this request, at this instant.
    pub(crate) fn fit(&self, request: &Request, who: &Who, now: jiff::Timestamp) -> Fit {
        match self.names(&request.destination.host) {
            true => self.fit_here(request, who, now),
            false => Fit::Miss(Miss::Host),
        }
    }

    /// The same, where it is known that the host is named.
    pub(crate) fn fit_here(&self, request: &Request, who: &Who, now: jiff::Timestamp) -> Fit {
        match self.fit_always(request, who) {
            Fit::Miss(miss) => Fit::Miss(miss),
            _ if !self.is_in_force(now) => Fit::Miss(Miss::Time),
            fit => fit,
        }
    }

    /// Whether its `during` holds.
    pub(crate) fn is_in_force(&self, now: jiff::Timestamp) -> bool {
        self.during.as_ref().is_none_or(|during| during.holds(now))
    }

    /// How it fits whenever its `during` holds.
    fn fit_always(&self, request: &Request, who: &Who) -> Fit {
        if let Some(miss) = self.misses_place(&request.destination, who) {
            return Fit::Miss(miss);
        }
        match (&request.moment, self.effect) {
            (Moment::Connect, Effect::Allow) => match self.protocol {
                Some(Protocol::Tcp | Protocol::Tls) => Fit::Full,
                _ => Fit::Later,
            },
            (Moment::Connect, _) if self.is_fine() || self.protocol.is_some() => Fit::Later,
            (Moment::Connect, _) => Fit::Full,
            (Moment::Opaque, Effect::Allow) => match self.protocol {
                Some(Protocol::Tcp) => Fit::Full,
                _ => Fit::Miss(Miss::Protocol),
            },
            // An opaque stream may hide what a finer rule refuses; and an `ask` that is not about streams cannot be answered for one.
            (Moment::Opaque, effect) => match self.protocol {
                Some(Protocol::Tcp) => Fit::Full,
                None if effect == Effect::Deny && !self.is_fine() => Fit::Full,
                _ => Fit::Unread,
            },
            (Moment::Http(http), _) => self.fit_http(http),
            (Moment::Ssh(_) | Moment::Postgres(_), Effect::Allow) => Fit::Miss(Miss::Protocol),
            (Moment::Ssh(_) | Moment::Postgres(_), _) => Fit::Unread,
        }
    }

    /// Whether this host is named.
    pub(crate) fn names(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Port, who, and for what may let pass: whether a special address is named. That the host is named is known.
    pub(crate) fn misses_place(&self, destination: &Destination, who: &Who) -> Option<Miss> {
        if !self.ports.is_empty()
            && !self
                .ports
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&destination.port))
        {
            return Some(Miss::Port);
        }
        if self.unmet_fact(who).is_some() {
            return Some(Miss::Who);
        }
        match &destination.host {
            Host::Address(address) if self.effect == Effect::Allow => {
                self.closed_address(*address).map(Miss::Address)
            }
            _ => None,
        }
    }

    /// The first fact that does not hold, with the values that would do.
    pub(crate) fn unmet_fact(&self, who: &Who) -> Option<(&str, &[String])> {
        let unmet =
            |(fact, values): &&(String, Vec<String>)| !values.iter().any(|value| glob(value, who.fact(fact)));
        self.who
            .iter()
            .find(unmet)
            .map(|(fact, values)| (fact.as_str(), values.as_slice()))
    }

    /// The class of a special address that this rule does not open.
    pub(crate) fn closed_address(&self, address: IpAddr) -> Option<AddressClass> {
        classify(address).filter(|_| !self.private.iter().any(|net| net.contains(&address)))
    }

    fn fit_http(&self, http: &HttpRequest) -> Fit {
        match (self.protocol, self.effect) {
            (Some(Protocol::Tcp), Effect::Allow) => return Fit::Full,
            (Some(Protocol::Tls), Effect::Allow) if http.tls => return Fit::Full,
            (Some(Protocol::Tcp | Protocol::Tls), _) => return Fit::Miss(Miss::Protocol),
            _ => {}
        }
        if !self.methods.is_empty() && !self.methods.contains(&http.method) {
            return Fit::Miss(Miss::Method);
        }
        if self.paths.is_empty() {
            return Fit::Full;
        }
        if http.path.ambiguity().is_some() {
            return match self.effect {
                Effect::Allow => Fit::Miss(Miss::AmbiguousPath),
                _ => Fit::Ambiguous,
            };
        }
        match self.paths.iter().any(|pattern| pattern.matches(&http.path)) {
            true => Fit::Full,
            false => Fit::Miss(Miss::Path),
        }
    }
}

/// `*` stands for any text without `/`; an unknown (empty) fact fits nothing.
fn glob(pattern: &str, value: &str) -> bool {
    if value.is_empty() {
        return false;
    }
    let mut pieces = pattern.split('*');
    let head = pieces.next().unwrap_or_default();
    let Some(mut rest) = value.strip_prefix(head) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        let found = if last && piece.is_empty() {
            Some(rest.len())
        } else if last {
            rest.len()
                .checked_sub(piece.len())
                .filter(|at| rest.is_char_boundary(*at) && rest[*at..] == *piece)
        } else {
            rest.find(piece)
        };
        let Some(at) = found else { return false };
        if rest[..at].contains('/') {
            return false;
        }
        rest = &rest[at + if last { rest.len() - at } else { piece.len() }..];
    }
    true
}
