//! Keys by which hosts are known over ssh, as they stand in OpenSSH's `known_hosts` (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").
use crate::Destination;
use crate::host::shown;
use crate::host_pattern::{HostPattern, PatternFault};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The port of names without one.
const PORT: u16 = 22;
/// Kinds of keys that are looked at, with the length of each in bytes (RFC 8709 section 4, RFC 5656 section 3.1).
const KINDS: &[(&str, usize)] = &[
    ("ssh-ed25519", 51),
    ("ecdsa-sha2-nistp256", 104),
    ("ecdsa-sha2-nistp384", 136),
    ("ecdsa-sha2-nistp521", 172),
];

/// One line: a key, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHost {
    names: Vec<(HostPattern, u16)>,
    key: String,
}

impl KnownHost {
    /// Whether it says something of this host and port.
    pub fn names(&self, destination: &Destination) -> bool {
        self.names
            .iter()
            .any(|(host, port)| *port == destination.port && host.matches(&destination.host))
    }

    /// Kind of key and key, as in a file of public keys: `ssh-ed25519 AAAA...`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it says something of a host that a rule means, on one of its ports; no ports are all.
    pub(crate) fn meets(&self, host: &HostPattern, ports: &[(u16, u16)]) -> bool {
        let on =
            |port: u16| ports.is_empty() || ports.iter().any(|(low, high)| (*low..=*high).contains(&port));
        self.names
            .iter()
            .any(|(own, port)| on(*port) && own.overlaps(host))
    }

    /// Reads a line: names between commas, kind of key, key; a comment may follow.
    pub(crate) fn parse(line: &str) -> Result<Self, PatternFault> {
        let mut words = line.split_ascii_whitespace();
        let (Some(names), Some(kind), Some(key)) = (words.next(), words.next(), words.next()) else {
            return Err(fault(
                format!("`{}` is no line of known hosts", shown(line)),
                "write `HOST KEYTYPE BASE64`, as `ssh-keyscan -t ed25519 HOST` prints it",
            ));
        };
        if names.starts_with('@') {
            return Err(fault(
                format!("the marker `{}` is not read here", shown(names)),
                "write the host's own key, as `ssh-keyscan -t ed25519 HOST` prints it",
            ));
        }
        check_key(kind, key)?;
        Ok(Self {
            names: names.split(',').map(read_name).collect::<Result<_, _>>()?,
            key: format!("{kind} {key}"),
        })
    }
}

/// `host`, `*.domain`, `[host]:port`.
fn read_name(text: &str) -> Result<(HostPattern, u16), PatternFault> {
    if text.starts_with('|') {
        return Err(fault(
            "a hashed name cannot be read by people".to_owned(),
            "write the host's name, as `ssh-keyscan HOST` without `-H` prints it",
        ));
    }
    if text.starts_with('!') {
        return Err(fault(
            format!("`{}` takes a host out, which is not read here", shown(text)),
            "name the hosts that have the key",
        ));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((host, port)) => {
            let number = crate::request::parse_port(port).map_err(|why| fault(why, "write `[HOST]:PORT`"))?;
            (host, number)
        }
        None => (text, PORT),
    };
    match HostPattern::parse(host)? {
        HostPattern::Any => Err(fault(
            "`*` would make one key good for every host".to_owned(),
            "name the hosts that have the key",
        )),
        pattern => Ok((pattern, port)),
    }
}

/// The key's own beginning repeats its kind (RFC 4253 section 6.6).
fn check_key(kind: &str, key: &str) -> Result<(), PatternFault> {
    let Some((_, length)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return Err(fault(
            format!("keys of kind `{}` are not looked at", shown(kind)),
            "most hosts have another: `ssh-keyscan -t ed25519,ecdsa HOST` prints it",
        ));
    };
    let decoded = STANDARD.decode(key).unwrap_or_default();
    let begins = decoded.split_first_chunk::<4>().is_some_and(|(named, rest)| {
        usize::from(named[3]) == kind.len() && rest.starts_with(kind.as_bytes())
    });
    if decoded.len() == *length && begins {
        return Ok(());
    }
    Err(fault(
        format!("what follows `{kind}` is no key of this kind"),
        "copy the whole line that `ssh-keyscan` prints",
    ))
}

fn fault(why: String, hint: &str) -> PatternFault {
    PatternFault {
        why,
        hint: Some(hint.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIDnBUuVWu4RvNqMqRmAv1uPXYJLjgPPnXmw3KMg4R0o";

    fn names(line: &str, destination: &str) -> bool {
        let known = KnownHost::parse(&format!("{line} {KEY} a comment")).unwrap();
        assert_eq!(known.key(), KEY);
        known.names(&Destination::parse(destination).unwrap())
    }

    #[test]
    fn a_name_without_a_port_means_that_of_ssh() {
        assert!(names("git.test", "git.test:22"));
        assert!(names("other.test,GIT.test", "git.test:22"));
        assert!(!names("git.test", "git.test:2222"));
        assert!(names("[git.test]:2222", "git.test:2222"));
        assert!(!names("[git.test]:2222", "git.test:22"));
        assert!(names("*.git.test", "a.b.git.test:22"));
        assert!(!names("*.git.test", "git.test:22"));
        assert!(names("[2001:db8::1]:22", "[2001:db8::1]:22"));
        assert!(names("192.0.2.7", "192.0.2.7:22"));
    }

    #[test]
    fn what_would_be_read_in_another_way_is_refused_with_a_hint() {
        for line in [
            String::new(),
            "git.test".into(),
            format!("@cert-authority *.test {KEY}"),
            format!("|1|abc|def {KEY}"),
            format!("!git.test,*.test {KEY}"),
            format!("* {KEY}"),
            format!("[git.test]:0 {KEY}"),
            "git.test ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQ==".into(),
            "git.test ssh-ed25519 AAAA".into(),
            "git.test ecdsa-sha2-nistp256 AAAAC3NzaC1lZDI1NTE5AAAAIIDnBUuVWu4RvNqMqRmAv1uPXYJLjgPPnXmw3KMg4R0o".into(),
        ] {
            let fault = KnownHost::parse(&line).unwrap_err();
            assert!(fault.hint.is_some(), "{line}: {}", fault.why);
        }
    }
}
