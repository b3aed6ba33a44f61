//! One clock for all processes of this machine, for what one of them sends and another receives.
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, which counts the same in every process.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
