//! The log under restarts, a full disk, tampering, and many readers.
use super::*;
use crate::control::types::Verdict;
use futures_util::StreamExt;

fn record(session: &str, host: &str) -> AuditRecord {
    AuditRecord {
        at: jiff::Timestamp::UNIX_EPOCH,
        session: session.to_owned(),
        user: "ada".to_owned(),
        host: host.to_owned(),
        port: 443,
        method: Some("GET".to_owned()),
        path: Some("/".to_owned()),
        rule: "r".to_owned(),
        reason: "allowed".to_owned(),
        status: Some(200),
        bytes_in: 1,
        duration_ms: 2,
        ending: "complete".to_owned(),
        ..AuditRecord::of("http", Verdict::Allowed)
    }
}

#[tokio::test]
async fn records_are_numbered_without_gaps_over_restarts_and_the_chain_holds() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3_u64 {
        let sink = Sink::open(folder.path()).unwrap();
        assert_eq!(sink.head(), round * 10);
        for number in 1..=5 {
            assert_eq!(
                sink.write(record("run", "a.test")).await.unwrap(),
                round * 10 + number
            );
        }
        for _ in 0..5 {
            sink.note(record("run", "a.test")).await.unwrap();
        }
        sink.flush().await.unwrap();
    }
    let verified = verify(folder.path()).unwrap();
    assert_eq!(verified.records, 30);
    assert_ne!(verified.head, chain::GENESIS);
}

#[tokio::test]
async fn a_changed_a_removed_and_a_moved_record_are_each_noticed() {
    for (tamper, at) in [
        (
            "UPDATE records SET body = replace(body, 'a.test', 'b.test') WHERE sequence = 4",
            4,
        ),
        ("UPDATE records SET session = 'other' WHERE sequence = 5", 5),
        ("UPDATE records SET exchange = 'other' WHERE sequence = 2", 2),
        ("DELETE FROM records WHERE sequence = 6", 6),
        ("DELETE FROM records WHERE sequence = 1", 1),
        (
            "UPDATE records SET chain = (SELECT chain FROM records WHERE sequence = 2) WHERE sequence = 3",
            3,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let sink = Sink::open(folder.path()).unwrap();
        for _ in 0..8 {
            sink.write(record("run", "a.test")).await.unwrap();
        }
        let connection = rusqlite::Connection::open(folder.path().join("audit.sqlite")).unwrap();
        assert_eq!(connection.execute(tamper, []).unwrap(), 1, "{tamper}");
        let error = verify(folder.path()).unwrap_err();
        assert!(
            matches!(error, chain::VerifyError::Altered { sequence, .. } if sequence == at),
            "{tamper}: {error}"
        );
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_callers_and_loses_nothing_that_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    assert_eq!(sink.write(record("run", "a.test")).await.unwrap(), 1);
    sink.pragma("PRAGMA max_page_count = 1").await;
    let mut big = record("run", "a.test");
    big.reason = "x".repeat(2000);
    let mut accepted = 1;
    let error = loop {
        match sink.write(big.clone()).await {
            Ok(sequence) => accepted = sequence,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("full"), "{error}");
    assert!(!sink.healthy());
    assert!(sink.write(record("run", "a.test")).await.is_err());
    assert!(sink.note(record("kept", "a.test")).await.is_err());
    sink.pragma("PRAGMA max_page_count = 1000000").await;
    let mut head = sink.0.head.clone();
    head.wait_for(|newest| *newest > accepted).await.unwrap();
    assert!(sink.healthy());
    assert_eq!(sink.write(record("run", "a.test")).await.unwrap(), accepted + 2);
    let kept = sink
        .query(AuditQuery {
            session: Some("kept".into()),
            ..AuditQuery::default()
        })
        .await
        .unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(verify(folder.path()).unwrap().records, accepted + 2);
}

#[tokio::test]
async fn search_keeps_to_label_boundaries_and_pages_backwards() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    for (session, host) in [
        ("1", "example.test"),
        ("1", "api.example.test"),
        ("2", "badexample.test"),
        ("2", "example.test.evil"),
    ] {
        sink.write(record(session, host)).await.unwrap();
    }
    let mut denied = record("2", "example.test");
    denied.verdict = Verdict::Denied;
    sink.write(denied).await.unwrap();
    let search = |query: AuditQuery| {
        let sink = sink.clone();
        async move {
            sink.query(query)
                .await
                .unwrap()
                .iter()
                .map(|record| record.sequence)
                .collect::<Vec<_>>()
        }
    };
    let empty = AuditQuery::default;
    assert_eq!(search(empty()).await, [5, 4, 3, 2, 1]);
    assert_eq!(
        search(AuditQuery {
            host: Some("Example.test.".into()),
            ..empty()
        })
        .await,
        [5, 2, 1]
    );
    assert_eq!(
        search(AuditQuery {
            session: Some("2".into()),
            ..empty()
        })
        .await,
        [5, 4, 3]
    );
    assert_eq!(
        search(AuditQuery {
            verdict: Some(Verdict::Denied),
            ..empty()
        })
        .await,
        [5]
    );
    assert_eq!(
        search(AuditQuery {
            limit: Some(2),
            before: Some(4),
            ..empty()
        })
        .await,
        [3, 2]
    );
    assert_eq!(
        search(AuditQuery {
            host: Some("' OR 1".into()),
            ..empty()
        })
        .await,
        [0_u64; 0]
    );
}

#[tokio::test]
async fn a_follower_sees_each_record_once_from_any_point_on() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    for _ in 0..700 {
        sink.note(record("run", "a.test")).await.unwrap();
    }
    let writer = sink.clone();
    let more = tokio::spawn(async move {
        for _ in 0..700 {
            writer.note(record("run", "a.test")).await.unwrap();
        }
    });
    let seen: Vec<u64> = sink
        .follow(50)
        .take(1350)
        .map(|record| record.unwrap().sequence)
        .collect()
        .await;
    assert_eq!(seen, (51..=1400).collect::<Vec<_>>());
    more.await.unwrap();
}

#[tokio::test]
async fn every_record_passes_the_scrubber() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    sink.scrub_with(|record| record.reason = record.reason.replace("SECRET", "PH"));
    let mut leaky = record("run", "a.test");
    leaky.reason = "about SECRET".to_owned();
    sink.write(leaky).await.unwrap();
    assert_eq!(
        sink.query(AuditQuery::default()).await.unwrap()[0].reason,
        "about PH"
    );
}

#[tokio::test]
async fn a_file_that_is_no_log_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("audit.sqlite"),
        "not a database, by far".repeat(100),
    )
    .unwrap();
    let error = Sink::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("audit.sqlite"), "{error}");
    assert!(Sink::open(std::path::Path::new("/proc/nothing")).is_err());
}

#[tokio::test]
async fn the_end_of_an_exchange_stands_for_its_beginning_in_a_search_and_not_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    let mut begun = record("run", "a.test");
    begun.ending = "open".to_owned();
    sink.write(begun.clone()).await.unwrap();
    let open = sink.query(AuditQuery::default()).await.unwrap();
    assert_eq!(
        open.iter()
            .map(|record| record.ending.as_str())
            .collect::<Vec<_>>(),
        ["open"]
    );
    begun.ending = "complete".to_owned();
    sink.write(begun).await.unwrap();
    let ended = sink.query(AuditQuery::default()).await.unwrap();
    assert_eq!(
        ended
            .iter()
            .map(|record| record.ending.as_str())
            .collect::<Vec<_>>(),
        ["complete"]
    );
    assert_eq!(sink.head(), 2);
}

/// What `records::write` says, as ids or, where a line is no record, as it is.
fn told(folder: &Path, since: &str, until: Option<&str>, run: Option<&str>) -> Vec<String> {
    let mut out = Vec::new();
    let range = records::Range {
        since: since.parse().unwrap(),
        until: until.map(|until| until.parse().unwrap()),
        run: run.map(str::to_owned),
    };
    records::write(folder, &range, &mut out).unwrap();
    let name = |line: &str| {
        serde_json::from_str::<AuditRecord>(line).map_or_else(|_| line.to_owned(), |record| record.id)
    };
    String::from_utf8(out).unwrap().lines().map(name).collect()
}

/// Hour `at` of one day.
fn dated(id: &str, session: &str, at: u32) -> AuditRecord {
    AuditRecord {
        id: id.to_owned(),
        at: format!("2026-05-01T{at:02}:00:00Z").parse().unwrap(),
        ..record(session, "a.test")
    }
}

#[tokio::test]
async fn stored_records_of_a_time_are_told_once_each_after_whose_session_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    let whose = |id: &str, session: &str, at| AuditRecord {
        kind: "session".to_owned(),
        host: String::new(),
        ..dated(id, session, at)
    };
    let mut open = dated("long", "one", 5);
    open.ending = OPEN.to_owned();
    let mut end = dated("long", "one", 5);
    end.duration_ms = 9 * 3_600_000;
    for record in [
        whose("one is ada", "one", 1),
        whose("one is bob", "one", 2),
        whose("two is eve", "two", 2),
        dated("early", "two", 3),
        open,
        dated("six", "one", 6),
        whose("one is max", "one", 7),
        dated("eight", "one", 8),
        dated("nine", "two", 9),
        end,
        dated("fifteen", "three", 15),
    ] {
        sink.write(record).await.unwrap();
    }
    let told = |since: &str, until, run| told(folder.path(), since, until, run).join(", ");
    assert_eq!(
        told("2026-05-01T05:00:00Z", Some("2026-05-01T15:00:00Z"), None),
        "one is bob, six, one is max, eight, two is eve, nine, long"
    );
    assert_eq!(
        told("2026-05-01T08:30:00Z", None, None),
        "two is eve, nine, fifteen"
    );
    assert_eq!(told("2026-05-01T08:30:00Z", None, Some("three")), "fifteen");
    assert_eq!(
        told("2026-05-01T04:00:00Z", Some("2026-05-01T06:00:00Z"), Some("one")),
        "one is bob, long"
    );
    assert_eq!(told("2027-05-01T00:00:00Z", None, None), "");
}

#[tokio::test]
async fn a_stored_line_that_is_no_record_is_told_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::open(folder.path()).unwrap();
    for number in 0..3 {
        sink.write(dated(&number.to_string(), "one", 3)).await.unwrap();
    }
    drop(sink);
    let file = rusqlite::Connection::open(folder.path().join("audit.sqlite")).unwrap();
    file.execute("UPDATE records SET body = 'no\nrecord' WHERE sequence = 2", [])
        .unwrap();
    assert_eq!(
        told(folder.path(), "2026-05-01T00:00:00Z", None, None),
        ["0", "no record", "2"]
    );
}
