//! What policies may name of a service: paths, whole folders of them, and those of the run's own facts.
use sallyport_policy::Who;

/// One entry of `allow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    segments: Vec<String>,
    /// Whether all below is meant.
    below: bool,
}

impl Pattern {
    /// Reads `kv/agents/model`, `kv/agents/*`, `kv/teams/${team}/*`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (path, below) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        let fits = path.split('/').all(|segment| {
            fact(segment).is_some_and(|name| Who::default().set(name, String::new())) || is_path(segment)
        });
        match fits {
            true => Ok(Self {
                segments: path.split('/').map(str::to_owned).collect(),
                below,
            }),
            false => Err(format!(
                "`allow`: `{}` is no path; write for example `kv/agents/model`, `kv/agents/*` for all below, or `kv/teams/${{team}}/*` \
                 for what is the team's of each run",
                text.escape_debug()
            )),
        }
    }

    /// Whether it covers a path, for a run of this person.
    pub(super) fn admits(&self, path: &str, who: &Who) -> bool {
        let mut parts = path.split('/');
        let begins = self.segments.iter().all(|segment| {
            let Some(part) = parts.next() else { return false };
            match fact(segment) {
                // A fact that is not known covers nothing.
                Some(name) => !part.is_empty() && part == who.fact(name),
                None => part == segment,
            }
        });
        begins && is_path(path) && (parts.next().is_some() == self.below)
    }
}

/// `${team}`: the fact's name.
fn fact(segment: &str) -> Option<&str> {
    segment.strip_prefix("${")?.strip_suffix('}')
}

/// Segments of letters, digits and what may stand in a path without a meaning of its own.
pub(super) fn is_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@+=".contains(&byte);
    text.split('/')
        .all(|part| !matches!(part, "" | "." | "..") && part.bytes().all(plain))
}
