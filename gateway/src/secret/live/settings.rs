//! `sources.yaml`: the services that secrets are fetched from, as the operator has set them up. Never a value: those are named.
use super::own::{Named, Own};
use super::provider::Providers;
use super::terms::Terms;
use super::vault;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file says. Each section may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Vault or OpenBao.
    vault: Option<vault::Settings>,
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
        if let Some(vault) = self.vault {
            let named = vault.named().into_iter().map(|named| match named {
                Named::File(path) => Named::File(own.path(&path)),
                other => other,
            });
            providers.reserve(named.collect());
            let vault = vault::Vault::start(vault, own.clone(), terms)
                .map_err(|what| wrong(format!("`vault`: {what}")))?;
            providers.put("vault", vault);
        }
        Ok(providers)
    }
}
