//! Interim answers (RFC 9110 section 15.2) on their way to an HTTP/1.1 client, which hyper's server has no way to send:
//! they are written between two of its own answers.
//!
//! Over HTTP/2 none pass, either way. hyper 1.12 has no call for them: its client reads a stream's answer without asking h2 for
//! what came before (`poll_informational`), its server keeps h2's `SendResponse` (`send_informational`) to itself, and nobody else
//! can make the `Incoming` and `OnUpgrade` that requests carry. A frame cannot be written between its own, as is done here, since
//! it does not tell which stream a request is on. `Expect: 100-continue` works all the same: the body is taken when
//! `expect_continue` is over.
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Interim answers that wait; more are dropped.
const MOST: usize = 16;

/// Interim answers that wait for the connection to take them.
#[derive(Debug, Default)]
pub struct Interims {
    waiting: Mutex<VecDeque<Bytes>>,
    /// Looked at before the lock, which most connections never need.
    count: AtomicUsize,
}

impl Interims {
    /// Lets one wait. `100` is not among them: it is given when the body is asked for; neither is `101`, which is no interim.
    pub fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut waiting = self.lock();
        if waiting.len() < MOST && status.is_informational() && !matches!(status.as_u16(), 100 | 101) {
            waiting.push_back(head(status, headers));
            self.count.store(waiting.len(), Ordering::Release);
        }
    }

    /// The next to be written.
    pub fn take(&self) -> Option<Bytes> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.lock();
        let next = waiting.pop_front();
        self.count.store(waiting.len(), Ordering::Release);
        next
    }

    /// An answer has begun: what waits would come too late.
    pub fn drop_all(&self) {
        if !self.is_empty() {
            self.lock().clear();
            self.count.store(0, Ordering::Release);
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names and values cannot hold a line's end, by their types.
fn head(status: StatusCode, headers: &HeaderMap) -> Bytes {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_waits_comes_in_order_and_only_what_is_an_interim_answer() {
        let interims = Interims::default();
        let mut headers = HeaderMap::new();
        headers.insert("link", HeaderValue::from_static("</a.css>"));
        interims.push(StatusCode::EARLY_HINTS, &headers);
        interims.push(StatusCode::CONTINUE, &headers);
        interims.push(StatusCode::SWITCHING_PROTOCOLS, &headers);
        interims.push(StatusCode::PROCESSING, &HeaderMap::new());
        assert_eq!(
            interims.take().unwrap(),
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"
        );
        assert_eq!(interims.take().unwrap(), "HTTP/1.1 102 Processing\r\n\r\n");
        assert_eq!(interims.take(), None);
    }
}
