//! What stands beside the engine: the gateway's program and the client of its API, and the maker of machines.
use super::keeper::Launch;
use super::programs::{self, ProgramError};
use super::{Options, UpError};
use crate::gateway::Client;
use crate::machine::Driver;
use crate::machine::namespace::NamespaceDriver;
use crate::state_dir::StateDir;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::process::Command;

/// The parts, not yet running.
pub(super) struct Beside {
    pub(super) launch: Launch,
    pub(super) client: Arc<Client>,
    pub(super) driver: Arc<dyn Driver>,
}

impl Beside {
    pub(super) fn of(options: &Options) -> Result<Self, UpError> {
        let state = &options.state;
        let folder = gateway_folder(state);
        let client = Client::new(folder.join("gateway.sock"), folder.join("handover.sock"));
        let own = std::env::current_exe().map_err(ProgramError::Where)?;
        let shim = programs::sibling(programs::SHIM)?;
        Ok(Self {
            launch: launch(options)?,
            client: Arc::new(client),
            driver: Arc::new(NamespaceDriver::new(state.join("machines"), own, shim)),
        })
    }
}

fn gateway_folder(state: &StateDir) -> PathBuf {
    state.join("gateway")
}

fn launch(options: &Options) -> Result<Launch, UpError> {
    let state = &options.state;
    let mut arguments = vec!["--state".into(), gateway_folder(state).into(), "serve".into()];
    if let Some(path) = &options.upstream_ca {
        arguments.extend(["--upstream-ca".into(), path.into()]);
    }
    Ok(Launch {
        program: programs::sibling(programs::GATEWAY)?,
        arguments,
        log: state.join("logs/gateway.log"),
        stamp: state.join("run/gateway.stamp"),
    })
}

/// The gateway's program, told which state directory is meant; for its commands besides `serve`.
pub fn gateway_command(state: &StateDir) -> Result<Command, ProgramError> {
    let mut command = Command::new(programs::sibling(programs::GATEWAY)?);
    command.arg("--state").arg(gateway_folder(state));
    Ok(command)
}
