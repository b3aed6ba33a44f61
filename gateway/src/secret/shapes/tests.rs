//! Each form is found in text and never in prose; a stream is searched as its whole would be; placeholders are none.
use super::*;
use crate::secret::testing::secrets;
use proptest::prelude::*;

/// One made-up secret of each form, put together here so that no scanner of repositories takes it for a real one.
fn samples() -> Vec<(&'static str, String)> {
    let mixed = |count: usize| {
        "aB3dE6gH9jK2mN5pQ8sT"
            .chars()
            .cycle()
            .take(count)
            .collect::<String>()
    };
    let hex = |count: usize| "0a1b2c3d4e5f6789".chars().cycle().take(count).collect::<String>();
    let digits = |count: usize| "1234567890".chars().cycle().take(count).collect::<String>();
    let upper = |count: usize| "QWERTY234567".chars().cycle().take(count).collect::<String>();
    vec![
        ("private-key", format!("-----BEGIN {} KEY-----", "RSA PRIVATE")),
        ("github-token", format!("ghs_{}", mixed(36))),
        (
            "github-fine-grained-token",
            format!("github_pat_{}_{}", mixed(22), mixed(59)),
        ),
        ("gitlab-token", format!("glpat-{}", mixed(20))),
        ("bitbucket-token", format!("ATBB{}", mixed(32))),
        ("atlassian-token", format!("ATATT3xFfGF0{}", mixed(180))),
        ("aws-access-key", format!("AKIA{}", upper(16))),
        ("google-api-key", format!("AIza{}", mixed(35))),
        ("google-oauth-secret", format!("GOCSPX-{}", mixed(28))),
        ("google-oauth-token", format!("ya29.{}", mixed(120))),
        ("google-refresh-token", format!("1//0{}", mixed(60))),
        ("azure-client-secret", format!("aB38Q~{}", mixed(34))),
        ("azure-storage-key", format!("AccountKey={}==", mixed(86))),
        (
            "openai-key",
            format!("sk-proj-{}T3BlbkFJ{}", mixed(70), mixed(70)),
        ),
        ("anthropic-key", format!("sk-ant-api03-{}", mixed(95))),
        (
            "huggingface-token",
            format!("hf_{}", "aBcDeFgH".chars().cycle().take(34).collect::<String>()),
        ),
        (
            "slack-token",
            format!("xoxb-{}-{}-{}", digits(12), digits(12), mixed(24)),
        ),
        (
            "slack-webhook",
            format!(
                "hooks.slack.com/services/T{}/B{}/{}",
                upper(10),
                upper(10),
                mixed(24)
            ),
        ),
        (
            "discord-webhook",
            format!("https://discord.com/api/webhooks/{}/{}", digits(18), mixed(68)),
        ),
        ("telegram-bot-token", format!("{}:AA{}", digits(10), mixed(33))),
        ("stripe-key", format!("sk_live_{}", mixed(24))),
        ("square-token", format!("sq0atp-{}", mixed(22))),
        ("shopify-token", format!("shpat_{}", hex(32))),
        ("sendgrid-key", format!("SG.{}.{}", mixed(22), mixed(43))),
        ("mailgun-key", format!("key-{}", hex(32))),
        ("npm-token", format!("npm_{}", mixed(36))),
        ("pypi-token", format!("pypi-AgEIcHlwaS5vcmc{}", mixed(120))),
        ("rubygems-key", format!("rubygems_{}", hex(48))),
        ("crates-io-token", format!("cio{}", mixed(32))),
        ("docker-token", format!("dckr_pat_{}", mixed(27))),
        ("digitalocean-token", format!("dop_v1_{}", hex(64))),
        ("hashicorp-vault-token", format!("hvs.{}", mixed(90))),
        (
            "terraform-cloud-token",
            format!("{}.atlasv1.{}", mixed(14), mixed(67)),
        ),
        ("grafana-token", format!("glsa_{}_{}", mixed(32), hex(8))),
        ("databricks-token", format!("dapi{}", hex(32))),
        ("new-relic-key", format!("NRAK-{}", upper(27))),
        (
            "age-key",
            format!(
                "AGE-SECRET-KEY-1{}",
                "QPZRY9X8GF2T".chars().cycle().take(58).collect::<String>()
            ),
        ),
    ]
}

#[test]
fn each_form_is_found_and_the_file_has_no_other() {
    let shapes = Shapes::read(FORMS).unwrap();
    let samples = samples();
    let ids: Vec<&str> = shapes.shapes.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, samples.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    for (id, sample) in samples {
        for text in [
            sample.clone(),
            format!("{{\"key\": \"{sample}\"}}"),
            format!("x={sample}&y=1"),
        ] {
            assert_eq!(unknown(text.as_bytes(), None), [id], "{text}");
        }
    }
}

#[test]
fn prose_and_code_are_no_secrets() {
    for text in [
        "Write your ghp_ token into GITHUB_TOKEN; it begins with ghp_ or github_pat_.",
        "the private key is kept in the store; -----BEGIN CERTIFICATE-----",
        "sk-ant-api03-YOUR-KEY and sk_live_... are examples, AKIAEXAMPLE too",
        "npm_config_registry=https://npm.example.test npm_lifecycle_event npm_package_json",
        "precious key-value pairs, dapi, hf_hub_download, glob patterns, 10:AAron",
    ] {
        assert_eq!(unknown(text.as_bytes(), None), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn a_placeholder_is_none_though_it_has_the_form() {
    let (secrets, placeholder) = secrets();
    let text = format!("token: {placeholder}");
    let scanner = secrets.placeholders.as_deref();
    let _shorter = placeholder.len();
    assert_eq!(unknown(text.as_bytes(), scanner), Vec::<&str>::new());
    let other = samples().swap_remove(1).1;
    let both = format!("{text} {other}");
    assert_eq!(unknown(both.as_bytes(), scanner), ["github-token"]);
}

#[test]
fn beyond_the_bound_nothing_is_looked_at() {
    let sample = samples().swap_remove(3).1;
    let mut watch = Watch::new(None, 100);
    watch.look(&[b' '; 90]);
    watch.look(sample.as_bytes());
    assert!(watch.found().is_empty());
    let mut watch = Watch::new(None, 200);
    watch.look(&[b' '; 90]);
    watch.look(sample.as_bytes());
    assert_eq!(watch.found(), ["gitlab-token"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_is_searched_as_its_whole_would_be(
        which in 0..37_usize,
        before in "[ a-z\\n]{0,900}",
        after in "[ \\n][ a-z\\n]{0,900}",
        sizes in prop::collection::vec(1_usize..200, 1..20),
    ) {
        let (id, sample) = samples().swap_remove(which);
        let text = format!("{before} {sample}{after}");
        let (mut watch, mut rest) = (Watch::new(None, 1 << 20), text.as_bytes());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, left) = rest.split_at((*size).min(rest.len()));
            watch.look(piece);
            rest = left;
        }
        prop_assert!(watch.found().contains(&id), "{}", text);
    }
}
