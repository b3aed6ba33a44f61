//! PURE: a stream of messages cut into their parts, whatever pieces it comes in; nothing is gathered.

/// Longest body of a message: PostgreSQL's own bound (`MaxAllocSize`, just under 1 GiB).
const LONGEST: usize = 0x3fff_ffff;

/// One part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A message of this kind begins; its body has so many bytes.
    Begin(u8, usize),
    /// A piece of its body.
    Body(&'a [u8]),
    /// Its body is whole.
    End,
}

/// A length that no message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of kind {kind:?} announces a length of {length}")]
pub(super) struct BadLength {
    kind: char,
    length: u32,
}

/// Cuts a stream.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; 5],
    known: usize,
    left: usize,
    inside: bool,
}

impl Frames {
    /// The next part, taken off `input`; none when more is needed.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, BadLength> {
        if self.inside {
            if self.left == 0 {
                self.inside = false;
                return Ok(Some(Part::End));
            }
            if input.is_empty() {
                return Ok(None);
            }
            let (piece, rest) = input.split_at(self.left.min(input.len()));
            *input = rest;
            self.left -= piece.len();
            return Ok(Some(Part::Body(piece)));
        }
        let (taken, rest) = input.split_at((self.head.len() - self.known).min(input.len()));
        self.head[self.known..self.known + taken.len()].copy_from_slice(taken);
        self.known += taken.len();
        *input = rest;
        if self.known < self.head.len() {
            return Ok(None);
        }
        let [kind, length @ ..] = self.head;
        let length = u32::from_be_bytes(length);
        self.left = match (length as usize).checked_sub(4) {
            Some(body) if body <= LONGEST => body,
            _ => {
                return Err(BadLength {
                    kind: char::from(kind),
                    length,
                });
            }
        };
        (self.known, self.inside) = (0, true);
        Ok(Some(Part::Begin(kind, self.left)))
    }

    /// Whether nothing of a message was read yet, so that another may stand here.
    pub(super) fn is_between(&self) -> bool {
        !self.inside && self.known == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Messages as (kind, body), however the bytes are cut.
    fn read(pieces: &[&[u8]]) -> Vec<(u8, Vec<u8>)> {
        let (mut frames, mut found) = (Frames::default(), Vec::<(u8, Vec<u8>)>::new());
        let mut ends = 0;
        for mut piece in pieces.iter().copied() {
            while let Some(part) = frames.next(&mut piece).unwrap() {
                match part {
                    Part::Begin(kind, _) => found.push((kind, Vec::new())),
                    Part::Body(body) => found.last_mut().unwrap().1.extend(body),
                    Part::End => ends += 1,
                }
            }
            assert!(piece.is_empty());
        }
        assert!(frames.is_between() && ends == found.len());
        found
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_messages(
            messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            cuts in prop::collection::vec(0usize..400, 0..20),
        ) {
            let mut bytes = Vec::new();
            for (kind, body) in &messages {
                bytes.push(*kind);
                bytes.extend((4 + body.len() as u32).to_be_bytes());
                bytes.extend(body);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), messages);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let (mut frames, mut rest) = (Frames::default(), bytes.as_slice());
            while let Ok(Some(_)) = frames.next(&mut rest) {}
        }
    }

    #[test]
    fn a_length_that_no_message_has_is_refused() {
        for length in [0_u32, 3, 0x4000_0004, u32::MAX] {
            let mut head = vec![b'Q'];
            head.extend(length.to_be_bytes());
            assert!(Frames::default().next(&mut head.as_slice()).is_err(), "{length}");
        }
    }
}
