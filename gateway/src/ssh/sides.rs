//! The two channels that a command runs between: the agent's, and the host's.
use russh::server::Handle;
use russh::{ChannelReadHalf, ChannelWriteHalf, client, server};
use std::time::Duration;

/// The agent's side of the channel.
pub(super) struct AgentSide {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<server::Msg>,
    pub(super) handle: Handle,
    /// How long the agent may take for what the gateway itself says.
    pub(super) farewell: Duration,
}

/// The upstream's side of the channel.
pub(super) struct HostSide {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<client::Msg>,
}
