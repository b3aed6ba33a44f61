//! The hand-over socket: listeners opened inside a machine's network come here as file descriptors.
//!
//! One exchange for each connection: a JSON line [`Handover`] with the descriptors as `SCM_RIGHTS`, answered by a JSON line
//! [`HandoverAnswer`].
use crate::control::types::{Handover, HandoverAnswer, ListenerKind};
use crate::session::{Session, Sessions};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Descriptors in one hand-over at most.
pub const MOST_DESCRIPTORS: usize = 16;
/// Bytes of the announcing line at most.
const LINE: usize = 16 * 1024;
/// A peer that has not said everything by then is cut off.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever accepts on behalf of sessions.
pub trait ListenerHost: Send + Sync + 'static {
    /// Serves these sockets for a session from now on and closes the session's earlier ones. The error is for people.
    fn serve(&self, session: Arc<Session>, listeners: Vec<(ListenerKind, OwnedFd)>) -> Result<(), String>;
}

/// Takes hand-overs until stopped.
pub async fn serve(
    listener: UnixListener,
    sessions: Arc<Sessions>,
    host: Arc<dyn ListenerHost>,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tasks.spawn(one(stream, sessions.clone(), host.clone()))),
            Err(error) => {
                // Out of descriptors, most likely: others must end before this goes on.
                tracing::warn!(%error, "the hand-over socket accepts nothing at the moment");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn one(mut stream: UnixStream, sessions: Arc<Sessions>, host: Arc<dyn ListenerHost>) {
    let answer = match tokio::time::timeout(PATIENCE, receive(&stream)).await {
        Ok(Ok((handover, descriptors))) => take(handover, descriptors, &sessions, &*host),
        Ok(Err(why)) => HandoverAnswer::Refused(why),
        Err(_) => HandoverAnswer::Refused("the hand-over did not come within 5 s".to_owned()),
    };
    if let HandoverAnswer::Refused(why) = &answer {
        tracing::warn!(why, "hand-over refused");
    }
    let Ok(mut line) = serde_json::to_vec(&answer) else {
        return;
    };
    line.push(b'\n');
    if let Err(error) = stream.write_all(&line).await {
        tracing::warn!(%error, "the answer to a hand-over did not arrive");
    }
}

fn take(
    handover: Handover,
    descriptors: Vec<OwnedFd>,
    sessions: &Sessions,
    host: &dyn ListenerHost,
) -> HandoverAnswer {
    let refused = HandoverAnswer::Refused;
    let Some(session) = sessions.by_id(&handover.session) else {
        return refused(format!(
            "there is no session `{}`; put it first",
            handover.session.escape_debug()
        ));
    };
    if handover.listeners.is_empty() || handover.listeners.len() != descriptors.len() {
        return refused(format!(
            "{} listeners were announced and {} descriptors came",
            handover.listeners.len(),
            descriptors.len()
        ));
    }
    match host.serve(session, handover.listeners.into_iter().zip(descriptors).collect()) {
        Ok(()) => HandoverAnswer::Serving,
        Err(why) => refused(why),
    }
}

/// Reads one line and the descriptors that come with it.
async fn receive(stream: &UnixStream) -> Result<(Handover, Vec<OwnedFd>), String> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    loop {
        let count = stream
            .async_io(Interest::READABLE, || read(stream, &mut line, &mut descriptors))
            .await
            .map_err(|error| format!("the hand-over cannot be read: {error}"))?;
        if descriptors.len() > MOST_DESCRIPTORS {
            return Err(format!("more than {MOST_DESCRIPTORS} descriptors came"));
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            let handover = serde_json::from_slice(&line[..end])
                .map_err(|error| format!("the hand-over makes no sense: {error}"))?;
            return Ok((handover, descriptors));
        }
        if count == 0 {
            return Err("the hand-over ended in the middle".to_owned());
        }
        if line.len() > LINE {
            return Err(format!("the hand-over's line is longer than {LINE} bytes"));
        }
    }
}

fn read(stream: &UnixStream, line: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> std::io::Result<usize> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE.into());
    }
    line.extend_from_slice(&bytes[..received.bytes]);
    Ok(received.bytes)
}
