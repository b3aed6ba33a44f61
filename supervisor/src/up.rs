//! Assembling a supervisor: state directory, gateway, engine, web; and taking it down in order.
mod keeper;
mod parts;
mod process;
pub mod programs;
mod serve;

use crate::engine::{Engine, EngineError, Parts};
use crate::gateway::Client;
use crate::machine::{Driver, MachineError};
use crate::model::ModelConfig;
use crate::people::{Identity, People, PeopleError, owner_name};
use crate::registries::Registries;
use crate::runs::{RunState, Runs as _};
use crate::state_dir::{Held, StateDir, StateError};
use crate::web::App;
use keeper::Keeper;
pub use keeper::KeeperError;
pub use parts::gateway_command;
use programs::ProgramError;
use serve::Servers;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What a supervisor is started from.
#[derive(Debug)]
pub struct Options {
    /// Where all of its state is.
    pub state: StateDir,
    /// Where browsers find it; a loopback address, since it speaks plain HTTP.
    pub listen: SocketAddr,
    /// PEM file of authorities that the gateway trusts besides the system's.
    pub upstream_ca: Option<PathBuf>,
    /// Keys and limits of models.
    pub models: ModelConfig,
}

/// Why a supervisor cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The address of the page would be open to others.
    #[error(
        "the page speaks plain HTTP and listens on loopback only, not on `{0}`: reach it through `ssh -L`, or put a TLS proxy before it"
    )]
    Open(SocketAddr),
    /// The page's address cannot be had.
    #[error(
        "`{address}` cannot be listened on: {source}; give another with --listen ADDRESS:PORT (port 0 takes any)"
    )]
    Listen {
        /// Address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// This host cannot run machines; the text says what to do.
    #[error("this host cannot run machines: {0}")]
    Machines(#[from] MachineError),
    /// No gateway.
    #[error(transparent)]
    Gateway(#[from] KeeperError),
    /// The engine's state.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The list of log-ins.
    #[error(transparent)]
    People(#[from] PeopleError),
}

/// A supervisor that is up.
pub struct Up {
    engine: Arc<Engine>,
    keeper: Keeper,
    servers: Servers,
    app: App,
    _held: Held,
}

impl std::fmt::Debug for Up {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Up")
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

impl Up {
    /// Starts everything, or says what is in the way; nothing is left running then.
    pub async fn start(options: Options) -> Result<Self, UpError> {
        if !options.listen.ip().is_loopback() {
            return Err(UpError::Open(options.listen));
        }
        options.state.prepare()?;
        let held = options.state.hold()?;
        let servers = Servers::bind(options.listen, &options.state).await?;
        let beside = parts::Beside::of(&options)?;
        beside.driver.probe().await?;
        let keeper = Keeper::start(beside.launch, beside.client.clone()).await?;
        match Self::assemble(options, &servers, beside.client, beside.driver).await {
            Ok((engine, app)) => {
                let servers = servers.serve(&app);
                Ok(Self {
                    engine,
                    keeper,
                    servers,
                    app,
                    _held: held,
                })
            }
            Err(error) => {
                keeper.stop().await;
                Err(error)
            }
        }
    }

    async fn assemble(
        options: Options,
        servers: &Servers,
        client: Arc<Client>,
        driver: Arc<dyn Driver>,
    ) -> Result<(Arc<Engine>, App), UpError> {
        let owner = Identity { user: owner_name() };
        let people = People::open(&options.state.join("run/browsers.json"), owner)?;
        let engine = Engine::open(Parts {
            state_dir: options.state.join("engine"),
            door: client.clone(),
            driver,
            models: options.models,
        })
        .await?;
        let app = App {
            runs: Arc::clone(&engine) as Arc<dyn crate::runs::Runs>,
            door: client.clone(),
            policies: client,
            people: Arc::new(people),
            registries: Arc::new(Registries::default()),
            address: servers.address(),
            closing: CancellationToken::new(),
        };
        Ok((engine, app))
    }

    /// An address that logs one browser in, once.
    pub fn login_address(&self) -> Result<String, UpError> {
        let people = &self.app.people;
        let token = people.issue_address(people.owner(), jiff::Timestamp::now())?;
        Ok(format!("{}/login?token={token}", self.app.address))
    }

    /// Runs that are not over.
    pub async fn unfinished(&self) -> usize {
        let runs = self.engine.list().await.unwrap_or_default();
        runs.iter()
            .filter(|run| !matches!(run.state, RunState::Ended { .. }))
            .count()
    }

    /// Takes everything down in order: clients, runs (which stand still, journaled), the gateway. Machines stay;
    /// the next supervisor on this state directory goes on.
    pub async fn stop(self) {
        self.app.closing.cancel();
        self.servers.stop().await;
        self.engine.shutdown().await;
        self.keeper.stop().await;
    }
}
