//! Bodies filled in pieces: however they are cut, the result is that of one piece, and it is what a reader of them would say.
use super::*;
use crate::secret::{Value, placeholder};
use proptest::prelude::*;
use serde_json::{Value as Tree, json};
use std::sync::Arc;

mod ambiguous;

const SECRET: &str = "k-9\"/\\Aé+&=%z 7Qw";

/// A slot for a credential of this value, and its placeholder.
fn slot(name: &str, value: &str) -> (Slot, String) {
    let value = Value::new(value.as_bytes().to_vec());
    let text = placeholder::mint(&value).unwrap().unwrap().text;
    let slot = Slot {
        credential: name.into(),
        place: "the place".into(),
        placeholders: vec![text.clone()],
        value: Ok(Arc::new(value)),
    };
    (slot, text)
}

fn json(pointer: &str) -> (Fill, String) {
    let (slot, text) = slot("one", SECRET);
    (
        Fill(Kind::Json(Json::new(Slots::new(vec![slot], &[]), &[pointer]))),
        text,
    )
}

fn form(name: &str) -> (Fill, String) {
    let (slot, text) = slot("one", SECRET);
    let form = Form::new(Slots::new(vec![slot], &[]), vec![name.into()]);
    (Fill(Kind::Form(form)), text)
}

fn multipart(name: &str) -> (Fill, String) {
    let (slot, text) = slot("one", SECRET);
    let form = Multipart::new(Slots::new(vec![slot], &[]), vec![name.into()], "b0");
    (Fill(Kind::Multipart(Box::new(form))), text)
}

fn run(fill: &mut Fill, body: &[u8], sizes: &[usize]) -> Result<Vec<u8>, Leak> {
    let (mut out, mut rest) = (BytesMut::new(), body);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        match fill.passes(piece) {
            true => out.extend_from_slice(piece),
            false => fill.push(piece, &mut out)?,
        }
        rest = after;
    }
    fill.finish(&mut out)?;
    Ok(out.to_vec())
}

/// A string of JSON as careful encoders write it: everything but letters, digits and blanks escaped.
fn careful(text: &str) -> String {
    text.encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() || byte == b' ' => char::from(byte).to_string(),
            _ => format!("\\u{unit:04X}"),
        })
        .collect()
}

#[test]
fn a_string_at_the_pointer_is_replaced_in_its_own_form_cut_at_every_byte() {
    for (pointer, body) in [
        (
            "/auth/token",
            "{\"x\": [1, {\"token\": \"HERE\"}], \"auth\": {\"user\": \"HERE\", \"token\": \"THERE\"}}",
        ),
        (
            "/items/1/key",
            "{\"items\":[{\"key\":\"HERE\"},{\"key\":\"THERE\"},{\"key\":\"HERE\"}],\"1\":null}",
        ),
        (
            "/a~1b/m~0n",
            "\u{feff}{\"a/b\" : { \"m~n\" :\n\"THERE\" , \"m\":-1.5e3 } }",
        ),
        ("/0", "[\"THERE\", \"HERE\", true, [\"HERE\"]]"),
        ("/k\u{e9}y", "{\"k\\u00e9y\":\"THERE\",\"k\":{}}"),
    ] {
        let quoted = |text: &str| serde_json::to_string(text).unwrap().trim_matches('"').to_owned();
        for escape in [&quoted as &dyn Fn(&str) -> String, &careful] {
            let size = body.len() * 4;
            for size in 1..size {
                let (mut fill, text) = json(pointer);
                let sent = body
                    .replace("THERE", &escape(&text))
                    .replace("HERE", &escape(&text));
                let wanted = body
                    .replace("THERE", &escape(SECRET))
                    .replace("HERE", &escape(&text));
                let out = run(&mut fill, sent.as_bytes(), &[size]).unwrap();
                let out = String::from_utf8(out).unwrap();
                assert_eq!(out.to_lowercase(), wanted.to_lowercase(), "{pointer} by {size}");
                assert_eq!(out.len(), sent.len(), "the length is kept");
                assert_eq!(fill.put_in(), ["one"]);
            }
        }
    }
}

#[test]
fn only_a_whole_string_at_the_pointer_is_replaced() {
    for body in [
        "{\"auth\": {\"token\": \"xHERE\"}}",
        "{\"auth\": {\"token\": \"Bearer HERE\"}}",
        "{\"auth\": {\"token\": [\"HERE\"]}}",
        "{\"auth\": {\"token\": {\"token\": \"HERE\"}}}",
        "{\"auth\": [{\"token\": \"HERE\"}]}",
        "{\"token\": \"HERE\", \"auth\": 7}",
        "{\"auth\": {\"HERE\": \"token\"}}",
        "{\"auth/token\": \"HERE\"}",
        "[{\"auth\": {\"token\": \"HERE\"}}]",
        "\"HERE\"",
        "",
    ] {
        let (mut fill, text) = json("/auth/token");
        let sent = body.replace("HERE", serde_json::to_string(&text).unwrap().trim_matches('"'));
        let out = run(&mut fill, sent.as_bytes(), &[3, 7]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), sent);
        assert!(fill.put_in().is_empty(), "{body}");
    }
}

#[test]
fn what_is_no_json_passes_unchanged_unless_something_was_put_in() {
    for (body, passes) in [
        ("{\"token\": nope!, \"token\": \"x\"", true),
        ("token=HERE", true),
        ("{\"token\": \"HERE", true),
        ("{\"token\" \"HERE\"}", true),
        ("{\"x\": 1}{\"token\": \"HERE\"}", true),
        ("{\"x\": 1,, \"token\": \"HERE\"}", true),
        ("{\"x\": [1}, \"token\": \"HERE\"]", true),
        ("{\"token\": \"HERE\"", false),
        ("{\"token\": \"HERE\", }", false),
        ("{\"token\": \"HERE\"} {", false),
        ("{\"token\": \"HERE\", \"token\": 1}", false),
        ("{\"token\": 1, \"token\": \"HERE\"}", false),
        ("{\"tok\\u0065n\": null, \"token\": \"HERE\"}", false),
        ("{\"token\": 1, \"token\": 2, \"x\": \"HERE\"}", true),
    ] {
        for size in [1, 4, 1000] {
            let (mut fill, text) = json("/token");
            let sent = body.replace("HERE", serde_json::to_string(&text).unwrap().trim_matches('"'));
            match run(&mut fill, sent.as_bytes(), &[size]) {
                Ok(out) => assert!(passes && out == sent.as_bytes(), "{body}"),
                Err(leak) => {
                    assert!(!passes, "{body}: {leak}");
                    assert_eq!(leak.credential, "one");
                    assert!(!leak.sentence.contains(SECRET));
                }
            }
        }
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let (mut fill, text) = json("/token");
    let text = serde_json::to_string(&text).unwrap();
    let deep = format!(
        "{{\"x\": {}{}, \"token\": {text}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(run(&mut fill, deep.as_bytes(), &[100]).unwrap(), deep.as_bytes());
    let (mut fill, _) = json("/token");
    let mut out = BytesMut::new();
    fill.push(b"{\"token\": \"", &mut out).unwrap();
    for _ in 0..100 {
        fill.push(&[b'x'; 10_000], &mut out).unwrap();
    }
    assert!(out.len() >= 1_000_000, "a long string is not held");
}

#[test]
fn a_credential_goes_out_once() {
    let (one, text) = slot("one", SECRET);
    let (mut two, _) = slot("one", SECRET);
    two.placeholders = vec![text.clone()];
    let slots = Slots::new(vec![one, two], &[]);
    let mut fill = Fill(Kind::Json(Json::new(slots, &["/a", "/b"])));
    let text = serde_json::to_string(&text).unwrap();
    let body = format!("{{\"a\": {text}, \"b\": {text}}}");
    let leak = run(&mut fill, body.as_bytes(), &[9]).unwrap_err();
    assert!(leak.sentence.contains("a second time"), "{leak}");
    let (slot, text) = slot("one", SECRET);
    let form = Form::new(Slots::new(vec![slot], &["one".into()]), vec!["a".into()]);
    let field = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
    assert!(run(&mut Fill(Kind::Form(form)), format!("a={field}").as_bytes(), &[9]).is_err());
}

#[test]
fn a_field_of_a_form_is_replaced_in_its_own_form_cut_at_every_byte() {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let strict = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let plus = |text: &str| {
        strict(text)
            .replace("%20", "+")
            .replace("%2D", "-")
            .replace("%2F", "/")
    };
    for escape in [&strict as &dyn Fn(&str) -> String, &plus] {
        for body in [
            "a=1&tok%65n=THERE&b=HERE",
            "token=THERE",
            "x&&=&token=THERE&y=HERE&tokens=HERE&",
            "a=b=c&token=THERE",
        ] {
            for size in 1..body.len() + 100 {
                let (mut fill, text) = form("token");
                let sent = body
                    .replace("THERE", &escape(&text))
                    .replace("HERE", &escape(&text));
                let wanted = body
                    .replace("THERE", &escape(SECRET))
                    .replace("HERE", &escape(&text));
                let out = run(&mut fill, sent.as_bytes(), &[size]).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), wanted);
            }
        }
    }
    for body in ["token=HERE&token=x", "token=&token=HERE"] {
        let (mut fill, text) = form("token");
        let leak = run(&mut fill, body.replace("HERE", &strict(&text)).as_bytes(), &[5]).unwrap_err();
        assert!(leak.sentence.contains("twice"), "{leak}");
    }
    let (mut fill, text) = form("token");
    let body = format!("token=x{0}&token%00={0}&token", strict(&text));
    assert_eq!(run(&mut fill, body.as_bytes(), &[5]).unwrap(), body.as_bytes());
}

const PARTS: &str = "preamble\r\n--b0\r\nContent-Disposition: form-data; name=\"before\"\r\n\r\nHERE\r\n--b0\r\n\
    content-type: text/plain\r\ncontent-disposition: form-data; NAME=tok\"en\r\n\r\nHERE\r\n--b01 \r\n--b\r\n--b0\r\n\
    Content-Disposition: form-data; name=\"to\\\"ken\"\r\n\r\nTHERE\r\n--b0\r\n\
    Content-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n\x00\r\n\r\n-\r\n--\r\n--b0\r\n\r\n\r\n--b0--\r\nHERE";

#[test]
fn a_field_of_a_multipart_form_is_replaced_cut_at_every_byte() {
    for body in [PARTS, &PARTS["preamble\r\n".len()..]] {
        for size in 1..body.len() + 60 {
            let (mut fill, text) = multipart("to\"ken");
            let sent = body.replace("THERE", &text).replace("HERE", &text);
            let wanted = body.replace("THERE", SECRET).replace("HERE", &text);
            let out = run(&mut fill, sent.as_bytes(), &[size]).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "by {size}");
            assert_eq!(fill.put_in(), ["one"]);
        }
    }
}

#[test]
fn a_file_is_no_field_and_a_torn_form_is_not_ended() {
    let part =
        |head: &str, text: &str| format!("--b0\r\nContent-Disposition: form-data; {head}\r\n\r\n{text}\r\n");
    for head in [
        "name=\"token\"; filename=\"t\"",
        "name=\"token\"; name=\"x\"",
        "name=\"tokens\"",
        "x=\"; name=token\"",
    ] {
        let (mut fill, text) = multipart("token");
        let body = part(head, &text) + "--b0--\r\n";
        assert_eq!(
            run(&mut fill, body.as_bytes(), &[11]).unwrap(),
            body.as_bytes(),
            "{head}"
        );
    }
    for (body, passes) in [
        (part("name=token", "HERE"), true),
        (part("name=token", "HERE") + "--b0\r\n", false),
        (
            part("name=token", "HERE") + &part("name=token", "x") + "--b0--",
            false,
        ),
        (
            part("name=token", "x") + &part("name=token", "HERE") + "--b0--",
            false,
        ),
        (part("name=token", "xHERE"), true),
        (part("name=token", "HERE") + "--b0--", true),
    ] {
        let (mut fill, text) = multipart("token");
        assert_eq!(
            run(&mut fill, body.replace("HERE", &text).as_bytes(), &[13]).is_ok(),
            passes,
            "{body}"
        );
    }
}

#[test]
fn a_long_part_passes_without_being_held() {
    let (mut fill, _) = multipart("token");
    let mut out = BytesMut::new();
    fill.push(
        b"--b0\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n",
        &mut out,
    )
    .unwrap();
    let piece = vec![7_u8; 65536];
    fill.push(&piece, &mut out).unwrap();
    assert!((0..1000).all(|_| fill.passes(&piece)), "nothing is copied");
}

#[test]
fn a_value_of_another_shape_is_written_anew() {
    let value = "a \"longer\" value/&=%";
    let slot = |text: &str| Slot {
        credential: "one".into(),
        place: "the place".into(),
        placeholders: vec![text.into()],
        value: Ok(Arc::new(Value::new(value.as_bytes().to_vec()))),
    };
    let slots = Slots::new(vec![slot("old")], &[]);
    let mut fill = Fill(Kind::Json(Json::new(slots, &["/t"])));
    assert!(!fill.keeps_length());
    let out = run(&mut fill, b"{\"t\":\"old\"}", &[2]).unwrap();
    assert_eq!(serde_json::from_slice::<Tree>(&out).unwrap(), json!({"t": value}));
    let form = Form::new(Slots::new(vec![slot("old")], &[]), vec!["t".into()]);
    let out = run(&mut Fill(Kind::Form(form)), b"t=old", &[2]).unwrap();
    assert_eq!(out, b"t=a%20%22longer%22%20value%2F%26%3D%25");
}

/// A tree in which some strings are `HERE`.
fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<i32>().prop_map(Tree::from),
        "[ -~é\\n]{0,8}".prop_map(Tree::from),
        Just(Tree::from("HERE")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::from),
            prop::collection::btree_map("[ab/~]{0,2}", inner, 0..4)
                .prop_map(|map| Tree::Object(map.into_iter().collect())),
        ]
    })
}

/// The pointers of all strings that are `HERE`.
fn pointers(tree: &Tree, at: &str, found: &mut Vec<String>) {
    match tree {
        Tree::String(text) if text == "HERE" => found.push(at.to_owned()),
        Tree::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                pointers(one, &format!("{at}/{index}"), found);
            }
        }
        Tree::Object(all) => {
            for (key, one) in all {
                pointers(
                    one,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        _ => {}
    }
}

fn put(tree: &mut Tree, text: &str) {
    match tree {
        Tree::String(own) if own == "HERE" => *own = text.to_owned(),
        Tree::Array(all) => all.iter_mut().for_each(|one| put(one, text)),
        Tree::Object(all) => all.values_mut().for_each(|one| put(one, text)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_tree_cut_anywhere_is_filled_as_a_reader_of_the_whole_would(
        mut tree in tree(),
        which in any::<prop::sample::Index>(),
        pretty in any::<bool>(),
        sizes in prop::collection::vec(1_usize..60, 1..20),
    ) {
        let mut all = Vec::new();
        pointers(&tree, "", &mut all);
        all.retain(|pointer| !pointer.is_empty());
        prop_assume!(!all.is_empty());
        let pointer = which.get(&all).clone();
        let (mut fill, text) = json(&pointer);
        put(&mut tree, &text);
        let sent = match pretty {
            true => serde_json::to_vec_pretty(&tree).unwrap(),
            false => serde_json::to_vec(&tree).unwrap(),
        };
        let out = run(&mut fill, &sent, &sizes).unwrap();
        *tree.pointer_mut(&pointer).unwrap() = Tree::from(SECRET);
        prop_assert_eq!(serde_json::from_slice::<Tree>(&out).unwrap(), tree);
        prop_assert_eq!(out.len(), sent.len());
    }

    #[test]
    fn bytes_of_any_kind_are_never_lost_or_changed_without_a_placeholder(
        bytes in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(b'"'), Just(b'{'), Just(b'['), Just(b','), Just(b':'), Just(b'\\'), Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'b'), Just(b'0'),
        ], 0..300),
        sizes in prop::collection::vec(1_usize..40, 1..10),
    ) {
        for (mut fill, _) in [json("/a"), form("a"), multipart("a")] {
            prop_assert_eq!(&run(&mut fill, &bytes, &sizes).unwrap(), &bytes);
        }
    }
}
