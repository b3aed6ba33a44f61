//! Server-sent events out of any split of the bytes (WHATWG HTML, "Server-sent events"), strictly.

/// Most bytes of one event.
const EVENT_BYTES: usize = 8 << 20;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Type, `message` where the stream names none.
    pub(super) event: String,
    /// Data lines, joined with newlines.
    pub(super) data: String,
}

/// Takes bytes, gives events.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    after_return: bool,
    event: String,
    data: Option<String>,
}

impl Decoder {
    /// All events that the bytes complete. The error is a stream that is none.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()?),
                _ => self.line.push(byte),
            }
            let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
            if held > EVENT_BYTES {
                return Err(format!(
                    "an event of the stream is longer than {EVENT_BYTES} bytes"
                ));
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<SseEvent>, String> {
        let line =
            String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| "the stream is not UTF-8")?;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(self.data.take().map(|data| SseEvent {
                event: if event.is_empty() { "message".into() } else { event },
                data,
            }));
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = value.into(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.into()),
            },
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str =
        ": hello\r\nevent: a\r\ndata: one\r\ndata: two\r\n\r\ndata:{\"ü\":1}\n\nevent: x\n\nid: 3\rdata\r\r";

    fn whole() -> Vec<SseEvent> {
        let event = |event: &str, data: &str| SseEvent {
            event: event.into(),
            data: data.into(),
        };
        vec![
            event("a", "one\ntwo"),
            event("message", "{\"ü\":1}"),
            event("message", ""),
        ]
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(cuts in proptest::collection::vec(0..STREAM.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for pair in cuts.windows(2) {
                events.extend(decoder.push(&STREAM.as_bytes()[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(events, whole());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Decoder::default().push(&bytes);
        }
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut decoder = Decoder::default();
        assert!((0..10).any(|_| decoder.push(&vec![b'x'; 1 << 20]).is_err()));
    }
}
