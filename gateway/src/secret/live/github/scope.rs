//! What a token of a GitHub App may be for: what a policy asks for, within what the operator lets it.
use sallyport_policy::{Source, Who};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Repositories of one token at most (GitHub's bound).
const REPOSITORIES: usize = 500;
/// What stands for the run's own repository.
const OF_THE_RUN: &str = "${run.repositories}";

/// How much a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    Read,
    Write,
}

/// What a token is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) owner: String,
    pub(super) names: Vec<String>,
    pub(super) permissions: BTreeMap<String, Level>,
}

/// What policies may ask for.
#[derive(Debug)]
pub(super) struct Bounds {
    /// `owner/name`, or `owner/*`.
    repositories: Vec<String>,
    permissions: BTreeMap<String, Level>,
}

impl Bounds {
    /// Checked.
    pub(super) fn new(
        repositories: Vec<String>,
        permissions: BTreeMap<String, Level>,
    ) -> Result<Self, String> {
        if repositories.is_empty() || permissions.is_empty() {
            return Err(
                "`repositories` and `permissions` say what policies may ask for; one of them is empty"
                    .to_owned(),
            );
        }
        if let Some(wrong) = repositories.iter().find(|text| !is_pattern(text)) {
            return Err(format!(
                "`repositories`: `{}` is neither `owner/name` nor `owner/*`",
                wrong.escape_debug()
            ));
        }
        Ok(Self {
            repositories,
            permissions,
        })
    }

    /// What the token of a run may be for, or why not.
    pub(super) fn scope(&self, from: &Source, who: &Who) -> Result<Scope, String> {
        let Source::GithubApp {
            repositories,
            permissions,
            ..
        } = from
        else {
            return Err("it is no token of a GitHub App".to_owned());
        };
        let mut wanted: Vec<&str> = Vec::new();
        for text in repositories {
            match text.as_str() {
                OF_THE_RUN if who.repository.is_empty() => {
                    return Err(
                        "the run works on no repository that `${run.repositories}` could stand for"
                            .to_owned(),
                    );
                }
                OF_THE_RUN => wanted.push(&who.repository),
                text => wanted.push(text),
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut parts = wanted.iter().filter_map(|text| text.split_once('/')).peekable();
        let Some((owner, _)) = parts.peek().copied() else {
            return Err(
                "it names no `repositories`, and a token for all of them is given to no run".to_owned(),
            );
        };
        if wanted.len() > REPOSITORIES {
            return Err(format!("it names more than {REPOSITORIES} repositories"));
        }
        if let Some(other) = wanted.iter().find(|text| !self.admits(text)) {
            return Err(format!(
                "the operator lets no policy name the repository `{other}` for this app; `repositories` in `sources.yaml` lists what it may"
            ));
        }
        if !parts.clone().all(|(its, _)| its.eq_ignore_ascii_case(owner)) {
            return Err(
                "its `repositories` have several owners, and a token is for one installation".to_owned(),
            );
        }
        Ok(Scope {
            owner: owner.to_owned(),
            names: parts.map(|(_, name)| name.to_owned()).collect(),
            permissions: self.permitted(permissions)?,
        })
    }

    fn admits(&self, repository: &str) -> bool {
        let Some((owner, name)) = repository.split_once('/') else {
            return false;
        };
        self.repositories.iter().any(|pattern| {
            pattern.split_once('/').is_some_and(|(its, names)| {
                its.eq_ignore_ascii_case(owner) && (names == "*" || names.eq_ignore_ascii_case(name))
            })
        })
    }

    fn permitted(&self, asked: &BTreeMap<String, String>) -> Result<BTreeMap<String, Level>, String> {
        if asked.is_empty() {
            return Ok(self.permissions.clone());
        }
        let mut all = BTreeMap::new();
        for (name, level) in asked {
            let level = match level.as_str() {
                "write" => Level::Write,
                _ => Level::Read,
            };
            if self.permissions.get(name).is_none_or(|most| *most < level) {
                return Err(format!(
                    "the operator lets no policy ask for so much of `{name}`; `permissions` in `sources.yaml` lists what it may"
                ));
            }
            all.insert(name.clone(), level);
        }
        Ok(all)
    }
}

fn is_pattern(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| plain(owner) && (name == "*" || plain(name)))
}
