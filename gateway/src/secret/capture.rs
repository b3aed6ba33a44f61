//! Values in the answers to log-ins: found where a credential says, kept here, and a placeholder of the same shape for each.
//!
//! A token in three parts (JWT, RFC 7519) keeps its first two, which say to whom and until when it is given and prove nothing;
//! only the signature is a placeholder, so that clients which read the rest go on working. Values are kept in memory alone.
use super::places::form_decode;
use super::{Binding, LONGEST_VALUE, SHORTEST_VALUE, SessionSecrets, Value, placeholder};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use sallyport_policy::AnswerPart;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Values of one credential that are put in: as many log-ins are good at a time. The oldest goes first.
const MOST: usize = 32;
/// Values of one credential that are looked for: those that are not put in any more may still be good for somebody who sees them.
const KNOWN: usize = 8 * MOST;
/// Shortest signature that is minted alone, in bytes: more than 200 random bits.
const SIGNATURE: usize = 40;

/// Why a value in an answer cannot be kept from the agent, so that the answer must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it answers a log-in for credential `{credential}`, and {why}")]
pub struct CannotKeep {
    credential: String,
    why: String,
}

/// A credential whose values stand in an answer, and where.
pub type LogIn = (String, Vec<AnswerPart>);

/// A value that was found.
#[derive(Debug)]
pub struct Captured {
    credential: String,
    value: Value,
}

/// The values of a credential in an answer, whose body is given decoded and whole. What is not there was not given; a body in another
/// form than the credential tells of is an error where the answer says yes, since a value could stand in it all the same.
pub fn captured(
    credential: &str,
    parts: &[AnswerPart],
    (status, headers): (StatusCode, &HeaderMap),
    body: &[u8],
) -> Result<Vec<Captured>, CannotKeep> {
    let cannot = |why: String| CannotKeep {
        credential: credential.to_owned(),
        why,
    };
    let mut texts: Vec<Vec<u8>> = Vec::new();
    let (mut in_json, mut in_form) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            AnswerPart::Header(name) => {
                let values = headers.get_all(name.as_str()).into_iter();
                texts.extend(values.map(|value| value.as_bytes().to_vec()));
            }
            AnswerPart::Form(name) => in_form.push(name),
            AnswerPart::Json(pointer) => in_json.push(pointer),
        }
    }
    let tells_of_body = !in_json.is_empty() || !in_form.is_empty();
    match Form::of(headers, body) {
        Form::Nothing => {}
        Form::Json(whole) if !in_json.is_empty() => {
            for pointer in in_json {
                match whole.pointer(pointer) {
                    Some(serde_json::Value::String(text)) => texts.push(text.as_bytes().to_vec()),
                    None | Some(serde_json::Value::Null) => {}
                    Some(_) => return Err(cannot(format!("`{pointer}` in it is no string"))),
                }
            }
        }
        Form::Fields if !in_form.is_empty() => {
            let body = String::from_utf8_lossy(body);
            for name in in_form {
                let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
                let own = pairs.filter(|(its, _)| form_decode(its.as_bytes()) == name.as_bytes());
                texts.extend(own.map(|(_, value)| form_decode(value.as_bytes())));
            }
        }
        other if tells_of_body && status.is_success() => return Err(cannot(other.unexpected(&in_json))),
        _ => {}
    }
    texts.retain(|text| !text.is_empty());
    let bounds = SHORTEST_VALUE..=LONGEST_VALUE;
    if let Some(text) = texts.iter().find(|text| !bounds.contains(&text.len())) {
        let length = text.len();
        return Err(cannot(format!(
            "the value in it has {length} bytes; {SHORTEST_VALUE} to {LONGEST_VALUE} can be kept"
        )));
    }
    let captured = texts.into_iter().map(|text| Captured {
        credential: credential.to_owned(),
        value: Value::new(text),
    });
    Ok(captured.collect())
}

/// What the body of an answer is, by what is said of it and by itself: agents choose it by `Accept`.
enum Form {
    Nothing,
    Json(serde_json::Value),
    Fields,
    Other,
}

impl Form {
    fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        if body.is_empty() {
            return Self::Nothing;
        }
        let said = headers
            .get(CONTENT_TYPE)
            .and_then(|said| said.to_str().ok())
            .unwrap_or_default();
        let said = said
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        if said == "application/x-www-form-urlencoded" {
            return Self::Fields;
        }
        match serde_json::from_slice(body) {
            Ok(whole) => Self::Json(whole),
            Err(_) if matches!(said.as_str(), "" | "text/plain") => Self::Fields,
            Err(_) => Self::Other,
        }
    }

    /// Why it is none of what the credential tells of.
    fn unexpected(&self, in_json: &[&String]) -> String {
        match self {
            Self::Json(_) => "its body is JSON, where the credential says `form` alone",
            _ if in_json.is_empty() => "its body is no form",
            _ => "its body is no JSON",
        }
        .to_owned()
    }
}

impl SessionSecrets {
    /// The same with these values besides, each with a placeholder; of one credential the oldest are forgotten.
    pub fn with_captured(&self, captured: Vec<Captured>) -> Result<Self, CannotKeep> {
        let mut bindings: Vec<Binding> = self.bindings.iter().map(Binding::again).collect();
        for Captured { credential, value } in captured {
            let is_own = |binding: &Binding| binding.name == credential;
            let same = |binding: &Binding| binding.value.as_ref().is_some_and(|own| own.is_same(&value));
            if bindings.iter().any(|binding| is_own(binding) && same(binding)) {
                continue;
            }
            let cannot = |why: String| CannotKeep {
                credential: credential.clone(),
                why,
            };
            let text = mint(&value).map_err(|error| cannot(error.to_string()))?;
            let text = text.ok_or_else(|| cannot("nothing can stand for the value in it".to_owned()))?;
            let own = bindings.iter().filter(|binding| is_own(binding));
            let places = own
                .map(|own| own.places.clone())
                .find(|places| !places.is_empty());
            retire(&mut bindings, &credential);
            bindings.push(Binding::captured(
                credential,
                places.unwrap_or_default(),
                text,
                value,
            ));
        }
        Self::new(bindings).map_err(|error| CannotKeep {
            credential: String::new(),
            why: error.to_string(),
        })
    }

    /// The bindings of what was captured under a name, oldest first.
    pub fn captured_as<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Binding> {
        self.bindings
            .iter()
            .filter(move |binding| binding.name == name && binding.value.is_some())
    }

    /// The placeholders of a name that may have to be told from others later, the newest last.
    pub fn placeholders_of(&self, name: &str) -> Vec<String> {
        let own = self.bindings.iter().filter(|binding| binding.name == name);
        let texts: Vec<String> = own.flat_map(|binding| &binding.placeholders).cloned().collect();
        texts[texts.len().saturating_sub(MOST)..].to_vec()
    }
}

/// Makes room for another value of a credential: the oldest that is put in goes nowhere from now on, the oldest of all is forgotten.
fn retire(bindings: &mut Vec<Binding>, credential: &str) {
    let kept = |binding: &Binding| binding.name == credential && binding.value.is_some();
    let used = |binding: &Binding| kept(binding) && !binding.places.is_empty();
    if bindings.iter().filter(|binding| used(binding)).count() >= MOST
        && let Some(oldest) = bindings.iter_mut().find(|binding| used(binding))
    {
        oldest.places.clear();
    }
    if bindings.iter().filter(|binding| kept(binding)).count() >= KNOWN {
        let oldest = bindings.iter().position(kept);
        oldest.map(|oldest| bindings.remove(oldest));
    }
}

/// The signature of a signed token alone, with what stands for it: whoever has the placeholder has the rest.
pub(super) fn signature(value: &Value, stand_in: &str) -> Option<(Zeroizing<Vec<u8>>, String)> {
    let text = std::str::from_utf8(value.bytes())
        .ok()
        .filter(|text| is_token(text))?;
    let ((claims, signature), (same, minted)) = (text.rsplit_once('.')?, stand_in.rsplit_once('.')?);
    (claims == same).then(|| (Zeroizing::new(signature.as_bytes().to_vec()), minted.to_owned()))
}

impl Binding {
    fn captured(name: String, places: Vec<sallyport_policy::Place>, text: String, value: Value) -> Self {
        Self {
            name,
            places,
            placeholders: vec![text],
            value: Some(Arc::new(value)),
            ..Self::default()
        }
    }

    /// The same binding; its values are shared.
    pub fn again(&self) -> Self {
        Self {
            name: self.name.clone(),
            places: self.places.clone(),
            placeholders: self.placeholders.clone(),
            value: self.value.clone(),
            until: self.until.clone(),
            absence: self.absence.clone(),
            old_values: self.old_values.clone(),
        }
    }
}

/// A placeholder of a value's shape.
fn mint(value: &Value) -> Result<Option<String>, placeholder::NoRandomness> {
    let text = std::str::from_utf8(value.bytes()).unwrap_or_default();
    let Some((claims, signature)) = text.rsplit_once('.').filter(|_| is_token(text)) else {
        return Ok(placeholder::mint(value)?.map(|minted| minted.text));
    };
    let minted = placeholder::mint(&Value::new(signature.as_bytes().to_vec()))?;
    Ok(minted.map(|minted| format!("{claims}.{}", minted.text)))
}

/// Whether a text is a signed JSON Web Token (RFC 7515 section 7.1) whose signature is long enough to be a secret alone.
fn is_token(text: &str) -> bool {
    let [header, claims, signature] = text.split('.').collect::<Vec<_>>()[..] else {
        return false;
    };
    let is_object = |part: &str| {
        let decoded = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&decoded).is_ok()
    };
    signature.len() >= SIGNATURE && is_object(header) && is_object(claims)
}

#[cfg(test)]
mod tests;
