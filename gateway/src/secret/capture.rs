//! Values in the answers to log-ins: found where a credential says, kept here, and a placeholder of the same shape for each.
//!
//! A token in three parts (JWT, RFC 7519) keeps its first two, which say to whom and until when it is given and prove nothing;
//! only the signature is a placeholder, so that clients which read the rest go on working. Values are kept in memory alone.
use super::places::form_decode;
use super::{Binding, LONGEST_VALUE, SHORTEST_VALUE, SessionSecrets, Value, placeholder};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use sallyport_policy::AnswerPart;
use std::sync::Arc;

/// Values of one credential that are kept in a session: as many log-ins are good at a time. The oldest goes first.
const MOST: usize = 32;
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

/// The values of a credential in an answer, whose body is given decoded and whole. What is not there was not given.
pub fn captured(
    credential: &str,
    parts: &[AnswerPart],
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Vec<Captured>, CannotKeep> {
    let cannot = |why: String| CannotKeep {
        credential: credential.to_owned(),
        why,
    };
    let mut texts: Vec<Vec<u8>> = Vec::new();
    let mut json = None;
    for part in parts {
        match part {
            AnswerPart::Header(name) => {
                let values = headers.get_all(name.as_str()).into_iter();
                texts.extend(values.map(|value| value.as_bytes().to_vec()));
            }
            AnswerPart::Form(name) => {
                let body = String::from_utf8_lossy(body);
                let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
                let own = pairs.filter(|(its, _)| form_decode(its.as_bytes()) == name.as_bytes());
                texts.extend(own.map(|(_, value)| form_decode(value.as_bytes())));
            }
            AnswerPart::Json(_) if body.is_empty() => {}
            AnswerPart::Json(pointer) => {
                let whole = match json.take() {
                    Some(whole) => whole,
                    None => serde_json::from_slice::<serde_json::Value>(body)
                        .map_err(|_| cannot("its body is no JSON".to_owned()))?,
                };
                match whole.pointer(pointer) {
                    Some(serde_json::Value::String(text)) => texts.push(text.as_bytes().to_vec()),
                    None | Some(serde_json::Value::Null) => {}
                    Some(_) => return Err(cannot(format!("`{pointer}` in it is no string"))),
                }
                json = Some(whole);
            }
        }
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
            let places = bindings
                .iter()
                .find(|binding| is_own(binding))
                .map(|binding| binding.places.clone());
            let kept = bindings
                .iter()
                .filter(|binding| is_own(binding) && binding.value.is_some())
                .count();
            if kept >= MOST {
                let oldest = bindings
                    .iter()
                    .position(|binding| is_own(binding) && binding.value.is_some());
                oldest.map(|oldest| bindings.remove(oldest));
            }
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
mod tests {
    use super::*;
    use crate::secret::testing;

    const JWT: &str =
        "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjE4MDAwMDAwMDB9.Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8UvWxAb3dEf6hIj";

    fn parts() -> [AnswerPart; 4] {
        [
            AnswerPart::Json("/token".into()),
            AnswerPart::Json("/deep/access_token".into()),
            AnswerPart::Header("x-session".into()),
            AnswerPart::Form("refresh_token".into()),
        ]
    }

    fn of(parts: &[AnswerPart], body: &str) -> Result<Vec<String>, CannotKeep> {
        let mut headers = HeaderMap::new();
        headers.insert("x-session", "of-the-header".parse().unwrap());
        let all = captured("token", parts, &headers, body.as_bytes())?;
        Ok(all
            .iter()
            .map(|one| String::from_utf8_lossy(one.value.bytes()).into_owned())
            .collect())
    }

    #[test]
    fn values_are_found_where_the_credential_says() {
        let [token, deep, header, form] = parts();
        let body =
            r#"{"token": "of-the-body", "deep": {"access_token": "deep\u002fdown"}, "expires_in": 300}"#;
        assert_eq!(
            of(&[token.clone(), deep], body).unwrap(),
            ["of-the-body", "deep/down"]
        );
        assert_eq!(of(&[header], "").unwrap(), ["of-the-header"]);
        assert_eq!(
            of(&[form], "scope=a&refresh_token=of+the%2fform").unwrap(),
            ["of the/form"]
        );
        assert_eq!(
            of(
                std::slice::from_ref(&token),
                "{\"error\": \"x\", \"token\": null}"
            )
            .unwrap(),
            [""; 0]
        );
        for (body, why) in [
            ("<html>", "no JSON"),
            ("{\"token\": 7}", "no string"),
            ("{\"token\": \"short\"}", "5 bytes"),
        ] {
            let fault = of(std::slice::from_ref(&token), body).unwrap_err().to_string();
            assert!(
                fault.contains(why) && fault.contains("`token`") && !fault.contains("short"),
                "{fault}"
            );
        }
    }

    fn holding(values: &[&str]) -> SessionSecrets {
        let base = Binding {
            placeholders: Vec::new(),
            value: None,
            ..testing::bound("token", testing::SECRET)
        };
        let captured = values.iter().map(|value| Captured {
            credential: "token".into(),
            value: Value::new(value.as_bytes().to_vec()),
        });
        let secrets = SessionSecrets::new(vec![base]).unwrap();
        secrets.with_captured(captured.collect()).unwrap()
    }

    #[test]
    fn a_web_token_keeps_what_it_says_and_loses_its_signature() {
        let secrets = holding(&[JWT]);
        let text = &secrets.bindings()[1].placeholders[0];
        let (claims, signature) = JWT.rsplit_once('.').unwrap();
        assert!(
            text.starts_with(&format!("{claims}.")) && !text.contains(signature),
            "{text}"
        );
        assert_eq!(text.len(), JWT.len());
        assert!(!is_token("a.b.c") && !is_token("www.example.test"));
    }

    #[test]
    fn one_value_has_one_placeholder_and_the_oldest_goes_first() {
        let values: Vec<String> = (0..MOST + 3)
            .map(|number| format!("token-number-{number:04}"))
            .collect();
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        let secrets = holding(&texts);
        assert_eq!(secrets.captured_as("token").count(), MOST);
        let is_known = |value: &str| secrets.redactor().unwrap().passes(value.as_bytes());
        assert!(is_known(&values[2]) && !is_known(&values[3]) && !is_known(&values[MOST + 2]));
        assert_eq!(secrets.placeholders_of("token").len(), MOST);
        let twice = holding(&[texts[0], texts[0]]);
        assert_eq!(twice.captured_as("token").count(), 1);
    }
}
