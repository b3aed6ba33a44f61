//! Streams that die and come again: every client ends with the same view.
use super::store::{Attempt, Conversations, Piece};
use super::*;
use crate::testing::shown;
use futures_util::StreamExt as _;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const RUN: &str = "run-1";

async fn open(folder: &Path) -> Conversations {
    loop {
        match Conversations::open(&folder.join("c.redb")).await {
            Ok(conversations) => return conversations,
            // The writer of the one before lets go of the file when it has seen that nobody uses it.
            Err(fault) if fault.to_string().contains("already open") => tokio::task::yield_now().await,
            Err(fault) => panic!("{fault}"),
        }
    }
}

fn folder() -> tempfile::TempDir {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() {
        tempfile::tempdir_in(shared_memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

fn entry(step: u32, attempt: u32, what: What) -> Entry {
    Entry {
        sequence: 0,
        at: jiff::Timestamp::UNIX_EPOCH,
        step,
        attempt,
        what,
    }
}

async fn say(store: &Conversations, mark: (u64, u32), attempt: (u32, u32), what: What) {
    store
        .say(RUN, mark, entry(attempt.0, attempt.1, what))
        .await
        .unwrap();
}

async fn take(store: &Conversations, after: u64, count: usize) -> Vec<Entry> {
    let entries = store.follow(RUN, after).take(count).collect::<Vec<_>>();
    tokio::time::timeout(Duration::from_secs(20), entries)
        .await
        .expect("the entries come")
}

fn said(text: &str) -> What {
    What::Said { text: text.into() }
}

fn ended() -> What {
    What::Ended {
        outcome: Outcome::Done,
        text: "ok".into(),
    }
}

/// Attempt 1 shows 40 pieces and dies; attempt 2 shows others and makes a call.
async fn story(store: &Conversations) {
    say(
        store,
        (1, 0),
        (0, 1),
        What::Person {
            user: "ada".into(),
            text: "task".into(),
        },
    )
    .await;
    let dead = store.begin_attempt(RUN, 1, "").await.unwrap();
    for number in 0..40 {
        assert!(store.delta(&dead, format!("dead{number} ")).await.unwrap());
    }
    let alive = store.begin_attempt(RUN, 1, "the stream broke off").await.unwrap();
    assert_eq!(alive.attempt, 2);
    assert!(
        !store.delta(&dead, "zombie".into()).await.unwrap(),
        "a dead attempt writes nothing more"
    );
    for number in 0..3 {
        assert!(store.delta(&alive, format!("alive{number} ")).await.unwrap());
    }
    say(store, (5, 0), (1, 2), said("alive0 alive1 alive2 ")).await;
    let input = serde_json::json!({});
    say(
        store,
        (5, 1),
        (1, 2),
        What::Call {
            call: "c".into(),
            tool: "bash".into(),
            input,
        },
    )
    .await;
    say(
        store,
        (6, 0),
        (1, 2),
        What::Result {
            call: "c".into(),
            text: "r".into(),
            ok: true,
        },
    )
    .await;
    say(store, (7, 0), (1, 2), ended()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_a_late_and_an_offline_client_end_with_the_same_view() {
    let folder = folder();
    let store = open(folder.path()).await;
    let live = tokio::spawn(store.follow(RUN, 0).collect::<Vec<_>>());
    let offline = {
        let store = store.clone();
        tokio::spawn(async move { take(&store, 0, 21).await })
    };
    story(&store).await;
    let live = live.await.unwrap();
    let late = take(&store, 0, usize::MAX).await;
    let mut offline = offline.await.unwrap();
    let seen = offline.last().unwrap().sequence;
    let rest = take(&store, seen, usize::MAX).await;
    offline.extend(rest);
    let expected: Vec<&str> = vec!["person", "said", "call", "result", "ended"];
    for (name, entries) in [("live", &live), ("late", &late), ("offline", &offline)] {
        let view = shown(entries);
        let kinds: Vec<String> = view.iter().map(|entry| kind(&entry.what)).collect();
        assert_eq!(kinds, expected, "{name}");
        assert_eq!(view, shown(&late), "{name}");
        assert!(
            entries.windows(2).all(|pair| pair[0].sequence < pair[1].sequence),
            "{name}"
        );
    }
    assert!(
        !late
            .iter()
            .any(|entry| matches!(entry.what, What::Rewind { .. } | What::Delta { .. })),
        "nothing void is told late"
    );
}

fn kind(what: &What) -> String {
    serde_json::to_value(what).unwrap()["kind"]
        .as_str()
        .unwrap()
        .into()
}

#[tokio::test]
async fn a_client_that_saw_a_dead_attempt_is_told_to_rewind_even_when_its_step_is_final() {
    let folder = folder();
    let store = open(folder.path()).await;
    let dead = store.begin_attempt(RUN, 1, "").await.unwrap();
    store.delta(&dead, "dead".into()).await.unwrap();
    let seen = take(&store, 0, 1).await;
    store.begin_attempt(RUN, 1, "broke").await.unwrap();
    say(&store, (1, 0), (1, 2), said("alive")).await;
    say(&store, (2, 0), (1, 2), ended()).await;
    let rest = take(&store, seen[0].sequence, usize::MAX).await;
    let What::Rewind { from, why } = &rest[0].what else {
        panic!("{rest:?}")
    };
    assert_eq!(
        (*from, why.as_str(), rest[0].attempt),
        (seen[0].sequence, "broke", 2)
    );
}

#[tokio::test]
async fn what_is_said_under_a_known_mark_is_said_once() {
    let folder = folder();
    let store = open(folder.path()).await;
    for _ in 0..3 {
        say(&store, (1, 0), (0, 1), said("a")).await;
        say(&store, (1, 1), (0, 1), said("b")).await;
    }
    say(&store, (2, 0), (0, 1), ended()).await;
    assert_eq!(take(&store, 0, usize::MAX).await.len(), 3);
    assert_eq!(store.mark(RUN).await.unwrap(), (2, 0));
}

#[tokio::test]
async fn output_is_taken_once_and_makes_room_for_the_result() {
    let folder = folder();
    let store = open(folder.path()).await;
    let piece = |taken, text: &str| Piece {
        step: 1,
        attempt: 1,
        call: "c".into(),
        taken,
        text: text.into(),
    };
    assert!(store.output(RUN, piece(3, "one")).await.unwrap());
    assert!(
        !store.output(RUN, piece(3, "one")).await.unwrap(),
        "told again after a restart"
    );
    assert!(store.output(RUN, piece(6, "two")).await.unwrap());
    assert_eq!(store.taken(RUN, "c").await.unwrap(), Some(6));
    say(
        &store,
        (1, 0),
        (1, 1),
        What::Result {
            call: "c".into(),
            text: "onetwo".into(),
            ok: true,
        },
    )
    .await;
    assert!(!store.output(RUN, piece(9, "late")).await.unwrap());
    assert_eq!(store.taken(RUN, "c").await.unwrap(), None);
    say(&store, (2, 0), (1, 1), ended()).await;
    let kinds: Vec<String> = take(&store, 0, usize::MAX)
        .await
        .iter()
        .map(|entry| kind(&entry.what))
        .collect();
    assert_eq!(kinds, ["result", "ended"]);
}

#[tokio::test]
async fn after_a_kill_no_number_is_used_for_something_else() {
    let folder = folder();
    let store = open(folder.path()).await;
    let attempt = store.begin_attempt(RUN, 1, "").await.unwrap();
    store.delta(&attempt, "durable or not".into()).await.unwrap();
    let seen = take(&store, 0, 1).await[0].sequence;
    drop(store);
    let store = open(folder.path()).await;
    let attempt = store.begin_attempt(RUN, 1, "restarted").await.unwrap();
    assert_eq!(attempt.attempt, 2, "the dead process's attempt is known");
    let rewind = take(&store, seen, 1).await;
    assert!(matches!(rewind[0].what, What::Rewind { from, .. } if from <= seen));
    assert!(
        rewind[0].sequence > seen + 200,
        "numbers that may have been shown are left out"
    );
}

#[tokio::test]
async fn a_reader_of_an_ended_conversation_is_not_left_waiting() {
    let folder = folder();
    let store = open(folder.path()).await;
    say(&store, (1, 0), (0, 1), ended()).await;
    let last = take(&store, 0, usize::MAX).await[0].sequence;
    assert!(take(&store, last, usize::MAX).await.is_empty());
    assert!(take(&store, u64::MAX, usize::MAX).await.is_empty());
}

#[derive(Debug, Clone)]
enum Move {
    Delta,
    Die,
    Commit,
    Look(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        5 => Just(Move::Delta),
        1 => Just(Move::Die),
        1 => Just(Move::Commit),
        2 => (1..6usize).prop_map(Move::Look),
    ];
    proptest::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_schedule_of_attempts_and_looks_ends_with_the_committed_text(moves in moves()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(schedule(moves));
    }
}

/// One client looks now and then; in the end it shows what one shows that comes late.
async fn schedule(moves: Vec<Move>) {
    let folder = folder();
    let store = open(folder.path()).await;
    let mut mark = 0;
    let mut attempt: Attempt = store.begin_attempt(RUN, 1, "").await.unwrap();
    let mut client: Vec<Entry> = Vec::new();
    for step in moves {
        match step {
            Move::Delta => {
                store
                    .delta(&attempt, format!("{}.{} ", attempt.step, attempt.attempt))
                    .await
                    .unwrap();
            }
            Move::Die => attempt = store.begin_attempt(RUN, attempt.step, "died").await.unwrap(),
            Move::Commit => {
                mark += 1;
                let text = format!("{}:{}", attempt.step, attempt.attempt);
                say(&store, (mark, 0), (attempt.step, attempt.attempt), said(&text)).await;
                attempt = store.begin_attempt(RUN, attempt.step + 1, "").await.unwrap();
            }
            Move::Look(count) => {
                let after = client.last().map_or(0, |entry| entry.sequence);
                let mut entries = store.follow(RUN, after);
                for _ in 0..count {
                    let Ok(Some(entry)) =
                        tokio::time::timeout(Duration::from_millis(2), entries.next()).await
                    else {
                        break;
                    };
                    client.push(entry);
                }
            }
        }
    }
    store
        .begin_attempt(RUN, attempt.step, "the last one")
        .await
        .unwrap();
    say(
        &store,
        (mark + 1, 0),
        (attempt.step, attempt.attempt + 1),
        said("end"),
    )
    .await;
    say(
        &store,
        (mark + 2, 0),
        (attempt.step, attempt.attempt + 1),
        ended(),
    )
    .await;
    let after = client.last().map_or(0, |entry| entry.sequence);
    client.extend(take(&store, after, usize::MAX).await);
    let late = take(&store, 0, usize::MAX).await;
    assert_eq!(shown(&client), shown(&late));
    assert!(
        shown(&late)
            .iter()
            .all(|entry| !matches!(entry.what, What::Delta { .. }))
    );
}
