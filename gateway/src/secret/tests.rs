//! Redaction as a property: any split, any form, the same result as replacing in the whole; and nothing held for nothing.
use super::testing::bound;
use super::*;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::BytesMut;
use proptest::prelude::*;

const SECRET: &str = "sk-Ab3d/f6h+j9lMn0pQr2t";
const OTHER: &str = "Ab3d\"f6h\\j9l xyz";

fn secrets() -> (SessionSecrets, [String; 2]) {
    let bindings = vec![bound("one", SECRET), bound("two", OTHER)];
    let placeholders = [0, 1].map(|at| bindings[at].placeholders[0].clone());
    (SessionSecrets::new(bindings).unwrap(), placeholders)
}

fn streamed(secrets: &SessionSecrets, text: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<String>) {
    let (mut redactor, mut out, mut rest) = (secrets.redactor().unwrap(), BytesMut::new(), text);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        if redactor.passes(piece) {
            out.extend_from_slice(piece);
        } else {
            redactor.push(piece, &mut out);
        }
        rest = after;
    }
    redactor.finish(&mut out);
    (out.to_vec(), redactor.found().to_vec())
}

/// The forms in which an origin may echo a text.
fn echoes(text: &str) -> Vec<String> {
    let percent = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    vec![
        text.to_owned(),
        serde_json::to_string(text).unwrap(),
        percent,
        STANDARD.encode(text),
        STANDARD.encode(format!("x{text}")),
        STANDARD.encode(format!("xy{text}z")),
        URL_SAFE_NO_PAD.encode(format!("u:{text}")),
        text.bytes().map(|byte| format!("{byte:02x}")).collect(),
    ]
}

#[test]
fn every_echo_becomes_the_placeholder_in_the_same_form_and_length_cut_at_every_byte() {
    let (secrets, placeholders) = secrets();
    for (value, placeholder) in [(SECRET, &placeholders[0]), (OTHER, &placeholders[1])] {
        for (echo, wanted) in echoes(value).into_iter().zip(echoes(placeholder)) {
            let text = format!("<p>{echo}</p>");
            for size in 1..=text.len() {
                let (out, found) = streamed(&secrets, text.as_bytes(), &[size]);
                assert_eq!(
                    String::from_utf8(out).unwrap(),
                    format!("<p>{wanted}</p>"),
                    "{echo} by {size}"
                );
                assert_eq!(found.len(), 1);
            }
        }
    }
}

#[test]
fn nothing_is_held_back_where_nothing_can_begin() {
    let (secrets, _) = secrets();
    let mut redactor = secrets.redactor().unwrap();
    for event in ["data: hello\n\n", ": ping\n\n", "{\"done\": true}\n"] {
        let mut out = BytesMut::new();
        redactor.push(event.as_bytes(), &mut out);
        assert_eq!(out, event);
    }
    let mut out = BytesMut::new();
    redactor.push(b"data: sk-Ab3d", &mut out);
    assert_eq!(out, "data: ", "the possible beginning waits");
    redactor.push(b"elivered\n\n", &mut out);
    assert_eq!(out, "data: sk-Ab3delivered\n\n", "and goes when it is none");
}

#[test]
fn headers_and_records_are_cleaned() {
    let (secrets, [placeholder, _]) = secrets();
    let mut headers = HeaderMap::new();
    headers.insert("location", format!("/x?t={SECRET}").parse().unwrap());
    headers.append(
        "www-authenticate",
        format!("Bearer realm=\"{SECRET}\"").parse().unwrap(),
    );
    headers.append("www-authenticate", "Basic".parse().unwrap());
    assert_eq!(secrets.redact_headers(&mut headers), ["one"]);
    assert_eq!(headers["location"], format!("/x?t={placeholder}"));
    assert_eq!(
        headers["www-authenticate"],
        format!("Bearer realm=\"{placeholder}\"")
    );
    assert_eq!(headers.get_all("www-authenticate").iter().count(), 2);
}

#[test]
fn a_value_that_holds_another_is_taken_out_whole() {
    let inner = &SECRET[4..16];
    let bindings = vec![bound("inner", inner), bound("outer", SECRET)];
    let outer = bindings[1].placeholders[0].clone();
    let secrets = SessionSecrets::new(bindings).unwrap();
    for size in 1..60 {
        let (out, _) = streamed(&secrets, format!("a {SECRET} b").as_bytes(), &[size]);
        assert_eq!(String::from_utf8(out).unwrap(), format!("a {outer} b"));
    }
}

#[test]
fn a_long_value_of_several_lines_is_found_in_json() {
    let key = format!(
        "-----BEGIN KEY-----\n{}\n-----END KEY-----\n",
        "Ab3dEf6h".repeat(500)
    );
    let secrets = SessionSecrets::new(vec![bound("key", &key)]).unwrap();
    let placeholder = secrets.bindings()[0].placeholders[0].clone();
    let (out, _) = streamed(
        &secrets,
        serde_json::to_string(&key).unwrap().as_bytes(),
        &[1000, 3],
    );
    assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), placeholder);
}

#[test]
fn the_guard_stops_before_the_last_byte_of_a_value() {
    let (secrets, [placeholder, _]) = secrets();
    let mut guard = secrets.body_guard().unwrap();
    let mut out = BytesMut::new();
    guard.push(placeholder.as_bytes(), &mut out).unwrap();
    guard.push(&SECRET.as_bytes()[..10], &mut out).unwrap();
    let leak = guard.push(&SECRET.as_bytes()[10..], &mut out).unwrap_err();
    assert_eq!(out, placeholder);
    assert!(
        leak.sentence.contains("`one`") && !leak.sentence.contains(SECRET),
        "{leak}"
    );
    assert_eq!(guard.placeholders_seen(), ["one"]);
}

#[test]
fn a_session_without_secrets_has_nothing_to_look_for() {
    let none = SessionSecrets::none();
    assert!(none.redactor().is_none() && none.body_guard().is_none());
    assert!(SessionSecrets::new(Vec::new()).unwrap().redactor().is_none());
}

/// Ordinary text, values, pieces of values, and forms of values.
fn parts() -> impl Strategy<Value = Vec<String>> {
    let part = prop_oneof![
        3 => "[a-zA-Z0-9+/=%\\\\\" -]{0,12}".prop_map(String::from),
        1 => "[a-zA-Z0-9 ]{300,900}".prop_map(String::from),
        1 => Just(SECRET.to_owned()),
        1 => Just(OTHER.to_owned()),
        2 => (0..SECRET.len(), 0..SECRET.len())
            .prop_map(|(a, b)| SECRET[a.min(b)..a.max(b)].to_owned()),
        1 => (0..8_usize).prop_map(|form| echoes(SECRET)[form].clone()),
        1 => (0..8_usize).prop_map(|form| echoes(OTHER)[form].clone()),
    ];
    prop::collection::vec(part, 0..12)
}

/// Pieces, some longer than any pattern.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![3 => 1_usize..40, 1 => 200_usize..3000], 1..30)
}

proptest! {
    #[test]
    fn a_value_in_a_request_is_seen_however_it_is_split_and_what_is_let_go_is_unchanged(
        parts in parts(),
        sizes in sizes(),
        stand_in in any::<bool>(),
    ) {
        let (secrets, [placeholder, _]) = secrets();
        let mut text = parts.concat();
        if stand_in {
            text.insert_str(text.len() / 2, &placeholder);
        }
        let mut guard = secrets.body_guard().unwrap();
        let (mut out, mut rest, mut leak) = (BytesMut::new(), text.as_bytes(), None);
        for size in sizes.iter().cycle() {
            if rest.is_empty() || leak.is_some() {
                break;
            }
            let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
            if guard.passes(piece) {
                out.extend_from_slice(piece);
            } else {
                leak = guard.push(piece, &mut out).err();
            }
            rest = after;
        }
        if leak.is_none() {
            leak = guard.finish(&mut out).err();
        }
        let stands = secrets.values.as_ref().unwrap().find(text.as_bytes()).is_some();
        prop_assert_eq!(leak.is_some(), stands);
        prop_assert!(text.as_bytes().starts_with(&out));
        if !stands {
            prop_assert_eq!(out.len(), text.len());
            let seen = secrets.placeholders.as_ref().unwrap().find(text.as_bytes()).is_some();
            prop_assert_eq!(!guard.placeholders_seen().is_empty(), seen);
        }
    }

    #[test]
    fn any_split_gives_the_same_as_the_whole(parts in parts(), sizes in sizes()) {
        let (secrets, _) = secrets();
        let text = parts.concat();
        let whole = secrets.values.as_ref().unwrap().replace_all(text.as_bytes());
        let whole = whole.map_or_else(|| text.clone().into_bytes(), |(clean, _)| clean);
        let (out, _) = streamed(&secrets, text.as_bytes(), &sizes);
        prop_assert_eq!(out.len(), text.len());
        prop_assert_eq!(out, whole);
    }

    #[test]
    fn no_value_of_any_shape_survives_in_its_usual_forms(value in "[!-~]{8,40}", around in "[ -~]{0,5}") {
        let value = Value::new(value.into_bytes());
        let Some(minted) = placeholder::mint(&value).unwrap() else { return Ok(()) };
        let text = String::from_utf8(value.bytes().to_vec()).unwrap();
        let binding = Binding { placeholders: vec![minted.text], value: Some(Arc::new(value)), ..bound("x", SECRET) };
        let secrets = SessionSecrets::new(vec![binding]).unwrap();
        for echo in echoes(&text) {
            let (out, _) = streamed(&secrets, format!("{around}{echo}{around}").as_bytes(), &[5, 1]);
            let out = String::from_utf8(out).unwrap();
            prop_assert!(!out.contains(&echo), "{}", out);
        }
    }
}
