//! Requests as people write them: `GET https://host/path`, `connect host:port`, `opaque host:port`.
use crate::host::shown;
use crate::request::parse_port;
use crate::{CanonicalPath, Destination, Host, HttpRequest, Moment, Request};

/// Why a text is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestFault(pub String);

impl Request {
    /// Reads `METHOD URL` (http or https), `connect HOST:PORT`, or `opaque HOST:PORT` (a stream that is neither HTTP nor TLS).
    ///
    /// As strict as the gateway: user information, a fragment or another scheme is malformed.
    pub fn parse(text: &str) -> Result<Self, RequestFault> {
        let mut words = text.split_whitespace();
        let (Some(verb), Some(target), None) = (words.next(), words.next(), words.next()) else {
            let text = shown(text);
            return Err(RequestFault(format!(
                "`{text}` is neither `METHOD URL` nor `connect HOST:PORT`"
            )));
        };
        let moment = match verb {
            "connect" => Moment::Connect,
            "opaque" => Moment::Opaque,
            _ => return parse_http(verb, target).map_err(RequestFault),
        };
        Ok(Self {
            destination: Destination::parse(target).map_err(RequestFault)?,
            moment,
        })
    }
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
        ] {
            assert!(
                Request::parse(text).is_err(),
                "{text:?} gave {:?}",
                Request::parse(text)
            );
        }
    }
}
