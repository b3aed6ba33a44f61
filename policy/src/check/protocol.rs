//! What of a rule's `to` goes with its protocol.
use crate::diagnostic::{At, Position};
use crate::document::{Effect, RulePart, ToPart};
use crate::{GitAccess, Problem, Protocol};

/// A field of `to` that some protocols have.
struct Field<'a> {
    name: &'static str,
    at: &'a Position,
    of: &'static [Protocol],
}

/// Everything about protocols that does not go together.
pub(super) fn check(part: &RulePart, problems: &mut Vec<Problem>) {
    let to = &part.to;
    fields(to, problems);
    if let Some(protocol) = &to.protocol {
        unread(part, protocol, problems);
        if protocol.value == Protocol::Git {
            git(part, problems);
        }
    }
    if let Some(slash) = to.encoded_slash.as_ref().filter(|_| to.paths.is_none()) {
        let problem = slash.at.error("`encoded-slash` has no meaning without `path`");
        problems.push(problem.hint("it says how paths are read"));
    }
}

/// Fields that the rule's protocol does not have.
fn fields(to: &ToPart, problems: &mut Vec<Problem>) {
    let protocol = to
        .protocol
        .as_ref()
        .map_or(Protocol::Http, |protocol| protocol.value);
    // What passes unread is told once, at the protocol.
    let unread = matches!(protocol, Protocol::Tcp | Protocol::Tls);
    for field in present(to) {
        if field.of.contains(&protocol) || (unread && field.of.contains(&Protocol::Http)) {
            continue;
        }
        let of: Vec<String> = field
            .of
            .iter()
            .map(|protocol| format!("`protocol: {}`", protocol.as_str()))
            .collect();
        let problem = match &to.protocol {
            Some(protocol) => field.at.error(format!(
                "`{}` has no meaning with `protocol: {}`",
                field.name,
                protocol.value.as_str()
            )),
            None => field.at.error(format!(
                "`{}` has no meaning without a protocol that has it",
                field.name
            )),
        };
        problems.push(problem.hint(format!("it belongs to {}", of.join(" or "))));
    }
}

/// The fields that stand there, each with its first place.
fn present(to: &ToPart) -> Vec<Field<'_>> {
    const HTTP: &[Protocol] = &[Protocol::Http];
    const GIT: &[Protocol] = &[Protocol::Git];
    let fields = [
        ("methods", first(&to.methods), HTTP),
        ("path", first(&to.paths), HTTP),
        ("encoded-slash", to.encoded_slash.as_ref().map(|it| &it.at), HTTP),
        ("headers", to.headers.first().map(|it| &it.name.at), HTTP),
        ("query", to.query.first().map(|it| &it.name.at), HTTP),
        ("repository", first(&to.git.repository), GIT),
        ("access", to.git.access.as_ref().map(|it| &it.at), GIT),
        ("refs", first(&to.git.refs), GIT),
        ("force", to.git.force.as_ref().map(|it| &it.at), GIT),
        ("database", first(&to.database), &[Protocol::Postgres][..]),
        ("user", first(&to.user), &[Protocol::Ssh, Protocol::Postgres][..]),
    ];
    fields
        .into_iter()
        .filter_map(|(name, at, of)| at.map(|at| Field { name, at, of }))
        .collect()
}

fn first(list: &Option<Vec<At<String>>>) -> Option<&Position> {
    list.iter().flatten().next().map(|text| &text.at)
}

/// What goes with `tcp` and `tls`, which pass unread.
fn unread(part: &RulePart, protocol: &At<Protocol>, problems: &mut Vec<Problem>) {
    let effect = part.effect.value;
    let word = match protocol.value {
        Protocol::Tcp | Protocol::Tls => protocol.value.as_str(),
        Protocol::Http | Protocol::Git | Protocol::Ssh | Protocol::Postgres => return,
    };
    let seen: Vec<String> = present(&part.to)
        .iter()
        .filter(|field| field.of.contains(&Protocol::Http))
        .map(|field| format!("`{}`", field.name))
        .collect();
    if !seen.is_empty() {
        let message = format!(
            "`protocol: {word}` passes unread, so {} cannot be seen",
            seen.join(" and ")
        );
        problems.push(protocol.at.error(message).hint("remove them, or the protocol"));
    }
    if let Some(name) = part.uses.first() {
        let message = format!("a credential cannot be put into `protocol: {word}`, which passes unread");
        problems.push(name.at.error(message));
    }
    if protocol.value == Protocol::Tcp && part.to.ports.is_none() && effect != Effect::Deny {
        problems.push(
            protocol
                .at
                .error("`protocol: tcp` needs a `port`")
                .hint("for example `port: 5432`"),
        );
    }
    if protocol.value == Protocol::Tls && effect != Effect::Allow {
        let message = "`protocol: tls` says what passes unread, so it goes with `effect: allow` only";
        let hint = "remove it: a rule without `protocol` refuses every protocol";
        problems.push(protocol.at.error(message).hint(hint));
    }
}

/// `refs` and `force` are about pushes, and `force` says which pushes a rule narrows to.
fn git(part: &RulePart, problems: &mut Vec<Problem>) {
    let git = &part.to.git;
    let refs = git
        .refs
        .as_ref()
        .and_then(|refs| refs.first())
        .map(|first| &first.at);
    let about_pushes = refs.map(|at| ("refs", at));
    let about_pushes = about_pushes.or(git.force.as_ref().map(|force| ("force", &force.at)));
    if let (Some((name, at)), Some(access)) = (about_pushes, &git.access)
        && access.value == GitAccess::Read
    {
        let problem = at.error(format!(
            "`{name}` is about pushes, and `access: read` allows none"
        ));
        problems.push(problem.hint("write `access: write`, or remove it"));
    }
    let Some(force) = &git.force else { return };
    let narrows = match part.effect.value {
        Effect::Allow => !force.value,
        Effect::Deny | Effect::Ask => force.value,
    };
    if !narrows {
        let (message, hint) = match part.effect.value {
            Effect::Allow => (
                "`force: true` would allow forced pushes alone",
                "remove it: a rule without `force` allows both; `force: false` allows no forced one",
            ),
            Effect::Deny | Effect::Ask => (
                "`force: false` would refuse all pushes but forced ones",
                "remove it, or write `force: true` to refuse forced ones",
            ),
        };
        problems.push(force.at.error(message).hint(hint));
    }
}
