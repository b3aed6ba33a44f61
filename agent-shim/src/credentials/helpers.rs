//! The helpers that tools start to log in: of git, Docker and cargo. Each answers with a placeholder, for bound hosts only.
use super::binding::{AWS, find, host_of};
use super::check;
use crate::wire::KnownCredential;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// Longest question of a tool, in bytes.
const QUESTION: u64 = 64 * 1024;
/// Exit code of a helper that answered.
const ANSWERED: u8 = 0;
/// Exit code of a helper that has nothing to say, where its protocol knows that.
const NOTHING: u8 = 1;

/// A tool's helper, by the name under which it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// git's (gitcredentials(7)): `get` on the command line, attributes on standard input.
    Git,
    /// Docker's (github.com/docker/docker-credential-helpers): `get` or `list`, the server on standard input.
    Docker,
    /// cargo's credential provider (RFC 2730): JSON lines.
    Cargo,
    /// The process that AWS's tools start for an access key ("Sourcing credentials with an external process"): the credential's
    /// name on the command line.
    Aws,
    /// The check of what is about to be committed.
    Commit,
}

impl Helper {
    /// The helper that a program of this name is.
    pub fn of_program(path: &str) -> Option<Self> {
        match Path::new(path).file_name()?.to_str()? {
            "git-credential-sallyport" => Some(Self::Git),
            "docker-credential-sallyport" => Some(Self::Docker),
            "cargo-credential-sallyport" => Some(Self::Cargo),
            _ => None,
        }
    }

    /// Serves one tool; gives the exit code.
    ///
    /// # Errors
    /// The tool cannot be read or written to, or the serving shim does not answer.
    pub fn serve(self, arguments: &[String], socket: &Path) -> io::Result<u8> {
        let known = || super::ask(socket).map(|(known, _)| known);
        let mut input = io::stdin().lock();
        let mut output = io::stdout().lock();
        let action = arguments.first().map_or("get", String::as_str);
        match self {
            Self::Git => git(action, &mut input.take(QUESTION), &mut output, known),
            Self::Docker => docker(action, &mut input.take(QUESTION), &mut output, known),
            Self::Cargo => cargo(&mut input, &mut output, known),
            Self::Aws => aws(arguments.first(), &mut output, known),
            Self::Commit => check::staged(&known().unwrap_or_default(), &mut io::stderr().lock()),
        }
    }
}

type Known = Vec<KnownCredential>;

/// `get` is answered for https; `store` and `erase` are none of our business: nothing is kept here.
fn git(
    action: &str,
    input: &mut impl BufRead,
    output: &mut impl Write,
    known: impl FnOnce() -> io::Result<Known>,
) -> io::Result<u8> {
    if action != "get" {
        return Ok(ANSWERED);
    }
    let mut asked = BTreeMap::new();
    let mut speaks_schemes = false;
    for line in input.lines() {
        let line = line?;
        match line.split_once('=') {
            Some(("capability[]", "authtype")) => speaks_schemes = true,
            Some((name, value)) => drop(asked.insert(name.to_owned(), value.to_owned())),
            None if line.is_empty() => break,
            None => {}
        }
    }
    if asked.get("protocol").is_none_or(|protocol| protocol != "https") {
        return Ok(ANSWERED);
    }
    let Some(host) = asked.get("host").map(|host| host_of(host)) else {
        return Ok(ANSWERED);
    };
    let known = known()?;
    let places: &[&str] = if speaks_schemes {
        &["basic", "bearer"]
    } else {
        &["basic"]
    };
    let Some(one) = find(&known, &host, places) else {
        return Ok(ANSWERED);
    };
    if one.stands_in("basic") {
        let user = asked.get("username").map_or(one.user_name(), String::as_str);
        writeln!(output, "username={user}\npassword={}", one.placeholder)?;
    } else {
        writeln!(
            output,
            "capability[]=authtype\nauthtype=Bearer\ncredential={}",
            one.placeholder
        )?;
    }
    Ok(ANSWERED)
}

fn docker(
    action: &str,
    input: &mut impl Read,
    output: &mut impl Write,
    known: impl FnOnce() -> io::Result<Known>,
) -> io::Result<u8> {
    match action {
        "get" => {
            let mut server = String::new();
            input.read_to_string(&mut server)?;
            let server = server.trim();
            let known = known()?;
            let Some(one) = find(&known, &host_of(server), &["basic", "bearer"]) else {
                // The very words by which clients tell this from a fault.
                writeln!(output, "credentials not found in native keychain")?;
                return Ok(NOTHING);
            };
            let answer = serde_json::json!({
                "ServerURL": server, "Username": one.user_name(), "Secret": one.placeholder,
            });
            writeln!(output, "{answer}")?;
            Ok(ANSWERED)
        }
        "list" => {
            let known = known()?;
            let for_registries = known
                .iter()
                .filter(|one| one.stands_in("basic") || one.stands_in("bearer"));
            let all: BTreeMap<String, &str> = for_registries
                .flat_map(|one| one.origins().into_iter().map(|origin| (origin, one.user_name())))
                .collect();
            writeln!(output, "{}", serde_json::to_string(&all)?)?;
            Ok(ANSWERED)
        }
        _ => {
            writeln!(
                output,
                "credentials are kept outside this machine; `sallyport-shim secret ls` lists them"
            )?;
            Ok(NOTHING)
        }
    }
}

/// What cargo asks its provider; fields that do not matter here are passed over.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CargoQuestion {
    registry: CargoRegistry,
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CargoRegistry {
    index_url: String,
}

fn cargo(
    input: &mut impl BufRead,
    output: &mut impl Write,
    known: impl Fn() -> io::Result<Known>,
) -> io::Result<u8> {
    writeln!(output, "{}", serde_json::json!({"v": [1]}))?;
    output.flush()?;
    loop {
        let mut line = String::new();
        if input.by_ref().take(QUESTION).read_line(&mut line)? == 0 {
            return Ok(ANSWERED);
        }
        let question: CargoQuestion = serde_json::from_str(&line)?;
        let answer = match question.kind.as_str() {
            "get" => match find(
                &known()?,
                &host_of(&question.registry.index_url),
                &["bearer", "header:authorization"],
            ) {
                Some(one) => serde_json::json!({"Ok": {
                    "kind": "get", "token": one.placeholder, "cache": "session", "operation_independent": true,
                }}),
                None => serde_json::json!({"Err": {"kind": "url-not-supported"}}),
            },
            _ => serde_json::json!({"Err": {"kind": "operation-not-supported"}}),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
}

/// The parts of an access key, by the ends of their variables and, where there are none, in this order.
const PARTS: [(&str, &str); 3] = [
    ("_ACCESS_KEY_ID", "AccessKeyId"),
    ("_SECRET_ACCESS_KEY", "SecretAccessKey"),
    ("_SESSION_TOKEN", "SessionToken"),
];

/// The named access key, or the first one.
fn aws(
    name: Option<&String>,
    output: &mut impl Write,
    known: impl FnOnce() -> io::Result<Known>,
) -> io::Result<u8> {
    let known = known()?;
    let mut keys = known.iter().filter(|one| one.stands_in(AWS));
    let name = match name {
        Some(name) => name.as_str(),
        None => keys.clone().next().map_or("", |one| one.name.as_str()),
    };
    let mut answer = serde_json::Map::from_iter([("Version".to_owned(), 1.into())]);
    for (number, one) in keys.by_ref().filter(|one| one.name == name).enumerate() {
        let by_end = one
            .env
            .as_ref()
            .and_then(|env| PARTS.iter().find(|(end, _)| env.ends_with(end)));
        if let Some((_, part)) = by_end.or_else(|| PARTS.get(number)) {
            answer.insert((*part).to_owned(), one.placeholder.clone().into());
        }
    }
    if answer.len() < 3 {
        return Err(io::Error::other(format!(
            "no access key `{}` is bound to this run; `sallyport-shim secret ls` tells which credentials are",
            name.escape_debug()
        )));
    }
    writeln!(output, "{}", serde_json::Value::from(answer))?;
    Ok(ANSWERED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> io::Result<Known> {
        let one = |host: &str, place: &str, placeholder: &str, user: Option<&str>| KnownCredential {
            hosts: vec![host.into()],
            places: vec![place.into()],
            placeholder: placeholder.into(),
            user: user.map(str::to_owned),
            ..KnownCredential::default()
        };
        Ok(vec![
            one("git.example", "basic", "ph-git", None),
            one("api.example", "bearer", "ph-api", Some("bot")),
        ])
    }

    fn ask(serve: impl FnOnce(&mut &[u8], &mut Vec<u8>) -> io::Result<u8>, question: &str) -> (u8, String) {
        let mut output = Vec::new();
        let code = serve(&mut question.as_bytes(), &mut output).unwrap();
        (code, String::from_utf8(output).unwrap())
    }

    #[test]
    fn git_is_answered_for_bound_hosts_over_https_only() {
        let get = |question: &str| ask(|input, output| git("get", input, output, known), question).1;
        assert_eq!(
            get("protocol=https\nhost=git.example:8443\n\n"),
            "username=x-access-token\npassword=ph-git\n"
        );
        assert_eq!(
            get("protocol=https\nhost=git.example\nusername=ada\n\n"),
            "username=ada\npassword=ph-git\n"
        );
        for unbound in [
            "protocol=http\nhost=git.example\n",
            "protocol=https\nhost=other.example\n",
            "host=git.example\n",
            "",
        ] {
            assert_eq!(get(unbound), "", "{unbound}");
        }
        assert_eq!(
            get("protocol=https\nhost=api.example\n\n"),
            "",
            "git of before 2.46 knows no bearer"
        );
        let bearer = get("capability[]=authtype\nprotocol=https\nhost=api.example\n\n");
        assert!(
            bearer.contains("authtype=Bearer\ncredential=ph-api\n"),
            "{bearer}"
        );
        let stored = ask(
            |input, output| git("store", input, output, known),
            "protocol=https\nhost=git.example\n",
        );
        assert_eq!(stored, (0, String::new()));
    }

    #[test]
    fn docker_gets_a_name_with_the_placeholder_and_the_words_it_knows_where_there_is_none() {
        let get = |server: &str| ask(|input, output| docker("get", input, output, known), server);
        let (code, answer) = get("api.example\n");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(code, 0);
        assert_eq!(
            (&answer["Username"], &answer["Secret"]),
            (&"bot".into(), &"ph-api".into())
        );
        assert_eq!(
            get("other.example"),
            (1, "credentials not found in native keychain\n".to_owned())
        );
        let (_, all) = ask(|input, output| docker("list", input, output, known), "");
        assert_eq!(
            all,
            "{\"api.example\":\"bot\",\"git.example\":\"x-access-token\"}\n"
        );
        assert_eq!(
            ask(|input, output| docker("store", input, output, known), "{}").0,
            1
        );
    }

    #[test]
    fn an_access_key_of_aws_is_given_in_its_parts() {
        let part = |env: Option<&str>, placeholder: &str| KnownCredential {
            name: "aws".into(),
            env: env.map(str::to_owned),
            places: vec![AWS.into()],
            placeholder: placeholder.into(),
            ..KnownCredential::default()
        };
        let named = || {
            Ok(vec![
                part(Some("AWS_SECRET_ACCESS_KEY"), "ph-secret"),
                part(Some("AWS_ACCESS_KEY_ID"), "ph-id"),
                part(Some("AWS_SESSION_TOKEN"), "ph-token"),
            ])
        };
        let (_, answer) = ask(|_, output| aws(None, output, named), "");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let expected = serde_json::json!({
            "Version": 1, "AccessKeyId": "ph-id", "SecretAccessKey": "ph-secret", "SessionToken": "ph-token",
        });
        assert_eq!(answer, expected);
        let unnamed = || Ok(vec![part(None, "ph-id"), part(None, "ph-secret")]);
        let (_, answer) = ask(|_, output| aws(Some(&"aws".to_owned()), output, unnamed), "");
        assert!(
            answer.contains("\"AccessKeyId\":\"ph-id\"") && !answer.contains("Token"),
            "{answer}"
        );
        let other = aws(Some(&"other".to_owned()), &mut Vec::new(), named).unwrap_err();
        assert!(other.to_string().contains("no access key `other`"), "{other}");
    }

    #[test]
    fn cargo_gets_the_token_of_a_bound_index() {
        let question = |url: &str, kind: &str| {
            serde_json::json!({"v": 1, "registry": {"index-url": url, "name": "r"}, "kind": kind, "operation": "read"})
                .to_string()
        };
        let questions = [
            question("sparse+https://api.example/index/", "get"),
            question("https://other.example", "get"),
            question("https://api.example", "logout"),
        ];
        let (_, answers) = ask(|input, output| cargo(input, output, known), &questions.join("\n"));
        let answers: Vec<serde_json::Value> = answers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(answers[0]["v"][0], 1);
        assert_eq!(answers[1]["Ok"]["token"], "ph-api");
        assert_eq!(answers[2]["Err"]["kind"], "url-not-supported");
        assert_eq!(answers[3]["Err"]["kind"], "operation-not-supported");
    }
}
