//! The policy's answer to one request, for which the beginning of a push is read where a rule looks at what it changes.
use super::client::Client;
use super::stop::Stop;
use super::upload::Upload;
use super::{Channel, push};
use crate::control::types::Verdict;
use crate::git::push::Push;
use crate::ledger::Ledger;
use crate::limits::Limits;
use http::HeaderMap;
use sallyport_policy::{Decision, HttpRequest, Moment, Permit, Refusal};

/// What was decided on, and the right to send it.
#[derive(Debug)]
pub struct Allowed {
    /// As the policy saw it.
    pub request: HttpRequest,
    /// The right.
    pub permit: Permit,
    /// The refs that a push names, where what it brings will be looked into.
    pub push: Option<Push>,
}

impl Allowed {
    /// Each by itself.
    pub fn parts(self) -> (HttpRequest, Permit, Option<Push>) {
        (self.request, self.permit, self.push)
    }
}

/// What is decided on, and where more of it can be read.
pub struct Asked<'a> {
    /// The head.
    pub request: HttpRequest,
    /// Its fields, in the form in which they will be sent.
    pub headers: &'a HeaderMap,
    /// What follows it; passes unchanged, whatever is read of it.
    pub body: &'a mut Upload,
}

/// Asks the policy of this moment. A push is read first where a rule looks at what it changes, and where git must be told
/// of each ref that it is refused.
pub async fn decide(
    channel: &Channel,
    asked: Asked<'_>,
    limits: &Limits,
    (client, ledger): (&mut Client, &mut Ledger),
) -> Result<Allowed, Stop> {
    let Asked {
        request,
        headers,
        body,
    } = asked;
    let is_push = push::is_push(&request);
    let mut question = sallyport_policy::Request {
        destination: channel.destination.clone(),
        moment: Moment::Http(request),
    };
    let mut decided = channel.session.decide(&question);
    let mut hint = None;
    let waits = matches!(decided.decision, Decision::Inspect);
    let told =
        matches!(decided.decision, Decision::Deny(_) | Decision::Ask(_)) && push::is_sent_by_git(headers);
    if is_push && (waits || told) {
        match push::read(headers, body, limits).await {
            Ok(push) => {
                ledger.traffic().remark([push::told(&push)]);
                if waits && let Moment::Http(request) = &mut question.moment {
                    request.pushed = Some(push.updates());
                    decided = channel.session.decide(&question);
                    hint = push.hint();
                }
                client.pushes(push);
            }
            Err(fault) if waits => {
                ledger.decided(&decided);
                return Err(Stop::Push(fault));
            }
            // Refused whatever it changes; the client is told in other words.
            Err(fault) => ledger.traffic().remark([fault.to_string()]),
        }
    }
    ledger.decided(&decided);
    let looked_into = push::is_sent_by_git(headers) && channel.session.secrets().guards_bodies();
    let push = match (&decided.decision, client.pushed()) {
        (Decision::Allow(_), Some(push)) => Some(push.clone()),
        // Where it cannot be read, the client is told in other words.
        (Decision::Allow(_), None) if is_push && looked_into => {
            push::read_names(headers, body, limits).await.ok()
        }
        _ => None,
    };
    let stop = match decided.decision {
        Decision::Allow(permit) => match question.moment {
            Moment::Http(request) => {
                return Ok(Allowed {
                    request,
                    permit,
                    push,
                });
            }
            _ => Stop::Undecided(Vec::new()),
        },
        Decision::Ask(refusal) => Stop::Refused(hinted(refusal, hint), Verdict::Asked),
        Decision::Deny(refusal) => Stop::Refused(hinted(refusal, hint), Verdict::Denied),
        // Nothing more will be known: without a yes it is a no.
        Decision::Inspect => Stop::Undecided(channel.session.undecided(&question)),
    };
    if client.sends_to_the_end() {
        body.read_over(limits.request_body_idle).await;
    }
    Err(stop)
}

/// A refusal that also says what was seen of the push.
fn hinted(mut refusal: Refusal, hint: Option<String>) -> Refusal {
    let both: Vec<String> = refusal.hint.take().into_iter().chain(hint).collect();
    refusal.hint = (!both.is_empty()).then(|| both.join("; "));
    refusal
}
