//! Pushes looked into in pieces of any size: what whole objects and deltas bring is seen, with its limits.
use super::*;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use std::convert::Infallible;
use std::io::Write;

fn entry(kind: u8, base: &[u8], content: &[u8]) -> Vec<u8> {
    let (mut size, mut byte) = (content.len() >> 4, kind << 4 | (content.len() & 15) as u8);
    let mut out = Vec::new();
    while size > 0 {
        out.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    out.push(byte);
    out.extend(base);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    out.extend(encoder.finish().unwrap());
    out
}

fn stream(options: &[&str], entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    pkt_line::write(b"", b"0 1 refs/heads/a\0report-status push-options", &mut out);
    pkt_line::flush(&mut out);
    for option in options {
        pkt_line::write(b"", option.as_bytes(), &mut out);
    }
    if !options.is_empty() {
        pkt_line::flush(&mut out);
    }
    out.extend(b"PACK\0\0\0\x02");
    out.extend((entries.len() as u32).to_be_bytes());
    out.extend(entries.concat());
    out.extend([7; 20]);
    out
}

/// What is seen, each stretch by itself.
fn seen(bytes: &[u8], piece: usize, budget: u64) -> (Vec<Vec<u8>>, bool) {
    let mut contents = Contents::new(budget);
    let mut stretches = vec![Vec::new()];
    for piece in bytes.chunks(piece) {
        let Ok(()) = contents.feed(piece, &mut |piece| {
            match piece {
                Piece::Data(data) => stretches.last_mut().unwrap().extend_from_slice(data),
                Piece::End => stretches.push(Vec::new()),
            }
            Ok::<(), Infallible>(())
        });
    }
    stretches.retain(|stretch| !stretch.is_empty());
    (stretches, contents.is_whole())
}

/// Sizes 300 and 310; adds, copies, adds.
fn delta() -> Vec<u8> {
    let mut delta = vec![0xac, 0x02, 0xb6, 0x02, 5];
    delta.extend(b"first");
    delta.extend([0b1001_0011, 1, 2, 200]);
    delta.push(6);
    delta.extend(b"second");
    delta
}

#[test]
fn objects_and_what_deltas_add_are_seen_stretch_by_stretch() {
    let entries = [
        entry(1, &[], b"a commit"),
        entry(3, &[], b"a file"),
        entry(7, &[9; 20], &delta()),
        entry(6, &[1], &delta()),
    ];
    for options in [&[][..], &["ci.skip", "PACKED"]] {
        let bytes = stream(options, &entries);
        for piece in [1, 2, 7, bytes.len()] {
            let (stretches, whole) = seen(&bytes, piece, 1 << 20);
            let texts: Vec<_> = stretches.iter().map(|one| String::from_utf8_lossy(one)).collect();
            assert_eq!(
                texts,
                ["a commit", "a file", "first", "second", "first", "second"]
            );
            assert!(whole);
        }
    }
}

#[test]
fn what_is_beyond_the_budget_is_said_not_to_be_looked_into() {
    let bytes = stream(
        &[],
        &[entry(3, &[], &vec![b'a'; 100_000]), entry(3, &[], b"later")],
    );
    let (stretches, whole) = seen(&bytes, bytes.len(), 50_000);
    assert!(!whole);
    assert!(stretches.concat().len() <= 50_000);
    assert!(seen(&bytes, bytes.len(), 200_000).1);
}

#[test]
fn a_push_without_a_pack_is_whole_and_nonsense_is_not() {
    let mut nothing = Vec::new();
    pkt_line::write(b"", b"1 0 refs/heads/a\0report-status", &mut nothing);
    pkt_line::flush(&mut nothing);
    assert_eq!(seen(&nothing, 3, 100), (Vec::new(), true));
    for nonsense in [
        &b"zzzz"[..],
        b"0000PACK\0\0\0\x09\0\0\0\x01",
        b"0000PACK\0\0\0\x02\0\0\0\x01\x30zzzzzz",
    ] {
        assert!(!seen(nonsense, 5, 100).1, "{nonsense:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..20) {
        let mut push = b"0000PACK\0\0\0\x02\0\0\0\x05".to_vec();
        push.extend(&bytes);
        let _told = seen(&push, piece, 1000);
        let _told = seen(&bytes, piece, 1000);
    }
}
