//! Which credential serves a place: by host and kind, those that may be used before those that must be asked for. Pure.
use crate::wire::KnownCredential;

/// The user name of a log-in whose credential names none: what forges take with a token.
const USER: &str = "x-access-token";
/// The place of an access key of AWS.
pub(super) const AWS: &str = "aws-sigv4";
/// The port of https.
pub(super) const HTTPS: u16 = 443;

impl KnownCredential {
    /// Whether it may stand in such a place: `basic`, `bearer`.
    pub(super) fn stands_in(&self, place: &str) -> bool {
        self.places.iter().any(|own| own == place)
    }

    /// The user name that goes with it.
    pub(super) fn user_name(&self) -> &str {
        self.user.as_deref().unwrap_or(USER)
    }

    /// Whether it may be used at a host now.
    pub(super) fn is_usable_at(&self, host: &str) -> bool {
        self.lender.is_none() || self.lent_at.iter().any(|lent| lent == host)
    }

    /// Whether it is bound to a host: by its name, or by a pattern `*.NAME`.
    pub(super) fn is_bound_to(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| match pattern.strip_prefix("*.") {
            Some(domain) => host
                .strip_suffix(domain)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => pattern == host,
        })
    }

    /// The names among its hosts: neither patterns nor addresses nor ranges.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(String::as_str);
        hosts.filter(|host| !host.contains(['*', '/', ':']) && host.parse::<std::net::IpAddr>().is_err())
    }

    /// `HOST`, or `HOST:PORT` where that is not the port of https, for each of its names and ports.
    pub(super) fn origins(&self) -> Vec<String> {
        let ports = match self.ports.as_slice() {
            [] => &[HTTPS],
            ports => ports,
        };
        let of = |name: &str| -> Vec<String> {
            let at = |port: &u16| match *port {
                HTTPS => name.to_owned(),
                port => format!("{name}:{port}"),
            };
            ports.iter().map(at).collect()
        };
        self.names().flat_map(of).collect()
    }
}

/// The credential for a host in one of the places, the places in this order.
pub(super) fn find<'k>(
    known: &'k [KnownCredential],
    host: &str,
    places: &[&str],
) -> Option<&'k KnownCredential> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let fits = |place: &str, usable: bool| {
        known
            .iter()
            .find(|one| one.stands_in(place) && one.is_bound_to(&host) && one.is_usable_at(&host) == usable)
    };
    let first = |usable: bool| places.iter().find_map(|place| fits(place, usable));
    first(true).or_else(|| first(false))
}

/// The host of `HOST`, `HOST:PORT`, `[V6]:PORT` or a URL, in lower case.
pub(super) fn host_of(text: &str) -> String {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    };
    host.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, hosts: &[&str], places: &[&str]) -> KnownCredential {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        KnownCredential {
            name: name.into(),
            hosts: owned(hosts),
            places: owned(places),
            ..KnownCredential::default()
        }
    }

    #[test]
    fn a_credential_is_found_by_host_place_and_whether_it_may_be_used() {
        let mut lent = known("lent", &["git.example"], &["basic"]);
        lent.lender = Some("policy".into());
        let all = [lent, known("own", &["git.example", "*.git.example"], &["bearer"])];
        let found = |host: &str, places: &[&str]| find(&all, host, places).map(|one| one.name.as_str());
        assert_eq!(found("git.example", &["basic", "bearer"]), Some("own"));
        assert_eq!(
            found("GIT.example.", &["basic"]),
            Some("lent"),
            "so that the refusal says how to ask"
        );
        assert_eq!(found("a.git.example", &["basic", "bearer"]), Some("own"));
        for other in ["xgit.example", ".git.example", "example", "git.example.org", ""] {
            assert_eq!(found(other, &["basic", "bearer"]), None, "{other}");
        }
    }

    #[test]
    fn origins_name_each_port_but_that_of_https() {
        let mut one = known("a", &["r.example", "*.r.example", "192.0.2.1", "10.0.0.0/8"], &[]);
        assert_eq!(one.origins(), ["r.example"]);
        one.ports = vec![443, 8443];
        assert_eq!(one.origins(), ["r.example", "r.example:8443"]);
    }

    #[test]
    fn the_host_of_a_registry_is_found_however_it_is_written() {
        for (text, host) in [
            ("https://index.example/v1/", "index.example"),
            ("R.example:5000", "r.example"),
            ("sparse+https://u@crates.example/i/", "crates.example"),
            ("[2001:db8::1]:443", "2001:db8::1"),
        ] {
            assert_eq!(host_of(text), host);
        }
    }
}
