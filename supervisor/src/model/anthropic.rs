//! Anthropic's Messages API, streaming (docs.anthropic.com, "Streaming Messages").
use super::events::Caller;
use super::growing::{Growing, ask};
use super::sse::SseEvent;
use super::types::{Answer, Message, Model, ModelError, ModelRequest, Part, Role, ToolCall, Usage};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Version of the API.
const VERSION: &str = "2023-06-01";

/// One model at one endpoint.
#[derive(Debug)]
pub struct Anthropic {
    caller: Caller,
    model: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Started,
    },
    ContentBlockStart {
        index: usize,
        content_block: Block,
    },
    ContentBlockDelta {
        index: usize,
        delta: Delta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: End,
        #[serde(default)]
        usage: Counts,
    },
    MessageStop,
    Error {
        error: Fault,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Started {
    #[serde(default)]
    usage: Counts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// What has come of an answer so far.
#[derive(Default)]
struct Partial {
    blocks: Vec<Open>,
    usage: Usage,
    stop: Option<String>,
    over: bool,
}

struct Open {
    kind: Kind,
    text: String,
    closed: bool,
}

enum Kind {
    Text,
    Tool { id: String, name: String },
    Other,
}

impl Anthropic {
    pub(super) fn new(caller: Caller, model: String) -> Self {
        Self { caller, model }
    }
}

#[async_trait]
impl Model for Anthropic {
    async fn infer(
        &self,
        request: &ModelRequest,
        deltas: mpsc::Sender<String>,
    ) -> Result<Answer, ModelError> {
        let http = self
            .caller
            .client
            .post(format!("{}/v1/messages", self.caller.base));
        let http = http
            .header("anthropic-version", VERSION)
            .json(&body(&self.model, request));
        let http = self.caller.signed(http, "x-api-key", "")?;
        ask::<Partial>(&self.caller, http, deltas).await
    }
}

impl Growing for Partial {
    fn take(&mut self, event: &SseEvent, caller: &Caller) -> Result<Option<String>, ModelError> {
        let event: Event = serde_json::from_str(&event.data)
            .map_err(|fault| ModelError::passing(format!("the model's stream makes no sense: {fault}")))?;
        let nonsense = |what: &str| ModelError::passing(format!("the model's stream makes no sense: {what}"));
        match event {
            Event::MessageStart { message } => self.usage = message.usage.total(Usage::default()),
            Event::ContentBlockStart { index, content_block } => {
                if index != self.blocks.len() {
                    return Err(nonsense("a block is out of order"));
                }
                let (kind, text) = match content_block {
                    Block::Text { text } => (Kind::Text, text),
                    Block::ToolUse { id, name } => (Kind::Tool { id, name }, String::new()),
                    Block::Other => (Kind::Other, String::new()),
                };
                let shown = (!text.is_empty()).then(|| text.clone());
                self.blocks.push(Open {
                    kind,
                    text,
                    closed: false,
                });
                return Ok(shown);
            }
            Event::ContentBlockDelta { index, delta } => {
                let block = self.blocks.get_mut(index).filter(|block| !block.closed);
                let block = block.ok_or_else(|| nonsense("a piece belongs to no open block"))?;
                match (&block.kind, delta) {
                    (Kind::Text, Delta::Text { text }) => {
                        block.text.push_str(&text);
                        return Ok(Some(text));
                    }
                    (Kind::Tool { .. }, Delta::Input { partial_json }) => block.text.push_str(&partial_json),
                    (_, Delta::Other) | (Kind::Other, _) => {}
                    _ => return Err(nonsense("a piece does not fit its block")),
                }
            }
            Event::ContentBlockStop { index } => {
                let block = self
                    .blocks
                    .get_mut(index)
                    .ok_or_else(|| nonsense("a block ends that never began"))?;
                block.closed = true;
            }
            Event::MessageDelta { delta, usage } => {
                self.stop = delta.stop_reason.or(self.stop.take());
                self.usage = usage.total(self.usage);
            }
            Event::MessageStop => self.over = true,
            Event::Error { error } => return Err(broken_off(caller, &error)),
            Event::Other => {}
        }
        Ok(None)
    }

    fn over(&self) -> bool {
        self.over
    }

    fn whole(&self) -> Result<Answer, ModelError> {
        let broken = |what: &str| Err(ModelError::passing(format!("the model's stream ended {what}")));
        if !self.over {
            return broken("without `message_stop`: the answer is not whole");
        }
        let Some(stop) = &self.stop else {
            return broken("without a stop reason: the answer is not whole");
        };
        if self.blocks.iter().any(|block| !block.closed) {
            return broken("in the middle of a block: the answer is not whole");
        }
        let cut = match stop.as_str() {
            "max_tokens" => true,
            "refusal" => {
                return Err(ModelError::Final(
                    "the model declines to go on with this task".into(),
                ));
            }
            "model_context_window_exceeded" => {
                return Err(ModelError::Final(
                    "the conversation no longer fits into the model".into(),
                ));
            }
            _ => false,
        };
        let mut answer = Answer {
            usage: self.usage,
            cut,
            ..Answer::default()
        };
        for block in &self.blocks {
            match &block.kind {
                Kind::Text => answer.text.push_str(&block.text),
                // A call of an answer that was cut may be cut itself.
                Kind::Tool { id, name } if !cut => answer.calls.push(ToolCall {
                    id: id.clone(),
                    tool: name.clone(),
                    input: input(name, &block.text)?,
                }),
                _ => {}
            }
        }
        Ok(answer)
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

fn broken_off(caller: &Caller, fault: &Fault) -> ModelError {
    let why = format!(
        "the model broke off with `{}`: {}",
        fault.kind,
        caller.clean(&fault.message)
    );
    match fault.kind.as_str() {
        "invalid_request_error"
        | "authentication_error"
        | "permission_error"
        | "not_found_error"
        | "request_too_large"
        | "billing_error" => ModelError::Final(why),
        _ => ModelError::passing(why),
    }
}

fn input(tool: &str, text: &str) -> Result<Value, ModelError> {
    super::types::object(text)
        .map_err(|fault| ModelError::passing(format!("the model's call of `{tool}` is not whole: {fault}")))
}

impl Counts {
    /// These counts, or those known before where there is none. Cumulative, as the API says.
    fn total(&self, before: Usage) -> Usage {
        let cached =
            self.cache_creation_input_tokens.unwrap_or(0) + self.cache_read_input_tokens.unwrap_or(0);
        Usage {
            input_tokens: self
                .input_tokens
                .map_or(before.input_tokens, |tokens| tokens + cached),
            output_tokens: self.output_tokens.unwrap_or(before.output_tokens),
        }
    }
}

fn body(model: &str, request: &ModelRequest) -> Value {
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}))
        .collect();
    let mut messages: Vec<Value> = request.messages.iter().map(message).collect();
    // Everything up to here is the same in the next question: the provider may cache it.
    if let Some(last) = messages
        .last_mut()
        .and_then(|message| message["content"].as_array_mut()?.last_mut())
    {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    json!({
        "model": model, "max_tokens": request.max_tokens, "system": request.system,
        "messages": messages, "tools": tools, "stream": true,
    })
}

fn message(message: &Message) -> Value {
    let content: Vec<Value> = message
        .parts
        .iter()
        .map(|part| match part {
            Part::Text { text } => json!({"type": "text", "text": text}),
            Part::Call { call } => json!({
                "type": "tool_use", "id": call.id, "name": call.tool,
                "input": if call.input.is_object() { call.input.clone() } else { json!({}) },
            }),
            Part::Result { call, text, ok } => {
                json!({"type": "tool_result", "tool_use_id": call, "content": text, "is_error": !ok})
            }
        })
        .collect();
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({"role": role, "content": content})
}
