//! What two ends agree on about compression (RFC 7692 section 7.1): offers and the answer, in the forms understood here. Pure.
use http::header::SEC_WEBSOCKET_EXTENSIONS;
use http::{HeaderMap, HeaderValue};
use std::fmt;

/// The extension's name.
const NAME: &str = "permessage-deflate";

/// One offer, or the answer to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// In an offer also without a number.
    client_max_window_bits: Option<Option<u8>>,
}

/// How one side compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    /// Size of its window, as a power of two: 8 to 15.
    pub window_bits: u8,
    /// Whether its window lives on from message to message.
    pub takeover: bool,
}

impl Terms {
    /// How the client compresses under this answer.
    pub fn client(&self) -> Coding {
        Coding {
            window_bits: self.client_max_window_bits.flatten().unwrap_or(15),
            takeover: !self.client_no_context_takeover,
        }
    }

    /// How the server compresses under this answer.
    pub fn server(&self) -> Coding {
        Coding {
            window_bits: self.server_max_window_bits.unwrap_or(15),
            takeover: !self.server_no_context_takeover,
        }
    }

    /// Whether this may be the answer to an offer (RFC 7692 sections 7.1.1 and 7.1.2).
    fn answers(&self, offer: &Self) -> bool {
        let within = |answer: Option<u8>, offer: Option<u8>| {
            offer.is_none_or(|most| answer.is_some_and(|bits| bits <= most))
        };
        let client = match (self.client_max_window_bits, offer.client_max_window_bits) {
            (None, _) => true,
            (Some(None), _) | (Some(Some(_)), None) => false,
            (Some(Some(bits)), Some(most)) => most.is_none_or(|most| bits <= most),
        };
        client
            && within(self.server_max_window_bits, offer.server_max_window_bits)
            && (self.server_no_context_takeover || !offer.server_no_context_takeover)
    }

    /// Reads the parameters; none where there is one that is not understood, or stands twice.
    fn read<'a>(parameters: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut terms = Self::default();
        for parameter in parameters {
            let (name, value) = match parameter.split_once('=') {
                Some((name, value)) => (name.trim(), Some(bits(value.trim())?)),
                None => (parameter.trim(), None),
            };
            let flag = |flag: &mut bool| (value.is_none() && !std::mem::replace(flag, true)).then_some(());
            match name.to_ascii_lowercase().as_str() {
                "server_no_context_takeover" => flag(&mut terms.server_no_context_takeover)?,
                "client_no_context_takeover" => flag(&mut terms.client_no_context_takeover)?,
                "server_max_window_bits" if terms.server_max_window_bits.is_none() => {
                    terms.server_max_window_bits = Some(value?);
                }
                "client_max_window_bits" if terms.client_max_window_bits.is_none() => {
                    terms.client_max_window_bits = Some(value);
                }
                _ => return None,
            }
        }
        Some(terms)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        if self.server_no_context_takeover {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.client_no_context_takeover {
            f.write_str("; client_no_context_takeover")?;
        }
        if let Some(bits) = self.server_max_window_bits {
            write!(f, "; server_max_window_bits={bits}")?;
        }
        match self.client_max_window_bits {
            Some(Some(bits)) => write!(f, "; client_max_window_bits={bits}"),
            Some(None) => f.write_str("; client_max_window_bits"),
            None => Ok(()),
        }
    }
}

/// 8 to 15, as a token or quoted.
fn bits(text: &str) -> Option<u8> {
    let digits = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let bits: u8 = digits.parse().ok().filter(|bits| (8..=15).contains(bits))?;
    (bits.to_string() == digits).then_some(bits)
}

/// The items of a field, each with its name and what is after it; none where it holds quoted text that could hide a comma.
fn items(headers: &HeaderMap) -> Option<Vec<(&str, Vec<&str>)>> {
    let mut found = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_EXTENSIONS) {
        let text = value.to_str().ok()?;
        let mut quoted = text.split('"').skip(1).step_by(2);
        if !quoted.all(|inner| inner.bytes().all(|byte| byte.is_ascii_digit())) {
            return None;
        }
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let mut parts = item.split(';').map(str::trim);
            found.push((parts.next().unwrap_or_default(), parts.collect()));
        }
    }
    Some(found)
}

/// The offers that are understood, in the client's order. Others are left aside, as an answer may always do.
pub fn offers(headers: &HeaderMap) -> Vec<Terms> {
    let items = items(headers).unwrap_or_default();
    items
        .into_iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(NAME))
        .filter_map(|(_, parameters)| Terms::read(parameters.into_iter()))
        .collect()
}

/// Offers as a field's value; none where there are none.
pub fn field(offers: &[Terms]) -> Option<HeaderValue> {
    let texts: Vec<String> = offers.iter().map(Terms::to_string).collect();
    HeaderValue::try_from(texts.join(", "))
        .ok()
        .filter(|value| !value.is_empty())
}

/// What an upstream's answer agrees to, which must be one of the offers or nothing. The error says what is wrong with it.
pub fn agreed(headers: &HeaderMap, offers: &[Terms]) -> Result<Option<Terms>, String> {
    let foreign = || "it chose a WebSocket extension that was not offered".to_owned();
    let items = items(headers).ok_or_else(foreign)?;
    let (name, parameters) = match items.as_slice() {
        [] => return Ok(None),
        [one] => one,
        _ => return Err(foreign()),
    };
    if !name.eq_ignore_ascii_case(NAME) {
        return Err(foreign());
    }
    Terms::read(parameters.iter().copied())
        .filter(|terms| offers.iter().any(|offer| terms.answers(offer)))
        .map(Some)
        .ok_or_else(|| format!("its terms for `{NAME}` were not offered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(text: &str) -> HeaderMap {
        let value = HeaderValue::from_str(text).unwrap();
        [(SEC_WEBSOCKET_EXTENSIONS, value)].into_iter().collect()
    }

    #[test]
    fn only_offers_in_known_forms_are_passed_on() {
        for (offered, passed) in [
            (
                "permessage-deflate; client_max_window_bits",
                "permessage-deflate; client_max_window_bits",
            ),
            (
                "permessage-deflate;client_max_window_bits=\"10\"",
                "permessage-deflate; client_max_window_bits=10",
            ),
            ("x-other, Permessage-Deflate", "permessage-deflate"),
            (
                "permessage-deflate; mux, permessage-deflate; server_max_window_bits=9",
                "permessage-deflate; server_max_window_bits=9",
            ),
            ("permessage-deflate; server_max_window_bits", ""),
            ("permessage-deflate; server_max_window_bits=16", ""),
            ("permessage-deflate; server_max_window_bits=09", ""),
            (
                "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
                "",
            ),
            ("permessage-deflate; server_no_context_takeover=8", ""),
            ("x-other; a=\"b, permessage-deflate , c\"", ""),
        ] {
            let field = field(&offers(&headers(offered)));
            assert_eq!(
                field.as_ref().map_or("", |value| value.to_str().unwrap()),
                passed,
                "{offered}"
            );
        }
    }

    #[test]
    fn an_answer_must_stay_within_an_offer() {
        for (offered, answered, right) in [
            ("permessage-deflate", "permessage-deflate", true),
            (
                "permessage-deflate",
                "permessage-deflate; server_max_window_bits=10; client_no_context_takeover",
                true,
            ),
            (
                "permessage-deflate",
                "permessage-deflate; client_max_window_bits=10",
                false,
            ),
            (
                "permessage-deflate; client_max_window_bits",
                "permessage-deflate; client_max_window_bits=10",
                true,
            ),
            (
                "permessage-deflate; client_max_window_bits=9",
                "permessage-deflate; client_max_window_bits=10",
                false,
            ),
            (
                "permessage-deflate; client_max_window_bits",
                "permessage-deflate; client_max_window_bits",
                false,
            ),
            (
                "permessage-deflate; server_max_window_bits=10",
                "permessage-deflate",
                false,
            ),
            (
                "permessage-deflate; server_no_context_takeover",
                "permessage-deflate",
                false,
            ),
            ("permessage-deflate", "x-other", false),
            (
                "permessage-deflate",
                "permessage-deflate, permessage-deflate",
                false,
            ),
        ] {
            let agreed = agreed(&headers(answered), &offers(&headers(offered)));
            assert_eq!(agreed.is_ok(), right, "{offered} / {answered}: {agreed:?}");
        }
        assert_eq!(agreed(&HeaderMap::new(), &[]), Ok(None));
        let terms = agreed(
            &headers("permessage-deflate; client_max_window_bits=10; server_no_context_takeover"),
            &offers(&headers("permessage-deflate; client_max_window_bits")),
        );
        let terms = terms.unwrap().unwrap();
        assert_eq!(
            terms.client(),
            Coding {
                window_bits: 10,
                takeover: true
            }
        );
        assert_eq!(
            terms.server(),
            Coding {
                window_bits: 15,
                takeover: false
            }
        );
    }
}
