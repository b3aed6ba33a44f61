//! Path patterns: `{x}` is one segment, `*` stands within a segment, `**` for any number of segments.
use crate::CanonicalPath;
use crate::host::shown;

/// Most segments of one pattern.
const SEGMENT_LIMIT: usize = 64;

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

/// A part of a pattern between slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Exactly this canonical text.
    Literal(String),
    /// One segment that is not empty.
    One,
    /// Pieces with any text between them.
    Pieces(Vec<String>),
    /// Any number of segments, also none.
    Any,
}

/// Whether an encoded slash may stand in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slashes {
    /// No: a path with one can be read in two ways.
    Plain,
    /// Yes, as a part of its segment.
    Encoded,
}

/// Why a text is no pattern, and what to do.
pub(crate) type Fault = (String, Option<String>);

impl PathPattern {
    /// Reads a pattern.
    pub(crate) fn parse(text: &str, slashes: Slashes) -> Result<Self, Fault> {
        let input = shown(text);
        let Some(body) = text.strip_prefix('/') else {
            return Err((
                format!("path `{input}` does not begin with `/`"),
                Some(format!("write `/{input}`")),
            ));
        };
        if text.contains('?') {
            return Err((
                format!("path `{input}` has a query"),
                Some("remove what follows `?`; `query` looks at parameters".into()),
            ));
        }
        let mut segments = Vec::new();
        for part in body.split('/') {
            segments.push(
                Segment::parse(part, slashes)
                    .map_err(|(why, hint)| (format!("path `{input}`: {why}"), hint))?,
            );
        }
        if segments.len() > SEGMENT_LIMIT {
            return Err((
                format!("path `{input}` has more than {SEGMENT_LIMIT} segments"),
                None,
            ));
        }
        let (last, before) = segments
            .split_last()
            .map_or((None, &[][..]), |(last, before)| (Some(last), before));
        let empty = Segment::Literal(String::new());
        if before.contains(&empty) && last.is_some() {
            return Err((
                format!("path `{input}` has an empty segment and can never match"),
                Some("write one `/`".into()),
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }

    /// Of parts that are made, not written.
    pub(crate) fn of(segments: Vec<Segment>) -> Self {
        Self {
            text: String::new(),
            segments,
        }
    }

    /// Every path that ends in a slash.
    pub(crate) fn folder() -> Self {
        Self::of(vec![Segment::Any, Segment::Literal(String::new())])
    }

    /// Its parts.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// As written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// A path that fits.
    pub(crate) fn example(&self) -> String {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => text.clone(),
            Segment::One | Segment::Any => "x".to_owned(),
            Segment::Pieces(pieces) => pieces.join("x"),
        });
        segments.fold(String::new(), |path, segment| path + "/" + &segment)
    }

    /// Whether the canonical path fits. Ambiguity is the caller's business.
    pub(crate) fn matches(&self, path: &CanonicalPath) -> bool {
        path.as_str()
            .strip_prefix('/')
            .is_some_and(|relative| self.matches_relative(relative))
    }

    /// The same for a canonical text without the slash at its beginning.
    pub(crate) fn matches_relative(&self, relative: &str) -> bool {
        let mut rest = Some(relative);
        // Where to go back to: the pattern after the last `**`, and the path behind what it has swallowed so far.
        let mut back: Option<(usize, Option<&str>)> = None;
        let mut at = 0;
        loop {
            if self.segments.get(at) == Some(&Segment::Any) {
                back = Some((at + 1, rest));
                at += 1;
                continue;
            }
            let fits = match (self.segments.get(at), rest) {
                (None, None) => return true,
                (Some(segment), Some(text)) => segment.fits(first(text).0),
                _ => false,
            };
            if fits {
                rest = rest.and_then(|text| first(text).1);
                at += 1;
                continue;
            }
            match back {
                Some((after, Some(text))) => {
                    let shorter = first(text).1;
                    back = Some((after, shorter));
                    rest = shorter;
                    at = after;
                }
                _ => return false,
            }
        }
    }
}

/// The first segment, and what follows its slash if there is one.
fn first(text: &str) -> (&str, Option<&str>) {
    text.split_once('/')
        .map_or((text, None), |(head, tail)| (head, Some(tail)))
}

impl Segment {
    fn parse(part: &str, slashes: Slashes) -> Result<Self, Fault> {
        match part {
            "**" => return Ok(Self::Any),
            "*" => return Ok(Self::One),
            "" => return Ok(Self::Literal(String::new())),
            _ => {}
        }
        if let Some(name) = part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
            && !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        {
            return Ok(Self::One);
        }
        if part.contains(['{', '}']) {
            return Err((
                "`{x}` is a whole segment".into(),
                Some("use `*` for a part of a segment".into()),
            ));
        }
        if part.contains("**") {
            return Err((
                "`**` is a whole segment".into(),
                Some("use `*` for a part of a segment".into()),
            ));
        }
        let mut pieces = Vec::new();
        for piece in part.split('*') {
            pieces.push(literal(piece, slashes)?);
        }
        match <[String; 1]>::try_from(pieces) {
            Ok([one]) => Ok(Self::Literal(one)),
            Err(pieces) => Ok(Self::Pieces(pieces)),
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(own) => own == text,
            Self::One => !text.is_empty(),
            Self::Pieces(pieces) => !text.is_empty() && pieces_fit(pieces, text),
            Self::Any => true,
        }
    }
}

/// A literal piece in canonical form.
fn literal(piece: &str, slashes: Slashes) -> Result<String, Fault> {
    if piece == "." || piece == ".." {
        return Err((
            "dot segments can never match".into(),
            Some("write the path that they lead to".into()),
        ));
    }
    // Names on both sides: what is in doubt about a piece is in doubt about every segment that has it.
    let path = CanonicalPath::parse(&format!("/x{piece}x")).map_err(|fault| (fault.to_string(), None))?;
    let (doubt, hint) = match (slashes, path.ambiguity_beyond_slashes()) {
        (Slashes::Plain, None) => (
            path.ambiguity(),
            Some("add `encoded-slash: true` if it belongs to its segment".to_owned()),
        ),
        (_, doubt) => (doubt, None),
    };
    if let Some(reason) = doubt {
        return Err((format!("it can never match: {reason}"), hint));
    }
    let inside = path
        .as_str()
        .strip_prefix("/x")
        .and_then(|it| it.strip_suffix('x'));
    Ok(inside.unwrap_or_default().to_owned())
}

/// First piece at the beginning, last at the end, the others in order between them; never a part of an escape.
pub(crate) fn pieces_fit(pieces: &[String], text: &str) -> bool {
    let [head, middle @ .., tail] = pieces else {
        return false;
    };
    let Some(mut rest) = text
        .strip_prefix(head.as_str())
        .and_then(|rest| rest.strip_suffix(tail.as_str()))
        .filter(|rest| !splits_escape(text, head.len() + rest.len()))
    else {
        return false;
    };
    for piece in middle {
        let begins = |at: &usize| {
            rest.get(*at..)
                .is_some_and(|tail| tail.starts_with(piece.as_str()))
                && !splits_escape(rest, *at)
        };
        match (0..rest.len()).find(begins) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// Whether this place of a canonical text lies between the `%` of an escape and its last digit.
fn splits_escape(text: &str, at: usize) -> bool {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.len() < text.len() && before.iter().rev().take(2).any(|byte| *byte == b'%')
}
