//! Which hosts a rule or a credential names: a name, the names under a domain, addresses, or any.
use crate::Host;
use crate::host::shown;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// One entry of a `host` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// `*`: every name and address.
    Any,
    /// A name, exactly.
    Name(String),
    /// `*.domain`: one label or more under it, never itself.
    Under(String),
    /// An address or a range; matches only addresses.
    Net(IpNet),
}

/// Why a text is no pattern, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternFault {
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

impl PatternFault {
    fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            hint: Some(hint.into()),
        }
    }
}

impl HostPattern {
    /// Reads a pattern in the policy's syntax.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternFault> {
        let input = shown(text);
        if text == "*" {
            return Ok(Self::Any);
        }
        if text == "**" {
            return Err(PatternFault::new("`**` is not a host", "write `*` for any host"));
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', ':']).next().unwrap_or_default();
            return Err(PatternFault::new(
                format!("`{input}` is a URL, not a host"),
                format!("write `{}`; ports and paths have their own fields", shown(host)),
            ));
        }
        if let Some((address, _)) = text.split_once('/') {
            return parse_net(text, address);
        }
        if let Some(domain) = text.strip_prefix("*.") {
            return Self::parse_under(domain, &input);
        }
        if text.contains('*') {
            let rest = text
                .rsplit('*')
                .next()
                .unwrap_or_default()
                .trim_start_matches('.');
            let hint = match text.starts_with('*') || rest.contains('.') {
                true => format!("did you mean `*.{}`?", shown(rest)),
                false => format!(
                    "did you mean `*.{}`?",
                    shown(text.split_once('.').map_or(rest, |(_, domain)| domain))
                ),
            };
            return Err(PatternFault::new(
                format!("`{input}` has a `*` that is not a whole first label"),
                hint,
            ));
        }
        if let Some(domain) = text
            .strip_prefix('.')
            .filter(|domain| Host::parse(domain).is_ok())
        {
            return Err(PatternFault::new(
                format!("`{input}` begins with a dot and can never match"),
                format!("did you mean `*.{}`?", shown(domain)),
            ));
        }
        match Host::parse(text) {
            Ok(Host::Name(name)) => Ok(Self::Name(name.to_string())),
            Ok(Host::Address(address)) => Ok(Self::Net(IpNet::from(address))),
            Err(fault) => {
                let hint = text
                    .rsplit_once(':')
                    .filter(|(host, port)| port.parse::<u16>().is_ok() && Host::parse(host).is_ok());
                Err(PatternFault {
                    why: fault.to_string(),
                    hint: hint.map(|(host, port)| format!("write `{host}`, and `port: {port}`")),
                })
            }
        }
    }

    fn parse_under(domain: &str, input: &str) -> Result<Self, PatternFault> {
        if domain.contains('*') {
            return Err(PatternFault::new(
                format!("`{input}` has more than one `*`"),
                format!(
                    "`*.{}` matches any number of labels",
                    shown(domain.trim_start_matches(['*', '.']))
                ),
            ));
        }
        match Host::parse(domain) {
            Ok(Host::Name(name)) => Ok(Self::Under(name.to_string())),
            Ok(Host::Address(_)) => Err(PatternFault::new(
                format!("`{input}` puts a `*` before an address"),
                "write a range such as `10.0.0.0/8`",
            )),
            Err(fault) => Err(PatternFault {
                why: fault.to_string(),
                hint: None,
            }),
        }
    }

    /// Whether this host is named.
    pub(crate) fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Name(own), Host::Name(name)) => **own == **name,
            (Self::Under(domain), Host::Name(name)) => is_under(name, domain),
            (Self::Net(net), Host::Address(address)) => net.contains(address),
            _ => false,
        }
    }

    /// Whether some host is named by both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Name(name), Self::Under(domain)) | (Self::Under(domain), Self::Name(name)) => {
                is_under(name, domain)
            }
            (Self::Under(a), Self::Under(b)) => a == b || is_under(a, b) || is_under(b, a),
            (Self::Net(a), Self::Net(b)) => a.contains(b) || b.contains(a),
            _ => false,
        }
    }

    /// Whether every host that `other` names is named here too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Under(domain), Self::Name(name)) => is_under(name, domain),
            (Self::Under(a), Self::Under(b)) => a == b || is_under(b, a),
            (Self::Net(a), Self::Net(b)) => a.contains(b),
            _ => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Name(name) => f.write_str(name),
            Self::Under(domain) => write!(f, "*.{domain}"),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "{}", net.addr()),
            Self::Net(net) => write!(f, "{net}"),
        }
    }
}

/// Strictly under, at a label boundary.
fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

fn parse_net(text: &str, address: &str) -> Result<HostPattern, PatternFault> {
    let input = shown(text);
    let Ok(net) = text.parse::<IpNet>() else {
        return Err(PatternFault::new(
            format!("`{input}` is not an address range"),
            "a range is written `203.0.113.0/24` or `2001:db8::/32`",
        ));
    };
    if net.trunc() != net {
        return Err(PatternFault::new(
            format!("`{input}` has bits set after its prefix"),
            format!("did you mean `{}` or `{}`?", net.trunc(), shown(address)),
        ));
    }
    if let IpAddr::V6(v6) = net.addr()
        && v6.to_ipv4_mapped().is_some()
    {
        return Err(PatternFault::new(
            format!("`{input}` is IPv4 inside IPv6 and can never match"),
            "write the IPv4 range",
        ));
    }
    Ok(HostPattern::Net(net))
}
