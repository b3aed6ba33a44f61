//! Vault and OpenBao: values of the KV engines, and what other engines make for one run alone, with leases.
//!
//! Reference: <https://openbao.org/api-docs/>. Ways to log in: token, AppRole, Kubernetes, JWT.
mod answer;
mod call;
mod login;
mod paths;
mod settings;

pub(super) use settings::Settings;

use super::own::Own;
use super::provider::{Fault, Fetched, Lease, Provider, Wanted};
use super::terms::Terms;
use answer::Answer;
use async_trait::async_trait;
use call::{Call, Caller};
use login::{Login, Logins};
use paths::Mounts;
use sallyport_policy::{Source, Who};
use serde_json::json;
use settings::Checked;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One Vault.
pub(super) struct Vault {
    settings: Arc<Checked>,
    caller: Arc<Caller>,
    logins: Logins,
    mounts: Mounts,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Vault {
    /// Checks the settings and begins to log in; inside a tokio runtime. An error says what is wrong with them.
    pub(super) fn start(settings: Settings, own: Arc<Own>, terms: &Terms) -> Result<Arc<Self>, String> {
        let settings = Arc::new(settings.checked(&own)?);
        let caller = Arc::new(Caller::new(&settings)?);
        Ok(Arc::new(Self {
            logins: Logins::start(settings.clone(), caller.clone(), (own, terms.clone())),
            settings,
            caller,
            mounts: Mounts::default(),
        }))
    }

    /// Asks with the token of today. Where Vault takes it no more, it is logged in anew, for the next try.
    async fn ask(&self, call: Call, login: &Login) -> Result<Answer, Fault> {
        let asked = self.caller.ask(&call, login.token()).await;
        if let Err(refused) = &asked
            && refused.status == Some(403)
        {
            self.logins.doubt();
        }
        Ok(asked?)
    }

    /// What is asked for at a path: a read, or a request with the operator's parameters.
    async fn call_for(&self, path: &str, who: &Who, login: &Login) -> Result<Call, Fault> {
        if let Some(parameters) = self.settings.issued.get(path) {
            return Ok(Call::write(path, paths::filled(parameters, who)));
        }
        let mount = match self.mounts.known(path) {
            Some(mount) => mount,
            None => {
                let asked = self
                    .ask(Call::read(&format!("sys/internal/ui/mounts/{path}")), login)
                    .await;
                // Without a word about the mount it is read as it is named.
                let mount = asked.ok().and_then(|answer| answer.mount());
                self.mounts.note(path, mount)
            }
        };
        Ok(Call::read(&mount.read_path(path)))
    }
}

#[async_trait]
impl Provider for Vault {
    fn admits(&self, from: &Source, who: &Who) -> Result<(), String> {
        let Source::Vault { path, .. } = from else {
            return Err("it is not in Vault".to_owned());
        };
        match self
            .settings
            .allow
            .iter()
            .any(|pattern| pattern.admits(path, who))
        {
            true => Ok(()),
            false => Err(format!(
                "the operator does not let this run's policy name `{path}` in Vault; `vault.allow` in `sources.yaml` lists what it may"
            )),
        }
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault> {
        let Source::Vault { path, .. } = &wanted.from else {
            return Err(Fault::lasting("it is not in Vault"));
        };
        let login = self.logins.now().await?;
        let call = self.call_for(path, &wanted.who, &login).await?;
        let answer = self.ask(call, &login).await;
        if answer.is_err() {
            // It may have been mounted anew as something else.
            self.mounts.forget(path);
        }
        answer?.fetched(path, &login)
    }

    async fn renew(&self, lease: &Lease) -> Result<Duration, Fault> {
        let login = self.logins.now().await?;
        let parameters = json!({"lease_id": lease.id, "increment": lease.span.as_secs()});
        let answer = self
            .ask(Call::write("sys/leases/renew", parameters), &login)
            .await?;
        Ok(answer.leased_for())
    }

    async fn revoke(&self, lease: &str) -> Result<(), Fault> {
        let login = self.logins.now().await?;
        let call = Call::write("sys/leases/revoke", json!({"lease_id": lease, "sync": true}));
        match self.caller.ask(&call, login.token()).await {
            Ok(_) => Ok(()),
            Err(refused) if refused.says_gone() => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    fn fault(&self) -> Option<String> {
        self.logins.fault()
    }
}

#[cfg(test)]
mod tests;
