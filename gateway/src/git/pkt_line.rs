//! Pkt-lines (gitprotocol-common, "pkt-line Format"): four hex digits of length, themselves counted, then the line. Pure.

/// Longest line with its length, in bytes.
const LONGEST: usize = 65520;
/// The digits that stand before a line.
const DIGITS: usize = 4;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// `0000`.
    Flush,
    /// What stands in it, with its line feed if it has one.
    Data(&'a [u8]),
}

/// These bytes are no pkt-line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the length of a pkt-line")]
pub struct NoLine(String);

/// Reads the line at the beginning of `bytes`, and how many bytes it takes; nothing where it is not whole yet.
pub fn read(bytes: &[u8]) -> Result<Option<(Line<'_>, usize)>, NoLine> {
    let Some(digits) = bytes.get(..DIGITS) else {
        return Ok(None);
    };
    let length = digits.iter().try_fold(0, |sum, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(sum * 16 + digit as usize)
    });
    match length {
        Some(0) => Ok(Some((Line::Flush, DIGITS))),
        Some(length @ 5..=LONGEST) => {
            let line = bytes.get(DIGITS..length);
            Ok(line.map(|line| (Line::Data(line), length)))
        }
        _ => Err(NoLine(digits.escape_ascii().to_string())),
    }
}

/// Appends `bytes` as lines which each begin with `prefix`: as many as it takes, none for nothing.
pub fn write(prefix: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(LONGEST - DIGITS - prefix.len()) {
        let length = DIGITS + prefix.len() + piece.len();
        out.extend(format!("{length:04x}").as_bytes());
        out.extend(prefix);
        out.extend(piece);
    }
}

/// Appends `0000`.
pub fn flush(out: &mut Vec<u8>) {
    out.extend(b"0000");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_read_once_it_is_whole() {
        assert_eq!(read(b"0006a\nrest"), Ok(Some((Line::Data(b"a\n"), 6))));
        assert_eq!(read(b"0000"), Ok(Some((Line::Flush, 4))));
        for part in [&b""[..], b"000", b"0006a"] {
            assert_eq!(read(part), Ok(None));
        }
        for wrong in [
            &b"0001"[..],
            b"0004",
            b"fff1",
            b"GET ",
            b"+006",
            b"\xff\xff\xff\xff",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in proptest::collection::vec(any::<u8>(), 1..200_000)) {
            let mut out = Vec::new();
            write(&[2], &bytes, &mut out);
            flush(&mut out);
            let (mut rest, mut back) = (&out[..], Vec::<u8>::new());
            while let Some((Line::Data(line), taken)) = read(rest).unwrap() {
                prop_assert_eq!(line[0], 2);
                back.extend(&line[1..]);
                rest = &rest[taken..];
            }
            prop_assert_eq!(rest, b"0000");
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _read = read(&bytes);
        }
    }
}
