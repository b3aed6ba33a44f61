//! The control API's sockets and routes.
use super::{certificates, handlers, policies, watch};
use crate::audit::Sink;
use crate::metrics::Metrics;
use crate::secret::SecretStore;
use crate::session::Sessions;
use crate::standing::Standing;
use crate::tls::authorities::Authorities;
use crate::tls::machine::Tunnels;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// A call's body at most: a session's policies.
const BODY: usize = 4 << 20;

/// What the calls act on.
#[derive(Debug, Clone)]
pub struct Control {
    /// Sessions.
    pub sessions: Arc<Sessions>,
    /// The policies that stand here.
    pub standing: Arc<Standing>,
    /// What is counted.
    pub metrics: Metrics,
    /// The audit log.
    pub sink: Sink,
    /// The encrypted store.
    pub secrets: Arc<SecretStore>,
    /// The authorities that sign leaves.
    pub authorities: Arc<Authorities>,
    /// By what machines know this gateway over ssh: a line of OpenSSH's `known_hosts`.
    pub ssh_host_key: Arc<str>,
    /// Address of the explicit proxy.
    pub proxy: Arc<str>,
    /// Where tunnels of remote machines come in, if they do.
    pub tunnel: Option<Tunnels>,
    /// Ends event streams when the gateway stops.
    pub stop: CancellationToken,
}

/// A socket cannot be listened on. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody listens there.
    #[error("another process listens on `{}`; stop it, or choose another path", .0.display())]
    Taken(PathBuf),
    /// Something else lies there.
    #[error("`{}` is there and is no socket; move it away, or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The system said no.
    #[error("`{}`: {error}", .path.display())]
    System {
        /// Path.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

/// Listens on a path as [`bind_with_mode`] does, for this user alone: mode 0600.
pub fn bind(path: &Path) -> Result<UnixListener, SocketError> {
    bind_with_mode(path, 0o600)
}

/// Listens on a path: the folder is made with mode 0700, a socket that nobody listens on is replaced, the new one has
/// this mode from the first moment on.
pub fn bind_with_mode(path: &Path, mode: u32) -> Result<UnixListener, SocketError> {
    let system = |error: io::Error| SocketError::System {
        path: path.to_owned(),
        error,
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
    {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(system)?;
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system(error)),
        Ok(there) => {
            use std::os::unix::fs::FileTypeExt;
            if !there.file_type().is_socket() {
                return Err(SocketError::NoSocket(path.to_owned()));
            }
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(SocketError::Taken(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(system)?;
                }
                Err(error) => return Err(system(error)),
            }
        }
    }
    // Until it has its mode, the socket lies under a name of its own in the same folder.
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&beside).map_err(system)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).map_err(system)?;
    std::fs::rename(&beside, path).map_err(system)?;
    Ok(listener)
}

/// The routes.
pub fn router(control: Control) -> Router {
    Router::new()
        .route("/v1/sessions", get(handlers::list_sessions))
        .route(
            "/v1/sessions/{id}",
            put(handlers::put_session)
                .get(handlers::get_session)
                .delete(handlers::delete_session),
        )
        .route("/v1/sessions/{id}/access", post(handlers::access))
        .route("/v1/sessions/{id}/grants", post(handlers::grant))
        .route("/v1/sessions/{id}/certificate", post(certificates::issue))
        .route("/v1/events", get(handlers::events))
        .route("/v1/audit", get(handlers::audit))
        .route("/v1/secrets", get(handlers::list_secrets))
        .route(
            "/v1/secrets/{name}",
            put(handlers::put_secret).delete(handlers::delete_secret),
        )
        .route("/v1/policies", get(policies::list))
        .route("/v1/policies/reload", post(policies::reload))
        .route("/v1/policies/check", post(policies::check))
        .route(
            "/v1/policies/{*key}",
            get(policies::look).put(policies::publish).post(policies::change),
        )
        .merge(watch::routes())
        .fallback(handlers::unknown)
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(control)
}

/// Serves the API until `control.stop` is cancelled; calls that are being answered then are finished.
pub async fn serve(listener: UnixListener, control: Control) -> io::Result<()> {
    let stop = control.stop.clone();
    axum::serve(listener, router(control))
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}
