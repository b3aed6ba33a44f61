//! Outgoing heads: placeholders become values where the binding and the permit say so, and nothing else leaves.
use super::leak::Leak;
use super::places::{
    BASE64, VALUE, basic, decoded, form_decode, is_key_header, is_key_parameter, scheme, spoken, trimmed_tail,
};
use super::sealed::sensitive;
use super::{Binding, SessionSecrets, sigv4};
use base64::Engine;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use percent_encoding::{percent_decode, percent_encode};
use sallyport_policy::{Permit, Place};
use zeroize::Zeroizing;

/// What was done to an outgoing request head.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// Names of credentials put in.
    pub used: Vec<String>,
    /// Things worth a note in the log, never a value.
    pub notes: Vec<String>,
}

/// One outgoing head under one permit.
struct Head<'a> {
    secrets: &'a SessionSecrets,
    permit: &'a Permit,
    tls: bool,
    done: Outbound,
}

impl SessionSecrets {
    /// Guards a head and puts values in place of placeholders where the permit, the binding and the place say so.
    ///
    /// A placeholder in a credential's place (authorization, cookie, key-like header or query parameter) that it is not
    /// bound to: [`Leak`]. A real value anywhere: [`Leak`]. A placeholder elsewhere in the head is only a worthless
    /// string: it passes and is noted. `tls`: whether the request leaves encrypted; without, no value is put in.
    /// On an error the head is left as it was or half changed, and must be thrown away.
    pub fn outbound(
        &self,
        permit: &Permit,
        tls: bool,
        head: &mut http::request::Parts,
    ) -> Result<Outbound, Leak> {
        if self.bindings.is_empty() {
            return Ok(Outbound::default());
        }
        self.refuse_values(head)?;
        let mut work = Head {
            secrets: self,
            permit,
            tls,
            done: Outbound::default(),
        };
        let names: Vec<HeaderName> = head.headers.keys().cloned().collect();
        for name in names {
            let several = head.headers.get_all(&name).iter().count() > 1;
            if let http::header::Entry::Occupied(mut entry) = head.headers.entry(&name) {
                for value in entry.iter_mut() {
                    if let Some(new) = work.header(&name, value.as_bytes(), several)? {
                        *value = new;
                    }
                }
            }
        }
        work.target(head)?;
        Ok(work.done)
    }

    /// The binding whose placeholder stands somewhere in a text, plain or percent-encoded.
    pub(super) fn placeholder_in(&self, text: &[u8]) -> Option<&Binding> {
        let scanner = self.placeholders.as_ref()?;
        let owner = scanner.find(text).or_else(|| scanner.find(&decoded(text)?))?;
        Some(&self.bindings[owner])
    }

    /// The binding whose placeholder a text is.
    fn placeholder_is(&self, text: &[u8]) -> Option<&Binding> {
        let is = |placeholder: &String| placeholder.as_bytes() == text;
        self.bindings
            .iter()
            .find(|binding| binding.placeholders.iter().any(is))
    }
}

impl<'a> Head<'a> {
    /// One header value; the new one where a placeholder was replaced.
    fn header(
        &mut self,
        name: &HeaderName,
        value: &[u8],
        several: bool,
    ) -> Result<Option<HeaderValue>, Leak> {
        if name == AUTHORIZATION
            && let Some(new) = self.authorization(value, several)?
        {
            return sensitive(&new, name).map(Some);
        }
        let Some(binding) = self
            .secrets
            .placeholder_in(value)
            .or_else(|| self.inside_basic(value))
        else {
            return Ok(None);
        };
        if binding.places.contains(&Place::AwsSigv4) && sigv4::is_field(name, value) {
            return Ok(None);
        }
        let place = format!("header `{name}`");
        let bound = binding
            .places
            .iter()
            .any(|place| matches!(place, Place::Header(its) if its == name.as_str()));
        if bound {
            let new = self.replace_once(binding, value, &place)?;
            self.use_up(binding, &place)?;
            return sensitive(&new, name).map(Some);
        }
        if is_key_header(name) {
            return Err(self.misplaced(binding, &place));
        }
        self.note(binding, &place);
        Ok(None)
    }

    /// `Authorization: Bearer` (also `token`) and `Basic`, where the binding says so; otherwise none.
    fn authorization(&mut self, value: &[u8], several: bool) -> Result<Option<Zeroizing<Vec<u8>>>, Leak> {
        let Some((scheme, rest)) = scheme(value) else {
            return Ok(None);
        };
        let place = "header `authorization`";
        if let Some((prefix, decoded)) = basic(value) {
            let Some((binding, new)) = self.basic_pair(&decoded) else {
                return Ok(None);
            };
            if several {
                return Err(self.misplaced(binding, "one of several `authorization` headers"));
            }
            let value = new?;
            self.use_up(binding, place)?;
            let mut text = Zeroizing::new(prefix);
            text.extend_from_slice(Zeroizing::new(BASE64.encode(&*value)).as_bytes());
            return Ok(Some(text));
        }
        let known = scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token");
        let Some(binding) = self.secrets.placeholder_is(rest).filter(|_| known) else {
            return Ok(None);
        };
        if !binding.places.contains(&Place::Bearer) {
            return Ok(None);
        }
        if several {
            return Err(self.misplaced(binding, "one of several `authorization` headers"));
        }
        let real = self.value_of(binding, place)?;
        self.use_up(binding, place)?;
        let mut text = Zeroizing::new(value[..value.len() - trimmed_tail(value) - rest.len()].to_vec());
        text.extend_from_slice(real.bytes());
        Ok(Some(text))
    }

    /// User and password of decoded Basic credentials (RFC 7617 section 2), one of them a bound placeholder: the new pair.
    #[expect(
        clippy::type_complexity,
        reason = "a binding with the pair or the refusal; used once"
    )]
    fn basic_pair(&self, decoded: &[u8]) -> Option<(&'a Binding, Result<Zeroizing<Vec<u8>>, Leak>)> {
        let colon = decoded
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(decoded.len());
        let (user, password) = (&decoded[..colon], decoded.get(colon + 1..));
        let bound = |binding: &&Binding| binding.places.contains(&Place::Basic);
        let in_user = self.secrets.placeholder_is(user).filter(bound);
        let in_password = password
            .and_then(|text| self.secrets.placeholder_is(text))
            .filter(bound);
        let binding = match (in_user, in_password) {
            (Some(binding), None) | (None, Some(binding)) => binding,
            (Some(binding), Some(_)) => {
                return Some((binding, Err(self.misplaced(binding, "both user and password"))));
            }
            (None, None) => return None,
        };
        let pair = self.value_of(binding, "basic authentication").map(|value| {
            let mut text = Zeroizing::new(Vec::with_capacity(decoded.len() + value.bytes().len()));
            text.extend_from_slice(if in_user.is_some() { value.bytes() } else { user });
            if let Some(password) = password {
                text.push(b':');
                text.extend_from_slice(if in_password.is_some() {
                    value.bytes()
                } else {
                    password
                });
            }
            text
        });
        Some((binding, pair))
    }

    fn inside_basic(&self, value: &[u8]) -> Option<&'a Binding> {
        self.secrets.placeholder_in(&basic(value)?.1)
    }

    /// Path and query.
    fn target(&mut self, head: &mut http::request::Parts) -> Result<(), Leak> {
        let path = self.path(head.uri.path())?;
        let query = match head.uri.query() {
            Some(query) => self.query(query)?,
            None => None,
        };
        if path.is_none() && query.is_none() {
            return Ok(());
        }
        let mut target = Zeroizing::new(
            path.as_ref()
                .map_or(head.uri.path(), |path| path.as_str())
                .to_owned(),
        );
        if let Some(query) = query.as_ref().map(|query| query.as_str()).or(head.uri.query()) {
            target.push('?');
            target.push_str(query);
        }
        let mut uri = head.uri.clone().into_parts();
        uri.path_and_query = PathAndQuery::try_from(target.as_str()).ok();
        head.uri = http::Uri::from_parts(uri).map_err(|_| {
            let used = self.done.used.join(", ");
            Leak::new(
                &used,
                "the request target does not hold the credential; it is too long",
            )
        })?;
        Ok(())
    }

    /// The path; a new one where a whole segment was replaced.
    fn path(&mut self, path: &str) -> Result<Option<Zeroizing<String>>, Leak> {
        let secrets = self.secrets;
        if secrets.placeholder_in(path.as_bytes()).is_none() {
            return Ok(None);
        }
        let place = "a segment of the path";
        let (mut new, mut changed) = (Zeroizing::new(String::new()), false);
        for (number, segment) in path.split('/').enumerate() {
            if number > 0 {
                new.push('/');
            }
            let decoded: Vec<u8> = percent_decode(segment.as_bytes()).collect();
            let whole = secrets.placeholder_is(&decoded);
            if let Some(binding) = whole.filter(|binding| binding.places.contains(&Place::Path)) {
                let real = self.value_of(binding, place)?;
                self.use_up(binding, place)?;
                new.push_str(&Zeroizing::new(percent_encode(real.bytes(), VALUE).to_string()));
                changed = true;
            } else {
                if let Some(binding) = secrets.placeholder_in(segment.as_bytes()) {
                    self.note(binding, "the path");
                }
                new.push_str(segment);
            }
        }
        Ok(changed.then_some(new))
    }

    /// The query; a new one where a parameter was replaced.
    fn query(&mut self, query: &str) -> Result<Option<Zeroizing<String>>, Leak> {
        let (mut new, mut changed) = (Zeroizing::new(String::new()), false);
        for (number, part) in query.split('&').enumerate() {
            if number > 0 {
                new.push('&');
            }
            match self.parameter(part)? {
                Some(part) => {
                    new.push_str(&part);
                    changed = true;
                }
                None => new.push_str(part),
            }
        }
        Ok(changed.then_some(new))
    }

    /// One query parameter; the new one where a placeholder was replaced.
    fn parameter(&mut self, part: &str) -> Result<Option<Zeroizing<String>>, Leak> {
        let (raw_name, raw_value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (
            form_decode(raw_name.as_bytes()),
            form_decode(raw_value.as_bytes()),
        );
        let secrets = self.secrets;
        let Some(binding) = secrets
            .placeholder_in(part.as_bytes())
            .or_else(|| secrets.placeholder_in(&value))
        else {
            return Ok(None);
        };
        let shown = String::from_utf8_lossy(&name).into_owned();
        if binding.places.contains(&Place::AwsSigv4) && sigv4::is_parameter(&shown) {
            return Ok(None);
        }
        let place = format!("query parameter `{}`", shown.escape_debug());
        let bound = binding
            .places
            .iter()
            .any(|place| matches!(place, Place::Query(its) if *its == shown));
        if bound
            && secrets
                .placeholder_is(&value)
                .is_some_and(|its| its.name == binding.name)
        {
            let real = self.value_of(binding, &place)?;
            self.use_up(binding, &place)?;
            let encoded = Zeroizing::new(percent_encode(real.bytes(), VALUE).to_string());
            return Ok(Some(Zeroizing::new(format!("{raw_name}={}", encoded.as_str()))));
        }
        if bound || is_key_parameter(&shown) {
            return Err(self.misplaced(binding, &place));
        }
        self.note(binding, &place);
        Ok(None)
    }

    /// The header value with the binding's only placeholder replaced.
    fn replace_once(&self, binding: &Binding, value: &[u8], place: &str) -> Result<Zeroizing<Vec<u8>>, Leak> {
        let real = self.value_of(binding, place)?;
        let mut hits = binding
            .placeholders
            .iter()
            .flat_map(|text| memchr::memmem::find_iter(value, text.as_bytes()).map(|at| (at, text.len())));
        let (Some((at, length)), None) = (hits.next(), hits.next()) else {
            return Err(self.misplaced(binding, &format!("{place}, more than once or encoded,")));
        };
        let new = Zeroizing::new([&value[..at], real.bytes(), &value[at + length..]].concat());
        if self.secrets.placeholder_in(&value[at + length..]).is_some() {
            return Err(self.misplaced(binding, &format!("{place}, beside another one,")));
        }
        Ok(new)
    }

    /// The value, where it may go out here and now.
    fn value_of(&self, binding: &Binding, place: &str) -> Result<std::sync::Arc<super::Value>, Leak> {
        if !self.tls {
            return Err(self.leak(binding, format!(
                "credential `{}` was about to leave in {place} over plain http; it goes out over https only", binding.name
            )));
        }
        if self.permit.withholds(&binding.name) {
            let (name, host) = (&binding.name, &self.permit.destination().host);
            let sentence = format!(
                "credential `{name}` must be asked for before it is used: `sallyport-shim secret request {name} --for {host} --why TEXT`"
            );
            return Err(self.leak(binding, sentence));
        }
        if !self.permit.carries(&binding.name) {
            return Err(self.misplaced(binding, place));
        }
        binding.usable().map_err(|absence| Leak {
            retry_after_s: absence.retry_after_s,
            ..self.leak(binding, absence.sentence)
        })
    }

    fn use_up(&mut self, binding: &Binding, place: &str) -> Result<(), Leak> {
        if self.done.used.contains(&binding.name) {
            return Err(self.misplaced(binding, &format!("{place}, a second time in one request,")));
        }
        self.done.used.push(binding.name.clone());
        Ok(())
    }

    fn note(&mut self, binding: &Binding, place: &str) {
        self.done.notes.push(format!(
            "placeholder of credential `{}` in {place}, passed unchanged",
            binding.name
        ));
    }

    fn misplaced(&self, binding: &Binding, place: &str) -> Leak {
        let rule = self.permit.rule();
        let bound = binding.places.iter().map(spoken).collect::<Vec<_>>().join(", ");
        self.leak(binding, format!(
            "the placeholder of credential `{}` was about to leak in {place}; it may go to its own hosts only, in {bound}, \
             where the deciding rule (here `{rule}`) has it under `use`", binding.name
        ))
    }

    fn leak(&self, binding: &Binding, sentence: String) -> Leak {
        Leak::new(&binding.name, sentence)
    }
}

#[cfg(test)]
mod tests;
