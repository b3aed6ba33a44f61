//! Addresses in disguise, as literals and as answers of DNS; one look-up, judged and dialled (cases Q07 and Q08).
use crate::dns::Dns;
use crate::origin::{Origin, Roots};
use crate::stand::{Stand, ask, read_head};
use sallyport_gateway::control::types::Verdict;
use sallyport_gateway::limits::Limits;

/// Everything public, and the addresses in `NETS` of a name.
const POLICY: &str = r#"
version: 1
name: addresses
rules:
  - id: all
    to: {host: "*", port: "1-65535", methods: [GET]}
    effect: allow
  - id: named
    to: {host: [NAME, NETS], port: "1-65535", methods: [GET], private: true}
    effect: allow
"#;

fn policy(name: &str, nets: &str) -> String {
    POLICY.replace("NAME", name).replace("NETS", nets)
}

/// Literals that lead where no rule leads, with the range that stands in the reason.
const SPECIAL: [(&str, &str); 18] = [
    ("127.0.0.1", "loopback"),
    ("0.0.0.0", "unspecified"),
    ("[::]", "unspecified"),
    ("[::1]", "loopback"),
    ("[::ffff:127.0.0.1]", "loopback"),
    ("[::ffff:a9fe:a9fe]", "cloud metadata"),
    ("[::127.0.0.1]", "loopback"),
    ("[64:ff9b::a9fe:a9fe]", "cloud metadata"),
    ("[2002:7f00:1::]", "loopback"),
    ("169.254.169.254", "cloud metadata"),
    ("169.254.169.254.", "cloud metadata"),
    ("169.254.1.1", "link-local"),
    ("[fe80::1]", "link-local"),
    ("[fd00:ec2::254]", "cloud metadata"),
    ("100.100.100.200", "cloud metadata"),
    ("198.18.0.5", "benchmark"),
    ("224.0.0.1", "multicast"),
    ("255.255.255.255", "reserved"),
];

/// Spellings of which nobody can say how the next one reads them.
const ODD: [&str; 8] = [
    "127.1",
    "0177.0.0.1",
    "0x7f000001",
    "2130706433",
    "0",
    "169.254.169.254..",
    "[fe80::1%25eth0]",
    "[::ffff:0x7f.1]",
];

#[tokio::test]
async fn a_special_address_is_refused_by_its_range_in_every_spelling() {
    let stand = Stand::new(&Roots::new(), 1).await;
    stand.put(&policy("named.test", "127.9.9.9/32"));
    for (literal, range) in SPECIAL {
        let answer = stand.absolute(&format!("GET http://{literal}/"), literal).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(range),
            "{literal}: {answer}"
        );
        let mut stream = stand.tunnel(&format!("{literal}:80")).await;
        let (head, body) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {literal}\r\n\r\n")).await;
        assert!(
            head.starts_with("HTTP/1.1 403 ") && body.contains(range),
            "{literal}: {head}{body}"
        );
    }
    let records = stand.records(2 * SPECIAL.len()).await;
    assert!(
        records.iter().all(|record| record.verdict == Verdict::Denied),
        "{records:#?}"
    );
}

#[tokio::test]
async fn a_spelling_that_can_be_read_in_two_ways_is_malformed() {
    let stand = Stand::new(&Roots::new(), 1).await;
    stand.put(&policy("named.test", "127.9.9.9/32"));
    for literal in ODD {
        let answer = stand.absolute(&format!("GET http://{literal}/"), literal).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{literal}: {answer}");
    }
}

/// A stand whose names are looked up, and an origin on 127.0.0.1.
async fn stand(dns: &Dns) -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::with_resolver(&roots, origin.port, Limits::default(), dns.resolver()).await;
    (stand, origin)
}

/// The answer to a GET of a name that is looked up, in plain HTTP.
async fn get(stand: &Stand, name: &str) -> String {
    let at = stand.at(name);
    stand.absolute(&format!("GET http://{at}/"), &at).await
}

#[tokio::test]
async fn a_name_that_leads_to_a_special_address_is_refused_by_the_range() {
    let dns = Dns::new(&[], None).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("named.test", "127.9.9.9/32"));
    for (literal, range) in SPECIAL {
        let address = literal.trim_matches(['[', ']', '.']);
        dns.answer(&[address]);
        let answer = get(&stand, "looked-up.test").await;
        let range = if range == "benchmark" { "synthetic" } else { range };
        assert!(
            answer.starts_with("HTTP/1.1 403 ")
                && answer.contains(range)
                && answer.contains("destination_ip_prohibited"),
            "{literal}: {answer}"
        );
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_special_address_beside_one_that_is_named_is_passed_over() {
    let dns = Dns::new(&["10.1.2.3", "169.254.169.254"], None).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.1/32"));
    let refused = get(&stand, "looked-up.test").await;
    assert!(
        refused.starts_with("HTTP/1.1 403 ") && refused.contains("10.1.2.3"),
        "{refused}"
    );
    dns.answer(&["10.1.2.3", "127.0.0.1"]);
    let answer = get(&stand, "looked-up.test").await;
    // The origin speaks TLS: what matters is that it, and nobody else, was dialled.
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn no_connection_falls_back_to_an_address_that_is_not_named() {
    let dns = Dns::new(&["127.0.0.2", "127.0.0.1"], None).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.2/32"));
    let answer = get(&stand, "looked-up.test").await;
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("connection_refused"),
        "{answer}"
    );
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_alias_needs_no_rule_but_its_addresses_are_judged() {
    let dns = Dns::new(&["127.0.0.2"], Some("other.test.")).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.2/32"));
    let answer = get(&stand, "looked-up.test").await;
    assert!(answer.contains("connection_refused"), "dialled: {answer}");
    dns.answer(&["127.0.0.1"]);
    let answer = get(&stand, "looked-up.test").await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("loopback"),
        "{answer}"
    );
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_chain_of_aliases_that_ends_at_localhost_or_a_private_address_is_refused() {
    for (answers, chain, range) in [
        (
            &["127.0.0.1", "::1"][..],
            "one.test. two.test. localhost.",
            "loopback",
        ),
        (&["10.1.2.3"], "one.test. two.test. three.test.", "private"),
        (&["169.254.169.254"], "one.test. metadata.test.", "metadata"),
        // The name server leaves it to whoever asks to know that address.
        (&[], "one.test. localhost.", "loopback"),
    ] {
        let dns = Dns::new(answers, Some(chain)).await;
        let (stand, origin) = stand(&dns).await;
        stand.put(&policy("looked-up.test", "127.9.9.9/32"));
        let answer = get(&stand, "looked-up.test").await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(range),
            "{chain}: {answer}"
        );
        assert_eq!(origin.connections(), 0);
    }
}

#[tokio::test]
async fn name_servers_are_asked_over_tls_and_believed_only_by_their_certificate() {
    let (roots, others) = (Roots::new(), Roots::new());
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    for (trusted, name, reached) in [
        (&roots, "dns.test", true),
        (&roots, "another.test", false),
        (&others, "dns.test", false),
    ] {
        let dns = Dns::new(&["127.0.0.1"], None).await;
        let resolver = dns.over_tls(&roots, trusted, name).await;
        let stand = Stand::with_resolver(&roots, origin.port, Limits::default(), resolver).await;
        stand.put_hosts("run-1", crate::stand::POLICY, &[]);
        let answer = stand.get("allowed.test", "/looked-up").await;
        assert_eq!(answer.contains("GET /looked-up"), reached, "{name}: {answer}");
        assert_eq!(!dns.asked().is_empty(), reached, "{name}: {:?}", dns.asked());
    }
}

#[tokio::test]
async fn a_connection_has_one_look_up_and_requests_on_it_have_none() {
    let roots = Roots::new();
    let dns = Dns::new(&["127.0.0.1"], None).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut stream, _) = listener.accept().await.unwrap();
        while !read_head(&mut stream).await.is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
        }
    });
    let stand = Stand::with_resolver(&roots, port, Limits::default(), dns.resolver()).await;
    stand.put(&policy("looked-up.test", "127.0.0.1/32"));
    let at = stand.at("looked-up.test");
    let mut stream = stand.tunnel(&at).await;
    for _ in 0..3 {
        let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        // Another answer by now would be a rebinding: nobody asks.
        dns.answer(&["10.1.2.3"]);
    }
    let asked = dns.asked();
    let once = |kind: &str| {
        asked
            .iter()
            .filter(|asked| **asked == format!("looked-up.test. {kind}"))
            .count()
    };
    assert_eq!(once("A"), 1, "{asked:?}");
    assert!(once("AAAA") <= 1, "{asked:?}");
    origin.abort();
}

#[tokio::test]
async fn nobody_is_asked_about_a_name_that_is_refused() {
    let dns = Dns::new(&["127.0.0.1"], None).await;
    let (stand, _origin) = stand(&dns).await;
    let answer = get(&stand, "c2VjcmV0.other.test").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = stand.get("x.allowed.test", "/").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(dns.asked(), Vec::<String>::new());
}

/// Case Q08: each connection judges what it dials, whatever the answer was a moment ago.
#[tokio::test]
async fn answers_that_alternate_are_judged_each_time() {
    let dns = Dns::new(&[], None).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.1/32"));
    for round in 1..=3 {
        dns.answer(&["127.0.0.1"]);
        let answer = get(&stand, "looked-up.test").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        dns.answer(&["10.1.2.3"]);
        let answer = get(&stand, "looked-up.test").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert_eq!(origin.connections(), round);
    }
}

/// Case Q08: the one that is named is found among many, and the record stays short.
#[tokio::test]
async fn fifty_answers_are_all_judged() {
    let mut answers: Vec<String> = (1..50).map(|number| format!("10.1.2.{number}")).collect();
    answers.push("127.0.0.1".to_owned());
    let texts: Vec<&str> = answers.iter().map(String::as_str).collect();
    let dns = Dns::new(&texts, None).await;
    let (stand, origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.1/32"));
    let answer = get(&stand, "looked-up.test").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(origin.connections(), 1);
    dns.answer(&texts[..49]);
    let answer = get(&stand, "looked-up.test").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let record = stand.records(2).await.pop().unwrap();
    assert!(record.reason.len() < 2048, "{}", record.reason.len());
}

#[tokio::test]
async fn a_name_that_leads_to_the_gateways_own_listener_is_a_loop() {
    let dns = Dns::new(&["127.0.0.1"], None).await;
    let (stand, _origin) = stand(&dns).await;
    stand.put(&policy("looked-up.test", "127.0.0.1/32"));
    let at = format!("looked-up.test:{}", stand.proxy.port());
    let answer = stand.absolute(&format!("GET http://{at}/"), &at).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("loop"),
        "{answer}"
    );
}
