//! What a model is asked and what it answers, in the one shape that every client translates.
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::sync::mpsc;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// People, tool results, and the supervisor.
    User,
    /// The model.
    Assistant,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "part")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text; never empty.
        text: String,
    },
    /// The model calls a tool. Only in messages of the assistant.
    Call {
        /// Which.
        call: ToolCall,
    },
    /// What a call gave. Only in messages of the user, before any text, one for each call of the message before.
    Result {
        /// Id of the call.
        call: String,
        /// Text for the model.
        text: String,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the run.
    pub id: String,
    /// Tool.
    pub tool: String,
    /// Its input, a JSON object.
    pub input: serde_json::Value,
}

/// One message. In a well-formed history the roles alternate, beginning with the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// At least one part.
    pub parts: Vec<Part>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the input.
    pub schema: serde_json::Value,
}

/// A question to a model: the whole history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Instructions.
    pub system: String,
    /// History, ending with a message of the user.
    pub messages: Vec<Message>,
    /// Tools on offer.
    pub tools: Vec<ToolSpec>,
    /// Most tokens to answer with.
    pub max_tokens: u32,
}

/// Tokens counted by the provider; zero where it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}

impl Usage {
    /// Adds another count to this one.
    pub fn add(&mut self, other: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

/// A whole answer. Never a part of one: a stream that broke off is an error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Text, possibly empty.
    pub text: String,
    /// Calls in order, possibly none.
    pub calls: Vec<ToolCall>,
    /// Tokens.
    pub usage: Usage,
    /// Whether the answer was cut at `max_tokens`; then it has no calls.
    pub cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The provider's or the network's passing fault: trying again may help.
    #[error("{why}")]
    Passing {
        /// What happened.
        why: String,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
        /// Tokens that the dead attempt is known to have cost.
        usage: Usage,
    },
    /// Trying again gives the same: wrong key, wrong request, a script that does not fit. The text says what to do.
    #[error("{0}")]
    Final(String),
}

impl ModelError {
    /// A passing fault without further facts.
    pub fn passing(why: impl Into<String>) -> Self {
        Self::Passing {
            why: why.into(),
            retry_after: None,
            usage: Usage::default(),
        }
    }
}

/// A model, asked with the whole history each time.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers; pieces of the text go to `deltas` as they come. Dropping the future abandons the request.
    async fn infer(&self, request: &ModelRequest, deltas: mpsc::Sender<String>)
    -> Result<Answer, ModelError>;
}

impl ModelError {
    /// The same fault, with the tokens that the attempt had cost by then.
    pub fn costing(self, cost: Usage) -> Self {
        match self {
            Self::Passing {
                why,
                retry_after,
                usage: mut known,
            } => {
                known.add(cost);
                Self::Passing {
                    why,
                    retry_after,
                    usage: known,
                }
            }
            last => last,
        }
    }
}

/// A call's input as it came: an object, or nothing for none. The error says what is not whole.
pub(super) fn object(text: &str) -> Result<serde_json::Value, String> {
    if text.trim().is_empty() {
        return Ok(serde_json::Value::Object(serde_json::Map::new()));
    }
    let value: serde_json::Value = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("it is no JSON object".into())
    }
}
