//! Reading where a credential's value is kept.
use super::places::{header_name, json_pointer};
use super::reader::{Fields, Reader};
use crate::diagnostic::At;
use crate::host::shown;
use crate::host_pattern::HostPattern;
use crate::path_pattern::{PathPattern, Slashes};
use crate::yaml::Node;
use crate::{AnswerPart, Source};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Beginning of the names of the gateway's variables that a policy may name.
const SECRET_VARIABLE: &str = "SALLYPORT_SECRET_";

/// The kinds of sources, each with what else may stand beside it.
const KINDS: &[(&str, &[&str])] = &[
    ("store", &[]),
    ("env", &[]),
    ("file", &[]),
    ("vault", &["field"]),
    ("github-app", &["repositories", "permissions"]),
    ("oauth", &[]),
    ("aws-secret", &["field"]),
    ("aws-parameter", &[]),
    ("answer", &["path", "json", "header", "form"]),
];

pub(super) fn read_source(node: Spanned<Node>, reader: &mut Reader<'_>) -> Option<Source> {
    let mut known: Vec<&str> = Vec::new();
    for (kind, theirs) in KINDS {
        known.push(kind);
        for name in *theirs {
            if !known.contains(name) {
                known.push(name);
            }
        }
    }
    let mut fields = reader.fields(node, "`from`", &known)?;
    let mut named: Vec<(&str, At<String>)> = Vec::new();
    for (kind, _) in KINDS {
        if let Some(node) = fields.take(kind) {
            named.push((kind, reader.text(node, &format!("`{kind}`"))?));
        }
    }
    if named.len() > 1 {
        reader.push(
            fields
                .at
                .error("`from` names more than one source")
                .hint("keep one"),
        );
        return None;
    }
    let Some((kind, value)) = named.pop() else {
        reader.push(
            fields
                .at
                .error("`from` names no source")
                .hint(format!("it is one of {}", kinds())),
        );
        return None;
    };
    beside(kind, &mut fields, reader);
    match kind {
        "store" => Some(Source::Store(value.value)),
        "env" => is_secret_variable(&value, reader).then_some(Source::Env(value.value)),
        "file" => secret_file(value, reader).map(Source::File),
        "vault" => vault(value, &mut fields, reader),
        "oauth" => is_plain(&value, "`oauth`", reader).then_some(Source::Oauth(value.value)),
        "aws-secret" => aws_secret(value, &mut fields, reader),
        "aws-parameter" => {
            is_plain(&value, "`aws-parameter`", reader).then_some(Source::AwsParameter(value.value))
        }
        "answer" => answer(value, &mut fields, reader),
        _ => github_app(value, &mut fields, reader),
    }
}

/// All kinds, as a hint lists them.
fn kinds() -> String {
    let all: Vec<_> = KINDS.iter().map(|(kind, _)| format!("`{kind}`")).collect();
    all.join(", ")
}

/// Fields that belong to another kind of source.
fn beside(kind: &str, fields: &mut Fields, reader: &mut Reader<'_>) {
    let own = KINDS
        .iter()
        .find(|(its, _)| *its == kind)
        .map_or(&[][..], |(_, own)| own);
    for (other, theirs) in KINDS.iter().filter(|(other, _)| *other != kind) {
        for name in theirs.iter().filter(|name| !own.contains(name)) {
            if let Some((at, _)) = fields.take_with_key(name, reader) {
                let problem = at.error(format!("`{name}` has no meaning with `{kind}`"));
                reader.push(problem.hint(format!("it belongs to `{other}`")));
            }
        }
    }
}

/// `{vault: kv/agents/model, field: key}`.
fn vault(path: At<String>, fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Source> {
    let plain = path.value.split('/').all(|part| {
        !matches!(part, "" | "." | "..")
            && part
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#')
    });
    if !plain || !path.value.contains('/') {
        let message = format!("`{}` is no mount and path of a secret", shown(&path.value));
        reader.push(path.at.error(message).hint("write for example `kv/agents/model`"));
        return None;
    }
    let Some(node) = fields.take("field") else {
        let problem = path.at.error("the source names no `field` of the secret");
        reader.push(problem.hint("write for example `field: key`"));
        return None;
    };
    let field = reader.text(node, "`field`")?;
    Some(Source::Vault {
        path: path.value,
        field: field.value,
    })
}

/// `{aws-secret: agents/model, field: key}`, without `field` for the whole secret.
fn aws_secret(name: At<String>, fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Source> {
    let field = match fields.take("field") {
        Some(node) => Some(reader.text(node, "`field`")?.value),
        None => None,
    };
    is_plain(&name, "`aws-secret`", reader).then_some(Source::AwsSecret {
        name: name.value,
        field,
    })
}

/// Whether a name has no blank or other character that names of these services never have.
fn is_plain(name: &At<String>, what: &str, reader: &mut Reader<'_>) -> bool {
    let plain = !name.value.is_empty() && name.value.bytes().all(|b| b.is_ascii_graphic());
    if !plain {
        reader.push(
            name.at
                .error(format!("{what}: `{}` is no name", shown(&name.value))),
        );
    }
    plain
}

/// `{answer: auth.example.com, path: /token, json: [/token, /access_token]}`; also `header` and `form`.
fn answer(host: At<String>, fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Source> {
    match HostPattern::parse(&host.value) {
        Ok(HostPattern::Any) | Err(_) => {
            let message = format!("`{}` is no host that answers a log-in", shown(&host.value));
            reader.push(
                host.at
                    .error(message)
                    .hint("write for example `answer: auth.example.com`"),
            );
        }
        Ok(_) => {}
    }
    let Some(path) = fields.take("path").and_then(|node| reader.text(node, "`path`")) else {
        let problem = host
            .at
            .error("the source names no `path` whose answer is looked into");
        reader.push(problem.hint("write for example `path: /token`"));
        return None;
    };
    if let Err((message, hint)) = PathPattern::parse(&path.value, Slashes::Plain) {
        let problem = path.at.error(message);
        reader.push(hint.into_iter().fold(problem, |problem, hint| problem.hint(hint)));
    }
    let mut parts = Vec::new();
    for (kind, read) in PARTS {
        let words = fields
            .take(kind)
            .map(|node| reader.texts(node, &format!("`{kind}`")));
        for word in words.unwrap_or_default() {
            parts.extend(read(&word, reader));
        }
    }
    if parts.is_empty() {
        let problem = host
            .at
            .error("the source does not say where in the answer the value stands");
        reader.push(
            problem.hint("write for example `json: /access_token`; or `header: NAME`, or `form: NAME`"),
        );
        return None;
    }
    Some(Source::Answer {
        host: host.value,
        path: path.value,
        parts,
    })
}

type ReadPart = fn(&At<String>, &mut Reader<'_>) -> Option<AnswerPart>;

/// Where in an answer a value may stand.
const PARTS: [(&str, ReadPart); 3] = [
    ("json", |word, reader| {
        json_pointer(&word.value, &word.at, reader).map(AnswerPart::Json)
    }),
    ("header", |word, reader| {
        header_name(&word.value, &word.at, reader).map(AnswerPart::Header)
    }),
    ("form", |word, _| Some(AnswerPart::Form(word.value.clone()))),
];

/// `{github-app: acme-agents, repositories: ["acme/web"], permissions: {contents: write}}`.
fn github_app(app: At<String>, fields: &mut Fields, reader: &mut Reader<'_>) -> Option<Source> {
    let repositories = fields
        .take("repositories")
        .map(|node| reader.texts(node, "`repositories`"))
        .unwrap_or_default();
    for repository in &repositories {
        let named = repository.value == "${run.repositories}"
            || repository
                .value
                .split_once('/')
                .is_some_and(|(owner, name)| is_name(owner) && is_name(name));
        if !named {
            let message = format!("`{}` is no repository", shown(&repository.value));
            let hint = "write `owner/name`, or \"${run.repositories}\" for the run's own";
            reader.push(repository.at.error(message).hint(hint));
        }
    }
    let mut permissions = BTreeMap::new();
    let entries = fields
        .take("permissions")
        .map(|node| reader.entries(node, "`permissions`"));
    for (name, node) in entries.unwrap_or_default() {
        let what = format!("`{}`", shown(&name.value));
        if let Some(level) = reader.choice(node, &what, &["read", "write"]) {
            permissions.insert(name.value, level.value);
        }
    }
    Some(Source::GithubApp {
        app: app.value,
        repositories: repositories.into_iter().map(|it| it.value).collect(),
        permissions,
    })
}

/// The characters of owners and repositories.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
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

pub(super) fn is_variable(env: &At<String>, reader: &mut Reader<'_>) -> bool {
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
