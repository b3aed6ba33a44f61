//! PURE: words that are no secrets: what everybody tries first, or finds in ordinary traffic by chance.

/// In lower case, of the shortest length that is bound and more.
const WORDS: [&str; 40] = [
    "12345678",
    "123456789",
    "1234567890",
    "11223344",
    "abcdefgh",
    "abcd1234",
    "access_token",
    "administrator",
    "anonymous",
    "application",
    "authorization",
    "baseball",
    "changeit",
    "changeme",
    "changethis",
    "database",
    "dolphins",
    "example123",
    "football",
    "iloveyou",
    "letmein1",
    "localhost",
    "password",
    "password1",
    "password123",
    "passw0rd",
    "placeholder",
    "postgres",
    "production",
    "qwertyui",
    "qwertyuiop",
    "qwerty123",
    "secret123",
    "sunshine",
    "superman",
    "testtest",
    "trustno1",
    "undefined",
    "username",
    "welcome1",
];

/// Whether a value is such a word in any case, or one byte repeated.
pub(super) fn is_common(value: &[u8]) -> bool {
    let repeated = value.windows(2).all(|pair| pair[0] == pair[1]);
    repeated
        || WORDS
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_repetitions_are_common_and_random_texts_are_not() {
        for value in ["password", "PassWord", "changeme", "00000000", "aaaaaaaaaaaa"] {
            assert!(is_common(value.as_bytes()), "{value}");
        }
        for value in ["password-9f2c71", "00000001", "tr0ub4dor&3x"] {
            assert!(!is_common(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn every_word_is_long_enough_to_be_bound_at_all() {
        assert!(
            WORDS
                .iter()
                .all(|word| word.len() >= super::super::SHORTEST_VALUE)
        );
    }
}
