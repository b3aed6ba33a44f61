//! The standing policies that bind sessions, and the policy that a session gets from them and from its run.
use crate::control::types::PolicyKey;
use sallyport_policy::{Layer, LayerTexts, Policy, PolicyText, Problem, Who};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A standing policy as sessions meet it.
#[derive(Debug, Clone)]
pub enum Standing {
    /// Its files, the policy first.
    Texts(Arc<[PolicyText]>),
    /// There is one, and no version of it can be used: nothing passes for whom it binds.
    Unusable(Arc<[Problem]>),
}

/// Every standing policy in force. Immutable once it is shared; a change makes a new one.
#[derive(Debug, Clone, Default)]
pub struct Layers(BTreeMap<PolicyKey, Standing>);

/// Why a session gets no policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPolicy {
    /// A policy that binds it cannot be used; this is known, and no new fault of the layers.
    Unusable(Vec<Problem>),
    /// The layers do not fit together, or one of them is wrong.
    Broken(Vec<Problem>),
}

impl NoPolicy {
    /// What is wrong.
    pub fn into_problems(self) -> Vec<Problem> {
        match self {
            Self::Unusable(problems) | Self::Broken(problems) => problems,
        }
    }
}

impl Layers {
    /// Puts a policy, in place of the one of this key.
    pub fn put(&mut self, key: PolicyKey, standing: Standing) {
        self.0.insert(key, standing);
    }

    /// Takes a policy out.
    pub fn remove(&mut self, key: &PolicyKey) {
        self.0.remove(key);
    }

    /// The keys there are, the organisation's first.
    pub fn keys(&self) -> impl Iterator<Item = &PolicyKey> {
        self.0.keys()
    }

    /// Files of a policy that can be used.
    pub fn texts(&self, key: &PolicyKey) -> Option<&[PolicyText]> {
        match self.0.get(key) {
            Some(Standing::Texts(texts)) => Some(texts),
            _ => None,
        }
    }

    /// The policy of a session: the layers that bind it, then what came with its run.
    pub fn compile(&self, who: &Who, run: &[PolicyText]) -> Result<Policy, NoPolicy> {
        let mut layers = Vec::new();
        for (key, standing) in self.0.iter().filter(|(key, _)| key.binds(who)) {
            match standing {
                Standing::Texts(texts) => layers.push(layer(key.layer(), texts)),
                Standing::Unusable(problems) => return Err(NoPolicy::Unusable(problems.to_vec())),
            }
        }
        layers.push(layer(Layer::Run, run));
        Policy::compile_layers(&layers).map_err(NoPolicy::Broken)
    }

    /// What is wrong with a policy without any run: below the organisation's, and a repository's, where that does not do,
    /// below one of the teams'.
    pub fn problems_of(&self, key: &PolicyKey) -> Vec<Problem> {
        let Some(texts) = self.texts(key) else {
            return Vec::new();
        };
        let above: Vec<_> = self
            .0
            .keys()
            .filter(|other| other.layer() == Layer::Organisation && *other != key)
            .filter_map(|other| Some(layer(other.layer(), self.texts(other)?)))
            .collect();
        let own = layer(key.layer(), texts);
        let own = std::slice::from_ref(&own);
        let Err(problems) = Policy::compile_layers(&[&above, own].concat()) else {
            return Vec::new();
        };
        let teams = self.0.keys().filter(|other| other.layer() == Layer::Team);
        let mut teams = teams.filter_map(|team| Some(layer(Layer::Team, self.texts(team)?)));
        let fits_below =
            |team| Policy::compile_layers(&[&above, std::slice::from_ref(&team), own].concat()).is_ok();
        if key.layer() == Layer::Repository && teams.any(fits_below) {
            return Vec::new();
        }
        problems
    }
}

fn layer(layer: Layer, texts: &[PolicyText]) -> LayerTexts {
    LayerTexts {
        layer,
        texts: texts.to_vec(),
    }
}
