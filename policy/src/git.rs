//! Git as it looks to a policy: the repository, whether to fetch or to push, and the refs that a push changes.
use crate::path::escaped;
use crate::{GitAccess, GitRequest, HttpRequest, RefUpdate};
use std::borrow::Cow;

/// One git request, whatever carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitView<'a> {
    /// In the canonical form of paths, without slashes at its ends and without `.git`; `None` where it cannot be told.
    pub(crate) repository: Option<Cow<'a, str>>,
    /// `None` where it cannot be told.
    pub(crate) access: Option<GitAccess>,
    /// What a push changes; `None` for everything but the push itself.
    pub(crate) push: Option<Pushed<'a>>,
    /// What a server may read in another way.
    pub(crate) doubt: Option<&'static str>,
}

/// The refs of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed<'a> {
    /// They stand in what has not been read yet.
    Unread,
    Refs(&'a [RefUpdate]),
}

/// Smart HTTP (gitprotocol-http): the path ends in `/info/refs`, `/git-upload-pack` or `/git-receive-pack`.
pub(crate) fn over_http(http: &HttpRequest) -> Option<GitView<'_>> {
    let path = http.path.as_str();
    if http.path.ambiguity().is_some() {
        return may_be_git(path).then_some(GitView {
            repository: None,
            access: None,
            push: None,
            doubt: Some("the path can be read in more than one way"),
        });
    }
    let query = http.query.as_deref().unwrap_or_default();
    let sent = unless(
        http.method == "POST" && query.is_empty(),
        "it is not a `POST` without a query",
    );
    if let Some(repository) = path.strip_suffix("/git-upload-pack") {
        return Some(view(repository, Some(GitAccess::Read), None, sent));
    }
    if let Some(repository) = path.strip_suffix("/git-receive-pack") {
        let push = pushed(http.pushed.as_deref());
        return Some(view(repository, Some(GitAccess::Write), Some(push), sent));
    }
    let repository = path.strip_suffix("/info/refs")?;
    let access = match query {
        "service=git-upload-pack" => Some(GitAccess::Read),
        "service=git-receive-pack" => Some(GitAccess::Write),
        _ => None,
    };
    let asked = unless(
        access.is_some() && http.method == "GET",
        "it is not a `GET` with `service=git-upload-pack` or `service=git-receive-pack` alone",
    );
    Some(view(repository, access, None, asked))
}

/// Over ssh, where the repository is a raw text.
pub(crate) fn over_ssh(git: &GitRequest) -> GitView<'_> {
    let repository = name(&git.repository);
    let plain = repository.split('/').all(|part| !matches!(part, "" | "." | ".."));
    GitView {
        repository: plain.then(|| escaped(repository)),
        access: Some(git.access),
        push: match git.access {
            GitAccess::Read => None,
            GitAccess::Write => Some(pushed(git.pushed.as_deref())),
        },
        doubt: unless(plain, "the repository's name has an empty or dot segment"),
    }
}

fn view<'a>(
    repository: &'a str,
    access: Option<GitAccess>,
    push: Option<Pushed<'a>>,
    doubt: Option<&'static str>,
) -> GitView<'a> {
    GitView {
        repository: Some(Cow::Borrowed(name(repository))),
        access,
        push,
        doubt,
    }
}

fn pushed(refs: Option<&[RefUpdate]>) -> Pushed<'_> {
    refs.map_or(Pushed::Unread, Pushed::Refs)
}

fn unless(clear: bool, doubt: &'static str) -> Option<&'static str> {
    (!clear).then_some(doubt)
}

/// Without slashes at its ends and without `.git`.
fn name(repository: &str) -> &str {
    let name = repository.trim_matches('/');
    name.strip_suffix(".git").unwrap_or(name)
}

/// Whether an ambiguous path may reach git in one of its readings.
fn may_be_git(path: &str) -> bool {
    ["upload-pack", "receive-pack", "refs"]
        .iter()
        .any(|word| path.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CanonicalPath;

    fn http(method: &str, target: &str) -> HttpRequest {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        HttpRequest::new(method, CanonicalPath::parse(path).unwrap(), query, true)
    }

    /// Repository, access, and whether it is clear.
    fn seen(method: &str, target: &str) -> Option<(String, Option<GitAccess>, bool)> {
        let http = http(method, target);
        let view = over_http(&http)?;
        let repository = view.repository.unwrap_or_default().into_owned();
        Some((repository, view.access, view.doubt.is_none()))
    }

    #[test]
    fn a_repository_is_what_stands_before_the_service() {
        let web = |access, clear| Some(("acme/web".to_owned(), access, clear));
        let (read, write) = (Some(GitAccess::Read), Some(GitAccess::Write));
        for (method, target, expected) in [
            (
                "GET",
                "/acme/web.git/info/refs?service=git-upload-pack",
                web(read, true),
            ),
            (
                "GET",
                "/acme/web/info/refs?service=git-receive-pack",
                web(write, true),
            ),
            ("POST", "/acme/web.git/git-upload-pack", web(read, true)),
            ("POST", "/acme/web.git/git-receive-pack", web(write, true)),
            ("GET", "/acme/web.git/git-receive-pack", web(write, false)),
            ("POST", "/acme/web.git/git-receive-pack?a", web(write, false)),
            ("GET", "/acme/web.git/info/refs", web(None, false)),
            (
                "GET",
                "/acme/web.git/info/refs?service=git-upload-pack&x",
                web(None, false),
            ),
            (
                "GET",
                "/acme/web.git/info/refs?service=git%2Dupload-pack",
                web(None, false),
            ),
            ("GET", "/acme/web.git/HEAD", None),
            ("GET", "/acme/web.git/info/refs/x", None),
            (
                "POST",
                "/acme/web.git//git-receive-pack",
                Some((String::new(), None, false)),
            ),
            (
                "POST",
                "/acme%2fweb.git/git-receive-pack",
                Some((String::new(), None, false)),
            ),
            (
                "POST",
                "/acme/web.git/git-receive-pack;x",
                Some((String::new(), None, false)),
            ),
            ("GET", "/@scope%2fname", None),
        ] {
            assert_eq!(seen(method, target), expected, "{method} {target}");
        }
    }

    #[test]
    fn what_a_push_changes_is_unread_until_it_is_known() {
        let mut push = http("POST", "/acme/web.git/git-receive-pack");
        assert_eq!(over_http(&push).unwrap().push, Some(Pushed::Unread));
        push.pushed = Some(Vec::new());
        assert_eq!(over_http(&push).unwrap().push, Some(Pushed::Refs(&[])));
        let fetch = http("POST", "/acme/web.git/git-upload-pack");
        assert_eq!(over_http(&fetch).unwrap().push, None);
    }

    #[test]
    fn over_ssh_a_name_is_escaped_and_leads_nowhere_else() {
        let git = |repository: &str| GitRequest {
            repository: repository.into(),
            access: GitAccess::Read,
            pushed: None,
        };
        let plain = git("/acme/käse.git");
        assert_eq!(over_ssh(&plain).repository.as_deref(), Some("acme/k%C3%A4se"));
        for odd in ["acme/../other/x", "acme//web", "", "./web"] {
            let odd = git(odd);
            assert!(over_ssh(&odd).doubt.is_some(), "{odd:?}");
        }
    }
}
