//! The two servers: the page on loopback, the API on the unix socket.
use super::UpError;
use crate::people::Identity;
use crate::state_dir::StateDir;
use crate::web::{self, App};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

/// How long open requests may take to end when the supervisor goes down.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The listeners, and the tasks that serve them.
#[derive(Debug)]
pub(super) struct Servers {
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
    address: SocketAddr,
    socket: PathBuf,
    tasks: JoinSet<std::io::Result<()>>,
}

impl Servers {
    /// Takes both addresses; nothing is answered yet. The state directory must be held, so that a socket that is
    /// there already is a dead one.
    pub(super) async fn bind(listen: SocketAddr, state: &StateDir) -> Result<Self, UpError> {
        let refused = |address: String| move |source| UpError::Listen { address, source };
        let tcp = TcpListener::bind(listen)
            .await
            .map_err(refused(listen.to_string()))?;
        let address = tcp.local_addr().map_err(refused(listen.to_string()))?;
        let socket = state.supervisor_socket();
        let shown = socket.display().to_string();
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refused(shown)(error)),
            _ => {}
        }
        let unix = UnixListener::bind(&socket).map_err(refused(shown.clone()))?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(refused(shown))?;
        Ok(Self {
            tcp: Some(tcp),
            unix: Some(unix),
            address,
            socket,
            tasks: JoinSet::new(),
        })
    }

    /// `http://HOST:PORT` of the page.
    pub(super) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Begins to answer.
    pub(super) fn serve(mut self, app: &App) -> Self {
        let owner: Identity = app.people.owner().clone();
        if let Some(tcp) = self.tcp.take() {
            let closing = app.closing.clone().cancelled_owned();
            let router = web::for_browsers(app.clone());
            self.tasks.spawn(
                axum::serve(tcp, router)
                    .with_graceful_shutdown(closing)
                    .into_future(),
            );
        }
        if let Some(unix) = self.unix.take() {
            let closing = app.closing.clone().cancelled_owned();
            let router = web::for_socket(app.clone(), owner);
            self.tasks.spawn(
                axum::serve(unix, router)
                    .with_graceful_shutdown(closing)
                    .into_future(),
            );
        }
        self
    }

    /// Waits until open requests have ended (at most 5 s) and removes the socket. Streams end by themselves when
    /// the app is closing.
    pub(super) async fn stop(mut self) {
        let ended = async {
            while let Some(served) = self.tasks.join_next().await {
                if let Err(error) = served.map_err(std::io::Error::other).flatten() {
                    tracing::warn!(%error, "a server broke off");
                }
            }
        };
        if tokio::time::timeout(END_WITHIN, ended).await.is_err() {
            tracing::warn!("requests are still open; not waiting for them");
        }
        if let Err(error) = std::fs::remove_file(&self.socket) {
            tracing::debug!(%error, "the socket is gone already");
        }
    }
}
