//! Signatures by one secret key for one scope: of a request, and of the chunks that follow it, each of which covers the one
//! before (S3 API reference, "Transferring Payload in Multiple Chunks").
use super::presented::{ALGORITHM, Scope};
use aws_lc_rs::{constant_time, digest, hmac};
use zeroize::Zeroizing;

/// What one key has signed so far.
pub(super) struct Chain {
    key: hmac::Key,
    /// `20261130T101500Z`.
    at: String,
    scope: String,
    last: String,
}

impl Chain {
    /// Nothing is signed yet. `at` lies on the scope's day.
    pub(super) fn new(secret: &str, scope: &Scope, at: &str) -> Self {
        let mut key = Zeroizing::new(format!("AWS4{secret}").into_bytes());
        for part in [
            &*scope.date,
            &*scope.region,
            &*scope.service,
            super::presented::TERMINATOR,
        ] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
            key = Zeroizing::new(tag.as_ref().to_vec());
        }
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            at: at.to_owned(),
            scope: scope.text(),
            last: String::new(),
        }
    }

    /// Signs a request, all of whose canonical form but the payload's hash is given.
    pub(super) fn request(&mut self, canonical: &[u8], payload: &str) -> &str {
        let mut whole = digest::Context::new(&digest::SHA256);
        whole.update(canonical);
        whole.update(payload.as_bytes());
        let text = format!(
            "{ALGORITHM}\n{}\n{}\n{}",
            self.at,
            self.scope,
            hex(whole.finish().as_ref())
        );
        self.sign(&text)
    }

    /// Signs a chunk, by the hash of its bytes.
    pub(super) fn chunk(&mut self, payload: &str) -> &str {
        let (at, scope, last, nothing) = (&self.at, &self.scope, &self.last, hash(&[]));
        let text = format!("{ALGORITHM}-PAYLOAD\n{at}\n{scope}\n{last}\n{nothing}\n{payload}");
        self.sign(&text)
    }

    /// Signs the fields behind the last chunk, by the hash of their canonical form.
    pub(super) fn trailer(&mut self, payload: &str) -> &str {
        let (at, scope, last) = (&self.at, &self.scope, &self.last);
        let text = format!("{ALGORITHM}-TRAILER\n{at}\n{scope}\n{last}\n{payload}");
        self.sign(&text)
    }

    fn sign(&mut self, text: &str) -> &str {
        self.last = hex(hmac::sign(&self.key, text.as_bytes()).as_ref());
        &self.last
    }
}

/// Whether two signatures are one, in constant time for one length.
pub(super) fn same(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// SHA-256, hex.
pub(super) fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
