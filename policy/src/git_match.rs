//! What a rule says of git, held against one git request.
use crate::document::Effect;
use crate::fit::{Fit, Miss, Unclear};
use crate::git::{GitView, Pushed};
use crate::path::escaped;
use crate::path_pattern::PathPattern;
use crate::{GitAccess, RefUpdate};

/// What a rule says of git. Empty means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitMatch {
    /// Globs in which `*` stands within a segment and `**` for any number of them.
    pub(crate) repositories: Vec<PathPattern>,
    pub(crate) access: Option<GitAccess>,
    /// As `repositories`; `agent/**` means `refs/heads/agent/**`.
    pub(crate) refs: Vec<PathPattern>,
    pub(crate) force: Option<bool>,
}

impl GitMatch {
    /// Whether it looks at the refs of a push.
    pub(crate) fn looks_at_refs(&self) -> bool {
        !self.refs.is_empty() || self.force.is_some()
    }

    /// How it fits. What is in doubt is refused by what refuses, and allowed by nothing.
    pub(crate) fn fit(&self, view: &GitView<'_>, effect: Effect) -> Fit {
        if let Some(repository) = &view.repository
            && !names(&self.repositories, repository)
        {
            return Fit::Miss(Miss::Repository);
        }
        if let (Some(own), Some(access)) = (self.access, view.access)
            && own != access
        {
            return Fit::Miss(Miss::Access);
        }
        let changes_none = view.push.is_none() && view.repository.is_some();
        if effect != Effect::Allow && self.looks_at_refs() && changes_none {
            return Fit::Miss(Miss::Ref);
        }
        match (view.doubt, effect) {
            (None, _) => self.fit_refs(view.push, effect),
            (Some(doubt), Effect::Allow) => Fit::Miss(Miss::Unclear(Unclear::Git(doubt))),
            (Some(doubt), _) => Fit::Ambiguous(Unclear::Git(doubt)),
        }
    }

    /// A push may pass when each of its refs may; it is refused when one of them is.
    fn fit_refs(&self, push: Option<Pushed<'_>>, effect: Effect) -> Fit {
        let updates = match push {
            _ if !self.looks_at_refs() => return Fit::Full,
            None => return Fit::Full,
            Some(Pushed::Unread) => return Fit::Later,
            Some(Pushed::Refs(updates)) => updates,
        };
        let mut misses = updates.iter().map(|update| self.miss(update));
        let missed = match effect {
            Effect::Allow => misses.find_map(|miss| miss),
            Effect::Deny | Effect::Ask => match misses.find(Option::is_none) {
                Some(_) => None,
                None => updates.first().map_or(Some(Miss::Ref), |first| self.miss(first)),
            },
        };
        missed.map_or(Fit::Full, Fit::Miss)
    }

    fn miss(&self, update: &RefUpdate) -> Option<Miss> {
        if !names(&self.refs, &escaped(&update.name)) {
            return Some(Miss::Ref);
        }
        self.force
            .filter(|force| *force != update.forced)
            .map(|_| Miss::Force)
    }
}

/// Whether one of the patterns fits; none at all names everything.
fn names(patterns: &[PathPattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches_relative(name))
}
