//! Git over ssh, by a real git on both sides: decided by repository and by read or write.
use crate::sshd::{Yard, text};
use sallyport_gateway::control::types::Verdict;

/// Repositories below the yard's folder: `acme` is read and written, `other` is not allowed.
const POLICY: &str = r#"
version: 1
default: deny
credentials:
  deploy: {from: {store: deploy}, hosts: [allowed.test], in: [ssh-key], env: DEPLOY_KEY}
known-hosts: ["HOSTKEY"]
rules:
  - {id: fetch, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: git, repository: ["**/acme/*"], access: read, private: true}, use: [deploy], effect: allow}
  - {id: push, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, protocol: git, repository: ["**/acme/web"], access: write, private: true}, use: [deploy], effect: allow}
"#;

async fn yard() -> Yard {
    yard_with(POLICY).await
}

async fn yard_with(policy: &str) -> Yard {
    let yard = Yard::new(policy).await;
    for name in ["acme/web.git", "acme/read.git", "other/web.git"] {
        let path = yard.path(name);
        std::fs::create_dir_all(&path).unwrap();
        let made = yard.git(&path, &["init", "-q", "--bare"]).await;
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    let work = yard.path("work");
    std::fs::create_dir_all(&work).unwrap();
    assert!(yard.git(&work, &["init", "-q"]).await.status.success());
    std::fs::write(work.join("file"), vec![b'x'; 100_000]).unwrap();
    assert!(yard.git(&work, &["add", "."]).await.status.success());
    assert!(yard.git(&work, &["commit", "-qm", "one"]).await.status.success());
    yard
}

fn at(yard: &Yard, name: &str) -> String {
    yard.repository(&yard.path(name).display().to_string())
}

#[tokio::test]
async fn a_repository_is_pushed_and_cloned() {
    let yard = yard().await;
    let (work, url) = (yard.path("work"), at(&yard, "acme/web.git"));
    let pushed = yard.git(&work, &["push", &url, "main"]).await;
    assert!(pushed.status.success(), "{}", text(&pushed.stderr));
    let cloned = yard.git(&work, &["clone", "-q", &url, "../copy"]).await;
    assert!(cloned.status.success(), "{}", text(&cloned.stderr));
    assert_eq!(
        std::fs::read(yard.path("copy/file")).unwrap(),
        vec![b'x'; 100_000]
    );
    let records = yard.records(4).await;
    let rules: Vec<&str> = records
        .iter()
        .filter(|record| record.ending == "complete")
        .map(|record| record.rule.as_str())
        .collect();
    assert_eq!(rules, ["push", "fetch"]);
}

#[tokio::test]
async fn another_repository_and_another_command_are_refused_and_git_says_why() {
    let yard = yard().await;
    let work = yard.path("work");
    for (number, arguments) in [
        ["clone", &at(&yard, "other/web.git"), "../no"],
        ["push", &at(&yard, "acme/read.git"), "main"],
    ]
    .into_iter()
    .enumerate()
    {
        let refused = yard.git(&work, &arguments).await;
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{said}");
        let record = yard.records(number + 1).await.pop().unwrap();
        assert_eq!(record.verdict, Verdict::Denied);
        assert!(
            said.contains("sallyport: ") && said.contains(&record.id),
            "{said}"
        );
    }
    let path = yard.path("acme/web.git").display().to_string();
    for command in [
        format!("git-upload-pack '{path}'; id"),
        format!("git-upload-pack {path}"),
        "id".to_owned(),
    ] {
        let output = yard.ssh(&[&command], b"0000").await;
        assert_eq!(output.status.code(), Some(255), "{command}");
        assert!(output.stdout.is_empty(), "{command}: {}", text(&output.stdout));
    }
}

/// The same, where pushes may change branches below `agent/` only, and never backwards.
fn own_branches() -> String {
    POLICY.replace(
        "access: write,",
        "access: write, refs: [\"agent/**\"], force: false,",
    )
}

#[tokio::test]
async fn a_push_is_read_and_let_through_where_its_refs_are_allowed() {
    let yard = yard_with(&own_branches()).await;
    let (work, url) = (yard.path("work"), at(&yard, "acme/web.git"));
    let pushed = yard
        .git(&work, &["push", &url, "main:refs/heads/agent/one"])
        .await;
    assert!(pushed.status.success(), "{}", text(&pushed.stderr));
    // Forward, shown by the pack; then nothing new; then away.
    std::fs::write(work.join("file"), "more").unwrap();
    assert!(yard.git(&work, &["commit", "-qam", "two"]).await.status.success());
    for _ in 0..2 {
        let pushed = yard
            .git(&work, &["push", &url, "main:refs/heads/agent/one"])
            .await;
        assert!(pushed.status.success(), "{}", text(&pushed.stderr));
    }
    let record = yard.records(5).await.pop().unwrap();
    assert_eq!(
        (record.rule.as_str(), record.verdict),
        ("push", Verdict::Allowed),
        "{record:#?}"
    );
}

#[tokio::test]
async fn a_refused_ref_is_told_in_gits_own_report_and_nothing_of_the_push_arrives() {
    let yard = yard_with(&own_branches()).await;
    let (work, url) = (yard.path("work"), at(&yard, "acme/web.git"));
    for (number, refs) in [&["main"][..], &["main:refs/heads/agent/one", "main"]]
        .into_iter()
        .enumerate()
    {
        let pushed = yard
            .git(&work, &[&["push", url.as_str()][..], refs].concat())
            .await;
        let said = text(&pushed.stderr);
        assert!(!pushed.status.success(), "{said}");
        let record = yard.records(number + 1).await.pop().unwrap();
        assert_eq!(
            (record.verdict, record.ending.as_str()),
            (Verdict::Denied, "refused"),
            "{record:#?}"
        );
        assert!(
            said.contains("[remote rejected]")
                && said.contains(&format!("refused by sallyport (decision {})", record.id)),
            "{said}"
        );
    }
    // Back again, and away.
    let pushed = yard
        .git(&work, &["push", &url, "main:refs/heads/agent/one"])
        .await;
    assert!(pushed.status.success(), "{}", text(&pushed.stderr));
    assert!(
        yard.git(&work, &["commit", "-q", "--amend", "-m", "other"])
            .await
            .status
            .success()
    );
    for refs in ["+main:refs/heads/agent/one", ":refs/heads/agent/one"] {
        let pushed = yard.git(&work, &["push", &url, refs]).await;
        assert!(!pushed.status.success(), "{refs}: {}", text(&pushed.stderr));
        assert!(
            text(&pushed.stderr).contains("[remote rejected]"),
            "{refs}: {}",
            text(&pushed.stderr)
        );
    }
    let refs = yard
        .git(
            &yard.path("acme/web.git"),
            &["for-each-ref", "--format=%(refname)"],
        )
        .await;
    assert_eq!(text(&refs.stdout), "refs/heads/agent/one\n");
}

#[tokio::test]
async fn a_value_in_a_commit_is_refused_over_ssh_too() {
    for policy in [POLICY.to_owned(), own_branches()] {
        let yard = yard_with(&policy).await;
        let (work, url) = (yard.path("work"), at(&yard, "acme/web.git"));
        std::fs::write(
            work.join("config.py"),
            format!("key = {}\n", crate::stand::SECRET),
        )
        .unwrap();
        assert!(yard.git(&work, &["add", "."]).await.status.success());
        assert!(yard.git(&work, &["commit", "-qm", "two"]).await.status.success());
        let refused = yard
            .git(&work, &["push", &url, "main:refs/heads/agent/one"])
            .await;
        let said = text(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("credential `token`"),
            "{said}"
        );
        assert!(!yard.path("acme/web.git/refs/heads/agent/one").exists());
    }
}
