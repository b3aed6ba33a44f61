//! Texts to a policy: the files of each layer, compiled from the ceiling down and checked together.
use crate::check;
use crate::compile::{Compiled, Compiler};
use crate::diagnostic::Position;
use crate::document::{DefaultPart, Document};
use crate::host_index::HostIndex;
use crate::include;
use crate::layer_check;
use crate::policy::LayerPlan;
use crate::{Layer, LayerTexts, Policy, PolicyText, Problem, Severity};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// One layer's files, read.
struct Stack<'t> {
    layer: Layer,
    texts: &'t [PolicyText],
    /// The layer's policy first.
    documents: Vec<Document>,
}

impl Policy {
    /// Parses, checks and compiles. `texts[0]` is the policy; the others are what its `include` may name. All problems at once.
    ///
    /// Problems that are only warnings do not stop it: they are kept in [`Policy::warnings`]. It is one layer, `run`.
    pub fn compile(texts: &[PolicyText]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let stack = Stack::read(Layer::Run, texts, &mut problems);
        let hash = sole_hash(&stack);
        compile(vec![stack], hash, problems)
    }

    /// The same over several layers, given in any order, each at most once: a lower one narrows what those above allow, unless
    /// their `widen` says that it may do more. Rule ids, and names of credentials, are unique over all layers, except that a preset
    /// may stand in several: an id means its rule in all of them then. Sets are known within their layer. The policy's tests are those of the lowest layer. Without any layer nothing is allowed.
    pub fn compile_layers(layers: &[LayerTexts]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut given: Vec<&LayerTexts> = layers.iter().collect();
        given.sort_by_key(|given| given.layer);
        for pair in given.windows(2) {
            if let [first, second] = pair
                && first.layer == second.layer
            {
                problems.push(start(&second.texts).error(format!("layer `{}` is given twice", second.layer)));
            }
        }
        let stacks: Vec<Stack<'_>> = given
            .into_iter()
            .map(|given| Stack::read(given.layer, &given.texts, &mut problems))
            .collect();
        let hash = match stacks.as_slice() {
            [only] if only.layer == Layer::Run => sole_hash(only),
            _ => hash(&stacks),
        };
        for stack in &stacks {
            layer_check::widened(stack.layer, &stack.documents, &mut problems);
        }
        compile(stacks, hash, problems)
    }
}

impl<'t> Stack<'t> {
    fn read(layer: Layer, texts: &'t [PolicyText], problems: &mut Vec<Problem>) -> Self {
        Self {
            layer,
            texts,
            documents: include::collect(texts, problems),
        }
    }

    fn plan(&self, is_top: bool) -> LayerPlan {
        let first = self.documents.first();
        LayerPlan {
            layer: self.layer,
            default: first
                .and_then(|document| document.default.as_ref())
                .map(|default| default.value)
                .filter(|default| !is_top || *default != DefaultPart::Inherit)
                .unwrap_or(DefaultPart::Deny),
            observe: first.is_some_and(|document| document.observe.is_some()),
            leaks: first.map(|document| document.leaks).unwrap_or_default(),
            reach: first
                .into_iter()
                .flat_map(|document| &document.widen.reach)
                .map(|layer| layer.value)
                .collect(),
        }
    }

    /// All that its hash covers.
    fn parts(&self) -> impl Iterator<Item = &str> {
        self.texts
            .iter()
            .chain(include::shipped(self.texts, &self.documents))
            .flat_map(|text| [text.name.as_str(), text.text.as_str()])
    }
}

fn compile(
    mut stacks: Vec<Stack<'_>>,
    hash: String,
    mut problems: Vec<Problem>,
) -> Result<Policy, Vec<Problem>> {
    let mut plans: Vec<LayerPlan> = Vec::new();
    let mut compiled = Compiled::default();
    let mut above: Vec<(Layer, &Document)> = Vec::new();
    for stack in &stacks {
        check::documents(&stack.documents, &mut problems);
        layer_check::below(stack.layer, &above, &stack.documents, &mut problems);
        let mut compiler = Compiler::new(&stack.documents, stack.layer, &mut problems);
        compiler.credentials(&stack.documents, &mut compiled);
        let before = compiled.rules.len();
        compiler.rules(&stack.documents, &mut compiled);
        check::unused_sets(&stack.documents, &mut problems);
        check::rules(compiled.rules.get(before..).unwrap_or_default(), &mut problems);
        plans.push(stack.plan(plans.is_empty()));
        above.extend(stack.documents.first().map(|first| (stack.layer, first)));
    }
    let known_hosts: Vec<_> = stacks
        .iter()
        .flat_map(|stack| &stack.documents)
        .flat_map(|document| document.known_hosts.iter().cloned())
        .collect();
    let Compiled {
        credentials,
        parts,
        rules,
        ..
    } = compiled;
    let documents = || stacks.iter().flat_map(|stack| &stack.documents);
    check::tests(documents(), &rules, &mut problems);
    check::credentials(&credentials, &parts, &rules, &mut problems);
    check::known_hosts(&rules, &known_hosts, &mut problems);
    problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    problems.dedup();
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    if plans.is_empty() {
        plans.push(LayerPlan::nothing());
    }
    Ok(Policy {
        hash,
        index: HostIndex::new(&rules),
        rules: rules.into(),
        credentials: credentials.into(),
        known_hosts: known_hosts.into(),
        layers: plans,
        tests: stacks
            .pop()
            .and_then(|lowest| lowest.documents.into_iter().next())
            .map(|document| document.tests)
            .unwrap_or_default(),
        warnings: problems,
    })
}

/// Where a policy begins.
fn start(texts: &[PolicyText]) -> Position {
    Position {
        file: texts.first().map_or("", |text| text.name.as_str()).into(),
        line: 1,
        column: 1,
    }
}

/// Of a policy without layers; length-prefixed, so that no two lists of texts have the same bytes.
fn sole_hash(stack: &Stack<'_>) -> String {
    let mut hasher = Sha256::new();
    stack.parts().for_each(|part| update(&mut hasher, part));
    hex(hasher)
}

/// Of all layers. What it begins with is no length that a name can have.
fn hash(stacks: &[Stack<'_>]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(b"layers: ");
    for stack in stacks {
        update(&mut hasher, stack.layer.as_str());
        hasher.update((stack.parts().count() as u64).to_be_bytes());
        stack.parts().for_each(|part| update(&mut hasher, part));
    }
    hex(hasher)
}

fn update(hasher: &mut Sha256, part: &str) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part.as_bytes());
}

fn hex(hasher: Sha256) -> String {
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing into a `String` cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}
