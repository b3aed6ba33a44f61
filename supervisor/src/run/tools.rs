//! The model's tools: reading their input, and what each comes to.
use crate::model::types::ToolCall;
use crate::run::command::Command;
use crate::run::event::Asker;
use crate::run::state::State;
use sallyport_policy::Wanted;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A call with its input read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tool {
    /// A command.
    Bash {
        /// For bash.
        command: String,
        /// Time limit in milliseconds.
        timeout_ms: u64,
    },
    /// Reading a file.
    ReadFile {
        /// Absolute path.
        path: String,
    },
    /// Writing a file.
    WriteFile {
        /// Absolute path.
        path: String,
        /// Text.
        content: String,
    },
    /// Asking for access.
    RequestAccess {
        /// What is wanted.
        wanted: Wanted,
        /// Why.
        why: String,
    },
    /// Ending the run.
    Done {
        /// For people.
        summary: String,
        /// Whether the task is finished.
        success: bool,
    },
}

/// What a call comes to.
pub(super) enum Next {
    /// Something to do first.
    Do(Box<Command>),
    /// A result at once.
    Told { text: String, ok: bool },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bash {
    command: String,
    #[serde(default)]
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestAccess {
    host: String,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    credential: Option<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    summary: String,
    success: bool,
}

/// Time limit of a command that names none, in seconds.
const TIMEOUT_S: u64 = 120;
/// Longest time limit, in seconds.
const TIMEOUT_MAX_S: u64 = 3_600;

impl Tool {
    /// Reads a call's input. The error is a sentence for the model.
    pub fn read(call: &ToolCall) -> Result<Self, String> {
        match call.tool.as_str() {
            "bash" => input::<Bash>(call).map(|bash| Self::Bash {
                command: bash.command,
                timeout_ms: bash.timeout_s.unwrap_or(TIMEOUT_S).clamp(1, TIMEOUT_MAX_S) * 1000,
            }),
            "read_file" => input::<ReadFile>(call).map(|file| Self::ReadFile { path: file.path }),
            "write_file" => input::<WriteFile>(call).map(|file| Self::WriteFile {
                path: file.path,
                content: file.content,
            }),
            "request_access" => input::<RequestAccess>(call).map(|asked| Self::RequestAccess {
                wanted: Wanted {
                    credential: asked.credential,
                    host: asked.host,
                    port: asked.port.unwrap_or(443),
                    method: asked.method,
                    path: asked.path,
                },
                why: asked.why,
            }),
            "done" => input::<Done>(call).map(|done| Self::Done {
                summary: done.summary,
                success: done.success,
            }),
            other => Err(format!(
                "there is no tool `{other}`; there are bash, read_file, write_file, request_access and done"
            )),
        }
    }
}

fn input<'a, T: Deserialize<'a>>(call: &'a ToolCall) -> Result<T, String> {
    T::deserialize(&call.input).map_err(|fault| format!("the input of `{}` is wrong: {fault}", call.tool))
}

/// Whether a tool works in the machine.
pub(super) fn in_machine(tool: &str) -> bool {
    matches!(tool, "bash" | "read_file" | "write_file")
}

/// What the call at `index` of the current step comes to.
pub(super) fn plan(state: &State, index: usize, call: &ToolCall) -> Next {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let step = state.step;
    match Tool::read(call) {
        Err(text) => Next::Told { text, ok: false },
        Ok(Tool::Done { .. }) => Next::Told {
            text: "noted".into(),
            ok: true,
        },
        Ok(Tool::RequestAccess { wanted, why }) => Next::Do(Box::new(Command::RequestAccess {
            asker: Asker::Tool { step, index },
            record: None,
            wanted,
            why,
        })),
        Ok(_) => match &state.machine.record {
            None => {
                let why = state.machine.lost.as_deref().unwrap_or("there is none yet");
                Next::Told {
                    text: format!("not run: the machine is gone ({why})"),
                    ok: false,
                }
            }
            Some(record) => Next::Do(Box::new(Command::RunTool {
                step,
                attempt: state.settled.1,
                index,
                record: record.clone(),
                generation: state.machine.generation,
                exec: format!("{}-{step}-{index}", state.run),
                call: call.clone(),
            })),
        },
    }
}

/// Variables of every machine; those of the environment and the placeholders come over them.
pub(super) fn environment(run: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("SALLYPORT_RUN", run),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
