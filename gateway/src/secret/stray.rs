//! Real values in an outgoing head: refused wherever they stand, since an agent can hold none.
use super::SessionSecrets;
use super::leak::Leak;
use super::places::{basic, decoded};
use http::uri::PathAndQuery;

impl SessionSecrets {
    /// A real value in a head is refused wherever it stands.
    pub(super) fn refuse_values(&self, head: &http::request::Parts) -> Result<(), Leak> {
        let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
        self.refuse_value(head.method.as_str().as_bytes(), "the method")?;
        self.refuse_value(target.as_bytes(), "the request target")?;
        if let Some(decoded) = decoded(target.as_bytes()) {
            self.refuse_value(&decoded, "the request target")?;
        }
        for (name, value) in &head.headers {
            let value = value.as_bytes();
            self.refuse_value(name.as_str().as_bytes(), "the name of a header")?;
            let (decoded, basic) = (decoded(value), basic(value).map(|(_, pair)| pair));
            let forms = [
                Some(value),
                decoded.as_deref(),
                basic.as_deref().map(Vec::as_slice),
            ];
            if let Some(owner) = forms.into_iter().flatten().find_map(|text| self.value_in(text)) {
                return Err(self.value_stands(owner, &format!("header `{name}`")));
            }
        }
        Ok(())
    }

    fn refuse_value(&self, text: &[u8], place: &str) -> Result<(), Leak> {
        match self.value_in(text) {
            Some(owner) => Err(self.value_stands(owner, place)),
            None => Ok(()),
        }
    }

    /// The binding whose value stands somewhere in a text.
    fn value_in(&self, text: &[u8]) -> Option<usize> {
        self.values.as_ref()?.find(text)
    }

    fn value_stands(&self, owner: usize, place: &str) -> Leak {
        let name = &self.bindings[owner].name;
        Leak::new(
            name,
            format!(
                "the value of credential `{name}` itself stands in {place}; send its placeholder in the place it is bound to"
            ),
        )
    }
}
