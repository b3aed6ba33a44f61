//! Answers and requests through every coding, cut anywhere: the same result as looking at the whole.
use super::*;
use crate::secret::testing::{self, SECRET, secrets};
use futures_util::StreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::StreamBody;
use proptest::prelude::*;
use std::sync::Arc;

fn encoded(text: &[u8], codings: &[Coding]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(codings), BytesMut::new());
    encoder.encode(text, &mut out).unwrap();
    encoder.finish(&mut out).unwrap();
    out.to_vec()
}

fn decoded(bytes: &[u8], codings: &[Coding]) -> io::Result<Vec<u8>> {
    if codings.is_empty() {
        return Ok(bytes.to_vec());
    }
    let (mut decoder, mut out, mut piece) = (Decoder::new(codings), Vec::new(), [0; 100]);
    decoder.feed(bytes);
    loop {
        match decoder.take(&mut piece)? {
            0 => break,
            taken => out.extend(&piece[..taken]),
        }
    }
    decoder.finish()?;
    Ok(out)
}

fn header(names: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !names.is_empty() {
        headers.insert(CONTENT_ENCODING, names.parse().unwrap());
    }
    headers
}

/// A body of pieces; an `Err` breaks it off.
fn pieces(pieces: Vec<Result<Vec<u8>, &'static str>>) -> Body {
    let frames = pieces.into_iter().map(|piece| match piece {
        Ok(bytes) => Ok(Frame::data(Bytes::from(bytes))),
        Err(why) => Err(Fault::from(why)),
    });
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn cut(bytes: &[u8], size: usize) -> Vec<Result<Vec<u8>, &'static str>> {
    bytes
        .chunks(size.max(1))
        .map(|piece| Ok(piece.to_vec()))
        .collect()
}

/// Secrets that stay as they are.
fn fixed(secrets: &Arc<SessionSecrets>) -> Secrets {
    let secrets = secrets.clone();
    Arc::new(move || secrets.clone())
}

#[tokio::test]
async fn what_becomes_secret_while_an_answer_goes_on_is_taken_out_of_the_rest_even_of_what_is_held_back() {
    const LATER: &str = "ghp_Zz9yXx8wVv7uTt6sRr5qPp4oNn3mLl2k";
    for (name, codings) in CODINGS {
        for first in [SECRET, "nothing secret before this one, here"] {
            let values =
                |value: &str| Arc::new(SessionSecrets::new(vec![testing::bound("forge", value)]).unwrap());
            let now = Arc::new(arc_swap::ArcSwap::new(values(first)));
            let latest = now.clone();
            let (send, pieces) = tokio::sync::mpsc::unbounded_channel();
            let pieces = tokio_stream::wrappers::UnboundedReceiverStream::new(pieces);
            let body = StreamBody::new(pieces).boxed_unsync();
            let mut body = redacted(
                body,
                &mut header(name),
                Arc::new(move || latest.load_full()),
                Arc::default(),
            )
            .unwrap();
            let mut encoder = Encoder::new(codings);
            let mut piece = |text: &str| {
                let mut out = BytesMut::from(text.as_bytes());
                if !codings.is_empty() {
                    out.clear();
                    encoder.encode(text.as_bytes(), &mut out).unwrap();
                    encoder.flush(&mut out).unwrap();
                }
                send.send(Ok::<_, Fault>(Frame::data(out.freeze()))).unwrap();
            };
            // The beginning of both values is held back; what begins nothing is not.
            let held = if first == SECRET { 4 } else { 0 };
            piece(&LATER[..held]);
            let waits = futures_util::poll!(body.frame()).is_pending();
            assert!(waits || !codings.is_empty() || held == 0);
            now.store(values(LATER));
            piece(&LATER[held..]);
            piece(" end");
            let mut end = BytesMut::new();
            if !codings.is_empty() {
                encoder.finish(&mut end).unwrap();
            }
            send.send(Ok(Frame::data(end.freeze()))).unwrap();
            drop(send);
            let rest = body.collect().await.unwrap().to_bytes();
            let text = decoded(&rest, codings).unwrap_or_else(|_| rest.to_vec());
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!text.contains(&LATER[8..]), "{name} {first}: {text}");
            assert!(text.ends_with(" end"), "{name}: {text}");
        }
    }
}

const CODINGS: [(&str, &[Coding]); 7] = [
    ("", &[]),
    ("gzip", &[Coding::Gzip]),
    ("deflate", &[Coding::Deflate]),
    ("br", &[Coding::Brotli]),
    ("zstd", &[Coding::Zstd]),
    ("gzip, br", &[Coding::Gzip, Coding::Brotli]),
    ("zstd, x-gzip", &[Coding::Zstd, Coding::Gzip]),
];

async fn collect(body: Body) -> Result<Vec<u8>, Fault> {
    Ok(body.collect().await?.to_bytes().to_vec())
}

#[tokio::test]
async fn an_echo_is_cleaned_through_every_coding_cut_at_every_size() {
    let (secrets, placeholder) = secrets();
    let text = format!(
        "{}{SECRET}{}{SECRET}",
        "before ".repeat(500),
        " between ".repeat(700)
    );
    for (name, codings) in CODINGS {
        for size in [1, 2, 7, 100, 4096, 1 << 20] {
            let mut headers = header(name);
            let traffic = Arc::new(Traffic::default());
            let body = pieces(cut(&encoded(text.as_bytes(), codings), size));
            let body = redacted(body, &mut headers, fixed(&secrets), traffic).unwrap();
            let out = decoded(&collect(body).await.unwrap(), codings).unwrap();
            assert_eq!(
                out,
                text.replace(SECRET, &placeholder).as_bytes(),
                "{name} by {size}"
            );
        }
    }
}

#[tokio::test]
async fn an_uncoded_answer_keeps_its_framing_and_a_coded_one_says_what_still_holds() {
    let (secrets, _) = secrets();
    let mut headers = header("");
    headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
    headers.insert(ETAG, "\"x\"".parse().unwrap());
    let before = headers.clone();
    let body = http_body_util::Full::new(Bytes::from_static(b"hello"))
        .map_err(|never| match never {})
        .boxed_unsync();
    let body = redacted(body, &mut headers, fixed(&secrets), Arc::default()).unwrap();
    assert_eq!((headers, body.size_hint().exact()), (before, Some(5)));
    let mut headers = header("gzip");
    headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
    headers.insert(ETAG, "\"x\"".parse().unwrap());
    headers.insert("content-digest", "sha-256=:x:".parse().unwrap());
    redacted(
        pieces(Vec::from([Ok(Vec::new())])),
        &mut headers,
        fixed(&secrets),
        Arc::default(),
    )
    .unwrap();
    assert_eq!(headers.len(), 2, "{headers:?}");
    assert_eq!(headers[ETAG], "W/\"x\"");
}

#[tokio::test]
async fn an_answer_without_a_body_is_left_alone() {
    let (secrets, _) = secrets();
    for name in ["gzip", "made-up"] {
        let mut headers = header(name);
        headers.insert(CONTENT_LENGTH, "12345".parse().unwrap());
        let body = redacted(
            crate::http::empty_body(),
            &mut headers,
            fixed(&secrets),
            Arc::default(),
        )
        .unwrap();
        assert!(body.is_end_stream());
        assert_eq!(headers[CONTENT_LENGTH], "12345");
    }
}

#[tokio::test]
async fn what_cannot_be_looked_into_is_said_unless_there_is_nothing_to_look_for() {
    let (secrets, _) = secrets();
    for name in ["compress", "gzip, gzip, gzip", "gzip, x\"y"] {
        let result = redacted(
            pieces(cut(b"x", 1)),
            &mut header(name),
            fixed(&secrets),
            Arc::default(),
        );
        assert!(result.is_err(), "{name}");
        let none = Arc::new(SessionSecrets::none());
        assert!(
            redacted(
                pieces(cut(b"x", 1)),
                &mut header(name),
                fixed(&none),
                Arc::default()
            )
            .is_ok()
        );
    }
    let mut part = header("gzip");
    part.insert(CONTENT_RANGE, "bytes 0-9/100".parse().unwrap());
    assert!(redacted(pieces(cut(b"x", 1)), &mut part, fixed(&secrets), Arc::default()).is_err());
}

#[tokio::test]
async fn a_torn_answer_looks_torn_and_a_half_secret_in_it_stays_back() {
    let (secrets, _) = secrets();
    let text = format!("complete until here {}", &SECRET[..20]);
    for (name, codings) in CODINGS {
        let mut coded = BytesMut::new();
        let mut encoder = Encoder::new(codings);
        encoder.encode(text.as_bytes(), &mut coded).unwrap();
        encoder.flush(&mut coded).unwrap();
        for end in [vec![Err("reset")], Vec::new()] {
            if codings.is_empty() && end.is_empty() {
                continue;
            }
            let all = cut(&coded, 5).into_iter().chain(end).collect();
            let mut body = redacted(pieces(all), &mut header(name), fixed(&secrets), Arc::default()).unwrap();
            let mut got = BytesMut::new();
            let error = loop {
                match body.frame().await {
                    Some(Ok(frame)) => got.extend_from_slice(frame.data_ref().unwrap()),
                    Some(Err(error)) => break error,
                    None => panic!("{name}: a clean end"),
                }
            };
            assert!(
                memchr::memmem::find(&got, &SECRET.as_bytes()[..20]).is_none(),
                "{name}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn each_event_of_a_stream_comes_when_it_was_sent() {
    let (secrets, _) = secrets();
    for (name, codings) in CODINGS {
        let (send, receive) = tokio::sync::mpsc::channel::<Vec<u8>>(1);
        let frames = tokio_stream::wrappers::ReceiverStream::new(receive)
            .map(|bytes| Ok::<_, Fault>(Frame::data(Bytes::from(bytes))));
        let body = StreamBody::new(frames).boxed_unsync();
        let mut body = redacted(body, &mut header(name), fixed(&secrets), Arc::default()).unwrap();
        let (mut encoder, mut decoder) = (Encoder::new(codings), Decoder::new(codings));
        for number in 0..5 {
            let event = format!("data: token {number}\n\n").into_bytes();
            let mut coded = BytesMut::new();
            encoder.encode(&event, &mut coded).unwrap();
            encoder.flush(&mut coded).unwrap();
            send.send(if codings.is_empty() {
                event.clone()
            } else {
                coded.to_vec()
            })
            .await
            .unwrap();
            let mut got: Vec<u8> = Vec::new();
            while got.len() < event.len() {
                let frame = tokio::time::timeout(std::time::Duration::from_secs(2), body.frame()).await;
                let frame = frame
                    .unwrap_or_else(|_| panic!("{name}: event {number} is held back"))
                    .unwrap()
                    .unwrap();
                let bytes = frame.into_data().unwrap();
                if codings.is_empty() {
                    got.extend(&bytes);
                    continue;
                }
                decoder.feed(&bytes);
                let mut piece = [0; 64];
                while let taken @ 1.. = decoder.take(&mut piece).unwrap() {
                    got.extend(&piece[..taken]);
                }
            }
            assert_eq!(got, event, "{name}");
        }
    }
}

#[tokio::test]
async fn trailers_are_kept_cleaned_and_come_last() {
    let (secrets, placeholder) = secrets();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers.insert("x-echo", SECRET.parse().unwrap());
    for (name, codings) in CODINGS {
        let data = Ok::<_, Fault>(Frame::data(Bytes::from(encoded(b"hello", codings))));
        let frames = futures_util::stream::iter([data, Ok(Frame::trailers(trailers.clone()))]);
        let body = StreamBody::new(frames).boxed_unsync();
        let body = redacted(body, &mut header(name), fixed(&secrets), Arc::default())
            .unwrap()
            .collect()
            .await
            .unwrap();
        let got = body.trailers().unwrap();
        assert_eq!(
            (&got["grpc-status"], &got["x-echo"]),
            (&"0".parse().unwrap(), &placeholder.parse().unwrap())
        );
        assert_eq!(decoded(&body.to_bytes(), codings).unwrap(), b"hello");
    }
}

#[tokio::test]
async fn a_bomb_is_cut_early_and_an_honest_large_body_passes() {
    let (secrets, _) = secrets();
    let zeros = vec![0; 4 << 20];
    for (name, codings) in CODINGS.into_iter().skip(1) {
        let body = pieces(cut(&encoded(&zeros, codings), 1000));
        let body = redacted(body, &mut header(name), fixed(&secrets), Arc::default()).unwrap();
        let error = collect(body).await.unwrap_err().to_string();
        assert!(error.contains("expands"), "{name}: {error}");
    }
    let honest: Vec<u8> = (0..2_000_000_u32)
        .flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes())
        .collect();
    for (name, codings) in CODINGS {
        let body = pieces(cut(&encoded(&honest, codings), 16_384));
        let body = redacted(body, &mut header(name), fixed(&secrets), Arc::default()).unwrap();
        assert_eq!(
            decoded(&collect(body).await.unwrap(), codings).unwrap(),
            honest,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_zstd_window_over_8_mib_is_refused() {
    let (secrets, _) = secrets();
    // Magic, a header without content size, a window descriptor of 2^27 bytes (exponent 17), a raw block of one byte.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x09, 0x00, 0x00, b'x'];
    let body = redacted(
        pieces(cut(&frame, 100)),
        &mut header("zstd"),
        fixed(&secrets),
        Arc::default(),
    )
    .unwrap();
    assert!(collect(body).await.is_err());
}

#[tokio::test]
async fn raw_deflate_and_several_gzip_members_are_read() {
    let (secrets, placeholder) = secrets();
    let text = format!("echo {SECRET}");
    let zlib = encoded(text.as_bytes(), &[Coding::Deflate]);
    let raw = zlib[2..zlib.len() - 4].to_vec();
    let gzip = encoded(text.as_bytes(), &[Coding::Gzip]);
    for (name, coded, times) in [("deflate", raw, 1), ("gzip", [gzip.clone(), gzip].concat(), 2)] {
        for size in [1, 3, 1000] {
            let body = redacted(
                pieces(cut(&coded, size)),
                &mut header(name),
                fixed(&secrets),
                Arc::default(),
            )
            .unwrap();
            let out = decoded(&collect(body).await.unwrap(), &codings(&header(name)).unwrap()).unwrap();
            assert_eq!(
                out,
                text.replace(SECRET, &placeholder).repeat(times).as_bytes(),
                "{name} by {size}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_cut_anywhere_in_any_coding_gives_the_same(
        parts in prop::collection::vec(prop_oneof![
            "[ -~]{0,40}", Just(SECRET.to_owned()), (0..SECRET.len()).prop_map(|at| SECRET[..at].to_owned()),
        ], 0..8),
        sizes in prop::collection::vec(1_usize..50, 1..20),
        which in 0..CODINGS.len(),
    ) {
        let (secrets, placeholder) = secrets();
        let text = parts.concat();
        let (name, codings) = CODINGS[which];
        let coded = encoded(text.as_bytes(), codings);
        let mut rest = &coded[..];
        let mut cuts = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            cuts.push(Ok(piece.to_vec()));
            rest = after;
        }
        let body = redacted(pieces(cuts), &mut header(name), fixed(&secrets), Arc::default()).unwrap();
        let out = futures_util::FutureExt::now_or_never(collect(body)).unwrap().unwrap();
        let out = decoded(&out, codings).unwrap();
        prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace(SECRET, &placeholder));
    }
}
