//! The run's machine: made, attached to the gateway, set up, listened to.
use crate::activity::{Context, credentials};
use crate::gateway::GatewayError;
use crate::machine::{AgentRequest, Machine, MachineError, MachineRecord, MachineSpec, Status};
use crate::run::event::Event;
use crate::run::ssh::is_private;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longest time for making a machine, and for setting one up.
const START_TO_CLOSE: Duration = Duration::from_secs(300);

/// The connection to a run's machine, made when it is first needed.
#[derive(Default)]
pub struct Link {
    open: Mutex<Option<Open>>,
}

struct Open {
    record: MachineRecord,
    machine: Machine,
    /// Ends the listener to the machine's requests.
    _listener: DropGuard,
}

/// How a machine is set up.
pub(super) struct SetUp {
    pub(super) generation: u32,
    pub(super) record: MachineRecord,
    pub(super) ca_pem: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) files: BTreeMap<String, String>,
}

impl Link {
    /// The machine with this id, if it is connected.
    pub async fn get(&self, id: &str) -> Option<Machine> {
        let open = self.open.lock().await;
        open.as_ref()
            .filter(|open| open.record.id == id)
            .map(|open| Arc::clone(&open.machine))
    }

    /// The machine that is connected, whichever it is, and how to find it.
    pub async fn current(&self) -> Option<(MachineRecord, Machine)> {
        let open = self.open.lock().await;
        open.as_ref()
            .map(|open| (open.record.clone(), Arc::clone(&open.machine)))
    }

    /// Lets go of it.
    pub async fn drop_all(&self) {
        self.open.lock().await.take();
    }
}

/// Makes the machine, or finds it.
pub(super) async fn create(context: &Context, generation: u32, spec: &MachineSpec) -> Event {
    let driver = &context.hands.driver;
    let made = context.hands.ask_machine(|| driver.create(spec));
    let why = match tokio::time::timeout(START_TO_CLOSE, made).await {
        Ok(Ok(record)) => return Event::MachineReady { generation, record },
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => format!("it took longer than {} s", START_TO_CLOSE.as_secs()),
    };
    let why = format!("the machine cannot be made: {why}");
    Event::PreparationFailed {
        key: format!("machine-{generation}"),
        why,
    }
}

/// Connects to the machine where that is not done, and listens to it. One connection for each machine.
pub async fn connect(
    context: &Arc<Context>,
    record: &MachineRecord,
    generation: u32,
) -> Result<Machine, MachineError> {
    let mut open = context.link.open.lock().await;
    if let Some(known) = open.as_ref().filter(|open| open.record == *record) {
        return Ok(Arc::clone(&known.machine));
    }
    let driver = &context.hands.driver;
    if context.hands.ask_machine(|| driver.status(record)).await? == Status::Gone {
        return Err(MachineError::Gone(record.id.clone()));
    }
    let machine = context.hands.ask_machine(|| driver.connect(record)).await?;
    let stop = context.closing.child_token();
    tokio::spawn(listen(
        Arc::clone(context),
        Arc::clone(&machine),
        generation,
        stop.clone(),
    ));
    *open = Some(Open {
        record: record.clone(),
        machine: Arc::clone(&machine),
        _listener: stop.drop_guard(),
    });
    Ok(machine)
}

/// Requests of the machine's command line become events, and so does its end.
async fn listen(context: Arc<Context>, machine: Machine, generation: u32, stop: CancellationToken) {
    loop {
        let request = tokio::select! {
            () = stop.cancelled() => return,
            request = machine.next_request() => request,
        };
        let event = match request {
            Some(AgentRequest::Access { id, wanted, why }) => Event::AccessAsked { id, wanted, why },
            Some(AgentRequest::Credentials) => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = credentials::tell(&context, &machine) => continue,
                }
            }
            None => Event::MachineLost {
                generation,
                why: "its control channel ended".into(),
            },
        };
        let over = matches!(event, Event::MachineLost { .. });
        if context.events.send(event).await.is_err() || over {
            return;
        }
    }
}

/// Hands the machine's listeners to the gateway; again whenever the gateway has been restarted.
pub async fn hand_over(context: &Context, record: &MachineRecord) -> Result<(), String> {
    let hands = &context.hands;
    let attach = || async {
        let attachment = hands.ask_machine(|| hands.driver.attach(record)).await;
        let attachment = attachment.map_err(|fault| GatewayError::Nonsense(fault.to_string()))?;
        hands.door.hand_over(&context.run, attachment).await
    };
    hands.ask_door(attach).await.map_err(|fault| match fault {
        GatewayError::Nonsense(text) => text,
        other => other.to_string(),
    })
}

/// Attaches the machine, makes it trust the gateway, gives it variables and files.
pub(super) async fn set_up(context: &Arc<Context>, plan: &SetUp) -> Event {
    let generation = plan.generation;
    let why = match tokio::time::timeout(START_TO_CLOSE, steps(context, plan)).await {
        Ok(Ok(warnings)) => return Event::MachineSetUp { generation, warnings },
        Ok(Err(MachineError::Gone(id))) => {
            return Event::MachineLost {
                generation,
                why: format!("machine `{id}` is gone"),
            };
        }
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => format!("it took longer than {} s", START_TO_CLOSE.as_secs()),
    };
    let why = format!("the machine cannot be set up: {why}");
    Event::PreparationFailed {
        key: format!("setup-{generation}"),
        why,
    }
}

async fn steps(context: &Arc<Context>, plan: &SetUp) -> Result<Vec<String>, MachineError> {
    let machine = connect(context, &plan.record, plan.generation).await?;
    hand_over(context, &plan.record)
        .await
        .map_err(MachineError::Host)?;
    let hands = &context.hands;
    let warnings = hands
        .ask_machine(|| machine.setup(&plan.ca_pem, &plan.env))
        .await?;
    credentials::tell(context, &machine).await;
    for (path, text) in &plan.files {
        let mode = if is_private(text) { 0o600 } else { 0o644 };
        hands
            .ask_machine(|| machine.write_file(path, text.as_bytes(), mode))
            .await?;
    }
    Ok(warnings)
}
