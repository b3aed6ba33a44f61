//! Installation tokens of GitHub Apps, cut down to a run's repositories and to what the policy asks for.
//!
//! Reference: <https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-an-installation-access-token-for-a-github-app>.
mod scope;

use super::own::{Named, Own};
use super::provider::{Fault, Fetched, Lease, Provider, Wanted};
use super::web::{self, Faults, Held, Reply, Web};
use crate::secret::Value;
use async_trait::async_trait;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::{Method, RequestBuilder, StatusCode};
use sallyport_policy::{Source, Who};
use scope::{Bounds, Level, Scope};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Where GitHub's own API is.
const API: &str = "https://api.github.com/";
const ACCEPT: &str = "application/vnd.github+json";
const API_VERSION: &str = "2022-11-28";
/// A JWT may last ten minutes, and is dated back for clocks that are behind.
const JWT_SECONDS: i64 = 540;
const JWT_BACK: i64 = 60;
/// One entry of the section `github-apps`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// The app's id, or its client id.
    app_id: String,
    /// Its private key, PEM.
    private_key: Named,
    /// The API of another GitHub than the public one.
    api: Option<String>,
    /// PEM file of the authorities that its certificate is checked with; without it, those of the system.
    ca: Option<PathBuf>,
    /// What policies may name: `owner/name`, or `owner/*`.
    repositories: Vec<String>,
    /// What policies may ask for at most: `read` or `write` by name. A policy that asks for nothing gets these.
    permissions: BTreeMap<String, Level>,
}

/// One app.
#[derive(Debug)]
struct App {
    app_id: String,
    private_key: Named,
    bounds: Bounds,
    api: Url,
    web: Web,
}

/// All apps of a gateway.
#[derive(Debug)]
pub(super) struct GithubApps {
    apps: BTreeMap<String, App>,
    own: Arc<Own>,
    /// Tokens that were given.
    held: Held,
    faults: Faults,
}

/// What an app says of itself (RFC 7519).
#[derive(Serialize)]
struct Claims<'a> {
    iat: i64,
    exp: i64,
    iss: &'a str,
}

impl Settings {
    /// The gateway's own secrets in it.
    pub(super) fn named(&self) -> Named {
        self.private_key.clone()
    }
}

impl GithubApps {
    /// Checks the settings; an error says what is wrong with them.
    pub(super) fn new(all: BTreeMap<String, Settings>, own: Arc<Own>) -> Result<Self, String> {
        let mut apps = BTreeMap::new();
        for (name, settings) in all {
            let app = App::new(&name, settings, &own).map_err(|what| format!("`{name}`: {what}"))?;
            apps.insert(name, app);
        }
        Ok(Self {
            apps,
            own,
            held: Held::default(),
            faults: Faults::default(),
        })
    }

    fn app(&self, name: &str) -> Result<&App, String> {
        self.apps.get(name).ok_or_else(|| {
            format!("`github-apps` in `sources.yaml` has no app `{name}`; the operator adds it there")
        })
    }

    /// A token of an app for itself, good for some minutes.
    async fn jwt(&self, app: &App) -> Result<Value, Fault> {
        let (own, named) = (self.own.clone(), app.private_key.clone());
        let key = tokio::task::spawn_blocking(move || own.read(&named)).await;
        let key = key
            .map_err(|error| error.to_string())
            .and_then(|read| read)
            .map_err(|why| Fault::lasting(format!("the app's `private-key` cannot be read: {why}")))?;
        let key = EncodingKey::from_rsa_pem(key.bytes())
            .map_err(|_| Fault::lasting("the app's `private-key` is no RSA key in PEM"))?;
        let now = app.web.now().as_second();
        let claims = Claims {
            iat: now - JWT_BACK,
            exp: now + JWT_SECONDS,
            iss: &app.app_id,
        };
        let jwt = jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &key)
            .map_err(|_| Fault::lasting("the app's `private-key` cannot sign"))?;
        Ok(Value::new(jwt.into_bytes()))
    }

    /// Asks as the app; once more by GitHub's clock, where that is another.
    async fn ask(
        &self,
        (name, app): (&str, &App),
        request: impl Fn(&App) -> RequestBuilder,
    ) -> Result<Reply, Fault> {
        let asking = async {
            let before = app.web.now();
            let mut reply = app.send(request(app), &self.jwt(app).await?).await?;
            let clock = app.web.now().duration_since(before);
            if reply.status == StatusCode::UNAUTHORIZED && clock.as_secs().abs() > JWT_BACK / 2 {
                reply = app.send(request(app), &self.jwt(app).await?).await?;
            }
            match reply.status {
                StatusCode::UNAUTHORIZED => Err(app.refused(reply.status, &reply)),
                _ => Ok(reply),
            }
        };
        let asked = asking.await;
        // What a policy asks for wrongly is no fault of the app.
        self.faults.note(name, &asked);
        asked
    }

    async fn token(&self, name: &str, app: &App, scope: &Scope) -> Result<Fetched, Fault> {
        let first = scope.names.first().map(String::as_str).unwrap_or_default();
        let at = app.path(&["repos", &scope.owner, first, "installation"])?;
        let reply = self
            .ask((name, app), |app| app.web.http().get(at.clone()))
            .await?;
        let installation = match reply.status {
            StatusCode::OK => reply.json.0["id"].as_u64().ok_or_else(|| app.web.lacks("id"))?,
            StatusCode::NOT_FOUND => {
                return Err(Fault::lasting(format!(
                    "the app is not installed for `{}/{first}`",
                    scope.owner
                )));
            }
            status => return Err(app.refused(status, &reply)),
        };
        let at = app.path(&["app", "installations", &installation.to_string(), "access_tokens"])?;
        let asked = json!({"repositories": scope.names, "permissions": scope.permissions});
        let asked_at = app.web.now();
        let reply = self
            .ask((name, app), |app| {
                app.web.http().request(Method::POST, at.clone()).json(&asked)
            })
            .await?;
        if reply.status != StatusCode::CREATED {
            return Err(app.refused(reply.status, &reply));
        }
        let token = reply.json.0["token"]
            .as_str()
            .ok_or_else(|| app.web.lacks("token"))?;
        let ends = reply.json.0["expires_at"].as_str().and_then(|at| at.parse().ok());
        let ends: jiff::Timestamp = ends.ok_or_else(|| app.web.lacks("expires_at"))?;
        let span = Duration::try_from(ends.duration_since(asked_at))
            .map_err(|_| Fault::lasting("GitHub's token had ended when it came"))?;
        let value = || Value::new(token.as_bytes().to_vec());
        Ok(Fetched {
            fields: BTreeMap::from([(String::new(), value())]),
            lease: Some(Lease {
                id: self.held.keep(name, value()),
                renewable: false,
                span,
            }),
            valid_for: Some(span),
            parent: None,
        })
    }
}

impl App {
    fn new(name: &str, settings: Settings, own: &Own) -> Result<Self, String> {
        let mut api = web::address("api", settings.api.as_deref().unwrap_or(API))?;
        if !api.path().ends_with('/') {
            api.set_path(&format!("{}/", api.path()));
        }
        let ca = own.pem(settings.ca.as_deref())?;
        Ok(Self {
            web: Web::new(format!("GitHub, asked for app `{name}`,"), ca.as_deref())?,
            bounds: Bounds::new(settings.repositories, settings.permissions)?,
            app_id: settings.app_id,
            private_key: settings.private_key,
            api,
        })
    }

    fn path(&self, segments: &[&str]) -> Result<Url, Fault> {
        let mut url = self.api.clone();
        match url.path_segments_mut() {
            Ok(mut path) => drop(path.pop_if_empty().extend(segments)),
            Err(()) => return Err(Fault::lasting("`api` is no address with a path")),
        }
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder, token: &Value) -> Result<Reply, Fault> {
        let request = request
            .header(http::header::ACCEPT, ACCEPT)
            .header("x-github-api-version", API_VERSION)
            .header(http::header::AUTHORIZATION, web::bearer(token)?);
        self.web.send(request).await
    }

    fn refused(&self, status: StatusCode, reply: &Reply) -> Fault {
        self.web
            .refused(status, reply.json.0["message"].as_str().unwrap_or_default())
    }
}

#[async_trait]
impl Provider for GithubApps {
    fn admits(&self, from: &Source, who: &Who) -> Result<(), String> {
        match from {
            Source::GithubApp { app, .. } => self.app(app)?.bounds.scope(from, who).map(drop),
            _ => Err("it is no token of a GitHub App".to_owned()),
        }
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault> {
        let Source::GithubApp { app: name, .. } = &wanted.from else {
            return Err(Fault::lasting("it is no token of a GitHub App"));
        };
        let app = self.app(name).map_err(Fault::lasting)?;
        let scope = app
            .bounds
            .scope(&wanted.from, &wanted.who)
            .map_err(Fault::lasting)?;
        self.token(name, app, &scope).await
    }

    async fn renew(&self, _lease: &Lease) -> Result<Duration, Fault> {
        Err(Fault::lasting(
            "tokens of GitHub Apps are not renewed but replaced",
        ))
    }

    /// After a restart of the gateway there is nothing to give back with: the token ends by itself, within an hour.
    async fn revoke(&self, lease: &str) -> Result<(), Fault> {
        let Some((name, token)) = self.held.get(lease) else {
            return Ok(());
        };
        let app = self.app(&name).map_err(Fault::lasting)?;
        let at = app.path(&["installation", "token"])?;
        let reply = app.send(app.web.http().delete(at), &token).await?;
        match reply.status {
            // It has ended already.
            StatusCode::NO_CONTENT | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => {
                self.held.forget(lease);
                Ok(())
            }
            status => Err(app.refused(status, &reply)),
        }
    }

    fn fault(&self) -> Option<String> {
        self.faults.told("GitHub App")
    }
}

#[cfg(test)]
mod tests;
