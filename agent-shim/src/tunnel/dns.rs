//! Names: each query that arrives on UDP or TCP becomes a request over HTTPS (RFC 8484) in the tunnel.
use super::link::{self, Link, collect, is_of_line};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Where queries go at the gateway; the name in it is not looked up.
const URI: &str = "https://gateway.sallyport.internal/dns-query";
const MEDIA_TYPE: &str = "application/dns-message";
/// Longest query over UDP.
const UDP_BYTES: usize = 4096;
/// Longest answer.
const ANSWER_BYTES: usize = 65_535;
/// Queries asked at a time; further ones wait in the socket.
const QUERIES: usize = 64;
/// For one answer; resolvers ask again after 5 s. Beyond it: SERVFAIL.
const ANSWER: Duration = Duration::from_secs(4);
/// Between two queries on one TCP connection (RFC 7766 section 6.2.3). Beyond it: closed.
const IDLE: Duration = Duration::from_secs(10);
/// A query's head (RFC 1035 section 4.1.1).
const HEAD: usize = 12;
/// Pause after a failed accept, so that a shortage of descriptors does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers what arrives on a UDP socket.
pub(super) async fn serve_udp(socket: UdpSocket, link: Arc<Link>) {
    let (socket, places) = (Arc::new(socket), Arc::new(Semaphore::new(QUERIES)));
    let mut buffer = vec![0; UDP_BYTES];
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        // An error is of an earlier answer that could not be delivered; the socket itself lives.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let query = Bytes::copy_from_slice(&buffer[..length]);
        let (socket, link) = (socket.clone(), link.clone());
        tokio::spawn(async move {
            reply(&socket, peer, query, &link).await;
            drop(place);
        });
    }
}

async fn reply(socket: &UdpSocket, peer: SocketAddr, query: Bytes, link: &Link) {
    if let Some(answer) = answer(query, link).await
        && let Err(error) = socket.send_to(&answer, peer).await
    {
        link::say(&format!("a DNS answer could not be sent: {error}"));
    }
}

/// Answers what arrives at a TCP listener.
pub(super) async fn accept(listener: TcpListener, link: Arc<Link>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let link = link.clone();
                tokio::spawn(async move {
                    serve_tcp(stream, &link).await;
                    drop(place);
                });
            }
            Err(error) => {
                link::say(&format!("a DNS connection could not be accepted: {error}"));
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers queries on one TCP connection, each after its length (RFC 7766).
pub(super) async fn serve_tcp(mut stream: TcpStream, link: &Link) {
    loop {
        let Ok(Ok(query)) = timeout(IDLE, framed(&mut stream)).await else {
            return;
        };
        let Some(answer) = answer(query, link).await else {
            return;
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

async fn framed(stream: &mut TcpStream) -> io::Result<Bytes> {
    let length = stream.read_u16().await?;
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await?;
    Ok(query.into())
}

/// The gateway's answer, or that there is none now; nothing for what is no query.
async fn answer(query: Bytes, link: &Link) -> Option<Bytes> {
    let is_query = query.len() >= HEAD && query[2] & 0x80 == 0;
    if !is_query {
        return None;
    }
    let deadline = Instant::now() + ANSWER;
    match timeout_at(deadline, ask(&query, link, deadline)).await {
        Ok(Some(answer)) => Some(answer),
        Ok(None) | Err(_) => Some(failure(&query)),
    }
}

async fn ask(query: &Bytes, link: &Link, deadline: Instant) -> Option<Bytes> {
    loop {
        let line = link.line(deadline).await?;
        match post(&line, query.clone()).await {
            Ok(answer) => return answer,
            Err(error) if is_of_line(&error) => link.spent(&line),
            Err(_) => return None,
        }
    }
}

async fn post(line: &link::Line, query: Bytes) -> Result<Option<Bytes>, h2::Error> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(URI);
    let kind = http::HeaderValue::from_static(MEDIA_TYPE);
    request.headers_mut().insert(CONTENT_TYPE, kind);
    let mut requests = line.requests.clone().ready().await?;
    let (response, mut send) = requests.send_request(request, false)?;
    send.send_data(query, true)?;
    let response = response.await?;
    if response.status() != StatusCode::OK {
        return Ok(None);
    }
    Ok(Some(collect(response.into_body(), ANSWER_BYTES).await))
}

/// SERVFAIL to a query: itself, marked as an answer (RFC 1035 section 4.1.1).
fn failure(query: &[u8]) -> Bytes {
    let mut answer = query.to_vec();
    answer[2] |= 0x80;
    answer[3] = 0x82;
    answer.into()
}

#[cfg(test)]
mod tests {
    use super::{HEAD, failure};

    #[test]
    fn a_failure_is_the_query_marked_as_an_answer() {
        let mut query = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x01a\x04test\0\0\x01\0\x01");
        let answer = failure(&query);
        assert_eq!(answer[..2], query[..2], "the same id");
        assert_eq!(answer[2] & 0x80, 0x80, "an answer");
        assert_eq!(answer[3] & 0x0f, 2, "SERVFAIL");
        assert_eq!(answer[HEAD..], query[HEAD..], "the same question");
    }
}
