//! Credentials put into bodies: JSON by pointer, form fields of both kinds, and messages of a WebSocket.
//!
//! What passes is a stream: held back is no more than a key, a short string or the head of a part. Only a whole string or
//! field that is the placeholder is replaced, each credential once in a request. Where the place stands there twice, the
//! request is refused, since servers differ in which of the two they take.
mod form;
mod json;
mod multipart;
mod slots;

use super::leak::Leak;
use super::places::spoken;
use super::{Binding, SessionSecrets};
use bytes::BytesMut;
use form::Form;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use json::Json;
use multipart::Multipart;
use sallyport_policy::{Permit, Place};
use slots::{Slot, Slots};
use std::fmt;

/// Puts credentials into one body as it passes.
pub struct Fill(Kind);

enum Kind {
    Json(Json),
    Form(Form),
    Multipart(Box<Multipart>),
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill")
            .field("put_in", &self.put_in())
            .finish_non_exhaustive()
    }
}

/// What a body says that it is, as far as places lie in it.
enum Shape {
    Json,
    Fields,
    Multipart(String),
}

impl SessionSecrets {
    /// What fills the body of a request with these headers; none where the permit carries no credential for a place in such a
    /// body. `used` are the credentials that stand in its head already.
    pub fn fill(&self, permit: &Permit, headers: &HeaderMap, used: &[String]) -> Option<Fill> {
        if !self.fills_bodies {
            return None;
        }
        let of = form_of(headers)?;
        let kind = match of {
            Shape::Json => {
                let (slots, pointers) = self.slots(permit, used, |place| match place {
                    Place::Json(pointer) => Some(pointer.as_str()),
                    _ => None,
                })?;
                Kind::Json(Json::new(slots, &pointers))
            }
            Shape::Fields => {
                let (slots, names) = self.slots(permit, used, field)?;
                Kind::Form(Form::new(slots, owned(&names)))
            }
            Shape::Multipart(boundary) => {
                let (slots, names) = self.slots(permit, used, field)?;
                Kind::Multipart(Box::new(Multipart::new(slots, owned(&names), &boundary)))
            }
        };
        Some(Fill(kind))
    }

    /// What fills one text message of a WebSocket; none where the permit carries no credential for such messages.
    pub fn fill_message(&self, permit: &Permit) -> Option<Fill> {
        if !self.fills_bodies {
            return None;
        }
        let (slots, pointers) = self.slots(permit, &[], |place| match place {
            Place::WebSocket(pointer) => Some(pointer.as_str()),
            _ => None,
        })?;
        Some(Fill(Kind::Json(Json::message(slots, &pointers))))
    }

    /// The credentials that the permit carries for places of one kind, with what names each place.
    fn slots<'a>(
        &'a self,
        permit: &Permit,
        used: &[String],
        named: impl Fn(&'a Place) -> Option<&'a str>,
    ) -> Option<(Slots, Vec<&'a str>)> {
        let (mut all, mut names) = (Vec::new(), Vec::new());
        let carried = |binding: &&Binding| permit.carries(&binding.name);
        for binding in self.bindings.iter().filter(carried) {
            for place in &binding.places {
                if let Some(name) = named(place) {
                    names.push(name);
                    all.push(Slot {
                        credential: binding.name.clone(),
                        place: spoken(place),
                        placeholders: binding.placeholders.clone(),
                        value: binding.usable(),
                    });
                }
            }
        }
        (!all.is_empty()).then(|| (Slots::new(all, used), names))
    }
}

/// Whether a place lies in a body.
pub(super) fn is_in_a_body(place: &Place) -> bool {
    matches!(place, Place::Json(_) | Place::Form(_) | Place::WebSocket(_))
}

fn field(place: &Place) -> Option<&str> {
    match place {
        Place::Form(name) => Some(name),
        _ => None,
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn form_of(headers: &HeaderMap) -> Option<Shape> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(said), None) = (types.next(), types.next()) else {
        return None;
    };
    let said = said.to_str().ok()?;
    let essence = said
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => Some(Shape::Json),
        "application/x-www-form-urlencoded" => Some(Shape::Fields),
        "multipart/form-data" => multipart::boundary(said).map(Shape::Multipart),
        other if other.ends_with("+json") => Some(Shape::Json),
        _ => None,
    }
}

impl Fill {
    /// Whether the body keeps its length, whatever is put in.
    pub fn keeps_length(&self) -> bool {
        self.slots().keep_length()
    }

    /// Whether the next piece passes as it is; it need not be pushed then.
    pub fn passes(&self, piece: &[u8]) -> bool {
        match &self.0 {
            Kind::Multipart(multipart) => multipart.passes(piece),
            Kind::Json(_) | Kind::Form(_) => false,
        }
    }

    /// Takes a piece and appends what may go on. At a [`Leak`] the body must be cut: nothing more may be sent.
    pub fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Result<(), Leak> {
        match &mut self.0 {
            Kind::Json(json) => json.push(piece, out),
            Kind::Form(form) => form.push(piece, out),
            Kind::Multipart(multipart) => multipart.push(piece, out),
        }
    }

    /// The end of the body.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<(), Leak> {
        match &mut self.0 {
            Kind::Json(json) => json.finish(out),
            Kind::Form(form) => form.finish(out),
            Kind::Multipart(multipart) => multipart.finish(out),
        }
    }

    /// Names of the credentials put in so far.
    pub fn put_in(&self) -> &[String] {
        self.slots().put_in()
    }

    fn slots(&self) -> &Slots {
        match &self.0 {
            Kind::Json(json) => json.slots(),
            Kind::Form(form) => form.slots(),
            Kind::Multipart(multipart) => multipart.slots(),
        }
    }
}

#[cfg(test)]
mod tests;
