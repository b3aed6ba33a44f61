//! What may be done with runs: the engine's side of [`Runs`].
use crate::activity::Hands;
use crate::conversation::{Entry, What};
use crate::engine::Engine;
use crate::engine::journal::{Begun, FORMAT, Head, JournalError, Key, Record, marks};
use crate::engine::replay::replay;
use crate::gateway::GatewayError;
use crate::run::begin;
use crate::run::event::Event;
use crate::runs::{Outcome, RunRequest, RunState, RunSummary, Runs, RunsError};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use sallyport_gateway::control::types::PolicyCheck;
use sallyport_policy::{Policy, Severity};
use sha2::{Digest, Sha256};

/// Most characters of a title and of an idempotency key.
const SHORT: usize = 200;
/// Most bytes of a task and of a message.
const LONG: usize = 1 << 20;

#[async_trait]
impl Runs for Engine {
    async fn start(&self, request: RunRequest, key: Option<String>) -> Result<RunSummary, RunsError> {
        self.check(&request).await?;
        if key
            .as_ref()
            .is_some_and(|key| key.is_empty() || key.chars().count() > SHORT)
        {
            return Err(RunsError::Invalid(format!(
                "an idempotency key has 1 to {SHORT} characters"
            )));
        }
        let sent = hash(&request)?;
        let key = key.map(|key| Key {
            key,
            request: sent.clone(),
        });
        let (head, record) = self.first(request)?;
        match self
            .shop
            .journal
            .begin(key, head.clone(), record.clone())
            .await
            .map_err(unavailable)?
        {
            Begun::New => {
                let rebuilt = replay(&[record]).map_err(|fault| RunsError::Unavailable(fault.to_string()))?;
                let summary = head.summary.clone();
                self.employ(head, rebuilt);
                Ok(summary)
            }
            Begun::Known { request: known, .. } if known != sent => Err(RunsError::Conflict { sent, known }),
            Begun::Known { run, .. } => self.known(&run).await,
        }
    }

    async fn list(&self) -> Result<Vec<RunSummary>, RunsError> {
        Ok(self
            .shop
            .board
            .heads()
            .into_iter()
            .map(|head| head.summary)
            .collect())
    }

    async fn get(&self, id: &str) -> Result<RunSummary, RunsError> {
        let head = self
            .shop
            .board
            .head(id)
            .ok_or_else(|| RunsError::Unknown(id.into()))?;
        Ok(head.summary)
    }

    async fn say(&self, id: &str, user: &str, text: &str) -> Result<(), RunsError> {
        if text.trim().is_empty() || text.len() > LONG {
            return Err(RunsError::Invalid(format!("a message has 1 to {LONG} bytes")));
        }
        self.shop
            .board
            .bring(
                id,
                Event::PersonSaid {
                    user: user.into(),
                    text: text.into(),
                },
            )
            .await
    }

    async fn stop(&self, id: &str, user: &str) -> Result<(), RunsError> {
        let head = self
            .shop
            .board
            .head(id)
            .ok_or_else(|| RunsError::Unknown(id.into()))?;
        match head.summary.state {
            RunState::Held { .. } => self.give_up(head, user).await,
            _ => {
                self.shop
                    .board
                    .bring(id, Event::StopAsked { user: user.into() })
                    .await
            }
        }
    }

    async fn past(&self, id: &str, after: u64) -> Result<Vec<Entry>, RunsError> {
        self.get(id).await?;
        self.hands
            .conversations
            .past(id, after)
            .await
            .map_err(|fault| RunsError::Unavailable(fault.to_string()))
    }

    async fn follow(&self, id: &str, after: u64) -> Result<BoxStream<'static, Entry>, RunsError> {
        self.get(id).await?;
        Ok(self.hands.conversations.follow(id, after))
    }
}

impl Engine {
    /// What can be known of a request before it is accepted.
    async fn check(&self, request: &RunRequest) -> Result<(), RunsError> {
        let invalid = |text: &str| Err(RunsError::Invalid(text.into()));
        if request.title.trim().is_empty() || request.title.chars().count() > SHORT {
            return Err(RunsError::Invalid(format!("a title has 1 to {SHORT} characters")));
        }
        if request.task.trim().is_empty() || request.task.len() > LONG {
            return Err(RunsError::Invalid(format!("a task has 1 to {LONG} bytes")));
        }
        if request.step_limit == Some(0) {
            return invalid("the step limit must be at least 1");
        }
        if let Some(path) = request
            .environment
            .files
            .keys()
            .find(|path| !path.starts_with('/'))
        {
            return Err(RunsError::Invalid(format!(
                "the file `{path}` must have an absolute path"
            )));
        }
        if request.policies.is_empty() {
            return invalid("a run needs a policy; an empty document refuses everything");
        }
        self.check_policy(request).await?;
        self.hands
            .models
            .model(&request.model)
            .map_err(|fault| RunsError::Invalid(fault.to_string()))?;
        Ok(())
    }

    /// Below the policies that stand in the gateway; where that cannot be reached, alone: it checks again when it opens the
    /// session.
    async fn check_policy(&self, request: &RunRequest) -> Result<(), RunsError> {
        let check = PolicyCheck {
            who: request.who.clone(),
            policies: request.policies.clone(),
        };
        let problems = match self.hands.door.check_policy(&check).await {
            Ok(problems) => problems,
            Err(GatewayError::Unreachable { .. }) => {
                Policy::compile(&request.policies).err().unwrap_or_default()
            }
            Err(error) => return Err(RunsError::Unavailable(error.to_string())),
        };
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(RunsError::Policy(problems));
        }
        Ok(())
    }

    /// A new run's head and first record. Its id is made here, and comes from the journal ever after.
    fn first(&self, mut request: RunRequest) -> Result<(Head, Record), RunsError> {
        let run = uuid::Uuid::now_v7().to_string();
        request.who.run.clone_from(&run);
        request.who.machine = self.hands.driver.kind().into();
        let now = Timestamp::now();
        let summary = RunSummary {
            id: run.clone(),
            title: request.title.clone(),
            user: request.who.user.clone(),
            created_at: now,
            steps: 0,
            refusals: 0,
            state: RunState::Queued,
        };
        let (_, commands) = begin(&run, &request);
        let record = Record {
            format: FORMAT,
            sequence: 1,
            at: now,
            event: Event::Started {
                run,
                request: Box::new(request),
            },
            commands: marks(&commands).map_err(unavailable)?,
        };
        Ok((
            Head {
                summary,
                sequence: 1,
                tokens: (0, 0),
            },
            record,
        ))
    }

    /// A run that another call has begun, perhaps a moment ago.
    async fn known(&self, run: &str) -> Result<RunSummary, RunsError> {
        if let Some(head) = self.shop.board.head(run) {
            return Ok(head.summary);
        }
        let heads = self.shop.journal.heads().await.map_err(unavailable)?;
        let head = heads.into_iter().find(|head| head.summary.id == run);
        head.map(|head| head.summary)
            .ok_or_else(|| RunsError::Unknown(run.into()))
    }

    /// Ends a run that is held: its machine and session go, and its journal gets a last record that is never replayed.
    async fn give_up(&self, mut head: Head, user: &str) -> Result<(), RunsError> {
        let run = head.summary.id.clone();
        let text = format!("stopped by {user} while it was held");
        let notes = crate::activity::close::remove(&self.hands, &run).await;
        head.summary.state = RunState::Ended {
            outcome: Outcome::Stopped,
            text: text.clone(),
        };
        head.sequence += 1;
        let record = Record {
            format: FORMAT,
            sequence: head.sequence,
            at: Timestamp::now(),
            event: Event::StopAsked { user: user.into() },
            commands: Vec::new(),
        };
        self.shop
            .journal
            .append(head.clone(), record)
            .await
            .map_err(unavailable)?;
        self.shop.board.show(&head);
        last_words(&self.hands, &head, notes).await;
        Ok(())
    }
}

/// Ends the conversation of a run whose journal cannot be replayed.
pub(super) async fn last_words(hands: &Hands, head: &Head, notes: Vec<String>) {
    let RunState::Ended { outcome, text } = head.summary.state.clone() else {
        return;
    };
    let mut whats: Vec<What> = notes.into_iter().map(|text| What::Note { text }).collect();
    whats.push(What::Ended { outcome, text });
    for (index, what) in (0u32..).zip(whats) {
        let entry = Entry {
            sequence: 0,
            at: Timestamp::now(),
            step: head.summary.steps,
            attempt: 1,
            what,
        };
        if let Err(fault) = hands
            .conversations
            .say(&head.summary.id, (head.sequence, index), entry)
            .await
        {
            tracing::warn!(run = %head.summary.id, %fault, "the end is said at the next start");
            return;
        }
    }
}

fn unavailable(fault: JournalError) -> RunsError {
    RunsError::Unavailable(fault.to_string())
}

fn hash(request: &RunRequest) -> Result<String, RunsError> {
    let bytes = serde_json::to_vec(request).map_err(|fault| RunsError::Invalid(fault.to_string()))?;
    Ok(Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
