//! What a session's agent may know of its credentials: everything but their values.
use super::{Live, Session};
use crate::control::types::CredentialView;
use sallyport_policy::{Credential, Policy};

impl Session {
    /// A credential without its value; none where nothing stands for it.
    pub(super) fn credential_view(&self, live: &Live, credential: &Credential) -> Option<CredentialView> {
        let mut bindings = live.secrets.bindings().iter();
        let binding = bindings.find(|binding| binding.name == credential.name)?;
        let policy: Option<&Policy> = live.policy.as_ref().ok();
        let now = jiff::Timestamp::now();
        let overlay = self.overlay.load();
        let lent = overlay.grants.iter().filter(|grant| {
            grant.credential.as_deref() == Some(credential.name.as_str()) && grant.is_live(now)
        });
        Some(CredentialView {
            name: credential.name.clone(),
            env: credential.env.clone(),
            placeholder: binding.placeholders.first()?.clone(),
            hosts: credential.hosts.clone(),
            ports: policy
                .map(|policy| policy.ports_of(&credential.name))
                .unwrap_or_default(),
            places: credential.places.iter().map(ToString::to_string).collect(),
            purpose: credential.purpose.clone(),
            user: credential.user.clone(),
            lender: policy.and_then(|policy| policy.lender(&credential.name)),
            lent_at: lent.map(|grant| grant.host.clone()).collect(),
        })
    }
}
