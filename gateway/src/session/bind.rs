//! Binding: a policy's credentials with their values and placeholders.
use crate::secret::placeholder::{self, ENOUGH_BITS};
use crate::secret::sigv4::keys;
use crate::secret::ssh;
use crate::secret::{Binding, LONGEST_VALUE, SHORTEST_VALUE, SessionSecrets, Sources, Value};
use sallyport_policy::{Credential, Place};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values before the one in force that are still looked for.
const OLD_VALUES: usize = 4;

/// Placeholders by credential's name; the first is the one shown.
pub(super) type Placeholders = BTreeMap<String, Vec<String>>;

/// A session's bindings, with the placeholders to keep and warnings for people.
pub(super) struct Bound {
    pub(super) secrets: SessionSecrets,
    pub(super) placeholders: Placeholders,
    pub(super) warnings: Vec<String>,
}

/// Reads values and mints what placeholders are missing. What is missing or unfit is a warning: the session works without.
pub(super) fn bind(
    credentials: &[Credential],
    sources: &Sources,
    mut placeholders: Placeholders,
    before: Option<&SessionSecrets>,
) -> Result<Bound, String> {
    let mut warnings = Vec::new();
    let mut bindings = Vec::new();
    for credential in credentials {
        let texts = placeholders.entry(credential.name.clone()).or_default();
        let value = match value(credential, sources, texts, &mut warnings) {
            Ok(value) => Some(value),
            Err(why) => {
                warnings.push(format!("credential `{}` is not bound: {why}", credential.name));
                None
            }
        };
        let earlier = before.and_then(|before| find(before, &credential.name));
        bindings.push(Binding {
            name: credential.name.clone(),
            places: credential.places.clone(),
            placeholders: texts.clone(),
            old_values: old_values(earlier, value.as_ref()),
            value,
        });
    }
    placeholders.retain(|_, texts| !texts.is_empty());
    bindings.extend(retired(credentials, &placeholders, before));
    warn_of_overlaps(&bindings, &mut warnings);
    let secrets = SessionSecrets::new(bindings).map_err(|error| error.to_string())?;
    warnings.extend(secrets.identity_faults().map(|(credential, why)| {
        format!("the client certificate of credential `{credential}` cannot be used: {why}")
    }));
    Ok(Bound {
        secrets,
        placeholders,
        warnings,
    })
}

/// The value, with a placeholder of its shape among `texts`.
fn value(
    credential: &Credential,
    sources: &Sources,
    texts: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<Arc<Value>, String> {
    let value = sources
        .read(&credential.from)
        .map_err(|error| error.to_string())?;
    let name = &credential.name;
    if value.len() < SHORTEST_VALUE {
        return Err(format!(
            "its value is shorter than {SHORTEST_VALUE} bytes and would be found by chance in ordinary traffic"
        ));
    }
    if value.len() > LONGEST_VALUE {
        return Err(format!("its value is longer than {LONGEST_VALUE} bytes"));
    }
    // TLS shows it, the agent never sees it, and its lines stand in no header: nothing needs to stand for it.
    if credential.places == [Place::ClientCertificate] {
        return Ok(Arc::new(value));
    }
    if credential.places.contains(&Place::AwsSigv4) {
        access_keys(&value, texts)?;
        return Ok(Arc::new(value));
    }
    if credential.places.contains(&Place::SshKey) {
        key(&value, texts)?;
    } else if value.has_control_characters() {
        warnings.push(format!(
            "the value of credential `{name}` has line ends or other control characters: it is looked for, but fits into no header"
        ));
    }
    if !texts.iter().any(|text| placeholder::fits(text, &value)) {
        let minted = placeholder::mint(&value).map_err(|error| error.to_string())?;
        let minted =
            minted.ok_or("its value has no letters or digits, or is no text: nothing can stand for it")?;
        if minted.bits < ENOUGH_BITS {
            warnings.push(format!(
                "the placeholder of credential `{name}` has {:.0} random bits only and might be guessed",
                minted.bits.floor()
            ));
        }
        texts.push(minted.text);
    }
    Ok(Arc::new(value))
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

/// The values before this one, the latest first.
fn old_values(earlier: Option<&Binding>, now: Option<&Arc<Value>>) -> Vec<Arc<Value>> {
    let Some(earlier) = earlier else { return Vec::new() };
    let all = earlier.value.iter().chain(&earlier.old_values);
    all.filter(|old| now.is_none_or(|now| !now.is_same(old)))
        .take(OLD_VALUES)
        .cloned()
        .collect()
}

/// Credentials that the policy no longer has: their placeholders go nowhere, their values are still taken out.
fn retired(
    credentials: &[Credential],
    placeholders: &Placeholders,
    before: Option<&SessionSecrets>,
) -> Vec<Binding> {
    let gone = |name: &&String| !credentials.iter().any(|credential| credential.name == **name);
    placeholders
        .keys()
        .filter(gone)
        .map(|name| Binding {
            name: name.clone(),
            places: Vec::new(),
            placeholders: placeholders[name].clone(),
            value: None,
            old_values: old_values(before.and_then(|before| find(before, name)), None),
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
