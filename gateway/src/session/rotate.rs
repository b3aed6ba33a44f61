//! Values that change while a session lives: it is bound anew, with the placeholders that it has.
use super::bind::{Ground, bind};
use super::registry::{SessionError, Sessions};
use crate::control::types::{AuditRecord, Verdict};
use crate::secret::live::{Change, Keeper};
use crate::secret::source::Stamp;
use sallyport_policy::{Policy, Source};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often secret files are looked at.
const WATCH: Duration = Duration::from_secs(1);

/// What secret files looked like, by name.
type Stamps = HashMap<String, Option<Stamp>>;

impl Sessions {
    /// Takes up what is fetched, as it comes and goes.
    pub(super) fn follow_changes(self: &Arc<Self>) {
        let Some(keeper) = self.sources().keeper() else {
            return;
        };
        let sessions = Arc::downgrade(self);
        keeper.on_change(move |change| {
            if let Some(sessions) = sessions.upgrade() {
                sessions.take_up(&change);
            }
        });
    }

    /// Who fetches, where there are sources that must be fetched.
    pub fn fetched(&self) -> Option<&Arc<Keeper>> {
        self.sources().keeper()
    }

    /// Binds anew, again and again, the sessions whose secret files have changed, or whose old values need not be looked for any
    /// more; until `stop`.
    pub async fn watch_values(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(WATCH);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stamps = Stamps::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            let (sessions, known) = (self.clone(), std::mem::take(&mut stamps));
            match tokio::task::spawn_blocking(move || sessions.look_at_values(known)).await {
                Ok(seen) => stamps = seen,
                Err(error) => tracing::error!(%error, "changed values were not looked for"),
            }
        }
    }

    /// One look; `known` is what the last one saw.
    fn look_at_values(&self, known: Stamps) -> Stamps {
        let mut seen = Stamps::new();
        for session in self.list() {
            let live = session.live.load_full();
            let credentials = live.policy.as_ref().map(Policy::credentials).unwrap_or_default();
            let mut changed = false;
            for credential in credentials {
                let Source::File(name) = &credential.from else {
                    continue;
                };
                let stamp = seen
                    .entry(name.clone())
                    .or_insert_with(|| self.sources().file_stamp(name));
                changed |= known.get(name).is_some_and(|before| before != stamp);
            }
            let grace = self.sources().terms().grace;
            let secrets = session.secrets();
            let mut old = secrets.bindings().iter().flat_map(|binding| &binding.old_values);
            changed |= old.any(|old| old.since.elapsed() >= grace);
            if changed && let Err(error) = self.rebind(session.id()) {
                tracing::error!(session = session.id(), %error, "changed values were not taken up");
            }
        }
        seen
    }

    /// Waits until what must be fetched for a session was tried once, within its limit.
    pub async fn settled(&self, id: &str) {
        if let Some(keeper) = self.sources().keeper() {
            keeper.settled(id).await;
        }
    }

    /// Binds a session anew under the policy that it has. Blocks; some milliseconds.
    pub fn rebind(&self, id: &str) -> Result<(), SessionError> {
        let _changing = self.changing();
        let Some(session) = self.by_id(id) else {
            return Ok(());
        };
        let live = session.live.load_full();
        let credentials = live.policy.as_ref().map(Policy::credentials).unwrap_or_default();
        let before = session.secrets();
        let known = session.kept().placeholders.clone();
        let ground = Ground::of(id, &live.who, self.sources());
        let (bound, placeholders) =
            bind(credentials, &ground, known.clone(), Some(&before)).map_err(SessionError::Failed)?;
        if placeholders != known {
            session.set_placeholders(placeholders)?;
        }
        live.bound.store(Arc::new(bound));
        Ok(())
    }

    fn take_up(&self, change: &Change) {
        let id = &change.session;
        if let Err(error) = self.rebind(id) {
            tracing::error!(session = id, %error, "a changed secret was not taken up");
        }
        let Some((told, session)) = change.told.as_ref().zip(self.by_id(id)) else {
            return;
        };
        let verdict = match told.good {
            true => Verdict::Allowed,
            false => Verdict::UpstreamFailed,
        };
        let record = AuditRecord {
            session: id.clone(),
            user: session.who().user.clone(),
            reason: told.sentence.clone(),
            policy_hash: session.policy_hash(),
            ending: "complete".to_owned(),
            ..AuditRecord::of("secret", verdict)
        };
        let sink = self.sink().clone();
        tokio::runtime::Handle::current().spawn(async move {
            if let Err(error) = sink.note(record).await {
                tracing::error!(%error, "the event of a secret was not recorded");
            }
        });
    }
}
