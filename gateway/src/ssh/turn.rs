//! A stream on which ssh shakes hands: each read takes a turn of its session until somebody is logged in.
//!
//! The protocol's own task does with what it has read what is expensive (keys, signatures) before it reads again, and a turn is passed
//! on only after what is ready has run: so its steps come in turn with the handshakes of other sessions.
use crate::turns::{Owner, Turns};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads in turn until it is let go.
pub(super) struct Paced<S> {
    stream: S,
    turns: Arc<Turns>,
    owner: Owner,
    waiting: Option<Waiting>,
    free: Freed,
}

/// Says that the handshake and the log-in are over.
#[derive(Debug, Clone, Default)]
pub(super) struct Freed(Arc<AtomicBool>);

impl Freed {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S> Paced<S> {
    /// What sets the stream free again comes with it.
    pub(super) fn new(stream: S, turns: Arc<Turns>, owner: Owner) -> (Self, Freed) {
        let free = Freed::default();
        let paced = Self {
            stream,
            turns,
            owner,
            waiting: None,
            free: free.clone(),
        };
        (paced, free)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.free.0.load(Ordering::Relaxed) {
            self.waiting = None;
            return Poll::Ready(());
        }
        let waiting = self.waiting.get_or_insert_with(|| -> Waiting {
            let (turns, owner) = (self.turns.clone(), self.owner.clone());
            Box::pin(async move { turns.take(owner, std::future::ready(())).await })
        });
        ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// Reads one byte of a session's, and notes whose it was.
    async fn reads(
        turns: &Arc<Turns>,
        done: &Arc<Mutex<Vec<String>>>,
        name: &str,
    ) -> tokio::task::JoinHandle<()> {
        let (mut client, server) = duplex(8);
        client.write_all(b"x").await.unwrap();
        let (mut paced, _) = Paced::new(server, turns.clone(), Owner::Session(name.into()));
        let (done, name) = (done.clone(), name.to_owned());
        tokio::spawn(async move {
            assert_eq!(paced.read_u8().await.unwrap(), b'x');
            done.lock().unwrap().push(name);
            drop(client);
        })
    }

    #[tokio::test]
    async fn steps_of_one_session_are_not_all_done_before_one_of_another() {
        let (turns, done) = (Turns::new(1), Arc::default());
        let mut tasks = Vec::new();
        for _ in 0..50 {
            tasks.push(reads(&turns, &done, "greedy").await);
        }
        tasks.push(reads(&turns, &done, "other").await);
        for task in tasks {
            task.await.unwrap();
        }
        let done = done.lock().unwrap();
        let place = done.iter().position(|name| name == "other").unwrap();
        assert!((place <= 3) && done.len() == 51, "{place}");
    }

    #[tokio::test]
    async fn who_is_logged_in_waits_for_no_turn() {
        let turns = Turns::new(1);
        let (mut client, server) = duplex(8);
        let (mut paced, free) = Paced::new(server, turns.clone(), Owner::Session("one".into()));
        free.set();
        // In the middle of somebody's step.
        turns
            .take(Owner::Session("other".into()), async {
                client.write_all(b"x").await.unwrap();
                assert_eq!(paced.read_u8().await.unwrap(), b'x');
            })
            .await;
    }
}
