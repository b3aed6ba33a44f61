//! What a hostile HTTP/2 client can do to a connection: it ends that connection, reaches no origin, and stalls nobody else.
use crate::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame, get,
    read,
};
use crate::origin::{Origin, Roots};
use crate::stand::Stand;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

struct Hostile {
    read: ReadHalf<TlsStream<TcpStream>>,
    write: WriteHalf<TlsStream<TcpStream>>,
}

impl Hostile {
    async fn connect(stand: &Stand) -> Self {
        let at = stand.at("allowed.test");
        let mut stream = stand.tls(&at, "allowed.test", &["h2"]).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let (read, write) = split(stream);
        Self { read, write }
    }

    /// Sends pieces until the connection takes no more; the error code of the GOAWAY, or none where it was just closed.
    async fn flood(self, pieces: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Option<u32> {
        let Self { mut read, mut write } = self;
        let writing = tokio::spawn(async move {
            for piece in pieces {
                if write.write_all(&piece).await.is_err() {
                    return false;
                }
            }
            true
        });
        let mut received = Vec::new();
        let reading = tokio::time::timeout(Duration::from_secs(60), read.read_to_end(&mut received));
        // A connection that is cut in the middle of a flood may end without TLS's farewell.
        let _ended = reading.await.expect("the connection ends");
        writing.abort();
        goaway(&received)
    }
}

/// The code of the last GOAWAY.
fn goaway(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((frame, rest)) = read(bytes) {
        if frame.kind == GOAWAY {
            code = frame.code_at(4);
        }
        bytes = rest;
    }
    code
}

async fn stand() -> (Stand, Origin) {
    let roots = Roots::new();
    let origin = Origin::echo(&roots, &["http/1.1"]).await;
    let stand = Stand::new(&roots, origin.port).await;
    (stand, origin)
}

/// The next client is served as if nothing had been.
async fn assert_serving(stand: &Stand) {
    assert!(stand.get("allowed.test", "/").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_they_begin_end_the_connection() {
    let (stand, origin) = stand().await;
    let block = get(&stand.at("allowed.test"));
    let pieces = (0..20_000u32).map(move |number| {
        let stream = 2 * number + 1;
        let mut both = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
        both.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
        both
    });
    let code = Hostile::connect(&stand).await.flood(pieces).await;
    // ENHANCE_YOUR_CALM (RFC 9113 section 7), unless the close overtook it.
    assert!(code.is_none_or(|code| code == 11), "{code:?}");
    assert!(
        origin.seen().len() < 2_000,
        "{} requests went out",
        origin.seen().len()
    );
    assert_serving(&stand).await;
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_and_reaches_nobody() {
    let (stand, origin) = stand().await;
    // A literal field without indexing, `x: aaaa...`.
    let mut field = vec![0x00, 1, b'x', 0x7f, 0x81, 0x7e];
    field.extend(vec![b'a'; 16_256]);
    for (more, count) in [(field, 4_000), (Vec::new(), 500_000)] {
        let first = frame(HEADERS, END_STREAM, 1, &get(&stand.at("allowed.test")));
        let more = std::iter::repeat_with(move || frame(CONTINUATION, 0, 1, &more)).take(count);
        let code = Hostile::connect(&stand)
            .await
            .flood(std::iter::once(first).chain(more))
            .await;
        assert!(code.is_none_or(|code| code != 0), "{code:?}");
        assert!(origin.seen().is_empty());
        assert_serving(&stand).await;
        origin.seen.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_small_head_that_unfolds_into_a_large_one_is_refused() {
    let (stand, origin) = stand().await;
    let mut block = get(&stand.at("allowed.test"));
    // Put `x: aaaa...` of nearly the whole table into it, then name it a thousand times.
    block.extend([0x40, 1, b'x', 0x7f, 0x81, 0x1e]);
    block.extend(vec![b'a'; 3_968]);
    block.extend(vec![0xbe; 1_000]);
    let mut connection = Hostile::connect(&stand).await;
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
    connection.write.write_all(&head).await.unwrap();
    connection
        .write
        .write_all(&frame(PING, 0, 0, b"the end."))
        .await
        .unwrap();
    let mut received = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(20), async {
        while !received.ends_with(b"the end.") {
            if connection.read.read_buf(&mut received).await.unwrap_or(0) == 0 {
                break;
            }
        }
    });
    reading.await.expect("it is answered");
    assert!(origin.seen().is_empty(), "{:?}", origin.seen().len());
    assert_serving(&stand).await;
}

#[tokio::test]
async fn pings_and_settings_without_end_keep_nothing_and_stall_nobody() {
    let (stand, _origin) = stand().await;
    let mut connection = Hostile::connect(&stand).await;
    let flood: Vec<u8> = (0..20_000u64)
        .flat_map(|number| {
            let mut both = frame(PING, 0, 0, &number.to_be_bytes());
            both.extend(frame(SETTINGS, 0, 0, &[]));
            both
        })
        .collect();
    // Nothing is read meanwhile: what the gateway would have to remember is bounded by its not reading on.
    let writing = tokio::time::timeout(Duration::from_millis(500), connection.write.write_all(&flood));
    let _full_or_written = writing.await;
    assert_serving(&stand).await;
}
