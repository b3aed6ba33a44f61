//! The standing policies exchanged for all sessions at once, or for none.
use super::bind::{Ground, bind};
use super::keep::{Kept, StateError};
use super::layers::{Layers, NoPolicy};
use super::registry::Sessions;
use super::{Live, Session};
use sallyport_policy::{Policy, PolicyText, Problem, Who};
use std::sync::Arc;

/// A session that could not go on under other standing policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannotGoOn {
    /// Session.
    pub id: String,
    /// Whose.
    pub who: Arc<Who>,
    /// Why.
    pub problems: Vec<Problem>,
}

/// Why the standing policies were not exchanged; those before stay in force for every session.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The policies' author's: at least one session could not go on.
    #[error("{} sessions could not go on", .0.len())]
    CannotGoOn(Vec<CannotGoOn>),
    /// The operator's: the state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Ours: a session's secrets are too large to search for.
    #[error("{0}")]
    Failed(String),
}

/// What a session will be.
struct Renewed {
    session: Arc<Session>,
    live: Live,
    /// The placeholders, where new ones were minted.
    placeholders: Option<super::bind::Placeholders>,
}

impl Sessions {
    /// What is wrong with a run's policy below those that stand; its warnings where it can be used.
    pub fn check(&self, who: &Who, policies: &[PolicyText]) -> Vec<Problem> {
        match self.layers().compile(who, policies) {
            Ok(policy) => policy.warnings().to_vec(),
            Err(why) => why.into_problems(),
        }
    }

    /// Puts other standing policies in force: first compiled and bound for every session, then `commit` makes them
    /// durable, then each session has them. Where a session could not go on, nothing changes; one that is closed already,
    /// or that an unusable policy binds, stays or becomes closed and stops nobody.
    ///
    /// Gives the sessions whose policy is another one now. Blocks; some milliseconds for each session.
    pub fn renew(
        &self,
        layers: Layers,
        commit: impl FnOnce() -> Result<(), StateError>,
    ) -> Result<Vec<String>, RenewError> {
        let _changing = self.changing();
        let mut renewed = Vec::new();
        let mut cannot = Vec::new();
        for session in self.list() {
            let kept = session.kept().clone();
            match layers.compile(&kept.spec.who, &kept.spec.policies) {
                Err(NoPolicy::Broken(problems)) if !session.is_closed_by_policy() => {
                    cannot.push(CannotGoOn {
                        id: session.id().to_owned(),
                        who: session.who(),
                        problems,
                    })
                }
                policy if session.has_policy(&policy) => {}
                policy => renewed.push(self.renewed(session, kept, policy)?),
            }
        }
        if !cannot.is_empty() {
            return Err(RenewError::CannotGoOn(cannot));
        }
        // Placeholders that nobody was shown yet harm nothing where the rest does not come about.
        for one in &renewed {
            if let Some(placeholders) = &one.placeholders {
                one.session.set_placeholders(placeholders.clone())?;
            }
        }
        commit()?;
        self.put_layers(layers);
        let changed = renewed.into_iter().map(|one| {
            one.session.live.store(Arc::new(one.live));
            one.session.id().to_owned()
        });
        Ok(changed.collect())
    }

    fn renewed(
        &self,
        session: Arc<Session>,
        kept: Kept,
        policy: Result<Policy, NoPolicy>,
    ) -> Result<Renewed, RenewError> {
        let policy = policy.map_err(NoPolicy::into_problems);
        let credentials = policy.as_ref().map(Policy::credentials).unwrap_or_default();
        let before = session.secrets();
        let ground = Ground::of(&session.id, &kept.spec.who, self.sources());
        ground.want(credentials);
        let (bound, placeholders) = bind(
            credentials,
            &ground,
            kept.placeholders.clone(),
            Some(before.as_ref()),
        )
        .map_err(RenewError::Failed)?;
        let placeholders = (placeholders != kept.placeholders).then_some(placeholders);
        Ok(Renewed {
            session,
            live: Live::new(&kept.spec, policy, bound),
            placeholders,
        })
    }
}

impl Session {
    /// Whether nothing passes since there is no policy that can be used.
    pub fn is_closed_by_policy(&self) -> bool {
        self.live.load().policy.is_err()
    }

    /// Whether this is what is in force already.
    fn has_policy(&self, policy: &Result<Policy, NoPolicy>) -> bool {
        match (&self.live.load().policy, policy) {
            (Ok(now), Ok(policy)) => now.hash() == policy.hash(),
            (Err(now), Err(NoPolicy::Unusable(problems) | NoPolicy::Broken(problems))) => now == problems,
            _ => false,
        }
    }

    /// Shows and keeps other placeholders; on disk when it returns.
    pub(super) fn set_placeholders(&self, placeholders: super::bind::Placeholders) -> Result<(), StateError> {
        // The lock is held over writing: grants may be used up meanwhile.
        let mut kept = self.kept();
        let new = Kept {
            placeholders,
            ..kept.clone()
        };
        self.keeper.save(&self.id, &new)?;
        *kept = new;
        Ok(())
    }
}
