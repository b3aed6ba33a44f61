//! Bounds that hold together, at values of time and over restarts.
use super::super::exceeded::Bound;
use super::*;
use std::path::Path;

fn quotas(folder: &Path) -> Arc<Quotas> {
    let keeper = Arc::new(Keeper::open(folder).unwrap());
    let spent = keeper.spent("run-1").unwrap();
    Arc::new(Quotas::new("run-1", keeper, spent))
}

fn bounds(rule: &str, limits: Limits) -> Vec<(String, Limits)> {
    vec![(rule.to_owned(), limits)]
}

fn paced(count: u32, seconds: u32) -> Limits {
    Limits {
        rate: Some(Rate { count, seconds }),
        ..Limits::default()
    }
}

fn total(bytes: u64) -> Limits {
    Limits {
        bytes_out: Some(bytes),
        ..Limits::default()
    }
}

#[test]
fn a_rate_lets_a_burst_pass_and_then_its_pace() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let rule = bounds("x", paced(20, 1));
    let begun = Instant::now();
    for _ in 0..20 {
        drop(quotas.begin(&rule, None, begun).unwrap());
    }
    let exceeded = quotas.begin(&rule, None, begun).unwrap_err();
    assert_eq!(
        exceeded.sentence,
        "rule `x` lets 20 requests a second pass; try again in 1 s"
    );
    assert_eq!((exceeded.bound, exceeded.retry_after_s), (Bound::Rate, Some(1)));
    let next = begun + Duration::from_millis(50);
    drop(quotas.begin(&rule, None, next).unwrap());
    assert!(quotas.begin(&rule, None, next).is_err());
    let later = begun + Duration::from_secs(3600);
    for _ in 0..20 {
        drop(quotas.begin(&rule, None, later).unwrap());
    }
    assert!(
        quotas.begin(&rule, None, later).is_err(),
        "a pause saves up one burst"
    );
}

#[test]
fn a_wait_is_told_in_whole_seconds_rounded_up() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let rule = bounds("x", paced(2, 3));
    let begun = Instant::now();
    for _ in 0..2 {
        drop(quotas.begin(&rule, None, begun).unwrap());
    }
    let exceeded = quotas.begin(&rule, None, begun).unwrap_err();
    assert_eq!(exceeded.retry_after_s, Some(2));
    assert!(exceeded.sentence.contains("2 requests in 3 s pass"), "{exceeded}");
    drop(quotas.begin(&rule, None, begun + Duration::from_secs(2)).unwrap());
}

#[test]
fn a_new_bound_goes_on_from_what_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let begun = Instant::now();
    for _ in 0..10 {
        drop(quotas.begin(&bounds("x", paced(10, 60)), None, begun).unwrap());
    }
    let narrow = bounds("x", paced(1, 60));
    let exceeded = quotas.begin(&narrow, None, begun).unwrap_err();
    assert_eq!(exceeded.retry_after_s, Some(60));
    let wide = bounds("x", paced(20, 1));
    for _ in 0..10 {
        drop(quotas.begin(&wide, None, begun).unwrap());
    }
    assert_eq!(
        quotas.begin(&wide, None, begun).unwrap_err().retry_after_s,
        Some(1)
    );
}

#[test]
fn places_are_free_again_when_what_was_under_way_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let rule = bounds(
        "x",
        Limits {
            connections: Some(2),
            ..Limits::default()
        },
    );
    let now = Instant::now();
    let first = quotas.begin(&rule, None, now).unwrap();
    let _second = quotas.begin(&rule, None, now).unwrap();
    let exceeded = quotas.begin(&rule, None, now).unwrap_err();
    assert_eq!(
        exceeded.sentence,
        "rule `x` lets 2 requests be under way at once; try again when one has ended"
    );
    assert_eq!(exceeded.retry_after_s, None);
    drop(first);
    quotas.begin(&rule, None, now).unwrap();
}

#[test]
fn what_one_rule_refuses_uses_nothing_up_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let now = Instant::now();
    let both = [bounds("wide", paced(2, 60)), bounds("narrow", paced(1, 60))].concat();
    drop(quotas.begin(&both, None, now).unwrap());
    for _ in 0..5 {
        assert_eq!(quotas.begin(&both, None, now).unwrap_err().rule, "narrow");
    }
    drop(quotas.begin(&bounds("wide", paced(2, 60)), None, now).unwrap());
    let whole = [bounds("a", total(100)), bounds("b", total(10))].concat();
    let pass = quotas.begin(&whole, None, now).unwrap();
    assert_eq!(pass.send(20).unwrap_err().rule, "b");
    let pass = quotas.begin(&bounds("a", total(100)), None, now).unwrap();
    pass.send(100).unwrap();
}

#[test]
fn a_body_is_measured_before_and_while_it_passes() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let now = Instant::now();
    let rule = bounds(
        "x",
        Limits {
            request_bytes: Some(10),
            response_bytes: Some(1),
            ..Limits::default()
        },
    );
    let exceeded = quotas.begin(&rule, Some(11), now).unwrap_err();
    assert_eq!(
        exceeded.sentence,
        "rule `x` lets a request have 10 bytes of body, and this one has 11; send it in smaller parts"
    );
    let pass = quotas.begin(&rule, None, now).unwrap();
    pass.send(4).unwrap();
    pass.send(6).unwrap();
    assert_eq!(pass.send(1).unwrap_err().bound, Bound::RequestBytes);
    pass.announce(1).unwrap();
    assert!(
        pass.announce(2)
            .unwrap_err()
            .sentence
            .contains("an answer have 1 byte of body, and this one has 2")
    );
    pass.receive(1).unwrap();
    assert_eq!(pass.receive(1).unwrap_err().bound, Bound::ResponseBytes);
}

#[test]
fn what_went_out_is_remembered_over_a_crash_up_to_a_block_in_advance() {
    let folder = tempfile::tempdir().unwrap();
    let now = Instant::now();
    let most = 6400;
    let rule = bounds("x", total(most));
    let pass = quotas(folder.path()).begin(&rule, None, now).unwrap();
    pass.send(1000).unwrap();
    drop(pass);
    let again = quotas(folder.path());
    let exceeded = again.begin(&rule, Some(most - 999), now).unwrap_err();
    assert_eq!(exceeded.bound, Bound::BytesOut);
    let left = most - 1000 - most / BLOCKS;
    let pass = again.begin(&rule, Some(left), now).unwrap();
    pass.send(usize::try_from(left).unwrap()).unwrap();
    let exceeded = again.begin(&rule, None, now).unwrap_err();
    assert_eq!(
        exceeded.sentence,
        "rule `x` lets 6400 bytes out in the whole run, and they are used up"
    );
    again
        .begin(&rule, Some(0), now)
        .expect("a request without a body sends none");
}

#[test]
fn what_was_not_sent_after_all_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let rule = bounds("x", total(10));
    let stream = quotas.begin(&rule, None, Instant::now()).unwrap();
    stream.take(10).unwrap();
    stream.give_back(4);
    stream.take(4).unwrap();
    assert!(stream.take(1).is_err());
}

#[test]
fn a_session_that_is_removed_takes_its_counts_along() {
    let folder = tempfile::tempdir().unwrap();
    let rule = bounds("x", total(10));
    let quotas = quotas(folder.path());
    quotas
        .begin(&rule, None, Instant::now())
        .unwrap()
        .send(10)
        .unwrap();
    quotas.keeper.remove("run-1").unwrap();
    assert!(quotas.keeper.spent("run-1").unwrap().is_empty());
}

#[test]
fn what_passes_faster_than_the_bandwidth_waits_for_its_pace() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas(folder.path());
    let limits = Limits {
        bandwidth: Some(1000),
        ..Limits::default()
    };
    let (rule, now) = (bounds("a", limits), Instant::now());
    assert_eq!(quotas.pace(&rule, 100, now), None, "a head start");
    let waits = [quotas.pace(&rule, 900, now), quotas.pace(&rule, 500, now)];
    assert_eq!(
        waits,
        [
            Some(Duration::from_millis(900)),
            Some(Duration::from_millis(1400))
        ]
    );
    let later = now + Duration::from_secs(10);
    assert_eq!(
        quotas.pace(&rule, 100, later),
        None,
        "time that passed is no credit beyond the head start"
    );
    assert_eq!(quotas.pace(&rule, 1000, later), Some(Duration::from_secs(1)));
}
