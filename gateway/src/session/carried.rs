//! What log-ins gave, carried over where a session's credentials are bound anew.
//!
//! After a restart the values are gone and their placeholders are known, so that who uses one is told to log in again, and
//! none of them goes anywhere.
use crate::secret::{Absence, Binding, SessionSecrets};
use sallyport_policy::{Credential, Source};
use std::collections::BTreeMap;

/// Whether its values come with answers.
pub(super) fn is_of_answers(credential: &Credential) -> bool {
    matches!(credential.from, Source::Answer { .. })
}

/// The bindings of a credential whose values come with answers: those that were captured, and one without a value for the
/// placeholders of which nothing is known any more.
pub(super) fn carried(
    credential: &Credential,
    placeholders: &BTreeMap<String, Vec<String>>,
    before: Option<&SessionSecrets>,
) -> Vec<Binding> {
    let live: Vec<Binding> = before
        .into_iter()
        .flat_map(|before| before.captured_as(&credential.name))
        .map(|binding| Binding {
            // One that made room for newer ones goes on going nowhere.
            places: match binding.places.is_empty() {
                true => Vec::new(),
                false => credential.places.clone(),
            },
            ..binding.again()
        })
        .collect();
    let is_live = |text: &&String| live.iter().any(|binding| binding.placeholders.contains(text));
    let texts = placeholders.get(&credential.name).into_iter().flatten();
    let rest = Binding {
        name: credential.name.clone(),
        places: credential.places.clone(),
        placeholders: texts.filter(|text| !is_live(text)).cloned().collect(),
        absence: Some(Absence {
            sentence: format!(
                "what this placeholder of credential `{}` stood for was forgotten, as when the gateway starts anew; log in again",
                credential.name
            ),
            retry_after_s: None,
        }),
        ..Binding::default()
    };
    std::iter::once(rest).chain(live).collect()
}
