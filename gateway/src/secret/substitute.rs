//! Outgoing heads: placeholders become values where the binding and the permit say so, and nothing else leaves.
use super::head::{Head, Outbound};
use super::leak::Leak;
use super::places::{BASE64, basic, is_key_header, scheme, trimmed_tail};
use super::sealed::sensitive;
use super::{Binding, SessionSecrets, sigv4};
use base64::Engine;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use sallyport_policy::{OnPlaceholder, OnUnknown, Permit, Place};
use zeroize::Zeroizing;

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
        let (leaks, mut done) = (permit.leaks(), Outbound::default());
        if let Some(word) = leaks.unknown {
            for (id, place) in self.unknown_in(head) {
                if word == OnUnknown::Refuse {
                    return Err(Leak::unknown(id, &place));
                }
                done.notes
                    .push(format!("what looks like a secret (`{id}`) in {place}, passed"));
            }
        }
        if self.bindings.is_empty() {
            return Ok(done);
        }
        if leaks.redacts() {
            self.redact_values(head, &mut done.notes);
        }
        self.refuse_values(head)?;
        let mut work = Head {
            secrets: self,
            permit,
            tls,
            stray: leaks.placeholders,
            done,
        };
        let names: Vec<HeaderName> = head.headers.keys().cloned().collect();
        for name in names {
            let several = head.headers.get_all(&name).iter().count() > 1;
            if let http::header::Entry::Occupied(mut entry) = head.headers.entry(&name) {
                if work.strips(&name, entry.iter()) {
                    entry.remove_entry_mult();
                    continue;
                }
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
}

impl<'a> Head<'a> {
    /// Whether a header is to be taken off: one in which credentials are sent, with the placeholder of one that is not for here.
    fn strips<'v>(&mut self, name: &HeaderName, mut values: impl Iterator<Item = &'v HeaderValue>) -> bool {
        if self.stray != Some(OnPlaceholder::Strip) || !is_key_header(name) {
            return false;
        }
        let (secrets, permit) = (self.secrets, self.permit);
        let stray = values.find_map(|value| {
            let inside = secrets
                .placeholder_in(value.as_bytes())
                .or_else(|| self.inside_basic(value.as_bytes()));
            inside.filter(|binding| !permit.carries(&binding.name))
        });
        if let Some(binding) = stray {
            self.done.notes.push(format!(
                "placeholder of credential `{}` in header `{name}`, which was taken off",
                binding.name
            ));
        }
        stray.is_some()
    }

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
        self.note(binding, &place)?;
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
}

#[cfg(test)]
mod tests;
