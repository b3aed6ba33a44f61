//! Fuzzes the redactor: cut anywhere, a stream comes out as it does in one piece, as long as it was, without any value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::secret::Redactors;
use std::sync::LazyLock;

const VALUES: [(&str, &str); 2] = [
    ("hunter2-hunter2", "placeholder-one"),
    ("hunter2-hunter2-token", "a-longer-placeholder!"),
];

static REDACTORS: LazyLock<Redactors> = LazyLock::new(|| Redactors::new(&VALUES));

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (cuts, noise) = input;
    // Values are put in where the noise says so: by chance alone they would hardly be met.
    let mut text = Vec::new();
    for byte in noise {
        match byte {
            0xf0 => text.extend(VALUES[0].0.bytes()),
            0xf1 => text.extend(VALUES[1].0.bytes()),
            0xf2 => text.extend(&VALUES[1].0.as_bytes()[..18]),
            0xf3 => text.extend(b"aHVudGVyMi1odW50ZXIy"),
            0xf4 => text.extend(b"hunter2%2Dhunter2"),
            other => text.push(other),
        }
    }
    let whole = REDACTORS.redact(std::iter::once(text.as_slice()));
    let mut rest = text.as_slice();
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, after) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    assert_eq!(REDACTORS.redact(pieces.into_iter()), whole);
    let (clean, found) = whole;
    assert_eq!(clean.len(), text.len());
    let holds = |text: &[u8]| {
        text.windows(VALUES[0].0.len())
            .any(|window| window == VALUES[0].0.as_bytes())
    };
    assert!(!holds(&clean), "a value came through");
    assert!(!holds(&text) || !found.is_empty());
});
