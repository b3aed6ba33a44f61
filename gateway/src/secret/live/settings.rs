//! `sources.yaml`: the services that secrets are fetched from, as the operator has set them up. Never a value: those are named.
use super::own::{Named, Own};
use super::provider::Providers;
use super::terms::Terms;
use super::{aws, github, oauth, vault};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file says. Each section may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Vault or OpenBao.
    vault: Option<vault::Settings>,
    /// Apps by the names that policies use.
    #[serde(default)]
    github_apps: BTreeMap<String, github::Settings>,
    /// Log-ins by the names that policies use.
    #[serde(default)]
    oauth: BTreeMap<String, oauth::Settings>,
    /// An account of AWS.
    aws: Option<aws::Settings>,
}

/// Why the file cannot be used. The operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {what}", .path.display())]
pub struct SettingsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, and what to do.
    pub what: String,
}

impl Settings {
    /// Reads the file's text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let wrong = |what: String| SettingsError {
            path: path.to_owned(),
            what,
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))
    }

    /// Checks everything and makes the providers; to be called inside a tokio runtime, on which they log in at once.
    pub fn providers(self, path: &Path, own: &Arc<Own>, terms: &Terms) -> Result<Providers, SettingsError> {
        let wrong = |what: String| SettingsError {
            path: path.to_owned(),
            what,
        };
        let mut providers = Providers::default();
        providers.reserve(self.named(own));
        if let Some(vault) = self.vault {
            let vault = vault::Vault::start(vault, own.clone(), terms);
            providers.put("vault", vault.map_err(|what| wrong(format!("`vault`: {what}")))?);
        }
        if !self.github_apps.is_empty() {
            let apps = github::GithubApps::new(self.github_apps, own.clone());
            let apps = apps.map_err(|what| wrong(format!("`github-apps`: {what}")))?;
            providers.put("github-app", Arc::new(apps));
        }
        if !self.oauth.is_empty() {
            let logins = oauth::Logins::new(self.oauth, own.clone());
            providers.put(
                "oauth",
                Arc::new(logins.map_err(|what| wrong(format!("`oauth`: {what}")))?),
            );
        }
        if let Some(aws) = self.aws {
            let aws = aws::Aws::new(aws, own.clone());
            providers.put(
                "aws",
                Arc::new(aws.map_err(|what| wrong(format!("`aws`: {what}")))?),
            );
        }
        Ok(providers)
    }

    /// What the gateway logs in with.
    fn named(&self, own: &Own) -> Vec<Named> {
        let vault = self.vault.iter().flat_map(vault::Settings::named);
        let apps = self.github_apps.values().map(github::Settings::named);
        let logins = self.oauth.values().flat_map(oauth::Settings::named);
        let aws = self.aws.iter().flat_map(aws::Settings::named);
        let all = vault.chain(apps).chain(logins).chain(aws);
        all.map(|named| match named {
            Named::File(path) => Named::File(own.path(&path)),
            other => other,
        })
        .collect()
    }
}
