//! Log-ins by password: the placeholders that may log in under a permit, and the real password's answers to challenges.
//!
//! The password is answered with here; what leaves is a proof, a hash, or bytes on the wire of a connection.
use super::{SessionSecrets, Value};
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
    /// What goes upstream instead; none where its source has no value.
    pub password: Option<Password>,
}

/// A real password. It answers challenges, and is never shown.
pub struct Password(Arc<Value>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[password]")
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
                password: binding.value.clone().map(Password),
            })
            .collect()
    }
}

impl Password {
    /// The answer to PostgreSQL's `AuthenticationMD5Password`.
    pub fn postgres_md5(&self, user: &str, salt: [u8; 4]) -> String {
        md5_hash(user.as_bytes(), self.0.bytes(), salt)
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
