//! What an empty launch form begins with.
use sallyport_policy::{Policy, PolicyText};

/// The text between backquotes after `export const NAME = `.
fn starter(name: &str) -> &'static str {
    let script = include_str!("../assets/starter.js");
    let from = script.split(&format!("export const {name} = `")).nth(1).unwrap();
    from.split('`').next().unwrap()
}

#[test]
fn what_an_empty_form_begins_with_is_right() {
    let text = PolicyText {
        name: "starter".to_owned(),
        text: starter("POLICY").to_owned(),
    };
    let policy = Policy::compile(&[text]).unwrap();
    assert_eq!(policy.warnings(), []);
    crate::model::scripted::Scripted::parse(starter("TURNS")).unwrap();
}
