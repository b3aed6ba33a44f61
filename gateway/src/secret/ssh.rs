//! Logging in over ssh: placeholder keys and passwords are recognised, the real ones are used here and never handed out.
pub use super::ssh_key::NoKey;
use super::ssh_key::{Key, RsaKey, SignFault};
use super::{Absence, Binding, SessionSecrets, Value};
use russh::client::{Handle, Handler, KeyboardInteractiveAuthResponse};
use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use sallyport_policy::Place;
use std::sync::Arc;

/// How often a host may ask for a password in the interactive way, each time with one question.
const QUESTIONS: usize = 3;

/// Why a log-in could not be tried to its end.
#[derive(Debug, thiserror::Error)]
pub enum LogInFault {
    /// The operator's: the credential has no value, or it is none for this place.
    #[error("the credential has no value that can be used")]
    NoValue,
    /// The source's: there is no value now.
    #[error("{}", .0.sentence)]
    Absent(Absence),
    /// The operator's.
    #[error(transparent)]
    NoKey(#[from] NoKey),
    /// The upstream's: the connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] russh::Error),
}

/// A fresh private key of the kind that stands for a value, in OpenSSH's form.
pub fn mint_key(value: &Value) -> Result<String, NoKey> {
    let kind = Key::read(value)?.placeholder_kind();
    let minted = PrivateKey::random(&mut safe_rng(), kind).map_err(|_| NoKey)?;
    let text = minted.to_openssh(LineEnding::LF).map_err(|_| NoKey)?;
    Ok(text.to_string())
}

/// Whether a placeholder is a key of the kind that stands for a value, and another one.
pub fn is_key_like(placeholder: &str, value: &Value) -> bool {
    match (PrivateKey::from_openssh(placeholder), Key::read(value)) {
        (Ok(placeholder), Ok(real)) => {
            placeholder.algorithm() == real.placeholder_kind() && !real.is(placeholder.public_key())
        }
        _ => false,
    }
}

impl SessionSecrets {
    /// The name of the credential whose placeholder this public key belongs to.
    pub fn ssh_key_owner(&self, offered: &PublicKey) -> Option<&str> {
        let owns = |binding: &&Binding| {
            binding
                .placeholders
                .iter()
                .filter_map(|text| PrivateKey::from_openssh(text).ok())
                .any(|key| key.public_key().key_data() == offered.key_data())
        };
        self.binding(&Place::SshKey, owns)
    }

    /// The name of the credential whose placeholder this password is. Constant time for one length.
    pub fn password_owner(&self, password: &str) -> Option<&str> {
        let owns = |binding: &&Binding| {
            binding.placeholders.iter().any(|text| {
                aws_lc_rs::constant_time::verify_slices_are_equal(text.as_bytes(), password.as_bytes())
                    .is_ok()
            })
        };
        self.binding(&Place::Password, owns)
    }

    fn binding(&self, place: &Place, owns: impl Fn(&&Binding) -> bool) -> Option<&str> {
        self.bindings
            .iter()
            .filter(|binding| binding.places.contains(place))
            .find(owns)
            .map(|binding| binding.name.as_str())
    }

    /// Logs in to a host with the value of a credential; whether the host let the user in.
    pub async fn ssh_log_in<H: Handler>(
        &self,
        name: &str,
        place: &Place,
        user: &str,
        host: &mut Handle<H>,
    ) -> Result<bool, LogInFault> {
        let binding = self.bindings.iter().find(|binding| binding.name == name);
        let value = binding
            .filter(|binding| binding.places.contains(place))
            .ok_or(LogInFault::NoValue)?
            .usable()
            .map_err(LogInFault::Absent)?;
        if *place == Place::SshKey {
            return match Key::read(&value)? {
                Key::Common(key) => {
                    let key = PrivateKeyWithHashAlg::new(Arc::from(key), None);
                    Ok(host.authenticate_publickey(user, key).await?.success())
                }
                Key::Rsa(key) => by_rsa(user, key, host).await,
            };
        }
        let password = std::str::from_utf8(value.bytes()).map_err(|_| LogInFault::NoValue)?;
        if host.authenticate_password(user, password).await?.success() {
            return Ok(true);
        }
        interactive(user, password, host).await
    }
}

/// With the better of the hashes that the host takes; the better one where it does not say (RFC 8332 section 3.3).
async fn by_rsa<H: Handler>(user: &str, mut key: RsaKey, host: &mut Handle<H>) -> Result<bool, LogInFault> {
    let hash = host.best_supported_rsa_hash().await?.flatten();
    let hash = Some(hash.unwrap_or(HashAlg::Sha512));
    let public = key.public()?;
    let shown = host
        .authenticate_publickey_with(user, public, hash, &mut key)
        .await;
    match shown {
        Ok(result) => Ok(result.success()),
        Err(SignFault::Key(fault)) => Err(fault.into()),
        Err(SignFault::Broken(_)) => Err(russh::Error::SendError.into()),
    }
}

/// Some hosts take a password in the interactive way only (RFC 4256): one hidden question, answered with it.
async fn interactive<H: Handler>(
    user: &str,
    password: &str,
    host: &mut Handle<H>,
) -> Result<bool, LogInFault> {
    let mut answer = host
        .authenticate_keyboard_interactive_start(user, None::<String>)
        .await?;
    for _ in 0..QUESTIONS {
        let answers = match answer {
            KeyboardInteractiveAuthResponse::Success => return Ok(true),
            KeyboardInteractiveAuthResponse::Failure { .. } => return Ok(false),
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => match prompts.as_slice() {
                [] => Vec::new(),
                [one] if !one.echo => vec![password.to_owned()],
                _ => return Ok(false),
            },
        };
        answer = host.authenticate_keyboard_interactive_respond(answers).await?;
    }
    Ok(matches!(answer, KeyboardInteractiveAuthResponse::Success))
}
