//! What times a body on its way: how long it may stand still, and when it has lasted so long that it is worth a record.
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Ends a body that does not move. The limit starts with the first wait.
pub(super) struct IdleTimer {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    /// Nothing is timed yet.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, sleep: None }
    }

    /// Something moved.
    pub(super) fn moved(&mut self) {
        if let Some(sleep) = &mut self.sleep {
            sleep.as_mut().reset(Instant::now() + self.limit);
        }
    }

    /// Nothing moves; ready at the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        self.sleep
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)))
            .as_mut()
            .poll(cx)
    }
}

/// When something is due, and what wakes for it: most bodies are over before either is needed.
#[derive(Default)]
pub(super) struct Due {
    at: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Due {
    /// Due after so long.
    pub(super) fn after(wait: Duration) -> Self {
        Self {
            at: Some(Instant::now() + wait),
            alarm: None,
        }
    }

    /// Whether it has come due, which is said once. `waits`: nothing else will wake this task.
    pub(super) fn came(&mut self, cx: &mut Context<'_>, waits: bool) -> bool {
        let Some(at) = self.at else { return false };
        let came = if waits {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(at)));
            alarm.as_mut().poll(cx).is_ready()
        } else {
            Instant::now() >= at
        };
        if came {
            *self = Self::default();
        }
        came
    }
}
