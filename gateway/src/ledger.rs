//! One audit record for each exchange, written on every way out of it, also when it is dropped half way.
//!
//! An answer to POST, PUT, PATCH or DELETE is let through only after its record is durable; a read that lasts is
//! recorded after one second. Such a first record has the ending `open`; the exchange's end is then a second record with
//! the same id. Whatever ends before its record is due has exactly one.
use crate::audit::{AuditError, OPEN, Sink};
use crate::control::types::{AuditRecord, Verdict};
use crate::metrics::Metrics;
use crate::metrics::path::Exchange;
use crate::secret::SessionSecrets;
use crate::session::exceeded::Exceeded;
use crate::session::{Decided, Session};
use crate::telemetry::spans;
use sallyport_policy::{Decision, Destination, Reason, Refusal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Span;

/// Longest path in a record, in bytes.
const PATH_BYTES: usize = 2048;

/// Opens ledgers; a cheap handle.
#[derive(Debug, Clone)]
pub struct Recorder {
    sink: Sink,
    tasks: TaskTracker,
    metrics: Metrics,
}

/// What passes while an exchange goes on; shared with its bodies.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Body bytes from the machine to the upstream.
    pub bytes_out: AtomicU64,
    /// Body bytes from the upstream to the machine.
    pub bytes_in: AtomicU64,
    used: Mutex<Vec<String>>,
    redacted: Mutex<Vec<String>>,
    remarks: Mutex<Vec<String>>,
}

impl Traffic {
    /// Adds names of credentials put into a body.
    pub fn used(&self, names: &[String]) {
        if !names.is_empty() {
            add_new(&self.used, names.iter().cloned());
        }
    }

    /// Adds names of credentials taken out of an answer.
    pub fn redacted(&self, names: impl IntoIterator<Item = String>) {
        add_new(&self.redacted, names);
    }

    /// Adds things worth a remark in the record.
    pub fn remark(&self, texts: impl IntoIterator<Item = String>) {
        add_new(&self.remarks, texts);
    }
}

fn add_new(list: &Mutex<Vec<String>>, texts: impl IntoIterator<Item = String>) {
    let mut known = list.lock().unwrap_or_else(PoisonError::into_inner);
    for text in texts {
        if !known.contains(&text) {
            known.push(text);
        }
    }
}

fn listed(list: &Mutex<Vec<String>>) -> Vec<String> {
    list.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The record of one exchange in the making. Dropping it unfinished records that the client went away.
#[derive(Debug)]
pub struct Ledger {
    recorder: Recorder,
    record: AuditRecord,
    started: Instant,
    traffic: Arc<Traffic>,
    secrets: Option<Arc<SessionSecrets>>,
    span: Span,
    closed: bool,
}

impl Recorder {
    /// Writes to `sink`; records that are written in the background are awaited by `tasks`, decisions counted by `metrics`.
    pub fn new(sink: Sink, tasks: TaskTracker, metrics: Metrics) -> Self {
        Self { sink, tasks, metrics }
    }

    /// Whether records can be written now.
    pub fn healthy(&self) -> bool {
        self.sink.healthy()
    }

    /// Begins the record of an exchange (or connection) of a session.
    pub fn open(
        &self,
        session: Option<&Session>,
        destination: Option<&Destination>,
        kind: &'static str,
    ) -> Ledger {
        let record = AuditRecord {
            session: session.map(|session| session.id().to_owned()).unwrap_or_default(),
            user: session
                .map(|session| session.who().user.clone())
                .unwrap_or_default(),
            host: destination
                .map(|destination| destination.host.to_string())
                .unwrap_or_default(),
            port: destination
                .map(|destination| destination.port)
                .unwrap_or_default(),
            ..AuditRecord::of(kind, Verdict::Malformed)
        };
        Ledger {
            recorder: self.clone(),
            record,
            started: Instant::now(),
            traffic: Arc::default(),
            secrets: session.map(Session::secrets),
            span: spans::exchange(kind),
            closed: false,
        }
    }
}

impl Ledger {
    /// The id under which this exchange is known everywhere.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// The span of this exchange, below which its phases are.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The counters to be shared with the exchange's bodies.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// Names the host of a record that has no destination.
    pub fn host(&mut self, host: &str) {
        self.record.host = escape(host);
    }

    /// Notes what is asked for. `path` is escaped and cut.
    pub fn asked(&mut self, method: &str, path: &str) {
        self.record.method = Some(escape(method));
        self.record.path = Some(escape(path));
    }

    /// Notes as whom an agent logs in over ssh.
    pub fn login(&mut self, user: &str) {
        self.record.login = Some(escape(user));
    }

    /// Says of what kind the record is, once that is known.
    pub fn kind(&mut self, kind: &'static str) {
        kind.clone_into(&mut self.record.kind);
    }

    /// Notes where the client is, where that tells anything.
    pub fn came_from(&mut self, client: Option<SocketAddr>) {
        self.record.client = client;
    }

    /// Notes whether the machine speaks TLS.
    pub fn tls(&mut self, tls: bool) {
        self.record.tls = Some(tls);
    }

    /// Takes over the id and the answer of a decision.
    pub fn decided(&mut self, decided: &Decided) {
        self.record.id.clone_from(&decided.id);
        self.record.at = decided.at;
        self.record.policy_hash.clone_from(&decided.policy_hash);
        match &decided.decision {
            Decision::Allow(permit) => {
                self.record.grants = permit.grants().to_vec();
                if let Some(refusal) = permit.observed() {
                    self.refused(Verdict::Observed, refusal);
                } else if let Some(reason) = &decided.allowed {
                    self.reason(Verdict::Allowed, reason.clone());
                }
            }
            Decision::Inspect => {
                self.record.verdict = Verdict::Denied;
                "not decided before the whole request is known".clone_into(&mut self.record.reason);
            }
            Decision::Ask(refusal) => self.refused(Verdict::Asked, refusal),
            Decision::Deny(refusal) => self.refused(Verdict::Denied, refusal),
        }
        self.recorder.metrics.decision(self.record.verdict);
    }

    /// Notes that more was asked for than a rule lets pass.
    pub fn exceeded(&mut self, exceeded: &Exceeded) {
        self.refused(Verdict::Denied, &exceeded.refusal());
    }

    /// Sets what became of it where no policy decided, or where something went wrong after a policy did.
    pub fn verdict(&mut self, verdict: Verdict, reason: impl Into<String>) {
        self.record.verdict = verdict;
        self.record.reason = escape(&reason.into());
    }

    /// Sets the status that the client was given.
    pub fn status(&mut self, status: http::StatusCode) {
        self.record.status = Some(status.as_u16());
    }

    /// Adds names of credentials put in.
    pub fn used(&mut self, names: Vec<String>) {
        self.record.credentials_used.extend(names);
    }

    /// Adds a remark to the reason.
    pub fn remark(&mut self, text: &str) {
        append(&mut self.record.reason, text);
    }

    /// Writes the first record, durable before this returns. The end will be a second one.
    pub async fn write_open(&mut self) -> Result<(), AuditError> {
        let record = self.snapshot(OPEN);
        self.recorder.sink.write(record).await.map(|_| ())
    }

    /// Notes the first record in the background. The end will be a second one.
    pub fn note_open(&self) {
        self.spawn(self.snapshot(OPEN));
    }

    /// Writes the only record, durable before this returns.
    pub async fn write_closed(mut self, ending: &str) -> Result<(), AuditError> {
        let record = self.last(ending);
        self.recorder.sink.write(record).await.map(|_| ())
    }

    /// Notes the end, waiting while the log's queue is full.
    pub async fn close(mut self, ending: &str) {
        let record = self.last(ending);
        report(self.recorder.sink.note(record).await);
    }

    /// Notes the end in the background.
    pub fn end(mut self, ending: &str) {
        let record = self.last(ending);
        self.spawn(record);
    }

    fn reason(&mut self, verdict: Verdict, reason: Reason) {
        self.record.verdict = verdict;
        self.record.rule = reason.rule;
        self.record.reason = reason.text;
    }

    fn refused(&mut self, verdict: Verdict, refusal: &Refusal) {
        self.reason(verdict, refusal.reason.clone());
        self.record.refusal = Some(refusal.clone());
    }

    /// The last record, which is counted.
    fn last(&mut self, ending: &str) -> AuditRecord {
        self.closed = true;
        let blank = AuditRecord::blank(String::new(), self.record.verdict);
        let record = std::mem::replace(&mut self.record, blank);
        let record = self.completed(record, ending);
        self.recorder.metrics.path().exchange(Exchange {
            kind: &record.kind,
            verdict: record.verdict,
            bytes_out: record.bytes_out,
            bytes_in: record.bytes_in,
            redactions: record.credentials_redacted.len(),
            lasted: self.started.elapsed(),
        });
        spans::ended(&mut self.span, &record);
        record
    }

    fn snapshot(&self, ending: &str) -> AuditRecord {
        self.completed(self.record.clone(), ending)
    }

    fn completed(&self, mut record: AuditRecord, ending: &str) -> AuditRecord {
        record.bytes_out = self.traffic.bytes_out.load(Ordering::Relaxed);
        record.bytes_in = self.traffic.bytes_in.load(Ordering::Relaxed);
        record.duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        record.credentials_used.extend(listed(&self.traffic.used));
        record.credentials_redacted = listed(&self.traffic.redacted);
        for remark in listed(&self.traffic.remarks) {
            if !record.reason.contains(&remark) {
                append(&mut record.reason, &remark);
            }
        }
        record.ending = ending.to_owned();
        if let Some(secrets) = &self.secrets {
            secrets.scrub(&mut record);
        }
        record
    }

    /// Notes a record without waiting, in a task of its own only where the log's queue is full.
    fn spawn(&self, record: AuditRecord) {
        let Some(record) = self.recorder.sink.offer(record) else {
            return;
        };
        let sink = self.recorder.sink.clone();
        self.recorder
            .tasks
            .spawn(async move { report(sink.note(record).await) });
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if !self.closed && tokio::runtime::Handle::try_current().is_ok() {
            let record = self.last("the client went away");
            self.spawn(record);
        }
    }
}

/// The one place where a failed note ends up: the sink itself turns unhealthy, so that no new connection is taken.
fn report(noted: Result<(), AuditError>) {
    if let Err(error) = noted {
        tracing::error!(%error, "an audit record was not written");
    }
}

fn append(reason: &mut String, remark: &str) {
    if !reason.is_empty() {
        reason.push_str("; ");
    }
    reason.push_str(&escape(remark));
}

/// Control characters escaped, and no longer than a record may hold.
fn escape(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(PATH_BYTES));
    for letter in text.chars() {
        if clean.len() >= PATH_BYTES {
            clean.push('…');
            break;
        }
        if letter.is_control() {
            clean.extend(letter.escape_default());
        } else {
            clean.push(letter);
        }
    }
    clean
}
