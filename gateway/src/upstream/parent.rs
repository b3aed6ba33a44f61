//! A parent proxy on the way out: what goes through it, and CONNECT with its answer read within bounds.
use super::UpstreamFault;
use crate::limits::Limits;
use crate::secret::SecretStore;
use crate::secret::proxy_login::{LoginFault, ProxyLogin};
use crate::stream::Stream;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use sallyport_policy::Host;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Ends of names that mean something else at the proxy than here (RFC 6761, RFC 6762, RFC 7686, and `internal`).
const LOCAL: [&str; 5] = ["localhost", "local", "internal", "arpa", "onion"];
/// Longest part of the proxy's own words that is told.
const WORDS: usize = 120;

/// How to reach a parent proxy, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentSpec {
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// Whether TLS is spoken to the proxy itself.
    pub tls: bool,
    /// User to log in as.
    pub user: Option<String>,
    /// Name of the password in the gateway's store.
    pub secret: Option<String>,
    /// What is dialled straight all the same.
    pub direct: Vec<Direct>,
    /// Names are sent to the proxy, which looks them up. Else the gateway looks up, judges, and asks for the judged address.
    pub resolves: bool,
}

/// Destinations that are dialled straight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direct {
    /// This name.
    Name(Arc<str>),
    /// All names under this one.
    Under(Arc<str>),
    /// Addresses.
    Net(IpNet),
}

/// A parent proxy that can be used.
#[derive(Debug)]
pub struct Parent {
    spec: ParentSpec,
    login: Option<ProxyLogin>,
}

impl ParentSpec {
    /// Reads `http://[user@]host:port` or `https://…`. The error says what is wrong with it.
    pub fn read(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write `http://[USER@]HOST:PORT` or `https://…`");
        let uri: http::Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("its scheme is neither `http` nor `https`")),
        };
        if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
            return Err(wrong("it has a path"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        let user = match authority.as_str().rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return Err(
                    "a password does not belong into the URL, where everybody on the machine can read it; put it into the store \
                     (`secret set NAME`) and name it with `--upstream-proxy-secret NAME`"
                        .to_owned(),
                );
            }
            Some((user, _)) => Some(user_name(user).ok_or_else(|| wrong("its user is no text"))?),
            None => None,
        };
        Ok(Self {
            host: Host::parse(authority.host()).map_err(|fault| fault.to_string())?,
            port: authority.port_u16().ok_or_else(|| wrong("it names no port"))?,
            tls,
            user,
            secret: None,
            direct: Vec::new(),
            resolves: false,
        })
    }
}

/// A user of Basic has no colon and no control characters (RFC 7617 section 2).
fn user_name(encoded: &str) -> Option<String> {
    let user = percent_decode_str(encoded).decode_utf8().ok()?.into_owned();
    (!user.contains(':') && !user.chars().any(char::is_control)).then_some(user)
}

impl Direct {
    /// Reads a name, `*.NAME` (or `.NAME`) for all names under it, an address, or a range of addresses.
    pub fn read(text: &str) -> Result<Self, String> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net(net.trunc()));
        }
        let under = text.strip_prefix("*.").or_else(|| text.strip_prefix('.'));
        match Host::parse(under.unwrap_or(text)).map_err(|fault| fault.to_string())? {
            Host::Name(name) if under.is_some() => Ok(Self::Under(name)),
            Host::Name(name) => Ok(Self::Name(name)),
            Host::Address(_) if under.is_some() => Err("there is nothing under an address".to_owned()),
            Host::Address(address) => Ok(Self::Net(address.into())),
        }
    }

    fn names(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => **own == *name,
            Self::Under(domain) => name
                .strip_suffix(&**domain)
                .is_some_and(|rest| rest.ends_with('.')),
            Self::Net(_) => false,
        }
    }
}

impl Parent {
    /// A proxy whose password, if it wants one, is in `store`.
    pub fn new(spec: ParentSpec, store: &Arc<SecretStore>) -> Self {
        let login = spec.user.clone().zip(spec.secret.clone());
        Self {
            login: login.map(|(user, secret)| ProxyLogin::new(user, secret, store.clone())),
            spec,
        }
    }

    pub(super) fn spec(&self) -> &ParentSpec {
        &self.spec
    }

    /// `host:port`.
    pub(super) fn label(&self) -> String {
        format!("{}:{}", self.spec.host.in_url(), self.spec.port)
    }

    /// Whether a judged address is dialled through the proxy. Loopback never is: at the proxy it would be another machine.
    pub(super) fn takes(&self, host: &Host, address: IpAddr) -> bool {
        let named = |direct: &Direct| match direct {
            Direct::Net(net) => net.contains(&address),
            other => host.name().is_some_and(|name| other.names(name)),
        };
        !address.is_loopback() && !self.spec.direct.iter().any(named)
    }

    /// Whether the proxy is to look this name up; an error where it must not be asked for it.
    pub(super) fn looks_up(&self, name: &str) -> Result<bool, UpstreamFault> {
        if !self.spec.resolves || self.spec.direct.iter().any(|direct| direct.names(name)) {
            return Ok(false);
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        if !name.contains('.') || LOCAL.contains(&last) {
            return Err(UpstreamFault::Address(format!(
                "`{name}` is a local name, which the proxy `{}` would look up in its own network; where it is meant, the operator \
                 exempts it with `--no-upstream-proxy {name}`",
                self.label()
            )));
        }
        Ok(true)
    }

    /// Asks for a tunnel to `target` (`host:port`) on a connection to the proxy (RFC 9110 section 9.3.6).
    pub(super) async fn tunnel(
        &self,
        stream: Stream,
        target: &str,
        limits: &Limits,
    ) -> Result<Stream, UpstreamFault> {
        match timeout(
            limits.parent_answer,
            self.ask(stream, target, limits.parent_head_bytes),
        )
        .await
        {
            Ok(answered) => answered,
            Err(_) => Err(UpstreamFault::ParentTimeout(self.label(), limits.parent_answer)),
        }
    }

    async fn ask(&self, mut stream: Stream, target: &str, most: usize) -> Result<Stream, UpstreamFault> {
        let lines = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        match &self.login {
            Some(login) => login
                .send(&mut stream, &lines)
                .await
                .map_err(|fault| match fault {
                    LoginFault::Missing(why) => UpstreamFault::ParentLogin(self.label(), why),
                    LoginFault::Io(error) => self.fault(&error.to_string()),
                })?,
            None => stream
                .write_all(format!("{lines}\r\n").as_bytes())
                .await
                .map_err(|error| self.fault(&error.to_string()))?,
        }
        let head = loop {
            if let Some(end) = memchr::memmem::find(stream.seen(), b"\r\n\r\n") {
                break end + 4;
            }
            if stream.seen().len() > most {
                return Err(self.fault("its answer to CONNECT does not end"));
            }
            match stream.look_further().await {
                Ok(true) => {}
                Ok(false) => return Err(self.fault("it closed the connection before it answered CONNECT")),
                Err(error) => return Err(self.fault(&error.to_string())),
            }
        };
        let mut answer = vec![0; head];
        stream
            .read_exact(&mut answer)
            .await
            .map_err(|error| self.fault(&error.to_string()))?;
        self.judge(&answer).map(|()| stream)
    }

    /// Whether the answer opens the tunnel.
    fn judge(&self, answer: &[u8]) -> Result<(), UpstreamFault> {
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let (status, words) = status_line(&line).ok_or_else(|| self.fault("what it answered is no HTTP"))?;
        match status {
            200..300 => Ok(()),
            407 => Err(UpstreamFault::ParentLogin(
                self.label(),
                match self.login {
                    Some(_) => "it did not take the log-in (407)".to_owned(),
                    None => "it wants a log-in (407)".to_owned(),
                },
            )),
            _ => {
                let words: String = words.chars().filter(|c| !c.is_control()).take(WORDS).collect();
                Err(UpstreamFault::ParentRefused(self.label(), status, words))
            }
        }
    }

    pub(super) fn fault(&self, why: &str) -> UpstreamFault {
        UpstreamFault::Parent(self.label(), why.to_owned())
    }
}

/// Status and reason phrase (RFC 9112 section 4).
fn status_line(line: &str) -> Option<(u16, &str)> {
    let rest = line.strip_prefix("HTTP/1.")?.get(1..)?.strip_prefix(' ')?;
    let (status, words) = rest.split_once(' ').unwrap_or((rest, ""));
    let three = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    Some((three.then(|| status.parse().ok()).flatten()?, words))
}

#[cfg(test)]
mod tests;
