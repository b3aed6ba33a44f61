//! A request's head: does it name the dialled destination and nothing else, and can only one meaning be read from it? Pure.
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Version};
use sallyport_policy::{CanonicalPath, Destination, Host, HttpRequest};

/// Why a head is not served. The machine's fault; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// 400.
    #[error("{0}")]
    Malformed(String),
    /// 421 (RFC 9110 section 15.5.20).
    #[error("{0}")]
    Misdirected(String),
    /// 501.
    #[error("{0}")]
    Unsupported(String),
}

impl HeadFault {
    /// The status for the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        }
    }
}

/// What makes a request's framing doubtful, where it was seen outside its parsed head; an extension of the request.
#[derive(Debug, Clone, Copy)]
pub struct Doubt(pub &'static str);

/// Reads a head that came on a connection to `destination`, but for its fields. Only agreement of every name in it passes.
pub fn read(parts: &Parts, destination: &Destination, tls: bool) -> Result<HttpRequest, HeadFault> {
    framing(parts)?;
    if parts.method == Method::CONNECT {
        return Err(malformed("CONNECT inside a connection to a server is not served"));
    }
    if let Some(scheme) = parts.uri.scheme_str() {
        let expected = if tls { "https" } else { "http" };
        if !scheme.eq_ignore_ascii_case(expected) {
            return Err(malformed(format!(
                "the target's scheme is `{scheme}` on a connection that is `{expected}`"
            )));
        }
    }
    authority(parts, destination, tls)?;
    if parts.uri.path() == "*" {
        return Err(malformed("the target `*` names no path and is not forwarded"));
    }
    let raw = match parts.uri.path() {
        "" => "/",
        path => path,
    };
    let path = CanonicalPath::parse(raw).map_err(|fault| malformed(fault.to_string()))?;
    Ok(HttpRequest {
        method: parts.method.as_str().to_owned(),
        path,
        query: parts.uri.query().map(str::to_owned),
        tls,
        headers: Vec::new(),
        pushed: None,
    })
}

/// The fields that a policy may look at, to be read when they are in the form in which they will be sent: lower-case names,
/// values as ISO-8859-1. Left out are credentials, what belongs to the hop, and `Host`, which is the destination itself.
pub fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    const LEFT_OUT: [HeaderName; 5] = [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION, TE];
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    headers
        .iter()
        .filter(|(name, _)| !LEFT_OUT.contains(name))
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

/// Host and port of an authority without userinfo; the scheme's port where it names none.
pub fn parse_authority(text: &str, default_port: Option<u16>) -> Result<Destination, HeadFault> {
    if text.contains('@') {
        return Err(malformed(
            "user information in a target is not served (RFC 9110 section 4.2.4)",
        ));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| malformed(format!("`{}` has no closing bracket", shown(text))))?;
            if !after.is_empty() && !after.starts_with(':') {
                return Err(malformed(format!("`{}` is no host and port", shown(text))));
            }
            (&text[..host.len() + 2], after.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => {
            default_port.ok_or_else(|| malformed(format!("`{}` names no port", shown(text))))?
        }
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| malformed(format!("`{}` is no port", shown(digits))))?,
        Some(other) => return Err(malformed(format!("`{}` is no port", shown(other)))),
    };
    let host = Host::parse(host).map_err(|fault| malformed(fault.to_string()))?;
    Ok(Destination { host, port })
}

/// Framing that two readers could read differently (RFC 9112 sections 6.1 and 6.3).
fn framing(parts: &Parts) -> Result<(), HeadFault> {
    if let Some(Doubt(doubt)) = parts.extensions.get() {
        return Err(malformed(*doubt));
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if codings.next().is_some() {
        return Err(malformed("`Transfer-Encoding` stands twice"));
    }
    if parts.headers.contains_key(CONTENT_LENGTH) {
        return Err(malformed(
            "`Content-Length` and `Transfer-Encoding` stand together",
        ));
    }
    if parts.version == Version::HTTP_10 || parts.version == Version::HTTP_2 {
        return Err(malformed(
            "`Transfer-Encoding` does not exist in this version of HTTP",
        ));
    }
    if !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Err(HeadFault::Unsupported(
            "a transfer coding other than `chunked` is not supported".to_owned(),
        ));
    }
    Ok(())
}

/// Every authority in the head must name the dialled destination.
fn authority(parts: &Parts, destination: &Destination, tls: bool) -> Result<(), HeadFault> {
    let default_port = Some(if tls { 443 } else { 80 });
    let mut named = 0;
    if let Some(authority) = parts.uri.authority() {
        named += 1;
        agree("the target", authority.as_str(), destination, default_port)?;
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        named += 1;
        if hosts.next().is_some() {
            return Err(malformed("`Host` stands twice (RFC 9112 section 3.2)"));
        }
        let text = host
            .to_str()
            .map_err(|_| malformed("`Host` holds bytes that are no text"))?;
        agree("`Host`", text, destination, default_port)?;
    } else if parts.version == Version::HTTP_11 {
        return Err(malformed("`Host` is missing (RFC 9112 section 3.2)"));
    }
    if named == 0 && parts.version != Version::HTTP_10 {
        return Err(malformed("the request names no host"));
    }
    Ok(())
}

fn agree(
    what: &str,
    text: &str,
    destination: &Destination,
    default_port: Option<u16>,
) -> Result<(), HeadFault> {
    let named = parse_authority(text, default_port)?;
    if named == *destination {
        return Ok(());
    }
    Err(HeadFault::Misdirected(format!(
        "{what} names `{}` on a connection to `{}`; open a connection to the name that is asked for",
        shown(text),
        destination_text(destination)
    )))
}

/// A destination as it stands in messages.
pub fn destination_text(destination: &Destination) -> String {
    format!("{}:{}", destination.host.in_url(), destination.port)
}

fn malformed(text: impl Into<String>) -> HeadFault {
    HeadFault::Malformed(text.into())
}

fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests;
