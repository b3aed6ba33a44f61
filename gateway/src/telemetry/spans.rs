//! The spans: a connection, what is exchanged on it, and the phases of that. The only place that says what one carries.
use crate::control::types::{AuditRecord, Verdict};
use sallyport_policy::Destination;
use tracing::field::Empty;
use tracing::{Metadata, Span, info_span};

/// Marks the gateway's spans among all that is traced. The log on standard error leaves them out.
const TARGET: &str = "sallyport_span";

/// Whether this is one of the gateway's spans.
pub fn is_one(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

/// A connection of a session to what it dialled.
pub fn connection(session: &str, destination: &Destination) -> Span {
    info_span!(
        target: TARGET,
        parent: None,
        "connection",
        otel.kind = "server",
        session,
        server.address = %destination.host,
        server.port = destination.port,
        decision = Empty,
    )
}

/// Notes the decision on a connection.
pub fn decided(connection: &Span, decision: &str) {
    connection.record("decision", decision);
}

/// A request, stream or refused connection, below the span that is entered now.
pub fn exchange(kind: &'static str) -> Span {
    info_span!(
        target: TARGET,
        "exchange",
        otel.kind = "server",
        otel.name = kind,
        otel.status_code = Empty,
        session = Empty,
        kind = Empty,
        decision = Empty,
        verdict = Empty,
        rule = Empty,
        policy = Empty,
        ending = Empty,
        server.address = Empty,
        server.port = Empty,
        http.request.method = Empty,
        http.response.status_code = Empty,
        sent_bytes = Empty,
        received_bytes = Empty,
    )
}

/// From sending a request to its answer's head.
pub fn upstream(exchange: &Span) -> Span {
    info_span!(target: TARGET, parent: exchange, "upstream", otel.kind = "client")
}

/// Name, connection and TLS towards an upstream.
pub fn dial(upstream: &Span) -> Span {
    info_span!(target: TARGET, parent: upstream, "dial", otel.kind = "client")
}

/// Says of an exchange what its last record says, which no value is in; ends it.
pub fn ended(exchange: &mut Span, record: &AuditRecord) {
    let span = std::mem::replace(exchange, Span::none());
    if span.is_disabled() {
        return;
    }
    span.record("session", &record.session);
    span.record("kind", &record.kind);
    span.record("otel.name", &record.kind);
    span.record("decision", &record.id);
    span.record("verdict", record.verdict.name());
    span.record("rule", &record.rule);
    span.record("policy", &record.policy_hash);
    span.record("ending", &record.ending);
    span.record("server.address", &record.host);
    span.record("server.port", record.port);
    if let Some(method) = &record.method {
        span.record("http.request.method", method);
    }
    if let Some(status) = record.status {
        span.record("http.response.status_code", status);
    }
    span.record("sent_bytes", record.bytes_out);
    span.record("received_bytes", record.bytes_in);
    if record.verdict == Verdict::UpstreamFailed {
        span.record("otel.status_code", "ERROR");
    }
}
