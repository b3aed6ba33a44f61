//! The credentials that may be put into places of one body, each of them once.
use crate::secret::leak::Leak;
use crate::secret::{Absence, Value};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A credential and the place in which its placeholder may stand.
pub(in crate::secret) struct Slot {
    /// The credential's name.
    pub(in crate::secret) credential: String,
    /// The place as it stands in a refusal.
    pub(in crate::secret) place: String,
    /// What stands for it.
    pub(in crate::secret) placeholders: Vec<String>,
    /// What is put in, where its source has one.
    pub(in crate::secret) value: Result<Arc<Value>, Absence>,
}

/// All of one body, and what was put in so far.
pub(in crate::secret) struct Slots {
    all: Vec<Slot>,
    /// Put into the head, or into this body.
    used: Vec<String>,
    put_in: Vec<String>,
    /// Slots whose place was there twice.
    doubtful: Vec<usize>,
    /// Slots that were filled.
    filled: Vec<usize>,
}

/// What stands in for a placeholder: its value, and whether that has the same length and classes of characters.
pub(in crate::secret) struct Filling {
    value: Arc<Value>,
    /// Every encoded form of the value is as long as the same form of the placeholder.
    pub(in crate::secret) fits: bool,
}

impl Filling {
    /// The bytes.
    pub(in crate::secret) fn bytes(&self) -> &[u8] {
        self.value.bytes()
    }

    /// As text, where it is one.
    pub(in crate::secret) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()).ok()
    }
}

impl Slots {
    /// `used` are credentials that stand in the request's head already.
    pub(in crate::secret) fn new(all: Vec<Slot>, used: &[String]) -> Self {
        Self {
            all,
            used: used.to_vec(),
            put_in: Vec::new(),
            doubtful: Vec::new(),
            filled: Vec::new(),
        }
    }

    /// How many.
    pub(in crate::secret) fn len(&self) -> usize {
        self.all.len()
    }

    /// The longest placeholder, in bytes.
    pub(in crate::secret) fn longest(&self) -> usize {
        let texts = self.all.iter().flat_map(|slot| &slot.placeholders);
        texts.map(String::len).max().unwrap_or(0)
    }

    /// Whether whatever is put in is as long as what stood there.
    pub(in crate::secret) fn keep_length(&self) -> bool {
        self.all.iter().all(|slot| {
            let fits = |text: &String| {
                let value = slot.value.as_ref().ok();
                value.is_none_or(|value| crate::secret::placeholder::fits(text, value))
            };
            slot.placeholders.iter().all(fits)
        })
    }

    /// Names of the credentials put in.
    pub(in crate::secret) fn put_in(&self) -> &[String] {
        &self.put_in
    }

    /// What to put in where `text` stands in the place of these slots: nothing where it is none of their placeholders.
    pub(in crate::secret) fn offer(&mut self, at: &[usize], text: &[u8]) -> Result<Option<Filling>, Leak> {
        let is = |placeholder: &String| placeholder.as_bytes() == text;
        let found = at.iter().find_map(|number| {
            Some((
                *number,
                self.all[*number].placeholders.iter().find(|its| is(its))?,
            ))
        });
        let Some((number, placeholder)) = found else {
            return Ok(None);
        };
        let slot = &self.all[number];
        if self.doubtful.contains(&number) {
            return Err(twice(slot));
        }
        if self.used.contains(&slot.credential) {
            return Err(leak(
                slot,
                format!(
                    "the placeholder of credential `{}` stands in {} a second time in one request",
                    slot.credential, slot.place
                ),
            ));
        }
        let value = slot.value.clone().map_err(|absence| Leak {
            retry_after_s: absence.retry_after_s,
            ..leak(slot, absence.sentence)
        })?;
        let fits = crate::secret::placeholder::fits(placeholder, &value);
        self.used.push(slot.credential.clone());
        self.put_in.push(slot.credential.clone());
        self.filled.push(number);
        Ok(Some(Filling { value, fits }))
    }

    /// The place of a slot is there once more: servers differ in which of the two they take.
    pub(in crate::secret) fn again(&mut self, number: usize) -> Result<(), Leak> {
        if self.filled.contains(&number) {
            return Err(twice(&self.all[number]));
        }
        self.doubtful.push(number);
        Ok(())
    }

    /// The body is not what it is said to be. Where nothing was put in yet it passes as it is; else it must not be ended.
    pub(in crate::secret) fn broken(&self, what: &str) -> Result<(), Leak> {
        match self.put_in.first() {
            None => Ok(()),
            Some(name) => Err(Leak::new(
                name,
                format!(
                    "credential `{name}` was put into a body that turned out to be no {what}, so the request was cut before its end"
                ),
            )),
        }
    }
}

fn twice(slot: &Slot) -> Leak {
    leak(
        slot,
        format!(
            "{} stands twice in the body, once with the placeholder of credential `{}`: which of them counts, nobody can tell",
            slot.place, slot.credential
        ),
    )
}

fn leak(slot: &Slot, sentence: String) -> Leak {
    Leak::new(&slot.credential, sentence)
}

/// Bytes of a value in some encoding; wiped.
pub(in crate::secret) type Written = Zeroizing<Vec<u8>>;
