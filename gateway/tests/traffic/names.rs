//! Names as a machine sees them: looked up by the gateway where they may be reached, refused readably where not; DNS over HTTPS.
use crate::dns::Dns;
use crate::origin::Roots;
use crate::stand::{Stand, authorization, read_head};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData, RecordType};
use sallyport_gateway::control::handover::ListenerHost;
use sallyport_gateway::control::types::{ListenerKind, Verdict};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::names::synthetic::is_synthetic;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

const POLICY: &str = r#"
version: 1
name: names
rules:
  - {id: some, to: {host: "*.looked.test", port: 8443, methods: [GET]}, effect: allow}
  - {id: fixed, to: {host: allowed.test}, effect: allow}
  - {id: later, to: {host: docs.test}, effect: deny, grantable: {by: rule, expires: 1h}, hint: Read the copy.}
"#;

/// A stand with one DNS socket, and a client of it.
async fn stand(dns: &Dns, limits: Limits) -> (Stand, UdpSocket) {
    let stand = Stand::with_resolver(&Roots::new(), 1, limits, dns.resolver()).await;
    stand.put_hosts("run-1", POLICY, &[("allowed.test", "127.0.0.1")]);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    stand
        .gateway
        .serve(
            stand.sessions.by_id("run-1").unwrap(),
            vec![(ListenerKind::Dns, socket.into())],
        )
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(address).await.unwrap();
    (stand, client)
}

fn query(name: &str, kind: RecordType, edns: bool) -> Message {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    query.edns = edns.then(Edns::new);
    query
}

async fn receive(client: &UdpSocket) -> Message {
    let mut buffer = [0; 4096];
    let received = tokio::time::timeout(Duration::from_secs(10), client.recv(&mut buffer)).await;
    Message::from_vec(&buffer[..received.expect("an answer").unwrap()]).unwrap()
}

async fn ask(client: &UdpSocket, query: &Message) -> Message {
    client.send(&query.to_vec().unwrap()).await.unwrap();
    let reply = receive(client).await;
    assert_eq!(reply.metadata.id, query.metadata.id);
    reply
}

fn extended(message: &Message) -> Option<(u16, String)> {
    let options = &message.edns.as_ref()?.options().options;
    options.iter().find_map(|(_, option)| match option {
        EdnsOption::Unknown(15, data) => Some((
            u16::from_be_bytes([data[0], data[1]]),
            String::from_utf8(data[2..].to_vec()).unwrap(),
        )),
        _ => None,
    })
}

fn is_given_synthetic(reply: &Message) -> bool {
    match reply.answers.first().map(|record| &record.data) {
        Some(RData::A(address)) => is_synthetic(address.0.into()),
        Some(RData::AAAA(address)) => is_synthetic(address.0.into()),
        _ => false,
    }
}

#[tokio::test]
async fn a_name_that_may_be_reached_is_looked_up_and_does_not_exist_where_it_does_not() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let (_stand, client) = stand(&dns, Limits::default()).await;
    for (name, code, given) in [
        ("a.looked.test.", ResponseCode::NoError, true),
        ("nx.looked.test.", ResponseCode::NXDomain, false),
        ("none.looked.test.", ResponseCode::NoError, false),
        ("allowed.test.", ResponseCode::NoError, true),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let reply = ask(&client, &query(name, kind, false)).await;
            assert_eq!(
                (reply.metadata.response_code, is_given_synthetic(&reply)),
                (code, given),
                "{name} {kind}: {reply:?}"
            );
        }
    }
    let asked = dns.asked();
    assert!(
        !asked.iter().any(|asked| asked.starts_with("allowed")),
        "{asked:?}"
    );
    let of_missing = asked.iter().filter(|asked| asked.starts_with("nx")).count();
    assert!(of_missing <= 2, "that it does not exist is kept: {asked:?}");
}

/// Case Q09, with names beside one that may be reached, and what only a grant would allow.
#[tokio::test]
async fn a_name_that_may_not_be_reached_is_asked_of_nobody_until_it_is_granted() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let (stand, client) = stand(&dns, Limits::default()).await;
    for name in [
        "c2VjcmV0.other.test.",
        "looked.test.",
        "x.allowed.test.",
        "docs.test.",
        "nx.other.test.",
    ] {
        for kind in [
            RecordType::A,
            RecordType::AAAA,
            RecordType::TXT,
            RecordType::HTTPS,
        ] {
            let reply = ask(&client, &query(name, kind, true)).await;
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NoError,
                "{name} {kind}"
            );
        }
    }
    assert_eq!(dns.asked(), Vec::<String>::new());
    let wish =
        serde_json::from_value(serde_json::json!({"wanted": {"host": "docs.test", "port": 443}, "why": ""}));
    stand.sessions.access("run-1", &wish.unwrap()).await.unwrap();
    ask(&client, &query("docs.test.", RecordType::A, true)).await;
    assert!(dns.asked().iter().all(|asked| asked.starts_with("docs.test.")) && !dns.asked().is_empty());
}

#[tokio::test]
async fn a_refused_name_has_an_address_and_the_reason_with_the_id_of_its_record() {
    let dns = Dns::new(&[], None).await;
    let (stand, client) = stand(&dns, Limits::default()).await;
    let first = ask(&client, &query("docs.test.", RecordType::A, true)).await;
    assert!(is_given_synthetic(&first));
    let (code, text) = extended(&first).unwrap();
    assert_eq!(code, 15);
    assert!(
        text.contains("rule `later`") && text.contains("Read the copy"),
        "{text}"
    );
    let again = ask(&client, &query("docs.test.", RecordType::AAAA, true)).await;
    assert_eq!(extended(&again), extended(&first), "one record, one id");
    let unread = ask(&client, &query("docs.test.", RecordType::A, false)).await;
    assert!(is_given_synthetic(&unread) && unread.edns.is_none());
    let records = stand.records(1).await;
    assert_eq!(records.len(), 1, "{records:#?}");
    let record = &records[0];
    assert_eq!(
        (record.kind.as_str(), record.verdict, record.host.as_str()),
        ("dns", Verdict::Denied, "docs.test")
    );
    assert!(text.starts_with(&format!("decision {}: ", record.id)), "{text}");
}

#[tokio::test]
async fn many_refused_names_are_few_records() {
    let dns = Dns::new(&[], None).await;
    let limits = Limits {
        refused_names: 3,
        ..Limits::default()
    };
    let (stand, client) = stand(&dns, limits).await;
    for number in 0..20 {
        let reply = ask(&client, &query(&format!("n{number}.test."), RecordType::A, true)).await;
        assert_eq!(extended(&reply).unwrap().0, 15);
    }
    let records = stand.records(4).await;
    assert_eq!(records.len(), 4, "{records:#?}");
    assert!(
        records[3].reason.contains("no record of their own"),
        "{}",
        records[3].reason
    );
}

#[tokio::test]
async fn a_look_up_that_takes_long_holds_up_nobody_and_fails_with_the_reason() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let limits = Limits {
        lookup: Duration::from_millis(1500),
        ..Limits::default()
    };
    let (_stand, client) = stand(&dns, limits).await;
    let slow = query("silent.looked.test.", RecordType::A, true);
    client.send(&slow.to_vec().unwrap()).await.unwrap();
    let quick = ask(&client, &query("a.looked.test.", RecordType::A, true)).await;
    assert!(is_given_synthetic(&quick), "answered before the slow one");
    let failed = receive(&client).await;
    assert_eq!(failed.metadata.id, slow.metadata.id);
    assert_eq!(failed.metadata.response_code, ResponseCode::ServFail);
    let (code, text) = extended(&failed).unwrap();
    assert!(code == 22 && text.contains("no answer"), "{code} {text}");
}

/// One request to the gateway itself: status line, header lines, body.
async fn request(stand: &Stand, head: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = stand.dial().await;
    let head = format!(
        "{head}\r\nHost: g\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let head = read_head(&mut stream).await.to_ascii_lowercase();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    (head, answer)
}

#[tokio::test]
async fn names_are_answered_over_https_as_on_port_53() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let (stand, client) = stand(&dns, Limits::default()).await;
    let login = authorization("run-1", &stand.token);
    for (name, cache) in [
        ("a.looked.test.", "max-age="),
        ("nx.looked.test.", "max-age="),
        ("docs.test.", "max-age=10"),
    ] {
        let question = query(name, RecordType::A, true);
        let plain = ask(&client, &question).await;
        let bytes = question.to_vec().unwrap();
        let post = format!(
            "POST /dns-query HTTP/1.1\r\nContent-Type: application/dns-message\r\nProxy-Authorization: {login}"
        );
        let encoded = URL_SAFE_NO_PAD.encode(&bytes);
        let get = format!("GET /dns-query?dns={encoded} HTTP/1.1\r\nAuthorization: {login}");
        for (head, body) in [(post, &bytes[..]), (get, &[][..])] {
            let (head, answer) = request(&stand, &head, body).await;
            assert!(head.starts_with("http/1.1 200 "), "{head}");
            assert!(
                head.contains("content-type: application/dns-message") && head.contains(cache),
                "{head}"
            );
            let answer = Message::from_vec(&answer).unwrap();
            assert_eq!(answer.metadata, plain.metadata);
            let datas = |message: &Message| {
                message
                    .answers
                    .iter()
                    .map(|it| it.data.clone())
                    .collect::<Vec<_>>()
            };
            assert_eq!(datas(&answer), datas(&plain), "{name}");
        }
    }
}

#[tokio::test]
async fn a_session_that_ends_during_its_query_over_https_is_told_so_and_leaves_no_names_behind() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let file = stand.sessions.by_id("run-1").unwrap().names_file();
    let mut stream = stand.dial().await;
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: g\r\nContent-Type: application/dns-message\r\nProxy-Authorization: {}\r\n\
         Content-Length: 30\r\nExpect: 100-continue\r\n\r\n",
        stand.authorization()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The gateway waits for the query now.
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 100 "), "{head}");
    assert!(file.exists());
    stand.sessions.delete("run-1").unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(!file.exists());
}

#[tokio::test]
async fn what_is_no_query_over_https_is_refused_by_its_status() {
    let stand = Stand::new(&Roots::new(), 1).await;
    let login = format!("Proxy-Authorization: {}", stand.authorization());
    let message = "Content-Type: application/dns-message";
    let long = "A".repeat(8000);
    for (head, body, status) in [
        (format!("POST /dns-query HTTP/1.1\r\n{message}"), &b"x"[..], 407),
        (format!("POST /dns-query HTTP/1.1\r\n{login}"), b"x", 415),
        (
            format!("POST /dns-query HTTP/1.1\r\n{login}\r\n{message}"),
            b"x",
            400,
        ),
        (
            format!("POST /dns-query HTTP/1.1\r\n{login}\r\n{message}"),
            &[0; 5000],
            413,
        ),
        (format!("GET /dns-query HTTP/1.1\r\n{login}"), b"", 400),
        (format!("GET /dns-query?dns=*** HTTP/1.1\r\n{login}"), b"", 400),
        (format!("GET /dns-query?dns={long} HTTP/1.1\r\n{login}"), b"", 414),
        (format!("DELETE /dns-query HTTP/1.1\r\n{login}"), b"", 405),
        (format!("GET /other HTTP/1.1\r\n{login}"), b"", 400),
    ] {
        let (answer, _) = request(&stand, &head, body).await;
        assert!(
            answer.starts_with(&format!("http/1.1 {status} ")),
            "{head}: {answer}"
        );
    }
}
