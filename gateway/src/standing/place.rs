//! Where a standing policy's files lie in the folder of policies, and what may not lie there.
use crate::control::types::PolicyKey;
use sallyport_policy::include::resolve;
use sallyport_policy::{Code, Layer, PolicyText, Problem, Severity};

/// The policy's own file, relative to the folder.
pub(super) fn file_of(key: &PolicyKey) -> String {
    match key.layer() {
        Layer::Team => format!("teams/{}.yaml", key.name()),
        Layer::Repository => format!("repositories/{}.yaml", key.name()),
        Layer::Organisation | Layer::Run => "organisation.yaml".to_owned(),
    }
}

/// The policy whose own file this is.
pub(super) fn key_of(file: &str) -> Option<PolicyKey> {
    let stem = file.strip_suffix(".yaml")?;
    let key = match stem.split_once('/') {
        None if stem == "organisation" => PolicyKey::new(Layer::Organisation, ""),
        Some(("teams", name)) => PolicyKey::new(Layer::Team, name),
        Some(("repositories", name)) => PolicyKey::new(Layer::Repository, name),
        _ => return None,
    };
    key.ok()
}

/// Whether a name leads nowhere but into the folder.
pub(super) fn is_inside(name: &str) -> bool {
    !name.is_empty()
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !name.contains(['\\', '\0'])
}

/// Names as they are in the folder, whatever the caller's own were: the policy at its place, and what it includes where
/// its `include` will find it.
pub(super) fn placed(key: &PolicyKey, texts: &[PolicyText]) -> Result<Vec<PolicyText>, Problem> {
    let own = file_of(key);
    let Some((first, included)) = texts.split_first() else {
        return Err(problem(&own, "there is no text to publish", None));
    };
    let base = resolve("", &first.name);
    let mut placed = vec![PolicyText {
        name: own.clone(),
        text: first.text.clone(),
    }];
    for text in included {
        if text.name.starts_with("preset:") {
            let hint = "what is shipped is found without it; write the rest into a file and include that";
            return Err(problem(
                &own,
                &format!("`{}` cannot be published", shown(&text.name)),
                Some(hint),
            ));
        }
        let name = resolve(&own, &relative(&base, &resolve("", &text.name)));
        if !is_inside(&name) {
            let hint = "keep what it includes in a folder beside it, such as `./shared/partners.yaml`";
            let message = format!("`{}` would lie outside the folder of policies", shown(&text.name));
            return Err(problem(&own, &message, Some(hint)));
        }
        if key_of(&name).is_some() {
            let hint = "keep what it includes in a folder beside it, such as `./shared/partners.yaml`";
            let message = format!("`{}` would be taken for another policy", shown(&name));
            return Err(problem(&own, &message, Some(hint)));
        }
        placed.push(PolicyText {
            name,
            text: text.text.clone(),
        });
    }
    Ok(placed)
}

/// How a file is named from beside another one; both names are normal.
fn relative(base: &str, name: &str) -> String {
    let mut folder: Vec<&str> = base.split('/').collect();
    folder.pop();
    let parts: Vec<&str> = name.split('/').collect();
    let same = folder.iter().zip(&parts).take_while(|(a, b)| a == b).count();
    let up = vec![".."; folder.len() - same];
    [&up, &parts[same..]].concat().join("/")
}

/// A problem of a file as a whole.
pub(super) fn problem(file: &str, message: &str, hint: Option<&str>) -> Problem {
    Problem {
        severity: Severity::Error,
        code: Code::default(),
        message: message.to_owned(),
        hint: hint.map(str::to_owned),
        file: file.to_owned(),
        line: 1,
        column: 1,
    }
}

fn shown(text: &str) -> String {
    text.chars().take(128).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(key: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let key = PolicyKey::try_from(key.to_owned()).unwrap();
        let texts: Vec<_> = names
            .iter()
            .map(|name| PolicyText {
                name: (*name).to_owned(),
                text: String::new(),
            })
            .collect();
        let placed = placed(&key, &texts).map_err(|problem| problem.message)?;
        Ok(placed.into_iter().map(|text| text.name).collect())
    }

    #[test]
    fn what_a_policy_includes_lies_beside_it_wherever_it_was_written() {
        let made = names("team/web", &["/home/ada/p/web.yaml", "/home/ada/p/shared/a.yaml"]).unwrap();
        assert_eq!(made, ["teams/web.yaml", "teams/shared/a.yaml"]);
        let made = names("team/web", &["p/teams/web.yaml", "p/shared/a.yaml"]).unwrap();
        assert_eq!(made, ["teams/web.yaml", "shared/a.yaml"]);
        let made = names("organisation", &["org.yaml", "partners.yaml"]).unwrap();
        assert_eq!(made, ["organisation.yaml", "partners.yaml"]);
    }

    #[test]
    fn nothing_is_published_out_of_the_folder_or_over_another_policy() {
        for (key, given, word) in [
            ("organisation", ["p/org.yaml", "x/a.yaml"], "outside"),
            ("team/web", ["web.yaml", "partners.yaml"], "another policy"),
            ("team/web", ["a/web.yaml", "organisation.yaml"], "another policy"),
            ("repository/acme/web", ["web.yaml", "api.yaml"], "another policy"),
            (
                "team/web",
                ["web.yaml", "preset:registries"],
                "cannot be published",
            ),
            ("team/web", ["web.yaml", "/etc/passwd.yaml"], "outside"),
        ] {
            let fault = names(key, &given).unwrap_err();
            assert!(fault.contains(word), "{fault}");
        }
    }

    #[test]
    fn a_file_belongs_to_one_policy() {
        for key in ["organisation", "team/web", "repository/acme/web.js"] {
            let key = PolicyKey::try_from(key.to_owned()).unwrap();
            assert_eq!(key_of(&file_of(&key)), Some(key));
        }
        for file in [
            "org.yaml",
            "teams/web.yml",
            "teams/a/b.yaml",
            "repositories/a.yaml",
            "teams/.a.yaml",
        ] {
            assert_eq!(key_of(file), None, "{file}");
        }
    }
}
