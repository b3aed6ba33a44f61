//! Asking the model: attempts with backoff, each fenced in the conversation, pieces shown as they come.
use crate::activity::Context;
use crate::conversation::store::Attempt;
use crate::model::types::{Answer, Model, ModelError, ModelRequest, Usage};
use crate::run::event::Event;
use crate::run::prompt;
use std::time::Duration;
use tokio::sync::mpsc;

/// Longest time for one attempt, from start to end.
const START_TO_CLOSE: Duration = Duration::from_secs(1_200);
/// Why earlier attempts are void where nothing better is known: a restart, or a new round after a pause.
const BEGUN_ANEW: &str = "the step is begun anew";

/// Asks until there is an answer, a final fault, or no patience left.
pub(super) async fn infer(context: &Context, step: u32, request: &ModelRequest) -> Event {
    let mut wasted = Usage::default();
    let failed = |attempt, why: String, passing, wasted| Event::InferFailed {
        step,
        attempt,
        why,
        passing,
        wasted,
    };
    let model = match context.hands.models.model(&context.request.model) {
        Ok(model) => model,
        Err(fault) => return failed(0, fault.to_string(), false, wasted),
    };
    if let Some(fault) = prompt::fault(&request.messages) {
        let why = format!("the question to the model is not well-formed, which is a fault of ours: {fault}");
        return failed(0, why, false, wasted);
    }
    let mut waits = context.hands.patience.waits();
    let mut why = BEGUN_ANEW.to_owned();
    loop {
        let attempt = match context
            .hands
            .conversations
            .begin_attempt(&context.run, step, &why)
            .await
        {
            Ok(attempt) => attempt,
            Err(fault) => return failed(0, fault.to_string(), true, wasted),
        };
        let number = attempt.attempt;
        match once(context, model.as_ref(), request, attempt).await {
            Ok(answer) => {
                return Event::Inferred {
                    step,
                    attempt: number,
                    answer,
                    wasted,
                };
            }
            Err(ModelError::Final(why)) => return failed(number, why, false, wasted),
            Err(ModelError::Passing {
                why: fault,
                retry_after,
                usage,
            }) => {
                wasted.add(usage);
                let Some(wait) = waits.next() else {
                    return failed(number, fault, true, wasted);
                };
                let wait = wait.max(retry_after.unwrap_or_default());
                tracing::warn!(run = %context.run, step, attempt = number, %fault, ?wait, "asking the model again");
                why = fault;
                tokio::time::sleep(wait).await;
            }
        }
    }
}

async fn once(
    context: &Context,
    model: &dyn Model,
    request: &ModelRequest,
    attempt: Attempt,
) -> Result<Answer, ModelError> {
    let (deltas, pieces) = mpsc::channel(64);
    let ask = tokio::time::timeout(START_TO_CLOSE, model.infer(request, deltas));
    let (answer, ()) = tokio::join!(ask, show(context, &attempt, pieces));
    answer.unwrap_or_else(|_| {
        Err(ModelError::passing(format!(
            "the model's answer took longer than {} s",
            START_TO_CLOSE.as_secs()
        )))
    })
}

/// Shows pieces as they come; what comes while one is being written goes with the next.
async fn show(context: &Context, attempt: &Attempt, mut pieces: mpsc::Receiver<String>) {
    while let Some(mut text) = pieces.recv().await {
        while let Ok(more) = pieces.try_recv() {
            text.push_str(&more);
        }
        // The whole text comes with the answer: a piece that cannot be shown now is no loss.
        if let Err(fault) = context.hands.conversations.delta(attempt, text).await {
            tracing::warn!(run = %context.run, %fault, "a piece of the answer is not shown");
        }
    }
}
