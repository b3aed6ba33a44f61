//! The ways in which an exchange ends without its upstream's answer, and what client and record are told of each.
use super::coding::CannotLookInside;
use super::head::HeadFault;
use super::refusal::Problem;
use crate::audit::AuditError;
use crate::control::types::Verdict;
use crate::git::push::PushFault;
use crate::secret::Leak;
use crate::session::exceeded::{Bound, Exceeded};
use crate::upstream::UpstreamFault;
use http::StatusCode;
use sallyport_policy::Refusal;

/// Why an exchange ends before its answer comes from upstream.
#[derive(Debug)]
pub enum Stop {
    /// The head is malformed or names another destination.
    Head(HeadFault),
    /// The policy said no, or a person must say yes.
    Refused(Refusal, Verdict),
    /// The policy wanted to see more when there was no more; the rules that did.
    Undecided(Vec<String>),
    /// A rule looks at what the push changes, and that cannot be told.
    Push(PushFault),
    /// More than a rule lets pass.
    Limit(Exceeded),
    /// A credential was about to go where it must not.
    Leak(Leak),
    /// The request has been here before.
    Loop,
    /// The request wants to speak on another protocol, of this name, which is not WebSocket.
    Upgrade(String),
    /// The request is coded in a way that is not known here, and a credential may have to be put into it.
    Unread(CannotLookInside),
    /// The answer is coded in a way that is not known here.
    Opaque(CannotLookInside),
    /// No answer from the upstream.
    Upstream(UpstreamFault),
    /// The record cannot be written.
    Audit(AuditError),
}

impl Stop {
    /// The answer that tells it to the client. `id` is that of the exchange, `host` what was dialled.
    pub fn problem(&self, id: &str, host: &str) -> Problem {
        let of = |status, title, error, detail: String| Problem {
            status,
            title,
            detail,
            error,
            id: id.to_owned(),
            refusal: None,
            close: false,
            retry_after_s: None,
        };
        match self {
            Self::Head(fault) => Problem {
                close: true,
                ..of(
                    fault.status(),
                    "the request is malformed",
                    "http_request_error",
                    fault.to_string(),
                )
            },
            Self::Refused(refusal, verdict) => {
                let title = if *verdict == Verdict::Asked {
                    "a person must allow this"
                } else {
                    "refused by policy"
                };
                Problem {
                    refusal: Some(refusal.clone()),
                    ..of(
                        StatusCode::FORBIDDEN,
                        title,
                        "http_request_denied",
                        refusal.told(host),
                    )
                }
            }
            Self::Undecided(rules) => of(
                StatusCode::FORBIDDEN,
                "refused by policy",
                "http_request_denied",
                undecided_text(rules),
            ),
            Self::Push(fault) => of(
                StatusCode::FORBIDDEN,
                "the push cannot be decided",
                "http_request_denied",
                fault.to_string(),
            ),
            Self::Limit(exceeded) => {
                let (status, error) = bound_status(exceeded.bound);
                Problem {
                    refusal: Some(exceeded.refusal()),
                    retry_after_s: exceeded.retry_after_s,
                    ..of(
                        status,
                        "more than the policy lets pass",
                        error,
                        exceeded.sentence.clone(),
                    )
                }
            }
            Self::Leak(leak) if leak.retry_after_s.is_some() => Problem {
                retry_after_s: leak.retry_after_s,
                ..of(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "a credential has no value at the moment",
                    "proxy_internal_error",
                    leak.sentence.clone(),
                )
            },
            Self::Leak(leak) => of(
                StatusCode::FORBIDDEN,
                "a credential must not go there",
                "http_request_denied",
                leak.sentence.clone(),
            ),
            Self::Loop => of(
                StatusCode::LOOP_DETECTED,
                "the request goes round in a circle",
                "proxy_loop_detected",
                format!("its `Via` says that it has passed this gateway already; `{host}` leads back here"),
            ),
            Self::Upgrade(name) => of(
                StatusCode::NOT_IMPLEMENTED,
                "this upgrade is not supported",
                "http_upgrade_failed",
                format!(
                    "this gateway cannot read what would follow the upgrade to `{}`, so it does not let it through; use plain \
                     HTTP requests or WebSocket",
                    name.escape_debug()
                ),
            ),
            Self::Unread(cannot) => of(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the request cannot be looked into",
                "http_request_error",
                format!(
                    "{cannot}; a credential may have to be put into it, so send it without a content coding, or with `gzip`, `br`, \
                     `zstd` or `deflate`"
                ),
            ),
            Self::Opaque(cannot) => of(
                StatusCode::BAD_GATEWAY,
                "the answer cannot be looked into",
                "http_response_content_coding",
                format!(
                    "{cannot}; this session has credentials that must be taken out of answers; ask with `Accept-Encoding: gzip` \
                     and without `Range`"
                ),
            ),
            Self::Upstream(UpstreamFault::Address(why)) => of(
                StatusCode::FORBIDDEN,
                "the address is forbidden",
                "destination_ip_prohibited",
                format!("`{host}` leads to no address that may be dialled: {why}"),
            ),
            Self::Upstream(fault) => of(
                fault.status(),
                "the upstream did not answer",
                fault.error(),
                format!("`{host}`: {fault}"),
            ),
            Self::Audit(error) => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "the audit log cannot be written",
                "proxy_internal_error",
                format!(
                    "{error}; if the request went out already, its answer is held back and the upstream may have acted on it"
                ),
            ),
        }
    }

    /// What the record says of it; nothing where the decision says it already.
    pub fn verdict(&self, detail: &str) -> Option<(Verdict, String)> {
        Some(match self {
            Self::Refused(..) | Self::Limit(_) | Self::Audit(_) => return None,
            Self::Head(fault) => (Verdict::Malformed, fault.to_string()),
            Self::Leak(leak) => (Verdict::Denied, leak.sentence.clone()),
            Self::Undecided(_)
            | Self::Push(_)
            | Self::Loop
            | Self::Upgrade(_)
            | Self::Unread(_)
            | Self::Opaque(_) => (Verdict::Denied, detail.to_owned()),
            Self::Upstream(UpstreamFault::Address(_)) => (Verdict::Denied, detail.to_owned()),
            Self::Upstream(UpstreamFault::RequestBody(why)) => {
                (Verdict::Malformed, format!("the request's body broke off: {why}"))
            }
            Self::Upstream(fault) => (Verdict::UpstreamFailed, fault.to_string()),
        })
    }
}

/// Status and RFC 9209 error type for what exceeds a bound.
fn bound_status(bound: Bound) -> (StatusCode, &'static str) {
    match bound {
        Bound::Connections | Bound::Rate => (StatusCode::TOO_MANY_REQUESTS, "http_request_denied"),
        Bound::RequestBytes => (StatusCode::PAYLOAD_TOO_LARGE, "http_request_error"),
        Bound::BytesOut => (StatusCode::FORBIDDEN, "http_request_denied"),
        Bound::ResponseBytes => (StatusCode::BAD_GATEWAY, "http_response_body_size"),
    }
}

fn undecided_text(rules: &[String]) -> String {
    match rules.first() {
        Some(rule) => format!("rule `{rule}` looks at more than the whole request shows, so it is refused"),
        None => "the policy gave no answer to the whole request, so it is refused".to_owned(),
    }
}
