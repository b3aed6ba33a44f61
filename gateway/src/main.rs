//! The program `sallyport-gateway`: arguments, log, signals, exit codes (0, 1 failure, 2 usage, 75 try again later).
use anyhow::Context;
use clap::Parser;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use sallyport_gateway::audit::records;
use sallyport_gateway::config::{Arguments, CaCommand, Command, Config, SecretCommand};
use sallyport_gateway::limits::Limits;
use sallyport_gateway::log;
use sallyport_gateway::secret::source::without_line_end;
use sallyport_gateway::secret::{LONGEST_VALUE, SecretStore, Value};
use sallyport_gateway::start::{self, Serve, StartError};
use sallyport_gateway::telemetry::Telemetry;
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
        Command::Serve(serve) => run_serve(&config.state, *serve, &config.log),
        Command::Secret(command) => {
            start::prepare(&config.state)?;
            secret(&config.state, command)
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
    start_log(log, telemetry.as_ref())?;
    let served = runtime.block_on(start::serve(state, serve));
    if let Some(telemetry) = telemetry {
        telemetry.finish();
    }
    Ok(served?)
}

fn secret(state: &Path, command: SecretCommand) -> anyhow::Result<()> {
    let store = SecretStore::open(state)?;
    match command {
        SecretCommand::Set { name } => {
            let mut input = Zeroizing::new(Vec::with_capacity(LONGEST_VALUE + 3));
            std::io::stdin()
                .take(LONGEST_VALUE as u64 + 3)
                .read_to_end(&mut input)
                .context("the value cannot be read from standard input")?;
            store.set(&name, Value::new(without_line_end(&input).to_vec()))?;
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
