//! What a session's agent may know of its credentials: everything but their values.
use super::carried::is_of_answers;
use super::{Live, Session};
use crate::control::types::CredentialView;
use crate::secret::sigv4::keys;
use sallyport_policy::{Credential, Place, Policy};

impl Session {
    /// A credential without its value, once for each placeholder to be shown; none where nothing stands for it. The parts of an
    /// access key are found in variables whose names begin with the credential's `env`.
    pub(super) fn credential_views(&self, live: &Live, credential: &Credential) -> Vec<CredentialView> {
        let bound = live.bound.load();
        let mut bindings = bound.secrets.bindings().iter();
        let binding = bindings.find(|binding| binding.name == credential.name);
        let Some(first) = binding.and_then(|binding| binding.placeholders.first()) else {
            return Vec::new();
        };
        if is_of_answers(credential) {
            return Vec::new();
        }
        let whole = self.view_of(live, credential, first.clone());
        if !credential.places.contains(&Place::AwsSigv4) {
            return vec![whole];
        }
        let parts = keys::shown(first).into_iter();
        let part = |(end, placeholder)| CredentialView {
            env: credential.env.as_ref().map(|env| format!("{env}_{end}")),
            placeholder,
            ..whole.clone()
        };
        parts.map(part).collect()
    }

    fn view_of(&self, live: &Live, credential: &Credential, placeholder: String) -> CredentialView {
        let policy: Option<&Policy> = live.policy.as_ref().ok();
        let now = jiff::Timestamp::now();
        let overlay = self.overlay.load();
        let lent = overlay.grants.iter().filter(|grant| {
            grant.credential.as_deref() == Some(credential.name.as_str()) && grant.is_live(now)
        });
        CredentialView {
            name: credential.name.clone(),
            env: credential.env.clone(),
            placeholder,
            hosts: credential.hosts.clone(),
            ports: policy
                .map(|policy| policy.ports_of(&credential.name))
                .unwrap_or_default(),
            places: credential.places.iter().map(ToString::to_string).collect(),
            purpose: credential.purpose.clone(),
            user: credential.user.clone(),
            throughout: policy.is_some_and(|policy| policy.is_used_throughout(&credential.name)),
            lender: policy.and_then(|policy| policy.lender(&credential.name)),
            lent_at: lent.map(|grant| grant.host.clone()).collect(),
        }
    }
}
