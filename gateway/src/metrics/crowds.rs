//! Connections that are closed at once since there are too many: each is counted, and said now and then, so that whoever knocks
//! without end does not fill the log.
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often each kind is said at most.
const PAUSE: Duration = Duration::from_secs(10);

/// Of what there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// Connections of one session.
    Session,
    /// Connections from one address that have not said whose they are.
    Strangers,
    /// Connections to the proxy, or tunnels, whoever makes them.
    Everybody,
}

const CROWDS: [(Crowd, &str); 3] = [
    (Crowd::Session, "session"),
    (Crowd::Strangers, "strangers"),
    (Crowd::Everybody, "everybody"),
];

/// What is counted of each.
#[derive(Debug, Default)]
pub struct Crowds([Counted; CROWDS.len()]);

#[derive(Debug, Default)]
struct Counted {
    refused: AtomicU64,
    said: Mutex<Option<Instant>>,
}

impl Crowds {
    /// Counts a connection that is closed at once, and says now and then who it was.
    pub fn refused(&self, crowd: Crowd, who: &dyn fmt::Display) {
        let (Some(counted), Some((_, of))) = (self.0.get(crowd as usize), CROWDS.get(crowd as usize)) else {
            return;
        };
        let refused = counted.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut said = counted.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= PAUSE) {
            *said = Some(Instant::now());
            tracing::warn!(
                of,
                %who,
                refused,
                "connections are closed at once: there are too many; this is said every {PAUSE:?} at most"
            );
        }
    }

    /// The counters.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "connections_refused",
            "Connections that were closed at once, by of what there are too many",
            None,
            MetricType::Counter,
        )?;
        for ((_, of), counted) in CROWDS.iter().zip(&self.0) {
            let counter = ConstCounter::new(counted.refused.load(Ordering::Relaxed));
            counter.encode(family.encode_family(&[("of", *of)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::field::{Field, Visit};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    /// Notes what the events say of `who`.
    #[derive(Clone, Default)]
    struct Heard(std::sync::Arc<Mutex<Vec<String>>>);

    impl Visit for Heard {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "who" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            event.record(&mut self.clone());
        }
    }

    #[test]
    fn many_that_are_refused_are_said_once_for_each_kind_and_all_counted() {
        let (heard, crowds) = (Heard::default(), Crowds::default());
        let listening = tracing_subscriber::registry().with(heard.clone());
        tracing::subscriber::with_default(listening, || {
            for number in 0..100 {
                crowds.refused(Crowd::Session, &format!("run-{number}"));
            }
            crowds.refused(Crowd::Strangers, &"192.0.2.1");
        });
        assert_eq!(*heard.0.lock().unwrap(), ["run-0", "192.0.2.1"]);
        assert_eq!(
            crowds.0[Crowd::Session as usize].refused.load(Ordering::Relaxed),
            100
        );
    }
}
