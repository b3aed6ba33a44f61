//! Calls of services that give values as JSON over HTTPS: bounded, without redirects, and wiped behind.
use super::provider::Fault;
use crate::crypto;
use crate::secret::Value;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use reqwest::{RequestBuilder, Response, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use url::{Host, Url};
use zeroize::{Zeroize, Zeroizing};

/// For the connection to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER: usize = 256 * 1024;
/// Letters of a service's own words that are passed on to the operator.
const WORDS: usize = 200;
/// Difference of clocks, in seconds, from which on the service's is taken.
const SKEW: i64 = 30;

/// A client of one service.
#[derive(Debug)]
pub(super) struct Web {
    /// The service, as people call it.
    service: String,
    http: reqwest::Client,
    /// Seconds that its clock is before ours.
    ahead: AtomicI64,
}

/// What it answered.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// Null where there was no JSON.
    pub(super) json: Wiped,
}

/// JSON whose texts are wiped when it is dropped.
pub(super) struct Wiped(pub(super) Json);

impl Drop for Wiped {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl Web {
    /// One that trusts these authorities (PEM), or the system's.
    pub(super) fn new(service: String, ca: Option<&[u8]>) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(trusting(ca)?)
            .user_agent(concat!("sallyport/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            service,
            http,
            ahead: AtomicI64::new(0),
        })
    }

    /// To make requests with.
    pub(super) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The time by the service's clock, where it said that ours is wrong.
    pub(super) fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Sends, and reads the answer, whatever its status is.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Reply, Fault> {
        let service = &self.service;
        let mut response = request.send().await.map_err(|error| {
            tracing::warn!(service, error = %Chain(&error.without_url()), "a source of secrets cannot be reached");
            Fault::passing(format!("{service} cannot be reached"))
        })?;
        self.compare_clocks(&response);
        let mut text = Zeroizing::new(Vec::new());
        let broken = |_| Fault::passing(format!("{service} broke off its answer"));
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            if text.len() + piece.len() > ANSWER {
                return Err(Fault::lasting(format!(
                    "{service} answers more than {ANSWER} bytes"
                )));
            }
            // A vector that grows leaves copies behind: it is wiped before it is left.
            let mut grown = Zeroizing::new(Vec::with_capacity(text.len() + piece.len()));
            grown.extend_from_slice(&text);
            grown.extend_from_slice(&piece);
            text = grown;
        }
        Ok(Reply {
            status: response.status(),
            json: Wiped(serde_json::from_slice(&text).unwrap_or_default()),
        })
    }

    /// The fault that an answer is; `words` are the service's own, for the operator alone.
    pub(super) fn refused(&self, status: StatusCode, words: &str) -> Fault {
        let service = &self.service;
        let words: String = words.chars().take(WORDS).flat_map(char::escape_debug).collect();
        tracing::warn!(
            service,
            status = status.as_u16(),
            words,
            "a source of secrets refuses"
        );
        let sentence = format!("{service} refuses (status {})", status.as_u16());
        match status {
            StatusCode::TOO_MANY_REQUESTS => Fault::passing(sentence),
            status if status.is_client_error() => Fault::lasting(sentence),
            _ => Fault::passing(sentence),
        }
    }

    /// Something that should be in an answer is not there.
    pub(super) fn lacks(&self, what: &str) -> Fault {
        Fault::lasting(format!("the answer of {} has no `{what}`", self.service))
    }

    fn compare_clocks(&self, response: &Response) {
        let date = response.headers().get(http::header::DATE);
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok());
        let Some(date) = date else { return };
        let ahead = date.timestamp().duration_since(Timestamp::now()).as_secs();
        let ahead = if ahead.abs() > SKEW { ahead } else { 0 };
        if self.ahead.swap(ahead, Ordering::Relaxed) != ahead && ahead != 0 {
            tracing::warn!(
                service = self.service,
                seconds = ahead,
                "the clock of a source of secrets differs, and is taken"
            );
        }
    }
}

/// An error with all that caused it.
struct Chain<'a>(&'a reqwest::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = std::error::Error::source(self.0);
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

/// Values that can be given back as long as the gateway runs, by ids under which leases are written down.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<BTreeMap<String, (String, Arc<Value>)>>);

impl Held {
    /// Keeps one that came from this entry of the settings; its id.
    pub(super) fn keep(&self, of: &str, value: Value) -> String {
        let id = uuid::Uuid::now_v7().to_string();
        self.all().insert(id.clone(), (of.to_owned(), Arc::new(value)));
        id
    }

    /// One, and where it came from; none after a restart, and where it was given back.
    pub(super) fn get(&self, id: &str) -> Option<(String, Arc<Value>)> {
        self.all().get(id).cloned()
    }

    /// It is given back.
    pub(super) fn forget(&self, id: &str) {
        self.all().remove(id);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, (String, Arc<Value>)>> {
        // Each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong with each entry of a section, as its last fetch has shown.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<BTreeMap<String, String>>);

impl Faults {
    /// How a fetch for this entry went.
    pub(super) fn note<T>(&self, entry: &str, done: &Result<T, Fault>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(_) => drop(all.remove(entry)),
            Err(fault) => drop(all.insert(entry.to_owned(), fault.sentence.clone())),
        }
    }

    /// All in words; none where all is well.
    pub(super) fn told(&self, what: &str) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all
            .iter()
            .map(|(entry, why)| format!("{what} `{entry}`: {why}"))
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// `Bearer TOKEN` (RFC 6750), kept out of what is printed.
pub(super) fn bearer(token: &Value) -> Result<HeaderValue, Fault> {
    let text = Zeroizing::new([b"Bearer ".as_slice(), token.bytes()].concat());
    let mut header = HeaderValue::from_bytes(&text)
        .map_err(|_| Fault::lasting("a token has characters that no token has"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Wipes the texts of a JSON value.
pub(super) fn wipe(json: &mut Json) {
    match json {
        Json::String(text) => text.zeroize(),
        Json::Array(all) => all.iter_mut().for_each(wipe),
        Json::Object(all) => all.values_mut().for_each(wipe),
        _ => {}
    }
}

/// An address of a service: encrypted, or on this machine, and without a log-in in it.
pub(super) fn address(field: &str, text: &str) -> Result<Url, String> {
    let wrong = |why: &str| {
        format!(
            "`{field}`: `{}` {why}; write `https://HOST/PATH`",
            text.escape_debug()
        )
    };
    let url = Url::parse(text).map_err(|error| wrong(&format!("is no address ({error})")))?;
    let local = match url.host() {
        None => return Err(wrong("names no host")),
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
    };
    if !matches!(url.scheme(), "https" | "http") {
        return Err(wrong("is neither `https` nor `http`"));
    }
    if url.scheme() == "http" && !local {
        return Err(wrong(
            "is not encrypted, and not on this machine: secrets would be read by whoever is between",
        ));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(wrong(
            "has a log-in or a fragment in it; a log-in has settings of its own",
        ));
    }
    Ok(url)
}

/// TLS that trusts these authorities (PEM), or the system's.
pub(super) fn trusting(ca: Option<&[u8]>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let own: Vec<CertificateDer<'_>> = match ca {
        Some(mut pem) => rustls_pemfile::certs(&mut pem)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("`ca`: {error}"))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (taken, _) = roots.add_parsable_certificates(own);
    if ca.is_some() && taken == 0 {
        return Err("`ca`: there is no certificate in it".to_owned());
    }
    let config = ClientConfig::builder_with_provider(crypto::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
