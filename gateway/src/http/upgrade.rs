//! What a request wants to speak on: `Upgrade` in HTTP/1.1 (RFC 9110 section 7.8), extended CONNECT in HTTP/2 (RFC 8441). Pure.
use super::head::HeadFault;
use super::pace::InFlight;
use super::websocket::handshake::Handshake;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

/// What a request wants to speak on.
pub enum Asked {
    /// HTTP.
    Nothing,
    /// WebSocket.
    WebSocket(Box<Handshake>),
    /// Something that cannot be read here: its name.
    Other(String),
}

/// Takes the wish off a request's head, which is that of an ordinary GET from there on, and decided as such. `h2c` offers are
/// left aside, as RFC 9110 section 7.8 allows. An error where the wish is not a whole one.
pub fn asked(parts: &mut Parts) -> Result<Asked, HeadFault> {
    let malformed = |text: &str| HeadFault::Malformed(text.to_owned());
    let extended = parts.extensions.remove::<Protocol>();
    let mut names = match (&extended, &parts.method) {
        (Some(protocol), &Method::CONNECT) => vec![String::from_utf8_lossy(protocol.as_ref()).into_owned()],
        _ => tokens(&parts.headers, UPGRADE),
    };
    names.retain(|name| !name.eq_ignore_ascii_case("h2c"));
    if extended.is_some() {
        parts.method = Method::GET;
    }
    let Some(name) = names.first() else {
        return Ok(Asked::Nothing);
    };
    let spoken = extended.is_some() || parts.version == Version::HTTP_11;
    if !spoken || !names.iter().any(|name| name.eq_ignore_ascii_case("websocket")) {
        return Ok(Asked::Other(name.chars().take(40).collect()));
    }
    if extended.is_none() {
        if parts.method != Method::GET {
            return Err(malformed("a WebSocket handshake is a GET (RFC 6455 section 4.1)"));
        }
        if !names_upgrade(&parts.headers) {
            return Err(malformed(
                "`Upgrade` is not listed in `Connection` (RFC 9110 section 7.8)",
            ));
        }
    }
    let client = parts
        .extensions
        .remove::<OnUpgrade>()
        .ok_or_else(|| malformed("this connection cannot be upgraded"))?;
    let held = parts.extensions.remove::<Arc<InFlight>>();
    Handshake::of(&mut parts.headers, extended.is_some(), client, held)
        .map(|handshake| Asked::WebSocket(Box::new(handshake)))
}

/// Whether `Connection` lists `Upgrade`.
pub fn names_upgrade(headers: &HeaderMap) -> bool {
    tokens(headers, CONNECTION)
        .iter()
        .any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// The items of a list of tokens.
fn tokens(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|item| String::from_utf8_lossy(item.trim_ascii()).into_owned())
        .filter(|item| !item.is_empty())
        .collect()
}
