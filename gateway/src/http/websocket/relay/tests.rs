//! One way of a WebSocket, cut anywhere: the same messages as looking at each whole.
use super::*;
use crate::ledger::Traffic;
use crate::secret::SessionSecrets;
use crate::secret::testing::{SECRET, permit, secrets};
use proptest::prelude::*;
use std::sync::Arc;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush};

const LIMIT: u64 = 1 << 20;

fn relay(from: Side, coding: Option<Coding>, secrets: &Arc<SessionSecrets>) -> Relay {
    let secrets = secrets.clone();
    let terms = (permit("forge", "bearer"), 1000);
    let sight = Sight::new(
        Box::new(move || secrets.clone()),
        from,
        terms,
        Arc::<Traffic>::default(),
    );
    Relay::new(from, coding, sight, LIMIT)
}

/// An end that compresses in the plainest way, with the window that was agreed on.
struct Packer(Deflate, Coding);

impl Packer {
    fn new(coding: Coding) -> Self {
        // A window of 256 bytes cannot be written; stored blocks need none.
        let (level, bits) = match coding.window_bits {
            8 => (0, 9),
            bits => (6, bits),
        };
        Self(Deflate::new(level, false, bits), coding)
    }

    fn pack(&mut self, text: &[u8]) -> Vec<u8> {
        if text.is_empty() {
            return vec![0];
        }
        let mut out = vec![0; text.len() + text.len() / 8 + 256];
        let before = self.0.total_out();
        self.0.compress(text, &mut out, DeflateFlush::SyncFlush).unwrap();
        out.truncate((self.0.total_out() - before) as usize);
        assert_eq!(out.split_off(out.len() - 4), [0, 0, 0xff, 0xff]);
        if !self.1.takeover {
            self.0.reset();
        }
        out
    }
}

fn unpack(stream: &mut Inflate, coding: Coding, packed: &[u8]) -> Vec<u8> {
    let (mut out, before) = (vec![0; LIMIT as usize], stream.total_out());
    let packed = [packed, &[0, 0, 0xff, 0xff]].concat();
    stream
        .decompress(&packed, &mut out, InflateFlush::SyncFlush)
        .unwrap();
    out.truncate((stream.total_out() - before) as usize);
    if !coding.takeover {
        *stream = Inflate::new(false, coding.window_bits);
    }
    out
}

type Got = (OpCode, Vec<u8>);

/// What the other end reads: messages, and the payloads of control frames.
fn arrived(mut bytes: BytesMut, from: Side, coding: Option<Coding>) -> (Vec<Got>, Vec<Vec<u8>>) {
    let (mut messages, mut controls) = (Vec::new(), Vec::new());
    let mut stream = coding.map(|coding| Inflate::new(false, coding.window_bits.max(9)));
    let mut begun: Option<(OpCode, bool, Vec<u8>)> = None;
    while let Some(head) = frame::read(&mut bytes, from).unwrap() {
        let mut payload = bytes.split_to(head.length as usize);
        if let Some(key) = head.mask {
            frame::mask(&mut payload, key, 0);
        }
        match head.opcode {
            OpCode::Control(_) => controls.push(payload.to_vec()),
            OpCode::Data(Data::Continue) => begun.as_mut().unwrap().2.extend_from_slice(&payload),
            opcode => {
                assert!(begun.replace((opcode, head.coded, payload.to_vec())).is_none());
            }
        }
        if let (OpCode::Data(_), true) = (head.opcode, head.last) {
            let (opcode, coded, text) = begun.take().unwrap();
            let text = match coded {
                true => unpack(stream.as_mut().unwrap(), coding.unwrap(), &text),
                false => text,
            };
            messages.push((opcode, text));
        }
    }
    assert!(begun.is_none() && bytes.is_empty(), "half a message");
    (messages, controls)
}

/// Puts bytes through in pieces of these sizes.
fn through(relay: &mut Relay, bytes: &[u8], sizes: &[usize]) -> (BytesMut, Result<(), Violation>) {
    let (mut input, mut out, mut rest) = (BytesMut::new(), BytesMut::new(), bytes);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        input.extend_from_slice(piece);
        rest = after;
        loop {
            let mut some = BytesMut::new();
            let progress = relay.work(&mut input, &mut some);
            out.unsplit(some);
            match progress {
                Ok(Progress::Full) => {}
                Ok(Progress::Dry | Progress::Closed(_)) => break,
                Err(violation) => return (out, Err(violation)),
            }
        }
    }
    (out, Ok(()))
}

#[derive(Debug, Clone)]
struct Sent {
    text: String,
    binary: bool,
    coded: bool,
    cuts: Vec<usize>,
}

impl Sent {
    fn opcode(&self) -> OpCode {
        OpCode::Data(if self.binary { Data::Binary } else { Data::Text })
    }
}

/// Messages in frames, with a ping between each two.
fn framed(messages: &[Sent], from: Side, coding: Option<Coding>) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut out, writer, mut pings) = (BytesMut::new(), Writer::new(from), Vec::new());
    let mut packer = coding.map(Packer::new);
    for message in messages {
        let coded = message.coded && packer.is_some();
        let packed = match &mut packer {
            Some(packer) if coded => packer.pack(message.text.as_bytes()),
            _ => message.text.clone().into_bytes(),
        };
        let (mut rest, mut opcode, mut first) = (&packed[..], message.opcode(), coded);
        for cut in &message.cuts {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            writer.write(&mut out, opcode, (false, first), piece).unwrap();
            (rest, opcode, first) = (after, OpCode::Data(Data::Continue), false);
            let ping = pings.len().to_string().into_bytes();
            writer
                .write(&mut out, OpCode::Control(Control::Ping), (true, false), &ping)
                .unwrap();
            pings.push(ping);
        }
        writer.write(&mut out, opcode, (true, first), rest).unwrap();
    }
    (out.to_vec(), pings)
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z{}\" ]{0,60}",
        2 => Just(SECRET.to_owned()),
        1 => (1..SECRET.len()).prop_map(|end| SECRET[..end].to_owned()),
        1 => (1000..70_000_usize).prop_map(|count| "much of the same ".repeat(count / 17)),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let text = proptest::collection::vec(piece(), 0..6).prop_map(|pieces| pieces.concat());
    let cuts = proptest::collection::vec(0..200_usize, 0..4);
    (text, any::<bool>(), any::<bool>(), cuts).prop_map(|(text, binary, coded, cuts)| Sent {
        text,
        binary,
        coded,
        cuts,
    })
}

fn coding() -> impl Strategy<Value = Option<Coding>> {
    proptest::option::weighted(
        0.8,
        (8..=15_u8, any::<bool>()).prop_map(|(window_bits, takeover)| Coding {
            window_bits,
            takeover,
        }),
    )
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1..20_usize, 100..70_000_usize];
    proptest::collection::vec(size, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_comes_in_is_what_redacting_each_whole_message_gives(
        messages in proptest::collection::vec(sent(), 1..6), coding in coding(), sizes in sizes(),
    ) {
        let (secrets, stand_in) = secrets();
        let (bytes, pings) = framed(&messages, Side::Upstream, coding);
        let mut relay = relay(Side::Upstream, coding, &secrets);
        let (out, ended) = through(&mut relay, &bytes, &sizes);
        prop_assert_eq!(ended, Ok(()));
        let (got, controls) = arrived(out, Side::Upstream, coding);
        let clean = |sent: &Sent| (sent.opcode(), sent.text.replace(SECRET, &stand_in).into_bytes());
        prop_assert_eq!(got, messages.iter().map(clean).collect::<Vec<_>>());
        prop_assert_eq!(controls, pings);
    }

    #[test]
    fn what_goes_out_is_unchanged_or_ends_before_the_value_is_whole(
        messages in proptest::collection::vec(sent(), 1..6), coding in coding(), sizes in sizes(),
    ) {
        let (secrets, _) = secrets();
        let (bytes, pings) = framed(&messages, Side::Client, coding);
        let mut relay = relay(Side::Client, coding, &secrets);
        let (mut out, ended) = through(&mut relay, &bytes, &sizes);
        let plain: Vec<_> = messages.iter().map(|sent| (sent.opcode(), sent.text.clone().into_bytes())).collect();
        match messages.iter().position(|sent| sent.text.contains(SECRET)) {
            Some(at) => {
                prop_assert_eq!(ended.unwrap_err().code, CloseCode::Policy);
                // The message that was cut is ended here, so that it can be read as far as it came.
                let end = if relay.message.as_ref().is_some_and(|message| message.begun) { Some(OpCode::Data(Data::Continue)) } else { None };
                let coded = relay.deflater().is_some();
                if let Some(opcode) = end {
                    let empty: &[u8] = if coded { &[0] } else { &[] };
                    relay.writer().write(&mut out, opcode, (true, false), empty).unwrap();
                }
                let (got, _) = arrived(out, Side::Client, coding);
                prop_assert_eq!(&got[..at], &plain[..at]);
                let begun = got.get(at).map(|(_, text)| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
                prop_assert!(!begun.contains(SECRET) && messages[at].text.starts_with(&begun), "{}", begun);
            }
            None => {
                prop_assert_eq!(ended, Ok(()));
                let (got, controls) = arrived(out, Side::Client, coding);
                prop_assert_eq!(got, plain);
                prop_assert_eq!(controls, pings);
            }
        }
    }

    #[test]
    fn without_secrets_messages_pass_as_they_are(
        messages in proptest::collection::vec(sent(), 1..6), coding in coding(), sizes in sizes(),
    ) {
        let (bytes, pings) = framed(&messages, Side::Upstream, coding);
        let mut relay = relay(Side::Upstream, coding, &Arc::new(SessionSecrets::none()));
        let (out, ended) = through(&mut relay, &bytes, &sizes);
        prop_assert_eq!(ended, Ok(()));
        let (got, controls) = arrived(out, Side::Upstream, coding);
        let plain = |sent: &Sent| (sent.opcode(), sent.text.clone().into_bytes());
        prop_assert_eq!(got, messages.iter().map(plain).collect::<Vec<_>>());
        prop_assert_eq!(controls, pings);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), sizes in sizes()) {
        let (secrets, _) = secrets();
        for from in [Side::Client, Side::Upstream] {
            let coding = Some(Coding { window_bits: 15, takeover: true });
            let (_, _ended) = through(&mut relay(from, coding, &secrets), &bytes, &sizes);
        }
    }
}

#[test]
fn what_breaks_the_protocol_ends_it_with_the_right_code() {
    let (secrets, _) = secrets();
    let long = [&[0x82, 127][..], &(LIMIT + 1).to_be_bytes()].concat();
    let cases: [(&str, &[u8], CloseCode); 15] = [
        ("reserved bits", &[0xa1, 0], CloseCode::Protocol),
        ("compressed without terms", &[0xc1, 0], CloseCode::Protocol),
        ("an unknown opcode", &[0x83, 0], CloseCode::Protocol),
        (
            "a masked frame of the upstream",
            &[0x81, 0x80, 1, 2, 3, 4],
            CloseCode::Protocol,
        ),
        ("a ping in pieces", &[0x09, 0], CloseCode::Protocol),
        ("a long ping", &[0x89, 126, 0, 126], CloseCode::Protocol),
        ("a compressed ping", &[0xc9, 0], CloseCode::Protocol),
        ("a continuation of nothing", &[0x80, 0], CloseCode::Protocol),
        ("a message in a message", &[0x01, 0, 0x01, 0], CloseCode::Protocol),
        (
            "a length that is not in its shortest form",
            &[0x82, 126, 0, 5],
            CloseCode::Protocol,
        ),
        (
            "a length that is none",
            &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0],
            CloseCode::Protocol,
        ),
        ("half a close code", &[0x88, 1, 3], CloseCode::Protocol),
        (
            "a close code that is not for sending",
            &[0x88, 2, 3, 0xed],
            CloseCode::Protocol,
        ),
        (
            "a close reason that is no text",
            &[0x88, 3, 3, 0xe8, 0xff],
            CloseCode::Invalid,
        ),
        ("a message that is too long", &long, CloseCode::Size),
    ];
    for (what, bytes, code) in cases {
        let (_, ended) = through(&mut relay(Side::Upstream, None, &secrets), bytes, &[1]);
        assert_eq!(ended.unwrap_err().code, code, "{what}");
    }
    let (_, ended) = through(&mut relay(Side::Client, None, &secrets), &[0x81, 0], &[1]);
    assert_eq!(
        ended.unwrap_err().code,
        CloseCode::Protocol,
        "a bare frame of the client"
    );
}

#[test]
fn a_message_that_is_cut_passes_piece_by_piece_and_a_ping_in_it_at_once() {
    let (secrets, stand_in) = secrets();
    let mut relay = relay(Side::Upstream, None, &secrets);
    let (mut input, mut out) = (BytesMut::from(&b"\x01\x05hello"[..]), BytesMut::new());
    assert_eq!(relay.work(&mut input, &mut out), Ok(Progress::Dry));
    assert_eq!(&out.split()[..], b"\x01\x05hello");
    // The beginning of the value is held back, and the ping is not.
    let (first, second) = SECRET.split_at(10);
    input.extend_from_slice(&[&[0x00, 10], first.as_bytes(), b"\x89\x02hi"].concat());
    assert_eq!(relay.work(&mut input, &mut out), Ok(Progress::Dry));
    assert_eq!(&out.split()[..], b"\x89\x02hi");
    input.extend_from_slice(&[&[0x80, second.len() as u8], second.as_bytes()].concat());
    assert_eq!(relay.work(&mut input, &mut out), Ok(Progress::Dry));
    assert_eq!(&out[..2], [0x80, stand_in.len() as u8]);
    assert_eq!(&out[2..], stand_in.as_bytes());
}

#[test]
fn values_in_control_frames_are_taken_out_and_kept_in() {
    let (secrets, stand_in) = secrets();
    let frame = |from: Side, control, payload: &str| {
        let mut out = BytesMut::new();
        let writer = Writer::new(from);
        writer
            .write(
                &mut out,
                OpCode::Control(control),
                (true, false),
                payload.as_bytes(),
            )
            .unwrap();
        out
    };
    let ping = frame(Side::Upstream, Control::Ping, SECRET);
    let (out, ended) = through(&mut relay(Side::Upstream, None, &secrets), &ping, &[1000]);
    assert_eq!(ended, Ok(()));
    assert_eq!(arrived(out, Side::Upstream, None).1, [stand_in.into_bytes()]);
    let pong = frame(Side::Client, Control::Pong, SECRET);
    let (out, ended) = through(&mut relay(Side::Client, None, &secrets), &pong, &[1000]);
    assert!(out.is_empty());
    assert_eq!(ended.unwrap_err().code, CloseCode::Policy);
}

#[test]
fn what_expands_without_measure_ends_it_with_1009() {
    let (secrets, _) = secrets();
    let coding = Coding {
        window_bits: 15,
        takeover: true,
    };
    let message = |count: usize| Sent {
        text: "x".repeat(count),
        binary: false,
        coded: true,
        cuts: Vec::new(),
    };
    let (bytes, _) = framed(&[message(100 << 20)], Side::Upstream, Some(coding));
    let mut relay = relay(Side::Upstream, Some(coding), &secrets);
    let (out, ended) = through(&mut relay, &bytes, &[100_000]);
    assert_eq!(ended.unwrap_err().code, CloseCode::Size);
    assert!(out.len() < 2 << 20, "{}", out.len());
}

#[test]
fn credentials_that_come_later_are_looked_for_or_the_window_is_unknown() {
    let (bound, stand_in) = secrets();
    let coding = Coding {
        window_bits: 15,
        takeover: true,
    };
    let now = Arc::new(arc_swap::ArcSwap::from(Arc::new(SessionSecrets::none())));
    let source = now.clone();
    let sight = Sight::new(
        Box::new(move || source.load_full()),
        Side::Upstream,
        (permit("forge", "bearer"), 1000),
        Arc::<Traffic>::default(),
    );
    let mut relay = Relay::new(Side::Upstream, Some(coding), sight, LIMIT);
    let sent = |coded| Sent {
        text: format!("it is {SECRET}"),
        binary: false,
        coded,
        cuts: Vec::new(),
    };
    let (coded, _) = framed(&[sent(true)], Side::Upstream, Some(coding));
    let (plain, _) = framed(&[sent(false)], Side::Upstream, None);
    let (_, ended) = through(&mut relay, &coded, &[1000]);
    assert_eq!(ended, Ok(()));
    now.store(bound);
    let (out, ended) = through(&mut relay, &plain, &[1000]);
    assert_eq!(ended, Ok(()));
    let (got, _) = arrived(out, Side::Upstream, None);
    assert_eq!(got[0].1, format!("it is {stand_in}").into_bytes());
    let (out, ended) = through(&mut relay, &coded, &[1000]);
    assert!(out.is_empty());
    assert_eq!(ended.unwrap_err().code, CloseCode::Away);
}
