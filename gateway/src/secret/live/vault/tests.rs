//! What `sources.yaml` may say of Vault, and what policies may name there.
use super::paths::{Mount, filled};
use crate::secret::live::pattern::Pattern;
use crate::secret::live::{Own, Settings, Terms};
use crate::secret::source::Variables;
use crate::secret::{SecretStore, Value};
use sallyport_policy::Who;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn own(folder: &Path) -> Arc<Own> {
    let store = Arc::new(SecretStore::open(folder).unwrap());
    let variables = Variables::from_environment(std::iter::empty());
    Arc::new(Own::new(store, variables, folder.to_owned()))
}

const GOOD: &str = "vault:\n  address: https://vault.test:8200\n  auth: {token: {store: vault-token}}\n  allow: [kv/agents/*]\n";

/// What is said of a file; nothing where it can be used.
fn fault(text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = Path::new("/etc/sallyport/sources.yaml");
    let settings = match Settings::parse(path, text) {
        Ok(settings) => settings,
        Err(error) => return Some(error.to_string()),
    };
    let providers = settings.providers(path, &own(folder.path()), &Terms::default());
    providers.err().map(|error| error.to_string())
}

#[tokio::test]
async fn what_is_wrong_with_the_settings_is_said_at_start_with_the_file_and_the_key() {
    crate::crypto::install();
    assert_eq!(fault(GOOD), None);
    assert_eq!(fault(""), None, "no source is fetched from");
    for (right, wrong, said) in [
        ("address:", "adress:", "adress"),
        ("auth:", "token: x\n  auth:", "token"),
        ("https://vault.test:8200", "vault.test", "`address`"),
        (
            "https://vault.test:8200",
            "ftp://vault.test",
            "neither `https` nor `http`",
        ),
        (
            "https://vault.test:8200",
            "http://vault.test:8200",
            "not encrypted",
        ),
        (
            "https://vault.test:8200",
            "https://me:it@vault.test",
            "has settings of its own",
        ),
        (
            "https://vault.test:8200",
            "https://vault.test/vault",
            "more than a host",
        ),
        ("[kv/agents/*]", "[]", "`allow` is empty"),
        ("[kv/agents/*]", "[\"*\"]", "is no path"),
        ("[kv/agents/*]", "[\"kv/${anything}/*\"]", "is no path"),
        ("[kv/agents/*]", "[kv/a]\n  ca: gone.pem", "gone.pem"),
        ("[kv/agents/*]", "[kv/a]\n  namespace: \"a b\"", "is no namespace"),
        (
            "[kv/agents/*]",
            "[kv/a]\n  issue: {\"pki/../sys/seal\": {}}",
            "`issue`",
        ),
        ("{token: {store: vault-token}}", "{password: x}", "password"),
    ] {
        let told = fault(&GOOD.replace(right, wrong)).unwrap_or_else(|| panic!("{wrong} is taken"));
        assert!(
            told.contains("/etc/sallyport/sources.yaml") && told.contains(said),
            "{wrong}: {told}"
        );
    }
}

#[test]
fn policies_may_name_what_is_listed_and_nothing_beside_or_above_it() {
    let who = Who {
        team: "web".into(),
        ..Who::default()
    };
    let admits = |pattern: &str, path: &str| Pattern::read(pattern).unwrap().admits(path, &who);
    assert!(admits("kv/agents/*", "kv/agents/model") && admits("kv/agents/*", "kv/agents/a/b"));
    assert!(admits("kv/agents", "kv/agents"));
    assert!(admits("kv/teams/${team}/*", "kv/teams/web/token"));
    for (pattern, path) in [
        ("kv/agents/*", "kv/agents"),
        ("kv/agents/*", "kv/agents-of-others/x"),
        ("kv/agents/*", "kv/agents/../admin"),
        ("kv/agents/*", "kv/agents//admin"),
        ("kv/agents/*", "kv/agents/%2e%2e/admin"),
        ("kv/agents", "kv/agents/model"),
        ("kv/teams/${team}/*", "kv/teams/core/token"),
        ("kv/${user}/*", "kv//token"),
    ] {
        assert!(!admits(pattern, path), "{pattern} covers {path}");
    }
}

#[test]
fn versioned_values_are_read_below_data_and_facts_are_put_into_parameters() {
    let mount = |versioned| Mount {
        path: "kv/team".into(),
        versioned,
    };
    assert_eq!(mount(true).read_path("kv/team/a/b"), "kv/team/data/a/b");
    assert_eq!(mount(false).read_path("kv/team/a/b"), "kv/team/a/b");
    let parameters = BTreeMap::from([("common-name".to_owned(), "${run}.agents.test".to_owned())]);
    let who = Who {
        run: "r1".into(),
        ..Who::default()
    };
    assert_eq!(
        filled(&parameters, &who),
        serde_json::json!({"common_name": "r1.agents.test"})
    );
}

#[tokio::test]
async fn without_a_log_in_nothing_is_given_and_the_operator_reads_why() {
    crate::crypto::install();
    let folder = tempfile::tempdir().unwrap();
    let own = own(folder.path());
    let path = folder.path().join("sources.yaml");
    let text = GOOD.replace("https://vault.test:8200", "http://127.0.0.1:1");
    let providers = Settings::parse(&path, &text)
        .unwrap()
        .providers(&path, &own, &Terms::default())
        .unwrap();
    let vault = providers.of("vault").unwrap();
    let revoking = vault.revoke("kv/agents/1").await.unwrap_err().to_string();
    assert!(
        revoking.contains("no secret `vault-token` is in the gateway's store"),
        "{revoking}"
    );
    assert!(
        vault
            .fault()
            .is_some_and(|told| told.contains("no secrets from Vault"))
    );
    let store = SecretStore::open(folder.path()).unwrap();
    store
        .set("vault-token", Value::new(b"s.Ab3dEf6hIj9lMn0p".to_vec()))
        .unwrap();
    let told = async {
        while !vault
            .fault()
            .is_some_and(|told| told.contains("Vault cannot be reached"))
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), told)
        .await
        .expect("it is tried again with what is there now");
}
