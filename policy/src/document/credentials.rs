//! Reading one credential binding.
use super::CredentialPart;
use super::places::read_place;
use super::quantities::duration;
use super::reader::Reader;
use super::sources::{is_variable, read_source};
use super::terms::{Terms, read_terms};
use crate::diagnostic::At;
use crate::host::shown;
use crate::yaml::Node;
use crate::{Place, Source};
use serde_saphyr::Spanned;

/// What one binding may say.
const FIELDS: &[&str] = &["from", "hosts", "in", "env", "ttl", "for", "user", "grantable"];
/// Longest text of `for` and `user`, in characters.
const TEXT: usize = 200;

/// The places; a signature's keys stand in no other one, since nothing but signatures is made with them.
fn read_places(words: Vec<At<String>>, reader: &mut Reader<'_>) -> Vec<Place> {
    let beside = words.get(1).map(|second| second.at.clone());
    let places: Vec<Place> = words
        .into_iter()
        .filter_map(|word| read_place(&word, reader))
        .collect();
    if let Some(at) = beside.filter(|_| places.contains(&Place::AwsSigv4)) {
        let problem = at.error("`aws-sigv4` stands alone: its keys sign requests and are sent nowhere");
        reader.push(problem.hint("write `in: [aws-sigv4]`, and another credential for other places"));
    }
    places
}

pub(super) fn read(name: At<String>, node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<CredentialPart> {
    let what = format!("credential `{}`", shown(&name.value));
    let mut fields = reader.fields(node, &what, FIELDS)?;
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
            read_places(words, reader)
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
    let purpose = fields.take("for").and_then(|node| line(node, "`for`", reader));
    let user = fields.take("user").and_then(|node| line(node, "`user`", reader));
    let terms = fields
        .take("grantable")
        .and_then(|node| read_terms(node, Terms::Credential, reader));
    // With a broken source it is kept, so that rules which use it are not told that it does not exist.
    let from = from.unwrap_or_else(|| Source::Store(String::new()));
    Some(CredentialPart {
        name,
        from,
        hosts,
        places,
        env,
        ttl,
        purpose,
        user,
        terms,
    })
}

/// A text on one line: it is shown in tables and written into files.
fn line(node: Spanned<Node>, what: &str, reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.text(node, what)?;
    let length = text.value.chars().count();
    if length == 0 || length > TEXT || text.value.chars().any(char::is_control) {
        let problem = text.at.error(format!(
            "{what} is no text of one line with 1 to {TEXT} characters"
        ));
        reader.push(problem);
        return None;
    }
    Some(text.value)
}
