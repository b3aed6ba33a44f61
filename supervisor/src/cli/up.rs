//! `sallyport up`: gateway, engine and web in one command, until Ctrl-C.
use super::screen::Style;
use super::{Failure, Screen};
use crate::model::ModelConfig;
use crate::state_dir::StateDir;
use crate::up::{Options, Up, programs};
use secrecy::SecretString;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal as listen};

/// Exit code after Ctrl-C, as shells count it.
pub(super) const INTERRUPTED: u8 = 130;

/// Where the page is, unless told otherwise.
const USUAL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7420));

/// Where a supervisor is put.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// Address of the web page; port 0 takes any [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// PEM file of authorities that the gateway trusts besides the system's
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    let up = start(state, &args.place).await?;
    Screen::stdout().line("stop it with Ctrl-C");
    signal().await?;
    let screen = Screen::stdout();
    screen.line("stopping; Ctrl-C again stops at once");
    let left = up.unfinished().await;
    tokio::select! {
        () = up.stop() => {}
        second = signal() => {
            second?;
            return Err(Failure::with_code(INTERRUPTED, "stopped at once; the gateway may still be running, and the next `sallyport up` goes on with it"));
        }
    }
    if left > 0 {
        let runs = if left == 1 {
            "1 run stands still with its machine".to_owned()
        } else {
            format!("{left} runs stand still with their machines")
        };
        screen.line(&format!(
            "{runs}; `sallyport up` goes on with what is in {}",
            state.root().display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

impl Place {
    /// For a supervisor that nobody asked for by name: where the usual port is taken, any other will do.
    pub(super) fn or_any(&self) -> Self {
        let usual_is_free = || std::net::TcpListener::bind(USUAL).is_ok();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listen = self.listen.or_else(|| (!usual_is_free()).then_some(any));
        Self {
            listen,
            upstream_ca: self.upstream_ca.clone(),
        }
    }
}

/// Starts a supervisor and prints the page's address.
pub(super) async fn start(state: &StateDir, place: &Place) -> Result<Up, Failure> {
    programs::refresh().await?;
    let upstream_ca = match &place.upstream_ca {
        Some(path) => Some(readable(path)?),
        None => None,
    };
    let options = Options {
        state: state.clone(),
        listen: place.listen.unwrap_or(USUAL),
        upstream_ca,
        models: models(),
    };
    let up = Up::start(options).await?;
    let screen = Screen::stdout();
    screen.line(&format!(
        "{} {}",
        screen.styled(Style::Bold, "Sallyport is up:"),
        up.login_address()?
    ));
    screen.line(&screen.styled(
        Style::Dim,
        "the address logs one browser in, once; `sallyport login` prints another",
    ));
    Ok(up)
}

fn readable(path: &std::path::Path) -> Result<PathBuf, Failure> {
    let wrong = |error: std::io::Error| Failure::new(format!("--upstream-ca `{}`: {error}", path.display()));
    std::fs::File::open(path).map_err(wrong)?;
    std::path::absolute(path).map_err(wrong)
}

/// Keys and base URLs of models, from the environment.
fn models() -> ModelConfig {
    let mut config = ModelConfig::default();
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    for (provider, key, base) in [
        (&mut config.anthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        (&mut config.openai, "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ] {
        provider.key = set(key).map(SecretString::from);
        if let Some(url) = set(base) {
            provider.base_url = url;
        }
    }
    config
}

/// Waits for Ctrl-C or SIGTERM.
pub(super) async fn signal() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("signals cannot be waited for: {error}"));
    let mut interrupt = listen(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = listen(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
