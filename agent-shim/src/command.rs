//! The agent's own command line: what was blocked, asking for access, keeping a job running.
use crate::local::{Ask, Reply, Wish};
use crate::wire::BlockedNotice;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Exit code: granted, or done.
pub const EXIT_GRANTED: u8 = 0;
/// Exit code: refused, or failed.
pub const EXIT_REFUSED: u8 = 1;
/// Exit code: no answer in time (`EX_TEMPFAIL` of sysexits).
pub const EXIT_NO_ANSWER: u8 = 75;

/// Asks the serving shim; `None` if it does not answer within `wait`.
///
/// # Errors
/// The shim cannot be reached, or answers nonsense.
pub fn ask(socket: &Path, question: &Ask, wait: Duration) -> io::Result<Option<Reply>> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        let what = format!("the shim cannot be reached at `{}`: {error}", socket.display());
        io::Error::new(error.kind(), what)
    })?;
    stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    match BufReader::new(&stream).read_line(&mut answer) {
        Ok(_) => Ok(Some(serde_json::from_str(&answer)?)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads `HOST`, `HOST:PORT`, `[V6]:PORT` or a bare IPv6 address; the port is 443 if none is named.
///
/// # Errors
/// Sentence saying what is wrong.
pub fn parse_target(target: &str) -> Result<(String, u16), String> {
    if target.contains(['/', '@', ' ']) {
        return Err(format!(
            "`{target}` is not a host: write it as `example.com` or `example.com:8443`"
        ));
    }
    let (host, port) = match target.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (target, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(format!(
            "`{target}` is not a host: write it as `example.com` or `example.com:8443`"
        ));
    }
    let port = match port {
        None => 443,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("`{port}` is not a port: write a number from 1 to 65535")),
        },
    };
    Ok((host.to_owned(), port))
}

/// The wish of a `request-access` command.
///
/// # Errors
/// Sentence saying what is wrong with it.
pub fn wish(target: &str, method: Option<String>, path: Option<String>, why: String) -> Result<Wish, String> {
    let (host, port) = parse_target(target)?;
    reasoned(&why)?;
    if path.as_deref().is_some_and(|path| !path.starts_with('/')) {
        return Err("the path begins with `/`".to_owned());
    }
    Ok(Wish {
        host,
        port,
        method: method.map(|method| method.to_ascii_uppercase()),
        path,
        credential: None,
        why,
    })
}

/// The wish of a `secret request` command.
///
/// # Errors
/// Sentence saying what is wrong with it.
pub fn credential_wish(name: String, target: &str, why: String) -> Result<Wish, String> {
    let (host, port) = parse_target(target)?;
    reasoned(&why)?;
    if name.trim().is_empty() {
        return Err("name the credential; `sallyport-shim secret ls` tells which there are".to_owned());
    }
    Ok(Wish {
        host,
        port,
        method: None,
        path: None,
        credential: Some(name),
        why,
    })
}

fn reasoned(why: &str) -> Result<(), String> {
    match why.trim() {
        "" => Err("say why with `--why`: a person may read it".to_owned()),
        _ => Ok(()),
    }
}

/// Refusals for people.
pub fn describe(notices: &[BlockedNotice]) -> String {
    if notices.is_empty() {
        return "nothing was blocked\n".to_owned();
    }
    let mut text = String::new();
    for notice in notices {
        let BlockedNotice {
            id,
            what,
            rule,
            reason,
            remedy,
            ..
        } = notice;
        // Writing to a string cannot fail.
        let _written = writeln!(
            text,
            "{what}\n  rule:   {rule}\n  reason: {reason}\n  remedy: {remedy}\n  id:     {id}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{describe, parse_target, wish};

    #[test]
    fn a_target_is_a_host_with_or_without_port() {
        assert_eq!(parse_target("docs.rs"), Ok(("docs.rs".to_owned(), 443)));
        assert_eq!(parse_target("docs.rs:8443"), Ok(("docs.rs".to_owned(), 8443)));
        assert_eq!(
            parse_target("[2001:db8::1]:22"),
            Ok(("2001:db8::1".to_owned(), 22))
        );
        assert_eq!(parse_target("2001:db8::1"), Ok(("2001:db8::1".to_owned(), 443)));
    }

    #[test]
    fn a_url_a_bad_port_and_nothing_are_refused_with_a_hint() {
        for bad in [
            "https://docs.rs/x",
            "docs.rs:0",
            "docs.rs:http",
            "",
            ":443",
            "a b",
        ] {
            assert!(parse_target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wish_needs_a_reason_and_a_rooted_path() {
        assert!(wish("docs.rs", None, None, " ".to_owned()).is_err());
        assert!(wish("docs.rs", None, Some("x".to_owned()), "docs".to_owned()).is_err());
        let wish = wish("docs.rs", Some("get".to_owned()), None, "docs".to_owned()).unwrap();
        assert_eq!(wish.method.as_deref(), Some("GET"));
    }

    #[test]
    fn no_refusals_are_said_in_words() {
        assert_eq!(describe(&[]), "nothing was blocked\n");
    }
}
