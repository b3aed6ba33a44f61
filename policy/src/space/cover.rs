//! Saying which cells are meant in words that the policies themselves use: some patterns, except others.
use serde::Serialize;
use std::fmt;

/// Cells by number, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cells(Vec<u64>);

/// A pattern as the policies write it, less some others; `*` is everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Part {
    /// Patterns that all hold; one as a rule.
    pub of: Vec<String>,
    /// Patterns that are taken out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

/// The union of its parts; empty means that it makes no difference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub struct Extent(pub Vec<Part>);

impl Part {
    /// One pattern.
    pub(crate) fn of(pattern: impl Into<String>) -> Self {
        Self {
            of: vec![pattern.into()],
            except: Vec::new(),
        }
    }

    /// Everything less these.
    pub(crate) fn any_except(except: Vec<String>) -> Self {
        Self {
            of: vec!["*".to_owned()],
            except,
        }
    }
}

/// Most patterns that are written out on one line.
const SHOWN: usize = 6;

/// The first few, and how many more there are.
pub(crate) fn few(texts: &[String]) -> String {
    let shown = if texts.len() <= SHOWN + 1 {
        texts.len()
    } else {
        SHOWN
    };
    let mut list = texts.get(..shown).unwrap_or_default().join(", ");
    if texts.len() > shown {
        list.push_str(&format!(" and {} more", texts.len() - shown));
    }
    list
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of.as_slice() {
            [all] if all == "*" => f.write_str("any")?,
            of => f.write_str(&of.join(" and at once "))?,
        }
        if self.except.is_empty() {
            return Ok(());
        }
        write!(f, " except {}", few(&self.except))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(Part::to_string).collect();
        let separator = if self.0.iter().any(|part| !part.except.is_empty()) {
            "; "
        } else {
            ", "
        };
        let shown = if parts.len() <= SHOWN + 1 {
            parts.len()
        } else {
            SHOWN
        };
        f.write_str(&parts.get(..shown).unwrap_or_default().join(separator))?;
        if parts.len() > shown {
            write!(f, " and {} more", parts.len() - shown)?;
        }
        Ok(())
    }
}

impl Cells {
    pub(super) fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn of(count: usize, members: impl IntoIterator<Item = usize>) -> Self {
        let mut cells = Self::none(count);
        for member in members {
            cells.insert(member);
        }
        cells
    }

    pub(super) fn insert(&mut self, member: usize) {
        if let Some(word) = self.0.get_mut(member / 64) {
            *word |= 1 << (member % 64);
        }
    }

    fn combine(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| with(*a, *b)).collect())
    }

    fn and(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    fn less(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn contains(&self, member: usize) -> bool {
        self.0
            .get(member / 64)
            .is_some_and(|word| word & (1 << (member % 64)) != 0)
    }
}

/// Named sets of cells, out of which others are put together.
pub(super) struct Vocabulary {
    count: usize,
    names: Vec<(String, Cells)>,
}

impl Vocabulary {
    /// `count` cells in all.
    pub(super) fn new(count: usize, names: Vec<(String, Cells)>) -> Self {
        Self { count, names }
    }

    /// These cells in words: exactly these, no more and no fewer.
    pub(super) fn describe(&self, wanted: &Cells) -> Extent {
        let all = Cells::of(self.count, 0..self.count);
        if wanted == &all {
            return Extent::default();
        }
        let mut parts: Vec<(Part, Cells)> = Vec::new();
        let mut left = wanted.clone();
        while let Some((name, cells)) = self.widest(wanted, &left) {
            left = left.less(cells);
            parts.push((Part::of(name), cells.clone()));
        }
        while !left.is_empty() {
            let part = self.with_exceptions(&all, wanted, &left);
            let Some((part, cells)) = part.or_else(|| self.one(&left)) else {
                break;
            };
            left = left.less(&cells);
            parts.push((part, cells));
        }
        let mut parts = self.needed(parts);
        parts.sort();
        Extent(parts)
    }

    /// Without the parts that the others say already.
    fn needed(&self, mut parts: Vec<(Part, Cells)>) -> Vec<Part> {
        let mut place = 0;
        while let Some((_, own)) = parts.get(place) {
            let others = parts.iter().enumerate().filter(|(other, _)| *other != place);
            let left = others.fold(own.clone(), |left, (_, (_, cells))| left.less(cells));
            match left.is_empty() && parts.len() > 1 {
                true => drop(parts.remove(place)),
                false => place += 1,
            }
        }
        parts.into_iter().map(|(part, _)| part).collect()
    }

    /// The name of nothing but wanted cells that says most of what is left.
    fn widest(&self, wanted: &Cells, left: &Cells) -> Option<(&str, &Cells)> {
        let mut best: Option<(u32, &(String, Cells))> = None;
        for named in &self.names {
            if !named.1.less(wanted).is_empty() {
                continue;
            }
            let gain = named.1.and(left).count();
            if gain > best.map_or(0, |(most, _)| most) {
                best = Some((gain, named));
            }
        }
        best.map(|(_, (name, cells))| (name.as_str(), cells))
    }

    /// One name, or everything, less some names, that says most of what is left with the fewest exceptions.
    fn with_exceptions(&self, all: &Cells, wanted: &Cells, left: &Cells) -> Option<(Part, Cells)> {
        let everything = ("*".to_owned(), all.clone());
        let mut best: Option<((u32, usize), Part, Cells)> = None;
        for (name, base) in self.names.iter().chain([&everything]) {
            if base.and(left).is_empty() {
                continue;
            }
            let Some((except, cells)) = self.carve(base, wanted) else {
                continue;
            };
            let gain = cells.and(left).count();
            let rank = (gain, usize::MAX - except.len());
            if gain > 0 && best.as_ref().is_none_or(|(most, ..)| rank > *most) {
                let part = Part {
                    of: vec![name.clone()],
                    except,
                };
                best = Some((rank, part, cells));
            }
        }
        best.map(|(_, part, cells)| (part, cells))
    }

    /// Names that take out of `base` all that is not wanted, sparing what is.
    fn carve(&self, base: &Cells, wanted: &Cells) -> Option<(Vec<String>, Cells)> {
        let mut cells = base.clone();
        let mut except = Vec::new();
        loop {
            let wrong = cells.less(wanted);
            if wrong.is_empty() {
                return Some((except, cells));
            }
            let good = |named: &&(String, Cells)| {
                let lost = named.1.and(&cells).and(wanted).count();
                let taken = named.1.and(&wrong).count();
                (taken > 0).then_some((u32::MAX - lost, taken))
            };
            let (name, taken) = self
                .names
                .iter()
                .filter_map(|named| good(&named).map(|rank| (rank, named)))
                .max_by_key(|(rank, _)| *rank)
                .map(|(_, named)| named)?;
            cells = cells.less(taken);
            except.push(name.clone());
        }
    }

    /// A single cell, by all that it is and all that it is not.
    fn one(&self, left: &Cells) -> Option<(Part, Cells)> {
        let cell = (0..self.count).find(|cell| left.contains(*cell))?;
        let names = |inside: bool| -> Vec<String> {
            self.names
                .iter()
                .filter(|(_, cells)| cells.contains(cell) == inside)
                .map(|(name, _)| name.clone())
                .collect()
        };
        let mut of = names(true);
        if of.is_empty() {
            of.push("*".to_owned());
        }
        let own = self
            .names
            .iter()
            .filter(|(_, cells)| cells.contains(cell))
            .fold(Cells::of(self.count, 0..self.count), |own, (_, cells)| {
                own.and(cells)
            });
        // Only what tells this cell from others that are all of the same.
        let except = self
            .names
            .iter()
            .filter(|(_, cells)| !cells.contains(cell) && !cells.and(&own).is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        Some((Part { of, except }, Cells::of(self.count, [cell])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        // Cells: 0 neither, 1 a, 2 a and b, 3 b, 4 c inside a.
        let named = |name: &str, cells: &[usize]| (name.to_owned(), Cells::of(5, cells.iter().copied()));
        Vocabulary::new(
            5,
            vec![named("a", &[1, 2, 4]), named("b", &[2, 3]), named("c", &[4])],
        )
    }

    fn said(cells: &[usize]) -> String {
        vocabulary()
            .describe(&Cells::of(5, cells.iter().copied()))
            .to_string()
    }

    #[test]
    fn cells_are_said_as_a_person_would_write_them() {
        assert_eq!(said(&[0, 1, 2, 3, 4]), "");
        assert_eq!(said(&[1, 2, 4]), "a");
        assert_eq!(said(&[2, 3, 4]), "b, c");
        assert_eq!(said(&[1, 2]), "a except c");
        assert_eq!(said(&[0, 3]), "any except a");
        assert_eq!(said(&[0]), "any except a, b");
        assert_eq!(said(&[2]), "a and at once b");
        assert_eq!(said(&[0, 1, 3]), "any except c, b; b except a");
        assert_eq!(said(&[0, 3, 4]), "any except a; c");
    }
}
