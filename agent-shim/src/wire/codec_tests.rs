//! Tests of the codec: any split of the bytes gives the same frames, and no bytes make it panic.
use super::{decode, encode};
use crate::wire::{BODY_LIMIT, Frame, Head, Stream, ToShim, WireError};
use crate::wire::{FromShim, HEAD_LIMIT};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

fn output(sequence: u64, body: Vec<u8>) -> Frame<FromShim> {
    let message = FromShim::Output {
        id: format!("c{sequence}"),
        stream: Stream::Out,
    };
    Frame {
        head: Head {
            sequence,
            acknowledged: 0,
            message: Some(message),
        },
        body: Bytes::from(body),
    }
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_frames(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
        cuts in proptest::collection::vec(1usize..64, 1..64),
    ) {
        let frames: Vec<_> = bodies.into_iter().zip(1..).map(|(body, n)| output(n, body)).collect();
        let mut wire = BytesMut::new();
        for frame in &frames {
            encode(frame, &mut wire).unwrap();
        }
        let mut seen = Vec::new();
        let mut buffer = BytesMut::new();
        let mut rest: &[u8] = &wire;
        let mut cuts = cuts.into_iter().cycle();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            buffer.extend_from_slice(piece);
            rest = later;
            while let Some(frame) = decode::<FromShim>(&mut buffer).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(seen, frames);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode::<ToShim>(&mut buffer) {}
    }
}

#[test]
fn a_length_above_the_limit_is_refused_before_the_bytes_come() {
    let mut head = BytesMut::from(&(HEAD_LIMIT + 1).to_be_bytes()[..]);
    head.extend_from_slice(&[0; 4]);
    assert!(matches!(
        decode::<ToShim>(&mut head),
        Err(WireError::TooLong { part: "head", .. })
    ));
    let mut body = BytesMut::from(&[0, 0, 0, 2][..]);
    body.extend_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(
        decode::<ToShim>(&mut body),
        Err(WireError::TooLong { part: "body", .. })
    ));
}

#[test]
fn a_body_above_the_limit_is_not_sent() {
    let mut out = BytesMut::new();
    let frame = output(1, vec![0; BODY_LIMIT as usize + 1]);
    assert!(matches!(
        encode(&frame, &mut out),
        Err(WireError::TooLong { part: "body", .. })
    ));
    assert!(out.is_empty());
}

#[test]
fn an_unknown_message_is_an_error_and_not_a_panic() {
    let head = br#"{"sequence":1,"acknowledged":0,"message":{"kind":"format-disk"}}"#;
    let mut buffer = BytesMut::from(&(head.len() as u32).to_be_bytes()[..]);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(head);
    assert!(matches!(
        decode::<ToShim>(&mut buffer),
        Err(WireError::BadHead(_))
    ));
}
