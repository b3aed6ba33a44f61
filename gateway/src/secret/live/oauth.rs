//! Access tokens of OAuth 2.0: by client credentials, or by a refresh token (RFC 6749 sections 4.4 and 6); given back where the server
//! takes them back (RFC 7009).
use super::own::{Named, Own};
use super::provider::{Fault, Fetched, Lease, Provider, Wanted};
use super::web::{self, Faults, Held, Reply, Web};
use crate::secret::Value;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use sallyport_policy::{Source, Who};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use url::Url;
use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

/// Letters of an error code that are shown.
const CODE: usize = 60;

/// One entry of the section `oauth`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// The token endpoint.
    token_url: String,
    /// Where tokens are given back, if the server has such a place.
    revocation_url: Option<String>,
    /// PEM file of the authorities that its certificate is checked with; without it, those of the system.
    ca: Option<PathBuf>,
    client_id: String,
    /// Absent for a public client, which needs a refresh token.
    client_secret: Option<Named>,
    /// With it tokens are refreshed; without, they are the client's own.
    refresh_token: Option<Named>,
    scope: Option<String>,
    /// Further parameters, such as `audience`.
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    /// Where the client's id and secret stand.
    #[serde(default)]
    authentication: Authentication,
}

/// Where the client's id and secret stand (RFC 6749 section 2.3.1).
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Authentication {
    /// In `Authorization`.
    #[default]
    Basic,
    /// In the body.
    Body,
}

/// One log-in.
#[derive(Debug)]
struct Login {
    settings: Settings,
    token_url: Url,
    revocation_url: Option<Url>,
    web: Web,
    /// The refresh token of today, where the server gave another than the named one, with that; one refresh at a time.
    refreshed: Mutex<Option<Refreshed>>,
}

/// A refresh token that came in place of another.
struct Refreshed {
    named: Value,
    now: Value,
}

impl std::fmt::Debug for Refreshed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refreshed")
    }
}

/// All log-ins of a gateway.
#[derive(Debug)]
pub(super) struct Logins {
    logins: BTreeMap<String, Login>,
    own: Arc<Own>,
    /// Tokens that can be given back.
    held: Held,
    faults: Faults,
}

/// A form's body. What it holds is wiped with it.
struct Form(Zeroizing<String>);

impl Form {
    fn new() -> Self {
        Self(Zeroizing::new(String::with_capacity(4096)))
    }

    fn with(mut self, name: &str, value: &[u8]) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.extend(byte_serialize(name.as_bytes()));
        self.0.push('=');
        self.0.extend(byte_serialize(value));
        self
    }
}

impl Settings {
    /// The gateway's own secrets in it.
    pub(super) fn named(&self) -> impl Iterator<Item = Named> {
        self.client_secret
            .iter()
            .chain(&self.refresh_token)
            .cloned()
            .collect::<Vec<_>>()
            .into_iter()
    }
}

impl Logins {
    /// Checks the settings; an error says what is wrong with them.
    pub(super) fn new(all: BTreeMap<String, Settings>, own: Arc<Own>) -> Result<Self, String> {
        let mut logins = BTreeMap::new();
        for (name, settings) in all {
            let login = Login::new(&name, settings, &own).map_err(|what| format!("`{name}`: {what}"))?;
            logins.insert(name, login);
        }
        Ok(Self {
            logins,
            own,
            held: Held::default(),
            faults: Faults::default(),
        })
    }

    fn login(&self, from: &Source) -> Result<(&str, &Login), String> {
        let Source::Oauth(name) = from else {
            return Err("it is no token of OAuth".to_owned());
        };
        let found = self.logins.get_key_value(name);
        found
            .map(|(name, login)| (name.as_str(), login))
            .ok_or_else(|| format!("`oauth` in `sources.yaml` has no `{name}`; the operator adds it there"))
    }

    async fn read(&self, what: &str, named: &Named) -> Result<Value, Fault> {
        let (own, named) = (self.own.clone(), named.clone());
        let read = tokio::task::spawn_blocking(move || own.read(&named)).await;
        read.map_err(|error| error.to_string())
            .and_then(|read| read)
            .map_err(|why| Fault::lasting(format!("the log-in's `{what}` cannot be read: {why}")))
    }

    /// One request of a client that says who it is.
    async fn ask(&self, login: &Login, url: &Url, form: Form) -> Result<Reply, Fault> {
        let settings = &login.settings;
        let mut form = form;
        let mut request = login.web.http().post(url.clone());
        let secret = match &settings.client_secret {
            Some(named) => Some(self.read("client-secret", named).await?),
            None => None,
        };
        match (secret, settings.authentication) {
            (Some(secret), Authentication::Basic) => {
                request = request.header(AUTHORIZATION, basic(&settings.client_id, &secret)?);
            }
            (Some(secret), Authentication::Body) => {
                form = form
                    .with("client_id", settings.client_id.as_bytes())
                    .with("client_secret", secret.bytes());
            }
            (None, _) => form = form.with("client_id", settings.client_id.as_bytes()),
        }
        let request = request
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.0.as_bytes().to_vec());
        login.web.send(request).await
    }

    async fn token(&self, name: &str, login: &Login) -> Result<Fetched, Fault> {
        let reply = match &login.settings.refresh_token {
            None => {
                let form = login.scoped(Form::new().with("grant_type", b"client_credentials"));
                self.ask(login, &login.token_url, form).await?
            }
            Some(named) => self.refresh(login, named).await?,
        };
        if !reply.status.is_success() {
            return Err(login.refused(&reply));
        }
        let json = &reply.json.0;
        let token = json["access_token"]
            .as_str()
            .ok_or_else(|| login.web.lacks("access_token"))?;
        if !json["token_type"]
            .as_str()
            .is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"))
        {
            return Err(Fault::lasting(
                "the server gives tokens of another type than `Bearer`",
            ));
        }
        let span = json["expires_in"].as_u64().map(Duration::from_secs);
        let value = || Value::new(token.as_bytes().to_vec());
        let lease = login.revocation_url.as_ref().map(|_| Lease {
            id: self.held.keep(name, value()),
            renewable: false,
            span: span.unwrap_or_default(),
        });
        Ok(Fetched {
            fields: BTreeMap::from([(String::new(), value())]),
            lease,
            valid_for: span,
            parent: None,
        })
    }

    /// Asks by the refresh token, and keeps the one that comes in its place: the old one may be worth nothing from then on.
    async fn refresh(&self, login: &Login, named: &Named) -> Result<Reply, Fault> {
        let mut refreshed = login.refreshed.lock().await;
        let kept = self.read("refresh-token", named).await?;
        let token = match &*refreshed {
            // The operator has not set another one meanwhile.
            Some(before) if before.named.is_same(&kept) => &before.now,
            _ => &kept,
        };
        let form = Form::new()
            .with("grant_type", b"refresh_token")
            .with("refresh_token", token.bytes());
        let reply = self.ask(login, &login.token_url, login.scoped(form)).await?;
        if !reply.status.is_success() {
            return Err(login.refused(&reply));
        }
        if let Some(next) = reply.json.0["refresh_token"].as_str()
            && next.as_bytes() != token.bytes()
        {
            let next = || Value::new(next.as_bytes().to_vec());
            match self.own.replace(named, next()).await {
                Ok(()) => *refreshed = None,
                Err(why) => {
                    tracing::warn!(
                        why,
                        "the new refresh token of an OAuth log-in is kept until the gateway stops"
                    );
                    *refreshed = Some(Refreshed {
                        named: kept,
                        now: next(),
                    });
                }
            }
        }
        Ok(reply)
    }
}

impl Login {
    fn new(name: &str, settings: Settings, own: &Own) -> Result<Self, String> {
        if settings.client_secret.is_none() && settings.refresh_token.is_none() {
            return Err(
                "it has neither `client-secret` nor `refresh-token`, so that anybody could be this client"
                    .to_owned(),
            );
        }
        let given = [
            "grant_type",
            "client_id",
            "client_secret",
            "refresh_token",
            "scope",
        ];
        if let Some(wrong) = given.iter().find(|name| settings.parameters.contains_key(**name)) {
            return Err(format!("`parameters` cannot have `{wrong}`"));
        }
        let ca = own.pem(settings.ca.as_deref())?;
        let revocation = settings.revocation_url.as_deref();
        Ok(Self {
            token_url: web::address("token-url", &settings.token_url)?,
            revocation_url: revocation
                .map(|text| web::address("revocation-url", text))
                .transpose()?,
            web: Web::new(format!("the server of OAuth log-in `{name}`"), ca.as_deref())?,
            settings,
            refreshed: Mutex::new(None),
        })
    }

    fn scoped(&self, form: Form) -> Form {
        let scope = self.settings.scope.iter().map(|scope| ("scope", scope));
        let others = self
            .settings
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value));
        scope
            .chain(others)
            .fold(form, |form, (name, value)| form.with(name, value.as_bytes()))
    }

    /// By the error code (RFC 6749 section 5.2); descriptions may quote what was sent.
    fn refused(&self, reply: &Reply) -> Fault {
        let code = reply.json.0["error"].as_str().unwrap_or_default();
        let code: String = code
            .chars()
            .filter(|c| c.is_ascii_lowercase() || *c == '_')
            .take(CODE)
            .collect();
        self.web.refused(reply.status, &code)
    }
}

/// The client's id and secret in `Authorization`, each form-encoded first (RFC 6749 section 2.3.1).
fn basic(id: &str, secret: &Value) -> Result<HeaderValue, Fault> {
    let pair = Zeroizing::new(
        byte_serialize(id.as_bytes())
            .chain([":"])
            .chain(byte_serialize(secret.bytes()))
            .collect::<String>(),
    );
    let text = Zeroizing::new(format!(
        "Basic {}",
        Zeroizing::new(STANDARD.encode(pair.as_bytes())).as_str()
    ));
    let mut header =
        HeaderValue::from_str(&text).map_err(|_| Fault::lasting("the client's secret cannot be sent"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[async_trait]
impl Provider for Logins {
    fn admits(&self, from: &Source, _who: &Who) -> Result<(), String> {
        self.login(from).map(drop)
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault> {
        let (name, login) = self.login(&wanted.from).map_err(Fault::lasting)?;
        let done = self.token(name, login).await;
        self.faults.note(name, &done);
        done
    }

    async fn renew(&self, _lease: &Lease) -> Result<Duration, Fault> {
        Err(Fault::lasting("tokens of OAuth are not renewed but replaced"))
    }

    /// After a restart of the gateway there is nothing to give back with: the token ends by itself.
    async fn revoke(&self, lease: &str) -> Result<(), Fault> {
        let Some((name, token)) = self.held.get(lease) else {
            return Ok(());
        };
        let (_, login) = self.login(&Source::Oauth(name)).map_err(Fault::lasting)?;
        if let Some(url) = &login.revocation_url {
            let form = Form::new()
                .with("token", token.bytes())
                .with("token_type_hint", b"access_token");
            let reply = self.ask(login, url, form).await?;
            // One that the server does not know is no error (RFC 7009 section 2.2).
            if !reply.status.is_success() {
                return Err(login.refused(&reply));
            }
        }
        self.held.forget(lease);
        Ok(())
    }

    fn fault(&self) -> Option<String> {
        self.faults.told("OAuth log-in")
    }
}

#[cfg(test)]
mod tests;
