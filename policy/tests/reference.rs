//! The examples of the language's reference compile, and pass their own tests.

use sallyport_policy::{Layer, LayerTexts, Policy, PolicyText};

const REFERENCE: &str = include_str!("../../deploy/policies/README.md");

fn text(name: &str, text: &str) -> PolicyText {
    PolicyText {
        name: name.into(),
        text: text.into(),
    }
}

#[test]
fn every_example_of_the_reference_says_what_it_claims() {
    let examples: Vec<&str> = REFERENCE
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() >= 6, "the examples were not found");
    for example in examples {
        // The uppermost layer may say everything that a layer can.
        let ceiling = LayerTexts {
            layer: Layer::Organisation,
            texts: vec![
                text("README.yaml", example),
                text("partners.yaml", "version: 1"),
                text("preset:registries", "version: 1"),
            ],
        };
        let policy =
            Policy::compile_layers(&[ceiling]).unwrap_or_else(|problems| panic!("{problems:?}\n{example}"));
        let report = policy.run_tests();
        assert!(report.total > 0, "this example does not test itself:\n{example}");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
    }
}
