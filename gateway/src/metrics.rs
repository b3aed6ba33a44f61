//! What the gateway counts, as OpenMetrics text. Labels are bounded: verdicts, outcomes, and the standing policies.
pub mod crowds;
pub mod histogram;
pub mod path;

use crate::control::types::{StandingPolicies, Verdict};
use crate::secret::live::Counts;
use path::{Collected, Path};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// How [`Metrics::render`]'s text is announced.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What came of looking at the standing policies, or of a call to change one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A change is in force.
    Taken,
    /// A change was refused; what was in force stays so.
    Refused,
    /// There was nothing new.
    Unchanged,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Broken {
    policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    policy: String,
    hash: String,
}

/// Counters; gauges are made from the state when they are asked for, so that they never lag behind it.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    reloads: Family<Reload, Counter>,
    allowed: Counter,
    denied: Counter,
    asked: Counter,
    observed: Counter,
    path: Arc<Path>,
}

impl Metrics {
    /// Counts a look at the standing policies, or a call to change one.
    pub fn reload(&self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Taken => "taken",
            Outcome::Refused => "refused",
            Outcome::Unchanged => "unchanged",
        };
        self.reloads.get_or_create(&Reload { outcome }).inc();
    }

    /// The counters of the data path.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Counts a decision. One addition; other verdicts than a policy's are not counted.
    pub fn decision(&self, verdict: Verdict) {
        match verdict {
            Verdict::Allowed => self.allowed.inc(),
            Verdict::Denied => self.denied.inc(),
            Verdict::Asked => self.asked.inc(),
            Verdict::Observed => self.observed.inc(),
            Verdict::Malformed | Verdict::UpstreamFailed | Verdict::Granted => return,
        };
    }

    /// Everything as text, with the state's gauges.
    pub fn render(
        &self,
        policies: &StandingPolicies,
        sessions: usize,
        fetched: Option<&Counts>,
    ) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("sallyport");
        if let Some(fetched) = fetched {
            registry.register(
                "secret_calls",
                "Calls to services that secrets are fetched from, by what was asked for and what came of it",
                fetched.family(),
            );
        }
        registry.register(
            "policy_reloads",
            "Looks at the standing policies, by what came of them",
            self.reloads.clone(),
        );
        let decisions = Family::<Decided, Counter>::default();
        for (verdict, counter) in [
            ("allowed", &self.allowed),
            ("denied", &self.denied),
            ("asked", &self.asked),
            ("observed", &self.observed),
        ] {
            decisions
                .get_or_create(&Decided { verdict })
                .inc_by(counter.get());
        }
        registry.register("decisions", "Decisions, by verdict", decisions);
        let (broken, versions) = (
            Family::<Broken, Gauge>::default(),
            Family::<Version, Gauge>::default(),
        );
        for one in &policies.policies {
            let policy = one.key.to_string();
            if let Some(version) = &one.version {
                let number = i64::try_from(version.number).unwrap_or(i64::MAX);
                let labels = Version {
                    policy: policy.clone(),
                    hash: version.hash.clone(),
                };
                versions.get_or_create(&labels).set(number);
            }
            broken
                .get_or_create(&Broken { policy })
                .set(i64::from(!one.broken.is_empty()));
        }
        registry.register(
            "policy_broken",
            "Whether a standing policy's file cannot be used",
            broken,
        );
        registry.register(
            "policy_version",
            "Version in force of a standing policy",
            versions,
        );
        gauge(&mut registry, "sessions", "Sessions", sessions);
        gauge(
            &mut registry,
            "sessions_closed",
            "Sessions for which nothing passes, since their policy cannot be used",
            policies.closed.len(),
        );
        registry.register_collector(Box::new(Collected(self.path.clone())));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge: Gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}
