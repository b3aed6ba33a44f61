//! What Vault answers: values by field, and how long they last.
use super::login::Login;
use super::paths::Mount;
use crate::secret::Value;
use crate::secret::live::provider::{Fault, Fetched, Lease};
use crate::secret::live::web::wipe;
use http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::time::Duration;

/// An answer. Its texts are wiped when it is dropped.
pub(super) struct Answer {
    said: Said,
    /// When Vault answered, by its own clock; ours where it does not say.
    at: Timestamp,
}

/// What is read of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    lease_id: String,
    /// Seconds.
    lease_duration: u64,
    renewable: bool,
    data: Option<Json>,
    auth: Option<Auth>,
}

/// A token and how long it lasts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    client_token: String,
    /// Seconds.
    lease_duration: u64,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.said.data.iter_mut().for_each(wipe);
        if let Some(auth) = &mut self.said.auth {
            zeroize::Zeroize::zeroize(&mut auth.client_token);
        }
    }
}

impl Answer {
    /// Reads one; an empty one says nothing.
    pub(super) fn read(body: &[u8], date: Option<&HeaderValue>, now: Timestamp) -> Result<Self, String> {
        let said = match body.is_empty() {
            true => Said::default(),
            // The library's words may quote what it read.
            false => serde_json::from_slice(body)
                .map_err(|error| format!("no JSON of its kind, at column {}", error.column()))?,
        };
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok());
        Ok(Self {
            said,
            at: date.map_or(now, |date| date.timestamp()),
        })
    }

    /// How long the lease lasts, where one was renewed.
    pub(super) fn leased_for(&self) -> Duration {
        Duration::from_secs(self.said.lease_duration)
    }

    /// How long the token lasts, where one was renewed.
    pub(super) fn token_for(&self) -> Duration {
        let auth = self.said.auth.as_ref();
        Duration::from_secs(auth.map_or(0, |auth| auth.lease_duration))
    }

    /// How far Vault's clock is before ours.
    pub(super) fn ahead(&self, now: Timestamp) -> jiff::SignedDuration {
        self.at.duration_since(now)
    }

    /// What stands in `data`, by a name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.said.data.as_ref()?.get(name)?.as_str()
    }

    /// A number in `data`.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.said.data.as_ref()?.get(name)?.as_u64()
    }

    /// Whether something in `data` holds.
    pub(super) fn holds(&self, name: &str) -> bool {
        let data = self.said.data.as_ref().and_then(|data| data.get(name));
        data.and_then(Json::as_bool).unwrap_or(false)
    }

    /// The engine, where this tells of one.
    pub(super) fn mount(&self) -> Option<Mount> {
        let data = self.said.data.as_ref()?;
        let version = data.get("options").and_then(|options| options.get("version"));
        Some(Mount {
            path: data.get("path")?.as_str()?.trim_end_matches('/').to_owned(),
            versioned: data.get("type").and_then(Json::as_str) == Some("kv")
                && version.and_then(Json::as_str) == Some("2"),
        })
    }

    /// The values, and how long they may be used.
    pub(super) fn fetched(mut self, path: &str, login: &Login) -> Result<Fetched, Fault> {
        let nothing = || Fault::lasting(format!("Vault has nothing at `{path}`"));
        let mut data = match self.said.data.take() {
            Some(Json::Object(data)) => data,
            _ => return Err(nothing()),
        };
        // KV version 2: the values are in a `data` of their own, beside what is known of the version.
        if data.len() == 2 && data.contains_key("metadata") && data.contains_key("data") {
            match data.remove("data") {
                Some(Json::Object(inner)) => data = inner,
                _ => {
                    return Err(Fault::lasting(format!(
                        "the latest version of `{path}` in Vault is deleted"
                    )));
                }
            }
        }
        let valid_for = self.valid_for(&data, path)?;
        let mut fields: BTreeMap<String, Value> = BTreeMap::new();
        if let Some(pem) = identity(&data) {
            fields.insert("pem".to_owned(), pem);
        }
        if data.contains_key("access_key") && data.contains_key("secret_key") {
            let mut whole = Json::Object(data.clone());
            fields.insert("keys".to_owned(), Value::new(whole.to_string().into_bytes()));
            wipe(&mut whole);
        }
        for (name, json) in data {
            let bytes = match json {
                Json::Null => continue,
                Json::String(text) => text.into_bytes(),
                mut other => {
                    let bytes = other.to_string().into_bytes();
                    wipe(&mut other);
                    bytes
                }
            };
            fields.insert(name, Value::new(bytes));
        }
        let lease = (!self.said.lease_id.is_empty()).then(|| Lease {
            id: self.said.lease_id.clone(),
            renewable: self.said.renewable,
            span: Duration::from_secs(self.said.lease_duration),
        });
        Ok(Fetched {
            parent: lease.as_ref().map(|_| login.parent()),
            fields,
            lease,
            valid_for,
        })
    }

    /// By the lease; a certificate's end by Vault's own clock; a static role's password until it is changed.
    fn valid_for(&self, data: &Map<String, Json>, path: &str) -> Result<Option<Duration>, Fault> {
        if !self.said.lease_id.is_empty() {
            return Ok(Some(Duration::from_secs(self.said.lease_duration)));
        }
        let number = |name: &str| data.get(name).and_then(Json::as_i64);
        if let Some(expires) = number("expiration").filter(|_| data.contains_key("certificate")) {
            let left = u64::try_from(expires.saturating_sub(self.at.as_second()))
                .ok()
                .filter(|left| *left > 0);
            let left = left.ok_or_else(|| {
                Fault::lasting(format!(
                    "what Vault issued at `{path}` had ended by Vault's own clock"
                ))
            })?;
            return Ok(Some(Duration::from_secs(left)));
        }
        let rotates = data
            .contains_key("last_vault_rotation")
            .then(|| number("ttl"))
            .flatten();
        Ok(rotates
            .and_then(|ttl| u64::try_from(ttl).ok())
            .map(Duration::from_secs))
    }
}

/// Certificate, chain and key of the PKI engine in one PEM, as the place `client-certificate` wants them.
fn identity(data: &Map<String, Json>) -> Option<Value> {
    let text = |name: &str| data.get(name).and_then(Json::as_str);
    let (certificate, key) = (text("certificate")?, text("private_key")?);
    let chain = data.get("ca_chain").and_then(Json::as_array);
    let chain = chain.into_iter().flatten().filter_map(Json::as_str);
    let mut pem = Vec::new();
    for part in std::iter::once(certificate).chain(chain).chain([key]) {
        pem.extend_from_slice(part.trim().as_bytes());
        pem.push(b'\n');
    }
    Some(Value::new(pem))
}
