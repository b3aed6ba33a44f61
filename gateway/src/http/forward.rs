//! Heads on their way through: what belongs to one hop is taken off, the rest is sent on as it was decided. Pure.
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, HeaderValue};
use sallyport_policy::HttpRequest;

/// Fields of one hop (RFC 9110 section 7.6.1, and the old ones in use).
const HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Takes off the fields of one hop, those that `Connection` lists among them.
pub fn strip_hop_fields(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // A field that frames or addresses the message must not be taken off by the machine's word.
        .filter(|name| {
            !matches!(
                name.as_str(),
                "host" | "content-length" | "authorization" | "cookie"
            )
        })
        .collect();
    for name in listed.iter().chain(&HOP) {
        headers.remove(name);
    }
}

/// Brings a request's fields into the form in which they are decided on and sent: none of the hop, only known codings.
pub fn canonical_fields(headers: &mut HeaderMap) -> Result<(), http::Error> {
    let trailers = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value
                .split(',')
                .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
        });
    strip_hop_fields(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // It names an alternative that was never offered here (RFC 7838 section 5).
    headers.remove("alt-used");
    join_cookies(headers)?;
    known_codings_only(headers)
}

/// Gives a request the target that was decided.
pub fn decided_target(parts: &mut Parts, decided: &HttpRequest) -> Result<(), http::Error> {
    // What the machine's connection hung on the request (upgrade handles and the like) stays on its side.
    parts.extensions.clear();
    let target = match &decided.query {
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", decided.path.as_str()))?,
        None => PathAndQuery::try_from(decided.path.as_str())?,
    };
    parts.uri = Uri::from(target);
    Ok(())
}

/// Takes off what an answer says of its hop, and invitations to other ways (RFC 7838).
pub fn strip_answer(headers: &mut HeaderMap) {
    // The coding frames the answer (RFC 9112 section 6.3); a length beside it would frame what is sent on in another way.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_fields(headers);
    headers.remove("alt-svc");
}

/// Digests over the bytes of a body (RFC 9530, RFC 3230, RFC 2616).
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// Takes off what no longer holds of a body that is changed on its way: its length and its digests.
pub fn body_changes(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    for name in DIGESTS {
        headers.remove(HeaderName::from_static(name));
    }
}

/// Only codings that can be looked into are asked for; a list that has no others stays as it is.
fn known_codings_only(headers: &mut HeaderMap) -> Result<(), http::Error> {
    let known = |item: &&str| {
        let name = item
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        matches!(
            name.as_str(),
            "gzip" | "x-gzip" | "deflate" | "br" | "zstd" | "identity" | ""
        )
    };
    let asked: Vec<&str> = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("unknown").split(','))
        .map(str::trim)
        .collect();
    if asked.iter().all(known) {
        return Ok(());
    }
    let kept = asked.into_iter().filter(known).collect::<Vec<_>>().join(", ");
    let kept = if kept.is_empty() { "identity" } else { &kept };
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(kept)?);
    Ok(())
}

/// One `Cookie` field (RFC 9113 section 8.2.3: HTTP/2 may have cut it).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), http::Error> {
    let crumbs: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if crumbs.len() > 1 {
        let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))?;
        headers.insert(COOKIE, joined);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
