//! What well-known secrets look like: a beginning, and how much follows of which characters. Pure.
//!
//! The machine knows no value: this finds what somebody pasted, before it is in a commit.

/// One kind of secret.
struct Shape {
    /// What it is.
    kind: &'static str,
    /// How it begins.
    beginning: &'static str,
    /// Least number of characters after that.
    least: usize,
    /// Whether a character may follow.
    follows: fn(u8) -> bool,
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn token(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

const SHAPES: &[Shape] = &[
    Shape {
        kind: "a token of a git forge",
        beginning: "ghp_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a git forge",
        beginning: "gho_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a git forge",
        beginning: "ghs_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a git forge",
        beginning: "ghu_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a git forge",
        beginning: "github_pat_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a git forge",
        beginning: "glpat-",
        least: 20,
        follows: token,
    },
    Shape {
        kind: "an access key of a cloud",
        beginning: "AKIA",
        least: 16,
        follows: upper,
    },
    Shape {
        kind: "an access key of a cloud",
        beginning: "ASIA",
        least: 16,
        follows: upper,
    },
    Shape {
        kind: "a key of a cloud",
        beginning: "AIza",
        least: 35,
        follows: token,
    },
    Shape {
        kind: "a key of a model provider",
        beginning: "sk-ant-",
        least: 40,
        follows: token,
    },
    Shape {
        kind: "a key of a model provider",
        beginning: "sk-proj-",
        least: 40,
        follows: token,
    },
    Shape {
        kind: "a token of a package registry",
        beginning: "npm_",
        least: 36,
        follows: word,
    },
    Shape {
        kind: "a token of a package registry",
        beginning: "pypi-",
        least: 60,
        follows: token,
    },
    Shape {
        kind: "a token of a package registry",
        beginning: "dckr_pat_",
        least: 20,
        follows: token,
    },
    Shape {
        kind: "a token of a chat",
        beginning: "xoxb-",
        least: 20,
        follows: token,
    },
    Shape {
        kind: "a token of a chat",
        beginning: "xoxp-",
        least: 20,
        follows: token,
    },
    Shape {
        kind: "a key of a payment provider",
        beginning: "sk_live_",
        least: 16,
        follows: word,
    },
    Shape {
        kind: "a token of a vault",
        beginning: "hvs.",
        least: 20,
        follows: token,
    },
];
/// How private keys in PEM begin, whatever their kind.
const PEM: (&str, &str) = ("-----BEGIN ", "PRIVATE KEY-----");

/// The kind of the first secret that seems to stand in a line.
pub(super) fn found(line: &str) -> Option<&'static str> {
    if let Some((_, rest)) = line.split_once(PEM.0)
        && rest.contains(PEM.1)
    {
        return Some("a private key");
    }
    SHAPES
        .iter()
        .find(|shape| shape.stands_in(line))
        .map(|shape| shape.kind)
}

impl Shape {
    fn stands_in(&self, line: &str) -> bool {
        line.match_indices(self.beginning).any(|(at, _)| {
            let before = line.as_bytes()[..at].last();
            let rest = &line.as_bytes()[at + self.beginning.len()..];
            let length = rest.iter().take_while(|byte| (self.follows)(**byte)).count();
            before.is_none_or(|byte| !word(*byte)) && length >= self.least
        })
    }
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn tokens_and_keys_are_known_by_beginning_and_length() {
        let token = format!("token = \"{}_{}\"", "ghp", "a1".repeat(18));
        assert_eq!(found(&token), Some("a token of a git forge"));
        assert_eq!(
            found(&format!("{}{}", "AKIA", "ABCD2345".repeat(2))),
            Some("an access key of a cloud")
        );
        assert_eq!(
            found(&format!("-----BEGIN RSA {}", "PRIVATE KEY-----")),
            Some("a private key")
        );
    }

    #[test]
    fn what_is_shorter_or_within_a_word_is_none() {
        for line in [
            "ghp_short",
            "xghp_abcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
            "AKIA",
            "-----BEGIN CERTIFICATE-----",
            "é",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
