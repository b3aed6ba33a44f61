//! Go: modules through the proxy and the checksum database, unless they are vendored or replaced; private ones by git.
use super::finds::{Find, Finds, Spot, numbered};

const WHAT: &str = "go modules";
const ECOSYSTEM: &str = "go";

/// Whether this is a file of go's. `vendor/modules.txt` says that its modules need not be fetched.
pub(super) fn reads(name: &str) -> bool {
    matches!(name, "go.mod" | "go.sum" | "go.work" | "go.env")
}

/// Whether this file stands for vendored modules.
pub(super) fn is_vendored(path: &str) -> bool {
    path == "vendor/modules.txt" || path.ends_with("/vendor/modules.txt")
}

/// Reads one of them.
pub(super) fn read(finds: &mut Finds<'_>, vendored: bool) {
    match finds.name() {
        "go.env" => environment(finds),
        "go.mod" | "go.sum" if vendored => {}
        "go.sum" => {
            if let Some((number, _)) = numbered(finds.text).find(|(_, line)| !line.trim().is_empty()) {
                finds.registries(Find::sure(WHAT, ECOSYSTEM, Spot::Line(number)));
            }
        }
        _ => modules(finds),
    }
}

/// `require`, `replace` and `toolchain` (Go modules reference, "go.mod files").
fn modules(finds: &mut Finds<'_>) {
    let mut block = "";
    for (number, line) in numbered(finds.text) {
        let line = line.split("//").next().unwrap_or_default().trim();
        let (verb, rest) = match line.split_once([' ', '\t', '(']) {
            _ if line == ")" => {
                block = "";
                continue;
            }
            Some((verb, _)) if line.ends_with('(') => {
                block = verb;
                continue;
            }
            Some((verb, rest)) if block.is_empty() => (verb, rest.trim()),
            _ => (block, line),
        };
        let spot = Spot::Line(number);
        match verb {
            "require" | "tool" if rest.contains('.') => finds.registries(Find::sure(WHAT, ECOSYSTEM, spot)),
            "replace" => {
                let target = rest.rsplit("=>").next().unwrap_or_default().trim();
                if target.contains('.') && !target.starts_with(['.', '/']) {
                    finds.registries(Find::sure(WHAT, ECOSYSTEM, spot));
                }
            }
            "toolchain" => finds.registries(Find::likely("a go toolchain", ECOSYSTEM, spot)),
            _ => {}
        }
    }
}

/// `GOPROXY` and `GOPRIVATE`; private modules are fetched from their own hosts.
fn environment(finds: &mut Finds<'_>) {
    for (number, line) in numbered(finds.text) {
        let Some((key, value)) = line.trim().split_once('=') else {
            continue;
        };
        settings(key.trim(), value.trim(), number, finds);
    }
}

/// One setting of go's environment.
fn settings(key: &str, value: &str, number: u32, finds: &mut Finds<'_>) {
    let spot = Spot::Line(number);
    let words = value
        .split([',', '|'])
        .map(|word| word.trim_matches(['"', '\'', ' ']));
    match key {
        "GOPROXY" => {
            for word in words.filter(|word| word.contains("://")) {
                finds.address(word, Find::sure(WHAT, ECOSYSTEM, spot));
            }
        }
        "GOPRIVATE" | "GONOPROXY" => {
            for word in words.filter(|word| word.contains('.')) {
                let pattern = word.trim_start_matches("*.").trim_end_matches("/*");
                // A module's path begins with its host; `?go-get=1` is asked first.
                finds.address(
                    &format!("https://{pattern}"),
                    Find::likely("private go modules", ECOSYSTEM, spot),
                );
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::testing::told;
    use crate::preflight::{RepositoryFile, needs};

    const MOD: &str = "module mod.test/acme/web\n\ngo 1.24\n\nrequire (\n\tmod.test/a/b v1.0.0 // indirect\n)\nreplace mod.test/a/b => ../b\n";

    #[test]
    fn modules_come_through_the_proxy() {
        assert_eq!(
            told("go.mod", MOD),
            ["sure go modules from the registries of `go` @6"]
        );
        assert_eq!(
            told("go.mod", "module mod.test/web\n\ngo 1.24\n"),
            Vec::<String>::new()
        );
        assert_eq!(
            told("go.sum", "mod.test/a/b v1.0.0 h1:x=\n"),
            ["sure go modules from the registries of `go` @1"]
        );
    }

    #[test]
    fn vendored_modules_are_not_fetched() {
        let file = |path: &str, text: &str| RepositoryFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let files = [
            file("a/go.mod", MOD),
            file("b/go.mod", MOD),
            file("a/vendor/modules.txt", "# mod.test/a/b v1.0.0\n"),
        ];
        let found = needs(&files);
        assert_eq!(found.needs.len(), 1);
        assert_eq!(found.needs[0].from[0].file, "b/go.mod");
        assert_eq!(found.needs[0].more, 0);
    }

    #[test]
    fn settings_name_proxies_and_private_hosts() {
        assert_eq!(
            told(
                "go.env",
                "GOPROXY=https://proxy.test,direct\nGOPRIVATE=*.corp.test,git.test/acme/*\n"
            ),
            [
                "sure go modules: GET https://proxy.test/ @1",
                "likely private go modules: GET https://corp.test/ @2",
                "likely private go modules: GET https://git.test/acme @2",
            ]
        );
    }
}
