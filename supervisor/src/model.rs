//! Models behind one trait: which there are, with which keys and limits.
pub mod anthropic;
mod events;
mod growing;
pub mod openai;
pub mod scripted;
mod sse;
pub mod types;

#[cfg(test)]
mod tests;

use crate::runs::ModelChoice;
use anthropic::Anthropic;
use events::Caller;
use openai::Openai;
use scripted::Scripted;
use secrecy::SecretString;
use std::sync::Arc;
use std::time::Duration;
use types::{Model, ModelError};

/// Where a provider is, and the key for it. Read once at the edge; never journaled, never shown.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Base URL of runs that name none. The key goes to this base URL only: a run that names another is asked without a key.
    pub base_url: String,
    /// The key, if there is one.
    pub key: Option<SecretString>,
}

/// How long silence may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the request to the first event of the answer.
    pub start: Duration,
    /// Between two events.
    pub idle: Duration,
}

/// What models need from outside.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Anthropic's Messages API.
    pub anthropic: Provider,
    /// OpenAI's chat completions API, or a compatible one.
    pub openai: Provider,
    /// Limits on silence.
    pub limits: Limits,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            anthropic: Provider {
                base_url: "https://api.anthropic.com".into(),
                key: None,
            },
            openai: Provider {
                base_url: "https://api.openai.com/v1".into(),
                key: None,
            },
            limits: Limits {
                start: Duration::from_secs(120),
                idle: Duration::from_secs(60),
            },
        }
    }
}

/// Makes models; a cheap handle on their connections.
#[derive(Debug, Clone)]
pub struct Models {
    config: Arc<ModelConfig>,
    client: reqwest::Client,
}

impl Models {
    /// Prepares connections. Redirects are not followed: a key would go along. The error says why TLS cannot be set up.
    pub fn new(config: ModelConfig) -> Result<Self, ModelError> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(20))
            .user_agent(concat!("sallyport/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|fault| ModelError::Final(format!("no client for models can be made: {fault}")))?;
        Ok(Self {
            config: Arc::new(config),
            client,
        })
    }

    /// The model of a choice. The error says what the choice or the configuration lacks.
    pub fn model(&self, choice: &ModelChoice) -> Result<Arc<dyn Model>, ModelError> {
        Ok(match choice {
            ModelChoice::Scripted { turns } => Arc::new(Scripted::parse(turns)?),
            ModelChoice::Anthropic { model, base_url } => {
                let caller = self.caller(&self.config.anthropic, base_url.as_deref(), "ANTHROPIC_API_KEY")?;
                Arc::new(Anthropic::new(caller, named(model)?))
            }
            ModelChoice::Openai { model, base_url } => {
                let caller = self.caller(&self.config.openai, base_url.as_deref(), "OPENAI_API_KEY")?;
                Arc::new(Openai::new(caller, named(model)?))
            }
        })
    }

    fn caller(
        &self,
        provider: &Provider,
        base_url: Option<&str>,
        variable: &str,
    ) -> Result<Caller, ModelError> {
        let base = base_url.unwrap_or(&provider.base_url).trim_end_matches('/');
        let url = url::Url::parse(base)
            .map_err(|fault| ModelError::Final(format!("the model's base URL `{base}` is none: {fault}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(ModelError::Final(format!(
                "the model's base URL `{base}` must be http or https"
            )));
        }
        let ours = base == provider.base_url.trim_end_matches('/');
        let key = provider.key.clone().filter(|_| ours);
        if ours && key.is_none() && !is_loopback(&url) {
            return Err(ModelError::Final(format!(
                "there is no key for `{base}`: set {variable} where `sallyport up` runs"
            )));
        }
        if key.is_some() && url.scheme() == "http" && !is_loopback(&url) {
            return Err(ModelError::Final(format!(
                "`{base}` is not encrypted: the key in {variable} is not sent there"
            )));
        }
        Ok(Caller {
            client: self.client.clone(),
            base: base.into(),
            key,
            limits: self.config.limits,
        })
    }
}

fn named(model: &str) -> Result<String, ModelError> {
    if model.trim().is_empty() {
        return Err(ModelError::Final("the model has no name".into()));
    }
    Ok(model.into())
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
