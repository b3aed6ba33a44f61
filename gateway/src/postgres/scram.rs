//! PURE: the server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), held against the placeholders that may log in.
use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::num::NonZeroU32;

/// Name of the mechanism.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// The same, bound to the TLS connection (RFC 7677); towards upstreams alone.
pub(super) const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";
/// PostgreSQL's own number of rounds.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// What breaks the exchange; the client's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log-in breaks SCRAM: {0}")]
pub(super) struct ScramFault(&'static str);

/// Random parts of an exchange.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    /// Salt, which the client computes with.
    pub(super) salt: [u8; 16],
    /// The server's half of the nonce.
    pub(super) nonce: [u8; 18],
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub(super) struct Exchange {
    salt: [u8; 16],
    nonce: String,
    binding: String,
    client_first: String,
    server_first: String,
}

/// A proof that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proved {
    /// Which candidate.
    pub(super) candidate: usize,
    /// The server's last message.
    pub(super) server_final: String,
}

impl Exchange {
    /// Reads the client's first message. Its user name is not looked at, as PostgreSQL does: the start-up message names the role.
    pub(super) fn begin(client_first: &[u8], fresh: &Fresh) -> Result<Self, ScramFault> {
        let text = std::str::from_utf8(client_first).map_err(|_| ScramFault("a message is not UTF-8"))?;
        let mut parts = text.splitn(3, ',');
        let (flag, identity, bare) = (parts.next(), parts.next(), parts.next());
        match flag {
            Some("n" | "y") => {}
            Some(flag) if flag.starts_with("p=") => {
                return Err(ScramFault("channel binding was not offered"));
            }
            _ => return Err(ScramFault("the first message has no channel binding flag")),
        }
        if identity != Some("") {
            return Err(ScramFault("an authorization identity is not taken"));
        }
        let bare = bare.ok_or(ScramFault("the first message is too short"))?;
        let mut fields = bare.split(',');
        let named = fields.next().is_some_and(|name| name.starts_with("n="));
        let nonce = fields.next().and_then(|nonce| nonce.strip_prefix("r="));
        let Some(nonce) = nonce.filter(|nonce| named && is_nonce(nonce)) else {
            return Err(ScramFault("the first message has no name or no nonce"));
        };
        let nonce = format!("{nonce}{}", STANDARD.encode(fresh.nonce));
        Ok(Self {
            server_first: format!("r={nonce},s={},i={ROUNDS}", STANDARD.encode(fresh.salt)),
            salt: fresh.salt,
            nonce,
            binding: STANDARD.encode(format!("{},,", flag.unwrap_or_default())),
            client_first: bare.to_owned(),
        })
    }

    /// The server's first message.
    pub(super) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Holds the client's last message against each candidate. None: it knows none of them.
    pub(super) fn verify<'a>(
        &self,
        client_final: &[u8],
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Proved>, ScramFault> {
        let text = std::str::from_utf8(client_final).map_err(|_| ScramFault("a message is not UTF-8"))?;
        let (without_proof, proof) = text
            .rsplit_once(",p=")
            .ok_or(ScramFault("the last message has no proof"))?;
        let mut fields = without_proof.split(',');
        if fields.next() != Some(format!("c={}", self.binding).as_str()) {
            return Err(ScramFault("the channel binding is not that of the first message"));
        }
        if fields.next() != Some(format!("r={}", self.nonce).as_str()) {
            return Err(ScramFault("the nonce is not that of this exchange"));
        }
        let proof = STANDARD.decode(proof).ok();
        let proof: [u8; 32] = proof
            .and_then(|proof| proof.try_into().ok())
            .ok_or(ScramFault("the proof is no base64 of 32 bytes"))?;
        let said = format!("{},{},{without_proof}", self.client_first, self.server_first);
        for (candidate, password) in candidates.into_iter().enumerate() {
            let salted = salted(password, &self.salt);
            let client_key = sign(&salted, b"Client Key");
            let stored = digest::digest(&digest::SHA256, client_key.as_ref());
            let signature = sign(stored.as_ref(), said.as_bytes());
            let mut proved = proof;
            for (byte, mask) in proved.iter_mut().zip(signature.as_ref()) {
                *byte ^= mask;
            }
            let proved = digest::digest(&digest::SHA256, &proved);
            if constant_time::verify_slices_are_equal(proved.as_ref(), stored.as_ref()).is_ok() {
                let server_key = sign(&salted, b"Server Key");
                let verifier = sign(server_key.as_ref(), said.as_bytes());
                return Ok(Some(Proved {
                    candidate,
                    server_final: format!("v={}", STANDARD.encode(verifier)),
                }));
            }
        }
        Ok(None)
    }
}

/// Printable ASCII but the comma (RFC 5802 section 5.1).
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// Normalised as PostgreSQL does it: as it stands where SASLprep (RFC 4013) does not take it.
fn salted(password: &str, salt: &[u8]) -> [u8; 32] {
    let prepared = stringprep::saslprep(password);
    let password = prepared.as_deref().unwrap_or(password);
    let mut salted = [0; 32];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        ROUNDS,
        salt,
        password.as_bytes(),
        &mut salted,
    );
    salted
}

fn sign(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    const FRESH: Fresh = Fresh {
        salt: [7; 16],
        nonce: [9; 18],
    };

    fn log_in(password: &str, candidates: &[&str]) -> Option<usize> {
        let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unrequested());
        let exchange = Exchange::begin(client.message(), &FRESH).unwrap();
        client.update(exchange.server_first().as_bytes()).unwrap();
        let proved = exchange
            .verify(client.message(), candidates.iter().copied())
            .unwrap()?;
        client.finish(proved.server_final.as_bytes()).unwrap();
        Some(proved.candidate)
    }

    #[test]
    fn a_real_client_logs_in_with_any_of_the_placeholders_and_with_nothing_else() {
        assert_eq!(log_in("second", &["first", "second"]), Some(1));
        assert_eq!(log_in("I\u{ad}X", &["IX"]), Some(0), "prepared by RFC 4013");
        assert_eq!(log_in("third", &["first", "second"]), None);
        assert_eq!(log_in("third", &[]), None);
    }

    #[test]
    fn a_broken_exchange_is_refused() {
        for text in [
            "",
            "n",
            "n,,",
            "n,,n=a",
            "n,,r=x",
            "n,a=root,n=,r=x",
            "p=tls-unique,,n=,r=x",
            "x,,n=,r=a",
        ] {
            assert!(Exchange::begin(text.as_bytes(), &FRESH).is_err(), "{text}");
        }
        let exchange = Exchange::begin(b"n,,n=,r=abc", &FRESH).unwrap();
        let nonce = &exchange.nonce;
        for text in [
            String::new(),
            "c=biws,r=abc,p=AAAA".to_owned(),
            format!("c=eSws,r={nonce},p={}", STANDARD.encode([0; 32])),
            format!("c=biws,r={nonce},p=AAAA"),
            format!("c=biws,r={nonce}"),
        ] {
            assert!(exchange.verify(text.as_bytes(), ["a"]).is_err(), "{text}");
        }
    }
}
