//! One query of a machine, answered: refused names get their address and the reason, others are looked up by the gateway.
//!
//! A name that no rule lets anybody reach is asked of nobody, so that no name carries anything out.
use super::answer::{self, Asked, ErrorCode, TTL};
use super::known::Known;
use super::refused::Telling;
use super::synthetic::{Full, Table};
use crate::Shared;
use crate::control::types::Verdict;
use crate::metrics::path::Question;
use crate::session::{Decided, Session};
use hickory_proto::op::Message;
use sallyport_policy::{Decision, Host};
use std::sync::Arc;

/// The answer's bytes; none where nothing is answered.
pub async fn reply(shared: &Shared, session: &Session, names: &Table, query: &[u8]) -> Option<Vec<u8>> {
    let message = message(shared, session, names, query).await?;
    match message.to_vec() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tracing::warn!(%error, "a DNS answer could not be written");
            None
        }
    }
}

/// The answer; none where nothing is answered.
pub async fn message(shared: &Shared, session: &Session, names: &Table, query: &[u8]) -> Option<Message> {
    let counters = shared.metrics.path();
    let (mut reply, question, host) = match answer::read(query) {
        Asked::Nothing => return None,
        Asked::Done(reply) => {
            counters.question(Question::Malformed);
            return Some(reply);
        }
        Asked::Question {
            reply,
            question,
            host,
        } => (reply, question, host),
    };
    let Some(name) = host else {
        counters.question(Question::Other);
        answer::other(names, &question, &mut reply);
        return Some(reply);
    };
    let refused = refusal(session, &name);
    let known = match &refused {
        Some(_) => Known::Addresses { ttl: TTL },
        None if session.hosts().contains_key(&*name) => Known::Addresses { ttl: TTL },
        None => shared.upstream.known(&name).await,
    };
    let came = match &known {
        _ if refused.is_some() => Question::Refused,
        Known::Addresses { .. } => Question::Answered,
        Known::Nothing => Question::NoData,
        Known::NoSuchName => Question::NoSuchName,
        Known::Failed(_) => Question::Failed,
    };
    if let Err(full) = answer::addresses(names, &name, &known, &question, &mut reply) {
        counters.question(Question::Failed);
        overflow(shared, session, names, full).await;
        answer::fail(&mut reply, ErrorCode::Other, &full.to_string());
        return Some(reply);
    }
    counters.question(came);
    // Nobody reads the reason where it cannot be told: the connection will be refused, and recorded, anyway.
    if let Some(decided) = refused
        && reply.edns.is_some()
    {
        let text = tell(shared, session, names, (&name, decided)).await;
        answer::explain(&mut reply, ErrorCode::Blocked, &text);
    }
    Some(reply)
}

fn refusal(session: &Session, name: &Arc<str>) -> Option<Decided> {
    session.refuses_host(&Host::Name(name.clone()))
}

/// Records the refusal of a name the first time, and gives the text for the machine.
async fn tell(
    shared: &Shared,
    session: &Session,
    names: &Table,
    (name, mut decided): (&Arc<str>, Decided),
) -> String {
    let told = names.refused().tell(name, &decided.id, &decided.policy_hash);
    let record = match told {
        Telling::Again(id) => {
            decided.id = id;
            None
        }
        Telling::New => Some(None),
        Telling::TooMany => Some(Some("refused names beyond this one have no record of their own")),
        Telling::Nothing => None,
    };
    if let Some(remark) = record {
        let mut ledger = shared.recorder.open(Some(session), None, "dns");
        ledger.decided(&decided);
        ledger.host(name);
        if let Some(remark) = remark {
            ledger.remark(remark);
        }
        ledger.close("refused").await;
    }
    match &decided.decision {
        Decision::Deny(refusal) => format!("decision {}: {}", decided.id, refusal.told(name)),
        _ => format!("decision {}", decided.id),
    }
}

async fn overflow(shared: &Shared, session: &Session, names: &Table, full: Full) {
    if names.first_overflow() {
        let mut ledger = shared.recorder.open(Some(session), None, "dns");
        ledger.verdict(Verdict::Denied, full.to_string());
        ledger.close("refused").await;
    }
}
