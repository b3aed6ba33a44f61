//! People: who a request comes from. Log-in with a one-time address, cookies, and the owner of a unix socket.
//!
//! A token is 256 random bits. Only its SHA-256 is kept, in memory and on disk, and digests are compared in
//! constant time. A browser's cookie lives 30 days and survives a restart; a log-in address works once, within
//! 15 minutes. Browsers send a host's cookies to every port of it, so the cookie must not be taken to other
//! programs on this host that serve pages: whoever runs those can read it when the browser visits them.
mod account;
mod token;

pub use account::owner_name;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use token::Digest;

/// Who a request comes from, as the supervisor vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Account name.
    pub user: String,
}

/// How long a browser stays logged in, in hours.
const COOKIE_HOURS: i64 = 30 * 24;
/// How long a log-in address works, in minutes.
const ADDRESS_MINUTES: i64 = 15;
/// Most browsers and addresses kept; the oldest go first.
const KEPT: usize = 256;

/// Why people's file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    /// The file system said no.
    #[error("`{path}` cannot be {verb}: {source}")]
    File {
        /// File.
        path: String,
        /// `read` or `written`.
        verb: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not ours.
    #[error("`{path}` is not a list of log-ins ({source}); remove it, everybody then logs in anew")]
    Format {
        /// File.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The system has no randomness.
    #[error("the system gives no random bytes")]
    Random,
}

/// A token's digest and the end of its life.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Issued {
    digest: Digest,
    user: String,
    expires_at: Timestamp,
}

#[derive(Debug, Default)]
struct Tokens {
    addresses: Vec<Issued>,
    browsers: Vec<Issued>,
}

/// All who may log in here: in this version one person, the owner of the state directory.
#[derive(Debug)]
pub struct People {
    owner: Identity,
    file: PathBuf,
    tokens: Mutex<Tokens>,
}

impl People {
    /// Reads the browsers that are logged in. `file` need not exist.
    pub fn open(file: &Path, owner: Identity) -> Result<Self, PeopleError> {
        let browsers = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| PeopleError::Format {
                path: file.display().to_string(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                return Err(PeopleError::File {
                    path: file.display().to_string(),
                    verb: "read",
                    source,
                });
            }
        };
        let tokens = Mutex::new(Tokens {
            addresses: Vec::new(),
            browsers,
        });
        Ok(Self {
            owner,
            file: file.to_path_buf(),
            tokens,
        })
    }

    /// The owner of this supervisor.
    pub fn owner(&self) -> &Identity {
        &self.owner
    }

    /// A token for one log-in of `user`.
    pub fn issue_address(&self, user: &Identity, now: Timestamp) -> Result<String, PeopleError> {
        let (token, digest) = token::fresh()?;
        let expires_at = now.saturating_add(ADDRESS_MINUTES.minutes()).unwrap_or(now);
        let mut tokens = self.lock();
        keep(
            &mut tokens.addresses,
            Issued {
                digest,
                user: user.user.clone(),
                expires_at,
            },
            now,
        );
        Ok(token)
    }

    /// Turns a log-in token into a browser's cookie value, once. None where the token is unknown, used or too old.
    pub fn log_in(&self, token: &str, now: Timestamp) -> Result<Option<String>, PeopleError> {
        let mut tokens = self.lock();
        let Some(found) = find(&tokens.addresses, token, now) else {
            return Ok(None);
        };
        let user = tokens.addresses.remove(found).user;
        let (cookie, digest) = token::fresh()?;
        let expires_at = now.saturating_add(COOKIE_HOURS.hours()).unwrap_or(now);
        keep(
            &mut tokens.browsers,
            Issued {
                digest,
                user,
                expires_at,
            },
            now,
        );
        self.save(&tokens.browsers)?;
        Ok(Some(cookie))
    }

    /// Who a cookie value belongs to.
    pub fn by_cookie(&self, value: &str, now: Timestamp) -> Option<Identity> {
        let tokens = self.lock();
        find(&tokens.browsers, value, now).map(|at| Identity {
            user: tokens.browsers[at].user.clone(),
        })
    }

    /// Ends a browser's log-in.
    pub fn log_out(&self, value: &str, now: Timestamp) -> Result<(), PeopleError> {
        let mut tokens = self.lock();
        if let Some(found) = find(&tokens.browsers, value, now) {
            tokens.browsers.remove(found);
            self.save(&tokens.browsers)?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tokens> {
        self.tokens
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn save(&self, browsers: &[Issued]) -> Result<(), PeopleError> {
        let failed = |source| PeopleError::File {
            path: self.file.display().to_string(),
            verb: "written",
            source,
        };
        let text = serde_json::to_vec(browsers).map_err(|error| failed(error.into()))?;
        token::write_private(&self.file, &text).map_err(failed)
    }
}

/// Where a living token stands. Looks at every digest, so that time tells nothing.
fn find(issued: &[Issued], token: &str, now: Timestamp) -> Option<usize> {
    let digest = Digest::of(token);
    let mut found = None;
    for (at, one) in issued.iter().enumerate() {
        if one.digest.same(&digest) && one.expires_at > now {
            found = Some(at);
        }
    }
    found
}

fn keep(issued: &mut Vec<Issued>, one: Issued, now: Timestamp) {
    issued.retain(|old| old.expires_at > now);
    if issued.len() >= KEPT {
        issued.remove(0);
    }
    issued.push(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &tempfile::TempDir) -> People {
        let owner = Identity {
            user: "ada".to_owned(),
        };
        People::open(&folder.path().join("browsers.json"), owner).unwrap()
    }

    #[test]
    fn an_address_logs_in_once_and_its_cookie_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let people = open(&folder);
        let token = people.issue_address(people.owner(), now).unwrap();
        let cookie = people.log_in(&token, now).unwrap().unwrap();
        assert_eq!(people.log_in(&token, now).unwrap(), None);
        let again = open(&folder);
        assert_eq!(again.by_cookie(&cookie, now).unwrap().user, "ada");
        assert_eq!(again.by_cookie(&token, now), None);
        again.log_out(&cookie, now).unwrap();
        assert_eq!(open(&folder).by_cookie(&cookie, now), None);
    }

    #[test]
    fn tokens_end_and_are_not_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let people = open(&folder);
        let late = now + ADDRESS_MINUTES.minutes();
        let token = people.issue_address(people.owner(), now).unwrap();
        assert_eq!(people.log_in(&token, late).unwrap(), None);
        let token = people.issue_address(people.owner(), now).unwrap();
        let cookie = people.log_in(&token, now).unwrap().unwrap();
        assert_eq!(people.by_cookie(&cookie, now + COOKIE_HOURS.hours()), None);
        let text = std::fs::read_to_string(folder.path().join("browsers.json")).unwrap();
        assert!(!text.contains(&cookie));
    }

    #[test]
    fn a_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("browsers.json");
        std::fs::write(&file, "x").unwrap();
        let error = People::open(
            &file,
            Identity {
                user: "ada".to_owned(),
            },
        )
        .unwrap_err();
        assert!(error.to_string().contains("browsers.json"), "{error}");
    }
}
