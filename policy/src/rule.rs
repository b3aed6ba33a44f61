//! One compiled rule, held against a request.
use crate::address::{AddressClass, classify};
use crate::condition::{Condition, Held};
use crate::diagnostic::Position;
use crate::document::{Effect, TermsPart};
use crate::during::During;
use crate::fit::Unclear;
pub(crate) use crate::fit::{Fit, Miss};
use crate::git;
use crate::git_match::GitMatch;
use crate::glob::{self, Star};
use crate::host_pattern::HostPattern;
use crate::leaks::Leaks;
use crate::limits::Limits;
use crate::path_pattern::PathPattern;
use crate::{
    CanonicalPath, Destination, Host, HttpRequest, Layer, Moment, PostgresRequest, Protocol, Request,
    SshRequest, Who,
};
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
    /// What it says of secrets in what it allows.
    pub(crate) leaks: Leaks,
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

impl Rule {
    /// Whether it looks at more than host, port and who.
    pub(crate) fn is_fine(&self) -> bool {
        !self.methods.is_empty()
            || !self.paths.is_empty()
            || !self.headers.is_empty()
            || !self.query.is_empty()
    }

    /// Whether it looks at more than host, port, who, method and path.
    pub(crate) fn looks_further(&self) -> bool {
        !self.headers.is_empty()
            || !self.query.is_empty()
            || matches!(
                self.protocol,
                Some(Protocol::Git | Protocol::Ssh | Protocol::Postgres)
            )
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
            (Moment::Ssh(ssh), _) => self.fit_ssh(ssh),
            (Moment::Postgres(login), _) => self.fit_postgres(login),
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
        let unmet = |(fact, values): &&(String, Vec<String>)| {
            !values.iter().any(|value| fact_fits(value, who.fact(fact)))
        };
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
            (Some(Protocol::Git), effect) => {
                return match git::over_http(http) {
                    Some(view) => self.git.fit(&view, effect),
                    None => Fit::Miss(Miss::Protocol),
                };
            }
            (None | Some(Protocol::Http), _) => {}
            _ => return Fit::Miss(Miss::Protocol),
        }
        if !self.methods.is_empty() && !self.methods.contains(&http.method) {
            return Fit::Miss(Miss::Method);
        }
        let path = match self.path_held(&http.path) {
            Held::No => return Fit::Miss(Miss::Path),
            Held::Unclear => Some(Unclear::Path),
            Held::Yes => None,
        };
        let condition = match self.conditions(http) {
            Err(miss) => return Fit::Miss(miss),
            Ok(unclear) => unclear,
        };
        match (path.or(condition), self.effect) {
            (None, _) => Fit::Full,
            (Some(unclear), Effect::Allow) => Fit::Miss(Miss::Unclear(unclear)),
            (Some(unclear), _) => Fit::Ambiguous(unclear),
        }
    }

    fn path_held(&self, path: &CanonicalPath) -> Held {
        if self.paths.is_empty() {
            return Held::Yes;
        }
        let ambiguous = match self.encoded_slash {
            true => path.ambiguity_beyond_slashes().is_some(),
            false => path.ambiguity().is_some(),
        };
        match ambiguous {
            true => Held::Unclear,
            false if self.paths.iter().any(|pattern| pattern.matches(path)) => Held::Yes,
            false => Held::No,
        }
    }

    /// The first condition that does not hold; else the first one of which it cannot be told.
    fn conditions(&self, http: &HttpRequest) -> Result<Option<Unclear>, Miss> {
        let mut unclear = None;
        for (number, condition) in self.headers.iter().enumerate() {
            match condition.held_by_headers(&http.headers) {
                Held::No => return Err(Miss::Header(number)),
                Held::Unclear => unclear = unclear.or(Some(Unclear::Header(number))),
                Held::Yes => {}
            }
        }
        for (number, condition) in self.query.iter().enumerate() {
            match condition.held_by_query(http.query.as_deref()) {
                Held::No => return Err(Miss::Query(number)),
                Held::Unclear => unclear = unclear.or(Some(Unclear::Query(number))),
                Held::Yes => {}
            }
        }
        Ok(unclear)
    }

    fn fit_ssh(&self, ssh: &SshRequest) -> Fit {
        match (self.protocol, &ssh.git) {
            (Some(Protocol::Ssh), _) if !one_fits(&self.users, &ssh.user) => Fit::Miss(Miss::User),
            (Some(Protocol::Ssh), _) => Fit::Full,
            (Some(Protocol::Git), Some(git)) => self.git.fit(&git::over_ssh(git), self.effect),
            // A command that is not git's may do what git does.
            (Some(Protocol::Git), None) if self.effect != Effect::Allow => Fit::Unread,
            _ => self.fit_whole_stream(),
        }
    }

    fn fit_postgres(&self, login: &PostgresRequest) -> Fit {
        if self.protocol != Some(Protocol::Postgres) {
            return self.fit_whole_stream();
        }
        if !one_fits(&self.databases, &login.database) {
            return Fit::Miss(Miss::Database);
        }
        match one_fits(&self.users, &login.user) {
            true => Fit::Full,
            false => Fit::Miss(Miss::User),
        }
    }

    /// How a rule fits a stream of a protocol that it does not name.
    fn fit_whole_stream(&self) -> Fit {
        match (self.protocol, self.effect) {
            (Some(Protocol::Tcp), Effect::Allow) => Fit::Full,
            (None, _) if !self.is_fine() => Fit::Full,
            _ => Fit::Miss(Miss::Protocol),
        }
    }
}

/// Whether one of the globs fits; none at all fits everything.
fn one_fits(globs: &[String], value: &str) -> bool {
    globs.is_empty()
        || globs
            .iter()
            .any(|glob| glob::fits(glob, value.bytes(), Star::Any))
}

/// `*` stands for any text without `/`; an unknown (empty) fact fits nothing.
fn fact_fits(pattern: &str, fact: &str) -> bool {
    !fact.is_empty() && glob::fits(pattern, fact.bytes(), Star::WithinSegment)
}
