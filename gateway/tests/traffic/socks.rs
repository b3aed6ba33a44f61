//! SOCKS 5 at the explicit proxy: the same rules, names and credentials as CONNECT of HTTP (cases Q02, Q07).
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_all};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// CONNECT to a name.
pub(crate) fn to_name(name: &str, port: u16) -> Vec<u8> {
    let length = [u8::try_from(name.len()).unwrap()];
    [
        b"\x05\x01\x00\x03",
        &length[..],
        name.as_bytes(),
        &port.to_be_bytes(),
    ]
    .concat()
}

fn to_v4(address: &str, port: u16) -> Vec<u8> {
    let octets = address.parse::<Ipv4Addr>().unwrap().octets();
    [b"\x05\x01\x00\x01", &octets[..], &port.to_be_bytes()].concat()
}

fn to_v6(address: &str, port: u16) -> Vec<u8> {
    let octets = address.parse::<Ipv6Addr>().unwrap().octets();
    [b"\x05\x01\x00\x04", &octets[..], &port.to_be_bytes()].concat()
}

/// Name and password (RFC 1929).
fn said(name: &str, password: &str) -> Vec<u8> {
    let mut bytes = vec![1, u8::try_from(name.len()).unwrap()];
    bytes.extend(name.as_bytes());
    bytes.push(u8::try_from(password.len()).unwrap());
    bytes.extend(password.as_bytes());
    bytes
}

async fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut answer = [0; N];
    let reading = stream.read_exact(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .unwrap()
        .unwrap();
    answer
}

/// A connection that has said who it is.
async fn known(stand: &Stand) -> TcpStream {
    let mut stream = stand.dial().await;
    stream.write_all(b"\x05\x01\x02").await.unwrap();
    assert_eq!(read(&mut stream).await, [5, 2]);
    stream.write_all(&said("run-1", &stand.token)).await.unwrap();
    assert_eq!(read(&mut stream).await, [1, 0]);
    stream
}

/// The code that a request is answered with, and the connection.
async fn asked(stand: &Stand, request: &[u8]) -> (u8, TcpStream) {
    let mut stream = known(stand).await;
    stream.write_all(request).await.unwrap();
    let [version, code, reserved, kind, ..] = read::<10>(&mut stream).await;
    assert_eq!((version, reserved, kind), (5, 0, 1));
    (code, stream)
}

/// `GET` over TLS on an open connection; the answer's head and body.
async fn get(stand: &Stand, stream: TcpStream, host: &str) -> (String, String) {
    let mut tls = stand.tls_over(stream, Some(host), &["http/1.1"]).await.unwrap();
    let at = stand.at(host);
    ask(&mut tls, &format!("GET /a HTTP/1.1\r\nHost: {at}\r\n\r\n")).await
}

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

/// Case Q02.
#[tokio::test]
async fn one_name_in_any_spelling_is_one_destination() {
    let (stand, _origin) = stand().await;
    for name in ["allowed.test", "Allowed.Test", "allowed.test."] {
        let (code, stream) = asked(&stand, &to_name(name, stand.port)).await;
        assert_eq!(code, 0, "{name}");
        let (head, body) = get(&stand, stream, "allowed.test").await;
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body.starts_with("GET /a"),
            "{head}{body}"
        );
    }
    for name in ["DENIED.test", "denied.test", "denied.test."] {
        let (code, stream) = asked(&stand, &to_name(name, stand.port)).await;
        assert_eq!(code, 0, "{name}: the refusal comes inside, where it can be read");
        let (head, body) = get(&stand, stream, "denied.test").await;
        assert!(
            head.starts_with("HTTP/1.1 403 ") && body.contains("\"default\""),
            "{head}{body}"
        );
    }
    for record in stand.records(6).await {
        assert!(
            ["allowed.test", "denied.test"].contains(&record.host.as_str()),
            "{record:?}"
        );
        assert_eq!(
            record.client.map(|client| client.ip()),
            Some("127.0.0.1".parse().unwrap())
        );
    }
}

/// Cases Q02 and Q07: what is no canonical spelling is not guessed.
#[tokio::test]
async fn impossible_names_are_answered_with_a_code_and_recorded() {
    let (stand, _origin) = stand().await;
    let names = [
        "denied.test..",
        "127.1",
        "0177.0.0.1",
        "0x7f000001",
        "2130706433",
        "0",
        "169.254.169.254..",
        "user@allowed.test",
        "a b",
        "allowed.test:443",
        "fe80::1%eth0",
        "",
        "allowed.test\0.evil.test",
    ];
    for name in names {
        let (code, mut stream) = asked(&stand, &to_name(name, 443)).await;
        assert_eq!(code, 1, "{name}");
        assert_eq!(read_all(&mut stream).await, "");
    }
    let (code, _) = asked(&stand, &to_name("allowed.test", 0)).await;
    assert_eq!(code, 1);
    let (code, _) = asked(&stand, b"\x05\x01\x00\x03\x02\xff\xfe\x01\xbb").await;
    assert_eq!(code, 1);
    let (code, _) = asked(&stand, b"\x05\x01\x00\x05abc").await;
    assert_eq!(code, 8);
    let records = stand.records(names.len() + 3).await;
    assert_eq!(records.len(), names.len() + 3);
    for record in records {
        assert_eq!(
            (record.kind.as_str(), record.verdict),
            ("connect", Verdict::Malformed),
            "{record:?}"
        );
        assert_eq!(record.session, "run-1");
    }
}

/// Case Q07: addresses in disguise are the addresses that they are.
#[tokio::test]
async fn special_addresses_are_refused_with_their_range() {
    let (stand, _origin) = stand().await;
    stand.put(
        "version: 1\nname: t\ndefault: deny\nrules:\n  - id: all\n    to: {host: [\"*\", 0.0.0.0/0, \"::/0\"], port: \
         \"1-65535\"}\n    effect: allow\n",
    );
    let requests = [
        ("127.0.0.1", to_v4("127.0.0.1", 80)),
        ("0.0.0.0", to_v4("0.0.0.0", 80)),
        ("169.254.169.254", to_v4("169.254.169.254", 80)),
        ("169.254.169.254", to_name("169.254.169.254.", 80)),
        ("169.254.169.254", to_v6("::ffff:a9fe:a9fe", 80)),
        ("127.0.0.1", to_v6("::ffff:127.0.0.1", 80)),
        ("127.0.0.1", to_name("::ffff:127.0.0.1", 80)),
        ("[::]", to_v6("::", 80)),
        ("[::1]", to_v6("::1", 80)),
        ("[::127.0.0.1]", to_v6("::127.0.0.1", 80)),
        ("[64:ff9b::a9fe:a9fe]", to_v6("64:ff9b::a9fe:a9fe", 80)),
        ("[2002:7f00:1::]", to_v6("2002:7f00:1::", 80)),
        ("[fd00:ec2::254]", to_v6("fd00:ec2::254", 80)),
        ("100.100.100.200", to_v4("100.100.100.200", 80)),
        ("198.18.0.5", to_v4("198.18.0.5", 80)),
        ("224.0.0.1", to_v4("224.0.0.1", 80)),
        ("255.255.255.255", to_v4("255.255.255.255", 80)),
    ];
    let count = requests.len();
    for (host, request) in requests {
        let (code, mut stream) = asked(&stand, &request).await;
        assert_eq!(code, 0, "{host}");
        let (head, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 403 "), "{host}: {head}{body}");
    }
    let records = stand.records(count).await;
    assert!(
        records
            .iter()
            .all(|record| record.verdict == Verdict::Denied && !record.reason.is_empty())
    );
}

#[tokio::test]
async fn without_known_credentials_everything_is_answered_alike() {
    let (stand, _origin) = stand().await;
    let pairs = [
        said("run-1", "wrong"),
        said("run-2", &stand.token),
        said("", ""),
        said("run-1", ""),
        vec![1, 2, 0xff, 0xfe, 1, 0xff],
        vec![9, 1, b'a', 1, b'b'],
    ];
    let count = pairs.len();
    for pair in pairs {
        let mut stream = stand.dial().await;
        stream.write_all(b"\x05\x02\x00\x02").await.unwrap();
        assert_eq!(read(&mut stream).await, [5, 2]);
        stream.write_all(&pair).await.unwrap();
        assert_eq!(read(&mut stream).await, [1, 1], "{pair:?}");
        assert_eq!(read_all(&mut stream).await, "");
    }
    let mut stream = stand.dial().await;
    stream.write_all(b"\x05\x01\x00").await.unwrap();
    assert_eq!(read(&mut stream).await, [5, 0xff]);
    let records = stand.records(count + 1).await;
    for record in &records {
        assert_eq!((record.verdict, record.session.as_str()), (Verdict::Denied, ""));
        assert_eq!(record.reason, records[0].reason);
    }
}

#[tokio::test]
async fn only_connect_is_served() {
    let (stand, _origin) = stand().await;
    for (command, name) in [(2, "BIND"), (3, "UDP ASSOCIATE"), (0x7f, "unknown SOCKS command")] {
        let mut request = to_v4("192.0.2.1", 4000);
        request[1] = command;
        let (code, mut stream) = asked(&stand, &request).await;
        assert_eq!(code, 7, "{name}");
        assert_eq!(read_all(&mut stream).await, "");
        let record = stand.records(1).await.pop().unwrap();
        assert_eq!(
            (record.verdict, record.host.as_str(), record.port),
            (Verdict::Denied, "192.0.2.1", 4000)
        );
        assert!(record.reason.contains(name), "{}", record.reason);
    }
}

#[tokio::test]
async fn socks_4_is_refused_in_its_own_words() {
    let (stand, _origin) = stand().await;
    let mut stream = stand.dial().await;
    stream
        .write_all(b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00")
        .await
        .unwrap();
    assert_eq!(read::<8>(&mut stream).await[..2], [0, 0x5b]);
    let record = stand.records(1).await.pop().unwrap();
    assert!(record.reason.contains("SOCKS 5"), "{}", record.reason);
}

#[tokio::test]
async fn bytes_may_come_one_by_one_or_all_at_once() {
    let (stand, _origin) = stand().await;
    let everything = [
        b"\x05\x01\x02".to_vec(),
        said("run-1", &stand.token),
        to_name("denied.test", stand.port),
        b"GET /p HTTP/1.1\r\nHost: ".to_vec(),
        stand.at("denied.test").into_bytes(),
        b"\r\nConnection: close\r\n\r\n".to_vec(),
    ]
    .concat();
    for piece in [1, 7, everything.len()] {
        let mut stream = stand.dial().await;
        for part in everything.chunks(piece) {
            stream.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(read::<2>(&mut stream).await, [5, 2]);
        assert_eq!(read::<2>(&mut stream).await, [1, 0]);
        assert_eq!(read::<10>(&mut stream).await[1], 0);
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{piece}: {answer}");
    }
}

#[tokio::test]
async fn slow_and_cut_clients_are_ended_in_every_phase() {
    let limits = Limits {
        first_bytes: Duration::from_millis(200),
        ..Limits::default()
    };
    let roots = Roots::new();
    let stand = Stand::with_limits(&roots, 1, limits).await;
    let greeting = b"\x05\x01\x02".to_vec();
    let credentials = said("run-1", &stand.token);
    let request = to_name("allowed.test", 443);
    let phases = [
        (greeting[..2].to_vec(), 0),
        ([&greeting[..], &credentials[..4]].concat(), 2),
        ([&greeting[..], &credentials, &request[..6]].concat(), 4),
    ];
    for (bytes, answered) in phases {
        for cut in [false, true] {
            let mut stream = stand.dial().await;
            stream.write_all(&bytes).await.unwrap();
            if cut {
                stream.shutdown().await.unwrap();
            }
            let mut answer = Vec::new();
            let reading = stream.read_to_end(&mut answer);
            tokio::time::timeout(Duration::from_secs(20), reading)
                .await
                .expect("the connection is ended")
                .unwrap();
            assert_eq!(answer.len(), answered, "{bytes:?}");
        }
    }
    let records = stand.records(6).await;
    assert!(
        records.iter().all(|record| record.verdict == Verdict::Malformed),
        "{records:#?}"
    );
}

#[tokio::test]
async fn more_connections_than_a_session_may_have_are_not_allowed() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&Roots::new(), 1, limits).await;
    let request = to_name("allowed.test", 443);
    let (first, one) = asked(&stand, &request).await;
    let (second, _two) = asked(&stand, &request).await;
    let (third, mut three) = asked(&stand, &request).await;
    assert_eq!((first, second, third), (0, 0, 2));
    assert_eq!(read_all(&mut three).await, "");
    drop(one);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while asked(&stand, &request).await.0 != 0 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the place is not given back"
        );
    }
}

#[tokio::test]
async fn a_protocol_that_is_no_http_meets_the_same_rules() {
    let (stand, _origin) = stand().await;
    let (code, mut stream) = asked(&stand, &to_name("denied.test", 22)).await;
    assert_eq!(code, 0);
    stream.write_all(b"SSH-2.0-client\r\n").await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("SSH-2.0-sallyport") && answer.contains("denied.test"),
        "{answer}"
    );
}

#[tokio::test]
async fn real_curl_reaches_names_and_reads_refusals() {
    let (stand, _origin) = stand().await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &stand.ca_pem).unwrap();
    let curl = async |host: &str, pair: &str| {
        tokio::process::Command::new("curl")
            .args(["-sS", "--noproxy", "", "--cacert"])
            .arg(&ca)
            .args([
                "--socks5-hostname",
                &stand.proxy.to_string(),
                "--proxy-user",
                pair,
            ])
            .arg(format!("https://{}/by-curl", stand.at(host)))
            .output()
            .await
            .unwrap()
    };
    let pair = format!("run-1:{}", stand.token);
    let fine = curl("allowed.test", &pair).await;
    let text = String::from_utf8(fine.stdout).unwrap();
    assert!(fine.status.success() && text.contains("/by-curl"), "{text}");
    let refused = curl("denied.test", &pair).await;
    let document: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (&document["status"], &document["rule"]),
        (&403.into(), &"default".into())
    );
    let unknown = curl("allowed.test", "run-1:wrong").await;
    // 97: the handshake with the proxy failed.
    assert_eq!(unknown.status.code(), Some(97), "{unknown:?}");
}
