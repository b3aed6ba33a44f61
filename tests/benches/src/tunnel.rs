//! A plain CONNECT tunnel: what the cheapest proxy costs that reads nothing. Everything is compared with it.
use anyhow::Context;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};

/// Buffer each way, in bytes.
const BUFFER: usize = 64 * 1024;
/// A head longer than this is none.
const HEAD: usize = 8 * 1024;

/// Serves until the listener fails.
pub(crate) async fn serve(listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        // One that breaks off concerns nobody but its client.
        tokio::spawn(async move { drop(one(stream).await) });
    }
}

async fn one(mut client: TcpStream) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let authority = read_head(&mut client).await?;
    let mut origin = TcpStream::connect(authority).await?;
    origin.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER, BUFFER).await?;
    Ok(())
}

/// The `host:port` of a CONNECT.
async fn read_head(client: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = Vec::with_capacity(1024);
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(head.len() < HEAD, "the head is too long");
        anyhow::ensure!(client.read_buf(&mut head).await? > 0, "the client left");
    }
    let text = std::str::from_utf8(&head)?;
    let rest = text.strip_prefix("CONNECT ").context("not a CONNECT")?;
    Ok(rest.split(' ').next().unwrap_or_default().to_owned())
}
