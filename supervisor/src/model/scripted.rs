//! A model that replays turns from a YAML text: for a first look without a key, and for tests.
use super::types::{Answer, Model, ModelError, ModelRequest, Part, Role, ToolCall, Usage};
use async_trait::async_trait;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Words in one streamed piece.
const WORDS: usize = 4;
/// Most characters of the latest message quoted when a script does not fit.
const QUOTED: usize = 2_000;

/// A script.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripted {
    turns: Vec<Turn>,
}

/// One turn: what the model says and calls, and what it expects to have been told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    #[serde(default)]
    say: String,
    #[serde(default)]
    tools: Vec<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    expect: Vec<String>,
    #[serde(default)]
    delay_ms: u64,
}

impl Scripted {
    /// Reads a script. The error says where it is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let turns: Vec<Turn> = serde_saphyr::from_str(text)
            .map_err(|fault| ModelError::Final(format!("the scripted model's turns are wrong: {fault}")))?;
        if turns.is_empty() {
            return Err(ModelError::Final("the scripted model has no turns".into()));
        }
        for (number, turn) in (1..).zip(&turns) {
            if turn.tools.iter().any(|tool| tool.len() != 1) {
                let what = "each of its `tools` must be one `name: {input}`";
                return Err(ModelError::Final(format!(
                    "turn {number} of the scripted model is wrong: {what}"
                )));
            }
        }
        Ok(Self { turns })
    }

    /// The turn for a history: one for each answer before. So a retry or a restart goes on at the same turn.
    fn turn(&self, request: &ModelRequest) -> Result<&Turn, ModelError> {
        let before = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let turn = self.turns.get(before).ok_or_else(|| {
            ModelError::Final(format!(
                "the script is over: it has {} turns, and the run is not done",
                self.turns.len()
            ))
        })?;
        let latest = latest(request);
        match turn
            .expect
            .iter()
            .find(|expected| !latest.contains(expected.as_str()))
        {
            None => Ok(turn),
            Some(missing) => {
                let told: String = latest.chars().take(QUOTED).collect();
                let number = before + 1;
                Err(ModelError::Final(format!(
                    "the script does not fit what happened: turn {number} expects `{missing}`, and the model was told: {told}"
                )))
            }
        }
    }
}

/// All text told since the last answer.
fn latest(request: &ModelRequest) -> String {
    let since = request
        .messages
        .iter()
        .rev()
        .take_while(|message| message.role == Role::User);
    let texts = since
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::Text { text } | Part::Result { text, .. } => Some(text.as_str()),
            Part::Call { .. } => None,
        });
    texts.collect::<Vec<_>>().join("\n")
}

#[async_trait]
impl Model for Scripted {
    async fn infer(
        &self,
        request: &ModelRequest,
        deltas: mpsc::Sender<String>,
    ) -> Result<Answer, ModelError> {
        let turn = self.turn(request)?;
        let words: Vec<&str> = turn.say.split_inclusive(char::is_whitespace).collect();
        for piece in words.chunks(WORDS) {
            if turn.delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
            }
            // Nobody watches when the attempt was given up; the answer is dropped then.
            let _ = deltas.send(piece.concat()).await;
        }
        let named = turn.tools.iter().flatten().enumerate();
        let calls = named.map(|(index, (tool, input))| ToolCall {
            id: format!("call-{index}"),
            tool: tool.clone(),
            input: input.clone(),
        });
        Ok(Answer {
            text: turn.say.clone(),
            calls: calls.collect(),
            usage: Usage::default(),
            cut: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::types::Message;

    fn user(text: &str) -> Message {
        Message {
            role: Role::User,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            system: String::new(),
            messages,
            tools: Vec::new(),
            max_tokens: 1,
        }
    }

    async fn ask(script: &str, messages: Vec<Message>) -> Result<(Answer, String), ModelError> {
        let (deltas, mut pieces) = mpsc::channel(1000);
        let answer = Scripted::parse(script)?.infer(&request(messages), deltas).await?;
        let mut streamed = String::new();
        while let Some(piece) = pieces.recv().await {
            streamed.push_str(&piece);
        }
        Ok((answer, streamed))
    }

    const SCRIPT: &str = "
- say: First I look at the files, all of them.
  tools:
    - bash: {command: ls}
    - read_file: {path: /a}
- expect: [hello]
  tools: [{done: {summary: ok, success: true}}]
";

    #[tokio::test]
    async fn the_turn_follows_from_the_history_and_the_text_is_streamed_whole() {
        let (answer, streamed) = ask(SCRIPT, vec![user("go")]).await.unwrap();
        assert_eq!(streamed, "First I look at the files, all of them.");
        assert_eq!(answer.text, streamed);
        assert_eq!(answer.calls.len(), 2);
        assert_eq!(answer.calls[1].tool, "read_file");
        let said = Message {
            role: Role::Assistant,
            parts: vec![Part::Text { text: "x".into() }],
        };
        let (answer, _) = ask(SCRIPT, vec![user("go"), said, user("hello there")])
            .await
            .unwrap();
        assert_eq!(answer.calls[0].tool, "done");
    }

    #[tokio::test]
    async fn a_script_that_does_not_fit_says_what_it_missed_and_what_there_was() {
        let said = Message {
            role: Role::Assistant,
            parts: vec![Part::Text { text: "x".into() }],
        };
        let fault = ask(SCRIPT, vec![user("hello"), said.clone(), user("403")])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("turn 2 expects `hello`") && fault.contains("403"),
            "{fault}"
        );
        let over = ask(SCRIPT, vec![user("a"), said.clone(), user("b"), said, user("c")])
            .await
            .unwrap_err();
        assert!(over.to_string().contains("it has 2 turns"), "{over}");
    }

    #[test]
    fn a_wrong_script_is_refused_with_its_place() {
        for (script, part) in [
            ("- say: [", "turns are wrong"),
            ("- sai: x", "sai"),
            ("[]", "no turns"),
            ("- tools: [{bash: {}, done: {}}]", "turn 1"),
        ] {
            let fault = Scripted::parse(script).unwrap_err().to_string();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
