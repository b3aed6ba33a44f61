//! Reading one rule.
use super::during::read_during;
use super::leaks::read_leaks;
use super::limit::read_limit;
use super::mode::read_mode;
use super::reader::{Fields, Reader};
use super::terms::{Terms, read_terms};
use super::to::read_to;
use super::who::read_who;
use super::widen::read_layers;
use super::{Effect, RulePart, TermsPart, ToPart};
use crate::Layer;
use crate::diagnostic::{At, Position};
use crate::yaml::Node;
use serde_saphyr::Spanned;

const RULE: &[&str] = &[
    "id",
    "to",
    "who",
    "use",
    "effect",
    "grantable",
    "grant",
    "hint",
    "mode",
    "widen",
    "limit",
    "leaks",
    "during",
    "when",
];

pub(super) fn read(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<RulePart> {
    let mut fields = reader.fields(node, "a rule", RULE)?;
    if let Some((at, _)) = fields.take_with_key("when", reader) {
        reader.push(
            at.error("`when` is reserved: expressions are no part of the language yet")
                .hint("use the fields of `to` and `who`, or several rules"),
        );
    }
    let id = match fields.take("id") {
        Some(node) => reader.text(node, "`id`"),
        None => {
            let problem = fields.at.error("the rule has no `id`");
            reader.push(problem.hint("give it a short name; refusals and logs use it"));
            None
        }
    };
    let effect = effect(&mut fields, reader);
    let to = match fields.take("to") {
        Some(node) => read_to(node, reader),
        None => Some(ToPart::default()),
    };
    let who = fields
        .take("who")
        .map(|node| read_who(node, reader))
        .unwrap_or_default();
    let uses = fields
        .take("use")
        .map(|node| reader.texts(node, "`use`"))
        .unwrap_or_default();
    let hint = fields.take("hint").and_then(|node| reader.text(node, "`hint`"));
    let grantable = fields.take_with_key("grantable", reader);
    let grant = fields.take_with_key("grant", reader);
    let effect = effect?;
    let lifted = lifted(effect.value, grantable, reader);
    let agreed = agreed(effect.value, grant, reader);
    let leaks = fields.take("leaks").and_then(|node| read_leaks(node, reader));
    let limit = fields.take("limit").and_then(|node| read_limit(node, reader));
    let during = fields.take("during").and_then(|node| read_during(node, reader));
    let observe = observe(effect.value, &mut fields, reader);
    let widen = widen(effect.value, &mut fields, reader);
    Some(RulePart {
        id: id?,
        effect,
        to: to?,
        who,
        uses,
        terms: lifted.or(agreed),
        hint: hint.map(|hint| hint.value),
        observe,
        limit,
        leaks,
        during,
        widen,
    })
}

/// `mode: observe`, which belongs to what refuses.
fn observe(effect: Effect, fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Position> {
    let at = read_mode(fields, reader)?;
    if effect == Effect::Allow {
        let problem = at.error("`mode: observe` has no meaning with `effect: allow`");
        reader.push(problem.hint("it belongs to rules that deny or ask, or to the whole file"));
        return None;
    }
    Some(at)
}

/// `widen`, which belongs to what refuses.
fn widen(effect: Effect, fields: &mut Fields, reader: &mut Reader<'_>) -> Vec<At<Layer>> {
    let Some((at, node)) = fields.take_with_key("widen", reader) else {
        return Vec::new();
    };
    let layers = read_layers(node, "`widen`", reader);
    if effect == Effect::Allow {
        let problem = at.error("`widen` has no meaning with `effect: allow`");
        reader.push(problem.hint("it says which layers below may allow what a rule denies or asks for"));
    }
    layers
}

/// `grantable`, which belongs to `deny`.
fn lifted(
    effect: Effect,
    field: Option<(Position, Spanned<Node>)>,
    reader: &mut Reader<'_>,
) -> Option<At<TermsPart>> {
    let (at, node) = field?;
    if effect == Effect::Deny {
        return read_terms(node, Terms::Rule, reader);
    }
    let problem = at.error(format!(
        "`grantable` has no meaning with `effect: {}`",
        effect.as_str()
    ));
    reader.push(problem.hint("it belongs to `effect: deny`; terms of `ask` stand in `grant`"));
    None
}

/// `grant`, which belongs to `ask`.
fn agreed(
    effect: Effect,
    field: Option<(Position, Spanned<Node>)>,
    reader: &mut Reader<'_>,
) -> Option<At<TermsPart>> {
    let (at, node) = field?;
    if effect == Effect::Ask {
        return read_terms(node, Terms::Person, reader);
    }
    let problem = at.error(format!(
        "`grant` has no meaning with `effect: {}`",
        effect.as_str()
    ));
    reader.push(problem.hint("it belongs to `effect: ask`; a refusal that may be lifted has `grantable`"));
    None
}

fn effect(fields: &mut Fields, reader: &mut Reader<'_>) -> Option<At<Effect>> {
    let Some(node) = fields.take("effect") else {
        reader.push(
            fields
                .at
                .error("the rule has no `effect`")
                .hint("it is one of `allow`, `deny`, `ask`"),
        );
        return None;
    };
    let word = reader.choice(node, "`effect`", &["allow", "deny", "ask"])?;
    Some(word.with(match word.value.as_str() {
        "allow" => Effect::Allow,
        "ask" => Effect::Ask,
        _ => Effect::Deny,
    }))
}
