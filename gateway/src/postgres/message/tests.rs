//! Start-up messages are read strictly, and nothing makes the reader panic.
use super::*;
use proptest::prelude::*;

fn parameters(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut body = VERSION.to_be_bytes().to_vec();
    for (name, value) in pairs {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    body
}

fn read(pairs: &[(&str, &str)]) -> Result<StartUp, Malformed> {
    match first(&parameters(pairs))? {
        First::StartUp(start_up) => Ok(start_up),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_database_is_the_users_own_where_none_is_named() {
    assert_eq!(read(&[("user", "ada")]).unwrap().database, "ada");
    assert_eq!(
        read(&[("user", "ada"), ("database", "")]).unwrap().database,
        "ada"
    );
    assert_eq!(
        read(&[("user", "ada"), ("database", "shop")]).unwrap().database,
        "shop"
    );
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for pairs in [
        &[("user", "ada"), ("user", "root")][..],
        &[("user", "ada"), ("database", "a"), ("database", "b")],
        &[("database", "shop")],
        &[("user", "")],
        &[("user", &"x".repeat(64))],
        &[("user", "ada"), ("database", &"x".repeat(64))],
        &[("user", "a\nb")],
        &[("user", "ada"), ("replication", "database")],
        &[("user", "ada"), ("replication", "true")],
        &[("user", "ada"), ("replication", "o")],
    ] {
        assert!(read(pairs).is_err(), "{pairs:?}");
    }
    assert!(read(&[("user", "ada"), ("replication", "off")]).is_ok());
    let mut longer = parameters(&[("user", "ada")]);
    longer.push(b'x');
    assert!(first(&longer).is_err());
    assert!(first(b"\0\x02\0\0").is_err(), "protocol 2");
}

#[test]
fn what_is_read_is_sent_without_the_options_of_a_newer_protocol() {
    let asked = read(&[("user", "ada"), ("_pq_.x", "1"), ("search_path", "a")]).unwrap();
    let sent = asked.written();
    let again = first(&sent[4..]).unwrap();
    let First::StartUp(again) = again else {
        panic!("{again:?}")
    };
    assert_eq!((again.user.as_str(), again.database.as_str()), ("ada", "ada"));
    assert_eq!(again.settings, [("search_path".to_owned(), b"a".to_vec())]);
    assert_eq!(
        asked.negotiated().unwrap().to_vec(),
        b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0"
    );
    assert_eq!(again.negotiated(), None);
}

#[test]
fn an_error_is_read_as_it_was_written() {
    let told = Told {
        code: "28000".into(),
        message: "no\nway".into(),
        detail: Some("d".into()),
        hint: None,
    };
    let written = error(&told);
    let announced = u32::from_be_bytes([written[1], written[2], written[3], written[4]]) as usize;
    assert_eq!(announced, written.len() - 1);
    assert_eq!(read_error(&written[5..]).message, "noway");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(code in prop::sample::select(vec![VERSION, VERSION + 2, CANCEL, TLS, GSS]), rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let body = [&code.to_be_bytes()[..], &rest].concat();
        if let Ok(First::StartUp(start_up)) = first(&body) {
            prop_assert!(!start_up.user.is_empty() && start_up.user.len() <= 63);
        }
        let _ = (key_data(&rest), read_error(&rest));
    }
}
