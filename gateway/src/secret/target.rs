//! Placeholders in the target of an outgoing request: whole segments of its path, and values of its parameters.
use super::head::Head;
use super::leak::Leak;
use super::places::{VALUE, form_decode, is_key_parameter};
use super::sigv4;
use http::uri::PathAndQuery;
use percent_encoding::{percent_decode, percent_encode};
use sallyport_policy::Place;
use zeroize::Zeroizing;

impl Head<'_> {
    /// Path and query.
    pub(super) fn target(&mut self, head: &mut http::request::Parts) -> Result<(), Leak> {
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
                    self.note(binding, "the path")?;
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
        self.note(binding, &place)?;
        Ok(None)
    }
}
