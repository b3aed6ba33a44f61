//! What a client asks for on a channel before and with its command (RFC 4254 sections 6.2 to 6.5).
use russh::server::Msg;
use russh::{Channel, ChannelMsg, Pty};
use sallyport_policy::{GitRequest, git_command};

/// Variables that reach a command; others say more of the machine than a host needs.
const VARIABLES: [&str; 3] = ["TERM", "LANG", "GIT_PROTOCOL"];
/// A value of such a variable is no longer.
const VALUE_BYTES: usize = 256;

/// A command with its surroundings.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) terminal: Option<Terminal>,
    pub(super) variables: Vec<(String, String)>,
}

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// A command line, in bytes of whatever encoding.
    Exec(Vec<u8>),
    /// The user's shell.
    Shell,
    /// A subsystem by name, as `sftp`.
    Subsystem(String),
}

/// A terminal as the client has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terminal {
    pub(super) kind: String,
    /// Columns, rows, then both in pixels.
    pub(super) size: [u32; 4],
    pub(super) modes: Vec<(Pty, u32)>,
}

impl Command {
    /// As a record's method.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Shell => "shell",
            Self::Subsystem(_) => "subsystem",
        }
    }

    /// As a record's path.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Exec(line) => String::from_utf8_lossy(line).into_owned(),
            Self::Shell => String::new(),
            Self::Subsystem(name) => name.clone(),
        }
    }

    /// What it wants of which repository, where it is git's.
    pub(super) fn git(&self) -> Option<GitRequest> {
        match self {
            Self::Exec(line) => git_command(line),
            Self::Shell | Self::Subsystem(_) => None,
        }
    }
}

/// Whether a variable of the client reaches its command.
pub(super) fn is_passed(name: &str) -> bool {
    VARIABLES.contains(&name)
}

/// Reads up to the command; none where the channel is closed before.
pub(super) async fn read(channel: &mut Channel<Msg>) -> Option<Asked> {
    let mut terminal: Option<Terminal> = None;
    let mut variables = Vec::new();
    let command = loop {
        match channel.wait().await? {
            ChannelMsg::RequestPty {
                term,
                col_width,
                row_height,
                pix_width,
                pix_height,
                terminal_modes,
                ..
            } => {
                terminal = Some(Terminal {
                    kind: term,
                    size: [col_width, row_height, pix_width, pix_height],
                    modes: terminal_modes,
                });
            }
            ChannelMsg::WindowChange {
                col_width,
                row_height,
                pix_width,
                pix_height,
            } => {
                if let Some(terminal) = &mut terminal {
                    terminal.size = [col_width, row_height, pix_width, pix_height];
                }
            }
            ChannelMsg::SetEnv {
                variable_name,
                variable_value,
                ..
            } if is_passed(&variable_name) && variable_value.len() <= VALUE_BYTES => {
                variables.retain(|(name, _)| *name != variable_name);
                variables.push((variable_name, variable_value));
            }
            ChannelMsg::Exec { command, .. } => break Command::Exec(command),
            ChannelMsg::RequestShell { .. } => break Command::Shell,
            ChannelMsg::RequestSubsystem { name, .. } => break Command::Subsystem(name),
            ChannelMsg::Close => return None,
            _ => {}
        }
    };
    Some(Asked {
        command,
        terminal,
        variables,
    })
}
