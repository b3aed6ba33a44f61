//! Reading which layers below may do more than narrow.
use super::WidenPart;
use super::reader::Reader;
use crate::Layer;
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

/// The layers that have one above.
const BELOW: [Layer; 3] = [Layer::Team, Layer::Repository, Layer::Run];

/// `widen` of a file: `{reach: [team], credentials: [team]}`.
pub(super) fn read_widen(node: Spanned<Node>, reader: &mut Reader<'_>) -> WidenPart {
    let Some(mut fields) = reader.fields(node, "`widen`", &["reach", "credentials"]) else {
        return WidenPart::default();
    };
    let mut of = |name: &str| {
        let node = fields.take(name);
        node.map(|node| read_layers(node, &format!("`{name}`"), reader))
            .unwrap_or_default()
    };
    WidenPart {
        reach: of("reach"),
        credentials: of("credentials"),
    }
}

/// `team`, `repository`, `run`, or a list of those.
pub(super) fn read_layers(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Vec<At<Layer>> {
    let words = reader.texts(node, what);
    let mut layers = Vec::new();
    for word in words {
        if let Some(layer) = BELOW.iter().find(|layer| layer.as_str() == word.value) {
            layers.push(word.with(*layer));
            continue;
        }
        reader.push(if word.value == Layer::Organisation.as_str() {
            word.at
                .error("no layer lies above `organisation`")
                .hint("name those that may do more: `team`, `repository`, `run`")
        } else {
            word.at
                .error(format!("no layer is called `{}`", shown(&word.value)))
                .hint("it is one of `team`, `repository`, `run`")
        });
    }
    layers
}
