//! Timers: counted from when they were journaled, so that a restart does not begin them anew.
use jiff::Timestamp;
use std::time::Duration;

/// Waits until `ms` milliseconds after `from`; not at all when that has passed.
pub(super) async fn until(from: Timestamp, ms: u64) {
    tokio::time::sleep(left(from, ms, Timestamp::now())).await;
}

/// What is left. A clock that was set back makes nobody wait longer than the whole time.
fn left(from: Timestamp, ms: u64, now: Timestamp) -> Duration {
    let gone = u64::try_from(now.as_millisecond().saturating_sub(from.as_millisecond())).unwrap_or(0);
    Duration::from_millis(ms.saturating_sub(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_runs_on_while_the_process_is_away_and_survives_a_wrong_clock() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(left(at(1_000), 500, at(1_200)), Duration::from_millis(300));
        assert_eq!(left(at(1_000), 500, at(9_000)), Duration::ZERO);
        assert_eq!(left(at(1_000), 500, at(0)), Duration::from_millis(500));
    }
}
