//! How much has passed under each rule of a session that bounds it, counted when something is really sent.
//!
//! What is under way and how fast it came is known to the process alone. Bytes sent out outlive it: they are written down
//! ahead, a block at a time, so that a crash forgets none of them and costs the run one block at most.
//! The counters are kept by rule, and go on when a new policy bounds the same rule otherwise.
use super::exceeded::Exceeded;
use super::keep::Keeper;
use sallyport_policy::{Limits, Rate};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Blocks in which a rule's `bytes_out` is written down: so many writes for the whole of it.
const BLOCKS: u64 = 64;
/// The largest block, in bytes.
const LARGEST_BLOCK: u64 = 16 << 20;

/// What may pass at once, before its pace is looked at.
const HEAD_START: Duration = Duration::from_millis(100);

/// Bounds, each with the id of the rule that sets it.
type Bounds = [(String, Limits)];

/// The counters of one session.
pub(super) struct Quotas {
    session: String,
    keeper: Arc<Keeper>,
    counters: Mutex<HashMap<String, Counter>>,
}

/// What is counted for one rule.
#[derive(Debug, Default, Clone)]
struct Counter {
    under_way: u32,
    /// When everything begun so far would have begun at an even pace, and the rate that it was reckoned by.
    due: Option<(Instant, Rate)>,
    /// When everything that passed so far would have passed at the rule's pace.
    flowed: Option<Instant>,
    sent: u64,
    /// What the disk says of `sent`: never less.
    written: u64,
}

/// One exchange or stream under its rules' bounds; under way until it is dropped.
#[derive(Debug)]
pub struct Pass {
    quotas: Arc<Quotas>,
    bounds: Vec<(String, Limits)>,
    request: AtomicU64,
    answer: AtomicU64,
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Quotas {
    /// Goes on from what is written down: body bytes sent out, by rule.
    pub(super) fn new(session: &str, keeper: Arc<Keeper>, spent: BTreeMap<String, u64>) -> Self {
        let counter = |written| Counter {
            sent: written,
            written,
            ..Counter::default()
        };
        let counters = spent.into_iter().map(|(rule, bytes)| (rule, counter(bytes)));
        Self {
            session: session.to_owned(),
            keeper,
            counters: Mutex::new(counters.collect()),
        }
    }

    /// Begins an exchange or stream where every bound lets it, and counts it; one that is refused uses nothing up.
    /// `announced` is the length of the request's body, where it is known.
    pub(super) fn begin(
        self: &Arc<Self>,
        bounds: &Bounds,
        announced: Option<u64>,
        now: Instant,
    ) -> Result<Pass, Exceeded> {
        if !bounds.is_empty() {
            let mut counters = self.lock();
            for (rule, limits) in bounds {
                let counter = counters.entry(rule.clone()).or_default();
                counter.check(rule, limits, announced)?;
                counter.check_pace(rule, limits, now)?;
            }
            for (rule, limits) in bounds {
                counters.entry(rule.clone()).or_default().begin(limits, now);
            }
        }
        Ok(Pass {
            quotas: self.clone(),
            bounds: bounds.to_vec(),
            request: AtomicU64::new(0),
            answer: AtomicU64::new(0),
        })
    }

    /// Takes bytes off every rule's `bytes_out`, or off none. On disk before it returns, where the block is used up.
    fn take(&self, bounds: &Bounds, count: u64) -> Result<(), Exceeded> {
        let mut counters = self.lock();
        for (rule, most) in totals(bounds) {
            let counter = counters.entry(rule.to_owned()).or_default();
            counter.check_total(rule, most, Some(count))?;
        }
        let mut ahead = None;
        for (rule, most) in totals(bounds) {
            let counter = counters.entry(rule.to_owned()).or_default();
            counter.sent = counter.sent.saturating_add(count);
            if counter.sent > counter.written {
                let block = (most / BLOCKS).clamp(1, LARGEST_BLOCK);
                counter.written = counter.sent.saturating_add(block).min(most);
                ahead = Some(rule);
            }
        }
        let Some(rule) = ahead else { return Ok(()) };
        self.write(&counters).map_err(|()| {
            // What cannot be written down is not sent; the next attempt writes again.
            for (rule, _) in totals(bounds) {
                if let Some(counter) = counters.get_mut(rule) {
                    counter.sent = counter.sent.saturating_sub(count);
                    counter.written = counter.sent;
                }
            }
            Exceeded::unwritten(rule)
        })
    }

    fn write(&self, counters: &HashMap<String, Counter>) -> Result<(), ()> {
        let spent = counters
            .iter()
            .filter(|(_, counter)| counter.written > 0)
            .map(|(rule, counter)| (rule.clone(), counter.written))
            .collect();
        self.keeper.save_spent(&self.session, &spent).map_err(|error| {
            tracing::error!(session = self.session, %error, "bytes sent out could not be written down; they are not sent");
        })
    }

    /// How long the next piece has to wait after `count` bytes have passed.
    fn pace(&self, bounds: &Bounds, count: u64, now: Instant) -> Option<Duration> {
        let mut counters = self.lock();
        bounds
            .iter()
            .filter_map(|(rule, limits)| Some((rule, limits.bandwidth?)))
            .map(|(rule, most)| counters.entry(rule.clone()).or_default().flow(count, most, now))
            .max()
            .filter(|wait| !wait.is_zero())
    }

    fn give_back(&self, bounds: &Bounds, count: u64) {
        let mut counters = self.lock();
        for (rule, _) in totals(bounds) {
            if let Some(counter) = counters.get_mut(rule) {
                counter.sent = counter.sent.saturating_sub(count);
            }
        }
    }

    fn end(&self, bounds: &Bounds) {
        let mut counters = self.lock();
        for (rule, _) in bounds {
            if let Some(counter) = counters.get_mut(rule) {
                counter.under_way = counter.under_way.saturating_sub(1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Counter>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter {
    fn check(&self, rule: &str, limits: &Limits, announced: Option<u64>) -> Result<(), Exceeded> {
        if let (Some(most), Some(length)) = (limits.request_bytes, announced)
            && length > most
        {
            return Err(Exceeded::request_bytes(rule, most, announced));
        }
        if let Some(most) = limits.bytes_out {
            self.check_total(rule, most, announced)?;
        }
        match limits.connections {
            Some(most) if self.under_way >= most => Err(Exceeded::connections(rule, most)),
            _ => Ok(()),
        }
    }

    /// `next`: how much would be sent, where it is known.
    fn check_total(&self, rule: &str, most: u64, next: Option<u64>) -> Result<(), Exceeded> {
        let left = most.saturating_sub(self.sent);
        match next {
            Some(next) if next <= left => Ok(()),
            None if left > 0 => Ok(()),
            _ => Err(Exceeded::bytes_out(rule, most, left, next)),
        }
    }

    fn check_pace(&self, rule: &str, limits: &Limits, now: Instant) -> Result<(), Exceeded> {
        let Some(rate) = limits.rate else { return Ok(()) };
        let ahead = self.next_due(rate, now).saturating_duration_since(now);
        let wait = ahead.saturating_sub(window(rate));
        match wait.is_zero() {
            true => Ok(()),
            false => Err(Exceeded::rate(rule, rate, wait)),
        }
    }

    /// When the next one is due at an even pace: the generic cell rate algorithm (ITU-T I.371, annex A). A limiter from a
    /// library can neither ask all rules before it counts for any, nor go on when a new policy sets another rate.
    fn next_due(&self, rate: Rate, now: Instant) -> Instant {
        let ahead = match self.due {
            None => Duration::ZERO,
            Some((due, of)) if of == rate => due.saturating_duration_since(now),
            // As many requests as before, at the new pace.
            Some((due, of)) => {
                let ahead = due.saturating_duration_since(now).as_secs_f64();
                let requests = ahead / window(of).as_secs_f64() * f64::from(of.count);
                window(rate).mul_f64((requests / f64::from(rate.count)).clamp(0.0, 1.0))
            }
        };
        now + ahead + window(rate) / rate.count.max(1)
    }

    /// Counts bytes that passed at `most` a second; how far they are ahead of that.
    fn flow(&mut self, count: u64, most: u64, now: Instant) -> Duration {
        let took = Duration::from_secs_f64(count as f64 / most.max(1) as f64);
        let flowed = self.flowed.map_or(now, |flowed| flowed.max(now)) + took;
        self.flowed = Some(flowed);
        (flowed - now).saturating_sub(HEAD_START)
    }

    fn begin(&mut self, limits: &Limits, now: Instant) {
        self.under_way = self.under_way.saturating_add(1);
        if let Some(rate) = limits.rate {
            self.due = Some((self.next_due(rate, now), rate));
        }
    }
}

impl Pass {
    /// Counts a piece of the request's body before it is sent; an error says that it must not be.
    pub fn send(&self, count: usize) -> Result<(), Exceeded> {
        let total = add(&self.request, count);
        for (rule, limits) in &self.bounds {
            if let Some(most) = limits.request_bytes.filter(|most| total > *most) {
                return Err(Exceeded::request_bytes(rule, most, None));
            }
        }
        self.take(count)
    }

    /// Counts a piece of a stream before it is sent, since streams have no request; an error says that it must not be.
    pub fn take(&self, count: usize) -> Result<(), Exceeded> {
        match totals(&self.bounds).next() {
            Some(_) => self.quotas.take(&self.bounds, count as u64),
            None => Ok(()),
        }
    }

    /// Takes back the count of what was not sent after all.
    pub fn give_back(&self, count: usize) {
        if count > 0 && totals(&self.bounds).next().is_some() {
            self.quotas.give_back(&self.bounds, count as u64);
        }
    }

    /// Counts a piece of the answer (or of what a stream's upstream says); an error says that it must not be passed on.
    pub fn receive(&self, count: usize) -> Result<(), Exceeded> {
        self.fits(add(&self.answer, count), None)
    }

    /// Whether an answer of a known length may come.
    pub fn announce(&self, length: u64) -> Result<(), Exceeded> {
        self.fits(length, Some(length))
    }

    /// Counts bytes that have passed, either way; how long the next ones have to wait, if they have to.
    pub fn pace(&self, count: usize) -> Option<Duration> {
        let paced = self.bounds.iter().any(|(_, limits)| limits.bandwidth.is_some());
        paced
            .then(|| self.quotas.pace(&self.bounds, count as u64, Instant::now()))
            .flatten()
    }

    fn fits(&self, total: u64, length: Option<u64>) -> Result<(), Exceeded> {
        for (rule, limits) in &self.bounds {
            if let Some(most) = limits.response_bytes.filter(|most| total > *most) {
                return Err(Exceeded::response_bytes(rule, most, length));
            }
        }
        Ok(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.bounds.is_empty() {
            self.quotas.end(&self.bounds);
        }
    }
}

/// The rules that bound what goes out in the whole run.
fn totals(bounds: &Bounds) -> impl Iterator<Item = (&str, u64)> {
    bounds
        .iter()
        .filter_map(|(rule, limits)| Some((rule.as_str(), limits.bytes_out?)))
}

/// The sum so far.
fn add(counter: &AtomicU64, count: usize) -> u64 {
    let count = count as u64;
    counter.fetch_add(count, Ordering::Relaxed).saturating_add(count)
}

fn window(rate: Rate) -> Duration {
    Duration::from_secs(u64::from(rate.seconds.max(1)))
}

#[cfg(test)]
mod tests;
