//! The house rules that a compiler does not check: who may import whom, no circles, a first line that says what a file is for.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 400;
const LONGEST_TEST: usize = 600;
/// The gateway's wire types: a leaf that everybody may know, unlike the API that stands beside them.
const WIRE_TYPES: &str = "control::types";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests stand in the workspace")
        .to_owned()
}

/// Every Rust file of the workspace, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for part in ["policy", "gateway", "supervisor", "agent-shim", "tests"] {
        collect(&root().join(part), &mut found);
    }
    assert!(found.len() > 40, "the sources were not found");
    found
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("readable folder") {
        let path = entry.expect("readable entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("readable source");
            let inside = path.strip_prefix(root()).expect("inside").to_owned();
            found.push((inside, text));
        }
    }
}

/// The paths after `prefix::` in code lines, e.g. `control::types` for `sallyport_gateway::control::types::X`.
fn mentions<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(move |line| {
            line.match_indices(prefix).map(move |(at, _)| {
                let rest = &line[at + prefix.len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                &rest[..end.unwrap_or(rest.len())]
            })
        })
}

#[test]
fn crates_import_only_whom_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("policy", &[][..]),
        ("agent-shim", &[][..]),
        ("gateway", &["sallyport_policy"][..]),
        (
            "supervisor",
            &["sallyport_policy", "sallyport_gateway", "sallyport_shim"][..],
        ),
    ]);
    let crates = [
        "sallyport_policy",
        "sallyport_gateway",
        "sallyport_shim",
        "sallyport_supervisor",
    ];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let own = path
            .components()
            .next()
            .expect("a part")
            .as_os_str()
            .to_string_lossy()
            .into_owned();
        let Some(allowed) = allowed.get(own.as_str()) else {
            continue;
        };
        let itself = format!("sallyport_{}", own.trim_start_matches("agent-"));
        for named in crates
            .iter()
            .filter(|named| **named != itself && !allowed.contains(named))
        {
            if mentions(&text, &format!("{named}::")).next().is_some() {
                wrong.push(format!("{} imports {named}", path.display()));
            }
        }
        if own == "supervisor" {
            for inside in
                mentions(&text, "sallyport_gateway::").filter(|it| !it.starts_with("control::types"))
            {
                wrong.push(format!("{} imports sallyport_gateway::{inside}", path.display()));
            }
            for inside in mentions(&text, "sallyport_shim::").filter(|it| !it.starts_with("wire")) {
                wrong.push(format!("{} imports sallyport_shim::{inside}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "forbidden arrows:\n{}", wrong.join("\n"));
}

#[test]
fn modules_of_a_crate_form_no_circle() {
    let mut arrows: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let parts: Vec<String> = path
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let [part, src, first, ..] = parts.as_slice() else {
            continue;
        };
        let wire_types = parts.get(3).is_some_and(|file| file == "types.rs") && first == "control";
        let module = if wire_types {
            WIRE_TYPES
        } else {
            first.trim_end_matches(".rs")
        }
        .to_owned();
        let of_tests =
            module == "testing" || path.ends_with("tests.rs") || parts.iter().any(|part| part == "tests");
        if src != "src" || module == "lib" || module == "main" || of_tests {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for target in mentions(code, "crate::") {
            let wire_types = target.starts_with(WIRE_TYPES);
            let target = target.split("::").next().unwrap_or_default();
            let target = if wire_types { WIRE_TYPES } else { target }.to_owned();
            if target != module && target.chars().next().is_some_and(char::is_lowercase) {
                arrows
                    .entry((part.clone(), module.clone()))
                    .or_default()
                    .insert(target);
            }
        }
    }
    let mut circles = Vec::new();
    for (part, from) in arrows.keys() {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<String> = arrows[&(part.clone(), from.clone())].iter().cloned().collect();
        while let Some(next) = todo.pop() {
            if next == *from {
                circles.push(format!("{part}: {from} (through {seen:?})"));
                break;
            }
            if seen.insert(next.clone()) {
                todo.extend(arrows.get(&(part.clone(), next)).into_iter().flatten().cloned());
            }
        }
    }
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
}

#[test]
fn only_the_edge_reads_files_of_configuration_and_environment() {
    let wrong: Vec<String> = sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("gateway/src"))
        .filter(|(path, _)| {
            !["config.rs", "main.rs", "lib.rs"]
                .iter()
                .any(|edge| path.ends_with(edge))
        })
        .filter(|(_, text)| mentions(text, "crate::config").next().is_some())
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(wrong.is_empty(), "these know the configuration: {wrong:?}");
}

#[test]
fn every_file_says_first_what_it_is_for_and_stays_readable() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//! ") {
            wrong.push(format!("{} does not begin with a `//!` line", path.display()));
        }
        let lines = text.lines().count();
        let of_tests = path.ends_with("tests.rs") || path.iter().skip(1).any(|part| part == "tests");
        let most = if of_tests { LONGEST_TEST } else { LONGEST_FILE };
        if lines > most {
            wrong.push(format!(
                "{} has {lines} lines, {most} are the most",
                path.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_crypto_provider_and_one_tls_stack_are_linked() {
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--offline",
            "--locked",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).expect("text");
    let linked: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(
        linked.contains("aws-lc-rs") && linked.contains("rustls"),
        "the tree was not read"
    );
    for banned in ["ring", "openssl", "openssl-sys", "native-tls"] {
        assert!(
            !linked.contains(banned),
            "`{banned}` is linked: one provider (aws-lc-rs), one TLS stack (rustls)"
        );
    }
}
