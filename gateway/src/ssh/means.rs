//! What an agent may log in with.
//!
//! Who it is follows from its session. What it offers chooses the credential: a placeholder key, a placeholder password, or
//! nothing where no credential is bound to the host. A key that is no placeholder is refused; where a client then asks for
//! the interactive way, it is let in with nothing, so that it can be told at its command.
use super::link::Link;
use sallyport_policy::Place;

/// The credentials that may be shown to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Means {
    pub(super) keys: Vec<String>,
    pub(super) passwords: Vec<String>,
}

impl Means {
    /// What the session's policy binds to the host of the connection.
    pub(super) fn of(link: &Link) -> Self {
        let mut means = Self::default();
        let secrets = link.session.secrets();
        for binding in secrets.bindings() {
            if !link.session.binds(&binding.name, &link.destination) {
                continue;
            }
            if binding.places.contains(&Place::SshKey) {
                means.keys.push(binding.name.clone());
            }
            if binding.places.contains(&Place::Password) {
                means.passwords.push(binding.name.clone());
            }
        }
        means
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.passwords.is_empty()
    }

    /// What to log in with, in words.
    pub(super) fn told(&self) -> String {
        let list = |names: &[String]| format!("`{}`", names.join("` or `"));
        let key = (!self.keys.is_empty())
            .then(|| format!("the placeholder key of credential {}", list(&self.keys)));
        let password = (!self.passwords.is_empty()).then(|| {
            format!(
                "the placeholder of credential {} as password",
                list(&self.passwords)
            )
        });
        let ways: Vec<String> = key.into_iter().chain(password).collect();
        format!("log in with {}", ways.join(", or with "))
    }
}
