//! The check before a commit: what is about to be committed and looks like a secret, or is a placeholder, is refused.
use super::shapes;
use crate::wire::KnownCredential;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Exit codes, as git reads those of a hook.
const FINE: u8 = 0;
const REFUSED: u8 = 1;
/// Findings that are told one by one.
const TOLD: usize = 20;

/// Looks at the staged changes of the repository in the working directory.
pub(super) fn staged(known: &[KnownCredential], tell: &mut impl Write) -> io::Result<u8> {
    let mut diff = Command::new("git")
        .args([
            "diff",
            "--cached",
            "--unified=0",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let found = match diff.stdout.take() {
        Some(output) => findings(BufReader::new(output), known)?,
        None => Vec::new(),
    };
    if !diff.wait()?.success() {
        return Err(io::Error::other("`git diff --cached` failed"));
    }
    if found.is_empty() {
        return Ok(FINE);
    }
    writeln!(tell, "sallyport: this commit is refused:")?;
    for finding in found.iter().take(TOLD) {
        writeln!(tell, "  {finding}")?;
    }
    if found.len() > TOLD {
        writeln!(tell, "  and {} more", found.len() - TOLD)?;
    }
    writeln!(
        tell,
        "Take them out (variables hold what is needed), or commit with `--no-verify` if they are no secrets."
    )?;
    Ok(REFUSED)
}

/// What stands in the added lines of a unified diff.
fn findings(mut diff: impl BufRead, known: &[KnownCredential]) -> io::Result<Vec<String>> {
    let (mut file, mut number) = (String::new(), 0_u64);
    let mut found = Vec::new();
    let mut line = Vec::new();
    let mut in_head = true;
    while diff.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.starts_with("diff --git ") {
            in_head = true;
        } else if let Some(name) = text.strip_prefix("+++ ").filter(|_| in_head) {
            file = name.strip_prefix("b/").unwrap_or(name).to_owned();
        } else if let Some(range) = text.strip_prefix("@@ ") {
            in_head = false;
            number = first_line(range);
        } else if let Some(added) = text.strip_prefix('+').filter(|_| !in_head) {
            found.extend(what(added, known).map(|what| format!("{file}:{number}: {what}")));
            number += 1;
        }
        line.clear();
    }
    Ok(found)
}

/// The first line of the new side in `-a,b +c,d @@`.
fn first_line(range: &str) -> u64 {
    let new = range.split(' ').find_map(|part| part.strip_prefix('+'));
    let first = new.and_then(|new| new.split(',').next());
    first.and_then(|first| first.parse().ok()).unwrap_or(1)
}

fn what(line: &str, known: &[KnownCredential]) -> Option<String> {
    let held = known
        .iter()
        .find(|one| !one.placeholder.is_empty() && line.contains(&one.placeholder));
    if let Some(one) = held {
        return Some(format!(
            "the placeholder of credential `{}`, which is worth nothing anywhere else",
            one.name
        ));
    }
    shapes::found(line).map(|kind| format!("what looks like {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_lines_alone_are_looked_at_and_named_by_file_and_line() {
        let token = format!("{}_{}", "ghp", "a1".repeat(18));
        let diff = format!(
            "diff --git a/x b/x\n--- a/x\n+++ b/src/x.rs\n@@ -3,0 +4,3 @@ fn\n+fine\n+let t = \"{token}\";\n+ph-1 here\n\
             @@ -9 +12 @@\n-{token}\n+++ plus\n"
        );
        let known = [KnownCredential {
            name: "forge".into(),
            placeholder: "ph-1".into(),
            ..KnownCredential::default()
        }];
        let found = findings(diff.as_bytes(), &known).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("src/x.rs:5: what looks like a token"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("src/x.rs:6: the placeholder of credential `forge`"),
            "{found:?}"
        );
        assert!(!found.concat().contains(&token) && !found.concat().contains("ph-1"));
    }
}
