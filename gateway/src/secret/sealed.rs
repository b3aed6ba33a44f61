//! Header values that hold a secret: never shown, never put into a compression table.
use super::leak::Leak;
use http::header::{HeaderName, HeaderValue};

/// A header value that is never shown and never put into a compression table.
pub(super) fn sensitive(text: &[u8], name: &HeaderName) -> Result<HeaderValue, Leak> {
    let mut value = HeaderValue::from_bytes(text).map_err(|_| {
        let sentence = format!("the credential for header `{name}` has characters that no header may hold");
        Leak::new("", sentence)
    })?;
    value.set_sensitive(true);
    Ok(value)
}
