//! A histogram of durations on atomics alone, so that two exchanges never wait for each other to be counted.
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in microseconds, from what a decision costs to what a model thinks.
const BOUNDS_US: [u64; 14] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    30_000_000,
    300_000_000,
];

/// Durations, counted by size; encoded in seconds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for us in [100, 101, 3_000, 400_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let mut registry = Registry::default();
        registry.register("waits", "Waits", histogram);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "waits_bucket{le=\"0.0001\"} 1",
            "waits_bucket{le=\"0.00025\"} 2",
            "waits_bucket{le=\"0.005\"} 3",
            "waits_bucket{le=\"300.0\"} 3",
            "waits_bucket{le=\"+Inf\"} 4",
            "waits_count 4",
            "waits_sum 400.003201",
        ] {
            assert!(
                text.lines().any(|there| there == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
