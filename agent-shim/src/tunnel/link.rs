//! The one connection to the gateway: kept, found dead in time, made anew, and left for one with a new certificate.
use super::tls::{self, Files, TlsError};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::{Bytes, BytesMut};
use h2::client::{Connection, SendRequest};
use h2::{Reason, RecvStream};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// For TCP, TLS and HTTP/2 together. Beyond it: tried again.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a new connection waits for the tunnel. Beyond it: reset.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How often the gateway is asked whether it is there, and how long it may take to answer. Beyond it: made anew.
const PING: Duration = Duration::from_secs(15);
const PONG: Duration = Duration::from_secs(10);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Pauses between tries: the first and the longest; each is lengthened by chance, so that machines do not come all at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// A tunnel that lived for so long was a good one: the next is made without a pause.
const STEADY: Duration = Duration::from_secs(5);
/// Bytes that one connection may be sent before the machine reads them, and all together.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Bytes of one connection that wait to be sent.
const SEND_BUFFER: usize = 64 * 1024;

/// A handle on the tunnel as it is now.
#[derive(Debug, Clone)]
pub(super) struct Line {
    number: u64,
    /// For requests.
    pub(super) requests: SendRequest<Bytes>,
}

/// The tunnel, through all its connections.
#[derive(Debug)]
pub(super) struct Link {
    gateway: String,
    name: String,
    files: Files,
    now: watch::Sender<Option<Line>>,
    /// The number of a line that takes no more requests.
    spent: watch::Sender<u64>,
}

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("the gateway's name `{0}` cannot stand in a certificate")]
    Name(String),
    #[error("the gateway cannot be reached at `{address}`: {error}")]
    Reach { address: String, error: io::Error },
    #[error("HTTP/2 with the gateway failed: {0}")]
    Http2(#[from] h2::Error),
    #[error("the gateway did not answer within {0:?}")]
    Slow(Duration),
}

/// When the files were written last, each where it is there.
type Stamp = [Option<SystemTime>; 3];
type Moving = Connection<TlsStream<TcpStream>, Bytes>;
type Made = (Stamp, SendRequest<Bytes>, Moving);

impl Link {
    pub(super) fn new(gateway: String, name: String, files: Files) -> Self {
        Self {
            gateway,
            name,
            files,
            now: watch::Sender::new(None),
            spent: watch::Sender::new(0),
        }
    }

    /// The tunnel, awaited until `deadline`.
    pub(super) async fn line(&self, deadline: Instant) -> Option<Line> {
        if Instant::now() >= deadline {
            return None;
        }
        let mut now = self.now.subscribe();
        let found = timeout_at(deadline, now.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    /// Tells that a line takes no more requests.
    pub(super) fn spent(&self, line: &Line) {
        self.now.send_if_modified(|now| {
            let shown = now.as_ref().is_some_and(|now| now.number == line.number);
            if shown {
                *now = None;
            }
            shown
        });
        self.spent.send_if_modified(|spent| {
            let newer = line.number > *spent;
            if newer {
                *spent = line.number;
            }
            newer
        });
    }

    /// Keeps a connection to the gateway for as long as the process lives.
    pub(super) async fn keep(&self) -> Infallible {
        let (mut number, mut pauses) = (0, backoff());
        loop {
            let (stamp, requests, connection) = self.make(&mut pauses).await;
            let opened = Instant::now();
            number += 1;
            say(&format!("the tunnel to {} is open", self.gateway));
            self.now.send_replace(Some(Line { number, requests }));
            // It may go on by itself with what it carries, after the next one has taken its place.
            let mut driven = tokio::spawn(drive(connection));
            let why = tokio::select! {
                ended = &mut driven => match ended {
                    Ok(why) => why,
                    Err(error) => error.to_string(),
                },
                () = self.spent_is(number) => "the gateway takes no more connections on it".to_owned(),
                () = self.files_change(stamp) => "there is a new certificate".to_owned(),
            };
            self.now.send_replace(None);
            say(&format!("the tunnel is made anew: {why}"));
            // A certificate that the gateway refuses is known only now: TLS 1.3 is done on this side before.
            if opened.elapsed() < STEADY {
                rest(&mut pauses).await;
            } else {
                pauses = backoff();
            }
        }
    }

    async fn make(&self, pauses: &mut ExponentialBackoff) -> Made {
        let mut said = String::new();
        loop {
            let error = match timeout(CONNECT, self.connect()).await {
                Ok(Ok(made)) => return made,
                Ok(Err(error)) => error.to_string(),
                Err(_) => LinkError::Slow(CONNECT).to_string(),
            };
            if error != said {
                say(&format!("no tunnel: {error}; it is tried again"));
                said = error;
            }
            rest(pauses).await;
        }
    }

    async fn connect(&self) -> Result<Made, LinkError> {
        let stamp = tls::stamp(&self.files);
        let config = tls::client(&self.files)?;
        let name = ServerName::try_from(self.name.clone()).map_err(|_| LinkError::Name(self.name.clone()))?;
        let reach = |error| LinkError::Reach {
            address: self.gateway.clone(),
            error,
        };
        let socket = TcpStream::connect(&self.gateway).await.map_err(reach)?;
        socket.set_nodelay(true).map_err(reach)?;
        let stream = TlsConnector::from(config)
            .connect(name, socket)
            .await
            .map_err(reach)?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .enable_push(false);
        let (requests, connection) = builder.handshake(stream).await?;
        Ok((stamp, requests, connection))
    }

    async fn spent_is(&self, number: u64) {
        let mut spent = self.spent.subscribe();
        if spent.wait_for(|spent| *spent >= number).await.is_err() {
            std::future::pending().await
        }
    }

    async fn files_change(&self, before: Stamp) {
        let mut tick = interval(LOOK);
        loop {
            tick.tick().await;
            // Half-written files do not end a tunnel that works.
            if tls::stamp(&self.files) != before && tls::client(&self.files).is_ok() {
                return;
            }
        }
    }
}

fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .with_jitter()
        .build()
}

async fn rest(pauses: &mut ExponentialBackoff) {
    sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
}

/// Moves a connection's frames until it ends, or the other side is found to be gone; why it ended.
async fn drive(mut connection: Moving) -> String {
    let Some(pings) = connection.ping_pong() else {
        return "it cannot be watched".to_owned();
    };
    tokio::select! {
        ended = connection => match ended {
            Ok(()) => "the gateway closed it".to_owned(),
            Err(error) => error.to_string(),
        },
        why = watch_over(pings) => why,
    }
}

async fn watch_over(mut pings: h2::PingPong) -> String {
    let mut tick = interval(PING);
    loop {
        tick.tick().await;
        match timeout(PONG, pings.ping(h2::Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the gateway did not answer within {PONG:?}"),
        }
    }
}

/// Whether it is the line that is no longer good, and not the one connection.
pub(super) fn is_of_line(error: &h2::Error) -> bool {
    error.is_io()
        || error.is_go_away()
        || error.reason() == Some(Reason::REFUSED_STREAM)
        || error.is_library()
}

/// A body, up to a length; what came where it broke off.
pub(super) async fn collect(mut body: RecvStream, most: usize) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(Ok(piece)) = body.data().await {
        // The window only grows by what was taken, so that the sender is held to it too.
        let given = body.flow_control().release_capacity(piece.len());
        let room = most.saturating_sub(all.len());
        all.extend_from_slice(&piece[..piece.len().min(room)]);
        if given.is_err() || all.len() >= most {
            break;
        }
    }
    all.freeze()
}

/// Writes a line to standard error.
pub(super) fn say(text: &str) {
    // Nothing is left to tell it to if standard error is closed.
    let _told = writeln!(io::stderr(), "sallyport-shim: {text}");
}
