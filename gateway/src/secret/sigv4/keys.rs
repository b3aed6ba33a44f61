//! The access keys of AWS that a secret holds, and placeholders for each of their parts.
use crate::secret::{LONGEST_VALUE, SHORTEST_VALUE, Value, placeholder};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Longest id of an access key (IAM API reference, `AccessKey`). Servers that speak S3 have shorter ones than AWS.
const LONGEST_ID: usize = 128;
/// Leading bytes of an id that tell its kind: `AKIA` lasts, `ASIA` is temporary (IAM identifiers).
const KIND_BYTES: usize = 4;

const ID_NAMES: [&str; 3] = ["aws_access_key_id", "AccessKeyId", "access_key"];
const SECRET_NAMES: [&str; 3] = ["aws_secret_access_key", "SecretAccessKey", "secret_key"];
const TOKEN_NAMES: [&str; 5] = [
    "aws_session_token",
    "SessionToken",
    "session_token",
    "security_token",
    "Token",
];

/// Why a secret holds no access keys. The operator's to mend; says nothing of what it holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it holds no access key of AWS: {0}; write the lines of a credentials file (`aws_access_key_id = ...`, \
     `aws_secret_access_key = ...`, and `aws_session_token = ...` where there is one) or the same names as JSON"
)]
pub struct KeysFault(&'static str);

/// An access key: real, or of placeholders.
pub(in crate::secret) struct Keys {
    /// Of the access key; no secret by itself, but told to nobody either.
    pub(in crate::secret) id: Zeroizing<String>,
    pub(in crate::secret) secret: Zeroizing<String>,
    /// Of temporary keys.
    pub(in crate::secret) token: Option<Zeroizing<String>>,
}

impl Keys {
    /// Reads the lines of a credentials file (of its first profile), or the JSON that AWS's tools and Vault write.
    pub(in crate::secret) fn read(value: &Value) -> Result<Self, KeysFault> {
        let text = std::str::from_utf8(value.bytes()).map_err(|_| KeysFault("it is no text"))?;
        let mut fields = match text.trim_start().starts_with('{') {
            true => of_json(text)?,
            false => of_lines(text),
        };
        let mut take = |names: &[&str]| names.iter().find_map(|name| fields.remove(*name));
        let keys = Self {
            id: take(&ID_NAMES).ok_or(KeysFault("there is no `aws_access_key_id`"))?,
            secret: take(&SECRET_NAMES).ok_or(KeysFault("there is no `aws_secret_access_key`"))?,
            token: take(&TOKEN_NAMES).filter(|token| !token.is_empty()),
        };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !(SHORTEST_VALUE..=LONGEST_ID).contains(&keys.id.len()) || !keys.id.bytes().all(is_word) {
            return Err(KeysFault("its `aws_access_key_id` has not the form of one"));
        }
        let fits = |text: &Zeroizing<String>| {
            (SHORTEST_VALUE..=LONGEST_VALUE).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !fits(&keys.secret) || !keys.token.as_ref().is_none_or(fits) {
            return Err(KeysFault("its secret or its token has not the form of one"));
        }
        Ok(keys)
    }

    /// Each part, in one order.
    pub(in crate::secret) fn parts(&self) -> impl Iterator<Item = &Zeroizing<String>> {
        [&self.id, &self.secret].into_iter().chain(&self.token)
    }

    /// Whether placeholders stand for these keys: the same parts, each of the same shape.
    fn fit(&self, real: &Self) -> bool {
        let value = |part: &Zeroizing<String>| Value::new(part.as_bytes().to_vec());
        self.parts().count() == real.parts().count()
            && self
                .parts()
                .zip(real.parts())
                .all(|(mine, its)| placeholder::fits(mine, &value(its)))
    }
}

/// Whether a text of placeholders, as [`mint`] makes it, stands for the keys that a value holds.
pub fn fits(text: &str, value: &Value) -> bool {
    let held = Keys::read(&Value::new(text.as_bytes().to_vec()));
    matches!((held, Keys::read(value)), (Ok(held), Ok(real)) if held.fit(&real))
}

/// Placeholders for the keys that a value holds, in the form of the same secret: JSON with the names of a credentials file.
pub fn mint(value: &Value) -> Result<String, String> {
    let real = Keys::read(value).map_err(|fault| fault.to_string())?;
    let (kind, rest) = real.id.split_at(KIND_BYTES);
    let mut fields = BTreeMap::from([
        (ID_NAMES[0], format!("{kind}{}", part(rest)?)),
        (SECRET_NAMES[0], part(&real.secret)?),
    ]);
    if let Some(token) = &real.token {
        fields.insert(TOKEN_NAMES[0], part(token)?);
    }
    serde_json::to_string(&fields).map_err(|error| error.to_string())
}

/// What the agent holds, from a text that [`mint`] made: the end of a variable's name, and the placeholder.
pub fn shown(text: &str) -> Vec<(&'static str, String)> {
    let Ok(held) = Keys::read(&Value::new(text.as_bytes().to_vec())) else {
        return Vec::new();
    };
    let ends = ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"];
    let texts = held.parts().map(|part| part.as_str().to_owned());
    ends.into_iter().zip(texts).collect()
}

/// Each part of the keys that a value holds, with what stands for it in a text that [`mint`] made.
pub(in crate::secret) fn parts(value: &Value, text: &str) -> Vec<(Zeroizing<Vec<u8>>, String)> {
    let held = Keys::read(&Value::new(text.as_bytes().to_vec()));
    let (Ok(real), Ok(held)) = (Keys::read(value), held) else {
        return Vec::new();
    };
    let parts = real.parts().zip(held.parts());
    parts
        .map(|(real, held)| (Zeroizing::new(real.as_bytes().to_vec()), held.as_str().to_owned()))
        .collect()
}

fn part(real: &str) -> Result<String, String> {
    let minted =
        placeholder::mint(&Value::new(real.as_bytes().to_vec())).map_err(|error| error.to_string())?;
    let minted =
        minted.ok_or("a part of its access key has no letters or digits: nothing can stand for it")?;
    Ok(minted.text)
}

type Fields = BTreeMap<String, Zeroizing<String>>;

/// The texts of a flat object; whatever else stands there is not looked at.
fn of_json(text: &str) -> Result<Fields, KeysFault> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Field {
        Text(String),
        Other(IgnoredAny),
    }
    let fields: BTreeMap<String, Field> =
        serde_json::from_str(text).map_err(|_| KeysFault("it begins as JSON and is none"))?;
    let texts = fields.into_iter().filter_map(|(name, field)| match field {
        Field::Text(text) => Some((name, Zeroizing::new(text))),
        Field::Other(IgnoredAny) => None,
    });
    Ok(texts.collect())
}

/// The first profile of a credentials file.
fn of_lines(text: &str) -> Fields {
    let mut fields = Fields::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') && !fields.is_empty() {
            break;
        }
        if let Some((name, value)) = line
            .split_once('=')
            .filter(|_| !line.starts_with(['#', ';', '[']))
        {
            let value = Zeroizing::new(value.trim().to_owned());
            fields.entry(name.trim().to_owned()).or_insert(value);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn value(text: &str) -> Value {
        Value::new(text.as_bytes().to_vec())
    }

    #[test]
    fn keys_are_read_as_each_tool_writes_them() {
        for text in [
            format!(
                "[default]\r\naws_access_key_id = {ID}\r\naws_secret_access_key={SECRET}\r\n[other]\naws_access_key_id = x"
            ),
            format!("# mine\naws_secret_access_key = {SECRET}\naws_access_key_id = {ID}\nregion = eu-test-1"),
            format!(
                "{{\"Version\": 1, \"AccessKeyId\": \"{ID}\", \"SecretAccessKey\": \"{SECRET}\", \"Expiration\": null}}"
            ),
            format!("{{\"access_key\": \"{ID}\", \"secret_key\": \"{SECRET}\", \"security_token\": null}}"),
        ] {
            let keys = Keys::read(&value(&text)).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!((keys.id.as_str(), keys.secret.as_str()), (ID, SECRET));
            assert!(keys.token.is_none());
        }
        let text = format!(
            "{{\"AccessKeyId\":\"{ID}\",\"SecretAccessKey\":\"{SECRET}\",\"SessionToken\":\"FwoGZXIvYXdzEBYaD/+=\"}}"
        );
        assert_eq!(
            Keys::read(&value(&text)).unwrap().token.unwrap().as_str(),
            "FwoGZXIvYXdzEBYaD/+="
        );
    }

    #[test]
    fn what_is_no_access_key_is_told_without_saying_it() {
        for text in [
            "hunter2hunter2hunter2".to_owned(),
            format!("aws_access_key_id = {ID}"),
            format!("aws_access_key_id = short\naws_secret_access_key = {SECRET}"),
            format!("aws_access_key_id = {ID}\naws_secret_access_key = two words of a secret"),
            format!("{{\"AccessKeyId\": \"{ID}\""),
        ] {
            let fault = Keys::read(&value(&text)).err().unwrap().to_string();
            assert!(
                !fault.contains("hunter") && !fault.contains(ID) && !fault.contains(SECRET),
                "{fault}"
            );
        }
    }

    #[test]
    fn placeholders_have_the_form_of_keys_and_fit_them() {
        let real = value(&format!("aws_access_key_id={ID}\naws_secret_access_key={SECRET}"));
        let text = mint(&real).unwrap();
        assert!(fits(&text, &real));
        let shown = shown(&text);
        assert_eq!(shown.len(), 2);
        assert!(
            shown[0].1.starts_with("AKIA") && shown[0].1 != ID && shown[1].1 != SECRET,
            "{shown:?}"
        );
        let temporary = value(&format!(
            "{{\"AccessKeyId\":\"{ID}\",\"SecretAccessKey\":\"{SECRET}\",\"SessionToken\":\"FwoGZXIvYXdzEBYaD\"}}"
        ));
        assert!(!fits(&text, &temporary), "a token more");
    }
}
