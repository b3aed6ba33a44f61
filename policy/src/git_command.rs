//! Git's commands over ssh (gitprotocol-pack, "SSH Transport"), read as strictly as git writes them.
use crate::{GitAccess, GitRequest};

const FETCH: &str = "git-upload-pack ";
const PUSH: &str = "git-receive-pack ";

/// What a command wants of which repository; none where it is not exactly what git sends, so that nothing hides in it.
pub fn git_command(command: &[u8]) -> Option<GitRequest> {
    let command = std::str::from_utf8(command).ok()?;
    let (access, quoted) = match (command.strip_prefix(FETCH), command.strip_prefix(PUSH)) {
        (Some(quoted), _) => (GitAccess::Read, quoted),
        (_, Some(quoted)) => (GitAccess::Write, quoted),
        _ => return None,
    };
    let path = unquoted(quoted)?;
    // What begins with a dash is an option to the program on the other side.
    if path.is_empty() || path.starts_with('-') || path.contains(char::is_control) {
        return None;
    }
    Some(GitRequest {
        repository: path,
        access,
        pushed: None,
    })
}

/// One word in single quotes, `'` and `!` in it as `'\''` and `'\!'` (git's `sq_quote_buf`).
fn unquoted(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('\'')?;
    let mut word = String::new();
    loop {
        let (piece, after) = rest.split_once('\'')?;
        word.push_str(piece);
        if after.is_empty() {
            return Some(word);
        }
        let escaped = after.strip_prefix('\\')?;
        let letter = escaped
            .chars()
            .next()
            .filter(|letter| matches!(letter, '\'' | '!'))?;
        word.push(letter);
        rest = escaped.get(1..)?.strip_prefix('\'')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: &str) -> Option<(String, GitAccess)> {
        git_command(command.as_bytes()).map(|git| (git.repository, git.access))
    }

    #[test]
    fn what_git_sends_is_read() {
        let fetch = |path: &str| Some((path.to_owned(), GitAccess::Read));
        assert_eq!(read("git-upload-pack '/acme/web.git'"), fetch("/acme/web.git"));
        assert_eq!(read("git-upload-pack 'acme/it'\\''s'"), fetch("acme/it's"));
        assert_eq!(read("git-upload-pack 'a'\\!'b c'"), fetch("a!b c"));
        assert_eq!(
            read("git-receive-pack 'acme/web.git'"),
            Some(("acme/web.git".to_owned(), GitAccess::Write))
        );
    }

    #[test]
    fn whatever_else_is_no_command_of_git() {
        for command in [
            "git-upload-pack",
            "git-upload-pack acme/web",
            "git-upload-pack ''",
            "git-upload-pack 'acme/web",
            "git-upload-pack 'acme/web' ",
            "git-upload-pack 'acme/web'; id",
            "git-upload-pack 'a''b'",
            "git-upload-pack 'a'\\$'b'",
            "git-upload-pack  'acme/web'",
            "git-upload-pack '--timeout=1'",
            "git-upload-pack 'a\nb'",
            "git upload-pack 'acme/web'",
            "git-upload-archive 'acme/web'",
            " git-upload-pack 'acme/web'",
            "GIT-UPLOAD-PACK 'acme/web'",
        ] {
            assert_eq!(read(command), None, "{command}");
        }
        assert_eq!(git_command(b"git-upload-pack '\xff'"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_word_is_read_back_as_git_quotes_it(word in "[^\\x00-\\x1f\\x7f-\\x9f-][^\\x00-\\x1f\\x7f-\\x9f]{0,20}") {
            let quoted = word.replace('\'', "'\\''").replace('!', "'\\!'");
            proptest::prop_assert_eq!(read(&format!("git-upload-pack '{quoted}'")), Some((word, GitAccess::Read)));
        }
    }
}
