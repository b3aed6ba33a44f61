//! The policies and runs that are shipped as examples say what they claim.
use sallyport_policy::{Policy, PolicyText};
use std::path::Path;

/// What the supervisor supplies for `preset:registries`, with a name that leads nowhere.
const REGISTRIES: &str = "version: 1\nrules:\n  - {id: registries, to: {host: packages.test, methods: [GET, HEAD]}, effect: allow}\n";

fn policies(folder: &Path, found: &mut Vec<PolicyText>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            policies(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = std::fs::read_to_string(&path).expect("readable");
            if text.contains("\nrules:") {
                found.push(PolicyText {
                    name: path.display().to_string(),
                    text,
                });
            }
        }
    }
}

#[test]
fn every_example_policy_compiles_and_passes_its_own_tests() {
    let mut found = Vec::new();
    policies(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy"),
        &mut found,
    );
    assert!(found.len() >= 2, "the examples were not found");
    for policy in found {
        let name = policy.name.clone();
        assert!(policy.text.contains("\ntests:"), "{name} does not test itself");
        let registries = PolicyText {
            name: "preset:registries".into(),
            text: REGISTRIES.into(),
        };
        let compiled =
            Policy::compile(&[policy, registries]).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        let report = compiled.run_tests();
        assert!(report.failures.is_empty(), "{name}: {:?}", report.failures);
    }
}
