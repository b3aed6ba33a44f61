//! Listeners handed over for a session: served, replaced, refused (case Q09, and DESIGN section 3).
use crate::dns::Dns;
use crate::origin::Roots;
use crate::stand::{Stand, read_all};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use sallyport_gateway::control::handover::ListenerHost;
use sallyport_gateway::control::types::{ListenerKind, Verdict};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::synthetic::is_synthetic;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};

fn udp() -> (SocketAddr, OwnedFd) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    (socket.local_addr().unwrap(), socket.into())
}

fn tcp() -> (SocketAddr, OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    (listener.local_addr().unwrap(), listener.into())
}

fn hand_over(stand: &Stand, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String> {
    stand
        .gateway
        .serve(stand.sessions.by_id("run-1").unwrap(), listeners)
}

async fn ask(server: SocketAddr, name: &str, kind: RecordType) -> Option<Message> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    socket.send(&query.to_vec().unwrap()).await.unwrap();
    let mut buffer = [0; 1500];
    let received = tokio::time::timeout(Duration::from_secs(5), socket.recv(&mut buffer)).await;
    let reply = Message::from_vec(&buffer[..received.ok()?.ok()?]).unwrap();
    (reply.metadata.id == query.metadata.id).then_some(reply)
}

#[tokio::test]
async fn names_are_answered_on_a_socket_that_was_handed_over() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let (address, descriptor) = udp();
    hand_over(&stand, vec![(ListenerKind::Dns, descriptor)]).unwrap();
    let reply = ask(address, "c2VjcmV0.other.test.", RecordType::A).await.unwrap();
    let RData::A(answer) = reply.answers[0].data else {
        panic!("{reply:?}")
    };
    assert!(is_synthetic(IpAddr::V4(answer.0)));
    let none = ask(address, "c2VjcmV0.other.test.", RecordType::TXT)
        .await
        .unwrap();
    assert_eq!(
        (none.metadata.response_code, none.answers.len()),
        (ResponseCode::NoError, 0)
    );
}

/// Case Q09: whatever is asked, of allowed names, names below them and others, nobody outside hears of it.
#[tokio::test]
async fn no_question_of_a_machine_leaves_the_gateway() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let stand = Stand::with_resolver(&Roots::new(), 1, Limits::default(), dns.resolver()).await;
    let (address, descriptor) = udp();
    hand_over(&stand, vec![(ListenerKind::Dns, descriptor)]).unwrap();
    let long = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(55),
        "test.".to_owned(),
    ]
    .join(".");
    for name in [
        "allowed.test.",
        "c2VjcmV0.other.test.",
        "x.allowed.test.",
        long.as_str(),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let reply = ask(address, name, kind).await.unwrap();
            let given = match &reply.answers[0].data {
                RData::A(answer) => IpAddr::V4(answer.0),
                RData::AAAA(answer) => IpAddr::V6(answer.0),
                other => panic!("{other:?}"),
            };
            assert!(is_synthetic(given), "{name} {kind}: {given}");
        }
        for kind in [
            RecordType::TXT,
            RecordType::ANY,
            RecordType::NULL,
            RecordType::MX,
            RecordType::HTTPS,
            RecordType::SVCB,
            RecordType::SRV,
            RecordType::NS,
        ] {
            let reply = ask(address, name, kind).await.unwrap();
            assert_eq!(
                (reply.metadata.response_code, reply.answers.len()),
                (ResponseCode::NoError, 0),
                "{name} {kind}"
            );
        }
    }
    assert_eq!(dns.asked(), Vec::<String>::new());
}

/// Case Q09: ten thousand names are not ten thousand events.
#[tokio::test]
async fn more_names_than_a_session_may_hold_are_one_event() {
    let limits = Limits {
        names: 8,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&Roots::new(), 1, limits).await;
    let (address, descriptor) = udp();
    hand_over(&stand, vec![(ListenerKind::Dns, descriptor)]).unwrap();
    for number in 0..100 {
        let reply = ask(address, &format!("n{number}.other.test."), RecordType::A)
            .await
            .unwrap();
        let right = match number {
            0..8 => ResponseCode::NoError,
            _ => ResponseCode::ServFail,
        };
        assert_eq!(reply.metadata.response_code, right, "{number}");
    }
    let records = stand.records(1).await;
    assert_eq!(records.len(), 1, "{records:#?}");
    assert_eq!(
        (records[0].kind.as_str(), records[0].verdict),
        ("dns", Verdict::Denied)
    );
}

#[tokio::test]
async fn a_newer_hand_over_closes_the_earlier_listeners() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let (first, descriptor) = tcp();
    hand_over(&stand, vec![(ListenerKind::Redirect, descriptor)]).unwrap();
    let (second, descriptor) = udp();
    hand_over(&stand, vec![(ListenerKind::Dns, descriptor)]).unwrap();
    assert!(ask(second, "allowed.test.", RecordType::A).await.is_some());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(first).await.is_ok() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the first listener still accepts"
        );
    }
}

#[tokio::test]
async fn whoever_dials_the_listener_itself_is_refused_as_a_loop() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let (address, descriptor) = tcp();
    hand_over(&stand, vec![(ListenerKind::Redirect, descriptor)]).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    let record = stand.records(1).await.pop().unwrap();
    assert_eq!(
        (record.kind.as_str(), record.verdict),
        ("connect", Verdict::Malformed)
    );
    assert!(record.reason.contains("listener"), "{}", record.reason);
}

#[tokio::test]
async fn descriptors_that_are_something_else_are_refused_whole() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    let error = hand_over(&stand, vec![(ListenerKind::Redirect, file)]).unwrap_err();
    assert!(
        error.contains("descriptor 0") && error.contains("no socket"),
        "{error}"
    );
    let error = hand_over(&stand, vec![(ListenerKind::Redirect, udp().1)]).unwrap_err();
    assert!(error.contains("no listening TCP socket"), "{error}");
    let error = hand_over(
        &stand,
        vec![(ListenerKind::Dns, udp().1), (ListenerKind::Dns, tcp().1)],
    )
    .unwrap_err();
    assert!(
        error.contains("descriptor 1") && error.contains("no UDP socket"),
        "{error}"
    );
}

#[tokio::test]
async fn a_closed_session_takes_its_listeners_with_it() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let (address, descriptor) = tcp();
    hand_over(&stand, vec![(ListenerKind::Redirect, descriptor)]).unwrap();
    stand.sessions.delete("run-1").unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).await.is_ok() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the listener still accepts"
        );
    }
}
