//! What the data path counts: connections, exchanges, bytes, phases. Additions to atomics and nothing else.
use super::crowds::Crowds;
use super::histogram::Histogram;
use crate::control::types::Verdict;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Kinds of records that are told apart; all others are `other`.
const KINDS: [&str; 9] = [
    "http",
    "websocket",
    "tcp",
    "tls",
    "ssh",
    "postgres",
    "dns",
    "handshake",
    "other",
];

const VERDICTS: [(Verdict, &str); 7] = [
    (Verdict::Allowed, "allowed"),
    (Verdict::Denied, "denied"),
    (Verdict::Asked, "asked"),
    (Verdict::Malformed, "malformed"),
    (Verdict::UpstreamFailed, "upstream_failed"),
    (Verdict::Granted, "granted"),
    (Verdict::Observed, "observed"),
];

/// A part of an exchange that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Name, connection and TLS towards an upstream.
    Dial,
    /// From sending a request to its answer's head, a new connection included.
    Upstream,
    /// From the first byte of a request or stream to the last of its answer.
    Whole,
}

const PHASES: [(Phase, &str); 3] = [
    (Phase::Dial, "dial"),
    (Phase::Upstream, "upstream"),
    (Phase::Whole, "whole"),
];

/// What came of a question for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// It got an address to dial.
    Answered,
    /// The name may not be reached.
    Refused,
    /// The name exists and has no address.
    NoData,
    /// The name does not exist.
    NoSuchName,
    /// Nobody said, or there are too many questions or names.
    Failed,
    /// For something else than an address.
    Other,
    /// No question that can be read.
    Malformed,
}

const QUESTIONS: [(Question, &str); 7] = [
    (Question::Answered, "answered"),
    (Question::Refused, "refused"),
    (Question::NoData, "no_data"),
    (Question::NoSuchName, "no_such_name"),
    (Question::Failed, "failed"),
    (Question::Other, "other"),
    (Question::Malformed, "malformed"),
];

/// A number that only grows.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of the data path.
#[derive(Debug, Default)]
pub struct Path {
    connections: Count,
    ended: Count,
    exchanges: [[Count; VERDICTS.len()]; KINDS.len()],
    bytes_out: Count,
    bytes_in: Count,
    redactions: Count,
    leaves: Count,
    crowds: Crowds,
    leaf_lookups: Count,
    leaf_misses: Count,
    questions: [Count; QUESTIONS.len()],
    dialled: Count,
    reused: Count,
    upstream_opened: Count,
    upstream_ended: Count,
    upstream_kept: Count,
    upstream_taken: Count,
    phases: [Histogram; PHASES.len()],
}

/// What is told of an exchange when it is over.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Kind of its record.
    pub kind: &'a str,
    /// What became of it.
    pub verdict: Verdict,
    /// Bytes from the machine to the upstream.
    pub bytes_out: u64,
    /// Bytes from the upstream to the machine.
    pub bytes_in: u64,
    /// Credentials that were taken out of what came back.
    pub redactions: usize,
    /// How long it took.
    pub lasted: Duration,
}

/// A connection from a machine, counted as open until it is dropped.
#[derive(Debug)]
pub struct Open(Arc<Path>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.ended.add(1);
    }
}

/// A connection to an upstream on which HTTP is spoken, counted as open until it is dropped.
#[derive(Debug)]
pub struct UpstreamOpen(Arc<Path>);

impl Drop for UpstreamOpen {
    fn drop(&mut self) {
        self.0.upstream_ended.add(1);
    }
}

/// One of them that waits for its next request, counted as idle until it is dropped.
#[derive(Debug)]
pub struct UpstreamIdle(Arc<Path>);

impl Drop for UpstreamIdle {
    fn drop(&mut self) {
        self.0.upstream_taken.add(1);
    }
}

impl Path {
    /// Counts a connection from a machine.
    pub fn connection(self: &Arc<Self>) -> Open {
        self.connections.add(1);
        Open(self.clone())
    }

    /// Connections from machines that are open now.
    pub fn open_connections(&self) -> u64 {
        self.connections.get().saturating_sub(self.ended.get())
    }

    /// Counts an exchange that is over.
    pub fn exchange(&self, exchange: Exchange<'_>) {
        let kind = KINDS
            .iter()
            .position(|kind| *kind == exchange.kind)
            .unwrap_or(KINDS.len() - 1);
        let verdict = VERDICTS
            .iter()
            .position(|(verdict, _)| *verdict == exchange.verdict);
        if let Some(counter) = verdict.and_then(|verdict| self.exchanges.get(kind)?.get(verdict)) {
            counter.add(1);
        }
        self.bytes_out.add(exchange.bytes_out);
        self.bytes_in.add(exchange.bytes_in);
        self.redactions.add(exchange.redactions as u64);
        self.took(Phase::Whole, exchange.lasted);
    }

    /// Counts how long a phase took.
    pub fn took(&self, phase: Phase, duration: Duration) {
        if let Some(histogram) = self.phases.get(phase as usize) {
            histogram.observe(duration);
        }
    }

    /// Counts a leaf that was signed.
    pub fn leaf_signed(&self) {
        self.leaves.add(1);
    }

    /// The connections that were closed at once.
    pub fn crowds(&self) -> &Crowds {
        &self.crowds
    }

    /// Counts a leaf that was asked for, and whether it was there.
    pub fn leaf_asked(&self, there: bool) {
        self.leaf_lookups.add(1);
        if !there {
            self.leaf_misses.add(1);
        }
    }

    /// Counts a question for a name.
    pub fn question(&self, question: Question) {
        if let Some(counter) = self.questions.get(question as usize) {
            counter.add(1);
        }
    }

    /// Counts a connection to an upstream on which HTTP is spoken.
    pub fn upstream_open(self: &Arc<Self>) -> UpstreamOpen {
        self.upstream_opened.add(1);
        UpstreamOpen(self.clone())
    }

    /// Counts one of them as idle.
    pub fn upstream_idle(self: &Arc<Self>) -> UpstreamIdle {
        self.upstream_kept.add(1);
        UpstreamIdle(self.clone())
    }

    /// Counts a request that goes out on a new connection, or on a kept one.
    pub fn upstream_connection(&self, kept: bool) {
        match kept {
            true => self.reused.add(1),
            false => self.dialled.add(1),
        };
    }
}

/// The counters as a collector of a registry.
#[derive(Debug)]
pub(super) struct Collected(pub(super) Arc<Path>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let path = &self.0;
        let opened = path.connections.get();
        let open = i64::try_from(path.open_connections()).unwrap_or(i64::MAX);
        let plain = [
            ("connections", "Connections of machines", opened),
            (
                "sent_bytes",
                "Body bytes from machines to upstreams",
                path.bytes_out.get(),
            ),
            (
                "received_bytes",
                "Body bytes from upstreams to machines",
                path.bytes_in.get(),
            ),
            (
                "redactions",
                "Credentials taken out of what came back",
                path.redactions.get(),
            ),
            ("leaves_signed", "Leaf certificates made", path.leaves.get()),
        ];
        for (name, help, value) in plain {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let gauge = ConstGauge::new(open);
        gauge.encode(encoder.encode_descriptor(
            "connections_open",
            "Connections of machines that are open now",
            None,
            MetricType::Gauge,
        )?)?;
        path.crowds.encode(&mut encoder)?;
        path.encode_leaves(&mut encoder)?;
        path.encode_questions(&mut encoder)?;
        path.encode_upstream(&mut encoder)?;
        path.encode_exchanges(&mut encoder)?;
        path.encode_phases(&mut encoder)
    }
}

impl Path {
    fn encode_upstream(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "upstream_requests",
            "Requests that went out, by whether their connection was new or kept",
            None,
            MetricType::Counter,
        )?;
        for (connection, counter) in [("new", &self.dialled), ("kept", &self.reused)] {
            let labels = [("connection", connection)];
            ConstCounter::new(counter.get()).encode(family.encode_family(&labels)?)?;
        }
        let open = self
            .upstream_opened
            .get()
            .saturating_sub(self.upstream_ended.get());
        let idle = self.upstream_kept.get().saturating_sub(self.upstream_taken.get());
        let mut family = encoder.encode_descriptor(
            "upstream_connections",
            "HTTP connections to upstreams that are open now; one of HTTP/2 is in use until it is closed",
            None,
            MetricType::Gauge,
        )?;
        for (state, count) in [("idle", idle), ("in_use", open.saturating_sub(idle))] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }

    fn encode_questions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "dns_questions",
            "Questions of machines for names, by what came of them",
            None,
            MetricType::Counter,
        )?;
        for ((_, outcome), counter) in QUESTIONS.iter().zip(&self.questions) {
            ConstCounter::new(counter.get()).encode(family.encode_family(&[("outcome", *outcome)])?)?;
        }
        Ok(())
    }

    fn encode_leaves(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "leaf_lookups",
            "Leaf certificates asked for, by whether they were there",
            None,
            MetricType::Counter,
        )?;
        let misses = self.leaf_misses.get();
        let hits = self.leaf_lookups.get().saturating_sub(misses);
        for (outcome, count) in [("hit", hits), ("miss", misses)] {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }

    fn encode_exchanges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "exchanges",
            "Requests, streams and refused connections that are over, by kind and by what became of them",
            None,
            MetricType::Counter,
        )?;
        for (kind, counters) in KINDS.iter().zip(&self.exchanges) {
            for ((_, verdict), counter) in VERDICTS.iter().zip(counters) {
                let count = counter.get();
                if count > 0 {
                    let labels = [("kind", *kind), ("verdict", *verdict)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn encode_phases(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "phase_seconds",
            "How long the phases of an exchange took",
            None,
            MetricType::Histogram,
        )?;
        for ((_, phase), histogram) in PHASES.iter().zip(&self.phases) {
            histogram.encode(family.encode_family(&[("phase", *phase)])?)?;
        }
        Ok(())
    }
}
