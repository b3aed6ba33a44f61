//! Reading one credential binding.
use super::CredentialPart;
use super::places::read_place;
use super::quantities::duration;
use super::reader::Reader;
use super::sources::{is_variable, read_source};
use crate::Source;
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use serde_saphyr::Spanned;

pub(super) fn read(name: At<String>, node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<CredentialPart> {
    let what = format!("credential `{}`", shown(&name.value));
    let mut fields = reader.fields(node, &what, &["from", "hosts", "in", "env", "ttl"])?;
    let ttl = fields
        .take("ttl")
        .and_then(|node| duration(node, "`ttl`", reader));
    let from = match fields.take("from") {
        Some(node) => read_source(node, reader),
        None => {
            let hint = "write for example `from: {store: NAME}`";
            reader.push(fields.at.error(format!("{what} has no `from`")).hint(hint));
            None
        }
    };
    let hosts = match fields.take("hosts") {
        Some(node) => reader.texts(node, "`hosts`"),
        None => {
            let hint = "name the hosts that may see it";
            reader.push(fields.at.error(format!("{what} has no `hosts`")).hint(hint));
            Vec::new()
        }
    };
    let places = match fields.take("in") {
        Some(node) => {
            let words = reader.texts(node, "`in`");
            words
                .into_iter()
                .filter_map(|word| read_place(&word, reader))
                .collect()
        }
        None => {
            let hint = "write for example `in: [bearer, basic]` or `in: [header:x-api-key]`";
            reader.push(fields.at.error(format!("{what} has no `in`")).hint(hint));
            Vec::new()
        }
    };
    let env = fields
        .take("env")
        .and_then(|node| reader.text(node, "`env`"))
        .filter(|env| is_variable(env, reader));
    // With a broken source it is kept, so that rules which use it are not told that it does not exist.
    let from = from.unwrap_or_else(|| Source::Store(String::new()));
    Some(CredentialPart {
        name,
        from,
        hosts,
        places,
        env,
        ttl,
    })
}
