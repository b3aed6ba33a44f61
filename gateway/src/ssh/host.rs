//! What the library asks of the client that speaks with a real host: whether its key is known, and what it may open (nothing).
use super::known::Known;
use russh::Channel;
use russh::client::{ChannelOpenHandle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use std::sync::{Arc, Mutex, PoisonError};

/// A host as its connection sees it.
pub(super) struct Host {
    known: Known,
    stranger: Stranger,
}

/// Why a host is not the one that is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Stranger(Arc<Mutex<Option<String>>>);

impl Stranger {
    /// Says it, where the host was looked at and is another.
    pub(super) fn why(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

impl Host {
    pub(super) fn new(known: Known) -> (Self, Stranger) {
        let stranger = Stranger::default();
        let host = Self {
            known,
            stranger: stranger.clone(),
        };
        (host, stranger)
    }
}

/// Hosts open no channels towards agents. Each kind is said here since the library's own answer is to accept; a reply that is dropped
/// refuses. Kinds that it does not know it refuses by itself.
impl Handler for Host {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let checked = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.known.check(key),
            PublicKeyOrCertificate::Certificate(_) => {
                Err("the host showed a certificate, which is not looked at here".to_owned())
            }
        };
        let fine = checked.is_ok();
        self.stranger.note(checked.err());
        Ok(fine)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host_to_connect: &str,
        _port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        _reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }
}
