//! Private keys for ssh as values hold them. Those of RSA (RFC 8332), which the library for ssh leaves out, are read here and signed
//! with by the one library for cryptography that is linked.
use super::Value;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512};
use crypto_bigint::{BoxedUint, NonZero};
use russh::Signer;
use russh::keys::agent::AgentIdentity;
use russh::keys::ssh_key::private::{KeypairData, RsaKeypair};
use russh::keys::ssh_key::public::{KeyData, RsaPublicKey};
use russh::keys::ssh_key::{Mpint, PrivateKey};
use russh::keys::{Algorithm, HashAlg, PublicKey, decode_secret_key};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use zeroize::Zeroizing;

/// Why a value is no key. The operator's to mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its value is no private key that is read here: it must be Ed25519, ECDSA, or RSA of 2048 to 8192 bits, in the form of OpenSSH, \
     PKCS#8, PKCS#1 or SEC 1, without a passphrase"
)]
pub struct NoKey;

/// A key that a host may know.
pub(super) enum Key {
    /// Of a kind that the library for ssh signs with.
    Common(Box<PrivateKey>),
    /// RSA.
    Rsa(RsaKey),
}

impl Key {
    /// Reads a value.
    pub(super) fn read(value: &Value) -> Result<Self, NoKey> {
        let text = std::str::from_utf8(value.bytes()).map_err(|_| NoKey)?;
        if let Some(key) = RsaKey::read(text)? {
            return Ok(Self::Rsa(key));
        }
        let key = decode_secret_key(text, None).map_err(|_| NoKey)?;
        match key.is_encrypted() {
            true => Err(NoKey),
            false => Ok(Self::Common(Box::new(key))),
        }
    }

    /// The kind of its placeholder: its own, or Ed25519 for RSA. Every client has that, and what the agent shows is not what the host
    /// sees.
    pub(super) fn placeholder_kind(&self) -> Algorithm {
        match self {
            Self::Common(key) => key.algorithm(),
            Self::Rsa(_) => Algorithm::Ed25519,
        }
    }

    /// Whether this is its public half.
    pub(super) fn is(&self, public: &PublicKey) -> bool {
        match self {
            Self::Common(key) => key.public_key() == public,
            Self::Rsa(key) => key.public().is_ok_and(|own| own == *public),
        }
    }
}

/// A key of 2048 bits or more.
pub(super) struct RsaKey(KeyPair);

impl RsaKey {
    /// Reads a private key in the form of OpenSSH, PKCS#8 or PKCS#1; none where it is one of another kind.
    pub(super) fn read(text: &str) -> Result<Option<Self>, NoKey> {
        if let Ok(key) = PrivateKey::from_openssh(text) {
            return match key.key_data() {
                KeypairData::Rsa(pair) => assemble(pair).map(Some),
                _ => Ok(None),
            };
        }
        match rustls_pemfile::read_one(&mut text.as_bytes()) {
            Ok(Some(rustls_pemfile::Item::Pkcs1Key(key))) => KeyPair::from_der(key.secret_pkcs1_der())
                .map(|pair| Some(Self(pair)))
                .map_err(|_| NoKey),
            Ok(Some(rustls_pemfile::Item::Pkcs8Key(key))) => {
                Ok(KeyPair::from_pkcs8(key.secret_pkcs8_der()).ok().map(Self))
            }
            _ => Ok(None),
        }
    }

    /// What hosts know it by.
    pub(super) fn public(&self) -> Result<PublicKey, NoKey> {
        let der = self.0.public_key();
        let (_, parts) = RSAPublicKey::from_der(der.as_ref()).map_err(|_| NoKey)?;
        let number = Mpint::from_positive_bytes;
        let key = RsaPublicKey::new(number(parts.exponent), number(parts.modulus));
        Ok(PublicKey::from(KeyData::Rsa(key.map_err(|_| NoKey)?)))
    }

    /// A signature as it stands in a log-in: its algorithm's name and its bytes (RFC 8332 section 3).
    fn sign(&self, hash: HashAlg, text: &[u8]) -> Result<Vec<u8>, NoKey> {
        let (name, padding) = match hash {
            HashAlg::Sha256 => ("rsa-sha2-256", &RSA_PKCS1_SHA256),
            _ => ("rsa-sha2-512", &RSA_PKCS1_SHA512),
        };
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0
            .sign(padding, &SystemRandom::new(), text, &mut signature)
            .map_err(|_| NoKey)?;
        Ok([string(name.as_bytes()), string(&signature)].concat())
    }
}

/// A string of the protocol (RFC 4251 section 5); nothing here is longer than some kilobytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], bytes].concat()
}

/// OpenSSH keeps all of a key but two numbers that follow from the others.
fn assemble(pair: &RsaKeypair) -> Result<RsaKey, NoKey> {
    let bytes = |number: &Mpint| number.as_positive_bytes().map(<[u8]>::to_vec).ok_or(NoKey);
    let secret = |number: &Mpint| bytes(number).map(Zeroizing::new);
    let (public, private) = (pair.public(), pair.private());
    let (d, p, q) = (secret(private.d())?, secret(private.p())?, secret(private.q())?);
    let (d_p, d_q) = (exponent(&d, &p)?, exponent(&d, &q)?);
    let components = KeyPairComponents {
        public_key: PublicKeyComponents {
            n: Zeroizing::new(bytes(public.n())?),
            e: Zeroizing::new(bytes(public.e())?),
        },
        dP: d_p,
        dQ: d_q,
        qInv: secret(private.iqmp())?,
        d,
        p,
        q,
    };
    KeyPair::from_components(&components)
        .map(RsaKey)
        .map_err(|_| NoKey)
}

/// `d mod (prime - 1)`, in time that does not depend on them.
fn exponent(d: &[u8], prime: &[u8]) -> Result<Zeroizing<Vec<u8>>, NoKey> {
    let bits = u32::try_from(d.len().max(prime.len()) * 8).map_err(|_| NoKey)?;
    let number = |bytes: &[u8]| BoxedUint::from_be_slice(bytes, bits).map_err(|_| NoKey);
    let mut less = Zeroizing::new(prime.to_vec());
    // A prime that is used here is odd.
    if let Some(last) = less.last_mut() {
        *last &= !1;
    }
    let modulus = Option::from(NonZero::new(number(&less)?)).ok_or(NoKey)?;
    let rest = number(d)?.rem(&modulus);
    let whole = Zeroizing::new(rest.to_be_bytes().to_vec());
    let zeros = whole.iter().take_while(|byte| **byte == 0).count();
    Ok(Zeroizing::new(whole[zeros..].to_vec()))
}

/// Why a signature was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignFault {
    #[error(transparent)]
    Key(#[from] NoKey),
    #[error("the connection broke: {0}")]
    Broken(#[from] russh::SendError),
}

impl Signer for RsaKey {
    type Error = SignFault;

    /// The text with its signature behind it, as agents for ssh give it.
    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        hash: Option<HashAlg>,
        text: Vec<u8>,
    ) -> Result<Vec<u8>, SignFault> {
        let signature = self.sign(hash.unwrap_or(HashAlg::Sha512), &text)?;
        Ok([text, string(&signature)].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey};

    #[test]
    fn both_kinds_of_signature_are_made_and_hold() {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let encoded = {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(pkcs8.as_ref())
        };
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
        let key = RsaKey::read(&pem).unwrap().unwrap();
        assert!(key.public().unwrap().algorithm().is_rsa());
        for (hash, name, check) in [
            (HashAlg::Sha256, "rsa-sha2-256", &RSA_PKCS1_2048_8192_SHA256),
            (HashAlg::Sha512, "rsa-sha2-512", &RSA_PKCS1_2048_8192_SHA512),
        ] {
            let signed = key.sign(hash, b"text").unwrap();
            let signature = signed.strip_prefix(&string(name.as_bytes())[..]).unwrap();
            let public = UnparsedPublicKey::new(check, pair.public_key().as_ref());
            public.verify(b"text", &signature[4..]).unwrap();
        }
    }
}
