//! The gateway as a target: the real program, by CONNECT, and by redirected connections as machines make them.
use super::Stage;
use crate::control::Control;
use crate::handover;
use crate::process::{PROXY_CORE, Process};
use crate::target::{Target, Way};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Sessions are bounded in connections: so many go to one of them.
const FOR_ONE_SESSION: usize = 900;
/// Where the script's packet filter sends what goes to synthetic addresses.
const REDIRECTED: u16 = 15001;
/// Where the session's names are answered.
const NAMES: u16 = 15053;

/// By CONNECT, with as many sessions as the idle connections need.
pub(super) async fn by_connect(stage: &Stage, program: &Path) -> anyhow::Result<Target> {
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, 3101));
    let (process, control, _) = run(stage, program, "ours", proxy).await?;
    let mut users = Vec::new();
    for number in 0..=stage.idle / FOR_ONE_SESSION {
        users.push(
            control
                .open(&format!("bench-{number}"), &stage.origin_ca_pem)
                .await?,
        );
    }
    let roots = control.authority("bench-0").await?;
    Target::new(
        "ours",
        Way::Connect(proxy, users),
        Some(process),
        roots.as_bytes(),
    )
}

/// By a listener that was handed over.
pub(super) async fn redirected(stage: &Stage, program: &Path) -> anyhow::Result<Target> {
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, 3102));
    let (process, control, state) = run(stage, program, "ours-redirected", proxy).await?;
    let user = control.open("bench", &stage.origin_ca_pem).await?;
    let names = SocketAddr::from((Ipv4Addr::LOCALHOST, NAMES));
    handover::give(&state, "bench", (Ipv4Addr::UNSPECIFIED, REDIRECTED).into(), names)?;
    let roots = control.authority("bench").await?;
    let way = Way::Redirected(names, user, Mutex::default());
    Target::new("ours-redirected", way, Some(process), roots.as_bytes())
}

async fn run(
    stage: &Stage,
    program: &Path,
    name: &str,
    proxy: SocketAddr,
) -> anyhow::Result<(Process, Control, PathBuf)> {
    let state = tempfile::Builder::new()
        .prefix(name)
        .tempdir_in(stage.folder.path())?
        .keep();
    let mut command = Command::new(program);
    command
        .arg("--state")
        .arg(&state)
        .args(["--log", "warn", "serve", "--dns", "127.0.0.1:53", "--proxy"])
        .arg(proxy.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut process = Process::start(&mut command, PROXY_CORE)?;
    process.listens(proxy).await?;
    let control = Control::new(&state);
    process.listens_at(control.socket()).await?;
    control.store_values().await?;
    Ok((process, control, state))
}
