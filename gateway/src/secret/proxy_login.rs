//! The log-in at the parent proxy: `Proxy-Authorization` is made here, written, and wiped.
use super::{SecretStore, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

/// A user and the name of the password in the gateway's store. The password is read for each connection, so that a new one
/// holds at once.
pub struct ProxyLogin {
    user: String,
    secret: String,
    store: Arc<SecretStore>,
}

impl fmt::Debug for ProxyLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyLogin")
            .field("user", &self.user)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

/// Why a request with the log-in was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LoginFault {
    /// The operator's: there is no password.
    #[error("{0}")]
    Missing(String),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ProxyLogin {
    /// `secret` is the password's name in the store.
    pub fn new(user: String, secret: String, store: Arc<SecretStore>) -> Self {
        Self { user, secret, store }
    }

    /// Writes a request head: the given lines (each with its line end), the log-in, and the empty line (RFC 7617).
    pub async fn send(&self, stream: &mut (impl AsyncWrite + Unpin), lines: &str) -> Result<(), LoginFault> {
        let password = self.password().await?;
        let mut pair = Zeroizing::new(Vec::with_capacity(self.user.len() + 1 + password.len()));
        pair.extend_from_slice(self.user.as_bytes());
        pair.push(b':');
        pair.extend_from_slice(password.bytes());
        // Room for all of it at once: a vector that grows leaves its old bytes behind.
        let mut head = Zeroizing::new(String::with_capacity(lines.len() + 64 + pair.len() * 2));
        head.push_str(lines);
        head.push_str("Proxy-Authorization: Basic ");
        STANDARD.encode_string(&*pair, &mut head);
        head.push_str("\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        Ok(stream.flush().await?)
    }

    async fn password(&self) -> Result<Value, LoginFault> {
        let (store, name) = (self.store.clone(), self.secret.clone());
        let read = tokio::task::spawn_blocking(move || store.value(&name))
            .await
            .map_err(|error| LoginFault::Missing(error.to_string()))?;
        read.map_err(|error| LoginFault::Missing(error.to_string()))?
            .ok_or_else(|| {
                LoginFault::Missing(format!(
                    "no secret `{0}` is in the gateway's store; set it with `secret set {0}`",
                    self.secret
                ))
            })
    }
}
