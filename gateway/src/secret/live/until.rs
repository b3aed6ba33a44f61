//! Until when a value may be used: moved on as its lease is renewed, without binding anew.
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::time::Instant;

/// Milliseconds are counted from here.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Stands for no end.
const NEVER: u64 = u64::MAX;

/// A moment that may move, shared by all who look at it. By default there is no end.
#[derive(Clone, Default)]
pub struct Until(Option<Arc<AtomicU64>>);

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Until").field(&self.moment()).finish()
    }
}

impl Until {
    /// One that can be moved; without an end at first.
    pub fn movable() -> Self {
        Self(Some(Arc::new(AtomicU64::new(NEVER))))
    }

    /// Moves it for everybody; none takes the end away. Nothing happens to the default one.
    pub fn set(&self, moment: Option<Instant>) {
        let at = moment.map_or(NEVER, |moment| {
            let since = moment.saturating_duration_since(*BEGINNING).as_millis();
            u64::try_from(since).unwrap_or(NEVER)
        });
        if let Some(cell) = &self.0 {
            cell.store(at, Ordering::Relaxed);
        }
    }

    /// The moment; none where there is no end.
    pub fn moment(&self) -> Option<Instant> {
        let at = self.0.as_ref()?.load(Ordering::Relaxed);
        (at != NEVER).then(|| *BEGINNING + Duration::from_millis(at))
    }

    /// Whether it has passed.
    pub fn is_over(&self) -> bool {
        self.moment().is_some_and(|moment| moment <= Instant::now())
    }
}
