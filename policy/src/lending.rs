//! Credentials that may be used only once they were asked for: who lends them, and which are lent at a moment.
use crate::document::{DefaultPart, Effect};
use crate::host::shown;
use crate::rule::Rule;
use crate::weighing::Question;
use crate::{Credential, Destination, Grant, GrantRefused, Host, Policy, Wanted, Who};
use serde::{Deserialize, Serialize};

/// Longest name of a credential that is repeated in an answer, in characters.
const NAME: usize = 128;

/// Who lends a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lender {
    /// The policy itself, at once.
    Policy,
    /// A person.
    Person,
}

impl Policy {
    /// The grant that lends a credential at one host: by the policy itself, or because the person `by` said yes.
    /// The port that is asked for does not matter: a credential is bound to hosts.
    pub(crate) fn lend(
        &self,
        wanted: &Wanted,
        who: &Who,
        now: jiff::Timestamp,
        by: Option<&str>,
    ) -> Result<Grant, GrantRefused> {
        let host = Host::parse(&wanted.host).map_err(|fault| GrantRefused::Malformed {
            why: fault.to_string(),
        })?;
        let name = wanted.credential.as_deref().unwrap_or_default();
        let (number, credential) = self.named(name)?;
        self.goes_to(number, credential, &host, who)?;
        let Some(terms) = &credential.terms else {
            return Err(GrantRefused::AlreadyLent {
                credential: name.to_owned(),
                host: host.to_string(),
            });
        };
        let by = match by {
            _ if terms.by_rule => "policy",
            Some(person) => person,
            None => {
                return Err(GrantRefused::CredentialNeedsPerson {
                    credential: name.to_owned(),
                    approvers: terms.approvers.clone(),
                });
            }
        };
        let expires_at = now
            .checked_add(terms.expires)
            .map_err(|_| GrantRefused::Malformed {
                why: "the grant would end beyond the calendar".into(),
            })?;
        Ok(Grant {
            id: String::new(),
            rule: String::new(),
            credential: Some(name.to_owned()),
            host: host.to_string(),
            port: wanted.port,
            methods: Vec::new(),
            path: None,
            uses: None,
            expires_at,
            by: by.to_owned(),
        })
    }

    /// The numbers of the credentials that the overlay lends at a request's host.
    pub(crate) fn lent(&self, question: Question<'_>) -> Vec<usize> {
        let overlay = question.overlay;
        if overlay.grants.iter().all(|grant| grant.credential.is_none()) {
            return Vec::new();
        }
        let host = &question.request.destination.host;
        let lent = self.credentials.iter().enumerate().filter(|(_, credential)| {
            credential.is_lent() && overlay.lends(&credential.name, host, question.now)
        });
        lent.map(|(number, _)| number).collect()
    }

    /// The single ports at which rules take a credential somewhere, in order; nothing where they name ranges only.
    pub fn ports_of(&self, credential: &str) -> Vec<u16> {
        let number = self.credentials.iter().position(|own| own.name == credential);
        let taking = self
            .rules
            .iter()
            .filter(|rule| number.is_some_and(|number| rule.uses.contains(&number)));
        let ports = taking.flat_map(|rule| &rule.ports);
        let single = ports.filter(|(low, high)| low == high).map(|(port, _)| *port);
        single
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Whether every rule that allows something at a credential's hosts takes it there: whoever shows it unasked at each of their
    /// requests is refused nowhere for that.
    pub fn is_used_throughout(&self, credential: &str) -> bool {
        let mut all = self.credentials.iter().enumerate();
        let Some((number, found)) = all.find(|(_, own)| own.name == credential) else {
            return false;
        };
        let bound = |rule: &&Rule| {
            let mut hosts = rule.hosts.iter();
            hosts.any(|host| found.patterns.iter().any(|own| own.overlaps(host)))
        };
        let allowing = self.rules.iter().filter(|rule| rule.effect == Effect::Allow);
        let by_default = self.layers.iter().any(|plan| plan.default == DefaultPart::Allow);
        !by_default && allowing.filter(bound).all(|rule| rule.uses.contains(&number))
    }

    /// Who lends a credential that must be asked for: the policy itself, or else a person; none where it need not be.
    pub fn lender(&self, credential: &str) -> Option<Lender> {
        let found = self.credentials.iter().find(|own| own.name == credential)?;
        let terms = found.terms.as_ref()?;
        Some(if terms.by_rule {
            Lender::Policy
        } else {
            Lender::Person
        })
    }

    fn named(&self, name: &str) -> Result<(usize, &Credential), GrantRefused> {
        let mut all = self.credentials.iter().enumerate();
        all.find(|(_, credential)| credential.name == name)
            .ok_or_else(|| GrantRefused::NoCredential {
                credential: shown(name).chars().take(NAME).collect(),
                known: self.credentials.iter().map(|known| known.name.clone()).collect(),
            })
    }

    /// Whether the credential's own hosts and a rule for this run take it there.
    fn goes_to(
        &self,
        number: usize,
        credential: &Credential,
        host: &Host,
        who: &Who,
    ) -> Result<(), GrantRefused> {
        let elsewhere = |why: String| {
            Err(GrantRefused::CredentialElsewhere {
                credential: credential.name.clone(),
                host: host.to_string(),
                why,
            })
        };
        let destination = Destination {
            host: host.clone(),
            port: 0,
        };
        if !credential.admits(&destination) {
            return elsewhere(format!("it is bound to `{}`", credential.hosts.join("`, `")));
        }
        let takes = |rule: &Rule| {
            rule.uses.contains(&number)
                && rule.unmet_fact(who).is_none()
                && rule.hosts.iter().any(|pattern| pattern.matches(host))
        };
        if !self.rules.iter().any(takes) {
            return elsewhere("no rule for this run takes it there".to_owned());
        }
        Ok(())
    }
}
