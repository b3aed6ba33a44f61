//! Load and comparison: an origin, a plain tunnel, and the program that measures what stands between client and origin.
use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;

mod client;
mod clock;
mod control;
mod handover;
mod names;
mod origin;
mod process;
mod report;
mod scenario;
mod setup;
mod target;
mod tunnel;

#[derive(Debug, Parser)]
#[command(name = "sallyport-load")]
enum Arguments {
    /// An origin on loopback, and a name server that leads every name to it
    Origin {
        /// Where HTTP/1.1 over TLS is served
        #[arg(long)]
        http1: SocketAddr,
        /// Where HTTP/2 is offered too
        #[arg(long)]
        http2: SocketAddr,
        /// Where names are answered
        #[arg(long)]
        dns: SocketAddr,
        /// The origin's authority is written here as `origin-ca.pem`
        #[arg(long)]
        folder: PathBuf,
    },
    /// A plain CONNECT tunnel, which reads nothing
    Tunnel {
        /// Where it listens
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Measure, print the table, and write every number down
    Measure(Box<setup::Plan>),
    /// Print the table of what was measured
    Table {
        /// What `measure` wrote
        file: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    anyhow::ensure!(
        installed.is_ok(),
        "a provider of cryptography is installed already"
    );
    match Arguments::parse() {
        Arguments::Origin {
            http1,
            http2,
            dns,
            folder,
        } => one_thread()?.block_on(origin::serve(http1, http2, dns, &folder)),
        Arguments::Tunnel { listen } => several_threads()?.block_on(tunnel::serve(listen)),
        Arguments::Measure(plan) => one_thread()?.block_on(setup::measure(*plan)),
        Arguments::Table { file } => {
            let report: report::Report = serde_json::from_slice(&std::fs::read(file)?)?;
            report.print()
        }
    }
}

/// For load and origin, which share a core.
fn one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// For the tunnel: the same runtime as the gateway's.
fn several_threads() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
