//! Effects: each carries out one command of a run under its stable key and gives one event.
pub mod access;
pub mod close;
pub mod credentials;
pub mod infer;
pub mod machine;
mod output;
pub mod tool;

use crate::conversation::store::Conversations;
use crate::gateway::{Door, GatewayError};
use crate::machine::{Driver, MachineError};
use crate::model::Models;
use crate::run::command::Command;
use crate::run::event::Event;
use crate::runs::RunRequest;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Retryable as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How often and how long a passing fault is waited out. Waits double and jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// First wait.
    pub first: Duration,
    /// Longest wait.
    pub longest: Duration,
    /// Retries.
    pub times: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            times: 6,
        }
    }
}

impl Patience {
    fn builder(self) -> ExponentialBuilder {
        ExponentialBuilder::new()
            .with_jitter()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.times)
    }

    pub(crate) fn waits(self) -> ExponentialBackoff {
        self.builder().build()
    }
}

/// Time that a cancelled tool has to tell the machine.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What all effects work with.
pub struct Hands {
    /// The gateway.
    pub door: Arc<dyn Door>,
    /// Machines.
    pub driver: Arc<dyn Driver>,
    /// Models.
    pub models: Models,
    /// Conversations.
    pub conversations: Conversations,
    /// With passing faults.
    pub patience: Patience,
    /// Up to where the runs have heard of the gateway's log.
    pub heard: watch::Sender<u64>,
}

/// What the effects of one run work with.
pub struct Context {
    /// Run id.
    pub run: String,
    /// What was asked.
    pub request: RunRequest,
    /// What all runs share.
    pub hands: Arc<Hands>,
    /// Where events of the run go, in any order.
    pub events: mpsc::Sender<Event>,
    /// The machine, as far as it is connected.
    pub link: machine::Link,
    /// Ends everything when the process stops.
    pub closing: CancellationToken,
}

/// Carries out one command. Nothing is given when it was cancelled.
pub async fn carry_out(
    context: Arc<Context>,
    command: Command,
    cancelled: CancellationToken,
) -> Option<Event> {
    // A tool tells the machine first; everything else is abandoned where it stands.
    let grace = if matches!(command, Command::RunTool { .. }) {
        CANCEL_GRACE
    } else {
        Duration::ZERO
    };
    let work = async {
        match command {
            Command::OpenSession => Some(access::open_session(&context).await),
            Command::CreateMachine { generation, spec } => {
                Some(machine::create(&context, generation, &spec).await)
            }
            Command::SetupMachine {
                generation,
                record,
                ca_pem,
                env,
                files,
            } => {
                let plan = machine::SetUp {
                    generation,
                    record,
                    ca_pem,
                    env,
                    files,
                };
                Some(machine::set_up(&context, &plan).await)
            }
            Command::Infer { step, request } => Some(infer::infer(&context, step, &request).await),
            Command::RunTool {
                step,
                attempt,
                index,
                record,
                generation,
                exec,
                call,
            } => {
                let job = tool::Job {
                    step,
                    attempt,
                    index,
                    record,
                    generation,
                    exec,
                    call,
                };
                Some(tool::run(&context, &job, &cancelled).await)
            }
            Command::RequestAccess {
                asker,
                record,
                wanted,
                why,
            } => Some(access::request(&context, asker, record, wanted, why).await),
            Command::CloseAll => Some(close::close_all(&context).await),
            Command::Notify { .. }
            | Command::Say { .. }
            | Command::Timer { .. }
            | Command::Cancel
            | Command::End { .. } => None,
        }
    };
    let over = async {
        cancelled.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        biased;
        event = work => event.filter(|_| !cancelled.is_cancelled()),
        () = over => None,
    }
}

impl Hands {
    /// A call of the gateway, tried again while it cannot be reached.
    pub async fn ask_door<T, F, A>(&self, call: F) -> Result<T, GatewayError>
    where
        F: FnMut() -> A,
        A: Future<Output = Result<T, GatewayError>>,
    {
        call.retry(self.patience.builder())
            .when(|fault| matches!(fault, GatewayError::Unreachable { .. }))
            .notify(|fault, wait| tracing::warn!(%fault, ?wait, "asking the gateway again"))
            .await
    }

    /// A call of the driver or a machine, tried again while the fault is a passing one.
    pub async fn ask_machine<T, F, A>(&self, call: F) -> Result<T, MachineError>
    where
        F: FnMut() -> A,
        A: Future<Output = Result<T, MachineError>>,
    {
        call.retry(self.patience.builder())
            .when(|fault| matches!(fault, MachineError::Passing { .. }))
            .notify(|fault, wait| tracing::warn!(%fault, ?wait, "asking the machine again"))
            .await
    }
}
