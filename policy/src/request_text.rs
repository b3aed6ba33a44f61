//! Requests as people write them: `GET https://host/path`, `connect host:port`, `ssh user@host:22`, and so on.
use crate::host::shown;
use crate::request::parse_port;
use crate::{
    CanonicalPath, Destination, GitAccess, GitRequest, Host, HttpRequest, Moment, PostgresRequest, Request,
    SshRequest,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What is escaped in names of users and databases, so that they can be told from what surrounds them.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in names of repositories.
const ESCAPED_IN_PATHS: &AsciiSet = &ESCAPED.remove(b'/');

/// Why a text is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestFault(pub String);

impl Request {
    /// Reads `METHOD URL` (http or https), `connect HOST:PORT`, `opaque HOST:PORT` (a stream that is neither HTTP nor TLS),
    /// `ssh USER@HOST:PORT` with or without `git-upload-pack REPOSITORY` or `git-receive-pack REPOSITORY`, or
    /// `postgres USER@HOST:PORT/DATABASE`. What does not stand for itself in names is percent-encoded.
    ///
    /// As strict as the gateway: user information in a URL, a fragment or another scheme is malformed.
    pub fn parse(text: &str) -> Result<Self, RequestFault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse(&words)
            .unwrap_or_else(|| {
                Err(format!(
                    "`{}` is neither `METHOD URL` nor `connect HOST:PORT`",
                    shown(text)
                ))
            })
            .map_err(RequestFault)
    }
}

/// `None` where the words make no request of any kind.
fn parse(words: &[&str]) -> Option<Result<Request, String>> {
    Some(match words {
        ["connect", place] => at(place, Moment::Connect),
        ["opaque", place] => at(place, Moment::Opaque),
        ["ssh", place] => parse_ssh(place, None),
        ["ssh", place, command, repository] => parse_ssh(place, Some((command, repository))),
        ["postgres", place] => parse_postgres(place),
        [method, url] => parse_http(method, url),
        _ => return None,
    })
}

fn at(place: &str, moment: Moment) -> Result<Request, String> {
    Ok(Request {
        destination: Destination::parse(place)?,
        moment,
    })
}

fn parse_ssh(place: &str, command: Option<(&str, &str)>) -> Result<Request, String> {
    let (user, place) = place
        .split_once('@')
        .ok_or_else(|| format!("`{}` has no user; write `ssh USER@HOST:PORT`", shown(place)))?;
    let git = match command {
        None => None,
        Some((command, repository)) => Some(GitRequest {
            repository: plain(repository)?,
            access: match command {
                "git-upload-pack" => GitAccess::Read,
                "git-receive-pack" => GitAccess::Write,
                _ => {
                    return Err(format!(
                        "`{}` is neither `git-upload-pack` nor `git-receive-pack`",
                        shown(command)
                    ));
                }
            },
            pushed: None,
        }),
    };
    let user = plain(user)?;
    at(place, Moment::Ssh(SshRequest { user, git }))
}

fn parse_postgres(place: &str) -> Result<Request, String> {
    let (user, rest) = place.split_once('@').ok_or_else(|| {
        format!(
            "`{}` has no user; write `postgres USER@HOST:PORT/DATABASE`",
            shown(place)
        )
    })?;
    let (place, database) = rest
        .split_once('/')
        .ok_or_else(|| format!("`{}` names no database", shown(rest)))?;
    let (user, database) = (plain(user)?, plain(database)?);
    at(place, Moment::Postgres(PostgresRequest { database, user }))
}

/// A name without its escapes.
fn plain(text: &str) -> Result<String, String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(name.into_owned()),
        Ok(_) => Err("a name is empty".into()),
        Err(_) => Err(format!("the escapes in `{}` are not valid UTF-8", shown(text))),
    }
}

/// The request as [`Request::parse`] reads it; header fields and the refs of a push are not told.
pub(crate) fn written(request: &Request) -> String {
    let destination = &request.destination;
    match &request.moment {
        Moment::Connect => format!("connect {destination}"),
        Moment::Opaque => format!("opaque {destination}"),
        Moment::Http(http) => written_http(destination, http),
        Moment::Ssh(ssh) => {
            let user = utf8_percent_encode(&ssh.user, ESCAPED);
            match &ssh.git {
                None => format!("ssh {user}@{destination}"),
                Some(git) => format!(
                    "ssh {user}@{destination} git-{}-pack {}",
                    match git.access {
                        GitAccess::Read => "upload",
                        GitAccess::Write => "receive",
                    },
                    utf8_percent_encode(&git.repository, ESCAPED_IN_PATHS)
                ),
            }
        }
        Moment::Postgres(login) => format!(
            "postgres {}@{destination}/{}",
            utf8_percent_encode(&login.user, ESCAPED),
            utf8_percent_encode(&login.database, ESCAPED)
        ),
    }
}

/// What does not print is escaped: a query is printed as it came otherwise.
fn without_controls(query: &str) -> String {
    let mut out = String::with_capacity(query.len());
    for c in query.chars() {
        if c.is_whitespace() || c.is_control() {
            out.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC));
        } else {
            out.push(c);
        }
    }
    out
}

fn written_http(destination: &Destination, http: &HttpRequest) -> String {
    let (scheme, usual) = if http.tls { ("https", 443) } else { ("http", 80) };
    let place = match destination.port == usual {
        true => destination.host.in_url(),
        false => destination.to_string(),
    };
    let query = match &http.query {
        Some(query) => format!("?{query}"),
        None => String::new(),
    };
    let query = without_controls(&query);
    format!("{} {scheme}://{place}{}{query}", http.method, http.path.as_str())
}

fn parse_http(method: &str, url: &str) -> Result<Request, String> {
    if !method
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    {
        return Err(format!("`{}` is not a method", shown(method)));
    }
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| format!("`{}` is not an absolute URL", shown(url)))?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => {
            return Err(format!(
                "scheme `{}` is neither `http` nor `https`",
                shown(scheme)
            ));
        }
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return Err("user information in a URL is malformed (RFC 9110 section 4.2.4)".into());
    }
    if tail.contains('#') {
        return Err("a fragment is never sent; remove what follows `#`".into());
    }
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (tail, None),
    };
    Ok(Request {
        destination: parse_authority(authority, if tls { 443 } else { 80 })?,
        moment: Moment::Http(HttpRequest {
            method: method.to_owned(),
            path: CanonicalPath::parse(path).map_err(|fault| fault.to_string())?,
            query,
            tls,
            headers: Vec::new(),
            pushed: None,
        }),
    })
}

/// `host` or `host:port`; IPv6 in brackets.
pub(crate) fn parse_authority(authority: &str, usual: u16) -> Result<Destination, String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, parse_port(port)?),
        _ => (authority, usual),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(format!(
            "`{}` has an IPv6 address without brackets",
            shown(authority)
        ));
    }
    Ok(Destination {
        host: Host::parse(host).map_err(|fault| fault.to_string())?,
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_authorities_are_read() {
        let request = Request::parse("GET https://Docs.TEST./a/../b?c=d").unwrap();
        assert_eq!(request.destination.to_string(), "docs.test:443");
        let Moment::Http(http) = request.moment else {
            panic!()
        };
        assert_eq!(
            (http.path.as_str(), http.query.as_deref(), http.tls),
            ("/b", Some("c=d"), true)
        );
        assert_eq!(Request::parse("PUT http://a.test").unwrap().destination.port, 80);
        assert_eq!(
            Request::parse("GET https://[::1]:8443/")
                .unwrap()
                .destination
                .to_string(),
            "[::1]:8443"
        );
        assert_eq!(
            Request::parse("GET https://[::1]/").unwrap().destination.port,
            443
        );
        assert_eq!(
            Request::parse("connect a.test:22").unwrap().moment,
            Moment::Connect
        );
        assert_eq!(Request::parse("opaque a.test:22").unwrap().moment, Moment::Opaque);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "connect a.test:22",
            "opaque [::1]:443",
            "GET https://a.test/a%2Fb?c=d%20e",
            "PUT http://a.test:8080/",
            "ssh git@a.test:22",
            "ssh git@a.test:22 git-receive-pack acme/web.git",
            "ssh d%40corp@a.test:22 git-upload-pack k%C3%A4se/x%20y",
            "postgres agent@db.test:5432/shop",
            "postgres a%2Fb@[::1]:5432/%40x",
        ] {
            let request = Request::parse(text).unwrap();
            assert_eq!(written(&request), text);
            assert_eq!(Request::parse(&written(&request)), Ok(request));
        }
        let odd = Request::parse("GET https://a.test/?a=\u{1b}[31m").unwrap();
        assert_eq!(written(&odd), "GET https://a.test/?a=%1B[31m");
        let long = format!("GET https://a.test/{}", "x/".repeat(500));
        assert_eq!(written(&Request::parse(&long).unwrap()), long);
    }

    #[test]
    fn what_the_gateway_calls_malformed_is_malformed_here() {
        for text in [
            "",
            "GET",
            "GET a.test",
            "GET ftp://a.test/",
            "GET https://user:pw@a.test/",
            "GET https://a.test/x#y",
            "GET https://a.test:0/",
            "GET https://a.test:65536/",
            "GET https://a.test:/",
            "GET https:///x",
            "GET https://::1/",
            "GET https://a.test\\@b.test/",
            "GET https://a.test/..",
            "G(T https://a.test/",
            "connect a.test",
            "connect ::1:443",
            "connect a.test:443 now",
            "ssh a.test:22",
            "ssh git@a.test",
            "ssh @a.test:22",
            "ssh git@a.test:22 uptime now",
            "ssh git@a.test:22 git-upload-pack",
            "postgres a@db.test:5432",
            "postgres a@db.test:5432/",
            "postgres %ff@db.test:5432/x",
            "postgres db.test:5432/x",
        ] {
            assert!(
                Request::parse(text).is_err(),
                "{text:?} gave {:?}",
                Request::parse(text)
            );
        }
    }
}
