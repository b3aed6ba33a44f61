//! Who comes to the proxy: whoever knows a session's token, or whoever reaches a session's own listener.
use super::strangers::Place;
use crate::Shared;
use crate::session::Session;
use http::uri::Authority;
use sallyport_policy::Host;
use std::net::SocketAddr;
use std::sync::Arc;

/// How it is known whose a proxy connection is.
#[derive(Debug, Clone)]
pub enum Owner {
    /// The client says a session's id and proxy token.
    Token,
    /// The listener belongs to the session of this id; what the client says of itself is not looked at.
    Listener(Arc<str>),
}

/// One client of the proxy.
#[derive(Debug, Clone)]
pub struct Caller {
    /// How it is known whose it is.
    pub owner: Owner,
    /// Where it is, where that is known.
    pub client: Option<SocketAddr>,
    /// Its place among those who have not said who they are.
    pub stranger: Option<Arc<Place>>,
    /// What it calls the proxy itself, where it speaks TLS to it.
    pub proxy: Option<Host>,
}

impl Caller {
    /// Whether an authority is that of the proxy itself: over HTTP/2 every request has one.
    pub fn means_proxy(&self, authority: &Authority) -> bool {
        let named = Host::parse(authority.host().trim_matches(['[', ']']));
        self.proxy
            .as_ref()
            .is_some_and(|own| named.is_ok_and(|host| host == *own))
    }

    /// The session of this client, with what it said of itself: name and password.
    pub fn session(&self, shared: &Shared, said: Option<(&str, &str)>) -> Option<Arc<Session>> {
        match &self.owner {
            Owner::Listener(session) => shared.sessions.by_id(session),
            Owner::Token => {
                let (name, password) = said?;
                let session = shared.sessions.by_proxy_password(name, password)?;
                if let Some(place) = &self.stranger {
                    place.leave();
                }
                Some(session)
            }
        }
    }
}
