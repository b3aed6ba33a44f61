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
    let yard = Yard::new(POLICY).await;
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
    for arguments in [
        ["clone", &at(&yard, "other/web.git"), "../no"],
        ["push", &at(&yard, "acme/read.git"), "main"],
    ] {
        let refused = yard.git(&work, &arguments).await;
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{said}");
        let record = yard.records(1).await.pop().unwrap();
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
