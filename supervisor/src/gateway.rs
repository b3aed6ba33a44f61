//! Client of the gateway's control API: nothing else here speaks to it.
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, Health, PolicyCheck, SessionSpec, SessionView,
};

mod client;
mod events;
mod policies;

pub use client::Client;
pub use policies::Policies;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The gateway cannot be reached; trying again helps when it is back.
    #[error("the gateway cannot be reached at `{socket}`: {why}")]
    Unreachable {
        /// Socket path.
        socket: String,
        /// Why.
        why: String,
    },
    /// It said no; its own words.
    #[error("the gateway refused: {}", .0.detail)]
    Refused(sallyport_gateway::control::types::Problem),
    /// It answered nonsense.
    #[error("the gateway's answer makes no sense: {0}")]
    Nonsense(String),
}

/// The calls; a trait so that the engine can be tested without a gateway.
#[async_trait]
pub trait Door: Send + Sync {
    /// Is it there?
    async fn health(&self) -> Result<Health, GatewayError>;
    /// What is wrong with a run's policy below those that stand in the gateway; warnings where it can be used.
    async fn check_policy(&self, check: &PolicyCheck)
    -> Result<Vec<sallyport_policy::Problem>, GatewayError>;
    /// Opens or updates a session.
    async fn put_session(&self, id: &str, spec: &SessionSpec) -> Result<SessionView, GatewayError>;
    /// A session as it stands.
    async fn session(&self, id: &str) -> Result<SessionView, GatewayError>;
    /// Ends a session.
    async fn delete_session(&self, id: &str) -> Result<(), GatewayError>;
    /// Asks for access.
    async fn access(&self, id: &str, request: &AccessRequest) -> Result<AccessAnswer, GatewayError>;
    /// Hands listeners over.
    async fn hand_over(
        &self,
        session: &str,
        attachment: crate::machine::Attachment,
    ) -> Result<(), GatewayError>;
    /// Records after a sequence, then live. Ends when the connection does; the caller comes back with the last sequence.
    async fn events(
        &self,
        after: u64,
    ) -> Result<BoxStream<'static, Result<AuditRecord, GatewayError>>, GatewayError>;
    /// Searches the log.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, GatewayError>;
}
