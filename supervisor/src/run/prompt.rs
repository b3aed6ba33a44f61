//! The question to the model: instructions, tools, and a history that is well-formed for every provider.
use crate::model::types::{Message, ModelRequest, Part, Role, ToolSpec};
use crate::run::state::State;
use serde_json::json;

/// Most tokens of one answer.
const MAX_TOKENS: u32 = 8_192;
/// Bytes of history sent; older tool output beyond it is left out.
const HISTORY_BYTES: usize = 400_000;
/// Results shorter than this are never left out.
const SMALL: usize = 400;
/// Stands for tool output that was left out.
const LEFT_OUT: &str = "[older output left out]";

/// The question for the state's current step.
pub fn request(state: &State) -> ModelRequest {
    ModelRequest {
        system: instructions(),
        messages: fitted(&state.history),
        tools: tools(),
        max_tokens: MAX_TOKENS,
    }
}

fn instructions() -> String {
    "You are a coding agent in a machine of your own. Its only way out is a gateway that decides by policy what you may reach.\n\
     Credentials in your environment are placeholders: use them as if they were real, the gateway puts the real ones in where they are allowed.\n\
     What the gateway refuses comes back as status 403 with a problem document, and is told to you again with your next results: \
     read the reason and the remedy, then work around it, call `request_access`, or say that you are stuck.\n\
     Work with the tools until the task is finished, then call `done`. Calls of one answer are carried out one after another."
        .into()
}

/// The tools on offer.
pub fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, properties: serde_json::Value, required: &[&str]| ToolSpec {
        name: name.into(),
        description: description.into(),
        schema: json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
    };
    vec![
        tool(
            "bash",
            "Runs a command with bash in /home/agent and gives its output and exit code. The time limit is 120 s unless you say otherwise, 3600 s at most.",
            json!({"command": {"type": "string"}, "timeout_s": {"type": "integer", "minimum": 1, "maximum": 3600}}),
            &["command"],
        ),
        tool(
            "read_file",
            "Reads a text file, up to 256 KiB.",
            json!({"path": {"type": "string", "description": "absolute"}}),
            &["path"],
        ),
        tool(
            "write_file",
            "Writes a file, replacing it, and makes its folders.",
            json!({"path": {"type": "string", "description": "absolute"}, "content": {"type": "string"}}),
            &["path", "content"],
        ),
        tool(
            "request_access",
            "Asks for leave to reach a host that the gateway refuses. Name a method and a path if you need no more than these; \
             name a credential to ask for its use at that host (`sallyport-shim secret ls` lists them).",
            json!({
                "host": {"type": "string"}, "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                "method": {"type": "string"}, "path": {"type": "string"}, "credential": {"type": "string"}, "why": {"type": "string"}
            }),
            &["host", "why"],
        ),
        tool(
            "done",
            "Ends the run. `success` says whether the task is finished; `summary` tells people what was done and what was not.",
            json!({"summary": {"type": "string"}, "success": {"type": "boolean"}}),
            &["summary", "success"],
        ),
    ]
}

/// The history within its size: the newest results whole, older long ones left out.
fn fitted(history: &[Message]) -> Vec<Message> {
    let mut messages = history.to_vec();
    let mut bytes = 0;
    for part in messages
        .iter_mut()
        .rev()
        .flat_map(|message| message.parts.iter_mut().rev())
    {
        match part {
            Part::Text { text } => bytes += text.len(),
            Part::Call { call } => bytes += call.input.to_string().len(),
            Part::Result { text, .. } => {
                if text.len() > SMALL && bytes + text.len() > HISTORY_BYTES {
                    *text = LEFT_OUT.into();
                }
                bytes += text.len();
            }
        }
    }
    messages
}

/// What is wrong with a history, if anything: roles alternate from the user on, and each call has exactly
/// one result, in the next message, before any text.
pub fn fault(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let expected = if position % 2 == 0 {
            Role::User
        } else {
            Role::Assistant
        };
        if message.role != expected || message.parts.is_empty() {
            return Some(format!("message {position} is out of turn or empty"));
        }
        let mut texts = false;
        let mut calls = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text { text } if text.is_empty() => {
                    return Some(format!("message {position} has an empty text"));
                }
                Part::Text { .. } => texts = true,
                Part::Call { call } if message.role == Role::Assistant => calls.push(call.id.as_str()),
                Part::Result { call, .. } if message.role == Role::User && !texts => {
                    if open.is_empty() || open.remove(0) != call {
                        return Some(format!(
                            "the result of `{call}` in message {position} belongs to no call"
                        ));
                    }
                }
                _ => return Some(format!("message {position} has a part out of place")),
            }
        }
        if let Some(call) = open.first() {
            return Some(format!(
                "the call `{call}` before message {position} has no result"
            ));
        }
        open = calls;
    }
    None
}
