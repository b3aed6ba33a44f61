//! What a repository will need, each need with the places that say so.
use crate::{Destination, GitAccess};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryFile {
    /// Path relative to the repository, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
}

/// What files say that a repository needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each once.
    pub needs: Vec<Need>,
    /// What could not be read, a sentence each.
    pub notes: Vec<String>,
}

/// One thing that work on a repository needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// What for, in words: `npm packages`.
    pub what: String,
    /// What must be there.
    #[serde(flatten)]
    pub kind: NeedKind,
    /// Whose need it is: the preset's name where there is one (`python`, `npm`), else the tool's (`git`, `script`).
    pub ecosystem: String,
    /// How certain.
    pub certainty: Certainty,
    /// The first places that say so.
    pub from: Vec<Place>,
    /// How many more places do.
    pub more: usize,
}

/// What must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum NeedKind {
    /// HTTP requests to a host.
    Host {
        /// Where to.
        site: Site,
        /// `GET`, mostly.
        method: String,
        /// Paths that are asked for, as far as they are known.
        paths: BTreeSet<String>,
    },
    /// A git repository.
    Git {
        /// Where to.
        site: Site,
        /// Path of the repository as in its address, without leading `/`.
        repository: String,
        /// Fetch or push.
        access: GitAccess,
    },
    /// The default registries of an ecosystem: the set of the preset that the need's `ecosystem` names.
    Registries,
    /// A credential.
    Credential {
        /// Environment variable that a file refers to.
        variable: Option<String>,
        /// Where it is sent to.
        site: Option<Site>,
    },
}

/// A host with port and scheme.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Site {
    /// Name or address, as in `Host`'s display.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// How it is spoken to.
    pub scheme: Scheme,
}

/// How a host is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// HTTP inside TLS.
    Https,
    /// Plain HTTP.
    Http,
    /// SSH, for git alone.
    Ssh,
}

/// How certain a need is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Installing what the repository names asks for it.
    Sure,
    /// Some scripts or workflows do.
    Likely,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Path relative to the repository.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", crate::host::shown(&self.file), self.line)
    }
}

impl Site {
    /// As a policy's requests name it; `None` where the host is none.
    pub(super) fn destination(&self) -> Option<Destination> {
        Some(Destination {
            host: crate::Host::parse(&self.host).ok()?,
            port: self.port,
        })
    }

    /// Whether the port is the scheme's own.
    pub(super) fn has_usual_port(&self) -> bool {
        self.port == self.scheme.usual_port()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
            Scheme::Ssh => "ssh",
        };
        match self.has_usual_port() {
            true => write!(f, "{scheme}://{host}"),
            false => write!(f, "{scheme}://{host}:{}", self.port),
        }
    }
}

impl Scheme {
    pub(super) fn usual_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
            Self::Ssh => 22,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            NeedKind::Host { site, method, paths } => {
                let path = paths.first().map_or("/", String::as_str);
                write!(f, "{}: {method} {site}{}", self.what, crate::host::shown(path))?;
                match paths.len() {
                    0 | 1 => Ok(()),
                    2 => f.write_str(" and 1 more path"),
                    many => write!(f, " and {} more paths", many - 1),
                }
            }
            NeedKind::Git {
                site,
                repository,
                access,
            } => {
                let verb = match access {
                    GitAccess::Read => "clone",
                    GitAccess::Write => "push to",
                };
                write!(
                    f,
                    "{}: {verb} {site}/{}",
                    self.what,
                    crate::host::shown(repository)
                )
            }
            NeedKind::Registries => write!(f, "{} from the registries of `{}`", self.what, self.ecosystem),
            NeedKind::Credential { variable, site } => {
                write!(f, "{}", self.what)?;
                if let Some(variable) = variable {
                    write!(f, " in `{variable}`")?;
                }
                match site {
                    Some(site) => write!(f, " for {site}"),
                    None => Ok(()),
                }
            }
        }
    }
}
