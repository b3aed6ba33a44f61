//! What tests of providers share: a server on loopback, the gateway's own secrets, a wish.
use super::own::Own;
use super::provider::Wanted;
use crate::secret::SecretStore;
use crate::secret::source::Variables;
use sallyport_policy::{Source, Who};
use std::sync::Arc;
use tempfile::TempDir;

/// A server that ends with this.
pub(super) struct Server {
    pub(super) url: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(routes: axum::Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, serving }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The gateway's own secrets in a folder, which stays as long as the process.
pub(super) fn own(folder: TempDir) -> Arc<Own> {
    let folder = folder.keep();
    let store = SecretStore::open(&folder).unwrap();
    Arc::new(Own::new(
        Arc::new(store),
        Variables::from_environment(std::iter::empty()),
        folder,
    ))
}

/// Of a run that works on this repository.
pub(super) fn wanted(from: Source, repository: &str) -> Wanted {
    Wanted {
        session: "run-1".into(),
        who: Arc::new(Who {
            repository: repository.into(),
            ..Who::default()
        }),
        from,
        ttl: None,
    }
}
