//! An answer that grows with each event of a provider's stream, whatever the provider's words are.
use super::events::Caller;
use super::sse::SseEvent;
use super::types::{Answer, ModelError, Usage};
use reqwest::RequestBuilder;
use tokio::sync::mpsc;

/// What has come of an answer so far.
pub(super) trait Growing: Default + Send {
    /// Takes one event; gives the text to show, where it brings some.
    fn take(&mut self, event: &SseEvent, caller: &Caller) -> Result<Option<String>, ModelError>;
    /// Whether the provider has said that nothing will follow.
    fn over(&self) -> bool;
    /// The answer, if it is whole.
    fn whole(&self) -> Result<Answer, ModelError>;
    /// What it has cost so far.
    fn usage(&self) -> Usage;
}

/// Asks, passes text on as it comes, and gives the whole answer. An error says what the broken answer has cost.
pub(super) async fn ask<G: Growing>(
    caller: &Caller,
    request: RequestBuilder,
    deltas: mpsc::Sender<String>,
) -> Result<Answer, ModelError> {
    let mut events = caller.open(request).await?;
    let mut answer = G::default();
    let outcome = async {
        while !answer.over() {
            let Some(event) = events.next().await? else { break };
            if let Some(text) = answer.take(&event, caller)? {
                // Nobody watches when the attempt was given up; the answer is dropped then.
                let _ = deltas.send(text).await;
            }
        }
        Ok(())
    }
    .await;
    outcome
        .and_then(|()| answer.whole())
        .map_err(|fault: ModelError| fault.costing(answer.usage()))
}
