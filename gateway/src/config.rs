//! Configuration: the only reader of arguments, environment, and the files that they name. Raw first, then resolved.
use crate::audit::records::Range;
use crate::downstream::wanted::{SessionListener, Wanted};
use crate::names::server::NameServer;
use crate::secret::source::Variables;
use crate::secret::store::{CREDENTIAL, Keys, Passphrase};
use crate::start::{RootFiles, Serve, SourcesFile};
use crate::telemetry::Export;
use crate::upstream::{Direct, ParentSpec};
use clap::Parser;
use http::Uri;
use ipnet::IpNet;
use sallyport_policy::Host;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Address of the collector, as OpenTelemetry calls it everywhere.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The only way out of an agent's machine: decides, intercepts, substitutes, redacts, records.
#[derive(Debug, Parser)]
#[command(name = "sallyport-gateway", version)]
pub struct Arguments {
    /// Folder for everything that the gateway keeps; made with mode 0700
    #[arg(long, global = true, value_name = "DIR", env = "SALLYPORT_GATEWAY_STATE")]
    state: Option<PathBuf>,
    /// What is logged to standard error, such as `info` or `warn,sallyport_gateway=debug`
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "SALLYPORT_GATEWAY_LOG",
        default_value = "info"
    )]
    log: String,
    /// File with the passphrase of the local store, where it has one; else the systemd credential `sallyport-passphrase` is read, or
    /// the terminal asks
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_PASSPHRASE_FILE")]
    passphrase_file: Option<PathBuf>,
    /// Key file of the local store, if not STATE/secrets.key
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_SECRETS_KEY")]
    secrets_key: Option<PathBuf>,
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RawCommand {
    /// Serve: machines, the explicit proxy, the control API
    Serve(Box<RawServe>),
    /// Values of the local store; they go in by standard input and never come out
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// The authorities that sign what machines see
    Ca {
        #[command(subcommand)]
        command: CaCommand,
    },
    /// The audit log
    Log {
        #[command(subcommand)]
        command: LogCommand,
    },
}

#[derive(Debug, clap::Args)]
struct RawServe {
    /// Socket of the control API [default: STATE/gateway.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Socket on which listeners are handed over [default: STATE/handover.sock]
    #[arg(long, value_name = "PATH")]
    handover: Option<PathBuf>,
    /// Address of the explicit proxy; port 0 takes any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    proxy: SocketAddr,
    /// Address on which remote machines' tunnels are accepted; none are without it
    #[arg(long, value_name = "ADDRESS:PORT")]
    tunnel: Option<SocketAddr>,
    /// Address for `/metrics`, `/healthz` and `/readyz`, besides the control socket; port 0 takes any
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Unix socket on which the explicit proxy listens too
    #[arg(long, value_name = "PATH")]
    proxy_socket: Option<PathBuf>,
    /// Who may open that socket, as an octal mode
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600", requires = "proxy_socket")]
    proxy_socket_mode: u32,
    /// Network of load balancers before the explicit proxy: from there a PROXY header (version 2) must come; may be given several
    /// times
    #[arg(long, value_name = "CIDR", value_parser = network)]
    proxy_protocol_from: Vec<IpNet>,
    /// Listener of this host, all of whose connections are one session's; KIND is `redirect`, `transparent`, `dns` or `proxy`; may be
    /// given several times (deploy/transparent.md)
    #[arg(long, value_name = "KIND:ADDRESS:PORT=SESSION")]
    listen: Vec<SessionListener>,
    /// PEM file of authorities trusted upstream besides the system's; may be given several times
    #[arg(long, value_name = "FILE")]
    upstream_ca: Vec<PathBuf>,
    /// OpenTelemetry collector that spans are sent to, by OTLP over HTTP; `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
    /// `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_BSP_…` say more
    #[arg(long, value_name = "URL", value_parser = Export::address, env = unless_empty(COLLECTOR))]
    otlp: Option<Uri>,
    /// Part of all connections whose spans are sent, 0 to 1 [default: as `OTEL_TRACES_SAMPLER` says, else all]
    #[arg(long, value_name = "PART", value_parser = Export::part, requires = "otlp")]
    otlp_sample: Option<f64>,
    /// Proxy that the way out leads through, as http://[USER@]HOST:PORT, or https:// where TLS is spoken to it
    #[arg(long, value_name = "URL", value_parser = ParentSpec::read)]
    upstream_proxy: Option<ParentSpec>,
    /// Name of that proxy's password in the local store
    #[arg(long, value_name = "NAME", requires = "upstream_proxy")]
    upstream_proxy_secret: Option<String>,
    /// Send names to that proxy, which looks them up; without it the gateway looks up, judges, and asks the proxy for an
    /// address. What private addresses such names lead to is then that proxy's to refuse
    #[arg(long, requires = "upstream_proxy")]
    upstream_proxy_resolves: bool,
    /// Name, `*.NAME`, address or range that is dialled straight; may be given several times
    #[arg(long, value_name = "HOST", requires = "upstream_proxy", value_parser = Direct::read)]
    no_upstream_proxy: Vec<Direct>,
    /// Name at or under which a newly made authority may vouch for hosts, and for no others; may be given several times
    #[arg(long, value_name = "NAME", value_parser = dns_name)]
    ca_permit: Vec<String>,
    /// Name server to ask instead of the system's, as ADDRESS[:PORT], or as tls://ADDRESS[:PORT][#NAME] for DNS over TLS, where NAME is
    /// its certificate's; may be given several times
    #[arg(long, value_name = "SERVER", value_parser = NameServer::read)]
    dns: Vec<NameServer>,
    /// File that names the services secrets are fetched from, such as Vault [default: STATE/sources.yaml]
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
}

/// What to do with the local store.
#[derive(Debug, Clone, PartialEq, Eq, clap::Subcommand)]
pub enum SecretCommand {
    /// Keep the value that comes on standard input; one line end at its end is left out
    Set {
        /// Name, as policies say it in `from: {store: NAME}`
        name: String,
    },
    /// List the names
    List,
    /// Remove a value
    Rm {
        /// Name
        name: String,
    },
    /// Replace a value by the one that comes on standard input; runs use it at once
    Rotate {
        /// Name
        name: String,
    },
    /// Seal the whole store under another key: a new key file, or a passphrase
    Rekey {
        /// Under a passphrase, which the terminal asks for
        #[arg(long)]
        passphrase: bool,
        /// Under the passphrase in this file
        #[arg(long, value_name = "FILE", conflicts_with = "passphrase")]
        new_passphrase_file: Option<PathBuf>,
    },
}

/// What to do with the authorities.
#[derive(Debug, Clone, PartialEq, Eq, clap::Subcommand)]
pub enum CaCommand {
    /// Make another one for sessions to come; those there are stay with the one that their machines trust
    Rotate {
        /// Name at or under which the new one may vouch for hosts, and for no others; may be given several times
        #[arg(long, value_name = "NAME", value_parser = dns_name)]
        ca_permit: Vec<String>,
    },
    /// Remove those before the current one; machines that trust them alone can reach nothing any more
    Retire,
}

#[derive(Debug, clap::Subcommand)]
enum LogCommand {
    /// Prove that no record was changed, or removed from the middle
    Verify,
    /// Write the stored records out as they are, one JSON document a line
    Records(RawRecords),
}

#[derive(Debug, clap::Args)]
struct RawRecords {
    /// Only records of this time or later, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    since: jiff::Timestamp,
    /// Only records of before this time
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
    /// Only this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

/// Why there is no configuration. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody said where the state is.
    #[error("no state folder: give one with `--state DIR`")]
    NoState,
    /// Half of a log-in.
    #[error("{0}")]
    ProxyLogin(&'static str),
    /// A file that was named cannot be read.
    #[error("`{}` cannot be read: {error}", .path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// What is to be done, resolved.
#[derive(Debug)]
pub struct Config {
    /// Folder for everything that is kept.
    pub state: PathBuf,
    /// Filter of the log on standard error.
    pub log: String,
    /// What opens the local store.
    pub keys: Keys,
    /// What to do.
    pub command: Command,
}

/// One of the program's commands.
#[derive(Debug)]
pub enum Command {
    /// Serve until told to stop.
    Serve(Box<Serve>),
    /// Change or list the local store.
    Secret(SecretCommand),
    /// Change the authorities.
    Ca(CaCommand),
    /// Check the audit log.
    VerifyLog,
    /// Write records of the audit log out.
    Records(Range),
}

impl Arguments {
    /// Reads what the arguments name, and the environment.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let state = self.state.ok_or(ConfigError::NoState)?;
        let state = std::path::absolute(&state).map_err(|error| ConfigError::File { path: state, error })?;
        let command = match self.command {
            RawCommand::Serve(raw) => {
                let raw = *raw;
                let upstream_roots = RootFiles::new(raw.upstream_ca);
                let upstream_roots_pem = upstream_roots
                    .read()
                    .map_err(|(path, error)| ConfigError::File { path, error })?;
                let parent = raw
                    .upstream_proxy
                    .map(|spec| ParentSpec {
                        secret: raw.upstream_proxy_secret,
                        resolves: raw.upstream_proxy_resolves,
                        direct: raw.no_upstream_proxy,
                        ..spec
                    })
                    .map(whole_login)
                    .transpose()?;
                Command::Serve(Box::new(Serve {
                    parent,
                    ca_permitted: raw.ca_permit,
                    control: raw.control.unwrap_or_else(|| state.join("gateway.sock")),
                    handover: raw.handover.unwrap_or_else(|| state.join("handover.sock")),
                    proxy: raw.proxy,
                    tunnel: raw.tunnel,
                    metrics: raw.metrics,
                    wanted: Wanted {
                        socket: raw.proxy_socket.map(|path| (path, raw.proxy_socket_mode)),
                        listeners: raw.listen,
                        balancers: raw.proxy_protocol_from,
                    },
                    upstream_roots,
                    upstream_roots_pem,
                    spans: raw.otlp.map(|collector| Export {
                        collector,
                        sample: raw.otlp_sample,
                    }),
                    dns: raw.dns,
                    sources: SourcesFile(raw.sources),
                    keys: Keys::default(),
                    // What is no text cannot be a secret for a header, and is left out.
                    variables: Variables::from_environment(std::env::vars_os().filter_map(
                        |(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)),
                    )),
                }))
            }
            RawCommand::Secret { command } => Command::Secret(command),
            RawCommand::Ca { command } => Command::Ca(command),
            RawCommand::Log {
                command: LogCommand::Verify,
            } => Command::VerifyLog,
            RawCommand::Log {
                command: LogCommand::Records(RawRecords { since, until, run }),
            } => Command::Records(Range { since, until, run }),
        };
        Ok(Config {
            state,
            log: self.log,
            keys: Keys {
                file: self.secrets_key,
                passphrase: passphrase(self.passphrase_file)?,
            },
            command,
        })
    }
}

/// The passphrase in a file that is named, or among the service's credentials.
fn passphrase(named: Option<PathBuf>) -> Result<Option<Passphrase>, ConfigError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let credential = credentials
        .map(|folder| folder.join(CREDENTIAL))
        .filter(|path| path.exists());
    let Some(path) = named.or(credential) else {
        return Ok(None);
    };
    match std::fs::read(&path).map(Zeroizing::new) {
        Ok(text) => Ok(Some(Passphrase::given(&text))),
        Err(error) => Err(ConfigError::File { path, error }),
    }
}

fn whole_login(spec: ParentSpec) -> Result<ParentSpec, ConfigError> {
    match (&spec.user, &spec.secret) {
        (Some(_), None) => Err(ConfigError::ProxyLogin(
            "`--upstream-proxy` names a user, whose password is missing: name it with `--upstream-proxy-secret NAME`",
        )),
        (None, Some(_)) => Err(ConfigError::ProxyLogin(
            "`--upstream-proxy-secret` is given, and no user: write `--upstream-proxy http://USER@HOST:PORT`",
        )),
        _ => Ok(spec),
    }
}

/// The variable, where it says something: an empty one is as one that is not set (OpenTelemetry specification, "Environment
/// Variable Specification").
fn unless_empty(variable: &'static str) -> Option<&'static str> {
    std::env::var_os(variable)
        .is_none_or(|value| !value.is_empty())
        .then_some(variable)
}

fn dns_name(text: &str) -> Result<String, String> {
    match Host::parse(text).map_err(|fault| fault.to_string())? {
        Host::Name(name) => Ok(name.to_string()),
        Host::Address(_) => Err("an address is no name".to_owned()),
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "neither a network like `10.0.0.0/8` nor an address".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "no octal mode like `660`".to_owned())
}

#[cfg(test)]
mod tests;
