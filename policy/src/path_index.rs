//! Many path patterns at once: an automaton over segments that finds the rules whose patterns match.
use crate::CanonicalPath;
use crate::path_pattern::{PathPattern, Segment, pieces_fit};
use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// A trie of patterns. A path is walked once, whatever the number of patterns; `**` stays active while segments pass.
#[derive(Debug)]
pub(crate) struct PathIndex {
    /// The first is the root.
    nodes: Vec<Node>,
    literals: HashTable<LiteralEdge>,
    pieces: HashTable<PiecesEdge>,
    hasher: DefaultHashBuilder,
}

const ROOT: u32 = 0;

#[derive(Debug, Default)]
struct Node {
    /// Behind one segment that is not empty.
    one: Option<u32>,
    /// Behind `**`.
    any: Option<u32>,
    /// Lengths of the first and the last piece of patterns within the next segment.
    shapes: Vec<(usize, usize)>,
    /// The rules of which a pattern ends here.
    rules: Vec<u32>,
}

#[derive(Debug)]
struct LiteralEdge {
    from: u32,
    text: Box<str>,
    to: u32,
}

#[derive(Debug)]
struct PiecesEdge {
    from: u32,
    pieces: Box<[String]>,
    to: u32,
}

impl PiecesEdge {
    /// The first piece and the last.
    fn ends(pieces: &[String]) -> (&str, &str) {
        match pieces {
            [first, .., last] => (first, last),
            _ => ("", ""),
        }
    }
}

/// Active nodes; few, unless patterns are chosen to be many.
type Active = SmallVec<[u32; 32]>;

impl Default for PathIndex {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            literals: HashTable::new(),
            pieces: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl PathIndex {
    /// Adds a pattern of a rule.
    pub(crate) fn add(&mut self, pattern: &PathPattern, rule: u32) {
        let end = pattern
            .segments()
            .iter()
            .fold(ROOT, |node, segment| self.behind(node, segment));
        if let Some(node) = self.nodes.get_mut(place(end))
            && node.rules.last() != Some(&rule)
        {
            node.rules.push(rule);
        }
    }

    /// The node behind a segment, made where there is none.
    fn behind(&mut self, from: u32, segment: &Segment) -> u32 {
        let known = match segment {
            Segment::Literal(text) => self.literal(from, text),
            Segment::One => self.nodes[place(from)].one,
            Segment::Any => self.nodes[place(from)].any,
            Segment::Pieces(pieces) => self
                .pieces
                .iter_hash(self.hash_pieces(from, PiecesEdge::ends(pieces)))
                .find(|edge| edge.from == from && *edge.pieces == **pieces)
                .map(|edge| edge.to),
        };
        if let Some(to) = known {
            return to;
        }
        let to = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(Node::default());
        let node = &mut self.nodes[place(from)];
        match segment {
            Segment::One => node.one = Some(to),
            Segment::Any => node.any = Some(to),
            Segment::Literal(text) => self.insert_literal(from, text, to),
            Segment::Pieces(pieces) => {
                let (head, tail) = PiecesEdge::ends(pieces);
                let shape = (head.len(), tail.len());
                if !node.shapes.contains(&shape) {
                    node.shapes.push(shape);
                }
                self.insert_pieces(from, pieces, to);
            }
        }
        to
    }

    fn insert_literal(&mut self, from: u32, text: &str, to: u32) {
        let hasher = &self.hasher;
        let hash = hasher.hash_one((from, text));
        let edge = LiteralEdge {
            from,
            text: text.into(),
            to,
        };
        self.literals
            .insert_unique(hash, edge, |edge| hasher.hash_one((edge.from, &*edge.text)));
    }

    fn insert_pieces(&mut self, from: u32, pieces: &[String], to: u32) {
        let hasher = &self.hasher;
        let hash = hasher.hash_one((from, PiecesEdge::ends(pieces)));
        let edge = PiecesEdge {
            from,
            pieces: pieces.into(),
            to,
        };
        self.pieces.insert_unique(hash, edge, |edge| {
            hasher.hash_one((edge.from, PiecesEdge::ends(&edge.pieces)))
        });
    }

    fn hash_pieces(&self, from: u32, ends: (&str, &str)) -> u64 {
        self.hasher.hash_one((from, ends))
    }

    fn literal(&self, from: u32, text: &str) -> Option<u32> {
        self.literals
            .find(self.hasher.hash_one((from, text)), |edge| {
                edge.from == from && *edge.text == *text
            })
            .map(|edge| edge.to)
    }

    /// Calls with the rules of which a pattern matches the canonical path, maybe more than once. Ambiguity is the caller's
    /// business.
    pub(crate) fn each(&self, path: &CanonicalPath, visit: &mut impl FnMut(u32)) {
        let Some(body) = path.as_str().strip_prefix('/') else {
            return;
        };
        let mut active = Active::new();
        let mut lasting = Active::new();
        self.enter(ROOT, &mut active, &mut lasting);
        for segment in body.split('/') {
            let before = std::mem::take(&mut active);
            // What a `**` was reached by has consumed this very segment.
            let lasted = lasting.len();
            for node in &before {
                self.follow(*node, segment, &mut active, &mut lasting);
            }
            for at in 0..lasted {
                let node = lasting[at];
                self.follow(node, segment, &mut active, &mut lasting);
            }
            if active.is_empty() && lasting.is_empty() {
                return;
            }
        }
        for node in active.iter().chain(&lasting) {
            if let Some(node) = self.nodes.get(place(*node)) {
                node.rules.iter().copied().for_each(&mut *visit);
            }
        }
    }

    /// Makes a node active, with each `**` right behind it, which may also stand for nothing.
    fn enter(&self, node: u32, active: &mut Active, lasting: &mut Active) {
        active.push(node);
        let behind = |node: u32| self.nodes.get(place(node)).and_then(|node| node.any);
        let mut next = behind(node);
        while let Some(any) = next
            && !lasting.contains(&any)
        {
            lasting.push(any);
            next = behind(any);
        }
    }

    fn follow(&self, from: u32, segment: &str, active: &mut Active, lasting: &mut Active) {
        let Some(node) = self.nodes.get(place(from)) else {
            return;
        };
        if let Some(to) = self.literal(from, segment) {
            self.enter(to, active, lasting);
        }
        if segment.is_empty() {
            return;
        }
        if let Some(to) = node.one {
            self.enter(to, active, lasting);
        }
        for (head, tail) in &node.shapes {
            let ends = segment
                .get(..*head)
                .zip(segment.len().checked_sub(*tail).and_then(|at| segment.get(at..)));
            let Some(ends) = ends else { continue };
            for edge in self.pieces.iter_hash(self.hash_pieces(from, ends)) {
                if edge.from == from && pieces_fit(&edge.pieces, segment) {
                    self.enter(edge.to, active, lasting);
                }
            }
        }
    }
}

fn place(node: u32) -> usize {
    usize::try_from(node).unwrap_or(usize::MAX)
}
