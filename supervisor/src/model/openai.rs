//! OpenAI's chat completions API and those compatible with it, streaming (platform.openai.com, "Chat completions").
use super::events::Caller;
use super::growing::{Growing, ask};
use super::sse::SseEvent;
use super::types::{Answer, Message, Model, ModelError, ModelRequest, Part, Role, ToolCall, Usage};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Most calls of one answer.
const CALLS: usize = 128;

/// One model at one endpoint.
#[derive(Debug)]
pub struct Openai {
    caller: Caller,
    model: String,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(default)]
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize)]
struct CallPiece {
    index: usize,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: FunctionPiece,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    message: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

/// What has come of an answer so far.
#[derive(Default)]
struct Partial {
    text: String,
    calls: Vec<(String, String, String)>,
    usage: Usage,
    finish: Option<String>,
    over: bool,
}

impl Openai {
    pub(super) fn new(caller: Caller, model: String) -> Self {
        Self { caller, model }
    }
}

#[async_trait]
impl Model for Openai {
    async fn infer(
        &self,
        request: &ModelRequest,
        deltas: mpsc::Sender<String>,
    ) -> Result<Answer, ModelError> {
        let http = self
            .caller
            .client
            .post(format!("{}/chat/completions", self.caller.base));
        let http = self
            .caller
            .signed(http.json(&body(&self.model, request)), "authorization", "Bearer ")?;
        ask::<Partial>(&self.caller, http, deltas).await
    }
}

impl Partial {
    fn call(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        if piece.index > self.calls.len() || piece.index >= CALLS {
            return Err(ModelError::passing(
                "the model's stream makes no sense: a call is out of order",
            ));
        }
        if piece.index == self.calls.len() {
            self.calls.push(Default::default());
        }
        let call = &mut self.calls[piece.index];
        if let Some(id) = piece.id.filter(|_| call.0.is_empty()) {
            call.0 = id;
        }
        call.1.push_str(&piece.function.name.unwrap_or_default());
        call.2.push_str(&piece.function.arguments.unwrap_or_default());
        Ok(())
    }
}

impl Growing for Partial {
    fn take(&mut self, event: &SseEvent, caller: &Caller) -> Result<Option<String>, ModelError> {
        let data = &event.data;
        if event.event == "error" {
            let words = caller.clean(data);
            return Err(ModelError::passing(format!("the model broke off: {words}")));
        }
        if data.trim() == "[DONE]" {
            self.over = true;
            return Ok(None);
        }
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|fault| ModelError::passing(format!("the model's stream makes no sense: {fault}")))?;
        if let Some(fault) = chunk.error {
            return Err(broken_off(caller, &fault));
        }
        if let Some(counts) = chunk.usage {
            self.usage = Usage {
                input_tokens: counts.prompt_tokens,
                output_tokens: counts.completion_tokens,
            };
        }
        // Only one answer was asked for.
        let Some(choice) = chunk.choices.into_iter().next() else {
            return Ok(None);
        };
        self.finish = choice.finish_reason.or(self.finish.take());
        for piece in choice.delta.tool_calls.unwrap_or_default() {
            self.call(piece)?;
        }
        let text = choice.delta.content.filter(|text| !text.is_empty());
        self.text.push_str(text.as_deref().unwrap_or_default());
        Ok(text)
    }

    fn over(&self) -> bool {
        self.over
    }

    fn whole(&self) -> Result<Answer, ModelError> {
        if !self.over {
            return Err(ModelError::passing(
                "the model's stream ended without `[DONE]`: the answer is not whole",
            ));
        }
        let Some(finish) = &self.finish else {
            return Err(ModelError::passing(
                "the model's stream ended without a reason: the answer is not whole",
            ));
        };
        let cut = match finish.as_str() {
            "length" => true,
            "content_filter" => {
                return Err(ModelError::Final(
                    "the provider's content filter stopped the model's answer".into(),
                ));
            }
            _ => false,
        };
        let mut answer = Answer {
            text: self.text.clone(),
            calls: Vec::new(),
            usage: self.usage,
            cut,
        };
        // A call of an answer that was cut may be cut itself.
        for (id, tool, input) in self.calls.iter().filter(|_| !cut) {
            let input = super::types::object(input).map_err(|fault| {
                ModelError::passing(format!("the model's call of `{tool}` is not whole: {fault}"))
            })?;
            if tool.is_empty() {
                return Err(ModelError::passing(
                    "the model's call names no tool: it is not whole",
                ));
            }
            answer.calls.push(ToolCall {
                id: id.clone(),
                tool: tool.clone(),
                input,
            });
        }
        Ok(answer)
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

fn broken_off(caller: &Caller, fault: &Fault) -> ModelError {
    let kind = fault.kind.as_deref().unwrap_or("error");
    let why = format!(
        "the model broke off with `{}`: {}",
        caller.clean(kind),
        caller.clean(&fault.message)
    );
    match kind {
        "invalid_request_error" | "authentication_error" | "insufficient_quota" => ModelError::Final(why),
        _ => ModelError::passing(why),
    }
}

fn body(model: &str, request: &ModelRequest) -> Value {
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let function =
                json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        })
        .collect();
    let mut messages = vec![json!({"role": "system", "content": request.system})];
    messages.extend(request.messages.iter().flat_map(self::messages));
    json!({
        "model": model, "messages": messages, "tools": tools, "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// One of ours may be several here: each result has a message of its own, before the user's text.
fn messages(message: &Message) -> Vec<Value> {
    let mut texts = Vec::new();
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => texts.push(text.as_str()),
            Part::Call { call } => {
                let arguments = if call.input.is_object() {
                    call.input.to_string()
                } else {
                    "{}".into()
                };
                let function = json!({"name": call.tool, "arguments": arguments});
                calls.push(json!({"id": call.id, "type": "function", "function": function}));
            }
            Part::Result { call, text, .. } => {
                results.push(json!({"role": "tool", "tool_call_id": call, "content": text}));
            }
        }
    }
    let text = (!texts.is_empty()).then(|| texts.join("\n\n"));
    match message.role {
        Role::Assistant if calls.is_empty() => vec![json!({"role": "assistant", "content": text})],
        Role::Assistant => vec![json!({"role": "assistant", "content": text, "tool_calls": calls})],
        Role::User => {
            results.extend(text.map(|text| json!({"role": "user", "content": text})));
            results
        }
    }
}
