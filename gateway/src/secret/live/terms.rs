//! The limits that fetched values obey, as the keeper uses them.
use crate::limits::Limits;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// No span of time that a service or a policy names counts for more: a sum of it and a moment always is a moment. What lasts longer is
/// renewed or fetched anew before.
pub(super) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Tries to give a lease back when it is not needed any more.
pub(super) const REVOCATIONS: usize = 12;
/// Between two looks for leases that nobody in this process sees to.
pub(super) const SWEEP: Duration = Duration::from_secs(60);
/// A fetch that nobody waits for any longer may take this many times as long as one that is waited for; then it is broken off.
pub(super) const LATE: u32 = 30;

/// Times and numbers, all from [`Limits`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// For one call to a source.
    pub call: Duration,
    /// For which a session's opening waits.
    pub wait: Duration,
    /// First and longest wait between two tries.
    pub retry: (Duration, Duration),
    /// Between two looks at what has no lease and no `ttl`.
    pub look: Duration,
    /// For which a value before the one in force is looked for.
    pub grace: Duration,
    /// Values before the one in force that are looked for.
    pub old_values: usize,
}

impl From<&Limits> for Terms {
    fn from(limits: &Limits) -> Self {
        Self {
            call: limits.secret_call,
            wait: limits.secret_wait,
            retry: (bounded(limits.secret_retry), bounded(limits.secret_retry_longest)),
            look: bounded(limits.secret_look),
            grace: limits.secret_grace,
            old_values: limits.old_values,
        }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::from(&Limits::default())
    }
}

impl Terms {
    /// Waits between tries: doubled each time, with jitter, without an end.
    pub(super) fn waits(&self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(self.retry.0)
            .with_max_delay(self.retry.1)
            .with_jitter()
            .without_max_times()
            .build()
    }
}

/// The span, or the longest there is.
pub(super) fn bounded(span: Duration) -> Duration {
    span.min(LONGEST)
}

/// A part of a span of time between three and five eighths, at random, so that what was fetched together is not renewed together.
pub(super) fn about_half(span: Duration) -> Duration {
    let mut byte = [0];
    // Without random bytes it is the middle.
    let part = aws_lc_rs::rand::fill(&mut byte).map_or(128, |()| u32::from(byte[0]));
    bounded(span) * (384 + part) / 1024
}
