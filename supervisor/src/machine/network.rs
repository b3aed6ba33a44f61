//! How a machine's traffic reaches the gateway: a trait of its own, so that the gateway is blind to drivers.
use super::{MachineError, MachineRecord};
use async_trait::async_trait;
use std::os::fd::OwnedFd;

/// Listeners inside the machine's network, to be handed to the gateway. The gateway knows nothing of drivers.
#[derive(Debug)]
pub struct Attachment {
    /// TCP listeners reached by REDIRECT.
    pub redirect: Vec<OwnedFd>,
    /// UDP sockets for DNS.
    pub dns: Vec<OwnedFd>,
}

/// Something whose traffic can be handed to the gateway.
#[async_trait]
pub trait Attach: Send + Sync {
    /// The machine's listeners, as often as asked: the gateway may have been restarted. Connections made meanwhile wait in them.
    async fn attach(&self, record: &MachineRecord) -> Result<Attachment, MachineError>;
}
