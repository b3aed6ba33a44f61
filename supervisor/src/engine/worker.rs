//! The one executor of a run: takes an event, journals it with its commands, then carries these out.
use crate::activity::{Context, carry_out, machine};
use crate::conversation::Entry;
use crate::engine::board::{Board, Brought};
use crate::engine::journal::{FORMAT, Head, Journal, JournalError, Record, marks};
use crate::engine::replay::{Due, Rebuilt};
use crate::engine::timers;
use crate::run::command::Command;
use crate::run::event::Event;
use crate::run::state::State;
use crate::run::{decide, expects};
use crate::runs::{RunState, RunsError};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Longest wait between tries while the disk cannot be written.
const DISK_RETRY_MAX: Duration = Duration::from_secs(10);

/// What every worker works with.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) board: Board,
    pub(super) closing: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// A worker.
pub(super) struct Worker {
    shop: Shop,
    context: Arc<Context>,
    state: State,
    head: Head,
    sequence: u64,
    live: BTreeMap<String, DropGuard>,
    outcomes: mpsc::Receiver<Event>,
    inbox: mpsc::Receiver<Brought>,
}

/// Why a worker stops before its run is over.
#[derive(Debug)]
enum Stop {
    /// The process is stopping.
    Closing,
    /// Somebody else has this run.
    Held(String),
}

impl Worker {
    pub(super) fn new(
        shop: Shop,
        context: Arc<Context>,
        rebuilt: &Rebuilt,
        head: Head,
        (outcomes, inbox): (mpsc::Receiver<Event>, mpsc::Receiver<Brought>),
    ) -> Self {
        let state = rebuilt.state.clone();
        Self {
            shop,
            context,
            state,
            head,
            sequence: rebuilt.sequence,
            live: BTreeMap::new(),
            outcomes,
            inbox,
        }
    }

    /// Until the run is over or the process stops: first what the journal says is due, then what comes.
    pub(super) async fn run(mut self, rebuilt: Rebuilt) {
        match self.work(rebuilt).await {
            Ok(()) | Err(Stop::Closing) => {}
            Err(Stop::Held(why)) => self.shop.board.hold(&self.context.run, &why),
        }
        self.context.link.drop_all().await;
    }

    async fn work(&mut self, rebuilt: Rebuilt) -> Result<(), Stop> {
        let mark = self.said_mark().await?;
        for due in rebuilt.sayings {
            if (due.record, due.index) > mark {
                self.apply(due).await?;
            }
        }
        self.adopt(
            rebuilt
                .live
                .contains_key(&format!("setup-{}", self.state.machine.generation)),
        );
        for due in rebuilt.live.into_values() {
            self.apply(due).await?;
        }
        while !self.state.is_over() {
            let closing = self.shop.closing.clone();
            tokio::select! {
                () = closing.cancelled() => return Err(Stop::Closing),
                Some(event) = self.outcomes.recv() => {
                    self.take(event).await?;
                }
                Some(brought) = self.inbox.recv() => {
                    let answer = self.brought(brought.event).await?;
                    // Nobody waits any more; what was journaled stands.
                    let _ = brought.taken.send(answer);
                }
            }
        }
        Ok(())
    }

    /// After a restart: connects to the machine that is there, and hands its listeners over again.
    fn adopt(&self, is_being_set_up: bool) {
        let Some(record) = self.state.machine.record.clone().filter(|_| !is_being_set_up) else {
            return;
        };
        let (context, generation) = (Arc::clone(&self.context), self.state.machine.generation);
        self.shop.tasks.spawn(async move {
            let adopt = async {
                match machine::connect(&context, &record, generation).await {
                    Ok(_) => machine::hand_over(&context, &record).await,
                    Err(crate::machine::MachineError::Gone(_)) => {
                        let why = "it was gone when the supervisor came back".into();
                        context
                            .events
                            .send(Event::MachineLost { generation, why })
                            .await
                            .map_err(|_| "stopping".into())
                    }
                    Err(fault) => Err(fault.to_string()),
                }
            };
            tokio::select! {
                () = context.closing.cancelled() => {}
                adopted = adopt => if let Err(fault) = adopted {
                    tracing::warn!(run = %context.run, %fault, "the machine is not adopted yet");
                },
            }
        });
    }

    async fn brought(&mut self, event: Event) -> Result<Result<(), RunsError>, Stop> {
        // Stopping what stops already is no error; a message to it would be lost.
        if self.state.is_closing() && matches!(event, Event::PersonSaid { .. }) {
            return Ok(Err(RunsError::Ended(self.context.run.clone())));
        }
        self.take(event).await?;
        Ok(Ok(()))
    }

    /// Journals the event with its commands and carries them out. What the state does not expect is dropped.
    async fn take(&mut self, event: Event) -> Result<(), Stop> {
        if !expects(&self.state, &event) {
            return Ok(());
        }
        let mut state = self.state.clone();
        let commands = decide(&mut state, &event);
        let record = Record {
            format: FORMAT,
            sequence: self.sequence + 1,
            at: Timestamp::now(),
            event,
            commands: marks(&commands).map_err(|fault| Stop::Held(fault.to_string()))?,
        };
        let head = head_of(&self.head, &state, record.sequence);
        self.append(&head, &record).await?;
        self.sequence = record.sequence;
        self.state = state;
        self.head = head;
        self.shop.board.show(&self.head);
        if let Some(key) = record.event.settles() {
            // It has ended by itself: there is nothing to cancel, and dropping the guard does no harm.
            self.live.remove(&key);
        }
        for (index, command) in (0u32..).zip(commands) {
            self.apply(Due {
                record: record.sequence,
                index,
                at: record.at,
                command,
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the record is on disk. While the disk cannot be written the run stands still; nothing is lost.
    async fn append(&self, head: &Head, record: &Record) -> Result<(), Stop> {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.shop.journal.append(head.clone(), record.clone()).await {
                Ok(()) => return Ok(()),
                Err(JournalError::Closed) => return Err(Stop::Closing),
                Err(fault @ (JournalError::Taken { .. } | JournalError::Damaged { .. })) => {
                    return Err(Stop::Held(fault.to_string()));
                }
                Err(fault @ JournalError::Unavailable(_)) => {
                    self.stand_still(&mut wait, &fault.to_string()).await?
                }
            }
        }
    }

    async fn stand_still(&self, wait: &mut Duration, why: &str) -> Result<(), Stop> {
        tracing::error!(run = %self.context.run, why, "the run stands still until the disk can be written again");
        let mut shown = self.head.clone();
        shown.summary.state = RunState::Running {
            doing: format!("standing still: {why}"),
        };
        self.shop.board.show(&shown);
        tokio::select! {
            () = self.shop.closing.cancelled() => return Err(Stop::Closing),
            () = tokio::time::sleep(*wait) => {}
        }
        *wait = (*wait * 2).min(DISK_RETRY_MAX);
        Ok(())
    }

    async fn said_mark(&self) -> Result<(u64, u32), Stop> {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.context.hands.conversations.mark(&self.context.run).await {
                Ok(mark) => return Ok(mark),
                Err(fault) => self.stand_still(&mut wait, &fault.to_string()).await?,
            }
        }
    }

    async fn apply(&mut self, due: Due) -> Result<(), Stop> {
        match (due.command.key(), &due.command) {
            (_, Command::Say { .. }) => self.say(&due).await?,
            (_, Command::Cancel) => self.live.clear(),
            (_, Command::Notify { notice }) => self.notify(notice.clone()),
            (Some(key), _) => self.begin(key, due),
            (None, _) => {}
        }
        Ok(())
    }

    async fn say(&self, due: &Due) -> Result<(), Stop> {
        let Command::Say { step, attempt, what } = &due.command else {
            return Ok(());
        };
        let entry = Entry {
            sequence: 0,
            at: due.at,
            step: *step,
            attempt: *attempt,
            what: what.clone(),
        };
        let mut wait = Duration::from_millis(100);
        loop {
            let (run, mark) = (&self.context.run, (due.record, due.index));
            match self
                .context
                .hands
                .conversations
                .say(run, mark, entry.clone())
                .await
            {
                Ok(()) => return Ok(()),
                Err(fault) => self.stand_still(&mut wait, &fault.to_string()).await?,
            }
        }
    }

    /// Tells the machine once; it also hears by the refused request itself, and the agent by its next step.
    fn notify(&self, notice: sallyport_shim::wire::BlockedNotice) {
        let context = Arc::clone(&self.context);
        self.shop.tasks.spawn(async move {
            if let Some((_, machine)) = context.link.current().await
                && let Err(fault) = machine.blocked(notice).await
            {
                tracing::debug!(run = %context.run, %fault, "the machine was not told of a refusal");
            }
        });
    }

    fn begin(&mut self, key: String, due: Due) {
        // Dropping the guard cancels the activity. Closing abandons it: what it began in the machine goes on.
        let cancelled = CancellationToken::new();
        let guard = cancelled.clone().drop_guard();
        let closing = self.shop.closing.clone();
        let context = Arc::clone(&self.context);
        self.shop.tasks.spawn(async move {
            let work = async {
                match due.command {
                    Command::Timer { id, ms } => tokio::select! {
                        () = cancelled.cancelled() => None,
                        () = timers::until(due.at, ms) => Some(Event::TimerFired { id }),
                    },
                    command => carry_out(Arc::clone(&context), command, cancelled).await,
                }
            };
            let event = tokio::select! {
                biased;
                () = closing.cancelled() => None,
                event = work => event,
            };
            if let Some(event) = event {
                // The worker is gone when the process stops: the activity is begun again then.
                let _ = context.events.send(event).await;
            }
        });
        self.live.insert(key, guard);
    }
}

/// The head after a record.
pub(super) fn head_of(before: &Head, state: &State, sequence: u64) -> Head {
    let mut head = before.clone();
    head.summary.steps = state.step;
    head.summary.refusals = state.refusals;
    head.summary.state = state.shown();
    head.sequence = sequence;
    head.tokens = (state.usage.input_tokens, state.usage.output_tokens);
    head
}
