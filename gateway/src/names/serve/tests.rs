//! Questions that a machine may ask, and what it learns.
use super::*;
use proptest::prelude::*;

fn ask(names: &Table, name: &str, kind: RecordType) -> Message {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    let (reply, _) = answer(names, &query.to_vec().unwrap()).unwrap();
    assert_eq!(reply.metadata.id, query.metadata.id);
    Message::from_vec(&reply.to_vec().unwrap()).unwrap()
}

fn table() -> Table {
    Table::new("run-1", 1000)
}

#[test]
fn every_name_gets_addresses_that_lead_back_to_it() {
    let names = table();
    for name in ["allowed.test.", "never-heard-of.test.", "single."] {
        let four = ask(&names, name, RecordType::A);
        let [
            Record {
                data: RData::A(A(four)),
                ..
            },
        ] = four.answers.as_slice()
        else {
            panic!("{four:?}")
        };
        let six = ask(&names, name, RecordType::AAAA);
        let [
            Record {
                data: RData::AAAA(AAAA(six)),
                ..
            },
        ] = six.answers.as_slice()
        else {
            panic!("{six:?}")
        };
        let bare = name.strip_suffix('.').unwrap();
        assert_eq!(names.name((*four).into()).as_deref(), Some(bare));
        assert_eq!(names.name((*six).into()).as_deref(), Some(bare));
    }
}

#[test]
fn case_does_not_make_another_name() {
    let names = table();
    let lower = ask(&names, "allowed.test.", RecordType::A);
    let upper = ask(&names, "ALLOWED.Test.", RecordType::A);
    assert_eq!(lower.answers[0].data, upper.answers[0].data);
    assert_eq!(upper.answers[0].name.to_ascii(), "ALLOWED.Test.");
}

#[test]
fn other_types_have_no_data() {
    let names = table();
    for kind in [
        RecordType::TXT,
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::MX,
        RecordType::SRV,
        RecordType::ANY,
        RecordType::NULL,
        RecordType::NS,
        RecordType::CAA,
    ] {
        let reply = ask(&names, "allowed.test.", kind);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(reply.answers.is_empty(), "{kind}");
        assert!(matches!(reply.authorities[0].data, RData::SOA(_)), "{kind}");
    }
}

#[test]
fn a_pointer_of_a_synthetic_address_is_its_name() {
    let names = table();
    let (four, six) = names.addresses("allowed.test").unwrap();
    for address in [std::net::IpAddr::V4(four), std::net::IpAddr::V6(six)] {
        let reply = ask(&names, &Name::from(address).to_ascii(), RecordType::PTR);
        let [
            Record {
                data: RData::PTR(PTR(name)),
                ..
            },
        ] = reply.answers.as_slice()
        else {
            panic!("{reply:?}")
        };
        assert_eq!(name.to_ascii(), "allowed.test.");
    }
    let other = ask(&names, "8.8.8.8.in-addr.arpa.", RecordType::PTR);
    assert_eq!(other.metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn localhost_is_the_machine_itself() {
    let reply = ask(&table(), "localhost.", RecordType::A);
    assert_eq!(reply.answers[0].data, RData::A(A(Ipv4Addr::LOCALHOST)));
}

#[test]
fn what_can_be_no_host_does_not_exist() {
    let reply = ask(&table(), "127.1.", RecordType::A);
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn a_full_table_fails_and_says_so_by_the_code() {
    let names = Table::new("run-1", 1);
    ask(&names, "a.test.", RecordType::A);
    assert_eq!(
        ask(&names, "b.test.", RecordType::A).metadata.response_code,
        ResponseCode::ServFail
    );
    assert_eq!(
        ask(&names, "a.test.", RecordType::A).metadata.response_code,
        ResponseCode::NoError
    );
}

#[test]
fn broken_queries_are_format_errors_and_answers_are_not_answered() {
    let (reply, _) = answer(&table(), &[0x12, 0x34, 0, 0, 0, 9, 0, 0]).unwrap();
    assert_eq!(
        (reply.metadata.id, reply.metadata.response_code),
        (0x1234, ResponseCode::FormErr)
    );
    assert!(answer(&table(), &[0x12]).is_none());
    assert!(answer(&table(), &[0x12, 0x34, 0x80, 0]).is_none());
    let none = Message::query();
    let (reply, _) = answer(&table(), &none.to_vec().unwrap()).unwrap();
    assert_eq!(reply.metadata.response_code, ResponseCode::FormErr);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let names = table();
        if let Some((reply, _)) = answer(&names, &bytes) {
            let _ = reply.to_vec();
        }
    }
}
