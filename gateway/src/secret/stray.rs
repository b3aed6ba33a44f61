//! Secrets in an outgoing head that no placeholder stands for: real values, and what looks like a secret.
use super::SessionSecrets;
use super::leak::Leak;
use super::places::{basic, decoded};
use super::shapes::unknown;
use http::header::HeaderValue;
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};

impl SessionSecrets {
    /// A real value in a head is refused wherever it stands.
    pub(super) fn refuse_values(&self, head: &Parts) -> Result<(), Leak> {
        if self.values.is_none() {
            return Ok(());
        }
        let refused = |text: &[u8], place: &dyn Fn() -> String| match self.value_in(text) {
            Some(owner) => Err(Leak::value(&self.names[owner], &place())),
            None => Ok(()),
        };
        each_text(head, refused)
    }

    /// Puts placeholders in the place of values in headers and the query. What was decided on by its path is not changed there.
    pub(super) fn redact_values(&self, head: &mut Parts, notes: &mut Vec<String>) {
        let Some(scanner) = &self.values else { return };
        let mut note = |owners: Vec<usize>, place: &str| {
            let names = owners.into_iter().map(|owner| &self.names[owner]);
            notes
                .extend(names.map(|name| {
                    format!("value of credential `{name}` in {place}, its placeholder was sent")
                }));
        };
        for (name, value) in &mut head.headers {
            if let Some((clean, owners)) = scanner.replace_all(value.as_bytes())
                && let Ok(clean) = HeaderValue::from_bytes(&clean)
            {
                *value = clean;
                note(owners, &format!("header `{name}`"));
            }
        }
        let Some((clean, owners)) = head
            .uri
            .query()
            .and_then(|query| scanner.replace_all(query.as_bytes()))
        else {
            return;
        };
        let target = [head.uri.path().as_bytes(), b"?", &clean].concat();
        if let Ok(target) = PathAndQuery::try_from(target.as_slice()) {
            head.uri = Uri::from(target);
            note(owners, "the query");
        }
    }

    /// Ids of what looks like a secret in a head, each with its place.
    pub(super) fn unknown_in(&self, head: &Parts) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let Ok(()) = each_text(head, |text, place| {
            let ids = unknown(text, self.placeholders.as_deref());
            found.extend(ids.into_iter().map(|id| (id, place())));
            Ok::<(), std::convert::Infallible>(())
        });
        found.dedup();
        found
    }

    /// The binding whose value stands somewhere in a text.
    fn value_in(&self, text: &[u8]) -> Option<usize> {
        self.values.as_ref()?.find(text)
    }
}

/// Every text of a head in each of its readings, with its place.
fn each_text<E>(
    head: &Parts,
    mut look: impl FnMut(&[u8], &dyn Fn() -> String) -> Result<(), E>,
) -> Result<(), E> {
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    look(head.method.as_str().as_bytes(), &|| "the method".to_owned())?;
    look(target.as_bytes(), &|| "the request target".to_owned())?;
    if let Some(decoded) = decoded(target.as_bytes()) {
        look(&decoded, &|| "the request target".to_owned())?;
    }
    for (name, value) in &head.headers {
        let (name, value) = (name.as_str(), value.as_bytes());
        look(name.as_bytes(), &|| "the name of a header".to_owned())?;
        let place = || format!("header `{name}`");
        look(value, &place)?;
        if let Some(decoded) = decoded(value) {
            look(&decoded, &place)?;
        }
        if let Some((_, pair)) = basic(value) {
            look(&pair, &place)?;
        }
    }
    Ok(())
}
