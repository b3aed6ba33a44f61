//! Requests through every coding, cut anywhere: what must not go out is seen, and what is filled is filled as in the whole.
use super::*;
use crate::secret::testing::{SECRET, bound, permit, permit_under, secrets};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use proptest::prelude::*;
use sallyport_policy::Place;

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

fn decoded(bytes: &[u8], codings: &[Coding]) -> Vec<u8> {
    if codings.is_empty() {
        return bytes.to_vec();
    }
    let (mut decoder, mut out, mut piece) = (Decoder::new(codings), Vec::new(), [0; 100]);
    decoder.feed(bytes);
    loop {
        match decoder.take(&mut piece).unwrap() {
            0 => break,
            taken => out.extend(&piece[..taken]),
        }
    }
    decoder.finish().unwrap();
    out
}

/// What goes out of a body in pieces of these sizes.
fn sent(guard: &mut OutgoingGuard, body: &[u8], sizes: &[usize]) -> Result<Vec<u8>, Leak> {
    let (mut out, mut rest) = (BytesMut::new(), body);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        match guard.passes(piece) {
            true => out.extend_from_slice(piece),
            false => guard.push(piece, &mut out)?,
        }
        rest = after;
    }
    guard.finish(&mut out)?;
    Ok(out.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_coded_body_cut_anywhere_is_filled_as_its_whole_would_be(
        before in "[ -~]{0,3000}",
        after in "[ -~]{0,300}",
        sizes in prop::collection::vec(1_usize..90, 1..20),
        which in 0..CODINGS.len(),
    ) {
        let binding = crate::secret::Binding { places: vec![Place::Json("/token".into())], ..bound("forge", SECRET) };
        let text = binding.placeholders[0].clone();
        let secrets = SessionSecrets::new(vec![binding]).unwrap();
        let (name, codings) = CODINGS[which];
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        headers.insert("content-length", "1".parse().unwrap());
        if !name.is_empty() {
            headers.insert(CONTENT_ENCODING, name.parse().unwrap());
        }
        let mut guard = super::guard(&mut headers, &secrets, &permit("forge", "json:/token"), (&[], 0)).unwrap().unwrap();
        prop_assert_eq!(headers.contains_key("content-length"), codings.is_empty());
        let body = serde_json::json!({"a": before, "token": text, "z": after}).to_string();
        let out = sent(&mut guard, &encoded(body.as_bytes(), codings), &sizes).unwrap();
        prop_assert_eq!(String::from_utf8(decoded(&out, codings)).unwrap(), body.replace(&text, SECRET));
        prop_assert_eq!(guard.put_in(), ["forge"]);
    }

    #[test]
    fn a_value_in_a_coded_body_cut_anywhere_becomes_its_placeholder_where_a_rule_says_so(
        parts in prop::collection::vec(prop_oneof![
            "[ -~]{0,40}", Just(SECRET.to_owned()), (0..SECRET.len()).prop_map(|at| SECRET[..at].to_owned()),
        ], 0..8),
        sizes in prop::collection::vec(1_usize..50, 1..20),
        which in 0..CODINGS.len(),
    ) {
        let (secrets, placeholder) = secrets();
        let policy = "version: 1\nleaks: {values: redact}\nrules: [{id: a, to: {host: a.test}, effect: allow}]\n";
        let permit = permit_under(policy.to_owned(), "a.test");
        let (name, codings) = CODINGS[which];
        let mut headers = HeaderMap::new();
        if !name.is_empty() {
            headers.insert(CONTENT_ENCODING, name.parse().unwrap());
        }
        let mut guard = super::guard(&mut headers, &secrets, &permit, (&[], 0)).unwrap().unwrap();
        let body = parts.concat();
        let out = sent(&mut guard, &encoded(body.as_bytes(), codings), &sizes).unwrap();
        let out = String::from_utf8(decoded(&out, codings)).unwrap();
        prop_assert_eq!(out, body.replace(SECRET, &placeholder));
    }
}
