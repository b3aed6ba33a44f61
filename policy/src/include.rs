//! Which files belong to a policy, and under which names.
use crate::diagnostic::Position;
use crate::document::{Document, closest};
use crate::{Code, PolicyText, Problem, presets};
use std::collections::HashMap;

/// Most files of one policy.
const FILE_COUNT_LIMIT: usize = 64;

/// The names under which the files that this one includes are given to `Policy::compile`; presets that are shipped
/// need not be given. What is wrong with the file is told when it is compiled.
pub fn included_names(text: &PolicyText) -> Vec<String> {
    let document = Document::read(text, &mut Vec::new());
    document
        .include
        .iter()
        .map(|name| resolve(&text.name, &name.value))
        .collect()
}

/// `preset:NAME` stays; a file is meant relative to the one that includes it.
pub fn resolve(including: &str, name: &str) -> String {
    if name.starts_with("preset:") {
        return name.to_owned();
    }
    let directory = match including.rsplit_once('/') {
        Some((directory, _)) if !including.starts_with("preset:") && !name.starts_with('/') => directory,
        _ => "",
    };
    let absolute = name.starts_with('/') || including.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

/// The policy's document first, then all that it includes, each once. `texts[0]` is the policy. A preset that is
/// shipped stands in where no text of that name is given.
pub(crate) fn collect(texts: &[PolicyText], problems: &mut Vec<Problem>) -> Vec<Document> {
    let Some(first) = texts.first() else {
        return Vec::new();
    };
    let mut collector = Collector {
        by_name: HashMap::new(),
        read: Vec::new(),
        open: Vec::new(),
        seen: Vec::new(),
        problems,
    };
    for text in texts.iter().rev() {
        collector.by_name.insert(resolve("", &text.name), text);
    }
    collector.visit(first);
    collector.read
}

/// The texts of the shipped presets among these documents, which the caller did not give.
pub(crate) fn shipped(texts: &[PolicyText], documents: &[Document]) -> Vec<&'static PolicyText> {
    documents
        .iter()
        .filter_map(|document| presets::text(&document.file))
        .filter(|preset| texts.iter().all(|text| text.name != preset.name))
        .collect()
}

struct Collector<'a, 'p> {
    by_name: HashMap<String, &'a PolicyText>,
    read: Vec<Document>,
    open: Vec<&'a str>,
    seen: Vec<&'a str>,
    problems: &'p mut Vec<Problem>,
}

impl<'a> Collector<'a, '_> {
    fn visit(&mut self, text: &'a PolicyText) {
        self.open.push(&text.name);
        self.seen.push(&text.name);
        let document = Document::read(text, self.problems);
        let includes = document.include.clone();
        self.read.push(document);
        for include in includes {
            let name = resolve(&text.name, &include.value);
            match self
                .by_name
                .get(&name)
                .or_else(|| self.by_name.get(&resolve("", &include.value)))
                .copied()
                .or_else(|| presets::text(&name))
            {
                None => self.problems.push(missing(&include.at, &include.value)),
                Some(next) if self.open.contains(&next.name.as_str()) => {
                    let chain = self.open.join("` -> `");
                    let problem = include.at.error(format!(
                        "`{}` includes itself: `{chain}` -> `{}`",
                        include.value, next.name
                    ));
                    self.problems.push(problem.code(Code::BadInclude));
                }
                Some(next) if self.seen.contains(&next.name.as_str()) => {}
                Some(_) if self.seen.len() >= FILE_COUNT_LIMIT => {
                    self.problems.push(
                        include
                            .at
                            .error(format!("a policy has at most {FILE_COUNT_LIMIT} files")),
                    );
                }
                Some(next) => self.visit(next),
            }
        }
        self.open.pop();
    }
}

fn missing(at: &Position, name: &str) -> Problem {
    let problem = at.error(format!(
        "`{}` is not among the files of this policy",
        crate::host::shown(name)
    ));
    let problem = problem.code(Code::BadInclude);
    match name.strip_prefix("preset:") {
        Some(preset) => problem.hint(unknown_preset(preset)),
        None => problem
            .hint("a file is named relative to the one that includes it, for example `./partners.yaml`"),
    }
}

fn unknown_preset(name: &str) -> String {
    let known: Vec<&str> = presets::presets().map(|preset| preset.name).collect();
    match closest(name, &known) {
        Some(near) => format!("did you mean `preset:{near}`?"),
        None => "no preset of that name is shipped: give it along with the policy, or remove it".to_owned(),
    }
}
