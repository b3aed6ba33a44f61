//! Requests through every coding, cut anywhere: what must not go out is seen, and what is filled is filled as in the whole.
use super::*;
use crate::secret::testing::{SECRET, secrets};
use http::header::CONTENT_ENCODING;

const CODINGS: [(&str, &[Coding]); 7] = [
    ("", &[]),
    ("gzip", &[Coding::Gzip]),
    ("deflate", &[Coding::Deflate]),
    ("br", &[Coding::Brotli]),
    ("zstd", &[Coding::Zstd]),
    ("gzip, br", &[Coding::Gzip, Coding::Brotli]),
    ("zstd, x-gzip", &[Coding::Zstd, Coding::Gzip]),
];

fn encoded(text: &[u8], codings: &[Coding]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(codings), BytesMut::new());
    encoder.encode(text, &mut out).unwrap();
    encoder.finish(&mut out).unwrap();
    out.to_vec()
}

fn looking(coding: &str, secrets: &SessionSecrets) -> OutgoingGuard {
    let mut headers = HeaderMap::new();
    if !coding.is_empty() {
        headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
    }
    OutgoingGuard::looking(secrets.body_guard().unwrap(), &headers)
}

#[test]
fn a_value_in_a_request_is_found_through_its_coding_before_its_last_piece_goes_out() {
    let (secrets, placeholder) = secrets();
    let text = format!("{}{SECRET} and more", "log line\n".repeat(100));
    for (name, codings) in CODINGS {
        let coded = encoded(text.as_bytes(), codings);
        for size in [1, 10, 10_000] {
            let mut guard = looking(name, &secrets);
            let mut out = BytesMut::new();
            let result = coded
                .chunks(size)
                .try_for_each(|piece| guard.push(piece, &mut out));
            let leak = result.and_then(|()| guard.finish(&mut out)).unwrap_err();
            assert_eq!(leak.credential, "forge", "{name}");
            assert!(out.len() < coded.len());
        }
        let clean = encoded(text.replace(SECRET, &placeholder).as_bytes(), codings);
        let mut guard = looking(name, &secrets);
        let mut out = BytesMut::new();
        clean
            .chunks(7)
            .for_each(|piece| guard.push(piece, &mut out).unwrap());
        guard.finish(&mut out).unwrap();
        assert_eq!(out, clean, "{name}: what passes is unchanged");
        assert_eq!(guard.remarks().len(), 1, "{name}: the placeholder is noted");
    }
}

#[test]
fn a_request_that_is_not_what_it_says_passes_unchanged_and_is_still_looked_at() {
    let (secrets, _) = secrets();
    let mut guard = looking("gzip", &secrets);
    let mut out = BytesMut::new();
    for piece in [&b"not gzip at all, "[..], b"ghp_Ab3", b" just text"] {
        guard.push(piece, &mut out).unwrap();
    }
    assert_eq!(out, &b"not gzip at all, ghp_Ab3 just text"[..]);
    assert!(guard.remarks()[0].contains("broken"));
    assert!(guard.push(SECRET.as_bytes(), &mut out).is_err());
}
