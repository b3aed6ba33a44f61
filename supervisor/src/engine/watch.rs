//! The gateway's events: each refusal reaches its run once, and listeners are handed over again after its restart.
use crate::activity::{Context, access as session, credentials, machine};
use crate::engine::worker::Shop;
use crate::gateway::{Door, GatewayError};
use crate::run::event::Event;
use backon::BackoffBuilder as _;
use futures_util::StreamExt as _;
use sallyport_gateway::control::types::AuditRecord;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Records after which the place in the log is noted, where none of them is a refusal.
const NOTE_EVERY: u64 = 256;

/// Kind of the records that tell under which policy a session goes on.
const SESSION: &str = "session";

/// Contexts of the runs that are going on.
pub(super) type Contexts = Arc<Mutex<BTreeMap<String, Weak<Context>>>>;

/// Follows one gateway.
pub(super) struct Watch {
    pub(super) shop: Shop,
    pub(super) door: Arc<dyn Door>,
    pub(super) contexts: Contexts,
    pub(super) heard: watch::Sender<u64>,
}

impl Watch {
    /// Until the process stops.
    pub(super) async fn run(self) {
        let closing = self.shop.closing.clone();
        tokio::select! {
            () = closing.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        let mut seen = match self.shop.journal.audit_seen().await {
            Ok(seen) => seen,
            Err(fault) => {
                tracing::warn!(%fault, "the place in the gateway's log is not known: reading it from the beginning");
                0
            }
        };
        let mut gateway = None;
        let mut waits = None;
        loop {
            let before = seen;
            if let Err(fault) = self.once(&mut gateway, &mut seen).await {
                tracing::warn!(%fault, "the gateway's events are not followed");
            }
            if seen != before {
                waits = None;
            }
            let patience = backon::ExponentialBuilder::new()
                .with_jitter()
                .with_min_delay(Duration::from_millis(100))
                .with_max_delay(Duration::from_secs(5))
                .without_max_times();
            let wait = waits.get_or_insert_with(|| patience.build()).next();
            tokio::time::sleep(wait.unwrap_or(Duration::from_secs(5))).await;
        }
    }

    /// One connection, until it ends.
    async fn once(&self, gateway: &mut Option<u32>, seen: &mut u64) -> Result<(), GatewayError> {
        let health = self.door.health().await?;
        let mut events = self.door.events(*seen).await?;
        // The first connection counts too: the gateway may have been away when the machines were adopted.
        if gateway.replace(health.pid) != Some(health.pid) {
            self.hand_over_again();
        }
        let mut noted = *seen;
        while let Some(record) = events.next().await {
            let record = record?;
            if record.kind == SESSION {
                self.credentials_changed(&record.session);
            }
            let told = self.tell(&record).await;
            *seen = (*seen).max(record.sequence);
            self.heard.send_replace(*seen);
            if told || *seen >= noted + NOTE_EVERY {
                noted = *seen;
                if let Err(fault) = self.shop.journal.note_audit(noted).await {
                    tracing::warn!(%fault, "the place in the gateway's log is not noted");
                }
            }
        }
        Ok(())
    }

    /// Tells the run of a refusal. The run knows which it has seen, so telling twice does no harm.
    async fn tell(&self, record: &AuditRecord) -> bool {
        let Some(notice) = crate::access::notice(record) else {
            return false;
        };
        let event = Event::Refused {
            audit: record.sequence,
            notice,
        };
        match self.shop.board.bring(&record.session, event).await {
            Ok(()) => true,
            Err(fault) => {
                tracing::debug!(session = %record.session, %fault, "a refusal belongs to no run that is going on");
                false
            }
        }
    }

    /// Another policy is in force for a run: what its machine knows of credentials may be out of date.
    fn credentials_changed(&self, run: &str) {
        let known = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(context) = known.get(run).and_then(Weak::upgrade) else {
            return;
        };
        drop(known);
        self.shop.tasks.spawn(async move {
            tokio::select! {
                () = context.closing.cancelled() => {}
                () = credentials::tell_again(&context) => {}
            }
        });
    }

    fn hand_over_again(&self) {
        let contexts: Vec<Arc<Context>> = {
            let known = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            known.values().filter_map(Weak::upgrade).collect()
        };
        tracing::info!(
            runs = contexts.len(),
            "a gateway process is new: handing listeners over"
        );
        for context in contexts {
            self.shop.tasks.spawn(async move {
                let again = hand_over(&context);
                tokio::select! {
                    () = context.closing.cancelled() => {}
                    done = again => if let Err(fault) = done {
                        tracing::warn!(run = %context.run, %fault, "the machine is not attached again");
                    },
                }
            });
        }
    }
}

async fn hand_over(context: &Context) -> Result<(), String> {
    let Some((record, _)) = context.link.current().await else {
        return Ok(());
    };
    let (spec, door) = (session::spec(context), &context.hands.door);
    let session = context
        .hands
        .ask_door(|| door.put_session(&context.run, &spec))
        .await;
    session.map_err(|fault| fault.to_string())?;
    machine::hand_over(context, &record).await
}
