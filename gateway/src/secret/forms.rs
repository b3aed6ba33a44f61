//! The encoded forms under which a value is looked for, each with the same form of its placeholder.
//!
//! Covered: plain; base64 and base64url at each of the three alignments inside a longer text; percent-encoded with the
//! usual sets of kept characters and both cases of hex, also with every byte encoded; JSON strings as the common
//! encoders write them; HTML entities; hex. Not covered: base64 broken into lines, encodings on top of each other,
//! UTF-16, and any form in which a value is cut or computed with.
use std::collections::BTreeMap;
use zeroize::Zeroizing;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// All forms of a value, and the bytes that replace each; both of one length, each pattern once.
pub(super) fn forms(value: &[u8], stand_in: &[u8]) -> Vec<(Zeroizing<Vec<u8>>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut add = |pattern: Vec<u8>, replacement: Vec<u8>| {
        if pattern.len() == replacement.len() && pattern.len() >= super::SHORTEST_VALUE {
            found.entry(pattern).or_insert(replacement);
        }
    };
    add(value.to_vec(), stand_in.to_vec());
    for upper in [false, true] {
        add(hex(value, upper), hex(stand_in, upper));
        for kept in &Kept::choices(value) {
            add(percent(value, kept, upper), percent(stand_in, kept, upper));
        }
    }
    for style in JsonStyle::all() {
        if let (Some(pattern), Some(replacement)) = (style.escape(value), style.escape(stand_in)) {
            add(pattern, replacement);
        }
    }
    for entities in HTML_ENTITIES {
        add(html(value, entities), html(stand_in, entities));
    }
    for alphabet in [STANDARD, URL_SAFE] {
        for alignment in 0..3 {
            for (pattern, replacement) in base64(value, stand_in, alignment, alphabet) {
                add(pattern, replacement);
            }
        }
    }
    found
        .into_iter()
        .map(|(pattern, replacement)| (Zeroizing::new(pattern), replacement))
        .collect()
}

fn hex(bytes: &[u8], upper: bool) -> Vec<u8> {
    bytes.iter().flat_map(|byte| hex_digits(*byte, upper)).collect()
}

fn hex_digits(byte: u8, upper: bool) -> [u8; 2] {
    let digits: &[u8; 16] = if upper {
        b"0123456789ABCDEF"
    } else {
        b"0123456789abcdef"
    };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// Distinct punctuation characters up to which every choice of kept ones is looked for.
const EVERY_CHOICE: usize = 4;

/// What an encoder leaves as it is besides letters and digits; `None` encodes those too. Space as `+` is the form's way.
struct Kept {
    others: Option<Vec<u8>>,
    plus: bool,
}

impl Kept {
    /// The usual encoders' choices, and every other one where the value has few characters to choose from.
    fn choices(value: &[u8]) -> Vec<Self> {
        let of = |others: &[u8], plus| Self {
            others: Some(others.to_vec()),
            plus,
        };
        let mut choices = vec![
            // RFC 3986 unreserved.
            of(b"-._~", false),
            // encodeURIComponent.
            of(b"-._~!*'()", false),
            // application/x-www-form-urlencoded (WHATWG), and Python's quote_plus.
            of(b"*-._", true),
            of(b"-._~", true),
            // A path segment, RFC 3986 section 3.3, with the slash of a path.
            of(b"-._~!$&'()*+,;=:@/", false),
            of(b"", false),
            Self {
                others: None,
                plus: false,
            },
        ];
        let mut marks: Vec<u8> = value.iter().copied().filter(u8::is_ascii_punctuation).collect();
        marks.sort_unstable();
        marks.dedup();
        if marks.len() <= EVERY_CHOICE {
            choices.extend((0..1_usize << marks.len()).map(|choice| {
                let kept = marks.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1);
                of(&kept.map(|(_, mark)| *mark).collect::<Vec<_>>(), false)
            }));
        }
        choices
    }
}

fn percent(bytes: &[u8], kept: &Kept, upper: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 3);
    for &byte in bytes {
        match &kept.others {
            Some(others) if byte.is_ascii_alphanumeric() || others.contains(&byte) => text.push(byte),
            Some(_) if byte == b' ' && kept.plus => text.push(b'+'),
            _ => {
                text.push(b'%');
                text.extend(hex_digits(byte, upper));
            }
        }
    }
    text
}

/// How a JSON encoder escapes beyond what RFC 8259 section 7 demands.
struct JsonStyle {
    slash: bool,
    ascii: bool,
    escaped: &'static str,
    upper: bool,
}

impl JsonStyle {
    fn all() -> impl Iterator<Item = Self> {
        // Nothing more; Go's `encoding/json`; .NET's and others' careful encoders.
        ["", "<>&", "<>&'+\"`", "<>&'\""].into_iter().flat_map(|escaped| {
            (0..8).map(move |bits| Self {
                slash: bits & 1 != 0,
                ascii: bits & 2 != 0,
                upper: bits & 4 != 0,
                escaped,
            })
        })
    }

    fn escape(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(bytes.len() * 2);
        for character in std::str::from_utf8(bytes).ok()?.chars() {
            let short = match character {
                '\u{8}' => Some(b'b'),
                '\u{c}' => Some(b'f'),
                '\n' => Some(b'n'),
                '\r' => Some(b'r'),
                '\t' => Some(b't'),
                '\\' => Some(b'\\'),
                '"' if !self.escaped.contains('"') => Some(b'"'),
                '/' if self.slash => Some(b'/'),
                _ => None,
            };
            if let Some(letter) = short {
                text.extend([b'\\', letter]);
            } else if character < ' '
                || self.escaped.contains(character)
                || (self.ascii && !character.is_ascii())
            {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    text.extend(b"\\u");
                    text.extend(
                        unit.to_be_bytes()
                            .iter()
                            .flat_map(|byte| hex_digits(*byte, self.upper)),
                    );
                }
            } else {
                text.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Some(text)
    }
}

type Entities = [(u8, &'static [u8]); 5];
const HTML_ENTITIES: [&Entities; 3] = [
    &[
        (b'&', b"&amp;"),
        (b'<', b"&lt;"),
        (b'>', b"&gt;"),
        (b'"', b"&quot;"),
        (b'\'', b"&#39;"),
    ],
    &[
        (b'&', b"&amp;"),
        (b'<', b"&lt;"),
        (b'>', b"&gt;"),
        (b'"', b"&quot;"),
        (b'\'', b"&#x27;"),
    ],
    &[
        (b'&', b"&amp;"),
        (b'<', b"&lt;"),
        (b'>', b"&gt;"),
        (b'"', b"&#34;"),
        (b'\'', b"&#39;"),
    ],
];

fn html(bytes: &[u8], entities: &Entities) -> Vec<u8> {
    let entity = |byte: u8| entities.iter().find(|(from, _)| *from == byte).map(|(_, to)| *to);
    bytes
        .iter()
        .flat_map(|byte| entity(*byte).map_or_else(|| vec![*byte], <[u8]>::to_vec))
        .collect()
}

/// Base64 of a value that follows `alignment` bytes (mod 3) of other text (RFC 4648).
///
/// The characters at the edges mix the value's bits with those of its neighbours. Where placeholder and value differ in
/// these bits, each possible neighbour is a pattern of its own, so that what is decoded later is the placeholder exactly.
/// A pattern without `+`, `/`, `-` and `_` stands for both alphabets; its replacement then has none of them either, since
/// in ASCII text they come only from punctuation, which a placeholder keeps, and from a last byte that minting avoids.
fn base64(value: &[u8], stand_in: &[u8], alignment: usize, alphabet: &[u8; 64]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let head_bits = [0, 4, 2][alignment];
    let bits = value.len() * 8;
    let inner = (bits - head_bits) / 6;
    let tail_bits = bits - head_bits - inner * 6;
    let inside = |bytes: &[u8]| -> Vec<u8> {
        (0..inner)
            .map(|at| alphabet[sextet(bytes, head_bits + at * 6, 6)])
            .collect()
    };
    let heads = edge(
        sextet(value, 0, head_bits),
        sextet(stand_in, 0, head_bits),
        head_bits,
        false,
    );
    let at = bits - tail_bits;
    let tails = edge(
        sextet(value, at, tail_bits),
        sextet(stand_in, at, tail_bits),
        tail_bits,
        true,
    );
    let (pattern, replacement) = (inside(value), inside(stand_in));
    let mut all = vec![(pattern.clone(), replacement.clone())];
    for head in &heads {
        for tail in &tails {
            let join = |middle: &[u8], first: Option<usize>, last: Option<usize>| -> Vec<u8> {
                let letter = |index: Option<usize>| index.map(|index| alphabet[index]);
                letter(first)
                    .into_iter()
                    .chain(middle.iter().copied())
                    .chain(letter(last))
                    .collect()
            };
            all.push((
                join(&pattern, head.map(|pair| pair.0), tail.map(|pair| pair.0)),
                join(&replacement, head.map(|pair| pair.1), tail.map(|pair| pair.1)),
            ));
        }
    }
    all
}

/// The pairs (in the value's text, in the placeholder's text) of a mixed character; one `None` where nothing differs.
fn edge(value: usize, stand_in: usize, known: usize, high: bool) -> Vec<Option<(usize, usize)>> {
    if value == stand_in {
        return vec![None];
    }
    let free = 6 - known;
    let mix = |bits: usize, other: usize| {
        if high {
            (bits << free) | other
        } else {
            (other << known) | bits
        }
    };
    (0..1 << free)
        .map(|other| Some((mix(value, other), mix(stand_in, other))))
        .collect()
}

/// `count` bits (at most 6) from bit `at` on, most significant first.
fn sextet(bytes: &[u8], at: usize, count: usize) -> usize {
    (at..at + count).fold(0, |bits, at| {
        (bits << 1) | usize::from(bytes[at / 8] >> (7 - at % 8) & 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    const VALUE: &[u8] = b"sK-9/+q?\"\\x Zz<&7";
    const STAND_IN: &[u8] = b"pW-1/+b?\"\\d Qj<&4";

    fn swap(text: &[u8], value: &[u8], stand_in: &[u8]) -> Option<Vec<u8>> {
        let mut all = forms(value, stand_in);
        all.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.len()));
        all.into_iter().find_map(|(pattern, replacement)| {
            let at = text
                .windows(pattern.len())
                .position(|window| window == pattern.as_slice())?;
            Some([&text[..at], &replacement, &text[at + pattern.len()..]].concat())
        })
    }

    #[test]
    fn base64_decodes_to_the_placeholder_at_each_alignment_and_with_any_neighbour() {
        for length in 8..=VALUE.len() {
            let (value, stand_in) = (&VALUE[..length], &STAND_IN[..length]);
            for prefix in [&b""[..], b"\x00", b"\xff", b"ab", b"\xff\xff", b"abc"] {
                for suffix in [&b""[..], b"\x00", b"\xff", b"tail"] {
                    let plain = [prefix, value, suffix].concat();
                    let wanted = [prefix, stand_in, suffix].concat();
                    let text = swap(STANDARD.encode(&plain).as_bytes(), value, stand_in).unwrap();
                    assert_eq!(STANDARD.decode(text).unwrap(), wanted);
                    let text = swap(URL_SAFE_NO_PAD.encode(&plain).as_bytes(), value, stand_in).unwrap();
                    assert_eq!(URL_SAFE_NO_PAD.decode(text).unwrap(), wanted);
                }
            }
        }
    }

    #[test]
    fn json_as_our_own_encoder_writes_it_is_covered() {
        let text = serde_json::to_string(std::str::from_utf8(VALUE).unwrap()).unwrap();
        let clean = swap(text.as_bytes(), VALUE, STAND_IN).unwrap();
        assert_eq!(
            serde_json::from_slice::<String>(&clean).unwrap().as_bytes(),
            STAND_IN
        );
    }

    #[test]
    fn percent_encoding_is_covered_in_both_cases_of_hex() {
        use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
        const STRICT: &AsciiSet = &NON_ALPHANUMERIC
            .remove(b'-')
            .remove(b'.')
            .remove(b'_')
            .remove(b'~');
        let upper = percent_encode(VALUE, STRICT).to_string();
        for text in [
            upper.clone(),
            upper
                .replace("%2F", "%2f")
                .replace("%2B", "%2b")
                .replace("%3F", "%3f"),
        ] {
            let Some(clean) = swap(text.as_bytes(), VALUE, STAND_IN) else {
                continue;
            };
            assert_eq!(percent_decode(&clean).collect::<Vec<_>>(), STAND_IN);
        }
        assert!(swap(upper.as_bytes(), VALUE, STAND_IN).is_some());
        assert!(
            swap(
                b"%73%4b%2d%39%2f%2b%71%3f%22%5c%78%20%5a%7a%3c%26%37",
                VALUE,
                STAND_IN
            )
            .is_some()
        );
    }

    #[test]
    fn every_form_has_the_length_of_its_replacement() {
        for (pattern, replacement) in forms(VALUE, STAND_IN) {
            assert_eq!(pattern.len(), replacement.len());
            assert_ne!(pattern.as_slice(), replacement.as_slice());
        }
    }
}
