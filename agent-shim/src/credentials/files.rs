//! The files by which tools find placeholders without being told. Files in the agent's home are made only where it has none of its own.
use super::binding::{AWS, HTTPS};
use crate::files::{self, Writing};
use crate::wire::KnownCredential;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where the shim keeps its own part of tools' settings, and what it wrote last into the agent's home.
const OWN: &str = "etc/sallyport";
/// Where the programs lie that tools start by name.
const LINKS: &str = "usr/local/bin";
/// The names under which tools start the shim.
const PROGRAMS: &[&str] = &[
    "git-credential-sallyport",
    "docker-credential-sallyport",
    "cargo-credential-sallyport",
];
/// The variable that names cargo's credential providers (the last is asked first).
const CARGO: &str = "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS";
/// Largest file that is looked at, in bytes; ours are far smaller.
const LARGEST: u64 = 64 * 1024;
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const PROGRAM: u32 = 0o755;

/// Where things are put.
#[derive(Debug, Clone)]
pub struct Homes {
    /// Folder below which everything is; `/` in a machine.
    pub root: PathBuf,
    /// The agent's home, absolute in the machine.
    pub home: String,
    /// The shim's own program.
    pub program: PathBuf,
}

/// Writes everything; gives the variables that tools need besides, and what could not be done.
pub fn install(homes: &Homes, known: &[KnownCredential]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut note = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            warnings.push(format!("{what} could not be set up: {error}"));
        }
    };
    note("the helpers of tools", links(homes));
    note("git", git(homes));
    for (name, path, content) in contents(homes, known) {
        note(name, place(homes, name, path, content.as_deref()));
    }
    let mut variables = BTreeMap::new();
    if known.iter().any(|one| one.stands_in("bearer")) {
        let provider = format!("/{LINKS}/cargo-credential-sallyport");
        variables.insert(CARGO.to_owned(), format!("cargo:token {provider}"));
    }
    (variables, warnings)
}

fn links(homes: &Homes) -> io::Result<()> {
    let folder = homes.root.join(LINKS);
    fs::create_dir_all(&folder)?;
    for name in PROGRAMS {
        match symlink(&homes.program, folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The system's settings include ours: a helper for all hosts, and a template with the hook for new clones.
fn git(homes: &Homes) -> io::Result<()> {
    let program = homes.program.display();
    let own = homes.root.join(OWN);
    let hook = format!(
        "#!/bin/sh\n# Refuses a commit that holds what looks like a secret.\nexec '{program}' commit-check\n"
    );
    write(&own.join("git-template/hooks/pre-commit"), &hook, PROGRAM)?;
    let settings = format!(
        "[credential]\n\thelper = !'{program}' git-credential\n[init]\n\ttemplateDir = /{OWN}/git-template\n"
    );
    write(&own.join("gitconfig"), &settings, PUBLIC)?;
    // A git of the machine's own making reads its settings beside itself.
    let own_git = homes.root.join("usr/local/bin/git").exists();
    let systems = ["etc/gitconfig", "usr/local/etc/gitconfig"]
        .into_iter()
        .take(1 + usize::from(own_git));
    systems
        .map(|system| homes.root.join(system))
        .try_for_each(|system| include(&system))
}

/// Makes git's settings include ours, once.
fn include(system: &Path) -> io::Result<()> {
    let include = format!("[include]\n\tpath = /{OWN}/gitconfig\n");
    let before = match look(system)? {
        There::Nothing => String::new(),
        There::File(before) => String::from_utf8(before).map_err(io::Error::other)?,
        There::Other => return Err(io::Error::other(format!("{} is no small file", system.display()))),
    };
    if before.contains(&include) {
        return Ok(());
    }
    write(system, &format!("{}\n{include}", before.trim_end()), PUBLIC)
}

/// What each tool reads in the home: a name for it, its path there, and its content where there is something to say.
fn contents(homes: &Homes, known: &[KnownCredential]) -> [(&'static str, &'static str, Option<String>); 6] {
    let hosts = gh(known);
    [
        ("netrc", ".netrc", netrc(known)),
        ("npm", ".npmrc", npm(known)),
        ("docker", ".docker/config.json", docker(known)),
        // Without a version of its settings, `gh` would move its hosts to another form, and ask each of them first.
        (
            "gh-version",
            ".config/gh/config.yml",
            hosts.as_ref().map(|_| "version: \"1\"\n".to_owned()),
        ),
        ("gh", ".config/gh/hosts.yml", hosts),
        ("aws", ".aws/config", aws(homes, known)),
    ]
}

/// Each host once, with the credential that tools may show there with each request, and that may be used there rather than one that must be asked for.
fn each_host<'k>(known: &'k [KnownCredential], place: &str) -> BTreeMap<&'k str, &'k KnownCredential> {
    let mut hosts: BTreeMap<&str, &KnownCredential> = BTreeMap::new();
    for one in known.iter().filter(|one| one.stands_in(place) && one.throughout) {
        for name in one.names() {
            let better = |there: &&KnownCredential| !there.is_usable_at(name) && one.is_usable_at(name);
            if hosts.get(name).is_none_or(better) {
                hosts.insert(name, one);
            }
        }
    }
    hosts
}

/// For curl, pip, uv and git: `basic` only, since clients make a log-in by name and password of it.
fn netrc(known: &[KnownCredential]) -> Option<String> {
    let mut text = String::new();
    for (host, one) in each_host(known, "basic") {
        let (user, placeholder) = (one.user_name(), &one.placeholder);
        if [user, placeholder].iter().all(|word| is_word(word)) {
            text.push_str(&format!("machine {host} login {user} password {placeholder}\n"));
        }
    }
    (!text.is_empty()).then_some(text)
}

fn npm(known: &[KnownCredential]) -> Option<String> {
    let mut lines = BTreeSet::new();
    let bearer = each_host(known, "bearer");
    for (host, one) in &bearer {
        for at in places(host, one) {
            lines.insert(format!("//{at}/:_authToken={}\n", one.placeholder));
        }
    }
    for (host, one) in each_host(known, "basic") {
        if bearer.contains_key(host) {
            continue;
        }
        for at in places(host, one) {
            lines.insert(format!("//{at}/:username={}\n", one.user_name()));
            lines.insert(format!(
                "//{at}/:_password={}\n",
                STANDARD.encode(&one.placeholder)
            ));
        }
    }
    (!lines.is_empty()).then(|| lines.into_iter().collect())
}

/// `HOST` or `HOST:PORT` at each port of a credential.
fn places(host: &str, one: &KnownCredential) -> Vec<String> {
    let of = |origin: &String| {
        origin == host
            || origin
                .strip_prefix(host)
                .is_some_and(|rest| rest.starts_with(':'))
    };
    one.origins().into_iter().filter(of).collect()
}

fn docker(known: &[KnownCredential]) -> Option<String> {
    let for_registries = known
        .iter()
        .filter(|one| one.stands_in("basic") || one.stands_in("bearer"));
    let helpers: BTreeMap<String, &str> = for_registries
        .flat_map(KnownCredential::origins)
        .map(|origin| (origin, "sallyport"))
        .collect();
    (!helpers.is_empty()).then(|| format!("{:#}\n", serde_json::json!({ "credHelpers": helpers })))
}

/// A host, and the one whose API lies at `api.HOST`.
fn gh(known: &[KnownCredential]) -> Option<String> {
    let mut hosts = BTreeMap::new();
    for (host, one) in each_host(known, "bearer") {
        if one.ports.iter().all(|port| *port == HTTPS) {
            hosts
                .entry(host.strip_prefix("api.").unwrap_or(host))
                .or_insert(one);
        }
    }
    let mut text = String::new();
    for (host, one) in hosts {
        let user = one.user.as_deref().unwrap_or("agent");
        let quoted = |word: &str| serde_json::Value::from(word).to_string();
        let (user, token) = (quoted(user), quoted(&one.placeholder));
        text.push_str(&format!(
            "{host}:\n    git_protocol: https\n    users:\n        {user}:\n            oauth_token: {token}\n    \
             user: {user}\n    oauth_token: {token}\n"
        ));
    }
    (!text.is_empty()).then_some(text)
}

/// A profile for each access key of AWS; the first is the default one.
fn aws(homes: &Homes, known: &[KnownCredential]) -> Option<String> {
    let names: BTreeSet<&str> = known
        .iter()
        .filter(|one| one.stands_in(AWS))
        .map(|one| one.name.as_str())
        .collect();
    let first = known.iter().find(|one| one.stands_in(AWS))?.name.as_str();
    let profile = |head: String, name: &str| {
        format!(
            "[{head}]\ncredential_process = {} aws-credentials {name}\n",
            homes.program.display()
        )
    };
    let others = names.iter().map(|name| profile(format!("profile {name}"), name));
    Some(profile("default".to_owned(), first) + &others.collect::<String>())
}

/// What stands between blanks in a netrc: anything else would be read as something else.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'"' | b'\\'))
}

/// Puts a file into the home, or takes it away where there is nothing to say; unless what is there is the agent's own.
fn place(homes: &Homes, name: &str, path: &str, content: Option<&str>) -> io::Result<()> {
    let there = homes.root.join(homes.home.trim_start_matches('/')).join(path);
    let kept = homes.root.join(OWN).join("written").join(name);
    let (now, ours) = match (look(&there)?, look(&kept)?) {
        (There::Other, _) | (_, There::Other) => return Ok(()),
        (now, ours) => (now.content(), ours.content()),
    };
    if now.is_some() && now != ours {
        return Ok(());
    }
    match content {
        Some(content) if now.as_deref() == Some(content.as_bytes()) => Ok(()),
        Some(content) => {
            write(&there, content, PRIVATE)?;
            write(&kept, content, PRIVATE)
        }
        None if now.is_some() => fs::remove_file(&there),
        None => Ok(()),
    }
}

/// What a path holds.
enum There {
    Nothing,
    File(Vec<u8>),
    /// No regular file, or too large a one: never ours.
    Other,
}

impl There {
    fn content(self) -> Option<Vec<u8>> {
        match self {
            There::File(content) => Some(content),
            There::Nothing | There::Other => None,
        }
    }
}

/// Looks before it reads: the agent may have put a pipe or a device there, which would hold the shim or never end.
fn look(path: &Path) -> io::Result<There> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
        Err(error) => return Err(error),
    };
    if !about.is_file() || about.len() > LARGEST {
        return Ok(There::Other);
    }
    // Without waiting, and no more than that: it may be another file by now.
    let (content, size) = files::read(text(path)?, 0, LARGEST)?;
    match size > LARGEST {
        true => Ok(There::Other),
        false => Ok(There::File(content)),
    }
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str()
        .ok_or_else(|| io::Error::other("the path is no text"))
}

/// Puts a file in place, unless it is the same already, or what is there is none of ours.
fn write(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    match look(path) {
        Ok(There::Other) => return Ok(()),
        Ok(There::File(there)) if there == content.as_bytes() => return Ok(()),
        _ => {}
    }
    let mut writing = Writing::begin(text(path)?, mode, 0)?;
    writing.write(content.as_bytes())?;
    writing.finish().map(drop)
}

#[cfg(test)]
#[path = "files/tests.rs"]
mod tests;
