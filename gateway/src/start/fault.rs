//! Why a gateway does not start, each with what the operator can do about it.
use crate::AssemblyError;
use crate::audit::AuditError;
use crate::control::SocketError;
use crate::downstream::mtls::EntranceError;
use crate::downstream::wanted::WantedError;
use crate::names::resolve::ResolverError;
use crate::secret::live::SettingsError;
use crate::secret::store::StoreError;
use crate::session::keep::StateError;
use crate::ssh::host_key::HostKeyError;
use crate::standing::StandingError;
use crate::tls::authority::AuthorityError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a gateway does not start. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder cannot be used.
    #[error("the state folder `{}` cannot be used: {error}", .path.display())]
    State {
        /// Path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another gateway has the state folder.
    #[error("a gateway runs on `{}` already (process {pid}); stop it, or give another folder with `--state DIR`", .path.display())]
    Running {
        /// Path.
        path: PathBuf,
        /// Its process id, as it wrote it down.
        pid: String,
    },
    /// The proxy's address cannot be had.
    #[error(
        "the explicit proxy cannot listen on `{address}`: {error}; give another with `--proxy ADDRESS:PORT` (port 0 takes any)"
    )]
    Proxy {
        /// Address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The address for metrics cannot be had.
    #[error("metrics cannot be served on `{address}`: {error}; give another with `--metrics ADDRESS:PORT`")]
    Metrics {
        /// Address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// A further way in.
    #[error(transparent)]
    Wanted(#[from] WantedError),
    /// Where tunnels come in.
    #[error(transparent)]
    Tunnel(#[from] EntranceError),
    /// The authority that signs leaves.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The key by which machines know this gateway over ssh.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The secret store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file that names services secrets are fetched from.
    #[error(transparent)]
    Sources(#[from] SettingsError),
    /// The audit log.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The sessions' file.
    #[error(transparent)]
    Sessions(#[from] StateError),
    /// The standing policies.
    #[error("the standing policies cannot be opened: {0}")]
    Standing(#[from] StandingError),
    /// The control sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Name servers.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// The rest.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// Signals, or the readiness line.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Whether trying again later may help, without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Running { .. }
            | Self::Proxy { .. }
            | Self::Metrics { .. }
            | Self::Tunnel(EntranceError::Address { .. })
            | Self::Socket(SocketError::Taken(_)) => true,
            Self::Wanted(error) => error.is_passing(),
            _ => false,
        }
    }
}
