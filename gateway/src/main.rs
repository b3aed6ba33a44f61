//! The program `sallyport-gateway`: arguments, log, signals, exit codes (0, 1 failure, 2 usage, 75 try again later).
use anyhow::Context;
use clap::Parser;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use sallyport_gateway::audit::records;
use sallyport_gateway::config::{Arguments, CaCommand, Command, Config, SecretCommand};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::log;
use sallyport_gateway::secret::locked;
use sallyport_gateway::secret::source::without_line_end;
use sallyport_gateway::secret::store::{Cost, Keys, NewKey, Passphrase};
use sallyport_gateway::secret::{LONGEST_VALUE, SecretStore, Value};
use sallyport_gateway::start::{self, Serve, StartError};
use sallyport_gateway::telemetry::Telemetry;
use sallyport_gateway::terminal;
use sallyport_gateway::tls::authorities;
use sallyport_gateway::upstream;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;
use zeroize::Zeroizing;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Usage.
const USAGE: u8 = 2;
/// Trying again later may help (sysexits.h, EX_TEMPFAIL).
const LATER: u8 = 75;

fn main() -> ExitCode {
    sallyport_gateway::crypto::install();
    let config = match Arguments::parse().resolve() {
        Ok(config) => config,
        Err(error) => return complain(&error.into(), USAGE),
    };
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let passing = error
                .downcast_ref::<StartError>()
                .is_some_and(StartError::is_passing);
            complain(&error, if passing { LATER } else { 1 })
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    keep_memory_inside()?;
    match config.command {
        Command::Serve(serve) => {
            // Started by the keeper it stands in the background, where nobody may be asked.
            let keys = match std::io::stdin().is_terminal() {
                true => unlocking(&config.state, config.keys)?,
                false => config.keys,
            };
            run_serve(&config.state, Serve { keys, ..*serve }, &config.log)
        }
        Command::Secret(command) => {
            start::prepare(&config.state)?;
            let keys = unlocking(&config.state, config.keys)?;
            secret(&config.state, keys, command)
        }
        Command::Ca(command) => {
            start::prepare(&config.state)?;
            authority(&config.state, &command)
        }
        Command::Records(range) => tell_records(&config.state, &range),
        Command::VerifyLog => {
            let verified = sallyport_gateway::audit::verify(&config.state)?;
            say(&format!(
                "{} records, none altered; head {}",
                verified.records, verified.head
            ))
        }
    }
}

fn tell_records(state: &Path, range: &records::Range) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::with_capacity(256 * 1024, std::io::stdout().lock());
    match records::write(state, range, &mut out) {
        // Whoever reads wanted no more.
        Err(records::RecordsError::Out(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        told => Ok(told?),
    }
}

fn run_serve(state: &Path, serve: Serve, log: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime does not start")?;
    let telemetry = match &serve.spans {
        None => None,
        Some(export) => {
            // The collector is checked with the authorities of the start, whatever a reload finds.
            let roots = upstream::roots(&serve.upstream_roots_pem)?;
            let (limit, runtime) = (Limits::default().spans, runtime.handle().clone());
            Some(Telemetry::start(export, roots, limit, runtime)?)
        }
    };
    // Values of the environment are held before there is a log.
    let unlocked = locked::fault();
    start_log(log, telemetry.as_ref())?;
    if let Some(why) = unlocked {
        tracing::warn!("{why}");
    }
    let served = runtime.block_on(start::serve(state, serve));
    if let Some(telemetry) = telemetry {
        telemetry.finish();
    }
    Ok(served?)
}

/// What opens the store; where it wants a passphrase that nobody gave, the terminal asks.
fn unlocking(state: &Path, keys: Keys) -> anyhow::Result<Keys> {
    if keys.passphrase.is_some() || !SecretStore::needs_passphrase(state)? {
        return Ok(keys);
    }
    let typed = terminal::ask("passphrase of the store: ").context("the terminal cannot be asked")?;
    Ok(Keys {
        passphrase: typed.map(|text| Passphrase::given(&text)),
        ..keys
    })
}

/// The value that comes on standard input.
fn given() -> anyhow::Result<Value> {
    let mut input = Zeroizing::new(Vec::with_capacity(LONGEST_VALUE + 3));
    std::io::stdin()
        .take(LONGEST_VALUE as u64 + 3)
        .read_to_end(&mut input)
        .context("the value cannot be read from standard input")?;
    Ok(Value::new(without_line_end(&input).to_vec()))
}

/// The passphrase for a store from now on: from a file, or typed twice.
fn new_passphrase(file: Option<&Path>) -> anyhow::Result<Passphrase> {
    if let Some(file) = file {
        let text = std::fs::read(file).map(Zeroizing::new);
        let text = text.with_context(|| format!("`{}` cannot be read", file.display()))?;
        return Ok(Passphrase::new(&text)?);
    }
    let ask = |prompt: &str| -> anyhow::Result<Passphrase> {
        let typed = terminal::ask(prompt)?;
        let typed = typed.context("there is no terminal to ask: use `--new-passphrase-file FILE`")?;
        Ok(Passphrase::new(&typed)?)
    };
    let (first, again) = (ask("new passphrase: ")?, ask("again: ")?);
    anyhow::ensure!(
        first.is_same(&again),
        "the two are not the same; nothing was changed"
    );
    Ok(first)
}

fn secret(state: &Path, keys: Keys, command: SecretCommand) -> anyhow::Result<()> {
    let store = SecretStore::open_with(state, keys)?;
    match command {
        SecretCommand::Set { name } => store.set(&name, given()?)?,
        SecretCommand::Rotate { name } => {
            store.rotate(&name, given()?)?;
            say(&format!(
                "`{name}` has another value: runs use it from their next request on, and the one before is still taken out of answers"
            ))?;
        }
        SecretCommand::Rekey {
            passphrase,
            new_passphrase_file,
        } => {
            let by_passphrase = passphrase || new_passphrase_file.is_some();
            store.rekey(match by_passphrase {
                true => NewKey::Passphrase(new_passphrase(new_passphrase_file.as_deref())?, Cost::default()),
                false => NewKey::File,
            })?;
            say(&format!("the store opens with {}", store.key_in_words()?))?;
            if by_passphrase {
                say(
                    "a gateway that runs needs the passphrase at its next start, and until then reads no value anew",
                )?;
            }
            return Ok(());
        }
        SecretCommand::List => {
            for name in store.names()? {
                say(&name)?;
            }
            return Ok(());
        }
        SecretCommand::Rm { name } => {
            anyhow::ensure!(
                store.remove(&name)?,
                "there is no secret `{}`",
                name.escape_debug()
            );
        }
    }
    start::tell_running(state)?;
    Ok(())
}

fn authority(state: &Path, command: &CaCommand) -> anyhow::Result<()> {
    let folder = state.join(start::CA);
    match command {
        CaCommand::Rotate { ca_permit } => {
            let fingerprint = authorities::rotate(&folder, ca_permit)?;
            say(&format!(
                "sessions to come trust {fingerprint}; those there are stay with the one that their machines trust"
            ))?;
        }
        CaCommand::Retire => authorities::retire(&folder)?,
    }
    start::tell_running(state)?;
    Ok(())
}

/// Values lie in this process's memory: it leaves no core file, and other processes of the same user cannot read it.
fn keep_memory_inside() -> anyhow::Result<()> {
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
    .context("core files cannot be switched off")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("reading of memory by other processes cannot be switched off")
}

/// Text for people, JSON for programs; always on standard error. Spans go to the collector, where there is one.
fn start_log(filter: &str, telemetry: Option<&Telemetry>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).context("`--log` is no filter")?;
    let form = match std::io::stderr().is_terminal() {
        true => log::Form::Text,
        false => log::Form::Json,
    };
    log::subscriber(filter, form, std::io::stderr, telemetry)
        .try_init()
        .context("the log cannot be started")
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output")
}

fn complain(error: &anyhow::Error, code: u8) -> ExitCode {
    // Without standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "sallyport-gateway: {error:#}");
    ExitCode::from(code)
}
