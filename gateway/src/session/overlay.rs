//! What of a session's grants holds at a moment, and what a decision takes from them. Pure.
use sallyport_policy::{Decision, Grant, Overlay};

/// What of an overlay is in force.
pub(super) fn valid(overlay: &Overlay, now: jiff::Timestamp) -> Overlay {
    Overlay {
        grants: overlay
            .grants
            .iter()
            .filter(|grant| now < grant.expires_at)
            .cloned()
            .collect(),
    }
}

/// Whether a decision rests on a grant whose uses are counted.
pub(super) fn rests_on_uses(decision: &Decision, overlay: &Overlay) -> bool {
    let Decision::Allow(permit) = decision else {
        return false;
    };
    let counted = |grant: &Grant| grant.uses.is_some() && permit.grants().contains(&grant.id);
    overlay.grants.iter().any(counted)
}
