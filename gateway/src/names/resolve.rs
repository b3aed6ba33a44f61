//! Names to addresses, as the gateway itself sees them; whether an address may be dialled is not decided here.
pub use super::known::Known;
use super::server::NameServer;

use crate::session::Session;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolverConfig;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use rustls::ClientConfig;
use sallyport_policy::Host;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Names whose answers are kept at most.
const KEPT: u64 = 20_000;
/// An answer, also that there is none, is kept for no longer than this, whatever it says itself (RFC 2308 section 5).
const KEPT_LONGEST: Duration = Duration::from_secs(600);

/// Looks names up with the system's configuration, or with given servers.
#[derive(Debug)]
pub struct Resolver {
    dns: Option<TokioResolver>,
}

/// Why names cannot be looked up at all. The operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("the system's DNS configuration cannot be used: {0}; name servers can be given with `--dns`")]
pub struct ResolverError(String);

/// Why a name has no address: it does not exist, or no server answers. A retry may help.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub String);

impl Resolver {
    /// With these servers; with the system's configuration where there are none. `trust` is how those are known that are asked
    /// over TLS; without it none of them is.
    pub fn new(servers: &[NameServer], trust: Option<ClientConfig>) -> Result<Self, ResolverError> {
        let fail = |error: &dyn std::fmt::Display| ResolverError(error.to_string());
        let builder = if servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| fail(&error))?
        } else {
            let config = ResolverConfig::from_parts(
                None,
                Vec::new(),
                servers.iter().map(NameServer::config).collect(),
            );
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let mut builder = match trust {
            Some(trust) => builder.with_tls_config(trust),
            None => builder,
        };
        let options = builder.options_mut();
        options.cache_size = KEPT;
        options.positive_max_ttl = Some(KEPT_LONGEST);
        options.negative_max_ttl = Some(KEPT_LONGEST);
        let dns = builder.build().map_err(|error| fail(&error))?;
        Ok(Self { dns: Some(dns) })
    }

    /// Whether a name exists and has addresses of any family. The answer is kept, and a connection made soon after asks nobody.
    pub async fn known(&self, name: &str) -> Known {
        let Some(dns) = &self.dns else {
            return Known::Failed("no name server is configured".to_owned());
        };
        match dns.lookup_ip(format!("{name}.")).await {
            Ok(found) => {
                let left = found.valid_until().saturating_duration_since(Instant::now());
                Known::Addresses {
                    ttl: u32::try_from(left.as_secs()).unwrap_or(u32::MAX),
                }
            }
            Err(error) if error.is_nx_domain() => Known::NoSuchName,
            Err(error) if error.is_no_records_found() => Known::Nothing,
            Err(error) => Known::Failed(error.to_string()),
        }
    }

    /// Without any server: only fixed names have addresses.
    pub fn without_servers() -> Self {
        Self { dns: None }
    }

    /// All addresses of a host: the session's fixed ones first, then DNS. One look-up.
    pub async fn addresses(&self, session: &Session, host: &Host) -> Result<Vec<IpAddr>, LookupError> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        if let Some(address) = session.hosts().get(&**name) {
            return Ok(vec![*address]);
        }
        self.lookup(host).await
    }

    /// All addresses of a host, whatever a session fixes. One look-up.
    pub async fn lookup(&self, host: &Host) -> Result<Vec<IpAddr>, LookupError> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        // RFC 6761 section 6.3: never asked of a server.
        if &**name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let Some(dns) = &self.dns else {
            return Err(LookupError(format!(
                "`{name}` has no fixed address and no name server is configured"
            )));
        };
        // The dot keeps search lists out of it.
        let found = dns
            .lookup_ip(format!("{name}."))
            .await
            .map_err(|error| LookupError(format!("`{name}`: {error}")))?;
        Ok(found.iter().collect())
    }
}
