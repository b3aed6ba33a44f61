//! What an agent writes into requests cannot forge records, move a terminal's cursor or carry a value into the log (case S10).
use crate::origin::{Origin, Roots};
use crate::stand::{SECRET, Stand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sallyport_gateway::control::types::{AccessRequest, AuditRecord};
use sallyport_policy::Wanted;

/// What moves a cursor, clears a screen, begins a line or turns text around.
const NASTY: &str = "\u{1b}[2J\r\nFAKE\u{85}\u{2028}\u{202e}\u{7f}";
/// Longest text that a record holds of what others wrote, in bytes, with its escapes.
const LONGEST: usize = 16 * 1024;

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    (Stand::new(&roots, origin.port).await, origin)
}

fn get(stand: &Stand, path: &str, fields: &str) -> String {
    let at = stand.at("allowed.test");
    format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n{fields}Connection: close\r\n\r\n")
}

/// As text of the log: one line each, without what a terminal obeys, bounded, and without a value.
fn assert_harmless(records: &[AuditRecord]) {
    for record in records {
        let line = serde_json::to_string(record).unwrap();
        assert!(!line.contains(SECRET), "{line}");
        assert!(line.len() < LONGEST, "{} bytes: {line}", line.len());
        for text in [&record.host, &record.reason, &record.rule, &record.ending]
            .into_iter()
            .chain(&record.path)
            .chain(&record.method)
        {
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[tokio::test]
async fn no_request_forges_a_record_or_carries_a_value_into_it() {
    let (stand, _origin) = stand().await;
    let encoded = utf8_percent_encode(NASTY, NON_ALPHANUMERIC).to_string();
    let long = "a".repeat(7_000);
    let requests = [
        get(&stand, &format!("/{encoded}"), ""),
        get(&stand, &format!("/x?q={encoded}"), ""),
        get(&stand, "/x", "X-Data: a\u{85}b\u{2028}c\u{202e}d\r\n"),
        get(&stand, &format!("/{long}"), ""),
        get(&stand, &format!("/x?q={SECRET}"), ""),
        get(&stand, &format!("/{SECRET}/x"), ""),
        get(&stand, "/x", &format!("X-Data: {SECRET}\r\n")),
        get(&stand, "/x", &format!("Authorization: Basic {SECRET}\r\n")),
        get(&stand, &format!("/x?q={}", stand.placeholder), ""),
    ];
    for request in &requests {
        let answer = stand.raw("allowed.test", request).await;
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        assert!(!answer.contains(SECRET), "{answer}");
        assert!(!answer.contains('\u{1b}'), "{answer}");
    }
    // What no parser takes has no answer that matters, but a record.
    for broken in ["/\u{1b}[2J", "/a\tb"] {
        let answer = stand.raw("allowed.test", &get(&stand, broken, "")).await;
        assert!(!answer.contains('\u{1b}'), "{answer}");
    }
    let at = stand.at("allowed.test");
    let userinfo = format!("GET http://user:{SECRET}@{at}/x");
    let answer = stand.absolute(&userinfo, &at).await;
    assert!(!answer.contains(SECRET), "{answer}");
    let records = stand.records(requests.len()).await;
    assert_harmless(&records);
    assert!(
        records.iter().any(|record| record.reason.contains("`token`")),
        "by name: {records:#?}"
    );
    let ends = records.iter().filter_map(|record| record.path.as_ref());
    assert!(
        ends.clone().any(|path| path.ends_with("…(cut)")),
        "cut with a mark"
    );
}

#[tokio::test]
async fn a_wish_in_an_agents_own_words_is_one_record_too() {
    let (stand, _origin) = stand().await;
    let wanted = Wanted {
        host: "docs.test".into(),
        port: stand.port,
        method: None,
        path: None,
        credential: None,
    };
    for (host, credential, why) in [
        ("docs.test", None, format!("{NASTY}{SECRET}")),
        ("docs.test", Some(NASTY.to_owned()), "x".repeat(1 << 20)),
        (NASTY, None, NASTY.to_owned()),
    ] {
        let request = AccessRequest {
            wanted: Wanted {
                host: host.into(),
                credential,
                ..wanted.clone()
            },
            why,
        };
        stand.sessions.access("run-1", &request).await.unwrap();
    }
    let records = stand.records(3).await;
    assert_eq!(records.len(), 3);
    assert_harmless(&records);
}
