//! Listeners that were opened inside a machine's network and handed over: served from here on, for one session.
use super::listener::Listener;
use crate::Gateway;
use crate::control::handover::ListenerHost;
use crate::control::types::ListenerKind;
use crate::session::Session;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl ListenerHost for Gateway {
    fn serve(&self, session: Arc<Session>, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String> {
        let mut ready = Vec::with_capacity(listeners.len());
        for (index, (kind, descriptor)) in listeners.into_iter().enumerate() {
            let listener = Listener::take(kind, descriptor)
                .map_err(|why| format!("descriptor {index} ({kind:?}): {why}"))?;
            ready.push(listener);
        }
        let shared = &self.shared;
        if shared.draining.is_cancelled() {
            return Err("the gateway is stopping".to_owned());
        }
        let token = shared.doors.of(&session).replace_listeners();
        let id: Arc<str> = session.id().into();
        for listener in ready {
            let (shared, id, token) = (shared.clone(), id.clone(), token.clone());
            let draining = shared.draining.clone();
            shared.tasks.clone().spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = draining.cancelled() => {}
                    () = listener.serve(&shared, &id) => {}
                }
            });
        }
        Ok(())
    }
}
