//! The client's first messages, up to its start-up message or its cancel request; TLS with our leaf in between.
use super::message::{self, First, Key, START_UP_BYTES, StartUp};
use super::stop::Stop;
use crate::Shared;
use crate::session::Session;
use crate::sniff::{LOOK_BYTES, Protocol, sniff};
use crate::stream::Stream;
use crate::tls;
use crate::turns::Owner;
use sallyport_policy::Destination;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A client that has said what it wants.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its connection.
    pub(super) client: Stream,
    /// Whether it speaks TLS.
    pub(super) tls: bool,
    /// What it wants.
    pub(super) wish: Wish,
}

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Wish {
    /// To log in.
    LogIn(StartUp),
    /// To stop the query of another connection.
    Cancel(Key),
}

/// A client that broke off, or could not be understood; with its connection, where it can still be told.
#[derive(Debug)]
pub(super) struct Unopened {
    /// Its connection.
    pub(super) client: Option<Stream>,
    /// Why.
    pub(super) stop: Stop,
}

/// Reads what a client says first. Encryption may be asked for once each; GSSAPI is declined, TLS is made.
pub(super) async fn open(
    shared: &Shared,
    mut client: Stream,
    mut tls: bool,
    (session, destination): (&Session, &Destination),
) -> Result<Opened, Unopened> {
    let mut declined = false;
    loop {
        let first = match read(&mut client).await {
            Ok(first) => first,
            Err(stop) => {
                return Err(Unopened {
                    client: Some(client),
                    stop,
                });
            }
        };
        let wish = match first {
            First::StartUp(start_up) => Wish::LogIn(start_up),
            First::Cancel(key) => Wish::Cancel(key),
            First::Gss if !declined => {
                declined = true;
                match answer(&mut client, b"N").await {
                    Ok(()) => continue,
                    Err(stop) => return Err(Unopened { client: None, stop }),
                }
            }
            First::Tls if !tls => {
                client = encrypt(shared, client, (session, destination))
                    .await
                    .map_err(|stop| Unopened { client: None, stop })?;
                tls = true;
                continue;
            }
            First::Gss | First::Tls => {
                let stop = Stop::Client("encryption was asked for again".to_owned());
                return Err(Unopened {
                    client: Some(client),
                    stop,
                });
            }
        };
        return Ok(Opened { client, tls, wish });
    }
}

async fn read(client: &mut Stream) -> Result<First, Stop> {
    let length = client.read_u32().await.map_err(|error| Stop::client(&error))?;
    let body = (length as usize)
        .checked_sub(4)
        .filter(|body| *body <= START_UP_BYTES);
    let Some(body) = body else {
        return Err(Stop::Client(format!(
            "the first message announces a length of {length}"
        )));
    };
    let mut bytes = vec![0; body];
    client
        .read_exact(&mut bytes)
        .await
        .map_err(|error| Stop::client(&error))?;
    Ok(message::first(&bytes)?)
}

async fn answer(client: &mut Stream, word: &[u8]) -> Result<(), Stop> {
    let told = async {
        client.write_all(word).await?;
        client.flush().await
    };
    told.await.map_err(|error| Stop::client(&error))
}

/// Says `S` and makes TLS. What was sent ahead of it in plain would be taken for encrypted: refused (CVE-2021-23214).
async fn encrypt(
    shared: &Shared,
    mut client: Stream,
    (session, destination): (&Session, &Destination),
) -> Result<Stream, Stop> {
    if !client.seen().is_empty() {
        return Err(Stop::Client(
            "unencrypted bytes came behind the request for encryption".to_owned(),
        ));
    }
    answer(&mut client, b"S").await?;
    let hello = loop {
        match sniff(client.seen()) {
            Protocol::Tls(hello) => break hello,
            Protocol::Incomplete if client.seen().len() < LOOK_BYTES => {}
            _ => return Err(Stop::Client("no TLS came after the request for it".to_owned())),
        }
        match client.look_further().await {
            Ok(true) => {}
            Ok(false) => return Err(Stop::Gone),
            Err(error) => return Err(Stop::client(&error)),
        }
    };
    let terms = tls::Terms {
        destination,
        trusted: session.authority(),
        http1_only: false,
        stranger: false,
        limit: shared.limits.handshake,
    };
    let shaking = tls::accept(&shared.leaves, client, &hello, terms);
    shared
        .turns
        .take(Owner::Session(session.id().into()), shaking)
        .await
        .map_err(|fault| Stop::Client(fault.to_string()))
}
