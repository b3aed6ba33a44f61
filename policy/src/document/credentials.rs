//! Reading one credential binding.
use super::CredentialPart;
use super::reader::Reader;
use crate::diagnostic::{At, Position};
use crate::host::shown;
use crate::yaml::Node;
use crate::{Place, Source};
use serde_saphyr::Spanned;

/// Headers that frame or route a request: no credential stands there.
const RESERVED_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "keep-alive",
];

/// Beginning of the names of the gateway's variables that a policy may name.
const SECRET_VARIABLE: &str = "SALLYPORT_SECRET_";

pub(super) fn read(name: At<String>, node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<CredentialPart> {
    let what = format!("credential `{}`", shown(&name.value));
    let mut fields = reader.fields(node, &what, &["from", "hosts", "in", "env", "ttl"])?;
    if let Some((at, _)) = fields.take_with_key("ttl", reader) {
        reader.unsupported(&at, "ttl");
    }
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
        ttl: None,
    })
}

fn is_variable(env: &At<String>, reader: &mut Reader<'_>) -> bool {
    let name = &env.value;
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !fits {
        reader.push(env.at.error(format!(
            "`{}` is not the name of an environment variable",
            shown(name)
        )));
    }
    fits
}

fn read_source(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<Source> {
    const LATER: &[&str] = &["vault", "github-app", "oauth", "aws"];
    if let Node::Map(entries) = &node.value {
        for (key, _) in entries {
            if LATER.contains(&key.value.as_str()) {
                let at = reader.at(key);
                reader.unsupported(&at, &format!("from: {}", key.value));
                return None;
            }
        }
    }
    let mut fields = reader.fields(node, "`from`", &["store", "env", "file"])?;
    let mut sources = Vec::new();
    for kind in ["store", "env", "file"] {
        let Some(node) = fields.take(kind) else { continue };
        let value = reader.text(node, &format!("`{kind}`"))?;
        match kind {
            "store" => sources.push(Source::Store(value.value)),
            "env" => {
                if !is_secret_variable(&value, reader) {
                    return None;
                }
                sources.push(Source::Env(value.value));
            }
            _ => sources.push(Source::File(secret_file(value, reader)?)),
        }
    }
    if sources.len() > 1 {
        reader.push(
            fields
                .at
                .error("`from` names more than one source")
                .hint("keep one"),
        );
        return None;
    }
    let source = sources.pop();
    if source.is_none() {
        reader.push(
            fields
                .at
                .error("`from` names no source")
                .hint("it is one of `store`, `env`, `file`"),
        );
    }
    source
}

/// A file below the gateway's own folder for secrets: whoever writes a policy must not read the gateway's other files with it.
fn secret_file(path: At<String>, reader: &mut Reader<'_>) -> Option<String> {
    let inside = path.value.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if inside {
        return Some(path.value);
    }
    let message = format!(
        "file `{}` does not lie in the gateway's folder for secrets",
        shown(&path.value)
    );
    let hint = "name a file relative to `secret-files` in the gateway's state directory, without `..`";
    reader.push(path.at.error(message).hint(hint));
    None
}

/// A variable of the gateway that is meant as a secret, by its name's beginning.
fn is_secret_variable(env: &At<String>, reader: &mut Reader<'_>) -> bool {
    if env.value.starts_with(SECRET_VARIABLE) {
        return is_variable(env, reader);
    }
    let message = format!(
        "the gateway's variable `{}` cannot be named by a policy",
        shown(&env.value)
    );
    let hint = format!("only variables whose names begin with `{SECRET_VARIABLE}` can");
    reader.push(env.at.error(message).hint(hint));
    false
}

/// `bearer`, `basic`, `header:NAME`, `query:NAME`.
fn read_place(word: &At<String>, reader: &mut Reader<'_>) -> Option<Place> {
    let (kind, name) = match word.value.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (word.value.as_str(), None),
    };
    match (kind, name) {
        ("bearer", None) => Some(Place::Bearer),
        ("basic", None) => Some(Place::Basic),
        ("header", Some(name)) => header_place(name, &word.at, reader),
        ("query", Some(name)) if !name.is_empty() => Some(Place::Query(name.to_owned())),
        ("json" | "form", Some(_)) | ("path", None) => {
            reader.unsupported(&word.at, &word.value);
            None
        }
        _ => {
            let message = format!("`{}` is not a place in a request", shown(&word.value));
            reader.push(
                word.at
                    .error(message)
                    .hint("it is one of `bearer`, `basic`, `header:NAME`, `query:NAME`"),
            );
            None
        }
    }
}

fn header_place(name: &str, at: &Position, reader: &mut Reader<'_>) -> Option<Place> {
    let lower = name.to_ascii_lowercase();
    let token = !lower.is_empty()
        && lower
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !token {
        reader.push(at.error(format!("`{}` is not the name of a header", shown(name))));
        return None;
    }
    if RESERVED_HEADERS.contains(&lower.as_str()) {
        reader.push(at.error(format!("header `{lower}` carries no credential")));
        return None;
    }
    Some(Place::Header(lower))
}
