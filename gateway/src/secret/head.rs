//! One outgoing head under its permit: which credentials may be put in, which were, and what is said where one must not.
use super::leak::Leak;
use super::places::{decoded, spoken};
use super::{Binding, SessionSecrets};
use sallyport_policy::{OnPlaceholder, Permit};

/// What was done to an outgoing request head.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// Names of credentials put in.
    pub used: Vec<String>,
    /// Things worth a note in the log, never a value.
    pub notes: Vec<String>,
}

/// One outgoing head under one permit.
pub(super) struct Head<'a> {
    pub(super) secrets: &'a SessionSecrets,
    pub(super) permit: &'a Permit,
    pub(super) tls: bool,
    /// What a rule says of placeholders where no credential is bound to.
    pub(super) stray: Option<OnPlaceholder>,
    pub(super) done: Outbound,
}

impl SessionSecrets {
    /// The binding whose placeholder stands somewhere in a text, plain or percent-encoded.
    pub(super) fn placeholder_in(&self, text: &[u8]) -> Option<&Binding> {
        let scanner = self.placeholders.as_ref()?;
        let owner = scanner.find(text).or_else(|| scanner.find(&decoded(text)?))?;
        Some(&self.bindings[owner])
    }

    /// The binding whose placeholder a text is.
    pub(super) fn placeholder_is(&self, text: &[u8]) -> Option<&Binding> {
        let is = |placeholder: &String| placeholder.as_bytes() == text;
        self.bindings
            .iter()
            .find(|binding| binding.placeholders.iter().any(is))
    }
}

impl Head<'_> {
    /// The value, where it may go out here and now.
    pub(super) fn value_of(
        &self,
        binding: &Binding,
        place: &str,
    ) -> Result<std::sync::Arc<super::Value>, Leak> {
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

    pub(super) fn use_up(&mut self, binding: &Binding, place: &str) -> Result<(), Leak> {
        if self.done.used.contains(&binding.name) {
            return Err(self.misplaced(binding, &format!("{place}, a second time in one request,")));
        }
        self.done.used.push(binding.name.clone());
        Ok(())
    }

    pub(super) fn note(&mut self, binding: &Binding, place: &str) -> Result<(), Leak> {
        if self.stray == Some(OnPlaceholder::Refuse) {
            return Err(Leak::barred(&binding.name, place));
        }
        self.done.notes.push(format!(
            "placeholder of credential `{}` in {place}, passed unchanged",
            binding.name
        ));
        Ok(())
    }

    pub(super) fn misplaced(&self, binding: &Binding, place: &str) -> Leak {
        let rule = self.permit.rule();
        let bound = binding.places.iter().map(spoken).collect::<Vec<_>>().join(", ");
        self.leak(binding, format!(
            "the placeholder of credential `{}` was about to leak in {place}; it may go to its own hosts only, in {bound}, \
             where the deciding rule (here `{rule}`) has it under `use`", binding.name
        ))
    }

    pub(super) fn leak(&self, binding: &Binding, sentence: String) -> Leak {
        Leak::new(&binding.name, sentence)
    }
}
