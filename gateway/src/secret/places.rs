//! What stands where in a request's head: authorization schemes, and which headers and parameters carry credentials.
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode};
use sallyport_policy::Place;
use zeroize::Zeroizing;

/// Written as RFC 7617 wants it; read more leniently, since origins do.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Scheme and credentials of an authorization header, spaces around them left out (RFC 9110 section 11.4).
pub(super) fn scheme(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = value.iter().position(|byte| *byte == b' ')?;
    Some((&value[..space], value[space..].trim_ascii()))
}

pub(super) fn trimmed_tail(value: &[u8]) -> usize {
    value.len() - value.trim_ascii_end().len()
}

/// `Basic ` as it was written, and what it decodes to; none where it is no Basic, or no base64.
pub(super) fn basic(value: &[u8]) -> Option<(Vec<u8>, Zeroizing<Vec<u8>>)> {
    let (scheme, rest) = scheme(value)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let decoded = BASE64.decode(rest).ok()?;
    Some(([scheme, b" "].concat(), Zeroizing::new(decoded)))
}

/// What a percent-encoded text stands for; none where nothing in it is encoded.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'%', text).map(|_| percent_decode(text).collect())
}

/// What a name or value of a form or query stands for.
pub(super) fn form_decode(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&spaced).collect()
}

/// Characters that are encoded in the value of a query parameter or form field, and in a segment of a path: all but the
/// unreserved ones (RFC 3986 section 2.3).
pub(super) const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

const KEY_WORDS: [&str; 10] = [
    "token",
    "key",
    "apikey",
    "secret",
    "auth",
    "authorization",
    "password",
    "passwd",
    "signature",
    "credential",
];

/// Whether a header is one in which credentials are sent.
pub(super) fn is_key_header(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION || *name == COOKIE || is_key_name(name.as_str())
}

pub(super) fn is_key_parameter(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    is_key_name(&lower) || ["sig", "code", "jwt", "access", "pass", "pwd"].contains(&lower.as_str())
}

/// Whether the last word of a name is one that keys are called by: `x-api-key`, `private_token`, `accesstoken`.
fn is_key_name(name: &str) -> bool {
    let last = name
        .rsplit(['-', '_', '.', '[', ']'])
        .find(|word| !word.is_empty())
        .unwrap_or("");
    KEY_WORDS.iter().any(|word| last.ends_with(word))
}

/// A place as it stands in a refusal or a warning.
pub fn spoken(place: &Place) -> String {
    match place {
        Place::Bearer => "`authorization: bearer`".to_owned(),
        Place::Basic => "basic authentication".to_owned(),
        Place::Header(name) => format!("header `{name}`"),
        Place::Query(name) => format!("query parameter `{name}`"),
        Place::Json(pointer) => format!("`{pointer}` of a JSON body"),
        Place::Form(name) => format!("form field `{name}`"),
        Place::Path => "a segment of the path".to_owned(),
        Place::WebSocket(pointer) => format!("`{pointer}` of a WebSocket's text message"),
        Place::SshKey => "an ssh log-in by key".to_owned(),
        Place::Password => "a log-in by password".to_owned(),
        Place::ClientCertificate => "a TLS client certificate".to_owned(),
        Place::AwsSigv4 => "an AWS signature (version 4)".to_owned(),
    }
}
