//! Host names and addresses in the one form in which they are compared.
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Longest name in bytes, without the trailing dot (RFC 1035 section 2.3.4, as text).
const NAME_LIMIT: usize = 253;
/// Longest label in bytes (RFC 1035 section 2.3.4).
const LABEL_LIMIT: usize = 63;
/// Longest text that is looked at at all: every character of a full name, escaped in UTF-8.
const INPUT_LIMIT: usize = 1024;

/// A destination host after normalisation: equal hosts are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name: UTS 46 ASCII form, lower case, without trailing dot.
    Name(Arc<str>),
    /// An address literal, with IPv4-mapped IPv6 unwrapped.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a host name or address: {why}")]
pub struct HostFault {
    /// What was given, control characters escaped.
    pub input: String,
    /// What is wrong with it.
    pub why: String,
}

impl Host {
    /// Reads a host as it stands in CONNECT, `Host`, `:authority` or SNI, without port; IPv6 with or without brackets.
    ///
    /// One trailing dot is dropped; names are mapped by UTS 46; underscores are let through. A name whose last
    /// label is a number must be an IPv4 address in its usual spelling (WHATWG URL, "ends in a number checker").
    pub fn parse(text: &str) -> Result<Self, HostFault> {
        parse(text).map_err(|why| HostFault {
            input: shown(text),
            why,
        })
    }

    /// The name, if this is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }

    /// As it stands in a URL or a `Host` header: IPv6 in brackets.
    pub fn in_url(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(v6)) => format!("[{v6}]"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// The input for messages: what does not print is escaped, and the text is cut.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 120;
    if text.len() <= SHOWN && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars().take(SHOWN) {
        match c {
            '\'' | '"' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}

fn parse(text: &str) -> Result<Host, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > INPUT_LIMIT {
        return Err("it is too long".into());
    }
    if let Some(rest) = text.strip_prefix('[') {
        let inner = rest.strip_suffix(']').ok_or("the closing bracket is missing")?;
        return parse_v6(inner);
    }
    if text.contains(':') {
        return parse_v6(text);
    }
    parse_name(text)
}

fn parse_v6(text: &str) -> Result<Host, String> {
    if text.contains('%') {
        return Err("zone ids are not accepted".into());
    }
    let address: Ipv6Addr = text.parse().map_err(|_| "it is not an IPv6 address".to_owned())?;
    Ok(Host::Address(IpAddr::V6(address).to_canonical()))
}

fn parse_name(text: &str) -> Result<Host, String> {
    let mapped = Uts46::new()
        .to_ascii(
            text.as_bytes(),
            AsciiDenyList::URL,
            Hyphens::Allow,
            DnsLength::Ignore,
        )
        .map_err(|_| "it has characters that no host name has".to_owned())?;
    let name = mapped.strip_suffix('.').unwrap_or(&mapped);
    if name.is_empty() {
        return Err("no name is left after normalisation".into());
    }
    if name.len() > NAME_LIMIT {
        return Err(format!("it is longer than {NAME_LIMIT} bytes"));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("it has an empty label".into());
        }
        if label.len() > LABEL_LIMIT {
            return Err(format!("a label is longer than {LABEL_LIMIT} bytes"));
        }
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
    {
        return Err("it has characters that no host name has".into());
    }
    if ends_in_number(name) {
        let address: Ipv4Addr = name.parse().map_err(|_| {
            "it ends in a number but is not an IPv4 address in dotted decimal form".to_owned()
        })?;
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    Ok(Host::Name(name.into()))
}

/// WHATWG URL, "ends in a number checker": other programs read such names as addresses.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return true;
    }
    last.strip_prefix("0x")
        .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Host {
        Host::Name(text.into())
    }

    #[test]
    fn case_one_trailing_dot_and_unicode_are_one_name() {
        for text in [
            "allowed.test",
            "ALLOWED.test",
            "allowed.test.",
            "Allowed.Test",
            "allowed\u{3002}test",
            "ａllowed.test",
        ] {
            assert_eq!(Host::parse(text), Ok(name("allowed.test")), "{text}");
        }
        assert_eq!(Host::parse("bücher.test"), Ok(name("xn--bcher-kva.test")));
        assert_eq!(Host::parse("BÜCHER.test"), Host::parse("xn--bcher-kva.test"));
        assert_eq!(Host::parse("a_b.test"), Ok(name("a_b.test")));
        assert_eq!(Host::parse("r3---sn-x.test"), Ok(name("r3---sn-x.test")));
    }

    #[test]
    fn malformed_names_are_refused() {
        for text in [
            "",
            ".",
            "..",
            "denied.test..",
            ".allowed.test",
            "a..b",
            "a b.test",
            "a/b",
            "user@host",
            "a%2eb",
            "a\0b",
            "a\n.test",
            "xn--a.test",
            "\u{ad}",
            "a,b.test",
            "*.test",
            "[allowed.test]",
            "[::1",
            "::1]",
            "host:443",
            "[::1]:443",
        ] {
            assert!(
                Host::parse(text).is_err(),
                "{text:?} gave {:?}",
                Host::parse(text)
            );
        }
        assert!(Host::parse(&"a".repeat(64)).is_err());
        assert!(Host::parse(&"a.".repeat(127)).is_ok());
        assert!(
            Host::parse(&format!("{}bb", "a.".repeat(126)))
                .unwrap_err()
                .why
                .contains("253")
        );
        assert!(Host::parse(&"abc.".repeat(64)).is_err());
        assert!(Host::parse(&"x".repeat(100_000)).is_err());
    }

    #[test]
    fn addresses_have_one_spelling() {
        let v4 = |text: &str| Ok(Host::Address(text.parse().unwrap()));
        assert_eq!(Host::parse("127.0.0.1"), v4("127.0.0.1"));
        assert_eq!(Host::parse("169.254.169.254."), v4("169.254.169.254"));
        assert_eq!(Host::parse("[::ffff:8.8.8.8]"), v4("8.8.8.8"));
        assert_eq!(Host::parse("::ffff:a9fe:a9fe"), v4("169.254.169.254"));
        assert_eq!(Host::parse("[::1]"), v4("::1"));
        assert_eq!(Host::parse("１27.0.0.1"), v4("127.0.0.1"));
        for text in [
            "127.1",
            "0177.0.0.1",
            "0x7f000001",
            "2130706433",
            "0",
            "0x7f.1",
            "1.2.3.4.5",
            "256.1.1.1",
            "169.254.169.254..",
            "foo.0x",
            "foo.1",
            "[fe80::1%25eth0]",
            "fe80::1%eth0",
            "01.2.3.4",
            "1.2.3.0x4",
            "127.0.0.1.5",
        ] {
            assert!(Host::parse(text).is_err(), "{text} gave {:?}", Host::parse(text));
        }
    }

    #[test]
    fn the_message_names_the_input_without_control_characters() {
        let fault = Host::parse("a\u{1b}[31m.test").unwrap_err();
        assert!(
            fault
                .to_string()
                .starts_with("`a\\u{1b}[31m.test` is not a host name or address"),
            "{fault}"
        );
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer_and_the_canonical_form_is_stable(text in ".{0,80}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
                prop_assert_eq!(Host::parse(&host.in_url()), Ok(host));
            }
        }

        #[test]
        fn likely_texts_have_a_stable_form(text in "[a-zA-Z0-9._:\\[\\]%xX-]{0,30}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
            }
        }
    }
}
