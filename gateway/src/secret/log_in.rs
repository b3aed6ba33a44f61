//! Log-ins by password: the placeholders that may log in under a permit, and the real password's answers to challenges.
//!
//! The password is answered with here; what leaves is a proof, a hash, or bytes on the wire of a connection.
use super::{Absence, SessionSecrets, Value};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use sallyport_policy::{Permit, Place};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

/// A credential with which one may log in by password.
#[derive(Debug)]
pub struct LogIn {
    /// Its name in the policy.
    pub name: String,
    /// What the agent may give as the password.
    pub placeholders: Vec<String>,
    /// What goes upstream instead; or why there is nothing.
    pub password: Result<Password, Absence>,
}

/// A real password. It answers challenges, and is never shown.
pub struct Password(Arc<Value>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[password]")
    }
}

/// The real name of a role, where the agent gave a placeholder. It goes upstream, and is never shown.
pub struct Role {
    /// The credential's name in the policy.
    pub credential: String,
    placeholder: String,
    value: Arc<Value>,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

impl Role {
    /// PostgreSQL's start-up message with the real name in the placeholder's place. The connection should be encrypted.
    pub fn in_start_up(&self, written: &[u8]) -> Zeroizing<Vec<u8>> {
        let named = |name: &[u8]| [b"user\0", name, b"\0"].concat();
        let (placeholder, real) = (
            named(self.placeholder.as_bytes()),
            Zeroizing::new(named(self.value.bytes())),
        );
        let Some(at) = memchr::memmem::find(written, &placeholder) else {
            return Zeroizing::new(written.to_vec());
        };
        let behind = &written[at + placeholder.len()..];
        let mut message = Zeroizing::new(Vec::with_capacity(written.len() + real.len()));
        message.extend_from_slice(&written[..at]);
        message.extend_from_slice(&real);
        message.extend_from_slice(behind);
        // A value is far too short for this to be cut off.
        let length = (message.len() as u32).to_be_bytes();
        message[..4].copy_from_slice(&length);
        message
    }
}

/// What a proof of the password is bound to (RFC 5802 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding<'a> {
    /// There is nothing to bind it to.
    None,
    /// There is, and the server does not offer to.
    NotOffered,
    /// The server's certificate: its hash as `tls-server-end-point` (RFC 5929 section 4).
    EndPoint(&'a [u8]),
}

/// The client's side of SCRAM-SHA-256 with a real password.
pub struct Scram(ScramSha256);

impl fmt::Debug for Scram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[scram]")
    }
}

impl SessionSecrets {
    /// The credentials that a permit carries and that stand for a password.
    pub fn log_ins(&self, permit: &Permit) -> Vec<LogIn> {
        self.bindings()
            .iter()
            .filter(|binding| binding.places.contains(&Place::Password) && permit.carries(&binding.name))
            .map(|binding| LogIn {
                name: binding.name.clone(),
                placeholders: binding.placeholders.clone(),
                password: binding.usable().map(Password),
            })
            .collect()
    }
}

impl SessionSecrets {
    /// The role that a user name stands for, where it is the placeholder of a credential for log-ins that a permit carries.
    pub fn role(&self, permit: &Permit, user: &str) -> Result<Option<Role>, Absence> {
        let named = self.bindings().iter().find(|binding| {
            binding.places.contains(&Place::Password)
                && permit.carries(&binding.name)
                && binding.placeholders.iter().any(|text| text == user)
        });
        let Some(binding) = named else { return Ok(None) };
        let value = binding.usable()?;
        if value.has_control_characters() {
            return Err(Absence {
                sentence: format!("the value of credential `{}` is no user name", binding.name),
                retry_after_s: None,
            });
        }
        Ok(Some(Role {
            credential: binding.name.clone(),
            placeholder: user.to_owned(),
            value,
        }))
    }
}

impl Password {
    /// The answer to PostgreSQL's `AuthenticationMD5Password`, of a user or of the role that the name stands for.
    pub fn postgres_md5(&self, user: &str, role: Option<&Role>, salt: [u8; 4]) -> String {
        let user = role.map_or(user.as_bytes(), |role| role.value.bytes());
        md5_hash(user, self.0.bytes(), salt)
    }

    /// Begins SCRAM-SHA-256 (RFC 5802, RFC 7677).
    pub fn scram(&self, binding: Binding<'_>) -> Scram {
        let binding = match binding {
            Binding::None => ChannelBinding::unsupported(),
            Binding::NotOffered => ChannelBinding::unrequested(),
            Binding::EndPoint(hash) => ChannelBinding::tls_server_end_point(hash.to_vec()),
        };
        Scram(ScramSha256::new(self.0.bytes(), binding))
    }

    /// Writes PostgreSQL's `PasswordMessage` with the password itself. The connection must be encrypted.
    pub async fn send_postgres_clear(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let value = self.0.bytes();
        let length = u32::try_from(value.len() + 5).map_err(io::Error::other)?;
        let mut message = Zeroizing::new(Vec::with_capacity(value.len() + 6));
        message.push(b'p');
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(value);
        message.push(0);
        to.write_all(&message).await?;
        to.flush().await
    }
}

impl Scram {
    /// The client's first message.
    pub fn first(&self) -> Vec<u8> {
        self.0.message().to_vec()
    }

    /// The client's last message, in answer to the server's first. The upstream's fault where it breaks SCRAM.
    pub fn answer(&mut self, server_first: &[u8]) -> io::Result<Vec<u8>> {
        self.0.update(server_first)?;
        Ok(self.0.message().to_vec())
    }

    /// Holds the server's last message against the password: it must know it too.
    pub fn finish(mut self, server_final: &[u8]) -> io::Result<()> {
        self.0.finish(server_final)
    }
}
