//! What looking for secrets costs by the byte, beside the automata of `aho-corasick`, which look for the plain values alone.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up stops")]

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sallyport_gateway::secret::{Binding, SessionSecrets, Value, placeholder};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// As much as one read of a socket brings at best.
const PIECE: usize = 16 * 1024;
const TEXT: usize = 1024 * 1024;

/// Numbers without a pattern (S. Vigna's SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn word(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        (0..length).map(|_| char::from(LETTERS[self.below(62)])).collect()
    }
}

/// A session's secrets with these values, in all forms that the gateway knows.
fn session(values: &[String]) -> SessionSecrets {
    let bindings = values.iter().enumerate().map(|(index, value)| {
        let value = Value::new(value.clone().into_bytes());
        let minted = placeholder::mint(&value).unwrap().unwrap();
        Binding {
            name: format!("secret-{index}"),
            places: Vec::new(),
            placeholders: vec![minted.text],
            value: Some(Arc::new(value)),
            ..Binding::default()
        }
    });
    SessionSecrets::new(bindings.collect()).unwrap()
}

fn repeated(pieces: impl Iterator<Item = String>) -> Vec<u8> {
    let mut text = Vec::with_capacity(TEXT + PIECE);
    for piece in pieces {
        text.extend_from_slice(piece.as_bytes());
        if text.len() >= TEXT {
            break;
        }
    }
    text.truncate(TEXT);
    text
}

/// Texts in which nothing is found: program text, JSON, bytes by chance, and values whose last letter is another one.
fn texts(values: &[String]) -> [(&'static str, Vec<u8>); 4] {
    let mut random = Random(7);
    let source = std::iter::repeat_n(include_str!("search.rs").to_owned(), TEXT / 1000);
    let json = (0..).map(|id| {
        format!(
            "{{\"id\":{id},\"title\":\"build {} of the main branch\",\"state\":\"open\",\"labels\":[\"ci\",\"linux\"],\"size\":{}}},\n",
            id % 97,
            id * 31
        )
    });
    let bytes = (0..TEXT / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut random = Random(8);
    let nearly = std::iter::from_fn(|| {
        let value = &values[random.below(values.len())];
        Some(format!("{}~", &value[..value.len() - 1]))
    });
    [
        ("program text", repeated(source)),
        ("JSON", repeated(json)),
        ("bytes by chance", bytes),
        ("hostile: values but for their last letter", repeated(nearly)),
    ]
}

/// As the gateway looks at an answer: what passes is not copied.
fn is_clean(secrets: &SessionSecrets, text: &[u8]) -> bool {
    let mut redactor = secrets.redactor().unwrap();
    let mut out = BytesMut::with_capacity(2 * PIECE);
    for piece in text.chunks(PIECE) {
        if !redactor.passes(piece) {
            redactor.push(piece, &mut out);
            out.clear();
        }
    }
    redactor.found().is_empty()
}

fn search(criterion: &mut Criterion) {
    for (count, length) in [(20, 36), (1000, 20), (1000, 40)] {
        let mut random = Random(42);
        let values: Vec<String> = (0..count).map(|_| random.word(length)).collect();
        let ours = session(&values);
        let automaton = |kind| {
            AhoCorasick::builder()
                .kind(Some(kind))
                .match_kind(MatchKind::LeftmostLongest)
                .build(&values)
                .unwrap()
        };
        let dfa = automaton(AhoCorasickKind::DFA);
        let nfa = automaton(AhoCorasickKind::ContiguousNFA);
        for (name, text) in texts(&values) {
            let mut group = criterion.benchmark_group(format!("{count} secrets of {length} bytes, {name}"));
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_function("ours, all forms", |bencher| {
                bencher.iter(|| assert!(is_clean(&ours, black_box(&text))));
            });
            for (what, automaton) in [("DFA", &dfa), ("contiguous NFA", &nfa)] {
                group.bench_function(format!("aho-corasick {what}, plain values"), |bencher| {
                    let finds = |piece: &[u8]| automaton.is_match(piece);
                    bencher.iter(|| assert!(!black_box(&text).chunks(PIECE).any(finds)));
                });
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = search
}
criterion_main!(benches);
