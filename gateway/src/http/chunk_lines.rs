//! The lines between the chunks of a request's body (RFC 9112 section 7.1), held to one reading where hyper is lenient: it takes
//! blanks after a chunk's size, in which readers differ. Old
//! servers pad their answers' sizes so; those are framed anew for the client, and pass. Pure.
use std::io;

/// Blanks after a chunk's size with no extension behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a chunk's size has blanks behind it")]
pub struct BlankAfterSize;

impl From<BlankAfterSize> for io::Error {
    fn from(fault: BlankAfterSize) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

/// Where in a coded body a connection is. What hyper itself refuses is left to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChunkLines {
    /// In a chunk's size, as far as it was read.
    Size {
        /// Bytes.
        data: u64,
    },
    /// In blanks behind a chunk's size.
    Blank {
        /// Bytes of the chunk.
        data: u64,
    },
    /// In an extension, or before the line's end.
    Extension {
        /// Bytes of the chunk.
        data: u64,
    },
    /// In a chunk's data and the line's end behind it.
    Data {
        /// Bytes to come.
        left: u64,
    },
    /// Behind the last chunk's line, or behind what hyper refuses; or there is no coded body.
    #[default]
    Over,
}

impl ChunkLines {
    /// Before the first chunk.
    pub fn begin() -> Self {
        Self::Size { data: 0 }
    }

    /// Whether there is anything to look at.
    pub fn is_over(self) -> bool {
        self == Self::Over
    }

    /// Goes over the next bytes. The error is how many of them are right.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut piece = bytes;
        while let [byte, rest @ ..] = piece {
            let right = bytes.len() - piece.len();
            piece = rest;
            *self = match *self {
                Self::Over => return Ok(()),
                Self::Data { left } => {
                    // This byte is one of them.
                    let skipped = piece.len().min(usize::try_from(left - 1).unwrap_or(usize::MAX));
                    piece = &piece[skipped..];
                    match left - 1 - skipped as u64 {
                        0 => Self::begin(),
                        left => Self::Data { left },
                    }
                }
                Self::Size { data } => match (char::from(*byte).to_digit(16), byte) {
                    (Some(digit), _) => match data.checked_mul(16) {
                        Some(sixteen) => Self::Size {
                            data: sixteen + u64::from(digit),
                        },
                        None => Self::Over,
                    },
                    (None, b' ' | b'\t') => Self::Blank { data },
                    (None, b';' | b'\r') => Self::Extension { data },
                    _ => Self::Over,
                },
                Self::Blank { data } => match byte {
                    b' ' | b'\t' => Self::Blank { data },
                    // Blanks before an extension must be read over (RFC 9112 section 7.1.1).
                    b';' => Self::Extension { data },
                    _ => return Err(right),
                },
                Self::Extension { data } => match (byte, data.checked_add(2)) {
                    (b'\n', None) => Self::Over,
                    (b'\n', Some(2)) => Self::Over,
                    (b'\n', Some(left)) => Self::Data { left },
                    _ => Self::Extension { data },
                },
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a body comes to, however it is cut.
    fn read(body: &str) -> Result<ChunkLines, usize> {
        let mut at_once = ChunkLines::begin();
        let at_once = at_once.pass(body.as_bytes()).map(|()| at_once);
        for cut in 0..=body.len() {
            let (one, two) = body.as_bytes().split_at(cut);
            let mut lines = ChunkLines::begin();
            let in_two = match lines.pass(one) {
                Ok(()) => lines.pass(two).map(|()| lines).map_err(|right| cut + right),
                wrong => wrong.map(|()| lines),
            };
            assert_eq!(in_two, at_once, "{body:?} cut at {cut}");
        }
        at_once
    }

    #[test]
    fn blanks_behind_a_size_are_seen_in_every_chunk() {
        for (body, right) in [
            ("5 \r\nhello\r\n0\r\n\r\n", 2),
            ("5\t\r\nhello\r\n0\r\n\r\n", 2),
            ("5  a\r\nhello\r\n0\r\n\r\n", 3),
            ("5\r\nhello\r\n0 \r\n\r\n", 12),
            ("00\t\n", 3),
            ("5;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\n\r\n", 16),
        ] {
            assert_eq!(read(body), Err(right), "{body:?}");
        }
    }

    #[test]
    fn other_lines_pass_and_data_is_not_read_as_lines() {
        for body in [
            "5\r\nhello\r\n0\r\n\r\n",
            "5 ;a=b\r\nhello\r\n0\t;x\r\n\r\n",
            "5\r\n5 \r\n0\r\n0\r\nTrailer: 5 \r\n\r\n",
            "000005;a=\"b c \"\r\n0 \r\n \r\n0;\r\n\r\n5 \r\n",
            "ffffffffffffffff0 \r\n",
            "x \r\n",
        ] {
            assert_eq!(read(body), Ok(ChunkLines::Over), "{body:?}");
        }
        assert_eq!(read("A\r\n01234"), Ok(ChunkLines::Data { left: 7 }));
    }
}
