//! Tunnels of remote machines: whose certificate opens one, what it carries, and when it ends.
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, Stand, ask};
use crate::tunnel::{Machine, carry, connect, nobody, refusal, speak, tls_inside, tls_inside_any};
use bytes::Bytes;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use http::Request;
use http_body_util::{BodyExt, Full};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use sallyport_gateway::control::types::Verdict;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(3600);

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2", "http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

fn get(stand: &Stand, host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at(host))
}

#[tokio::test]
async fn a_machine_reaches_what_its_session_may_and_reads_the_refusal_of_the_rest() {
    let (stand, _origin) = stand().await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let stream = carry(&tunnel, &stand.at("allowed.test")).await;
    let mut tls = tls_inside(&stand, stream, "allowed.test").await;
    let (head, body) = ask(&mut tls, &get(&stand, "allowed.test", "/a")).await;
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.starts_with("GET ") && body.contains("/a"),
        "{head}{body}"
    );
    let stream = carry(&tunnel, &stand.at("denied.test")).await;
    let mut tls = tls_inside(&stand, stream, "denied.test").await;
    let (head, body) = ask(&mut tls, &get(&stand, "denied.test", "/")).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let records = stand.records(2).await;
    assert!(records.iter().all(|record| record.session == "run-1"));
    let refused: Vec<_> = records
        .iter()
        .filter(|record| record.verdict == Verdict::Denied)
        .collect();
    assert!(
        refused.len() == 1 && body.contains(&refused[0].id),
        "{records:#?}"
    );
}

#[tokio::test]
async fn without_a_good_certificate_tls_does_not_come_to_be() {
    let (stand, _origin) = stand().await;
    let (other, _other_origin) = {
        let roots = Roots::new();
        let origin = Origin::echo(&roots, &["h2"]).await;
        (Stand::new(&roots, origin.port).await, origin)
    };
    let past = SystemTime::now() - HOUR;
    let later = SystemTime::now() + HOUR;
    let anothers = Machine::new(&other, "run-1");
    let expired = Machine::forged(&stand, "run-1", past, ClientAuth);
    let a_servers = Machine::forged(&stand, "run-1", later, ServerAuth);
    let mut ended = vec![nobody(&stand).await];
    for machine in [anothers, expired, a_servers] {
        ended.push(machine.tls(&stand, &["h2"]).await);
    }
    for ended in ended {
        // A client of TLS 1.3 is done before the server has looked at its certificate.
        let refused = match ended {
            Ok(mut stream) => stream.read_u8().await.is_err(),
            Err(_) => true,
        };
        assert!(refused);
    }
    let records = stand.records(4).await;
    assert_eq!(records.len(), 4);
    assert!(
        records.iter().all(|record| record.kind == "handshake"
            && record.verdict == Verdict::Malformed
            && record.reason.contains("at the tunnel")),
        "{records:#?}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_its_sessions_newest_is_told_so() {
    let (stand, _origin) = stand().await;
    let later = SystemTime::now() + HOUR;
    let signed_but_unknown = Machine::forged(&stand, "run-1", later, ClientAuth);
    let of_nobody = Machine::forged(&stand, "run-9", later, ClientAuth);
    let first = Machine::new(&stand, "run-1");
    let (second, third) = (Machine::new(&stand, "run-1"), Machine::new(&stand, "run-1"));
    for (machine, words) in [
        (&signed_but_unknown, "ask for a new one"),
        (&of_nobody, "not open here"),
        (&first, "ask for a new one"),
    ] {
        let tunnel = machine.open(&stand).await;
        let response = connect(&tunnel, &stand.at("allowed.test")).await.unwrap();
        let (status, document) = refusal(response).await;
        let detail = document["detail"].as_str().unwrap();
        assert_eq!(status, 403);
        assert!(detail.contains(words), "{detail}");
        let records = stand.records(1).await;
        let record = records.last().unwrap();
        assert_eq!(document["decision"], record.id.as_str());
        assert_eq!(
            (record.kind.as_str(), record.verdict),
            ("handshake", Verdict::Denied)
        );
    }
    for machine in [&second, &third] {
        let tunnel = machine.open(&stand).await;
        let response = connect(&tunnel, &stand.at("allowed.test")).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_tunnels_and_its_certificates_for_good() {
    let (stand, _origin) = stand().await;
    let machine = Machine::new(&stand, "run-1");
    let tunnel = machine.open(&stand).await;
    let mut carried = carry(&tunnel, &stand.at("opaque.test")).await;
    stand.sessions.delete("run-1").unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), carried.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the carried connection outlived its session");
    assert!(connect(&tunnel, &stand.at("allowed.test")).await.is_err());
    // A session of the same name is another one.
    stand.put(POLICY);
    let tunnel = machine.open(&stand).await;
    let response = connect(&tunnel, &stand.at("allowed.test")).await.unwrap();
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn a_new_policy_leaves_certificates_and_tunnels_as_they_are() {
    let (stand, _origin) = stand().await;
    let machine = Machine::new(&stand, "run-1");
    let before = machine.open(&stand).await;
    stand.put(POLICY);
    for tunnel in [before, machine.open(&stand).await] {
        let response = connect(&tunnel, &stand.at("allowed.test")).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

/// The answer to a query for an address.
async fn look_up(tunnel: &crate::tunnel::Tunnel, request: Request<Full<Bytes>>) -> Message {
    let mut tunnel = tunnel.clone();
    let response = tunnel.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/dns-message");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Message::from_vec(&body).unwrap()
}

fn query(name: &str) -> Vec<u8> {
    let mut query = Message::new(7, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    query.to_vec().unwrap()
}

fn post(body: Vec<u8>) -> Request<Full<Bytes>> {
    Request::post("https://gateway.sallyport.internal/dns-query")
        .header("content-type", "application/dns-message")
        .body(Full::new(body.into()))
        .unwrap()
}

fn address(answer: &Message) -> std::net::Ipv4Addr {
    let RData::A(address) = &answer.answers[0].data else {
        panic!("{answer:?}")
    };
    address.0
}

#[tokio::test]
async fn an_address_from_a_lookup_in_the_tunnel_leads_to_the_name() {
    let (stand, _origin) = stand().await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let answer = look_up(&tunnel, post(query("allowed.test."))).await;
    assert_eq!(answer.metadata.id, 7);
    let by_post = address(&answer);
    let encoded = base64::Engine::encode(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD,
        query("allowed.test."),
    );
    let get_request = Request::get(format!(
        "https://gateway.sallyport.internal/dns-query?dns={encoded}"
    ))
    .body(Full::default())
    .unwrap();
    assert_eq!(address(&look_up(&tunnel, get_request).await), by_post);
    let stream = carry(&tunnel, &format!("{by_post}:{}", stand.port)).await;
    let mut tls = tls_inside(&stand, stream, "allowed.test").await;
    let (head, _) = ask(&mut tls, &get(&stand, "allowed.test", "/b")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let records = stand.records(1).await;
    assert_eq!(records[0].host, "allowed.test");
}

#[tokio::test]
async fn what_is_no_query_and_what_is_no_proxy_request_is_refused_with_words() {
    let (stand, _origin) = stand().await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let uri = "https://gateway.sallyport.internal/dns-query";
    let typed = |body: &[u8], kind: &str| {
        let request = Request::post(uri).header("content-type", kind);
        request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()
    };
    let plain = |method: &str, uri: &str| {
        let request = Request::builder().method(method).uri(uri);
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let mut an_answer = query("allowed.test.");
    an_answer[2] |= 0x80;
    for (request, status) in [
        (typed(&an_answer, "application/dns-message"), 400),
        (typed(b"x", "application/dns-message"), 400),
        (typed(&[0; 5000], "application/dns-message"), 413),
        (typed(b"{}", "application/json"), 415),
        (plain("PUT", uri), 405),
        (plain("GET", uri), 400),
        (plain("GET", &format!("{uri}?dns=***")), 400),
    ] {
        let what = format!("{request:?}");
        let response = tunnel.clone().send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{what}");
    }
    let malformed = look_up(&tunnel, post(b"\0\x07rubbish".to_vec())).await;
    assert_eq!(malformed.metadata.response_code, ResponseCode::FormErr);
    for uri in [
        "https://gateway.sallyport.internal/",
        "https://allowed.test/dns-query",
    ] {
        let response = tunnel.clone().send_request(plain("GET", uri)).await.unwrap();
        let (status, document) = refusal(response).await;
        assert_eq!(status, 400, "{document}");
        assert!(
            document["detail"].as_str().unwrap().contains("CONNECT"),
            "{document}"
        );
        let records = stand.records(1).await;
        assert_eq!(document["decision"], records.last().unwrap().id.as_str());
    }
}

#[tokio::test]
async fn plain_http1_works_in_a_tunnel_too() {
    let (stand, _origin) = stand().await;
    let machine = Machine::new(&stand, "run-1");
    let mut stream = machine.tls(&stand, &["http/1.1"]).await.unwrap();
    let at = stand.at("allowed.test");
    let (head, _) = ask(
        &mut stream,
        &format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n"),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut tls = tls_inside(&stand, stream, "allowed.test").await;
    let (head, _) = ask(&mut tls, &get(&stand, "allowed.test", "/c")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn who_only_looks_whether_somebody_listens_leaves_no_record() {
    let (stand, _origin) = stand().await;
    drop(tokio::net::TcpStream::connect(stand.tunnel).await.unwrap());
    let mut rubbish = tokio::net::TcpStream::connect(stand.tunnel).await.unwrap();
    rubbish.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    rubbish.read_to_end(&mut rest).await.unwrap();
    let records = stand.records(1).await;
    assert_eq!(records.len(), 1, "{records:#?}");
    assert!(records[0].reason.contains("handshake failed"), "{records:#?}");
}

#[tokio::test]
async fn more_tunnels_than_a_session_may_have_are_told_so() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2"]).await;
    let limits = sallyport_gateway::limits::Limits {
        tunnels: 2,
        ..Default::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let machine = Machine::new(&stand, "run-1");
    let at = stand.at("allowed.test");
    let (one, two) = (machine.open(&stand).await, machine.open(&stand).await);
    for tunnel in [&one, &two] {
        assert_eq!(connect(tunnel, &at).await.unwrap().status(), 200);
    }
    let three = speak(machine.tls(&stand, &["h2"]).await.unwrap()).await.unwrap();
    let (status, document) = refusal(connect(&three, &at).await.unwrap()).await;
    assert_eq!(status, 429, "{document}");
}

#[tokio::test]
async fn two_sessions_on_one_gateway_keep_names_and_rules_apart() {
    let (stand, _origin) = stand().await;
    let open = "version: 1\nname: t\ndefault: deny\nrules:\n  - id: denied\n    to: {host: [denied.test, 127.0.0.0/8], \
                port: PORT, private: true}\n    effect: allow\n";
    stand.put_for("run-2", open);
    let one = Machine::new(&stand, "run-1").open(&stand).await;
    let two = Machine::new(&stand, "run-2").open(&stand).await;
    // An address that was made up for one session stands for nothing in the other.
    let of_two = address(&look_up(&two, post(query("denied.test."))).await);
    let at = format!("{of_two}:{}", stand.port);
    let mut foreign = tls_inside_any(&stand, carry(&one, &at).await, of_two).await;
    let (head, _) = ask(&mut foreign, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    for (tunnel, host, status) in [
        (&one, "allowed.test", 200),
        (&two, "allowed.test", 403),
        (&one, "denied.test", 403),
        (&two, "denied.test", 200),
    ] {
        let mut tls = tls_inside(&stand, carry(tunnel, &stand.at(host)).await, host).await;
        let (head, _) = ask(&mut tls, &get(&stand, host, "/")).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {head}");
    }
    let records = stand.records(5).await;
    let of = |run: &str| records.iter().filter(|record| record.session == run).count();
    assert_eq!((of("run-1"), of("run-2")), (3, 2), "{records:#?}");
}

/// An origin that echoes bytes without TLS, and a stand whose tunnels reach it as `opaque.test`.
async fn echoing() -> (Stand, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                // A client that leaves early is part of some tests.
                let _ended = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (Stand::new(&Roots::new(), port).await, task)
}

/// The first bytes say that the rest is of no protocol that is read.
const OPAQUE: &[u8] = b"\0\x01opaque";

#[tokio::test]
async fn two_hundred_connections_share_one_tunnel() {
    let (stand, _echo) = echoing().await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let at = stand.at("opaque.test");
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(carry(&tunnel, &at).await);
    }
    let all = open
        .into_iter()
        .enumerate()
        .map(|(number, mut stream)| async move {
            let text = [OPAQUE, number.to_string().as_bytes()].concat();
            stream.write_all(&text).await.unwrap();
            // Half-closed: the answer still comes, and then the end.
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert_eq!(back, text);
        });
    futures_util::future::join_all(all).await;
}

#[tokio::test]
async fn connections_that_do_not_read_hold_up_no_other() {
    let (stand, _echo) = echoing().await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let at = stand.at("opaque.test");
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let mut stream = carry(&tunnel, &at).await;
        stalled.push(tokio::spawn(async move {
            stream.write_all(OPAQUE).await?;
            // More than all buffers on the way hold: it ends only when the tunnel does.
            let piece = vec![0; 1 << 20];
            for _ in 0..64 {
                stream.write_all(&piece).await?;
            }
            std::io::Result::Ok(stream)
        }));
    }
    let mut stream = carry(&tunnel, &at).await;
    let text = [OPAQUE, &vec![7; 4 << 20]].concat();
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let sending = async {
        write.write_all(&text).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let moving = async { tokio::join!(sending, read.read_to_end(&mut back)) };
    let moved = tokio::time::timeout(Duration::from_secs(30), moving).await;
    assert!(moved.is_ok() && back == text, "{} bytes came back", back.len());
    assert!(stalled.iter().all(|task| !task.is_finished()));
    for task in stalled {
        task.abort();
    }
}

#[tokio::test]
async fn a_gateway_that_stops_takes_nothing_new_and_lets_what_is_asked_end() {
    let roots = Roots::new();
    let release = Arc::new(Notify::new());
    let waiting = release.clone();
    let origin = Origin::http(&roots, &["http/1.1"], move |_| {
        let waiting = waiting.clone();
        async move {
            waiting.notified().await;
            http::Response::new(crate::origin::full("slow"))
        }
    })
    .await;
    let stand = Stand::new(&roots, origin.port).await;
    let tunnel = Machine::new(&stand, "run-1").open(&stand).await;
    let at = stand.at("allowed.test");
    let mut tls = tls_inside(&stand, carry(&tunnel, &at).await, "allowed.test").await;
    let asked = get(&stand, "allowed.test", "/");
    tls.write_all(asked.as_bytes()).await.unwrap();
    while origin.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let draining = tokio::spawn({
        let gateway = stand.gateway.clone();
        async move { gateway.drain().await }
    });
    let refused = async { while connect(&tunnel, &at).await.is_ok() {} };
    let refused = tokio::time::timeout(Duration::from_secs(8), refused).await;
    assert!(refused.is_ok(), "the tunnel still takes connections");
    release.notify_one();
    let (head, body) = ask(&mut tls, "").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "slow");
    drop(tls);
    draining.await.unwrap();
}
