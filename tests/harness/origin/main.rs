//! A small HTTPS origin on loopback: `git http-backend` behind a token, plain files, and an echo; for the examples and tests.
mod cgi;
mod identity;
mod serve;

use clap::Parser;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// Serves Git repositories and files over HTTPS on a loopback address of its own.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder for everything it makes: certificate authority, repositories, token, log.
    #[arg(long)]
    dir: PathBuf,
    /// Names that the certificate is good for.
    #[arg(long, required = true)]
    name: Vec<String>,
    /// Port on the loopback address.
    #[arg(long, default_value_t = 8443)]
    port: u16,
    /// `PATH=FOLDER`: a bare repository at `/PATH`, seeded with one commit of that folder.
    #[arg(long)]
    repository: Vec<String>,
    /// Folder whose files are served under `/files/`.
    #[arg(long)]
    files: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a crypto provider is installed already"))?;
    std::fs::create_dir_all(&arguments.dir)?;
    let identity = identity::Identity::make(&arguments.dir, &arguments.name)?;
    for repository in &arguments.repository {
        cgi::seed(&arguments.dir, repository)?;
    }
    let (listener, address) = bind(arguments.port).await?;
    let origin = serve::Origin::new(&arguments, &identity)?;
    announce(&serde_json::json!({
        "address": address.to_string(),
        "port": arguments.port,
        "ca_file": identity.ca_file,
        "token_file": identity.token_file,
        "log_file": origin.log_file(),
    }))?;
    tokio::select! {
        ended = origin.serve(listener, identity.tls) => ended,
        signalled = tokio::signal::ctrl_c() => Ok(signalled?),
        () = parent_gone() => Ok(()),
    }
}

/// A loopback address that nobody else uses: so that several origins can stand beside each other on one port.
async fn bind(port: u16) -> anyhow::Result<(tokio::net::TcpListener, IpAddr)> {
    let mut last = None;
    for _ in 0..64 {
        let [_, a, b, c] = identity::random::<4>()?;
        let address = IpAddr::V4(Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)));
        match tokio::net::TcpListener::bind((address, port)).await {
            Ok(listener) => return Ok((listener, address)),
            Err(error) => last = Some(error),
        }
    }
    anyhow::bail!("no loopback address has port {port} free: {last:?}")
}

/// One line of JSON on standard output: the sign that it serves.
fn announce(line: &serde_json::Value) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Ends when standard input does: whoever started it holds the other end, so nothing is left behind.
async fn parent_gone() {
    let mut input = tokio::io::stdin();
    let mut rest = tokio::io::sink();
    if tokio::io::copy(&mut input, &mut rest).await.is_err() {
        // Without an input there is nobody to wait for: only a signal ends it then.
        std::future::pending::<()>().await;
    }
}
