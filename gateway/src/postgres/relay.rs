//! A connection after its log-in: both ways at once, until one side ends or something must not pass.
use super::cancel::Given;
use super::incoming::{Broken, Incoming};
use super::message::Key;
use super::outgoing::{Cut, Outgoing};
use super::stop::Stop;
use super::turns::Turns;
use crate::Shared;
use crate::lasting::{Hold, Over, over};
use crate::session::exceeded::Bound;
use crate::session::quota::Pass;
use crate::stream::Stream;
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// Bytes read at once.
const PIECE: usize = 16 * 1024;

/// A connection that was let in on both sides.
pub(super) struct Relay<'a> {
    /// What every connection needs.
    pub(super) shared: &'a Shared,
    /// Whose it is.
    pub(super) hold: Hold<'a>,
    /// Its bounds.
    pub(super) pass: &'a Pass,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// One side ended it; the record's ending.
    Closed(String),
    /// The gateway ended it; the client is to be told where `between` messages.
    Stopped {
        /// Why.
        stop: Stop,
        /// Whether an error may be written to the client.
        between: bool,
    },
}

impl Relay<'_> {
    /// Carries bytes both ways. `greeting` goes to the client first; `own_key` gives the client's key for the upstream's.
    pub(super) async fn run(
        &self,
        client: &mut Stream,
        upstream: Stream,
        greeting: &[u8],
        own_key: impl FnMut(Key) -> Option<Given>,
    ) -> Ended {
        let secrets = self.hold.session.secrets();
        let mut own_key = own_key;
        let mut given = None;
        let turns = Arc::new(Turns::default());
        let mut incoming = Incoming::new(self.hold.session.redactor(), turns.clone(), |key| {
            given = own_key(key);
            given.as_ref().map(|given: &Given| given.own().clone())
        });
        let mut outgoing = Outgoing::new(&secrets, turns.clone());
        let mut pending = BytesMut::from(greeting);
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
        let ended = tokio::select! {
            ended = self.outwards(&mut from_client, &mut to_upstream, &mut outgoing) => ended,
            ended = self.inwards(&mut from_upstream, &mut to_client, &mut incoming, &mut pending) => ended,
            over = self.over(&turns) => Err(Stop::Over(over)),
        };
        let ended = match ended {
            Ok(ending) => Ended::Closed(ending),
            Err(stop) => {
                let limit = self.shared.limits.farewell;
                let further = may_go_on(&stop).then_some(&mut from_upstream);
                let rest = settle(further, &mut to_client, &mut incoming, &mut pending);
                let between = within(limit, rest).await && incoming.is_between();
                Ended::Stopped { stop, between }
            }
        };
        self.hold.traffic.redacted(incoming.redacted());
        self.hold.traffic.remark(outgoing.remarks());
        ended
    }

    /// Resolves when the gateway must end it. Where the gateway stops, what is under way may end first.
    async fn over(&self, turns: &Turns) -> Over {
        let limits = &self.shared.limits;
        match over(self.shared, self.hold, limits.tunnel_idle).await {
            Over::Stopping => tokio::select! {
                () = self.hold.door.ended() => Over::Session,
                _ = tokio::time::timeout(limits.transaction, turns.rest()) => Over::Stopping,
            },
            over => over,
        }
    }

    /// From the client to the upstream.
    async fn outwards(
        &self,
        from: &mut ReadHalf<&mut Stream>,
        to: &mut WriteHalf<Stream>,
        outgoing: &mut Outgoing,
    ) -> Result<String, Stop> {
        let (mut piece, mut out) = (BytesMut::new(), BytesMut::new());
        loop {
            piece.clear();
            match read(from, &mut piece).await {
                Ok(0) => return Ok("the client went away".to_owned()),
                Ok(count) => self.pass.take(count)?,
                Err(error) => return Ok(format!("incomplete: the client's connection broke: {error}")),
            }
            outgoing.take(&piece, &mut out).map_err(|cut| match cut {
                Cut::Leak(leak) => Stop::Leak(leak),
                Cut::Malformed(what) => Stop::Client(what),
            })?;
            let bytes_out = &self.hold.traffic.bytes_out;
            bytes_out.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if let Err(error) = write(to, &mut out).await {
                return Ok(format!("incomplete: the upstream's connection broke: {error}"));
            }
            if outgoing.is_over() {
                return Ok("complete".to_owned());
            }
            self.brake(piece.len()).await;
        }
    }

    /// From the upstream to the client. What is in `pending` goes first, and what is left there when this is dropped must be
    /// written before anything else is.
    async fn inwards<F: FnMut(Key) -> Option<Key>>(
        &self,
        from: &mut ReadHalf<Stream>,
        to: &mut WriteHalf<&mut Stream>,
        incoming: &mut Incoming<F>,
        pending: &mut BytesMut,
    ) -> Result<String, Stop> {
        let mut piece = BytesMut::new();
        loop {
            if let Err(error) = write(to, pending).await {
                return Ok(format!("incomplete: the client's connection broke: {error}"));
            }
            piece.clear();
            let count = match read(from, &mut piece).await {
                Ok(0) => return Ok("the upstream closed the connection".to_owned()),
                Ok(count) => count,
                Err(error) => return Ok(format!("incomplete: the upstream's connection broke: {error}")),
            };
            self.pass.receive(count)?;
            incoming.take(&piece, false, pending).map_err(broken)?;
            let bytes_in = &self.hold.traffic.bytes_in;
            bytes_in.fetch_add(count as u64, Ordering::Relaxed);
            self.brake(count).await;
        }
    }

    /// Waits where a rule's `bandwidth` is passed faster than it says.
    async fn brake(&self, count: usize) {
        if let Some(wait) = self.pass.pace(count) {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Whether more of the upstream may be read after this: not what is too much, and not what cannot be understood.
fn may_go_on(stop: &Stop) -> bool {
    match stop {
        Stop::Limit(exceeded) => exceeded.bound != Bound::ResponseBytes,
        Stop::Broken(_) => false,
        _ => true,
    }
}

/// Lets the client have the rest of the message that it is reading, so that it can be told something.
async fn settle<F: FnMut(Key) -> Option<Key>>(
    mut from: Option<&mut ReadHalf<Stream>>,
    to: &mut WriteHalf<&mut Stream>,
    incoming: &mut Incoming<F>,
    pending: &mut BytesMut,
) -> Result<(), Stop> {
    let lost = |error: io::Error| Stop::Broken(error.to_string());
    let mut piece = BytesMut::new();
    loop {
        write(to, pending).await.map_err(lost)?;
        if incoming.is_between() {
            return Ok(());
        }
        let Some(from) = &mut from else {
            return Err(Stop::Gone);
        };
        piece.clear();
        if read(*from, &mut piece).await.map_err(lost)? == 0 {
            return Err(Stop::Gone);
        }
        incoming.take(&piece, true, pending).map_err(broken)?;
    }
}

async fn within(limit: Duration, rest: impl Future<Output = Result<(), Stop>>) -> bool {
    matches!(tokio::time::timeout(limit, rest).await, Ok(Ok(())))
}

fn broken(broken: Broken) -> Stop {
    Stop::Broken(broken.to_string())
}

/// Cancel safe.
async fn read(from: &mut (impl AsyncRead + Unpin), piece: &mut BytesMut) -> io::Result<usize> {
    piece.reserve(PIECE);
    from.read_buf(piece).await
}

/// Cancel safe: what was not written stays.
async fn write(to: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> io::Result<()> {
    while !out.is_empty() {
        to.write_buf(out).await?;
    }
    to.flush().await
}
