//! The web: one router, served to browsers on loopback and to the command line on a unix socket.
pub mod api;
mod guard;
mod pages;
mod problem;
#[cfg(test)]
mod tests;

use crate::gateway::{Door, Policies};
use crate::people::{Identity, People};
use crate::registries::Registries;
use crate::runs::Runs;
use axum::{Router, middleware};
pub use problem::ApiError;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the pages and the API stand on.
#[derive(Clone)]
pub struct App {
    /// Runs.
    pub runs: Arc<dyn Runs>,
    /// The gateway.
    pub door: Arc<dyn Door>,
    /// The gateway's standing policies.
    pub policies: Arc<dyn Policies>,
    /// Log-ins.
    pub people: Arc<People>,
    /// This host's package registries.
    pub registries: Arc<Registries>,
    /// `http://HOST:PORT` under which browsers find the page.
    pub address: String,
    /// Cancelled when the supervisor goes down: ends the streams, so that clients come back to the next one.
    pub closing: CancellationToken,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// For browsers: log-in by cookie, refuses foreign hosts and origins.
pub fn for_browsers(app: App) -> Router {
    api::routes()
        .merge(pages::routes())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), guard::log_in))
        .layer(middleware::from_fn(guard::same_origin))
        .layer(middleware::from_fn(guard::headers))
        .with_state(app)
}

/// For the command line: whoever can open the socket is its owner, who may also make log-in addresses.
pub fn for_socket(app: App, owner: Identity) -> Router {
    api::routes()
        .merge(api::owner_routes())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(axum::Extension(owner))
        .with_state(app)
}
