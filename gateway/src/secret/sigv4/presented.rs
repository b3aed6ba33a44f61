//! Signatures of AWS as a request shows them: in its head, or in its query (a link that is signed). Pure.
use super::canonical::decoded_pairs;
use http::header::{AUTHORIZATION, HeaderMap};
use http::request::Parts;

/// The one algorithm that is signed anew.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Beginning of the names of all of them.
pub(super) const FAMILY: &str = "AWS4-";
/// Ends each scope.
pub(super) const TERMINATOR: &str = "aws4_request";

/// For whom a signature is made: `DATE/REGION/SERVICE/aws4_request` without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scope {
    /// `20261130`.
    pub(super) date: String,
    pub(super) region: String,
    pub(super) service: String,
}

impl Scope {
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}/{TERMINATOR}", self.date, self.region, self.service)
    }

    /// S3 takes paths as they are; every other service reads them normalised and encoded once more.
    pub(super) fn is_s3(&self) -> bool {
        matches!(
            self.service.as_str(),
            "s3" | "s3express" | "s3-outposts" | "s3-object-lambda"
        )
    }
}

/// Where a signature stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Head,
    Query,
}

/// A signature, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) way: Way,
    pub(super) key_id: String,
    pub(super) scope: Scope,
    /// `20261130T101500Z`.
    pub(super) at: String,
    /// Names of the signed fields, lower case, as they were listed.
    pub(super) fields: Vec<String>,
    pub(super) signature: String,
}

/// The access key's id in `Authorization` and in the query, where one stands in an AWS signature there.
pub(super) fn key_ids(head: &Parts) -> Vec<(Way, String)> {
    let before_slash = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
    let in_head = authorization(&head.headers)
        .and_then(|(_, rest)| Some((Way::Head, before_slash(parameter(rest, "Credential")?))));
    let pairs = decoded_pairs(head.uri.query().unwrap_or_default());
    let in_query = pairs
        .iter()
        .find(|(name, _)| name == "X-Amz-Credential")
        .map(|(_, value)| (Way::Query, before_slash(value)));
    in_head.into_iter().chain(in_query).collect()
}

/// Takes a signature apart; in words what is wrong with it.
pub(super) fn read(way: Way, head: &Parts) -> Result<Shown, String> {
    match way {
        Way::Head => in_head(&head.headers),
        Way::Query => in_query(head.uri.query().unwrap_or_default()),
    }
}

fn in_head(headers: &HeaderMap) -> Result<Shown, String> {
    if headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return Err("there are several `authorization` fields".to_owned());
    }
    let (algorithm, rest) = authorization(headers).ok_or("there is none")?;
    known(algorithm)?;
    let part = |name: &str| parameter(rest, name).ok_or_else(|| format!("it has no `{name}`"));
    let (key_id, scope) = credential(part("Credential")?)?;
    let at = match headers.get("x-amz-date") {
        Some(at) => at.to_str().unwrap_or_default().to_owned(),
        None => return Err("there is no `x-amz-date` field".to_owned()),
    };
    checked(Shown {
        way: Way::Head,
        key_id,
        scope,
        at,
        fields: list(part("SignedHeaders")?),
        signature: part("Signature")?.to_owned(),
    })
}

fn in_query(query: &str) -> Result<Shown, String> {
    let pairs = decoded_pairs(query);
    let part = |name: &str| {
        let mut all = pairs.iter().filter(|(its, _)| its == name);
        match (all.next(), all.next()) {
            (Some((_, value)), None) => Ok(value.as_str()),
            _ => Err(format!("`{name}` does not stand in the query once")),
        }
    };
    known(part("X-Amz-Algorithm")?)?;
    let (key_id, scope) = credential(part("X-Amz-Credential")?)?;
    checked(Shown {
        way: Way::Query,
        key_id,
        scope,
        at: part("X-Amz-Date")?.to_owned(),
        fields: list(part("X-Amz-SignedHeaders")?),
        signature: part("X-Amz-Signature")?.to_owned(),
    })
}

/// Algorithm and parameters of an AWS signature.
fn authorization(headers: &HeaderMap) -> Option<(&str, &str)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    value
        .split_once(' ')
        .filter(|(algorithm, _)| algorithm.starts_with(FAMILY))
}

fn parameter<'a>(rest: &'a str, name: &str) -> Option<&'a str> {
    rest.split(',')
        .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
}

fn known(algorithm: &str) -> Result<(), String> {
    if algorithm == ALGORITHM {
        return Ok(());
    }
    Err(format!(
        "its algorithm is `{}`, and only `{ALGORITHM}` is signed anew: set the client to Signature Version 4 (with S3: no \
         multi-region access point)",
        algorithm.escape_debug()
    ))
}

/// Key id and scope of `ID/DATE/REGION/SERVICE/aws4_request`.
fn credential(text: &str) -> Result<(String, Scope), String> {
    let is_word = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match text.split('/').collect::<Vec<_>>()[..] {
        [id, date, region, service, TERMINATOR] if [date, region, service].into_iter().all(is_word) => {
            let scope = Scope {
                date: date.to_owned(),
                region: region.to_owned(),
                service: service.to_owned(),
            };
            Ok((id.to_owned(), scope))
        }
        _ => Err("its `Credential` is not `ID/DATE/REGION/SERVICE/aws4_request`".to_owned()),
    }
}

fn list(names: &str) -> Vec<String> {
    names.split(';').map(str::to_ascii_lowercase).collect()
}

fn checked(shown: Shown) -> Result<Shown, String> {
    let is_time = |text: &str| {
        text.len() == 16
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 => byte == b'T',
                15 => byte == b'Z',
                _ => byte.is_ascii_digit(),
            })
    };
    if !is_time(&shown.at) {
        return Err("its time is not written as `20261130T101500Z`".to_owned());
    }
    if !shown.fields.iter().any(|name| name == "host") {
        return Err("it does not cover `host`".to_owned());
    }
    Ok(shown)
}
