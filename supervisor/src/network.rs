//! Attaching a machine's network to the gateway, and again whenever the gateway was restarted.
//!
//! The gateway is blind to drivers: it gets listeners and a session's id, and that is all.
use crate::gateway::{Door, GatewayError};
use crate::machine::{Attachment, Driver, MachineError, MachineRecord};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// How often the gateway is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Something whose traffic can be handed to the gateway.
#[async_trait]
pub trait Attach: Send + Sync {
    /// Its listeners, as often as asked.
    async fn attach(&self) -> Result<Attachment, MachineError>;
}

/// A driver's machine.
pub struct MachineNetwork {
    /// Its driver.
    pub driver: Arc<dyn Driver>,
    /// Itself.
    pub record: MachineRecord,
}

#[async_trait]
impl Attach for MachineNetwork {
    async fn attach(&self) -> Result<Attachment, MachineError> {
        self.driver.attach(&self.record).await
    }
}

/// Why a network is not attached.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The machine does not give its listeners.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The gateway does not take them.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// Hands the listeners to the gateway, which serves them for `session` from then on.
///
/// # Errors
/// Whose fault it is; trying again helps when the gateway was away.
pub async fn hand_over(door: &dyn Door, session: &str, network: &dyn Attach) -> Result<(), NetworkError> {
    let attachment = network.attach().await?;
    Ok(door.hand_over(session, attachment).await?)
}

/// Keeps a network attached until the machine is gone: hands over again when the gateway is another process than
/// before. Connections made meanwhile wait in the listeners, which the machine's keeper holds.
///
/// Ends with the machine's error; faults of the gateway are logged and tried again.
pub async fn keep_attached(door: &dyn Door, session: &str, network: &dyn Attach) -> MachineError {
    let mut served_by = None;
    loop {
        match door.health().await {
            Ok(health) if served_by != Some(health.pid) => match hand_over(door, session, network).await {
                Ok(()) => served_by = Some(health.pid),
                Err(NetworkError::Machine(gone @ MachineError::Gone(_))) => return gone,
                Err(error) => tracing::warn!(session, %error, "the network is not attached yet"),
            },
            Ok(_) => {}
            Err(error) => {
                served_by = None;
                tracing::debug!(session, %error, "the gateway is away");
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if served_by.is_some()
            && let Err(gone @ MachineError::Gone(_)) = network.attach().await
        {
            return gone;
        }
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
