//! Audit records out of an event stream (WHATWG HTML, server-sent events), cut anywhere.
use super::GatewayError;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_gateway::control::types::AuditRecord;
use std::collections::VecDeque;
use std::time::Duration;

/// One event at most, in bytes.
const EVENT: usize = 1 << 20;
/// The gateway says something at least each 15 s; after this long it is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Collects lines into events; gives the data of each.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Parser {
    /// Takes a piece; appends the data of each event that is complete. False where an event is too long.
    pub(super) fn push(&mut self, piece: &[u8], events: &mut VecDeque<Vec<u8>>) -> bool {
        for &byte in piece {
            if byte != b'\n' {
                self.line.push(byte);
                if self.line.len() + self.data.len() > EVENT {
                    return false;
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                if !self.data.is_empty() {
                    events.push_back(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data
                    .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            }
        }
        true
    }
}

struct Reading {
    body: Incoming,
    parser: Parser,
    ready: VecDeque<Vec<u8>>,
    socket: String,
    ended: bool,
}

/// The records of a stream; an error is its last item.
pub(super) fn records(
    body: Incoming,
    socket: String,
) -> BoxStream<'static, Result<AuditRecord, GatewayError>> {
    let reading = Reading {
        body,
        parser: Parser::default(),
        ready: VecDeque::new(),
        socket,
        ended: false,
    };
    stream::unfold(reading, |mut reading| async {
        let item = reading.next().await?;
        reading.ended |= item.is_err();
        Some((item, reading))
    })
    .boxed()
}

impl Reading {
    async fn next(&mut self) -> Option<Result<AuditRecord, GatewayError>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(data) = self.ready.pop_front() {
                let record = serde_json::from_slice(&data);
                return Some(record.map_err(|error| GatewayError::Nonsense(format!("an event: {error}"))));
            }
            let frame = match tokio::time::timeout(SILENCE, self.body.frame()).await {
                Ok(None) => return None,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Some(Err(self.broken(error.to_string()))),
                Err(_) => return Some(Err(self.broken(format!("silent for {} s", SILENCE.as_secs())))),
            };
            let Some(piece) = frame.data_ref() else { continue };
            if !self.parser.push(piece, &mut self.ready) {
                return Some(Err(GatewayError::Nonsense(format!(
                    "an event of over {EVENT} bytes"
                ))));
            }
        }
    }

    fn broken(&self, why: String) -> GatewayError {
        GatewayError::Unreachable {
            socket: self.socket.clone(),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let text = b": ping\n\nid: 1\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\nid: 3\n\ndata: half";
        for size in 1..=text.len() {
            let (mut parser, mut events) = (Parser::default(), VecDeque::new());
            for piece in text.chunks(size) {
                assert!(parser.push(piece, &mut events));
            }
            assert_eq!(
                events,
                [b"{\"a\":1}".to_vec(), b"two\nlines".to_vec()],
                "by {size}"
            );
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let (mut parser, mut events) = (Parser::default(), VecDeque::new());
        assert!(!parser.push(&vec![b'x'; EVENT + 1], &mut events));
    }
}
