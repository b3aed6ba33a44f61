//! What RFC 9113 says of wrong frames and malformed requests, told by hand-written ones: on intercepted connections and at the proxy.
use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, field, frame, read,
};
use crate::origin::{Origin, Roots};
use crate::stand::Stand;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

/// What RFC 9113 names; and what the library says instead where it knows no better, which ends the connection all the same.
const COMPRESSION: &[u32] = &[COMPRESSION_ERROR, PROTOCOL_ERROR];
const FLOW_CONTROL: &[u32] = &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR];
const FRAME_SIZE: &[u32] = &[FRAME_SIZE_ERROR, PROTOCOL_ERROR];
const CLOSED: &[u32] = &[STREAM_CLOSED, PROTOCOL_ERROR];

/// How a connection answers.
#[derive(Debug, Clone, Copy)]
enum Right {
    /// Nothing happens, and the next request is served.
    Served,
    /// GOAWAY with one of these codes.
    Connection(&'static [u32]),
    /// RST_STREAM on stream 1 with one of these codes, or 400, and the next request is served; GOAWAY with one of them will
    /// do too (section 5.4.2).
    Stream(&'static [u32]),
}
use Right::{Connection, Served, Stream};

type Case = (&'static str, Vec<u8>, Right);

/// What requests look like on one kind of connection.
#[derive(Clone)]
struct Ground {
    /// `:scheme`, `:authority` and what else each request needs.
    scheme: Vec<u8>,
    authority: Vec<u8>,
    credentials: Vec<u8>,
}

impl Ground {
    /// A head of these pseudo-header fields in front, and these fields behind.
    fn head(&self, begin: &[&[u8]], end: &[&[u8]]) -> Vec<u8> {
        [
            &begin.concat()[..],
            &self.scheme,
            &self.authority,
            &self.credentials,
            &end.concat(),
        ]
        .concat()
    }

    /// A whole GET on a stream.
    fn get(&self, stream: u32) -> Vec<u8> {
        let head = self.head(&[&[0x82, 0x84]], &[]);
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &head)
    }

    /// The head of a POST whose body is to come.
    fn post(&self, end: &[&[u8]]) -> Vec<u8> {
        let head = self.head(&[&[0x83], &field(":path", "/echo")], end);
        frame(HEADERS, END_HEADERS, 1, &head)
    }

    /// A GET that must reach nobody.
    fn bad(&self, end: &[&[u8]]) -> Vec<u8> {
        let head = self.head(&[&[0x82], &field(":path", "/bad")], end);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)
    }

    fn block(&self, block: &[u8]) -> Vec<u8> {
        frame(HEADERS, END_HEADERS | END_STREAM, 1, block)
    }

    /// Sections 4 and 5.
    fn of_frames_and_streams(&self) -> Vec<Case> {
        let size = vec![0; 16_385];
        let part = self.head(&[&[0x82], &field(":path", "/bad")], &[]);
        let begun = frame(HEADERS, END_STREAM, 1, &part);
        let after = |kind, stream| [&begun[..], &frame(kind, END_HEADERS, stream, &[0; 5])].concat();
        vec![
            (
                "4.1 an unknown kind of frame",
                frame(0x16, 0xff, 0, b"what"),
                Served,
            ),
            ("4.1 unknown flags", frame(PING, 0x16, 0, &[0; 8]), Served),
            ("4.1 the reserved bit", frame(PING, 0, 1 << 31, &[0; 8]), Served),
            (
                "4.2 DATA beyond the size",
                [self.post(&[]), frame(DATA, 0, 1, &size)].concat(),
                Stream(FRAME_SIZE),
            ),
            (
                "4.2 HEADERS beyond the size",
                frame(HEADERS, END_HEADERS, 1, &size),
                Connection(FRAME_SIZE),
            ),
            (
                "4.2 SETTINGS beyond the size",
                frame(SETTINGS, 0, 0, &size),
                Connection(FRAME_SIZE),
            ),
            ("4.3 no HPACK", self.block(&[0xff; 8]), Connection(COMPRESSION)),
            ("4.3 the entry 0", self.block(&[0x80]), Connection(COMPRESSION)),
            (
                "4.3 an entry that there is not",
                self.block(&[0xff, 0x00]),
                Connection(COMPRESSION),
            ),
            (
                "4.3 a table beyond the size",
                self.block(&[0x3f, 0xe1, 0xff, 0x7f]),
                Connection(COMPRESSION),
            ),
            (
                "4.3 a change of the table behind a field",
                self.block(&[0x82, 0x20]),
                Connection(COMPRESSION),
            ),
            (
                "4.3 another frame within a head",
                after(PRIORITY, 1),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "4.3 another stream's head within a head",
                after(HEADERS, 3),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "4.3 another stream's CONTINUATION",
                after(CONTINUATION, 3),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.5 an unknown kind of frame within a head",
                after(0x16, 1),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1 DATA on an idle stream",
                frame(DATA, 0, 1, b"x"),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1 RST_STREAM on an idle stream",
                frame(RST_STREAM, 0, 1, &[0; 4]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1 WINDOW_UPDATE on an idle stream",
                frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1 CONTINUATION on an idle stream",
                frame(CONTINUATION, END_HEADERS, 1, &[0x82]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1 DATA behind the end",
                [self.get(1), frame(DATA, END_STREAM, 1, b"x")].concat(),
                Stream(CLOSED),
            ),
            (
                "5.1 HEADERS behind the end",
                [self.get(1), self.get(1)].concat(),
                Stream(CLOSED),
            ),
            (
                "5.1 PRIORITY on an idle stream",
                frame(PRIORITY, 0, 99, &[0, 0, 0, 0, 1]),
                Served,
            ),
            (
                "5.1.1 a stream of even number",
                self.get(2),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "5.1.1 a number lower than another before",
                [self.get(5), self.get(3)].concat(),
                Connection(CLOSED),
            ),
        ]
    }

    /// Section 6.
    fn of_kinds_of_frames(&self) -> Vec<Case> {
        let setting = |name: u8, value: u32| {
            let entry = [&[0, name][..], &value.to_be_bytes()].concat();
            frame(SETTINGS, 0, 0, &entry)
        };
        let behind = |more: Vec<u8>| [self.post(&[]), more].concat();
        let window = |stream, size: u32| frame(WINDOW_UPDATE, 0, stream, &size.to_be_bytes());
        let large = u32::MAX >> 1;
        let padded = [&[200][..], &[0x82, 0x84]].concat();
        vec![
            (
                "6.1 DATA on stream 0",
                frame(DATA, 0, 0, b"x"),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.1 more padding than DATA",
                behind(frame(DATA, PADDED, 1, b"\x05abc")),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.2 HEADERS on stream 0",
                frame(HEADERS, END_HEADERS, 0, &[0x82]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.2 more padding than HEADERS",
                frame(HEADERS, END_HEADERS | PADDED, 1, &padded),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.3 PRIORITY on stream 0",
                frame(PRIORITY, 0, 0, &[0; 5]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.3 PRIORITY of another length",
                behind(frame(PRIORITY, 0, 1, &[0; 4])),
                Stream(FRAME_SIZE),
            ),
            (
                "6.4 RST_STREAM on stream 0",
                frame(RST_STREAM, 0, 0, &[0; 4]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.4 RST_STREAM of another length",
                behind(frame(RST_STREAM, 0, 1, &[0; 3])),
                Connection(FRAME_SIZE),
            ),
            (
                "6.5 an acknowledgement with entries",
                frame(SETTINGS, ACK, 0, &[0; 6]),
                Connection(FRAME_SIZE),
            ),
            (
                "6.5 SETTINGS on a stream",
                frame(SETTINGS, 0, 1, &[]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.5 half an entry",
                frame(SETTINGS, 0, 0, &[0; 3]),
                Connection(FRAME_SIZE),
            ),
            (
                "6.5.2 ENABLE_PUSH of 2",
                setting(2, 2),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.5.2 a window beyond the largest",
                setting(4, large + 1),
                Connection(FLOW_CONTROL),
            ),
            (
                "6.5.2 too small a frame",
                setting(5, 16_383),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.5.2 too large a frame",
                setting(5, 16_777_216),
                Connection(&[PROTOCOL_ERROR]),
            ),
            ("6.5.2 an unknown setting", setting(0xf0, 7), Served),
            (
                "RFC 8441 3 ENABLE_CONNECT_PROTOCOL of 2",
                setting(8, 2),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.6 PUSH_PROMISE of a client",
                behind(frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.7 PING on a stream",
                frame(PING, 0, 1, &[0; 8]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.7 PING of another length",
                frame(PING, 0, 0, &[0; 6]),
                Connection(FRAME_SIZE),
            ),
            (
                "6.7 an answer to no PING",
                frame(PING, ACK, 0, b"unasked!"),
                Served,
            ),
            (
                "6.8 GOAWAY on a stream",
                frame(GOAWAY, 0, 1, &[0; 8]),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.9 a window that grows by nothing",
                window(0, 0),
                Connection(&[PROTOCOL_ERROR]),
            ),
            (
                "6.9 a stream's window that grows by nothing",
                behind(window(1, 0)),
                Stream(&[PROTOCOL_ERROR]),
            ),
            (
                "6.9 WINDOW_UPDATE of another length",
                frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
                Connection(FRAME_SIZE),
            ),
            (
                "6.9.1 a window that grows beyond the largest",
                [window(0, large), window(0, large)].concat(),
                Connection(FLOW_CONTROL),
            ),
            (
                "6.9.1 a stream's window that grows beyond the largest",
                behind([window(1, large), window(1, large)].concat()),
                Stream(FLOW_CONTROL),
            ),
            (
                "6.10 CONTINUATION behind a whole head",
                behind(frame(CONTINUATION, END_HEADERS, 1, &[0x82])),
                Connection(&[PROTOCOL_ERROR]),
            ),
        ]
    }

    /// Section 8.
    fn of_requests(&self) -> Vec<Case> {
        let bad = |name, value| self.bad(&[&field(name, value)]);
        let path = field(":path", "/bad");
        let whole = |begin: &[&[u8]]| self.block(&self.head(begin, &[]));
        let (length, five) = (field("content-length", "1"), field("content-length", "5"));
        let trailers = |flags, block: &[u8]| {
            [
                self.post(&[]),
                frame(DATA, 0, 1, b"x"),
                frame(HEADERS, END_HEADERS | flags, 1, block),
            ]
            .concat()
        };
        const MALFORMED: Right = Stream(&[PROTOCOL_ERROR]);
        let mut cases = vec![
            ("8.2.1 an upper-case name", bad("X-Upper", "1"), MALFORMED),
            ("8.2.1 a name with a blank", bad("x y", "1"), MALFORMED),
            ("8.2.1 a name with a colon within", bad("x:y", "1"), MALFORMED),
            ("8.2.1 an empty name", bad("", "1"), MALFORMED),
            ("8.2.1 a value with NUL", bad("x", "a\0b"), MALFORMED),
            (
                "8.2.1 a value with a line's end",
                bad("x", "a\r\nb: c"),
                MALFORMED,
            ),
            ("8.2.2 `connection`", bad("connection", "keep-alive"), MALFORMED),
            ("8.2.2 `keep-alive`", bad("keep-alive", "5"), MALFORMED),
            (
                "8.2.2 `proxy-connection`",
                bad("proxy-connection", "keep-alive"),
                MALFORMED,
            ),
            (
                "8.2.2 `transfer-encoding`",
                bad("transfer-encoding", "chunked"),
                MALFORMED,
            ),
            ("8.2.2 `upgrade`", bad("upgrade", "h2c"), MALFORMED),
            ("8.2.2 `te` of something else", bad("te", "gzip"), MALFORMED),
            (
                "8.3 an unknown pseudo-header field",
                bad(":unknown", "1"),
                MALFORMED,
            ),
            ("8.3 one of answers", bad(":status", "200"), MALFORMED),
            (
                "8.3 one behind a field",
                self.block(
                    &[
                        &[0x82][..],
                        &self.scheme,
                        &field("x", "1"),
                        &path,
                        &self.authority,
                    ]
                    .concat(),
                ),
                MALFORMED,
            ),
            ("8.3.1 no method", whole(&[&path]), MALFORMED),
            ("8.3.1 no path", whole(&[&[0x82]]), MALFORMED),
            (
                "8.3.1 an empty path",
                whole(&[&[0x82], &field(":path", "")]),
                MALFORMED,
            ),
            ("8.3.1 two methods", whole(&[&[0x82, 0x82], &path]), MALFORMED),
            ("8.3.1 two paths", whole(&[&[0x82], &path, &path]), MALFORMED),
            (
                "8.3.1 no scheme",
                self.block(&[&[0x82][..], &path, &self.authority, &self.credentials].concat()),
                MALFORMED,
            ),
            (
                "8.1 trailers that end nothing",
                trailers(0, &field("x", "1")),
                MALFORMED,
            ),
            // The library reads over them, so that they go no further.
            (
                "8.1 pseudo-header fields in trailers",
                trailers(END_STREAM, &[0x82]),
                Served,
            ),
        ];
        for (what, head, pieces) in [
            ("8.1.1 less than the length", &five, [&b"x"[..], b"y"]),
            ("8.1.1 more than the length", &length, [&b"x"[..], b"y"]),
        ] {
            let [one, two] = pieces;
            let body = [frame(DATA, 0, 1, one), frame(DATA, END_STREAM, 1, two)].concat();
            cases.push((what, [self.post(&[head]), body].concat(), MALFORMED));
        }
        cases
    }
}

/// Sends what a case sends, and says what is wrong with what came.
async fn check(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    ground: &Ground,
    case: &Case,
) -> Result<(), String> {
    let (what, sent, right) = case;
    let (mut reading, mut writing) = tokio::io::split(stream);
    let next = ground.get(101);
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), sent].concat();
    // A connection may be ended while it is written to.
    let _sent = writing.write_all(&opening).await;
    if let Served = right {
        writing
            .write_all(&next)
            .await
            .map_err(|error| error.to_string())?;
    }
    let (mut bytes, mut log, mut reset) = (Vec::new(), Vec::new(), false);
    loop {
        while let Some((came, rest)) = read(&bytes) {
            log.push(format!(
                "{} {:x} on {}: {:?}",
                came.kind, came.flags, came.stream, came.payload
            ));
            match (came.kind, came.stream, right) {
                (HEADERS, 101, Served | Stream(_)) => return Ok(()),
                (GOAWAY, _, Connection(codes) | Stream(codes))
                    if came.code_at(4).is_some_and(|code| codes.contains(&code)) =>
                {
                    return Ok(());
                }
                (GOAWAY, ..) => return Err(format!("{what}: {log:#?}")),
                (RST_STREAM, 1, Stream(codes))
                    if !reset && came.code_at(0).is_some_and(|code| codes.contains(&code)) =>
                {
                    reset = true;
                    writing
                        .write_all(&next)
                        .await
                        .map_err(|error| error.to_string())?;
                }
                // `:status: 400` of the static table.
                (HEADERS, 1, Stream(_)) if !reset && came.payload.first() == Some(&0x8c) => {
                    reset = true;
                    writing
                        .write_all(&next)
                        .await
                        .map_err(|error| error.to_string())?;
                }
                _ => {}
            }
            bytes = rest.to_vec();
        }
        match tokio::time::timeout(Duration::from_secs(10), reading.read_buf(&mut bytes)).await {
            Ok(Ok(1..)) => {}
            ended => return Err(format!("{what}: {ended:?} after {log:#?}")),
        }
    }
}

#[tokio::test]
async fn wrong_frames_and_malformed_requests_are_answered_as_rfc_9113_says() {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    let at = stand.at("allowed.test");
    let inside = Ground {
        scheme: vec![0x87],
        authority: field(":authority", &at),
        credentials: Vec::new(),
    };
    let proxy = Ground {
        scheme: vec![0x86],
        credentials: field("proxy-authorization", &stand.authorization()),
        ..inside.clone()
    };
    let (stand, at) = (&stand, at.as_str());
    let mut wrong = Vec::new();
    for (ground, tls) in [(&inside, true), (&proxy, false)] {
        let cases = [
            ground.of_frames_and_streams(),
            ground.of_kinds_of_frames(),
            ground.of_requests(),
        ]
        .concat();
        assert!(cases.len() > 70, "{}", cases.len());
        let told = futures_util::stream::iter(&cases).map(|case| async move {
            match tls {
                true => {
                    check(
                        stand.tls(at, "allowed.test", &["h2"]).await.unwrap(),
                        ground,
                        case,
                    )
                    .await
                }
                false => check(stand.dial().await, ground, case).await,
            }
        });
        let told: Vec<_> = told.buffer_unordered(8).collect().await;
        wrong.extend(
            told.into_iter()
                .filter_map(Result::err)
                .map(|text| format!("tls {tls}: {text}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = origin.seen();
    assert!(!seen.iter().any(|head| head.contains("/bad")), "{seen:?}");
    assert!(stand.get("allowed.test", "/").await.starts_with("HTTP/1.1 200 "));
}
