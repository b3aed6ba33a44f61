//! Questions that a machine may ask, and what it learns.
use super::*;
use proptest::prelude::*;

fn ask(names: &Table, name: &str, kind: RecordType) -> Message {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    told(names, query, &Known::Addresses { ttl: 300 })
}

/// The answer to a query about a name of which this is known.
fn told(names: &Table, query: Message, known: &Known) -> Message {
    let Asked::Question {
        mut reply,
        question,
        host,
    } = read(&query.to_vec().unwrap())
    else {
        panic!()
    };
    match host {
        Some(name) => addresses(names, &name, known, &question, &mut reply).unwrap(),
        None => other(names, &question, &mut reply),
    }
    assert_eq!(reply.metadata.id, query.metadata.id);
    Message::from_vec(&reply.to_vec().unwrap()).unwrap()
}

fn query(name: &str, kind: RecordType, edns: bool) -> Message {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    query.edns = edns.then(Edns::new);
    query
}

/// The extended error of an answer.
fn extended(message: &Message) -> Option<(u16, String)> {
    let edns = message.edns.as_ref()?;
    edns.options()
        .options
        .iter()
        .find_map(|(_, option)| match option {
            EdnsOption::Unknown(15, data) => Some((
                u16::from_be_bytes([data[0], data[1]]),
                String::from_utf8(data[2..].to_vec()).unwrap(),
            )),
            _ => None,
        })
}

#[test]
fn what_is_known_of_a_name_is_what_is_told() {
    let names = table();
    for (known, code, answers) in [
        (Known::Addresses { ttl: 3 }, ResponseCode::NoError, 1),
        (Known::Nothing, ResponseCode::NoError, 0),
        (Known::NoSuchName, ResponseCode::NXDomain, 0),
        (Known::Failed("nobody answers".into()), ResponseCode::ServFail, 0),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let reply = told(&names, query("a.test.", kind, true), &known);
            assert_eq!(
                (reply.metadata.response_code, reply.answers.len()),
                (code, answers),
                "{known:?} {kind}"
            );
            let reason = extended(&reply);
            match known {
                Known::Failed(_) => assert_eq!(reason, Some((22, "nobody answers".to_owned()))),
                Known::Addresses { ttl } => assert_eq!((reason, reply.answers[0].ttl), (None, ttl)),
                _ => assert!(matches!(reply.authorities[0].data, RData::SOA(_)) && reason.is_none()),
            }
        }
    }
    assert_eq!(names.name("198.18.0.1".parse().unwrap()), None);
}

#[test]
fn an_answer_is_kept_for_ten_seconds_at_most() {
    assert_eq!(ask(&table(), "a.test.", RecordType::A).answers[0].ttl, 10);
}

#[test]
fn a_question_about_hints_is_told_that_there_are_none_where_it_can_be_told() {
    let names = table();
    let reply = told(&names, query("a.test.", RecordType::HTTPS, true), &Known::Nothing);
    let (code, text) = extended(&reply).unwrap();
    assert!(code == 17 && text.contains("no ECH"), "{code} {text}");
    let reply = told(
        &names,
        query("a.test.", RecordType::HTTPS, false),
        &Known::Nothing,
    );
    assert!(reply.edns.is_none());
}

#[test]
fn a_long_reason_is_cut_between_letters() {
    let Asked::Question { mut reply, .. } = read(&query("a.test.", RecordType::A, true).to_vec().unwrap())
    else {
        panic!()
    };
    fail(&mut reply, ErrorCode::Other, &"ä".repeat(1000));
    let reply = Message::from_vec(&reply.to_vec().unwrap()).unwrap();
    assert_eq!(extended(&reply).unwrap().1, "ä".repeat(150));
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
fn a_full_table_is_told_and_known_names_still_work() {
    let names = Table::new("run-1", 1);
    ask(&names, "a.test.", RecordType::A);
    let Asked::Question {
        mut reply, question, ..
    } = read(&query("b.test.", RecordType::A, true).to_vec().unwrap())
    else {
        panic!()
    };
    let known = Known::Addresses { ttl: 1 };
    assert_eq!(
        addresses(&names, "b.test", &known, &question, &mut reply),
        Err(Full(1))
    );
    assert_eq!(ask(&names, "a.test.", RecordType::A).answers.len(), 1);
}

#[test]
fn broken_queries_are_format_errors_and_answers_are_not_answered() {
    let Asked::Done(reply) = read(&[0x12, 0x34, 0, 0, 0, 9, 0, 0]) else {
        panic!()
    };
    assert_eq!(
        (reply.metadata.id, reply.metadata.response_code),
        (0x1234, ResponseCode::FormErr)
    );
    assert!(matches!(read(&[0x12]), Asked::Nothing));
    assert!(matches!(read(&[0x12, 0x34, 0x80, 0]), Asked::Nothing));
    let Asked::Done(reply) = read(&Message::query().to_vec().unwrap()) else {
        panic!()
    };
    assert_eq!(reply.metadata.response_code, ResponseCode::FormErr);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        match read(&bytes) {
            Asked::Nothing => {}
            Asked::Done(reply) => { let _ = reply.to_vec(); }
            Asked::Question { mut reply, question, host } => {
                let names = table();
                match host {
                    Some(name) => addresses(&names, &name, &Known::Addresses { ttl: 1 }, &question, &mut reply).unwrap(),
                    None => other(&names, &question, &mut reply),
                }
                let _ = reply.to_vec();
            }
        }
    }
}
