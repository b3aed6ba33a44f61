//! Refusals in the words of protocols that are not HTTP, where the client prints them: ssh and PostgreSQL.
use crate::stream::Stream;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Requests for TLS and for GSSAPI, which come before PostgreSQL's start-up message (its protocol's section "Message Formats").
const ENCRYPTION: [[u8; 8]; 2] = [[0, 0, 0, 8, 4, 210, 22, 47], [0, 0, 0, 8, 4, 210, 22, 48]];
/// The text of a farewell is no longer.
const LONGEST: usize = 1000;

/// Tells a client `why`, if its first bytes say that it has ears for it. `id` is the decision's; `limit` is for what the
/// client must say first. The caller closes.
pub async fn tell(stream: &mut Stream, why: &str, id: &str, limit: Duration) {
    let text = format!("sallyport: {why} (decision {id})");
    let told = async {
        match stream.seen() {
            [b'S', b'S', b'H', b'-', ..] => ssh(stream, &text).await,
            [0, 0, 0, 8, 4, 210, 22, 47 | 48, ..] | [0, 0, _, _, 0, 3, ..] => postgres(stream, &text).await,
            _ => Ok(()),
        }
    };
    match timeout(limit, told).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a refusal did not reach its client"),
        Err(_) => tracing::debug!("a client did not wait for its refusal"),
    }
}

/// A message that the client prints (RFC 4253 sections 4.2, 6 and 11.1).
async fn ssh(stream: &mut Stream, text: &str) -> io::Result<()> {
    let mut answer = b"SSH-2.0-sallyport\r\n".to_vec();
    answer.extend(ssh_disconnect(text));
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

/// SSH_MSG_DISCONNECT with reason HOST_NOT_ALLOWED_TO_CONNECT, before keys are exchanged.
fn ssh_disconnect(text: &str) -> Vec<u8> {
    let text = printable(text);
    let mut payload = vec![1, 0, 0, 0, 1];
    for field in [text.as_slice(), b"en"] {
        payload.extend((field.len() as u32).to_be_bytes());
        payload.extend(field);
    }
    // Length, padding length, payload and padding fill blocks of 8 bytes; at least 4 bytes are padding.
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    let mut packet = ((1 + payload.len() + padding) as u32).to_be_bytes().to_vec();
    packet.push(padding as u8);
    packet.extend(payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

/// An error in answer to the start-up message; encryption is declined first, since no leaf is made for it.
async fn postgres(stream: &mut Stream, text: &str) -> io::Result<()> {
    // Whole pieces are read: what is left unread would reset the connection before the client has read its answer.
    let mut piece = vec![0; 4096];
    for _ in 0..=ENCRYPTION.len() {
        let count = stream.read(&mut piece).await?;
        if !ENCRYPTION.iter().any(|request| piece[..count] == *request) {
            break;
        }
        stream.write_all(b"N").await?;
    }
    stream.write_all(&postgres_error(text)).await?;
    stream.shutdown().await
}

/// `ErrorResponse`: fatal, invalid authorization specification.
fn postgres_error(text: &str) -> Vec<u8> {
    let mut fields = b"SFATAL\0VFATAL\0C28000\0M".to_vec();
    fields.extend(printable(text));
    fields.extend([0, 0]);
    let mut message = vec![b'E'];
    message.extend((4 + fields.len() as u32).to_be_bytes());
    message.extend(fields);
    message
}

fn printable(text: &str) -> Vec<u8> {
    text.bytes()
        .filter(|byte| (0x20..0x7f).contains(byte))
        .take(LONGEST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssh_disconnect_fills_whole_blocks() {
        for length in 0..40 {
            let packet = ssh_disconnect(&"x".repeat(length));
            assert_eq!(packet.len() % 8, 0, "text of {length}");
            let announced = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]) as usize;
            assert_eq!(announced, packet.len() - 4);
            assert!(packet[4] >= 4);
        }
    }

    #[tokio::test]
    async fn a_database_client_is_told_after_its_start_up_message() {
        let (mut client, server) = tokio::io::duplex(4096);
        let mut stream = Stream::new(server);
        client.write_all(&ENCRYPTION[0]).await.unwrap();
        assert!(stream.look_further().await.unwrap());
        let talking = async {
            let mut word = [0; 1];
            client.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"N");
            client
                .write_all(b"\0\0\0\x11\0\x03\0\0user\0ada\0\0")
                .await
                .unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let telling = async {
            let mut stream = stream;
            tell(
                &mut stream,
                "no rule allows it",
                "some-id",
                Duration::from_secs(10),
            )
            .await;
        };
        let (answer, ()) = tokio::join!(talking, telling);
        let text = b"sallyport: no rule allows it (decision some-id)\0\0";
        assert!(
            answer.starts_with(b"E\0\0\0") && answer.ends_with(text),
            "{answer:?}"
        );
        assert_eq!(answer.len() - 1, usize::from(answer[4]));
    }
}
