//! Addresses as manifests write them: URLs with prefixes and revisions, scp-like git addresses, variables inside.
use super::need::{Scheme, Site};
use crate::request_text::parse_authority;
use crate::{AddressClass, CanonicalPath, Host, classify};

/// Longest address that is looked at, in bytes.
const ADDRESS_LIMIT: usize = 4096;

/// An address of something on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) site: Site,
    /// Normalised, with leading `/`.
    pub(super) path: String,
    /// Written with `git+`, `git://`, ssh, or a path that ends in `.git`.
    pub(super) git: bool,
    /// User information, which may be a secret or name a variable that holds one.
    pub(super) login: Option<String>,
}

/// Why a text is no address that can be decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAddress {
    /// Nothing that leads to the network: a path, a name, the machine itself.
    Local,
    /// Its host is made of variables.
    Variable,
}

impl Address {
    /// Reads an address. What follows `#`, a query, and pip's `@revision` are dropped.
    pub(super) fn parse(text: &str) -> Result<Self, NoAddress> {
        let text = text.trim().trim_matches(['"', '\'', '<', '>', ',', ';', ')']);
        if text.len() > ADDRESS_LIMIT {
            return Err(NoAddress::Local);
        }
        let (prefixed, text) = strip_prefixes(text);
        if let Some((scheme, rest)) = text.split_once("://") {
            return Self::url(scheme, rest, prefixed);
        }
        Self::scp(text).ok_or(NoAddress::Local)
    }

    fn url(scheme: &str, rest: &str, prefixed: bool) -> Result<Self, NoAddress> {
        let (scheme, git) = match scheme.to_ascii_lowercase().as_str() {
            "https" => (Scheme::Https, prefixed),
            "http" => (Scheme::Http, prefixed),
            "ssh" => (Scheme::Ssh, true),
            // Git's own protocol has no rules; hosts that spoke it speak https.
            "git" => (Scheme::Https, true),
            _ => return Err(NoAddress::Local),
        };
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (place, tail) = rest.split_at(end);
        let (login, place) = match place.rsplit_once('@') {
            Some((login, place)) => (Some(login.to_owned()), place),
            None => (None, place),
        };
        if place.contains(['$', '{', '%', '<', '*', '`', '(']) {
            return Err(NoAddress::Variable);
        }
        let found = parse_authority(place, scheme.usual_port()).map_err(|_| NoAddress::Local)?;
        if is_here(&found.host) {
            return Err(NoAddress::Local);
        }
        let mut path = tail.split(['?', '#']).next().unwrap_or_default();
        if prefixed && let Some((before, _)) = path.rsplit_once('@') {
            path = before;
        }
        let path = path_of(path);
        Ok(Self {
            git: git || path.ends_with(".git") || path.trim_end_matches('/').ends_with(".git"),
            site: Site {
                host: found.host.to_string(),
                port: found.port,
                scheme,
            },
            path,
            login: login.filter(|login| scheme != Scheme::Ssh && !login.is_empty()),
        })
    }

    /// `git@host:owner/name.git` (git-fetch, "GIT URLS").
    fn scp(text: &str) -> Option<Self> {
        let (user, rest) = text.split_once('@')?;
        let (host, path) = rest.split_once(':')?;
        let plain = |part: &str| !part.is_empty() && !part.contains(['/', ' ', '$', '{', '"']);
        if !plain(user) || !plain(host) || path.is_empty() || path.contains(' ') {
            return None;
        }
        let host = Host::parse(host).ok()?;
        let path = path.split('#').next().unwrap_or_default();
        (!is_here(&host)).then(|| Self {
            site: Site {
                host: host.to_string(),
                port: 22,
                scheme: Scheme::Ssh,
            },
            path: path_of(&format!("/{}", path.trim_start_matches('/'))),
            git: true,
            login: None,
        })
    }

    /// The repository's path for git.
    pub(super) fn repository(&self) -> &str {
        self.path.trim_matches('/')
    }
}

/// What package managers put before a URL, and whether it says git.
fn strip_prefixes(text: &str) -> (bool, &str) {
    for prefix in ["git+", "vcs+git+"] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return (true, rest);
        }
    }
    for prefix in ["sparse+", "registry+", "url:"] {
        if let Some(rest) = text.strip_prefix(prefix)
            && rest.contains("://")
        {
            return (false, rest);
        }
    }
    (false, text)
}

/// Normalised, up to the first variable or placeholder in it.
fn path_of(raw: &str) -> String {
    let fixed = match raw.find(['$', '{', '<', '`', '\\']) {
        Some(at) => raw
            .get(..at)
            .and_then(|start| start.rsplit_once('/'))
            .map_or("", |(start, _)| start),
        None => raw,
    };
    CanonicalPath::parse(fixed).map_or_else(|_| "/".to_owned(), |path| path.as_str().to_owned())
}

/// The machine itself, and names that only its containers know.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Address(address) => matches!(
            classify(*address),
            Some(AddressClass::Loopback | AddressClass::Unspecified)
        ),
        Host::Name(name) => {
            !name.contains('.') || name.ends_with(".localhost") || &**name == "host.docker.internal"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(text: &str) -> String {
        match Address::parse(text) {
            Ok(it) => format!("{}{}{}", if it.git { "git " } else { "" }, it.site, it.path),
            Err(why) => format!("{why:?}"),
        }
    }

    #[test]
    fn the_many_spellings_of_an_address_are_read() {
        for (text, expected) in [
            (
                "https://files.test/a/../b.tar.gz#sha256=1",
                "https://files.test/b.tar.gz",
            ),
            (
                "git+https://git.test/acme/lib.git@v1.2#egg=lib",
                "git https://git.test/acme/lib.git",
            ),
            (
                "git+https://git.test/acme/lib?rev=1#abc",
                "git https://git.test/acme/lib",
            ),
            (
                "git+ssh://git@git.test/acme/lib.git",
                "git ssh://git.test/acme/lib.git",
            ),
            (
                "ssh://git@git.test:2222/acme/lib",
                "git ssh://git.test:2222/acme/lib",
            ),
            ("git@git.test:acme/lib.git", "git ssh://git.test/acme/lib.git"),
            ("git://git.test/acme/lib.git", "git https://git.test/acme/lib.git"),
            ("sparse+https://index.test/api/", "https://index.test/api/"),
            ("registry+https://index.test/index", "https://index.test/index"),
            ("\"http://PROXY.test:8080/x\"", "http://proxy.test:8080/x"),
            ("https://files.test/v${VERSION}/a.tgz", "https://files.test/"),
            ("https://${HOST}/a.tgz", "Variable"),
            ("https://localhost:8080/", "Local"),
            ("http://127.0.0.1/", "Local"),
            ("http://db:5432/", "Local"),
            ("../lib", "Local"),
            ("file:///tmp/a", "Local"),
            ("https://", "Local"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn a_login_in_a_url_is_kept_apart() {
        let address = Address::parse("https://${USER}:${TOKEN}@pkg.test/simple").unwrap();
        assert_eq!(address.login.as_deref(), Some("${USER}:${TOKEN}"));
        assert_eq!(address.site.host, "pkg.test");
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in ".{0,60}") {
            let _ = Address::parse(&text);
            let _ = Address::parse(&format!("https://{text}"));
            let _ = Address::parse(&format!("git@{text}"));
        }
    }
}
