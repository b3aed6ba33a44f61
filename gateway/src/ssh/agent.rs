//! The server that agents speak with: who logs in with what, which channels open, what is refused on each.
use super::asked::is_passed;
use super::exchange::{self, Line};
use super::link::{Forwarded, Link, LogIn, Shown};
use super::means::Means;
use russh::keys::{HashAlg, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Response, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet, Pty};
use sallyport_policy::Place;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Reason code of `CHANNEL_OPEN_FAILURE` (RFC 4254 section 5.1).
const PROHIBITED: u32 = 1;
const NO_FORWARDING: &str =
    "sallyport forwards no ports: connect to the host itself, each connection is decided by its name";

/// One agent's connection.
pub(super) struct Agent {
    link: Arc<Link>,
    means: Means,
    tries: usize,
    places: Arc<Semaphore>,
    /// Channels on which a command was asked for: there is one on each.
    busy: HashSet<ChannelId>,
}

impl Agent {
    /// `tries` bounds how often a password may be wrong.
    pub(super) fn new(link: Arc<Link>, tries: usize) -> Self {
        Self {
            means: Means::of(&link),
            tries,
            places: Arc::new(Semaphore::new(link.shared.limits.ssh_channels)),
            busy: HashSet::new(),
            link,
        }
    }

    fn accept(&self, user: &str, shown: Shown) -> Auth {
        self.link.logged_in(LogIn {
            user: user.to_owned(),
            shown,
        });
        Auth::Accept
    }

    /// Refuses, and says by which ways one may log in.
    fn reject(&self) -> Auth {
        let mut methods = Vec::new();
        if !self.means.keys.is_empty() {
            methods.push(MethodKind::PublicKey);
        }
        methods.push(MethodKind::KeyboardInteractive);
        if !self.means.passwords.is_empty() {
            methods.push(MethodKind::Password);
        }
        Auth::Reject {
            proceed_with_methods: Some(MethodSet::from(methods.as_slice())),
            partial_success: false,
        }
    }

    /// The credential whose placeholder key this is.
    fn owner(&self, key: &PublicKey) -> Option<String> {
        let secrets = self.link.session.secrets();
        let owner = secrets.ssh_key_owner(key)?;
        self.means
            .keys
            .iter()
            .any(|name| name == owner)
            .then(|| owner.to_owned())
    }

    fn password(&self, user: &str, password: &str) -> Auth {
        let secrets = self.link.session.secrets();
        match secrets.password_owner(password) {
            Some(owner) if self.means.passwords.iter().any(|name| name == owner) => {
                self.accept(user, Shown::Credential(owner.to_owned(), Place::Password))
            }
            _ => self.reject(),
        }
    }

    /// Takes a command for a channel; there is one on each.
    fn take(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        match self.busy.insert(channel) {
            true => session.channel_success(channel),
            false => session.channel_failure(channel),
        }
    }
}

impl Handler for Agent {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        match self.means.is_empty() {
            true => Ok(self.accept(user, Shown::Nothing)),
            false => Ok(self.reject()),
        }
    }

    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        if self.owner(offer.public_key).is_some() {
            return Ok(Auth::Accept);
        }
        let fingerprint = offer.public_key.fingerprint(HashAlg::Sha256);
        self.link.refuse_key(fingerprint.to_string());
        Ok(self.reject())
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        match self.owner(key.public_key) {
            Some(owner) => Ok(self.accept(user, Shown::Credential(owner, Place::SshKey))),
            None => Ok(self.reject()),
        }
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        Ok(self.password(user, password))
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        if self.means.passwords.is_empty() {
            return Ok(self.accept(user, Shown::Nothing));
        }
        let Some(mut response) = response else {
            let instructions = format!("sallyport: {}", self.means.told());
            return Ok(Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Owned(instructions),
                prompts: Cow::Borrowed(&[(Cow::Borrowed("Password: "), false)]),
            });
        };
        self.tries = self.tries.saturating_sub(1);
        let said = response.next().unwrap_or_default();
        match std::str::from_utf8(&said) {
            Ok(password) if self.tries > 0 => Ok(self.password(user, password)),
            _ => Ok(self.reject()),
        }
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let (Ok(place), Some(log_in)) = (self.places.clone().try_acquire_owned(), self.link.log_in()) else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        reply.accept().await;
        let line = Line {
            channel,
            handle: session.handle(),
            log_in: log_in.clone(),
        };
        let (link, tasks) = (self.link.clone(), &self.link.shared.tasks);
        tasks.spawn(async move {
            exchange::exchange(link, line).await;
            drop(place);
        });
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        host_to_connect: &str,
        port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.link
            .refuse_forwarding(Forwarded::Ports, &format!("{host_to_connect}:{port_to_connect}"))
            .await;
        reply.reject(no_forwarding()).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.link.refuse_forwarding(Forwarded::Ports, socket_path).await;
        reply.reject(no_forwarding()).await;
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let target = format!("{address}:{port}");
        self.link.refuse_forwarding(Forwarded::Ports, &target).await;
        Ok(false)
    }

    async fn streamlocal_forward(
        &mut self,
        socket_path: &str,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        self.link.refuse_forwarding(Forwarded::Ports, socket_path).await;
        Ok(false)
    }

    async fn agent_request(
        &mut self,
        _channel: ChannelId,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        self.link.refuse_forwarding(Forwarded::Keys, "agent").await;
        Ok(false)
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.busy.remove(&channel);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _col_width: u32,
        _row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single_connection: bool,
        _x11_auth_protocol: &str,
        _x11_auth_cookie: &str,
        _x11_screen_number: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.link.refuse_forwarding(Forwarded::Screen, "x11").await;
        session.channel_failure(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        variable_name: &str,
        _variable_value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match is_passed(variable_name) {
            true => session.channel_success(channel),
            false => session.channel_failure(channel),
        }
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        self.take(channel, session)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.take(channel, session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.take(channel, session)
    }
}

fn no_forwarding() -> ChannelOpenFailure {
    ChannelOpenFailure::Other {
        code: PROHIBITED,
        reason: NO_FORWARDING.to_owned(),
    }
}
