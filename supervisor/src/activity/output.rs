//! Output of commands as text: whole characters, and of long output the head and the tail.

/// Bytes kept of the beginning.
const HEAD: usize = 16 << 10;
/// Bytes kept of the end.
const TAIL: usize = 32 << 10;

/// Bytes to text across pieces: a character that is cut waits for its rest, what is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Lossy {
    rest: Vec<u8>,
}

impl Lossy {
    /// The text that is complete with these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.rest.clear();
                    return text;
                }
                Err(fault) => {
                    let (good, bad) = self.rest.split_at(fault.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    let Some(length) = fault.error_len() else {
                        self.rest = bad.to_vec();
                        return text;
                    };
                    text.push('\u{fffd}');
                    self.rest = bad[length..].to_vec();
                }
            }
        }
    }
}

/// Head and tail of a text.
#[derive(Debug, Default)]
pub(super) struct Clip {
    head: String,
    tail: String,
    left_out: usize,
}

impl Clip {
    /// Adds to the end.
    pub(super) fn push(&mut self, text: &str) {
        let room = HEAD.saturating_sub(self.head.len());
        let (head, rest) = text.split_at(floor(text, if self.tail.is_empty() { room } else { 0 }));
        self.head.push_str(head);
        self.tail.push_str(rest);
        if self.tail.len() > 2 * TAIL {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        if self.tail.len() > TAIL {
            let mut from = self.tail.len() - TAIL;
            while !self.tail.is_char_boundary(from) {
                from += 1;
            }
            self.left_out += from;
            self.tail.drain(..from);
        }
    }

    /// Head, a mark where something is left out, tail.
    pub(super) fn text(mut self) -> String {
        self.shorten();
        if self.left_out > 0 {
            format!(
                "{}\n[… {} bytes left out …]\n{}",
                self.head, self.left_out, self.tail
            )
        } else {
            self.head + &self.tail
        }
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_split_gives_the_same_text(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(0xac)], 0..60), cut in 0..60usize) {
            let cut = cut.min(bytes.len());
            let whole = Lossy::default().push(&bytes);
            let mut lossy = Lossy::default();
            let parts = lossy.push(&bytes[..cut]) + &lossy.push(&bytes[cut..]);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn long_output_keeps_its_head_and_its_tail() {
        let mut clip = Clip::default();
        for number in 0..100_000 {
            clip.push(&format!("ü{number}\n"));
        }
        let text = clip.text();
        assert!(text.starts_with("ü0\n") && text.ends_with("ü99999\n") && text.contains("bytes left out"));
        assert!(text.len() < HEAD + TAIL + 100);
        let mut short = Clip::default();
        short.push("a");
        assert_eq!(short.text(), "a");
    }
}
