//! Waiting, so that no more passes in a second than a rule's `bandwidth` lets.
use super::quota::Pass;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// Holds the next piece of a stream or body back until what passed before is at the pace that the rules set.
#[derive(Debug, Default)]
pub struct Brake(Option<Pin<Box<Sleep>>>);

impl Brake {
    /// Ready once the next piece may pass. At once where no rule sets a pace.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(wait) = &mut self.0 {
            ready!(wait.as_mut().poll(cx));
            self.0 = None;
        }
        Poll::Ready(())
    }

    /// Counts a piece that has passed, either way.
    pub fn passed(&mut self, pass: &Pass, count: usize) {
        if let Some(wait) = pass.pace(count) {
            self.0 = Some(Box::pin(sleep_until(Instant::now() + wait)));
        }
    }
}
