//! Both handshakes of a WebSocket: the client's as it came (RFC 6455 section 4, RFC 8441 section 5), and the gateway's own upstream.
use super::extension::{self, Terms};
use crate::http::head::HeadFault;
use crate::http::pace::InFlight;
use crate::payload::{Body, empty_body};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

/// The only version of the protocol.
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// A client's handshake, and the gateway's own towards the upstream.
pub struct Handshake {
    client: OnUpgrade,
    held: Option<Arc<InFlight>>,
    /// What the client waits for; nothing in HTTP/2.
    accept: Option<HeaderValue>,
    offers: Vec<Terms>,
    own_key: HeaderValue,
}

impl Handshake {
    /// Takes a handshake's fields off the head; the rest is that of an ordinary GET. `extended`: by HTTP/2's extended CONNECT.
    pub fn of(
        headers: &mut HeaderMap,
        extended: bool,
        client: OnUpgrade,
        held: Option<Arc<InFlight>>,
    ) -> Result<Self, HeadFault> {
        let malformed = |text: &str| HeadFault::Malformed(text.to_owned());
        if headers.get_all(SEC_WEBSOCKET_VERSION).iter().ne([&VERSION]) {
            return Err(malformed(
                "only version 13 of WebSocket is spoken; send `Sec-WebSocket-Version: 13` once (RFC 6455 section 4.1)",
            ));
        }
        let keys: Vec<HeaderValue> = headers.get_all(SEC_WEBSOCKET_KEY).iter().cloned().collect();
        let accept = match keys.as_slice() {
            // RFC 8441 section 5 has no key.
            _ if extended => None,
            [key] if is_key(key) => Some(derive_accept_key(key.as_bytes())),
            _ => {
                return Err(malformed(
                    "a WebSocket handshake has one `Sec-WebSocket-Key` of 16 bytes in base64 (RFC 6455 section 4.1)",
                ));
            }
        };
        let value = |text: String| HeaderValue::try_from(text).map_err(|error| malformed(&error.to_string()));
        let offers = extension::offers(headers);
        for name in [SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_EXTENSIONS] {
            headers.remove(name);
        }
        Ok(Self {
            client,
            held,
            accept: accept.map(value).transpose()?,
            offers,
            own_key: value(generate_key())?,
        })
    }

    /// Puts the gateway's own handshake into a head that goes upstream. The key is for HTTP/1.1 alone.
    pub fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(SEC_WEBSOCKET_VERSION, VERSION);
        headers.insert(SEC_WEBSOCKET_KEY, self.own_key.clone());
        if let Some(offers) = extension::field(&self.offers) {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, offers);
        }
    }

    /// Whether the upstream's answer begins a WebSocket, and on which terms its messages are compressed. The error says what
    /// is wrong with it.
    pub fn answered<B>(&self, answer: &Response<B>) -> Result<Begun, String> {
        let begins = match answer.version() {
            // Other 2xx would do too (RFC 9113 section 8.5), but hyper hands out no stream for them.
            Version::HTTP_2 => answer.status() == StatusCode::OK,
            _ => answer.status() == StatusCode::SWITCHING_PROTOCOLS,
        };
        if !begins {
            return match self.accept {
                // An ordinary answer, which must not look like a beginning in HTTP/2.
                None if answer.status().is_success() => Err(format!(
                    "it answered `{}` to a WebSocket handshake and did not begin to speak WebSocket",
                    answer.status()
                )),
                _ => Ok(Begun::Not),
            };
        }
        let headers = answer.headers();
        if answer.version() != Version::HTTP_2 {
            let upgraded =
                |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket");
            if !headers.get(UPGRADE).is_some_and(upgraded) {
                return Err("it switched to another protocol than WebSocket".to_owned());
            }
            let accept = derive_accept_key(self.own_key.as_bytes());
            if headers.get_all(SEC_WEBSOCKET_ACCEPT).iter().ne([accept.as_str()]) {
                return Err(
                    "its `Sec-WebSocket-Accept` does not fit the key (RFC 6455 section 4.1)".to_owned(),
                );
            }
        }
        extension::agreed(headers, &self.offers).map(Begun::On)
    }

    /// The answer that begins the WebSocket towards the client, with the upstream's fields that are not of its hop; and both
    /// ends of it.
    pub fn begin(
        self,
        mut headers: HeaderMap,
        terms: Option<Terms>,
        upstream: OnUpgrade,
    ) -> (Response<Body>, Ends) {
        for name in [SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, CONTENT_LENGTH] {
            headers.remove(name);
        }
        if let Some(terms) = terms.and_then(|terms| extension::field(&[terms])) {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, terms);
        }
        let mut response = Response::new(empty_body());
        *response.status_mut() = self.status();
        if let Some(accept) = self.accept {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        *response.headers_mut() = headers;
        let ends = Ends {
            client: self.client,
            upstream,
            terms,
            held: self.held,
        };
        (response, ends)
    }

    /// The status that begins it towards the client.
    pub fn status(&self) -> StatusCode {
        match self.accept {
            Some(_) => StatusCode::SWITCHING_PROTOCOLS,
            None => StatusCode::OK,
        }
    }
}

/// The two ends of a WebSocket, as they come out of their handshakes.
pub struct Ends {
    /// The machine's.
    pub client: OnUpgrade,
    /// The upstream's.
    pub upstream: OnUpgrade,
    /// What they agreed on about compression.
    pub terms: Option<Terms>,
    /// The machine's connection is in use for as long as this is there.
    pub held: Option<Arc<InFlight>>,
}

/// What an upstream's answer to a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// An ordinary answer.
    Not,
    /// WebSocket from here on, compressed on these terms.
    On(Option<Terms>),
}

/// 16 bytes in base64.
fn is_key(key: &HeaderValue) -> bool {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD.decode(key.as_bytes());
    decoded.is_ok_and(|bytes| bytes.len() == 16)
}
