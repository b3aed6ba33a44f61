//! What all fetched values share: providers, limits, the file of leases, counters, and whom to tell of a change.
use super::counts::Counts;
use super::leases::{Leases, Owner};
use super::provider::{Fault, Fetched, Lease, Provider, Providers, Wanted, kind, shown};
use super::terms::Terms;
use arc_swap::ArcSwap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;

/// Something about a session's fetched values is another than before: bind anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Session.
    pub session: String,
    /// What is worth an event.
    pub told: Option<Told>,
}

/// An event for operator and agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Whether it is good news.
    pub good: bool,
    /// The source by name and what happened, never a value.
    pub sentence: String,
}

/// Whom to tell; may block.
pub(super) type Hook = Arc<dyn Fn(Change) + Send + Sync>;

/// Shared by all items.
pub(super) struct Ground {
    pub(super) providers: ArcSwap<Providers>,
    pub(super) terms: Terms,
    pub(super) leases: Leases,
    pub(super) counts: Counts,
    pub(super) hook: OnceLock<Hook>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground")
            .field("providers", &self.providers)
            .finish_non_exhaustive()
    }
}

impl Ground {
    /// Fetches; a lease is written down before this returns.
    pub(super) async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault> {
        let kind = kind(&wanted.from).unwrap_or_default();
        let provider = self.provider(kind)?;
        let fetched = self.call((kind, "fetch"), provider.fetch(wanted)).await?;
        if let Some(lease) = &fetched.lease {
            let owner = Owner {
                kind: kind.to_owned(),
                session: wanted.session.clone(),
            };
            if let Err(error) = self.leases.add(&lease.id, owner).await {
                // A crash would leave it behind, so it is not used.
                if let Err(fault) = self.call((kind, "revoke"), provider.revoke(&lease.id)).await {
                    tracing::error!(%fault, "a lease that could not be written down was not given back");
                }
                return Err(Fault::passing(format!(
                    "the lease of {} cannot be written down: {error}",
                    shown(&wanted.from)
                )));
            }
        }
        Ok(fetched)
    }

    /// Makes a lease last longer.
    pub(super) async fn renew(&self, kind: &'static str, lease: &Lease) -> Result<Duration, Fault> {
        let provider = self.provider(kind)?;
        self.call((kind, "renew"), provider.renew(lease)).await
    }

    /// Gives a lease back, and tries again until it is done or `tries` are over.
    pub(super) async fn revoke(&self, kind: &'static str, lease: &str, tries: usize) {
        for wait in self.terms.waits().take(tries) {
            let revoked = match self.provider(kind) {
                Ok(provider) => self.call((kind, "revoke"), provider.revoke(lease)).await,
                Err(fault) => Err(fault),
            };
            match revoked {
                Ok(()) => return self.forget(lease).await,
                Err(fault) => tracing::warn!(kind, %fault, "a lease was not given back yet"),
            }
            tokio::time::sleep(wait).await;
        }
        tracing::error!(
            kind,
            "a lease was not given back; it ends by itself, and the next start tries again"
        );
    }

    /// Forgets a lease that has ended or was given back.
    pub(super) async fn forget(&self, lease: &str) {
        if let Err(error) = self.leases.remove(lease).await {
            tracing::warn!(error, "a lease that has ended stays written down");
        }
    }

    /// Tells of a change, and waits until whoever hears it is done.
    pub(super) async fn changed(&self, session: &str, told: Option<Told>) {
        if let Some(told) = &told {
            match told.good {
                true => tracing::info!(session, "{}", told.sentence),
                false => tracing::warn!(session, "{}", told.sentence),
            }
        }
        let Some(hook) = self.hook.get().cloned() else {
            return;
        };
        let change = Change {
            session: session.to_owned(),
            told,
        };
        if let Err(error) = tokio::task::spawn_blocking(move || hook(change)).await {
            tracing::error!(%error, "a change of a secret was not taken up");
        }
    }

    pub(super) fn provider(&self, kind: &str) -> Result<Arc<dyn Provider>, Fault> {
        let providers = self.providers.load();
        let provider = providers.of(kind).cloned();
        provider.ok_or_else(|| Fault::lasting(format!("`sources.yaml` has no `{kind}` any more")))
    }

    /// One call within its time, counted.
    async fn call<T>(
        &self,
        (kind, call): (&'static str, &'static str),
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let limit = self.terms.call;
        let done = timeout(limit, work).await.unwrap_or_else(|_| {
            Err(Fault::passing(format!(
                "`{kind}` did not answer within {limit:?}"
            )))
        });
        self.counts.note(kind, call, done.is_ok());
        done
    }
}
