//! Placeholders: random strings with the shape of a value, so that checks on the client's side pass.
//!
//! Kept from the value: its length, every byte that is not an ASCII letter or digit, a recognisable prefix
//! (`ghp_`, `sk-`), and which of digit, lower case and upper case stands where. So every encoded form of a placeholder
//! is as long as that of its value, and redaction never changes a body's length.
use super::Value;
use aws_lc_rs::rand;

/// Below this many random bits a placeholder might be guessed; a warning says so.
pub const ENOUGH_BITS: f64 = 96.0;
const LONGEST_PREFIX: usize = 8;

/// The system gave no random bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

/// A fresh placeholder, and how many random bits it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Minted {
    /// The text.
    pub text: String,
    /// Its random bits.
    pub bits: f64,
}

/// Mints a placeholder with a value's shape; never equal to the value.
/// `None` where the shape leaves nothing to choose, or the value is not UTF-8.
pub fn mint(value: &Value) -> Result<Option<Minted>, NoRandomness> {
    let Ok(shape) = std::str::from_utf8(value.bytes()) else {
        return Ok(None);
    };
    let prefix = prefix_length(shape);
    let bits: f64 = shape
        .bytes()
        .skip(prefix)
        .map(|byte| alphabet(byte).map_or(0.0, |(_, n)| f64::from(n).log2()))
        .sum();
    if bits < 1.0 {
        return Ok(None);
    }
    loop {
        let mut text = Vec::with_capacity(shape.len());
        for (at, byte) in shape.bytes().enumerate() {
            text.push(match alphabet(byte) {
                Some((first, count)) if at >= prefix => first + below(count)?,
                _ => byte,
            });
        }
        // A last byte that ends in two set bits could need another base64 alphabet than the text it is put into.
        let ambiguous = text
            .last()
            .is_some_and(|last| alphabet(*last).is_some() && last & 3 == 3);
        if text != shape.as_bytes() && !ambiguous {
            let text = String::from_utf8(text).map_err(|_| NoRandomness)?;
            return Ok(Some(Minted { text, bits }));
        }
    }
}

/// Whether a placeholder has a value's shape and is not the value itself.
pub fn fits(placeholder: &str, value: &Value) -> bool {
    let value = value.bytes();
    placeholder.len() == value.len()
        && placeholder.as_bytes() != value
        && placeholder
            .bytes()
            .zip(value)
            .all(|(mine, its)| match (alphabet(mine), alphabet(*its)) {
                (Some(mine), Some(its)) => mine == its,
                (None, None) => mine == *its,
                _ => false,
            })
}

/// Length of the part that tells what kind of token this is: leading letters with the first `_` or `-`, such as
/// `ghp_` or `sk-`, where that is at most 8 bytes and more than as much again follows.
fn prefix_length(shape: &str) -> usize {
    let Some(end) = shape.find(['_', '-']) else {
        return 0;
    };
    let length = end + 1;
    let recognisable = end > 0 && shape[..end].bytes().all(|byte| byte.is_ascii_alphabetic());
    if recognisable && length <= LONGEST_PREFIX && shape.len() > 2 * length {
        length
    } else {
        0
    }
}

fn alphabet(byte: u8) -> Option<(u8, u8)> {
    match byte {
        b'0'..=b'9' => Some((b'0', 10)),
        b'a'..=b'z' => Some((b'a', 26)),
        b'A'..=b'Z' => Some((b'A', 26)),
        _ => None,
    }
}

/// A uniform number below `count`, by rejection.
fn below(count: u8) -> Result<u8, NoRandomness> {
    let limit = u8::MAX - u8::MAX % count;
    loop {
        let mut byte = [0];
        rand::fill(&mut byte).map_err(|_| NoRandomness)?;
        if byte[0] < limit {
            return Ok(byte[0] % count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minted(value: &str) -> String {
        mint(&Value::new(value.as_bytes().to_vec()))
            .unwrap()
            .unwrap()
            .text
    }

    fn fits(placeholder: &str, value: &[u8]) -> bool {
        super::fits(placeholder, &Value::new(value.to_vec()))
    }

    #[test]
    fn a_placeholder_keeps_length_prefix_and_classes() {
        let text = minted("ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f");
        assert!(text.starts_with("ghp_"), "{text}");
        assert!(fits(&text, b"ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f"), "{text}");
        assert_ne!(text, "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f");
    }

    #[test]
    fn a_long_first_word_is_no_prefix_and_is_not_shown() {
        assert_eq!(
            prefix_length("hunter-horse"),
            7 * usize::from("hunter-horse".len() > 14)
        );
        assert_eq!(prefix_length("correcthorse-battery-staple"), 0);
        assert_eq!(prefix_length("sk-abcdefghijk"), 3);
        assert_eq!(prefix_length("-abcdefghijk"), 0);
        assert_eq!(prefix_length("12-abcdefghijk"), 0);
    }

    #[test]
    fn two_placeholders_of_one_value_differ() {
        let value = "sk-ABCDEFabcdef0123456789ABCDEFabcdef";
        assert_ne!(minted(value), minted(value));
    }

    #[test]
    fn a_value_of_punctuation_has_no_placeholder() {
        assert_eq!(mint(&Value::new(b"!!!!!!!!!!!".to_vec())).unwrap(), None);
        assert_eq!(mint(&Value::new(vec![0xff; 20])).unwrap(), None);
    }

    #[test]
    fn another_shape_does_not_fit() {
        assert!(fits("ab1-X", b"zz9-Q"));
        assert!(!fits("ab1-X", b"zz9_Q"));
        assert!(!fits("ab1-X", b"zz9-QQ"));
        assert!(!fits("ab1-X", b"ab1-X"));
    }
}
