//! Fetches, renewals and revocations, counted by source and by what came of them. No value, no path.
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// What a source was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    /// Kind of source: `vault`, ….
    source: &'static str,
    /// `fetch`, `renew` or `revoke`.
    call: &'static str,
    /// `done` or `failed`.
    outcome: &'static str,
}

/// Counters, shared by their clones.
#[derive(Debug, Clone, Default)]
pub struct Counts(Family<Call, Counter>);

impl Counts {
    /// Counts one call.
    pub(super) fn note(&self, source: &'static str, call: &'static str, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.0
            .get_or_create(&Call {
                source,
                call,
                outcome,
            })
            .inc();
    }

    /// For a registry of metrics.
    pub fn family(&self) -> Family<Call, Counter> {
        self.0.clone()
    }
}
