//! The one type of HTTP body that passes, either way.
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};

/// What breaks a body off.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
/// Every body that passes.
pub type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Fault>;

/// A body of no bytes.
pub fn empty_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
