//! npm, yarn and pnpm: package.json, their lock files, .npmrc, .yarnrc.yml.
use super::address::Address;
use super::finds::{Find, Finds, Spot, numbered, variables};
use super::shell::urls;
use super::tree::Tree;

const WHAT: &str = "npm packages";
const SHORT_NAME: &str = "a git repository by its short name";
const ECOSYSTEM: &str = "npm";
/// npm's short names of repositories, and the presets that know where they are.
const SHORT: &[(&str, &str)] = &[
    ("gitlab:", "gitlab"),
    ("bitbucket:", "bitbucket"),
    ("github:", "github"),
    ("gist:", "github"),
];

/// Whether this is a file of npm's and its relatives.
pub(super) fn reads(name: &str) -> bool {
    matches!(
        name,
        "package.json"
            | "package-lock.json"
            | "npm-shrinkwrap.json"
            | "yarn.lock"
            | "pnpm-lock.yaml"
            | ".npmrc"
            | ".yarnrc"
            | ".yarnrc.yml"
    )
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>) {
    match finds.name() {
        ".npmrc" | ".yarnrc" => npmrc(finds),
        "yarn.lock" | "pnpm-lock.yaml" => lines(finds),
        ".yarnrc.yml" => match Tree::yaml(finds.text) {
            Ok(tree) => yarnrc(&tree, finds),
            Err(why) => finds.unreadable(&why),
        },
        name => match Tree::json(finds.text) {
            Ok(tree) if name == "package.json" => package(&tree, finds),
            Ok(tree) => lock(&tree, finds),
            Err(why) => finds.unreadable(&why),
        },
    }
}

fn sure(spot: Spot<'_>) -> Find<'_> {
    Find::sure(WHAT, ECOSYSTEM, spot)
}

fn package(tree: &Tree, finds: &mut Finds<'_>) {
    for section in [
        "dependencies",
        "devDependencies",
        "optionalDependencies",
        "peerDependencies",
        "resolutions",
        "overrides",
    ] {
        let Some(list) = tree.at(&[section]) else { continue };
        list.each_text("", &mut |_, item| {
            if let Some(version) = item.text() {
                dependency(version, section, item.spot(), finds);
            }
        });
    }
    if let Some(registry) = tree.at(&["publishConfig", "registry"])
        && let Some(text) = registry.text()
    {
        finds.address(
            text,
            Find::likely("publishing to npm", ECOSYSTEM, registry.spot()),
        );
    }
    if let Some(engine) = tree.at(&["engines", "node"]) {
        finds.registries(Find::likely("a version of node", "node", engine.spot()));
    }
}

/// npm's package specifiers: a range, an address, a short name of a repository, a path.
fn dependency(version: &str, section: &str, spot: Spot<'_>, finds: &mut Finds<'_>) {
    let here = ["file:", "link:", "workspace:", "portal:", "patch:", "catalog:"];
    let short = version
        .split_once('/')
        .is_some_and(|(owner, name)| is_plain(owner) && is_plain(name.split('#').next().unwrap_or_default()));
    let is_path = version.starts_with(['.', '/', '~', '$']) && version.contains('/');
    if is_path || here.iter().any(|prefix| version.starts_with(prefix)) {
        return;
    }
    if version.contains("://") || version.starts_with("git@") {
        finds.address(version, sure(spot));
    } else if let Some((_, host)) = SHORT.iter().find(|(prefix, _)| version.starts_with(prefix)) {
        finds.registries(Find::sure(SHORT_NAME, host, spot));
    } else if short {
        finds.registries(Find::sure(SHORT_NAME, "github", spot));
    } else if !matches!(section, "peerDependencies" | "resolutions" | "overrides") {
        let keyed = format!("\"{section}\"");
        finds.registries(sure(Spot::Text(&keyed)));
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `resolved` in lock files of any version.
fn lock(tree: &Tree, finds: &mut Finds<'_>) {
    let mut resolved = 0_usize;
    tree.each_text("", &mut |key, item| {
        if let ("resolved", Some(text)) = (key, item.text()) {
            resolved += 1;
            finds.address(text, sure(item.spot()));
        }
    });
    let installs = ["packages", "dependencies"]
        .iter()
        .filter_map(|key| tree.at(&[key]))
        .flat_map(Tree::entries)
        .any(|(name, _)| !name.is_empty());
    // `omit-lockfile-registry-resolved` leaves the addresses out.
    if resolved == 0 && installs {
        finds.registries(sure(Spot::Line(1)));
    }
}

/// `resolved` of yarn, `resolution` and `tarball` of yarn and pnpm, line by line: these files are long.
fn lines(finds: &mut Finds<'_>) {
    let mut from_registry = None;
    for (number, line) in numbered(finds.text) {
        let line = line.trim();
        let find = sure(Spot::Line(number));
        let placed = ["resolved ", "resolution:", "tarball:", "repo:"]
            .iter()
            .any(|key| line.starts_with(key));
        if !placed {
            continue;
        }
        let mut any = false;
        for url in urls(line) {
            any = true;
            let url = url.trim_end_matches(['}', ')']);
            match line.contains("repo:") || line.contains("#commit=") {
                true => finds.repository(url, find),
                false => finds.address(url, find),
            }
        }
        let hashed = line.contains("integrity:") || line.contains("@npm:");
        if !any && hashed {
            from_registry = from_registry.or(Some(number));
        }
    }
    if let Some(number) = from_registry {
        finds.registries(sure(Spot::Line(number)));
    }
}

/// npm's ini: `registry`, `@scope:registry`, `//host/:_authToken`.
fn npmrc(finds: &mut Finds<'_>) {
    for (number, line) in numbered(finds.text) {
        let line = line.trim();
        let separator = if finds.name() == ".yarnrc" { ' ' } else { '=' };
        let Some((key, value)) = line.split_once(separator) else {
            continue;
        };
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = (key.trim().trim_matches('"'), value.trim().trim_matches('"'));
        let find = sure(Spot::Line(number));
        if key == "registry" || key.ends_with(":registry") {
            finds.address(value, find);
        } else if let Some((place, secret)) =
            key.rsplit_once(':').filter(|(place, _)| place.starts_with("//"))
        {
            if matches!(secret, "_authToken" | "_auth" | "_password") {
                token(&format!("https:{place}"), value, find, finds);
            }
        } else if matches!(key, "_authToken" | "_auth" | "_password") {
            let what = Find {
                what: "a log-in",
                ..find
            };
            finds.credential(variables(value).pop(), None, what);
        }
    }
}

/// A credential for a registry.
fn token(place: &str, value: &str, find: Find<'_>, finds: &mut Finds<'_>) {
    let site = Address::parse(place).ok().map(|address| address.site);
    finds.credential(
        variables(value).pop(),
        site,
        Find {
            what: "a log-in",
            ..find
        },
    );
}

fn yarnrc(tree: &Tree, finds: &mut Finds<'_>) {
    let scopes = tree.at(&["npmScopes"]).into_iter().flat_map(Tree::entries);
    let registries = tree.at(&["npmRegistries"]).into_iter().flat_map(Tree::entries);
    for (_, part) in scopes.chain([("", tree)]) {
        let server = part.at(&["npmRegistryServer"]);
        if let Some(server) = server {
            finds.address(server.text().unwrap_or_default(), sure(server.spot()));
        }
        if let Some(secret) = part.at(&["npmAuthToken"]) {
            let place = server.and_then(Tree::text).unwrap_or_default();
            token(
                place,
                secret.text().unwrap_or_default(),
                sure(secret.spot()),
                finds,
            );
        }
    }
    for (place, part) in registries {
        if let Some(secret) = part.at(&["npmAuthToken"]) {
            let place = match place.starts_with("//") {
                true => format!("https:{place}"),
                false => place.to_owned(),
            };
            token(
                &place,
                secret.text().unwrap_or_default(),
                sure(secret.spot()),
                finds,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;

    #[test]
    fn a_manifest_names_registries_repositories_and_where_it_is_published() {
        let text = r#"{
  "name": "web",
  "engines": {"node": ">=20"},
  "dependencies": {
    "react": "^19.0.0",
    "lib": "git+https://git.test/acme/lib.git#v1",
    "files": "https://files.test/files.tgz",
    "short": "acme/short#main",
    "own": "file:../own"
  },
  "publishConfig": {"registry": "https://publish.test/npm/"}
}"#;
        let found = told("web/package.json", text);
        for expected in [
            "sure npm packages: GET https://files.test/files.tgz @7",
            "sure npm packages: clone https://git.test/acme/lib.git @6",
            "sure a git repository by its short name from the registries of `github` @8",
            "sure npm packages from the registries of `npm` @4",
            "likely publishing to npm: GET https://publish.test/npm/ @11",
            "likely a version of node from the registries of `node` @3",
        ] {
            assert!(found.iter().any(|it| it == expected), "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 6, "{found:#?}");
    }

    #[test]
    fn lock_files_name_the_hosts_that_they_resolved() {
        let npm = r#"{"lockfileVersion": 3, "packages": {"": {"name": "web"},
"node_modules/a": {"version": "1.0.0", "resolved": "https://npm.test/a/-/a-1.0.0.tgz"},
"node_modules/b": {"resolved": "git+ssh://git@git.test/acme/b.git#0123"},
"node_modules/c": {"resolved": "packages/c", "link": true}}}"#;
        assert_eq!(
            told("package-lock.json", npm),
            [
                "sure npm packages: GET https://npm.test/a/-/a-1.0.0.tgz @2",
                "sure npm packages: clone ssh://git.test/acme/b.git @3",
            ]
        );
        let yarn = "a@^1.0.0:\n  version \"1.0.0\"\n  resolved \"https://yarn.test/a/-/a-1.0.0.tgz#abc\"\n";
        assert_eq!(
            told("yarn.lock", yarn),
            ["sure npm packages: GET https://yarn.test/a/-/a-1.0.0.tgz @3"]
        );
        let berry = "\"a@npm:^1\":\n  version: 1.0.0\n  resolution: \"a@npm:1.0.0\"\n\"b@https://git.test/b.git\":\n  resolution: \"b@https://git.test/acme/b.git#commit=1\"\n";
        assert_eq!(
            told("yarn.lock", berry),
            [
                "sure npm packages: clone https://git.test/acme/b.git @5",
                "sure npm packages from the registries of `npm` @3",
            ]
        );
        let pnpm = "packages:\n  a@1.0.0:\n    resolution: {integrity: sha512-x}\n  b@1:\n    resolution: {tarball: https://files.test/b.tgz}\n  c@1:\n    resolution: {commit: 1, repo: https://git.test/acme/c, type: git}\n";
        assert_eq!(
            told("pnpm-lock.yaml", pnpm),
            [
                "sure npm packages: GET https://files.test/b.tgz @5",
                "sure npm packages: clone https://git.test/acme/c @7",
                "sure npm packages from the registries of `npm` @3",
            ]
        );
    }

    #[test]
    fn configuration_names_registries_and_the_tokens_for_them() {
        let npmrc = "registry=https://npm.test/\n@acme:registry = https://acme.test/npm/\n//acme.test/npm/:_authToken=${NPM_TOKEN}\n; //x.test/:_authToken=${NO}\n";
        assert_eq!(
            told(".npmrc", npmrc),
            [
                "sure npm packages: GET https://npm.test/ @1",
                "sure npm packages: GET https://acme.test/npm/ @2",
                "sure a log-in in `NPM_TOKEN` for https://acme.test @3",
            ]
        );
        let yarnrc = "npmRegistryServer: https://npm.test\nnpmScopes:\n  acme:\n    npmRegistryServer: https://acme.test\n    npmAuthToken: \"${ACME_TOKEN-}\"\n";
        assert_eq!(
            told(".yarnrc.yml", yarnrc),
            [
                "sure npm packages: GET https://acme.test/ @4",
                "sure a log-in in `ACME_TOKEN` for https://acme.test @5",
                "sure npm packages: GET https://npm.test/ @1",
            ]
        );
    }
}
