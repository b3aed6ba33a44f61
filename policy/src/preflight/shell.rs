//! What command lines fetch: package managers, downloads, clones. Read line by line; no shell is understood in full.
use super::finds::{Find, Finds, Spot};
use super::need::Certainty;

/// What packages of the system come from: the base of an image decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Debian,
    Ubuntu,
}

/// How to say what is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) what: &'static str,
    pub(super) ecosystem: &'static str,
    pub(super) certainty: Certainty,
    pub(super) system: System,
}

/// Package managers with the words that make them fetch, what that is, and whose preset it needs.
const MANAGERS: &[(&[&str], &[&str], &str, &str)] = &[
    (
        &[
            "pip", "pip3", "pipx", "uv", "poetry", "pdm", "pipenv", "tox", "nox",
        ],
        &["install", "sync", "add", "download", "lock", "tool", "update"],
        "python packages",
        "python",
    ),
    (
        &["npm", "yarn", "pnpm", "bun"],
        &[
            "ci",
            "install",
            "i",
            "add",
            "dlx",
            "exec",
            "update",
            "install-clean",
        ],
        "npm packages",
        "npm",
    ),
    (&["npx", "bunx"], &[], "npm packages", "npm"),
    (
        &["cargo"],
        &["install", "build", "fetch", "test", "update", "binstall"],
        "cargo crates",
        "cargo",
    ),
    (
        &["go"],
        &["get", "install", "build", "test", "mod"],
        "go modules",
        "go",
    ),
    (
        &["gem", "bundle", "bundler"],
        &["install", "update"],
        "ruby gems",
        "rubygems",
    ),
    (
        &["composer"],
        &["install", "update", "require", "create-project"],
        "php packages",
        "php",
    ),
    (
        &["mvn", "mvnw", "./mvnw", "gradle", "gradlew", "./gradlew"],
        &[],
        "java packages",
        "maven",
    ),
    (
        &["dnf", "microdnf", "yum"],
        &["install", "update", "upgrade"],
        "fedora packages",
        "fedora",
    ),
    (
        &["dotnet", "nuget"],
        &["restore", "build", "test", "publish", "add", "install", "tool"],
        ".net packages",
        "nuget",
    ),
    (
        &["apk"],
        &["add", "update", "upgrade"],
        "alpine packages",
        "alpine",
    ),
    (
        &["docker", "podman"],
        &["pull", "build", "run"],
        "container images",
        "containers",
    ),
];

/// Words that may stand before a command.
const BEFORE: &[&str] = &[
    "sudo", "exec", "time", "env", "then", "do", "else", "if", "!", "RUN", "-", "@",
];

/// Looks through one logical line.
pub(super) fn line(text: &str, number: u32, setting: Setting, finds: &mut Finds<'_>) {
    let text = text.trim_start_matches(['@', '-', ' ', '\t']);
    if text.starts_with('#') {
        return;
    }
    for command in text.split([';', '|', '&', '(', ')', '`']) {
        look(command, number, setting, finds);
    }
}

fn look(command: &str, number: u32, setting: Setting, finds: &mut Finds<'_>) {
    let words: Vec<&str> = command
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '\'']))
        .skip_while(|word| BEFORE.contains(word) || is_setting(word))
        .collect();
    let Some((program, arguments)) = words.split_first() else {
        return;
    };
    if matches!(
        *program,
        "echo" | "printf" | "#" | "//" | "grep" | "sed" | "test" | "[" | "[["
    ) {
        return;
    }
    let find = |what, ecosystem| Find {
        what,
        ecosystem,
        certainty: setting.certainty,
        spot: Spot::Line(number),
    };
    // Rust's `//` and URLs in assignments are seen too: what is written with a scheme is looked for in the whole command.
    let clones = program.ends_with("git")
        && arguments
            .iter()
            .any(|word| matches!(*word, "clone" | "add" | "fetch"));
    for word in words.iter().flat_map(|word| urls(word)) {
        match clones {
            true => finds.repository(word, find("a git repository", "git")),
            false => finds.address(word, find(setting.what, setting.ecosystem)),
        }
    }
    if clones {
        for word in arguments.iter().filter(|word| !word.contains("://")) {
            finds.repository(word, find("a git repository", "git"));
        }
    }
    if let Some((what, ecosystem)) = manager(program, arguments, setting.system) {
        finds.registries(find(what, ecosystem));
    }
}

fn manager(program: &str, arguments: &[&str], system: System) -> Option<(&'static str, &'static str)> {
    let (program, arguments) = match (program, arguments) {
        ("python" | "python3", ["-m", module, rest @ ..]) => (*module, rest),
        ("corepack", [inner, rest @ ..]) => (*inner, rest),
        _ => (program, arguments),
    };
    if matches!(program, "apt-get" | "apt" | "aptitude") {
        let fetches = arguments
            .iter()
            .any(|word| matches!(*word, "install" | "update" | "upgrade" | "dist-upgrade"));
        return fetches.then_some(match system {
            System::Debian => ("debian packages", "debian"),
            System::Ubuntu => ("ubuntu packages", "ubuntu"),
        });
    }
    // A mirror that is named takes the place of the default.
    let elsewhere = |word: &&str| {
        [
            "--index-url",
            "--registry",
            "--no-index",
            "--offline",
            "--frozen-offline",
        ]
        .iter()
        .any(|option| word.starts_with(option))
            || (program.starts_with("pip") && *word == "-i")
    };
    if arguments.iter().any(elsewhere) {
        return None;
    }
    MANAGERS
        .iter()
        .find(|(programs, words, ..)| {
            programs.contains(&program)
                && (words.is_empty() || arguments.iter().any(|word| words.contains(word)))
        })
        .map(|(_, _, what, ecosystem)| (*what, *ecosystem))
}

/// `NAME=value` before a command; one that holds a URL is looked at as a command.
fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        !value.contains("://")
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The http, https, ssh and git URLs in a word.
pub(super) fn urls(word: &str) -> impl Iterator<Item = &str> {
    let starts = word.match_indices("://").filter_map(|(at, _)| {
        let before = word.get(..at)?;
        let start = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '+')
            .map_or(0, |before| before + 1);
        word.get(start..)
    });
    starts.map(|url| {
        let end = url.find(['"', '\'', '<', '>', '`', '\\', ' ', '\t', ',']);
        url.get(..end.unwrap_or(url.len())).unwrap_or(url)
    })
}

/// Lines with those that a backslash continues, and the number of the first.
pub(super) fn joined(text: &str) -> Vec<(u32, String)> {
    let mut out: Vec<(u32, String)> = Vec::new();
    let mut open = false;
    for (number, line) in super::finds::numbered(text) {
        let trimmed = line.trim_end();
        let (piece, continues) = match trimmed.strip_suffix('\\') {
            Some(piece) => (piece, true),
            None => (trimmed, false),
        };
        // Docker lets comments stand between continued lines.
        if open && piece.trim_start().starts_with('#') {
            continue;
        }
        match out.last_mut() {
            Some((_, whole)) if open => {
                whole.push(' ');
                whole.push_str(piece.trim());
            }
            _ => out.push((number, piece.to_owned())),
        }
        open = continues;
    }
    out
}
