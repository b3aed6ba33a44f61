//! AWS Signature Version 4: a request that was signed with placeholder keys is signed anew with the real ones.
//!
//! The agent's signature must be right by the placeholder of the secret key, so that nothing is signed that whoever holds
//! the placeholders did not sign; its time may be any, since clocks of machines are wrong and a placeholder's signature is
//! good here alone. Region, service and signed fields are the agent's; the time is the gateway's, and a session token is
//! put in, covered. Chunks that carry signatures are signed anew one by one. Not done: SigV4A, and signatures in bodies.
use super::leak::Leak;
use super::{Binding, SessionSecrets, Value};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use jiff::Timestamp;
use keys::Keys;
use presented::{ALGORITHM, Scope, Shown, Way};
use sallyport_policy::{Permit, Place};
use std::fmt;
use zeroize::Zeroizing;

mod canonical;
mod chain;
mod chunks;
pub mod keys;
mod presented;

use chain::{Chain, same};
pub use chunks::{ChunkFault, ChunkSigner};

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
/// The parameters of a signed link that hold a placeholder, and become real with it.
const PARAMETERS: [&str; 2] = ["X-Amz-Credential", "X-Amz-Security-Token"];
const CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const CHUNKS_AND_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// A session's access keys under one credential.
pub(super) struct Bound {
    /// Index of the binding.
    owner: usize,
    /// Of placeholders; the first is shown.
    held: Vec<Keys>,
    real: Option<Keys>,
}

/// A signature made with placeholders, as it came: over what the agent sent, before anything of it was changed.
pub struct Presented {
    credential: String,
    shown: Shown,
    canonical: Zeroizing<Vec<u8>>,
    /// What stands for the payload in the signature; none where it is the hash of the whole body.
    payload: Option<String>,
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// Under what a request is signed anew.
#[derive(Debug)]
pub struct Signing<'a> {
    /// The right to send it.
    pub permit: &'a Permit,
    /// Whether it leaves encrypted.
    pub tls: bool,
    /// `Host` as it will be sent.
    pub host: &'a str,
    /// The gateway's clock.
    pub now: Timestamp,
    /// Most bytes of one signed chunk.
    pub chunk_bytes: usize,
}

/// The access keys among bindings.
pub(super) fn bound(bindings: &[Binding]) -> Vec<Bound> {
    let keys = |text: &[u8]| Keys::read(&Value::new(text.to_vec())).ok();
    let of_keys = |(_, binding): &(usize, &Binding)| binding.places.contains(&Place::AwsSigv4);
    bindings
        .iter()
        .enumerate()
        .filter(of_keys)
        .map(|(owner, binding)| Bound {
            owner,
            held: binding
                .placeholders
                .iter()
                .filter_map(|text| keys(text.as_bytes()))
                .collect(),
            real: binding.value.as_ref().and_then(|value| Keys::read(value).ok()),
        })
        .collect()
}

/// Whether a placeholder of access keys may stand here until the request is signed anew.
pub(super) fn is_field(name: &HeaderName, value: &[u8]) -> bool {
    *name == TOKEN || *name == AUTHORIZATION && value.starts_with(presented::FAMILY.as_bytes())
}

/// The same of a query parameter.
pub(super) fn is_parameter(name: &str) -> bool {
    PARAMETERS.contains(&name)
}

impl Presented {
    /// Whether the hash of the whole body is a part of what is signed, and stands nowhere in the head.
    pub fn wants_hash(&self) -> bool {
        self.payload.is_none()
    }

    /// Gives it the body it came with.
    pub fn with_body<'a>(mut self, pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut whole = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        pieces.for_each(|piece| whole.update(piece));
        self.payload = Some(chain::hex(whole.finish().as_ref()));
        self
    }

    /// Refused, in words.
    pub fn refused(&self, why: &str) -> Leak {
        leak(&self.credential, why)
    }
}

impl SessionSecrets {
    /// The signature in a head that was made with placeholders of this session; none where there is none. To be asked
    /// before anything in the head is changed. A [`Leak`] where it cannot be signed anew.
    pub fn presented(&self, head: &Parts) -> Result<Option<Presented>, Leak> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let mut ours = presented::key_ids(head)
            .into_iter()
            .filter_map(|(way, id)| Some((way, self.held(&id)?.0)));
        let Some((way, bound)) = ours.next() else {
            return Ok(None);
        };
        let credential = self.bindings[bound.owner].name.clone();
        if ours.next().is_some() {
            return Err(leak(&credential, "it has one in its query and one in its head"));
        }
        let shown = presented::read(way, head).map_err(|why| leak(&credential, &why))?;
        let host = head
            .headers
            .get(http::header::HOST)
            .and_then(|host| host.to_str().ok());
        let host = host.or(head.uri.authority().map(http::uri::Authority::as_str));
        let canonical = canonical::request(head, host.unwrap_or_default(), &shown.scope, &shown.fields);
        let given = head
            .headers
            .get(&CONTENT_HASH)
            .and_then(|hash| hash.to_str().ok());
        let payload = match (given, way) {
            (Some(given), _) => Some(given.to_owned()),
            (None, Way::Query) if shown.scope.is_s3() => Some(UNSIGNED.to_owned()),
            (None, _) => None,
        };
        Ok(Some(Presented {
            credential,
            shown,
            canonical,
            payload,
        }))
    }

    /// Signs a head anew, once everything else in it is as it will be sent. Gives the name of the credential and, for a body
    /// whose chunks carry signatures, who signs those. Without a signature of ours nothing may be left of its placeholders.
    pub fn sign_anew(
        &self,
        presented: Option<&Presented>,
        signing: &Signing<'_>,
        head: &mut Parts,
    ) -> Result<Option<(String, Option<ChunkSigner>)>, Leak> {
        let Some(presented) = presented else {
            return self.refuse_unsigned(head).map(|()| None);
        };
        let (credential, shown) = (&presented.credential, &presented.shown);
        let refuse = |why: &str| Err(leak(credential, why));
        let Some((bound, held)) = self.held(&shown.key_id) else {
            return refuse("its placeholder is not known any more");
        };
        let payload = presented.payload.as_deref().unwrap_or_default();
        if shown.at.get(..8) != Some(&*shown.scope.date) {
            return refuse("its scope is of another day than its time");
        }
        let mut theirs = Chain::new(&held.secret, &shown.scope, &shown.at);
        if !same(theirs.request(&presented.canonical, payload), &shown.signature) {
            return refuse(
                "it is not the one of this request by the placeholder of the secret key: sign with both placeholders, and \
                 change nothing afterwards",
            );
        }
        if !signing.tls {
            return refuse("it goes out over https only");
        }
        if signing.permit.withholds(credential) {
            let host = &signing.permit.destination().host;
            return refuse(&format!(
                "it must be asked for before it is used: `sallyport-shim secret request {credential} --for {host} --why TEXT`"
            ));
        }
        if !signing.permit.carries(credential) {
            return refuse(&format!(
                "it may be sent to its own hosts only, where the deciding rule (here `{}`) has it under `use`",
                signing.permit.rule()
            ));
        }
        if let Err(absence) = self.bindings[bound.owner].usable() {
            return Err(Leak {
                retry_after_s: absence.retry_after_s,
                ..leak(credential, &absence.sentence)
            });
        }
        let Some(real) = &bound.real else {
            return refuse("its value holds no access key");
        };
        let ours = anew(shown, payload, real, (signing, head)).map_err(|why| leak(credential, why))?;
        self.refuse_unsigned(head)?;
        let has_trailer = payload == CHUNKS_AND_TRAILER;
        let signer = (has_trailer || payload == CHUNKS)
            .then(|| ChunkSigner::new([theirs, ours], has_trailer, signing.chunk_bytes));
        Ok(Some((credential.clone(), signer)))
    }

    /// Keys by the id that stands for theirs.
    fn held(&self, id: &str) -> Option<(&Bound, &Keys)> {
        self.keys
            .iter()
            .find_map(|bound| Some((bound, bound.held.iter().find(|held| held.id.as_str() == id)?)))
    }

    /// What [`is_field`] and [`is_parameter`] let stand must be gone.
    fn refuse_unsigned(&self, head: &Parts) -> Result<(), Leak> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let fields = head
            .headers
            .iter()
            .filter(|(name, value)| is_field(name, value.as_bytes()));
        let fields = fields.map(|(_, value)| value.as_bytes().to_vec());
        let pairs = canonical::decoded_pairs(head.uri.query().unwrap_or_default());
        let parameters = pairs.into_iter().filter(|(name, _)| is_parameter(name));
        let mut texts = fields.chain(parameters.map(|(_, value)| value.into_bytes()));
        match texts.find_map(|text| self.placeholder_in(&text)) {
            Some(binding) => Err(leak(
                &binding.name,
                "a placeholder of its keys stands where no signature is made with it",
            )),
            None => Ok(()),
        }
    }
}

/// Puts a new signature in place of the old one. In words why it cannot be.
fn anew(
    shown: &Shown,
    payload: &str,
    real: &Keys,
    (signing, head): (&Signing<'_>, &mut Parts),
) -> Result<Chain, &'static str> {
    let at = signing.now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = Scope {
        date: at[..8].to_owned(),
        ..shown.scope.clone()
    };
    let mut fields = shown.fields.clone();
    if shown.way == Way::Head {
        head.headers
            .insert(DATE, HeaderValue::try_from(&at).map_err(|_| "its time is none")?);
        head.headers.remove(&TOKEN);
        if let Some(token) = &real.token {
            head.headers.insert(TOKEN, sealed(token)?);
        }
        fields.extend([DATE.to_string(), TOKEN.to_string()]);
        fields.retain(|name| name == "host" || head.headers.contains_key(name));
    }
    fields.sort();
    fields.dedup();
    let mut query = Zeroizing::new(String::new());
    if shown.way == Way::Query {
        query = link(head.uri.query().unwrap_or_default(), real, (&at, &scope), &fields);
        put_query(head, &query)?;
    }
    let mut ours = Chain::new(&real.secret, &scope, &at);
    let canonical = canonical::request(head, signing.host, &scope, &fields);
    let signature = ours.request(&canonical, payload);
    match shown.way {
        Way::Head => {
            let text = Zeroizing::new(format!(
                "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
                real.id.as_str(),
                scope.text(),
                fields.join(";")
            ));
            head.headers.insert(AUTHORIZATION, sealed(&text)?);
        }
        Way::Query => {
            query.push_str("&X-Amz-Signature=");
            query.push_str(signature);
            put_query(head, &query)?;
        }
    }
    Ok(ours)
}

/// The query of a signed link with real keys and another time, without its signature; everything else as it stands.
fn link(query: &str, real: &Keys, (at, scope): (&str, &Scope), fields: &[String]) -> Zeroizing<String> {
    let kept = query.split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !matches!(
            name,
            "X-Amz-Credential"
                | "X-Amz-Date"
                | "X-Amz-SignedHeaders"
                | "X-Amz-Security-Token"
                | "X-Amz-Signature"
        )
    });
    let mut text = Zeroizing::new(kept.collect::<Vec<_>>().join("&"));
    let credential = Zeroizing::new(format!("{}/{}", real.id.as_str(), scope.text()));
    let fields = fields.join(";");
    let mut new = vec![
        ("X-Amz-Credential", credential.as_str()),
        ("X-Amz-Date", at),
        ("X-Amz-SignedHeaders", &fields),
    ];
    new.extend(
        real.token
            .as_ref()
            .map(|token| ("X-Amz-Security-Token", token.as_str())),
    );
    for (name, value) in new {
        text.push('&');
        text.push_str(name);
        text.push('=');
        text.push_str(&canonical::encoded(value));
    }
    text
}

fn put_query(head: &mut Parts, query: &str) -> Result<(), &'static str> {
    let too_long = "its query does not hold the real one: it is too long";
    let target = Zeroizing::new(format!("{}?{query}", head.uri.path()));
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    uri.path_and_query = Some(PathAndQuery::try_from(target.as_str()).map_err(|_| too_long)?);
    head.uri = http::Uri::from_parts(uri).map_err(|_| too_long)?;
    Ok(())
}

/// A value that is never shown and never put into a compression table.
fn sealed(text: &str) -> Result<HeaderValue, &'static str> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "its keys have characters that no field may hold")?;
    value.set_sensitive(true);
    Ok(value)
}

fn leak(credential: &str, why: &str) -> Leak {
    Leak::new(
        credential,
        format!("the AWS signature by credential `{credential}` cannot be made anew: {why}"),
    )
}

#[cfg(test)]
mod tests;
