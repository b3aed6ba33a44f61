//! The section `vault` of `sources.yaml`.
use crate::secret::live::own::{Named, Own};
use crate::secret::live::pattern::{Pattern, is_path};
use crate::secret::live::web;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use url::Url;

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::secret::live) struct Settings {
    /// `https://HOST:PORT`.
    address: String,
    /// Namespace, if any.
    namespace: Option<String>,
    /// PEM file of the authorities that its certificate is checked with; without it, those of the system.
    ca: Option<PathBuf>,
    /// How to log in.
    auth: Auth,
    /// What policies may name: a path, or `PREFIX/*` for all below; `${FACT}` stands for one of the run's.
    allow: Vec<String>,
    /// Paths that are written to rather than read, each with its parameters: `pki/issue/ROLE`.
    #[serde(default)]
    issue: BTreeMap<String, BTreeMap<String, String>>,
}

/// How to log in.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Auth {
    /// With a token that the operator made.
    Token(Named),
    /// As an AppRole.
    Approle(AppRole),
    /// With the token of a Kubernetes service account.
    Kubernetes(Kubernetes),
    /// With a JWT.
    Jwt(Jwt),
}

/// An AppRole.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AppRole {
    pub(super) role_id: String,
    pub(super) secret_id: Named,
    /// Whether what `secret-id` names is a wrapping token, in which the secret id is.
    #[serde(default)]
    pub(super) wrapped: bool,
    #[serde(default = "approle")]
    pub(super) mount: String,
}

/// A service account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Kubernetes {
    pub(super) role: String,
    #[serde(default = "service_account")]
    pub(super) jwt: Named,
    #[serde(default = "kubernetes")]
    pub(super) mount: String,
}

/// A JWT.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Jwt {
    pub(super) role: String,
    pub(super) jwt: Named,
    #[serde(default = "jwt")]
    pub(super) mount: String,
}

fn approle() -> String {
    "approle".to_owned()
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

fn jwt() -> String {
    "jwt".to_owned()
}

/// Where a pod finds its own (Kubernetes, "Accessing the Kubernetes API from a Pod").
fn service_account() -> Named {
    Named::File("/var/run/secrets/kubernetes.io/serviceaccount/token".into())
}

/// Settings that make sense.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) address: Url,
    pub(super) namespace: Option<String>,
    /// PEM.
    pub(super) ca: Option<Vec<u8>>,
    pub(super) auth: Auth,
    pub(super) allow: Vec<Pattern>,
    pub(super) issued: BTreeMap<String, BTreeMap<String, String>>,
}

impl Settings {
    /// The gateway's own secrets in it.
    pub(in crate::secret::live) fn named(&self) -> Vec<Named> {
        vec![match &self.auth {
            Auth::Token(token) => token.clone(),
            Auth::Approle(role) => role.secret_id.clone(),
            Auth::Kubernetes(account) => account.jwt.clone(),
            Auth::Jwt(jwt) => jwt.jwt.clone(),
        }]
    }

    /// Holds each against what it must be.
    pub(super) fn checked(self, own: &Own) -> Result<Checked, String> {
        let ca = self.ca.map(|path| {
            let path = own.path(&path);
            std::fs::read(&path)
                .map_err(|error| format!("`ca`: `{}` cannot be read: {error}", path.display()))
        });
        if self.allow.is_empty() {
            return Err(
                "`allow` is empty, so that no policy could name anything: list what policies may name, for example `kv/agents/*`"
                    .to_owned(),
            );
        }
        if let Some(namespace) = self.namespace.as_deref().filter(|name| !is_path(name)) {
            return Err(format!(
                "`namespace`: `{}` is no namespace",
                namespace.escape_debug()
            ));
        }
        let mount = match &self.auth {
            Auth::Token(_) => None,
            Auth::Approle(role) => Some(&role.mount),
            Auth::Kubernetes(account) => Some(&account.mount),
            Auth::Jwt(jwt) => Some(&jwt.mount),
        };
        if let Some(mount) = mount.filter(|mount| !is_path(mount)) {
            return Err(format!("`auth`: `{}` is no mount", mount.escape_debug()));
        }
        if let Some(path) = self.issue.keys().find(|path| !is_path(path)) {
            return Err(format!("`issue`: `{}` is no path", path.escape_debug()));
        }
        let allow = self.allow.iter().map(|text| Pattern::read(text));
        Ok(Checked {
            address: address(&self.address)?,
            namespace: self.namespace,
            ca: ca.transpose()?,
            auth: self.auth,
            allow: allow.collect::<Result<_, _>>()?,
            issued: self.issue,
        })
    }
}

fn address(text: &str) -> Result<Url, String> {
    let url = web::address("address", text)?;
    if url.path() != "/" || url.query().is_some() {
        return Err(format!(
            "`address`: `{}` has more than a host and a port; write `https://HOST:PORT`",
            text.escape_debug()
        ));
    }
    Ok(url)
}
