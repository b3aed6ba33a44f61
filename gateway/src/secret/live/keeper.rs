//! Who keeps the fetched values of all sessions fresh.
use super::counts::Counts;
use super::ground::{Change, Ground};
use super::item::Item;
use super::leases::Leases;
use super::provider::{KINDS, Providers, Wanted, kind, shared};
use super::state::{Given, Unread};
use super::terms::{SWEEP, Terms, bounded};
use crate::state_file::StateError;
use arc_swap::ArcSwap;
use sallyport_policy::{Credential, Source, Who};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Tries to give back what an earlier process left behind.
const TRIES_FOR_LEFTOVERS: usize = 100;

/// All that is fetched, by session.
pub struct Keeper {
    ground: Arc<Ground>,
    all: Mutex<HashMap<String, Vec<Arc<Item>>>>,
    runtime: Handle,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("ground", &self.ground)
            .finish_non_exhaustive()
    }
}

impl Keeper {
    /// Opens the file of leases in a folder, and begins to give back those that an earlier process left in it: their values are lost.
    /// To be called inside a tokio runtime, on which everything is fetched.
    pub fn open(folder: &Path, providers: Providers, terms: Terms) -> Result<Arc<Self>, StateError> {
        let leases = Leases::open(folder)?;
        let left = leases.all()?;
        let keeper = Arc::new(Self {
            ground: Arc::new(Ground {
                providers: ArcSwap::from_pointee(providers),
                terms,
                leases,
                counts: Counts::default(),
                held: Mutex::new(HashSet::new()),
                hook: OnceLock::new(),
                tasks: TaskTracker::new(),
            }),
            all: Mutex::default(),
            runtime: Handle::current(),
        });
        for (lease, owner) in left {
            let Some(kind) = KINDS.into_iter().find(|kind| *kind == owner.kind) else {
                tracing::error!(kind = owner.kind, "a lease of an unknown source was left behind");
                continue;
            };
            tracing::info!(
                kind,
                session = owner.session,
                "a lease that was left behind is given back"
            );
            let ground = keeper.ground.clone();
            ground.hold(&lease);
            let revoking = async move { ground.revoke(kind, &lease, TRIES_FOR_LEFTOVERS).await };
            keeper.ground.tasks.spawn_on(revoking, &keeper.runtime);
        }
        keeper.runtime.spawn(sweep(Arc::downgrade(&keeper.ground)));
        Ok(keeper)
    }

    /// Whom to tell that a session must be bound anew; the first to be named stays. It may block.
    pub fn on_change(&self, hook: impl Fn(Change) + Send + Sync + 'static) {
        // A second one is a second registry of the same sources, which there is not.
        let _first = self.ground.hook.set(Arc::new(hook));
    }

    /// Begins to fetch what a session's credentials name and it does not have yet; ends what they name no more.
    pub fn want(&self, session: &str, who: &Arc<Who>, credentials: &[Credential]) {
        let mut wanted: Vec<Wanted> = Vec::new();
        for credential in credentials {
            let from = shared(&credential.from).0;
            if self.provides(&from, who).is_err() {
                continue;
            }
            if let Some(known) = wanted.iter_mut().find(|known| known.from == from) {
                known.ttl = known.ttl.into_iter().chain(ttl(credential)).min();
                continue;
            }
            wanted.push(Wanted {
                session: session.to_owned(),
                who: who.clone(),
                from,
                ttl: ttl(credential),
            });
        }
        let mut all = self.all();
        let before = all.remove(session).unwrap_or_default();
        let mut now = Vec::new();
        for wanted in wanted {
            let known = before.iter().find(|item| item.wanted.from == wanted.from);
            match known {
                Some(known) if known.wanted == wanted => now.push(known.clone()),
                known => {
                    let item = Arc::new(Item::new(wanted, known.map(Arc::as_ref)));
                    let living = item.clone().live(self.ground.clone());
                    self.ground.tasks.spawn_on(living, &self.runtime);
                    now.push(item);
                }
            }
        }
        for item in before {
            if !now.iter().any(|kept| Arc::ptr_eq(kept, &item)) {
                item.end();
            }
        }
        if !now.is_empty() {
            all.insert(session.to_owned(), now);
        }
    }

    /// Ends everything of a session; its leases are given back beside.
    pub fn end(&self, session: &str) {
        for item in self.all().remove(session).unwrap_or_default() {
            item.end();
        }
    }

    /// Waits until everything of a session has been tried once, and bound, but not longer than its limit.
    pub async fn settled(&self, session: &str) {
        let items = self.all().get(session).cloned().unwrap_or_default();
        let wait = self.ground.terms.wait;
        let settling = async {
            for item in &items {
                // The sender lives as long as the item.
                let mut settled = item.settled();
                let _settled = settled.wait_for(|settled| *settled).await;
            }
        };
        if tokio::time::timeout(wait, settling).await.is_err() {
            let mut late = false;
            for item in &items {
                late |= item.is_late(wait);
            }
            if late {
                self.ground.changed(session, None).await;
            }
        }
    }

    /// The value that a source stands for in a session, as it is now.
    pub fn give(&self, session: &str, who: &Who, from: &Source) -> Result<Given, Unread> {
        self.provides(from, who).map_err(Unread::NotAllowed)?;
        let (whole, field) = shared(from);
        let item = self
            .all()
            .get(session)
            .and_then(|items| items.iter().find(|item| item.wanted.from == whole).cloned());
        item.ok_or(Unread::Pending)?.give(field)
    }

    /// Other providers in place of those there are; everything is fetched anew from them, and used as it is until then.
    pub fn replace(&self, providers: Providers) {
        self.ground.providers.store(Arc::new(providers));
        let mut all = self.all();
        for items in all.values_mut() {
            for item in items.iter_mut() {
                let anew = Arc::new(Item::new(item.wanted.clone(), Some(item)));
                item.end();
                let living = anew.clone().live(self.ground.clone());
                self.ground.tasks.spawn_on(living, &self.runtime);
                *item = anew;
            }
        }
    }

    /// Whether a policy names what the gateway itself logs in with; files of policies lie in `folder`.
    pub(in crate::secret) fn keeps_for_itself(&self, from: &Source, folder: &Path) -> bool {
        self.ground.providers.load().reserves(from, folder)
    }

    /// What is wrong with each provider that cannot be used, for operators.
    pub fn faults(&self) -> Vec<String> {
        self.ground.providers.load().faults()
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.ground.counts
    }

    /// Limits.
    pub fn terms(&self) -> &Terms {
        &self.ground.terms
    }

    /// Gives back everything of every session, as when the gateway stops: values are not kept, so that they are fetched anew.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.all());
        for item in all.values().flatten() {
            item.end();
        }
        self.ground.tasks.close();
        self.ground.tasks.wait().await;
    }

    fn provides(&self, from: &Source, who: &Who) -> Result<(), String> {
        let Some(kind) = kind(from) else {
            return Err("it is not fetched".to_owned());
        };
        let providers = self.ground.providers.load();
        match providers.of(kind) {
            Some(provider) => provider.admits(from, who),
            None => Err(absent(from)),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Item>>>> {
        // Each change is whole before anything can panic.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Keeper {
    pub(super) fn leases(&self) -> &Leases {
        &self.ground.leases
    }
}

/// What is said where the operator has set nothing up.
pub(in crate::secret) fn absent(from: &Source) -> String {
    match from {
        Source::Vault { path, .. } => format!("this gateway has no Vault that `{path}` could be read from"),
        Source::GithubApp { app, .. } => format!("this gateway has no GitHub App `{app}`"),
        Source::Oauth(name) => format!("this gateway has no log-in `{name}` by OAuth"),
        Source::AwsSecret { name, .. } | Source::AwsParameter(name) => {
            format!("this gateway has no AWS account that `{name}` could be read from")
        }
        _ => "this gateway does not fetch it".to_owned(),
    }
}

/// Gives back again and again what nobody sees to any more, as what could not be given back when its session ended.
async fn sweep(ground: Weak<Ground>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(ground) = ground.upgrade().filter(|ground| !ground.tasks.is_closed()) else {
            return;
        };
        ground.sweep().await;
    }
}

fn ttl(credential: &Credential) -> Option<std::time::Duration> {
    credential.ttl.and_then(|ttl| ttl.try_into().ok()).map(bounded)
}
