//! The package registries that the host's own pip and npm are configured with, as policy and variables.
//!
//! Names and addresses of registries come from the clients alone. A user name or password in such an address is
//! not taken over: it would reach the machine.
use sallyport_policy::PolicyText;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use url::Url;

/// Name under which the generated policy is included.
const PRESET: &str = "preset:registries";
/// How long a client may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// What pip uses where nothing is configured, told by pip itself: the index and the host of its files.
const PIP_DEFAULTS: &str = "from pip._internal.models.index import PyPI; \
    print(PyPI.simple_url); print('https://' + PyPI.file_storage_domain + '/')";

/// Why the registries cannot be told.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistriesError {
    /// There is nobody to ask.
    #[error(
        "the registries are those of this host's own pip and npm, and neither is installed: install one, or do without `registries`"
    )]
    NoClient,
    /// A client's setting is not usable.
    #[error("{client} is configured with a registry that is no http or https address")]
    NoAddress {
        /// Client.
        client: &'static str,
    },
    /// A client cannot be asked.
    #[error("`{command}` cannot be asked for its registry: {why}")]
    Client {
        /// Program and arguments.
        command: String,
        /// Why.
        why: String,
    },
}

/// The registries of this host, asked for once.
#[derive(Debug, Default)]
pub struct Registries {
    known: tokio::sync::OnceCell<HostRegistries>,
}

impl Registries {
    /// Asks the clients the first time.
    pub async fn get(&self) -> Result<&HostRegistries, RegistriesError> {
        self.known.get_or_try_init(ask).await
    }
}

/// What a machine needs to install packages as its host does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRegistries {
    /// Rules that allow reading from the registries.
    pub policy: PolicyText,
    /// Variables that lead pip and npm there.
    pub env: BTreeMap<String, String>,
}

/// Asks the clients. A client that is not installed adds nothing; none at all is an error.
async fn ask() -> Result<HostRegistries, RegistriesError> {
    let mut places = BTreeSet::new();
    let mut env = BTreeMap::new();
    if let Some(npm) = ask_npm().await? {
        env.insert("NPM_CONFIG_REGISTRY".to_owned(), npm.to_string());
        places.insert(place("npm", &npm)?);
    }
    if let Some((index, others)) = ask_pip().await? {
        env.insert("PIP_INDEX_URL".to_owned(), index.to_string());
        for url in others.iter().chain([&index]) {
            places.insert(place("pip", url)?);
        }
    }
    if places.is_empty() {
        return Err(RegistriesError::NoClient);
    }
    let mut found = Vec::new();
    for (host, port) in places {
        let private = private_addresses(&host, port).await;
        found.push(Place { host, port, private });
    }
    Ok(HostRegistries {
        policy: PolicyText {
            name: PRESET.to_owned(),
            text: policy(&found),
        },
        env,
    })
}

/// A registry's place, with its addresses where they are private.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    host: String,
    port: u16,
    private: Vec<String>,
}

fn place(client: &'static str, url: &Url) -> Result<(String, u16), RegistriesError> {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => Ok((host.trim_matches(['[', ']']).to_owned(), port)),
        _ => Err(RegistriesError::NoAddress { client }),
    }
}

async fn ask_npm() -> Result<Option<Url>, RegistriesError> {
    let told = output("npm", &["config", "get", "registry"]).await?;
    told.map(|text| address("npm", text.trim())).transpose()
}

/// The index, and other places that pip loads files from.
async fn ask_pip() -> Result<Option<(Url, Vec<Url>)>, RegistriesError> {
    let Some(defaults) = output("python3", &["-c", PIP_DEFAULTS]).await? else {
        return Ok(None);
    };
    let mut defaults = defaults.lines();
    let (index, files) = (
        defaults.next().unwrap_or_default(),
        defaults.next().unwrap_or_default(),
    );
    let configured = output("python3", &["-m", "pip", "config", "list"])
        .await?
        .unwrap_or_default();
    let own = setting(&configured, "index-url");
    let index = address("pip", own.as_deref().unwrap_or(index))?;
    let mut others = vec![address("pip", files)?];
    for extra in setting(&configured, "extra-index-url")
        .unwrap_or_default()
        .split_whitespace()
    {
        others.push(address("pip", extra)?);
    }
    Ok(Some((index, others)))
}

/// A setting from `pip config list`: the environment's before the command's before the global one.
fn setting(list: &str, name: &str) -> Option<String> {
    [":env:", "install", "site", "user", "global"]
        .iter()
        .find_map(|section| {
            let key = format!("{section}.{name}=");
            let value = list.lines().find_map(|line| line.strip_prefix(&key))?;
            let value = value.trim_matches(['\'', '"']).replace("\\n", " ");
            (!value.trim().is_empty()).then(|| value.trim().to_owned())
        })
}

/// Reads an address and drops a user name and password from it.
fn address(client: &'static str, text: &str) -> Result<Url, RegistriesError> {
    let wrong = || RegistriesError::NoAddress { client };
    let mut url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() {
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| wrong())?;
        tracing::warn!(client, registry = %url, "its user name and password are not given to the machine; bind a credential in the policy");
    }
    Ok(url)
}

/// What a client prints, or none where it is not installed or knows no answer.
async fn output(program: &str, arguments: &[&str]) -> Result<Option<String>, RegistriesError> {
    let failed = |why: String| RegistriesError::Client {
        command: format!("{program} {}", arguments.join(" ")),
        why,
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(ANSWER_WITHIN, command.output()).await {
        Ok(Ok(done)) if done.status.success() => Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned())),
        Ok(Ok(_)) => Ok(None),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

/// The addresses of a registry inside a private network, which a rule must name.
async fn private_addresses(host: &str, port: u16) -> Vec<String> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => {
            let private: BTreeSet<String> = found
                .map(|address| address.ip())
                .filter(is_private)
                .map(|ip| ip.to_string())
                .collect();
            private.into_iter().collect()
        }
        Err(error) => {
            tracing::warn!(host, %error, "the registry's name does not resolve on this host");
            Vec::new()
        }
    }
}

fn is_private(ip: &std::net::IpAddr) -> bool {
    match ip {
        std::net::IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || shared
        }
        std::net::IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

fn policy(places: &[Place]) -> String {
    let mut text = String::from(
        "# Made from what this host's own pip and npm are configured with: reading packages, nothing else.\n\
         version: 1\nname: registries\nrules:\n",
    );
    for (at, place) in places.iter().enumerate() {
        let hosts: Vec<String> = std::iter::once(&place.host)
            .chain(&place.private)
            .map(|host| format!("{host:?}"))
            .collect();
        let private = if place.private.is_empty() {
            ""
        } else {
            ", private: true"
        };
        text.push_str(&format!(
            "  - id: registry-{}\n    to: {{host: [{}], port: {}{private}, methods: [GET, HEAD]}}\n    effect: allow\n",
            at + 1,
            hosts.join(", "),
            place.port,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_goes_before_files() {
        let list = "global.index-url='https://global.test/simple'\n:env:.index-url='https://env.test/simple'\nglobal.cert='/x'\n";
        assert_eq!(setting(list, "index-url").unwrap(), "https://env.test/simple");
        assert_eq!(setting(list, "extra-index-url"), None);
        assert_eq!(
            setting(
                "global.extra-index-url='\\nhttps://a.test/\\nhttps://b.test/'",
                "extra-index-url"
            )
            .unwrap(),
            "https://a.test/ https://b.test/"
        );
    }

    #[test]
    fn a_password_in_an_address_goes_nowhere() {
        assert_eq!(
            address("pip", "https://user:pass@mirror.test/simple")
                .unwrap()
                .as_str(),
            "https://mirror.test/simple"
        );
        assert!(address("npm", "undefined").is_err());
        let error = address("npm", "ftp://user:hidden@mirror.test/")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("hidden"), "{error}");
    }

    #[test]
    fn a_registry_in_a_private_network_is_named_by_address() {
        let places = [
            Place {
                host: "mirror.test".to_owned(),
                port: 8080,
                private: vec!["10.0.0.7".to_owned()],
            },
            Place {
                host: "public.test".to_owned(),
                port: 443,
                private: Vec::new(),
            },
        ];
        let text = policy(&places);
        assert!(text.contains(
            "host: [\"mirror.test\", \"10.0.0.7\"], port: 8080, private: true, methods: [GET, HEAD]"
        ));
        assert!(text.contains("host: [\"public.test\"], port: 443, methods: [GET, HEAD]"));
    }
}
