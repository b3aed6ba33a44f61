//! What is wrong between layers: what needs one above, and what those above do not leave to one below.
use crate::document::{DefaultPart, Document};
use crate::{Layer, Problem};

/// What one layer's files say that depends on those above. `above` are their policies, from the ceiling down.
pub(crate) fn below(
    layer: Layer,
    above: &[(Layer, &Document)],
    documents: &[Document],
    problems: &mut Vec<Problem>,
) {
    for (number, document) in documents.iter().enumerate() {
        if let Some(default) = &document.default
            && default.value == DefaultPart::Inherit
            && (number > 0 || above.is_empty())
        {
            problems.push(match number {
                0 => default
                    .at
                    .error("`default: inherit` needs a layer above")
                    .hint("write `default: deny`, or give this policy as a layer below another"),
                _ => default
                    .at
                    .error("an included file cannot set `default: inherit`")
                    .hint("remove it"),
            });
        }
        let widens = document.widen.reach.iter().chain(&document.widen.credentials);
        if let Some(first) = widens.into_iter().next().filter(|_| number > 0) {
            problems.push(first.at.error("an included file cannot set `widen`").hint(
                "only the layer's policy itself says what layers below may do; single rules may have it",
            ));
        }
    }
    for credential in documents.iter().flat_map(|document| &document.credentials) {
        let forbids = |(_, document): &&(Layer, &Document)| {
            let mut left = document.widen.credentials.iter();
            !left.any(|left| left.value == layer)
        };
        if let Some((upper, _)) = above.iter().find(forbids) {
            let name = &credential.name;
            problems.push(
                name.at
                    .error(format!(
                        "credential `{}` is bound in layer `{layer}`, which layer `{upper}` does not allow",
                        crate::host::shown(&name.value)
                    ))
                    .hint(format!(
                        "bind it in layer `{upper}`, or let that say `widen: {{credentials: [{layer}]}}`"
                    )),
            );
        }
    }
}

/// Layers named in `widen` that are not below the one that names them.
pub(crate) fn widened(layer: Layer, documents: &[Document], problems: &mut Vec<Problem>) {
    let of_files = documents
        .iter()
        .flat_map(|document| document.widen.reach.iter().chain(&document.widen.credentials));
    let of_rules = documents
        .iter()
        .flat_map(|document| &document.rules)
        .flat_map(|rule| &rule.widen);
    for named in of_files.chain(of_rules).filter(|named| named.value <= layer) {
        problems.push(
            named
                .at
                .error(format!("layer `{}` is not below layer `{layer}`", named.value))
                .hint("remove it: `widen` is for the layers below"),
        );
    }
}
