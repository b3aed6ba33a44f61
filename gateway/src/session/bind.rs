//! Binding: a policy's credentials with their values and placeholders.
use super::carried::{carried, is_of_answers};
use crate::secret::live::{Given, Terms};
use crate::secret::placeholder::{self, ENOUGH_BITS};
use crate::secret::sigv4::keys;
use crate::secret::source::SourceError;
use crate::secret::ssh;
use crate::secret::{Absence, Binding, LONGEST_VALUE, Old, SHORTEST_VALUE, SessionSecrets, Sources, Value};
use sallyport_policy::{Credential, Place, Who};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The shape of a placeholder for a value that nobody has seen yet.
const UNSEEN: &[u8] = b"aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0a";

/// Placeholders by credential's name; the first is the one shown.
pub(super) type Placeholders = BTreeMap<String, Vec<String>>;

/// A session's credentials with their values, and warnings for people.
pub(super) struct Bound {
    pub(super) secrets: Arc<SessionSecrets>,
    pub(super) warnings: Vec<String>,
}

/// Whose credentials are bound, and where values come from.
pub(super) struct Ground<'a> {
    session: &'a str,
    who: Arc<Who>,
    sources: &'a Sources,
}

impl<'a> Ground<'a> {
    pub(super) fn of(session: &'a str, who: &Who, sources: &'a Sources) -> Self {
        Self {
            session,
            who: Arc::new(who.clone()),
            sources,
        }
    }

    /// Has fetched what must be; it is bound when it is there.
    pub(super) fn want(&self, credentials: &[Credential]) {
        if let Some(keeper) = self.sources.keeper() {
            keeper.want(self.session, &self.who, credentials);
        }
    }
}

/// Reads values and mints what placeholders are missing; the placeholders to keep come with it. What is missing or unfit is a warning:
/// the session works without.
pub(super) fn bind(
    credentials: &[Credential],
    ground: &Ground<'_>,
    mut placeholders: Placeholders,
    before: Option<&SessionSecrets>,
) -> Result<(Bound, Placeholders), String> {
    let mut warnings = Vec::new();
    let mut bindings = Vec::new();
    let terms = ground.sources.terms();
    for credential in credentials {
        if is_of_answers(credential) {
            bindings.extend(carried(credential, &placeholders, before));
            continue;
        }
        let texts = placeholders.entry(credential.name.clone()).or_default();
        let given = value(credential, ground, texts, &mut warnings);
        let (given, absence) = match given {
            Ok(given) => (Some(given), None),
            Err(unbound) => {
                warnings.push(format!(
                    "credential `{}` is not bound: {}",
                    credential.name, unbound.why
                ));
                (None, Some(unbound.absence(&credential.name)))
            }
        };
        let earlier = before.and_then(|before| find(before, &credential.name));
        let value = given.as_ref().map(|given| given.value.clone());
        bindings.push(Binding {
            name: credential.name.clone(),
            places: credential.places.clone(),
            placeholders: texts.clone(),
            old_values: old_values(earlier, value.as_ref(), terms),
            value,
            until: given.map(|given| given.until).unwrap_or_default(),
            absence,
        });
    }
    placeholders.retain(|_, texts| !texts.is_empty());
    bindings.extend(retired(credentials, &placeholders, before, terms));
    warn_of_overlaps(&bindings, &mut warnings);
    let secrets = SessionSecrets::new(bindings).map_err(|error| error.to_string())?;
    warnings.extend(secrets.identity_faults().map(|(credential, why)| {
        format!("the client certificate of credential `{credential}` cannot be used: {why}")
    }));
    let bound = Bound {
        secrets: Arc::new(secrets),
        warnings,
    };
    Ok((bound, placeholders))
}

/// Why a credential has no value.
struct Unbound {
    why: String,
    /// When it may have one.
    again: Option<Duration>,
}

impl Unbound {
    fn lasting(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: None,
        }
    }

    fn absence(&self, name: &str) -> Absence {
        Absence {
            sentence: format!("credential `{name}` has no value at the moment: {}", self.why),
            // At least a second: less cannot be said in the header.
            retry_after_s: self.again.map(|again| again.as_secs().max(1)),
        }
    }
}

impl From<SourceError> for Unbound {
    fn from(error: SourceError) -> Self {
        let again = match &error {
            SourceError::Unavailable { again, .. } => Some(*again),
            SourceError::Pending => Some(Duration::from_secs(1)),
            _ => None,
        };
        Self {
            why: error.to_string(),
            again,
        }
    }
}

/// The value, with a placeholder of its shape among `texts`.
fn value(
    credential: &Credential,
    ground: &Ground<'_>,
    texts: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<Given, Unbound> {
    let given = match ground
        .sources
        .read((ground.session, &ground.who), &credential.from)
    {
        Err(error @ SourceError::Unavailable { .. }) => {
            stand_in_for_unseen(credential, texts)?;
            return Err(error.into());
        }
        read => read?,
    };
    let (name, value) = (&credential.name, &given.value);
    if let Some(trouble) = &given.trouble {
        warnings.push(format!(
            "credential `{name}` goes on with the value that it has: {trouble}"
        ));
    }
    if value.len() < SHORTEST_VALUE {
        return Err(Unbound::lasting(format!(
            "its value is shorter than {SHORTEST_VALUE} bytes and would be found by chance in ordinary traffic"
        )));
    }
    if value.len() > LONGEST_VALUE {
        return Err(Unbound::lasting(format!(
            "its value is longer than {LONGEST_VALUE} bytes"
        )));
    }
    if value.is_common() {
        return Err(Unbound::lasting(
            "its value is a common word or one sign repeated, which stands in ordinary traffic by chance and is guessed at once; set a \
             random one",
        ));
    }
    // TLS shows it, the agent never sees it, and its lines stand in no header: nothing needs to stand for it.
    if credential.places == [Place::ClientCertificate] {
        return Ok(given);
    }
    if credential.places.contains(&Place::AwsSigv4) {
        access_keys(value, texts).map_err(Unbound::lasting)?;
        return Ok(given);
    }
    if credential.places.contains(&Place::SshKey) {
        key(value, texts).map_err(Unbound::lasting)?;
    } else if value.has_control_characters() {
        warnings.push(format!(
            "the value of credential `{name}` has line ends or other control characters: it is looked for, but fits into no header"
        ));
    }
    if !texts.iter().any(|text| placeholder::fits(text, value)) {
        let minted = placeholder::mint(value).map_err(|error| Unbound::lasting(error.to_string()))?;
        let minted = minted.ok_or_else(|| {
            Unbound::lasting("its value has no letters or digits, or is no text: nothing can stand for it")
        })?;
        if minted.bits < ENOUGH_BITS {
            warnings.push(format!(
                "the placeholder of credential `{name}` has {:.0} random bits only and might be guessed",
                minted.bits.floor()
            ));
        }
        texts.push(minted.text);
        // Values made for one run have another shape each time. The first is what the agent was shown; those of values that are
        // forgotten stand for nothing.
        if texts.len() > ground.sources.terms().old_values + 2 {
            texts.remove(1);
        }
    }
    Ok(given)
}

/// A placeholder for what cannot be had yet, so that the agent has something that works as soon as there is a value.
fn stand_in_for_unseen(credential: &Credential, texts: &mut Vec<String>) -> Result<(), Unbound> {
    let opaque = |place: &Place| !matches!(place, Place::ClientCertificate | Place::SshKey | Place::AwsSigv4);
    if texts.is_empty() && credential.places.iter().any(opaque) {
        let minted = placeholder::mint(&Value::new(UNSEEN.to_vec()));
        let minted = minted.map_err(|error| Unbound::lasting(error.to_string()))?;
        texts.extend(minted.map(|minted| minted.text));
    }
    Ok(())
}

/// A placeholder that is a key: first among `texts`, since it is the one that is shown.
fn key(value: &Value, texts: &mut Vec<String>) -> Result<(), String> {
    if !texts.iter().any(|text| ssh::is_key_like(text, value)) {
        texts.insert(0, ssh::mint_key(value).map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// Placeholders for each part of an access key of AWS.
fn access_keys(value: &Value, texts: &mut Vec<String>) -> Result<(), String> {
    if !texts.iter().any(|text| keys::fits(text, value)) {
        texts.push(keys::mint(value)?);
    }
    Ok(())
}

fn find<'a>(secrets: &'a SessionSecrets, name: &str) -> Option<&'a Binding> {
    secrets.bindings().iter().find(|binding| binding.name == name)
}

/// The values before this one that are still looked for, the latest first.
fn old_values(earlier: Option<&Binding>, now: Option<&Arc<Value>>, terms: &Terms) -> Vec<Old> {
    let Some(earlier) = earlier else { return Vec::new() };
    let latest = earlier.value.iter().map(|value| Old {
        value: value.clone(),
        since: Instant::now(),
    });
    latest
        .chain(earlier.old_values.iter().cloned())
        .filter(|old| now.is_none_or(|now| !now.is_same(&old.value)) && old.since.elapsed() < terms.grace)
        .take(terms.old_values)
        .collect()
}

/// Credentials that the policy no longer has: their placeholders go nowhere, their values are still taken out.
fn retired(
    credentials: &[Credential],
    placeholders: &Placeholders,
    before: Option<&SessionSecrets>,
    terms: &Terms,
) -> Vec<Binding> {
    let gone = |name: &&String| !credentials.iter().any(|credential| credential.name == **name);
    placeholders
        .keys()
        .filter(gone)
        .map(|name| Binding {
            name: name.clone(),
            placeholders: placeholders[name].clone(),
            old_values: old_values(before.and_then(|before| find(before, name)), None, terms),
            ..Binding::default()
        })
        .collect()
}

fn warn_of_overlaps(bindings: &[Binding], warnings: &mut Vec<String>) {
    for outer in bindings {
        for inner in bindings.iter().filter(|inner| inner.name != outer.name) {
            if let (Some(long), Some(short)) = (&outer.value, &inner.value)
                && long.contains(short)
            {
                warnings.push(format!(
                    "the value of credential `{}` contains that of `{}`: in answers the longer one is taken out",
                    outer.name, inner.name
                ));
            }
        }
    }
}
