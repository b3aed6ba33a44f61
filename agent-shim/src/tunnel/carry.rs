//! One connection through the tunnel: asked for with CONNECT, then bytes both ways, each way's end and every break passed on.
use super::link::{Line, Link, PATIENCE, collect, is_of_line};
use super::target::{NoTarget, Target, target};
use super::{dns, link};
use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use rustix::net::sockopt;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

/// Bytes read at once; held only while there is something to read.
const PIECE: usize = 16 * 1024;
/// Bytes shown of a refusal.
const REFUSAL_BYTES: usize = 16 * 1024;
/// DNS over TCP, which is not carried but asked.
const DNS_PORT: u16 = 53;

/// Carries a local connection to where it wants to go. A redirected one that cannot be carried is reset.
pub(super) async fn carry(mut local: TcpStream, link: &Link) {
    if local.set_nodelay(true).is_err() {
        return;
    }
    let wanted = match target(&mut local).await {
        Ok(wanted) => wanted,
        Err(NoTarget::Gone(_)) => return,
        Err(fault @ NoTarget::Other) => {
            return tell(
                local,
                StatusCode::METHOD_NOT_ALLOWED,
                fault.to_string().as_bytes(),
            )
            .await;
        }
    };
    let authority = match &wanted {
        Target::Redirected(address) if address.port() == DNS_PORT => {
            return dns::serve_tcp(local, link).await;
        }
        Target::Redirected(address) => address.to_string(),
        Target::Asked(authority) => authority.clone(),
    };
    let asked = matches!(wanted, Target::Asked(_));
    match open(link, &authority).await {
        Ok((send, receive)) => {
            let greeting = b"HTTP/1.1 200 Connection established\r\n\r\n";
            if asked && local.write_all(greeting).await.is_err() {
                return;
            }
            pump(local, send, receive).await;
        }
        Err(NotOpen::Refused { status, text }) if asked => tell(local, status, &text).await,
        Err(fault) => {
            link::say(&format!("`{authority}` was not reached: {fault}"));
            if asked {
                return tell(local, StatusCode::BAD_GATEWAY, fault.to_string().as_bytes()).await;
            }
            reset(&local);
        }
    }
}

/// Why a connection is not open.
#[derive(Debug, thiserror::Error)]
enum NotOpen {
    #[error("there is no tunnel to the gateway")]
    NoTunnel,
    #[error("the gateway answered {status}: {}", String::from_utf8_lossy(.text).trim())]
    Refused { status: StatusCode, text: Bytes },
    #[error("it cannot stand in a request: {0}")]
    Target(#[from] http::uri::InvalidUri),
    #[error("the gateway ended it: {0}")]
    Ended(h2::Error),
}

/// Asks for a connection; on another line where the first one is no longer good, since nothing was sent yet.
async fn open(link: &Link, authority: &str) -> Result<(SendStream<Bytes>, RecvStream), NotOpen> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let line = link.line(deadline).await.ok_or(NotOpen::NoTunnel)?;
        let mut request = Request::new(());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = authority.parse::<Authority>()?.into();
        match ask(&line, request).await {
            Ok((response, send)) if response.status().is_success() => {
                return Ok((send, response.into_body()));
            }
            Ok((response, _)) => {
                let status = response.status();
                let text = collect(response.into_body(), REFUSAL_BYTES).await;
                return Err(NotOpen::Refused { status, text });
            }
            Err(error) if is_of_line(&error) => link.spent(&line),
            Err(error) => return Err(NotOpen::Ended(error)),
        }
    }
}

async fn ask(
    line: &Line,
    request: Request<()>,
) -> Result<(Response<RecvStream>, SendStream<Bytes>), h2::Error> {
    let mut requests = line.requests.clone().ready().await?;
    let (answer, send) = requests.send_request(request, false)?;
    Ok((answer.await?, send))
}

/// Why a carried connection broke.
enum Broken {
    /// On the machine's side.
    Local,
    /// On the gateway's.
    Tunnel,
}

/// Moves bytes both ways until both have ended, or one broke; a break is told to the other side as such.
async fn pump(mut local: TcpStream, mut send: SendStream<Bytes>, receive: RecvStream) {
    let (read, write) = local.split();
    let moved = tokio::try_join!(up(read, &mut send), down(receive, write));
    match moved {
        Ok(_) => {}
        // RFC 9113 section 8.5.
        Err(Broken::Local) => send.send_reset(Reason::CONNECT_ERROR),
        Err(Broken::Tunnel) => reset(&local),
    }
}

/// From the machine to the gateway.
async fn up(read: ReadHalf<'_>, send: &mut SendStream<Bytes>) -> Result<(), Broken> {
    loop {
        tokio::select! {
            readable = read.readable() => readable.map_err(|_| Broken::Local)?,
            told = poll_fn(|cx| send.poll_reset(cx)) => return enough(told),
        }
        let mut piece = BytesMut::with_capacity(PIECE);
        match read.try_read_buf(&mut piece) {
            Ok(0) => return send.send_data(Bytes::new(), true).map_err(|_| Broken::Tunnel),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(Broken::Local),
        }
        let mut piece = piece.freeze();
        while !piece.is_empty() {
            send.reserve_capacity(piece.len());
            let room = match poll_fn(|cx| send.poll_capacity(cx)).await {
                Some(Ok(room)) => room.min(piece.len()),
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => return Ok(()),
                Some(Err(_)) => return Err(Broken::Tunnel),
                None => return enough(poll_fn(|cx| send.poll_reset(cx)).await),
            };
            if room > 0 {
                let part = piece.split_to(room);
                send.send_data(part, false).map_err(|_| Broken::Tunnel)?;
            }
        }
    }
}

/// `NO_ERROR` says that the rest is not wanted (RFC 9113 section 8.1); anything else is a break.
fn enough(told: Result<Reason, h2::Error>) -> Result<(), Broken> {
    match told {
        Ok(Reason::NO_ERROR) => Ok(()),
        Ok(_) | Err(_) => Err(Broken::Tunnel),
    }
}

/// From the gateway to the machine. What the machine does not read stays in the gateway, but for the window.
async fn down(mut receive: RecvStream, mut write: WriteHalf<'_>) -> Result<(), Broken> {
    while let Some(piece) = receive.data().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
            Err(_) => return Err(Broken::Tunnel),
        };
        write.write_all(&piece).await.map_err(|_| Broken::Local)?;
        let given = receive.flow_control().release_capacity(piece.len());
        given.map_err(|_| Broken::Tunnel)?;
    }
    write.shutdown().await.map_err(|_| Broken::Local)
}

/// Lets the connection end with RST.
fn reset(local: &TcpStream) {
    // Where the socket is gone already, so is the client.
    let _set = sockopt::set_socket_linger(local, Some(Duration::ZERO));
}

/// Answers a proxy's client.
async fn tell(mut local: TcpStream, status: StatusCode, text: &[u8]) {
    let kind = if text.starts_with(b"{") {
        "application/problem+json"
    } else {
        "text/plain; charset=utf-8"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let answer = [head.as_bytes(), text].concat();
    if local.write_all(&answer).await.is_ok() {
        // It may have left meanwhile.
        let _ended = local.shutdown().await;
    }
}
