//! The command `sallyport-shim`: serves the supervisor, and is the agent's own command line.
use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use sallyport_shim::command::{self, EXIT_GRANTED, EXIT_NO_ANSWER, EXIT_REFUSED};
use sallyport_shim::credentials::helpers::Helper;
use sallyport_shim::local::{Ask, Reply, SOCKET};
use sallyport_shim::{credentials, exec, serve, trust, tunnel};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The variable that names the serving shim's socket, where it is another than usual.
const SOCKET_VARIABLE: &str = "SALLYPORT_SHIM_SOCKET";

#[derive(Debug, Parser)]
#[command(
    name = "sallyport-shim",
    version,
    about = "What you may reach, and how to ask for more"
)]
struct Arguments {
    /// Socket of the serving shim.
    #[arg(long, env = SOCKET_VARIABLE, default_value = SOCKET, global = true)]
    socket: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the gateway refused, by which rule, and what may be done about it.
    Blocked {
        /// As JSON, one object a line.
        #[arg(long)]
        json: bool,
    },
    /// Ask to reach a host. Exit code 0: granted; 1: refused; 75: no answer in time.
    RequestAccess {
        /// HOST or HOST:PORT; the port is 443 if none is named.
        target: String,
        /// Only this method.
        #[arg(long)]
        method: Option<String>,
        /// Only this path.
        #[arg(long)]
        path: Option<String>,
        /// What it is needed for, in a sentence.
        #[arg(long)]
        why: String,
        /// Seconds to wait for the answer.
        #[arg(long, default_value_t = 120)]
        wait: u64,
    },
    /// The credentials that may be used here, by placeholders that stand for them.
    Secret {
        #[command(subcommand)]
        command: Secret,
    },
    /// Answer git's question for a log-in (gitcredentials(7)).
    #[command(hide = true)]
    GitCredential {
        /// What git wants: `get`, `store` or `erase`.
        arguments: Vec<String>,
    },
    /// Give an access key to AWS's tools, as `credential_process` of their settings.
    #[command(hide = true)]
    AwsCredentials {
        /// The credential's name; the first one without it.
        arguments: Vec<String>,
    },
    /// Refuse staged changes that hold what looks like a secret; for a hook.
    #[command(hide = true)]
    CommitCheck,
    /// Keep a command running after the tool call that starts it, until the machine ends.
    Background {
        /// The command.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
    /// Carry a remote machine's connections and names to its gateway.
    #[command(subcommand_negates_reqs = true)]
    Tunnel(Tunnel),
    /// Serve the supervisor on the listening socket given as standard input.
    #[command(hide = true)]
    Serve {
        /// Folder for long outputs.
        #[arg(long, default_value = "/var/log/sallyport")]
        outputs: PathBuf,
        /// Folder below which trust is installed.
        #[arg(long, default_value = "/")]
        root: PathBuf,
    },
    /// Keep one command: for the serving shim only.
    #[command(hide = true)]
    Keep {
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Secret {
    /// List names, what they are for, where they may go, and the variables that hold their placeholders.
    Ls {
        /// As JSON, one object a line, with the placeholder.
        #[arg(long)]
        json: bool,
    },
    /// Ask for the use of a credential. Exit code 0: granted; 1: refused; 75: no answer in time.
    Request {
        /// The credential's name.
        name: String,
        /// HOST or HOST:PORT where it is to be used.
        #[arg(long = "for", value_name = "HOST")]
        target: String,
        /// What it is needed for, in a sentence.
        #[arg(long)]
        why: String,
        /// Seconds to wait for the answer.
        #[arg(long, default_value_t = 120)]
        wait: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Tunnel {
    #[command(subcommand)]
    request: Option<TunnelRequest>,
    /// The gateway's address for tunnels; an ADDRESS:PORT where this machine looks names up through the tunnel.
    #[arg(long, value_name = "HOST:PORT", required = true)]
    gateway: Option<String>,
    /// PEM file with this machine's certificate; read again when it changes.
    #[arg(long, value_name = "FILE", required = true)]
    certificate: Option<PathBuf>,
    /// PEM file with its key.
    #[arg(long, value_name = "FILE", required = true)]
    key: Option<PathBuf>,
    /// PEM file with the authority of the gateway's certificate.
    #[arg(long, value_name = "FILE", required = true)]
    ca: Option<PathBuf>,
    /// The name in the gateway's certificate.
    #[arg(long, default_value = "gateway.sallyport.internal")]
    name: String,
    /// Where redirected connections arrive, and CONNECT of a proxy's clients.
    #[arg(long, value_name = "ADDRESS:PORT")]
    tcp: Option<SocketAddr>,
    /// Where names are asked for, over UDP and TCP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    dns: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
enum TunnelRequest {
    /// Print a request for this machine's certificate; its key is made where it has none, and stays here.
    RequestCertificate {
        /// PEM file of the key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

fn main() -> ExitCode {
    match called().unwrap_or_else(|| run(Arguments::parse())) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nothing is left to tell it to if standard error is closed.
            let _told = writeln!(std::io::stderr(), "sallyport-shim: {error:#}");
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// Where it was started by another name, as tools start their helpers.
fn called() -> Option<anyhow::Result<u8>> {
    let mut words = std::env::args();
    let helper = Helper::of_program(&words.next()?)?;
    let socket = std::env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET), PathBuf::from);
    let arguments: Vec<String> = words.collect();
    Some(helper.serve(&arguments, &socket).map_err(Into::into))
}

fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let Arguments { socket, command } = arguments;
    match command {
        Command::Blocked { json } => blocked(&socket, json),
        Command::RequestAccess {
            target,
            method,
            path,
            why,
            wait,
        } => {
            let wish = command::wish(&target, method, path, why).map_err(|text| anyhow!(text))?;
            request(&socket, &Ask::RequestAccess(wish), Duration::from_secs(wait))
        }
        Command::Secret { command } => secret(&socket, command),
        Command::GitCredential { arguments } => Ok(Helper::Git.serve(&arguments, &socket)?),
        Command::AwsCredentials { arguments } => Ok(Helper::Aws.serve(&arguments, &socket)?),
        Command::CommitCheck => Ok(Helper::Commit.serve(&[], &socket)?),
        Command::Background { argv } => {
            let cwd = std::env::current_dir().context("the working directory is gone")?;
            let env = std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
            let ask = Ask::Background {
                argv,
                cwd: cwd.display().to_string(),
                env: env.collect(),
            };
            request(&socket, &ask, Duration::from_secs(30))
        }
        Command::Keep { argv } => {
            exec::keep(&argv)?;
            Ok(0)
        }
        Command::Tunnel(tunnel) => carry(tunnel),
        Command::Serve { outputs, root } => {
            let options = serve::Options {
                helper: PathBuf::from("/proc/self/exe"),
                outputs,
                socket,
                root,
                env: trust::inherited(std::env::vars()),
            };
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?
                .block_on(async {
                    let listener = serve::inherited_listener().context("cannot serve")?;
                    serve::serve(listener, options).await.context("cannot serve")
                })?;
            Ok(0)
        }
    }
}

fn carry(arguments: Tunnel) -> anyhow::Result<u8> {
    if let Some(TunnelRequest::RequestCertificate { key }) = arguments.request {
        say(&tunnel::request_certificate(&key)?)?;
        return Ok(0);
    }
    let named = |file: Option<PathBuf>, what: &str| file.with_context(|| format!("`--{what}` is missing"));
    let options = tunnel::Options {
        gateway: arguments.gateway.context("`--gateway` is missing")?,
        name: arguments.name,
        files: tunnel::Files {
            certificate: named(arguments.certificate, "certificate")?,
            key: named(arguments.key, "key")?,
            authority: named(arguments.ca, "ca")?,
        },
        tcp: arguments.tcp,
        dns: arguments.dns,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match runtime.block_on(tunnel::run(options))? {}
}

fn blocked(socket: &Path, json: bool) -> anyhow::Result<u8> {
    let reply = command::ask(socket, &Ask::Blocked, Duration::from_secs(10))?;
    let Some(Reply::Blocked { notices }) = reply else {
        return Err(anyhow!("the shim does not answer"));
    };
    if !json {
        say(&command::describe(&notices))?;
    }
    for notice in notices.iter().filter(|_| json) {
        say(&format!("{}\n", serde_json::to_string(notice)?))?;
    }
    Ok(EXIT_GRANTED)
}

fn secret(socket: &Path, command: Secret) -> anyhow::Result<u8> {
    match command {
        Secret::Ls { json } => {
            let (known, fresh) = credentials::ask(socket)?;
            if json {
                for one in &known {
                    say(&format!("{}\n", serde_json::to_string(one)?))?;
                }
            } else {
                say(&credentials::table(&known))?;
            }
            if !fresh {
                // The list stands; where it is from matters only to people.
                let _told = writeln!(
                    std::io::stderr(),
                    "the supervisor does not answer: this is what it told last"
                );
            }
            Ok(EXIT_GRANTED)
        }
        Secret::Request {
            name,
            target,
            why,
            wait,
        } => {
            let wish = command::credential_wish(name, &target, why).map_err(|text| anyhow!(text))?;
            request(socket, &Ask::RequestAccess(wish), Duration::from_secs(wait))
        }
    }
}

fn request(socket: &Path, ask: &Ask, wait: Duration) -> anyhow::Result<u8> {
    match command::ask(socket, ask, wait)? {
        Some(Reply::Answer { granted, text }) => {
            say(&format!(
                "{}: {text}\n",
                if granted { "granted" } else { "refused" }
            ))?;
            Ok(if granted { EXIT_GRANTED } else { EXIT_REFUSED })
        }
        Some(Reply::Background { pid, log }) => {
            say(&format!(
                "running as process {pid}, output in {log}; `kill {pid}` ends it\n"
            ))?;
            Ok(EXIT_GRANTED)
        }
        Some(Reply::Error { text }) => Err(anyhow!(text)),
        Some(Reply::Blocked { .. } | Reply::Credentials { .. }) => {
            Err(anyhow!("the shim answered another question"))
        }
        None => {
            say("no answer in time; go on without it, or ask again later\n")?;
            Ok(EXIT_NO_ANSWER)
        }
    }
}

fn say(text: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(text.as_bytes())
}
