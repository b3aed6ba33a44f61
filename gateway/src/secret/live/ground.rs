//! What all fetched values share: providers, limits, the file of leases, counters, and whom to tell of a change.
use super::counts::Counts;
use super::leases::{Leases, Owner};
use super::provider::{Fault, Fetched, KINDS, Lease, Provider, Providers, Wanted, kind, shown};
use super::terms::{LATE, REVOCATIONS, Terms, bounded};
use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// Leases that nobody sees to, given back at a time.
const AT_ONCE: usize = 8;

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
    /// Leases that somebody in this process uses, or is giving back; the others in the file are nobody's.
    pub(super) held: Mutex<HashSet<String>>,
    pub(super) counts: Counts,
    pub(super) hook: OnceLock<Hook>,
    /// All that must come to an end before the gateway stops.
    pub(super) tasks: TaskTracker,
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
    pub(super) async fn fetch(self: &Arc<Self>, wanted: &Wanted) -> Result<Fetched, Fault> {
        let kind = kind(&wanted.from).unwrap_or_default();
        let provider = self.provider(kind)?;
        let fetching = self.ask(kind, provider.clone(), wanted);
        let mut fetched = self.counted((kind, "fetch"), fetching).await?;
        fetched.valid_for = fetched.valid_for.map(bounded);
        if let Some(lease) = &mut fetched.lease {
            lease.span = bounded(lease.span);
            if let Err(error) = self.write_down(kind, wanted, &lease.id).await {
                // A crash would leave it behind, so it is not used.
                if let Err(fault) = self.call((kind, "revoke"), provider.revoke(&lease.id)).await {
                    tracing::error!(%fault, "a lease that could not be written down was not given back");
                }
                self.let_go(&lease.id);
                return Err(Fault::passing(format!(
                    "the lease of {} cannot be written down: {error}",
                    shown(&wanted.from)
                )));
            }
        }
        Ok(fetched)
    }

    /// Asks for what is wanted, and waits for the answer within its time. The request itself goes on beyond it: it may make a lease,
    /// which would be lost with the answer. What it makes too late is written down and given back.
    async fn ask(
        self: &Arc<Self>,
        kind: &'static str,
        provider: Arc<dyn Provider>,
        wanted: &Wanted,
    ) -> Result<Fetched, Fault> {
        let limit = self.terms.call;
        let (answer, mut answered) = oneshot::channel();
        let (ground, wanted) = (self.clone(), wanted.clone());
        let asking = async move {
            let Ok(fetched) = timeout(limit.saturating_mul(LATE), provider.fetch(&wanted)).await else {
                tracing::error!(
                    kind,
                    "a fetch was broken off; a lease that it made ends by itself"
                );
                return;
            };
            // The values are dropped here.
            let late = answer.send(fetched).err().and_then(Result::ok);
            if let Some(lease) = late.and_then(|late| late.lease) {
                ground.give_back_late(kind, &wanted, &lease.id).await;
            }
        };
        self.tasks.spawn(asking);
        if let Ok(Ok(fetched)) = timeout(limit, &mut answered).await {
            return fetched;
        }
        // From here on the answer is too late; it may have come just before.
        answered.close();
        let in_time = answered.try_recv();
        in_time.unwrap_or_else(|_| Err(unanswered(kind, limit)))
    }

    async fn give_back_late(&self, kind: &'static str, wanted: &Wanted, lease: &str) {
        tracing::warn!(
            kind,
            session = wanted.session,
            "a lease came when nobody waited for it any longer; it is given back"
        );
        if let Err(error) = self.write_down(kind, wanted, lease).await {
            tracing::error!(error, "a lease that is given back could not be written down");
        }
        self.revoke(kind, lease, REVOCATIONS).await;
    }

    async fn write_down(&self, kind: &'static str, wanted: &Wanted, lease: &str) -> Result<(), String> {
        let owner = Owner {
            kind: kind.to_owned(),
            session: wanted.session.clone(),
        };
        // Before it is in the file, where it would be nobody's.
        self.hold(lease);
        self.leases.add(lease, owner).await
    }

    /// Makes a lease last longer.
    pub(super) async fn renew(&self, kind: &'static str, lease: &Lease) -> Result<Duration, Fault> {
        let provider = self.provider(kind)?;
        let granted = self.call((kind, "renew"), provider.renew(lease)).await?;
        Ok(bounded(granted))
    }

    /// Gives a lease back, and tries again until it is done or `tries` are over; then it is nobody's, and swept.
    pub(super) async fn revoke(&self, kind: &'static str, lease: &str, tries: usize) {
        for wait in self.terms.waits().take(tries) {
            match self.give_back(kind, lease).await {
                Ok(()) => return,
                Err(fault) => tracing::warn!(kind, %fault, "a lease was not given back yet"),
            }
            tokio::time::sleep(wait).await;
        }
        tracing::error!(
            kind,
            "a lease was not given back; it ends by itself, and is tried again now and then"
        );
        self.let_go(lease);
    }

    /// Tries once to give back each lease in the file that nobody sees to.
    pub(super) async fn sweep(&self) {
        let leases = self.leases.clone();
        // The file is read before it is asked who holds what: what comes into it later is not looked at.
        let left = match tokio::task::spawn_blocking(move || leases.all()).await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => return tracing::warn!(%error, "the file of leases cannot be read"),
            Err(error) => return tracing::warn!(%error, "the file of leases was not read"),
        };
        let mut nobodys: Vec<(&'static str, String)> = Vec::new();
        for (lease, owner) in left {
            if let Some(kind) = KINDS.into_iter().find(|kind| *kind == owner.kind)
                && self.hold(&lease)
            {
                nobodys.push((kind, lease));
            }
        }
        for some in nobodys.chunks(AT_ONCE) {
            let giving_back = some.iter().map(|(kind, lease)| self.give_back_once(kind, lease));
            futures_util::future::join_all(giving_back).await;
        }
    }

    async fn give_back_once(&self, kind: &'static str, lease: &str) {
        if let Err(fault) = self.give_back(kind, lease).await {
            tracing::debug!(kind, %fault, "a lease that nobody sees to was not given back yet");
            self.let_go(lease);
        }
    }

    /// Tries once.
    async fn give_back(&self, kind: &'static str, lease: &str) -> Result<(), Fault> {
        let provider = self.provider(kind)?;
        self.call((kind, "revoke"), provider.revoke(lease)).await?;
        self.forget(lease).await;
        Ok(())
    }

    /// Somebody sees to a lease from now on; false where somebody did already.
    pub(super) fn hold(&self, lease: &str) -> bool {
        self.held().insert(lease.to_owned())
    }

    fn let_go(&self, lease: &str) {
        self.held().remove(lease);
    }

    fn held(&self) -> MutexGuard<'_, HashSet<String>> {
        // Each change is whole before anything can panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a lease that has ended or was given back.
    pub(super) async fn forget(&self, lease: &str) {
        if let Err(error) = self.leases.remove(lease).await {
            tracing::warn!(error, "a lease that has ended stays written down");
        }
        self.let_go(lease);
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
        call: (&'static str, &'static str),
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let limit = self.terms.call;
        let limited = async {
            let done = timeout(limit, work).await;
            done.unwrap_or_else(|_| Err(unanswered(call.0, limit)))
        };
        self.counted(call, limited).await
    }

    async fn counted<T>(
        &self,
        (kind, call): (&'static str, &'static str),
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let done = work.await;
        self.counts.note(kind, call, done.is_ok());
        done
    }
}

fn unanswered(kind: &str, limit: Duration) -> Fault {
    Fault::passing(format!("`{kind}` did not answer within {limit:?}"))
}
