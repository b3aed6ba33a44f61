//! The session at the gateway, and requests for access.
use crate::access;
use crate::activity::{Context, credentials};
use crate::gateway::GatewayError;
use crate::machine::MachineRecord;
use crate::run::event::{Asker, Event};
use sallyport_gateway::control::types::{AccessRequest, SessionSpec, SessionView};
use sallyport_policy::Wanted;
use std::collections::BTreeMap;

/// What the session is made from.
pub fn spec(context: &Context) -> SessionSpec {
    SessionSpec {
        who: context.request.who.clone(),
        policies: context.request.policies.clone(),
        hosts: context.request.environment.hosts.clone(),
        upstream_roots_pem: context.request.environment.upstream_roots_pem.clone(),
    }
}

/// Opens the session, or finds it.
pub(super) async fn open_session(context: &Context) -> Event {
    let spec = spec(context);
    let door = &context.hands.door;
    match context
        .hands
        .ask_door(|| door.put_session(&context.run, &spec))
        .await
    {
        Ok(view) => ready(view),
        Err(fault) => Event::PreparationFailed {
            key: "session".into(),
            why: fault.to_string(),
        },
    }
}

fn ready(view: SessionView) -> Event {
    let named = view
        .credentials
        .into_iter()
        .filter_map(|known| Some((known.env?, known.placeholder)));
    let placeholders: BTreeMap<String, String> = named.collect();
    Event::SessionReady {
        ca_pem: view.ca_pem,
        ssh_host_key: view.ssh_host_key,
        placeholders,
        warnings: view.warnings,
    }
}

/// Asks for access, and answers the machine's command line where that had asked.
pub(super) async fn request(
    context: &Context,
    asker: Asker,
    record: Option<MachineRecord>,
    wanted: Wanted,
    why: String,
) -> Event {
    let asked = AccessRequest {
        wanted: wanted.clone(),
        why: why.clone(),
    };
    let door = &context.hands.door;
    let (granted, text) = match context.hands.ask_door(|| door.access(&context.run, &asked)).await {
        Ok(answer) => access::answer(&wanted, &answer),
        Err(fault @ GatewayError::Unreachable { .. }) => {
            (false, format!("not granted: {fault}; try again later"))
        }
        Err(fault) => (false, format!("not granted: {fault}")),
    };
    if granted && wanted.credential.is_some() {
        credentials::tell_again(context).await;
    }
    if let (Asker::CommandLine { id }, Some(record)) = (&asker, record) {
        let told = match context.link.get(&record.id).await {
            Some(machine) => machine
                .answer(id, granted, &text)
                .await
                .err()
                .map(|fault| fault.to_string()),
            None => Some("it is not connected".into()),
        };
        if let Some(fault) = told {
            tracing::warn!(run = %context.run, request = %id, %fault, "the machine was not told the answer");
        }
    }
    Event::AccessAnswered {
        asker,
        wanted,
        why,
        granted,
        text,
    }
}
