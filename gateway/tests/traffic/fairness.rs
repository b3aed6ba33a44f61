//! One agent among others: whoever opens connections without end, known or not, waits behind the others and not before them.
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, Stand, ask, authorization, read_all, read_head};
use sallyport_gateway::limits::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::sync::Barrier;

/// Connections of whoever asks for too much.
const FLOOD: usize = 120;

#[tokio::test]
async fn a_flood_of_handshakes_for_fresh_names_is_passed_by_another_session() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        handshakes_at_once: 1,
        handshakes: FLOOD,
        ..Limits::default()
    };
    let stand = Arc::new(Stand::with_limits(&roots, origin.port, limits).await);
    stand.put_for("greedy", POLICY);
    let token = stand.sessions.view("greedy", &stand.ca_pem).unwrap().proxy_token;
    let (shaken, ready) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(FLOOD + 1)));
    let mut flood = Vec::new();
    for number in 0..FLOOD {
        let (stand, token) = (stand.clone(), token.clone());
        let (shaken, ready) = (shaken.clone(), ready.clone());
        flood.push(tokio::spawn(async move {
            let name = format!("fresh-{number}.test");
            let tunnel = stand
                .tunnel_as(&format!("{name}:443"), &authorization("greedy", &token))
                .await;
            ready.wait().await;
            let stream = stand.tls_over(tunnel, Some(&name), &["http/1.1"]).await.unwrap();
            shaken.fetch_add(1, Ordering::SeqCst);
            // Open until all are through, so that none of the others is spared by an end.
            stream
        }));
    }
    let tunnel = stand.tunnel(&stand.at("allowed.test")).await;
    ready.wait().await;
    let mut stream = stand
        .tls_over(tunnel, Some("allowed.test"), &["http/1.1"])
        .await
        .unwrap();
    let before = shaken.load(Ordering::SeqCst);
    assert!(
        before < FLOOD / 4,
        "{before} of {FLOOD} handshakes were done before one other"
    );
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", stand.at("allowed.test"));
    let (head, _) = ask(&mut stream, &request).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for one in flood {
        one.await.unwrap();
    }
    assert_eq!(shaken.load(Ordering::SeqCst), FLOOD, "the flood is served, too");
}

#[tokio::test]
async fn handshakes_that_are_begun_and_left_hold_up_their_own_session_alone() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        handshakes: 2,
        handshake: std::time::Duration::from_millis(500),
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    stand.put_for("greedy", POLICY);
    let token = stand.sessions.view("greedy", &stand.ca_pem).unwrap().proxy_token;
    let mut begun = Vec::new();
    for _ in 0..4 {
        let mut tunnel = stand
            .tunnel_as("fresh.test:443", &authorization("greedy", &token))
            .await;
        tunnel.write_all(&hello("fresh.test")).await.unwrap();
        begun.push(tunnel);
    }
    let told = stand.get("allowed.test", "/").await;
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let handshakes = stand.records_until(4, |record| record.kind == "handshake").await;
    let slow = handshakes
        .iter()
        .filter(|record| record.reason.contains("did not end within"));
    let crowded = handshakes
        .iter()
        .filter(|record| record.reason.contains("2 TLS handshakes at once"));
    let counts = (slow.count(), crowded.count());
    assert_eq!(counts.0 + counts.1, 4, "{handshakes:#?}");
    assert!(counts.0 >= 2, "{counts:?}");
    drop(begun);
}

/// A client's first flight.
fn hello(name: &str) -> Vec<u8> {
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut flight = Vec::new();
    client.write_tls(&mut flight).unwrap();
    flight
}

#[tokio::test]
async fn who_does_not_say_who_it_is_has_few_places_and_whoever_does_has_its_own() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let limits = Limits {
        strangers: 4,
        ..Limits::default()
    };
    let stand = Stand::with_limits(&roots, origin.port, limits).await;
    let mut known = Vec::new();
    for _ in 0..8 {
        known.push(stand.tunnel(&stand.at("allowed.test")).await);
    }
    let mut silent = Vec::new();
    for _ in 0..4 {
        let mut stream = stand.dial().await;
        // One that was not let in could not answer.
        stream
            .write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .await
            .unwrap();
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 407 "));
        silent.push(stream);
    }
    let mut fifth = stand.dial().await;
    assert_eq!(read_all(&mut fifth).await, "", "closed at once");
    stand
        .counts(&["connections_refused_total{of=\"strangers\"} 1"])
        .await;
    silent.pop();
    // The place is free once the gateway has seen the end of the other.
    let open = loop {
        let mut stream = stand.dial().await;
        let request = format!(
            "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: {1}\r\n\r\n",
            stand.at("allowed.test"),
            stand.authorization()
        );
        // A place that is not free yet is a connection that ends.
        let _sent = stream.write_all(request.as_bytes()).await;
        let head = read_head(&mut stream).await;
        if head.starts_with("HTTP/1.1 200 ") {
            break stream;
        }
        assert_eq!(head, "", "{head}");
    };
    drop((open, known, silent));
}
