//! Secrets: the only module in which values exist.
use bytes::BytesMut;
use http::HeaderMap;
use sallyport_policy::Permit;

/// What one session may use: placeholders, values, and the automata over both.
#[derive(Debug)]
pub struct SessionSecrets {}

/// What was done to an outgoing request head.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// Names of credentials put in.
    pub used: Vec<String>,
    /// Things worth a note in the log, never a value.
    pub notes: Vec<String>,
}

/// Why a request must not go out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Leak {
    /// The credential's name.
    pub credential: String,
    /// Sentence for the refusal: place and name, never the value.
    pub sentence: String,
}

impl SessionSecrets {
    /// Guards a head and puts values in place of placeholders where the permit, the binding and the place say so.
    /// Placeholder in a credential's place elsewhere: `Leak`. Real value anywhere: `Leak`. `tls`: whether it leaves encrypted.
    pub fn outbound(
        &self,
        permit: &Permit,
        tls: bool,
        head: &mut http::request::Parts,
    ) -> Result<Outbound, Leak> {
        let _ = (permit, tls, head);
        todo!()
    }
    /// Takes values out of headers or trailers; the names of what was found.
    pub fn redact_headers(&self, headers: &mut HeaderMap) -> Vec<String> {
        let _ = headers;
        todo!()
    }
    /// A streaming redactor for one body, or none where there is nothing to look for.
    pub fn redactor(&self) -> Option<Redactor> {
        todo!()
    }
    /// A streaming guard for one outgoing body, or none where there is nothing to look for.
    pub fn body_guard(&self) -> Option<BodyGuard> {
        todo!()
    }
}

/// Replaces values by placeholders in a stream cut anywhere; same length in, same length out.
#[derive(Debug)]
pub struct Redactor {}

impl Redactor {
    /// Takes a piece; appends to `out` what can be let go. Holds back only what may be the beginning of a match.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) {
        let _ = (piece, out);
        todo!()
    }
    /// The end of the stream: lets the rest go.
    pub fn finish(&mut self, out: &mut BytesMut) {
        let _ = out;
        todo!()
    }
    /// Names of what was found so far.
    pub fn found(&self) -> &[String] {
        todo!()
    }
}

/// Looks for real values in an outgoing body; the stream must be cut at the first `Leak`, before the piece is sent.
#[derive(Debug)]
pub struct BodyGuard {}

impl BodyGuard {
    /// Looks at a piece and appends to `out` what may be sent; the rest is held back until the next call.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        let _ = (piece, out);
        todo!()
    }
    /// The end of the stream.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        let _ = out;
        todo!()
    }
}
