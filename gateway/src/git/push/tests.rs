//! Pushes read in any pieces, as git and as nobody sends them.
use super::*;
use crate::git::object::Kind;
use flate2::{Compression, write::ZlibEncoder};
use proptest::prelude::*;
use std::io::Write;

const BOUNDS: Bounds = Bounds {
    refs: 10,
    bytes: 1 << 20,
};
const ZERO: &str = "0000000000000000000000000000000000000000";

fn commit(parents: &[ObjectId], message: &str) -> (ObjectId, Vec<u8>) {
    let mut text = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n".to_owned();
    for parent in parents {
        text.push_str(&format!("parent {parent:?}\n"));
    }
    text.push_str(&format!("author A <a@b.test> 0 +0000\n\n{message}\n"));
    (
        ObjectId::of(Hash::Sha1, Kind::Commit, text.as_bytes()),
        text.into_bytes(),
    )
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Type, base and size, as they stand before an object.
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
    out.extend(deflated(content));
    out
}

fn pack(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"PACK\0\0\0\x02".to_vec();
    out.extend((entries.len() as u32).to_be_bytes());
    out.extend(entries.concat());
    out.extend([0; 20]);
    out
}

fn stream(commands: &[String], capabilities: &str, pack: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, command) in commands.iter().enumerate() {
        let tail = if number == 0 {
            format!("\0{capabilities}")
        } else {
            String::new()
        };
        pkt_line::write(b"", format!("{command}{tail}").as_bytes(), &mut out);
    }
    pkt_line::flush(&mut out);
    out.extend(pack);
    out
}

fn read(bytes: &[u8], piece: usize) -> Result<Push, PushFault> {
    let mut reader = PushReader::new(BOUNDS);
    for piece in bytes.chunks(piece) {
        if let Reading::Known(push) = reader.feed(piece)? {
            return Ok(push);
        }
    }
    reader.end()
}

fn changes(push: &Push) -> Vec<(&str, Change)> {
    push.changes
        .iter()
        .map(|(name, change)| (name.as_str(), *change))
        .collect()
}

/// Moves `main` from the first of three commits to the merge, which is a delta against another commit.
fn forward() -> Vec<u8> {
    let (old, _) = commit(&[], "old");
    let (side, side_text) = commit(&[old], "side");
    let (new, new_text) = commit(&[side, old], "new");
    // The whole of the new one is added; nothing is copied but its first line.
    let rest = &new_text[46..];
    let mut delta = vec![side_text.len() as u8 | 0x80, (side_text.len() >> 7) as u8];
    delta.extend([
        new_text.len() as u8 | 0x80,
        (new_text.len() >> 7) as u8,
        0b1001_0000,
        46,
    ]);
    for piece in rest.chunks(100) {
        delta.push(piece.len() as u8);
        delta.extend(piece);
    }
    let first = entry(1, &[], &side_text);
    let distance = [
        0x80 | ((first.len() >> 7) as u8).wrapping_sub(1),
        (first.len() & 0x7f) as u8,
    ];
    let distance = if first.len() < 128 {
        &distance[1..]
    } else {
        &distance
    };
    let pack = pack(&[first.clone(), entry(6, distance, &delta), entry(2, &[], b"tree")]);
    stream(
        &[format!("{old:?} {new:?} refs/heads/main")],
        " report-status side-band-64k",
        &pack,
    )
}

proptest! {
    #[test]
    fn a_move_forward_is_shown_however_it_is_cut(piece in 1_usize..400) {
        let push = read(&forward(), piece).unwrap();
        prop_assert_eq!(changes(&push), [("refs/heads/main", Change::Forward)]);
        prop_assert!(push.asks("side-band-64k") && !push.updates()[0].forced);
    }

    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0_usize..400, piece in 1_usize..50) {
        let mut push = forward();
        push.truncate(at);
        push.extend(bytes);
        let _read = read(&push, piece);
    }
}

#[test]
fn commands_alone_tell_of_what_is_made_and_taken_away() {
    let (one, _) = commit(&[], "one");
    let commands = [
        format!("{ZERO} {one:?} refs/heads/new"),
        format!("{one:?} {ZERO} refs/heads/gone\n"),
    ];
    let push = read(&stream(&commands, "agent=git/2", b""), 7).unwrap();
    assert_eq!(
        changes(&push),
        [
            ("refs/heads/new", Change::Created),
            ("refs/heads/gone", Change::Deleted)
        ]
    );
    assert_eq!(
        push.updates()
            .iter()
            .map(|update| update.forced)
            .collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(push.hint(), None);
}

#[test]
fn what_the_pack_does_not_show_counts_as_forced() {
    let (old, _) = commit(&[], "old");
    let (new, text) = commit(&[old], "new");
    let (other, other_text) = commit(&[], "other");
    let command = |to: ObjectId| [format!("{old:?} {to:?} refs/heads/main")];
    let unknown = {
        let mut base = [0; 20];
        base[0] = 1;
        entry(7, &base, b"\x01\x01\x01x")
    };
    for (what, bytes) in [
        ("no commits", stream(&command(new), "", &pack(&[]))),
        (
            "another root",
            stream(&command(other), "", &pack(&[entry(1, &[], &other_text)])),
        ),
        (
            "commits after a tree",
            stream(
                &command(new),
                "",
                &pack(&[entry(2, &[], b"t"), entry(1, &[], &text)]),
            ),
        ),
        (
            "torn",
            stream(&command(new), "", &pack(&[entry(1, &[], &text)])[..20]),
        ),
        ("no pack", stream(&command(new), "", b"PUCK\0\0\0\x02\0\0\0\x01")),
    ] {
        let push = read(&bytes, 11).unwrap();
        assert_eq!(changes(&push), [("refs/heads/main", Change::Unshown)], "{what}");
        assert!(push.updates()[0].forced && push.hint().is_some(), "{what}");
    }
    let after = stream(&command(new), "", &pack(&[unknown, entry(1, &[], &text)]));
    assert_eq!(
        changes(&read(&after, 11).unwrap()),
        [("refs/heads/main", Change::Forward)]
    );
}

#[test]
fn options_and_shallow_lines_are_read_over() {
    let (old, _) = commit(&[], "old");
    let (new, text) = commit(&[old], "new");
    let commands = [
        format!("shallow {old:?}"),
        format!("{old:?} {new:?} refs/heads/main\0push-options"),
    ];
    let mut bytes = stream(&commands, "", b"");
    pkt_line::write(b"", b"ci.skip", &mut bytes);
    pkt_line::flush(&mut bytes);
    bytes.extend(pack(&[entry(1, &[], &text), entry(3, &[], b"file")]));
    assert_eq!(
        changes(&read(&bytes, 5).unwrap()),
        [("refs/heads/main", Change::Forward)]
    );
}

#[test]
fn what_could_be_read_in_two_ways_is_no_push() {
    let (one, _) = commit(&[], "one");
    let long = "0".repeat(64);
    for command in [
        format!("{ZERO} {one:?} "),
        format!("{ZERO} {one:?} refs/heads/a b"),
        format!("{ZERO} {one:?} refs/heads/a\r"),
        format!("{ZERO} {one:?}  refs/heads/a"),
        format!("{ZERO} {long} refs/heads/a"),
        format!("{ZERO} xyz refs/heads/a"),
        "ERR no".to_owned(),
    ] {
        let fault = read(&stream(std::slice::from_ref(&command), "", b""), 9).unwrap_err();
        assert!(matches!(fault, PushFault::Command(_)), "{command}: {fault}");
    }
    assert_eq!(
        read(&stream(&["push-cert".to_owned()], "", b""), 9),
        Err(PushFault::Signed)
    );
    assert!(matches!(read(b"0001", 9), Err(PushFault::Line(_))));
    assert_eq!(read(b"0032", 9), Err(PushFault::Torn));
}

#[test]
fn a_push_of_nothing_changes_nothing() {
    assert_eq!(read(b"0000", 1).unwrap().changes, []);
}

#[test]
fn too_many_refs_and_too_long_commands_are_told() {
    let (one, _) = commit(&[], "one");
    let commands: Vec<String> = (0..11)
        .map(|n| format!("{ZERO} {one:?} refs/heads/{n}"))
        .collect();
    assert_eq!(read(&stream(&commands, "", b""), 100), Err(PushFault::Refs(10)));
    let mut reader = PushReader::new(Bounds { refs: 10, bytes: 50 });
    let line = stream(&commands[..1], "", b"");
    assert_eq!(reader.feed(&line[..60]), Err(PushFault::Bytes(50)));
}

#[test]
fn a_pack_beyond_the_bounds_shows_no_more() {
    let (old, _) = commit(&[], "old");
    let (new, text) = commit(&[old], "new");
    let (_, filling) = commit(&[], &"filling ".repeat(100));
    let bytes = stream(
        &[format!("{old:?} {new:?} refs/heads/main")],
        "",
        &pack(&[entry(1, &[], &filling), entry(1, &[], &text)]),
    );
    let mut reader = PushReader::new(Bounds { refs: 1, bytes: 150 });
    let Ok(Reading::Known(push)) = reader.feed(&bytes[..180]) else {
        panic!("known by its bounds");
    };
    assert_eq!(changes(&push), [("refs/heads/main", Change::Unshown)]);
}
