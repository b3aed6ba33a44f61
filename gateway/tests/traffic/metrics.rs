//! What is counted of traffic, as `/metrics` tells it.
use crate::dns::Dns;
use crate::origin::{Origin, Roots};
use crate::stand::{POLICY, Stand, ask};
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};
use sallyport_gateway::control::handover::ListenerHost;
use sallyport_gateway::control::types::{ListenerKind, StandingPolicies};
use sallyport_gateway::limits::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;

impl Stand {
    fn metrics(&self) -> String {
        let metrics = self.gateway.metrics();
        let standing = StandingPolicies {
            policies: Vec::new(),
            strays: Vec::new(),
            closed: Vec::new(),
        };
        metrics.render(&standing, 1, None).unwrap()
    }

    /// Waits until the lines are there; what is counted at the end of something comes a little after it.
    pub(crate) async fn counts(&self, lines: &[&str]) {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let text = self.metrics();
            let missing: Vec<_> = lines
                .iter()
                .filter(|line| !text.lines().any(|there| there == format!("sallyport_{line}")))
                .collect();
            if missing.is_empty() {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{missing:?} are not in\n{text}"
            );
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn leaves_kept_connections_bytes_and_redactions_are_counted() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let shown = format!(
        "GET / HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n\r\n",
        stand.placeholder
    );
    drop(stand.h1("allowed.test").await);
    let mut first = stand.h1("allowed.test").await;
    ask(&mut first, &shown).await;
    stand
        .counts(&[
            "upstream_connections{state=\"idle\"} 1",
            "upstream_connections{state=\"in_use\"} 0",
        ])
        .await;
    ask(&mut first, &shown).await;
    stand
        .counts(&[
            "leaf_lookups_total{outcome=\"miss\"} 1",
            "leaf_lookups_total{outcome=\"hit\"} 1",
            "leaves_signed_total 1",
            "upstream_requests_total{connection=\"new\"} 1",
            "upstream_requests_total{connection=\"kept\"} 1",
            "upstream_connections{state=\"idle\"} 1",
            "redactions_total 2",
            "connections_total 2",
            "exchanges_total{kind=\"http\",verdict=\"allowed\"} 2",
        ])
        .await;
    let received = stand.metrics();
    let received = received
        .lines()
        .find_map(|line| line.strip_prefix("sallyport_received_bytes_total "));
    assert!(received.unwrap().parse::<u64>().unwrap() > 100, "{received:?}");
}

#[tokio::test]
async fn connections_of_http2_are_in_use_until_they_end() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["h2"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    stand.get("allowed.test", "/").await;
    stand
        .counts(&[
            "upstream_connections{state=\"idle\"} 0",
            "upstream_connections{state=\"in_use\"} 1",
        ])
        .await;
    drop(origin);
    let mut other = stand.h1("allowed.test").await;
    other.shutdown().await.unwrap();
}

#[tokio::test]
async fn questions_for_names_are_counted_by_what_came_of_them() {
    let dns = Dns::new(&["192.0.2.1"], None).await;
    let limits = Limits {
        lookup: std::time::Duration::from_millis(100),
        ..Limits::default()
    };
    let stand = Stand::with_resolver(&Roots::new(), 1, limits, dns.resolver()).await;
    let rule = "  - {id: some, to: {host: \"*.looked.test\"}, effect: allow}\n";
    stand.put_hosts("run-1", &format!("{POLICY}{rule}"), &[]);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let session = stand.sessions.by_id("run-1").unwrap();
    stand
        .gateway
        .serve(session, vec![(ListenerKind::Dns, socket.into())])
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(address).await.unwrap();
    let ask = async |bytes: &[u8]| {
        client.send(bytes).await.unwrap();
        client.recv(&mut [0; 4096]).await.unwrap();
    };
    for (name, kind) in [
        ("a.looked.test.", RecordType::A),
        ("nx.looked.test.", RecordType::A),
        ("none.looked.test.", RecordType::AAAA),
        ("silent.looked.test.", RecordType::A),
        ("other.test.", RecordType::A),
        ("a.looked.test.", RecordType::TXT),
    ] {
        let mut query = Message::query();
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        ask(&query.to_vec().unwrap()).await;
    }
    ask(&[0, 1, 0, 0, 0, 9]).await;
    let outcomes = [
        "answered",
        "refused",
        "no_data",
        "no_such_name",
        "failed",
        "other",
        "malformed",
    ];
    let lines = outcomes.map(|outcome| format!("dns_questions_total{{outcome=\"{outcome}\"}} 1"));
    stand.counts(&lines.each_ref().map(String::as_str)).await;
}
