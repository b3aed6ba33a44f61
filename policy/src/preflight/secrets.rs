//! Environment variables that hold secrets, by their names; the variables of example files.
use super::finds::{Find, Finds, Spot, numbered};

const WORDS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "PAT",
    "DSN",
];
/// What makes a `KEY` no secret.
const PUBLIC: &[&str] = &["PUBLIC", "CACHE", "PRIMARY", "FOREIGN", "SORT"];

/// Whether a variable's name says that it holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let words: Vec<&str> = upper.split('_').collect();
    let ends = |last: &str| words.last() == Some(&last);
    if ends("FILE")
        || ends("PATH")
        || ends("URL")
        || ends("NAME")
        || words.iter().any(|word| PUBLIC.contains(word))
    {
        return false;
    }
    ends("KEY") || words.iter().any(|word| WORDS.contains(word))
}

/// Whether this is an example of an environment file.
pub(super) fn reads(name: &str) -> bool {
    matches!(
        name,
        ".env.example" | ".env.sample" | ".env.template" | ".env.dist" | "env.example" | ".envrc"
    )
}

/// `NAME=value`, one a line.
pub(super) fn read(finds: &mut Finds<'_>) {
    for (number, line) in numbered(finds.text) {
        let line = line.trim().trim_start_matches("export ");
        if let Some((name, _)) = line.split_once('=')
            && !line.starts_with('#')
        {
            variable(name.trim(), number, finds);
        }
    }
}

/// A variable that a file refers to: a need if its name says secret.
pub(super) fn variable(name: &str, number: u32, finds: &mut Finds<'_>) {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty();
    if fits && is_secret(name) {
        let find = Find::likely("a secret", "environment", Spot::Line(number));
        finds.credential(Some(name.to_owned()), None, find);
    }
}

#[cfg(test)]
mod tests {
    use super::is_secret;
    use crate::preflight::testing::told;

    #[test]
    fn names_tell_secrets_from_settings() {
        for name in [
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "DB_PASSWORD",
            "CLIENT_SECRET",
            "NPM_PAT",
            "SENTRY_DSN",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "PORT",
            "PUBLIC_KEY",
            "KEYBOARD",
            "PATH",
            "SECRET_NAME",
            "TOKEN_URL",
            "PATTERN",
            "SORT_KEY",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn example_files_name_what_must_be_set() {
        assert_eq!(
            told(".env.example", "# GH_TOKEN=\nPORT=1\nexport API_KEY=changeme\n"),
            ["likely a secret in `API_KEY` @3"]
        );
    }
}
