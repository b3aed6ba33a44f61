//! Standing policies over changes of files, calls and restarts.
use super::*;
use crate::control::types::{
    AuditQuery, AuditRecord, Publication, Rollback, SessionSpec, Verdict, Withdrawal,
};
use crate::secret::source::Variables;
use crate::secret::testing::get;
use crate::secret::{SecretStore, Sources};
use crate::session::Session;
use sallyport_policy::{Decision, PolicyText, Who};
use std::path::PathBuf;

/// What came with the run: it may read two hosts.
const RUN: &str = "version: 1
name: run
rules:
  - {id: run-a, to: {host: a.test}, effect: allow}
  - {id: run-b, to: {host: b.test}, effect: allow}
";

/// A ceiling over these hosts.
fn ceiling(hosts: &str) -> String {
    format!(
        "version: 1\nname: ceiling\nrules:\n  - {{id: ceiling, to: {{host: [{hosts}]}}, effect: allow}}\n"
    )
}

const BROKEN: &str = "version: 1\nrulez: []\n";

struct Stand {
    folder: tempfile::TempDir,
    standing: Arc<Standing>,
    sessions: Arc<Sessions>,
    sink: Sink,
    metrics: Metrics,
}

impl Stand {
    /// A gateway's state; what of it was there before stays.
    async fn start(folder: tempfile::TempDir) -> Self {
        let store = Arc::new(SecretStore::open(folder.path()).unwrap());
        let variables = Variables::from_environment(std::iter::empty());
        let sources = Arc::new(Sources::new(store, variables, folder.path().join("files")));
        let sink = Sink::open(folder.path()).unwrap();
        let kept = Kept::open(folder.path()).unwrap();
        let sessions = Sessions::open_under(kept.layers(), folder.path(), sources, sink.clone()).unwrap();
        let metrics = Metrics::default();
        let standing = Standing::start(kept, sessions.clone(), sink.clone(), metrics.clone())
            .await
            .unwrap();
        Self {
            folder,
            standing,
            sessions,
            sink,
            metrics,
        }
    }

    async fn new() -> Self {
        let stand = Self::start(tempfile::tempdir().unwrap()).await;
        stand.open("run-1", "web");
        stand
    }

    async fn restart(self) -> Self {
        let Self {
            folder,
            standing,
            sessions,
            sink,
            ..
        } = self;
        drop((standing, sessions, sink));
        Self::start(folder).await
    }

    fn open(&self, id: &str, team: &str) {
        self.try_open(id, team, RUN).unwrap();
    }

    fn try_open(&self, id: &str, team: &str, policy: &str) -> Result<(), SessionError> {
        let spec = SessionSpec {
            who: Who {
                run: id.to_owned(),
                team: team.to_owned(),
                repository: "acme/site".to_owned(),
                ..Who::default()
            },
            policies: vec![text("run.yaml", policy)],
            hosts: BTreeMap::new(),
            upstream_roots_pem: String::new(),
        };
        self.sessions.put(id, spec)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("policies").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        write(self.folder.path(), name, text);
    }

    fn session(&self) -> Arc<Session> {
        self.sessions.by_id("run-1").unwrap()
    }

    fn shown(&self, key: &str) -> StandingPolicy {
        let all = self.standing.view().policies;
        all.into_iter().find(|one| one.key == self::key(key)).unwrap()
    }

    fn number(&self, key: &str) -> u64 {
        self.shown(key).version.unwrap().number
    }

    fn broken(&self, key: &str) -> String {
        let problems: Vec<_> = self.shown(key).broken.iter().map(ToString::to_string).collect();
        problems.join("\n")
    }

    async fn records(&self) -> Vec<AuditRecord> {
        let all = self.sink.query(AuditQuery::default()).await.unwrap();
        all.into_iter().filter(|record| record.kind == "policy").collect()
    }

    async fn publish(&self, key: &str, text: &str) -> Result<PolicyVersion, StandingError> {
        let publication = Publication {
            texts: vec![self::text("mine.yaml", text)],
            author: "ada".to_owned(),
            note: "because".to_owned(),
        };
        self.standing.publish(self::key(key), publication).await
    }

    async fn roll_back(&self, key: &str, to: u64) -> Result<PolicyVersion, StandingError> {
        let rollback = Rollback {
            to,
            author: "eve".to_owned(),
        };
        self.standing.roll_back(self::key(key), rollback).await
    }
}

fn write(state: &Path, name: &str, text: &str) {
    let path = state.join("policies").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn text(name: &str, text: &str) -> PolicyText {
    PolicyText {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn key(text: &str) -> PolicyKey {
    PolicyKey::try_from(text.to_owned()).unwrap()
}

fn allows(session: &Session, host: &str) -> bool {
    matches!(session.decide(&get(host)).decision, Decision::Allow(_))
}

#[tokio::test]
async fn a_file_that_appears_narrows_running_sessions_at_once() {
    let stand = Stand::new().await;
    let session = stand.session();
    let before = session.policy_hash();
    assert!(allows(&session, "a.test") && allows(&session, "b.test"));
    stand.write("organisation.yaml", &ceiling("a.test"));
    stand.standing.poll().await.unwrap();
    assert!(allows(&session, "a.test") && !allows(&session, "b.test"));
    assert_ne!(session.policy_hash(), before);
    stand.write("organisation.yaml", &ceiling("a.test, b.test"));
    stand.write(
        "teams/web.yaml",
        &ceiling("b.test").replace("id: ceiling", "id: web"),
    );
    stand.standing.poll().await.unwrap();
    assert!(!allows(&session, "a.test") && allows(&session, "b.test"));
    let version = stand.shown("team/web").version.unwrap();
    assert_eq!(
        (version.number, version.author),
        (1, owner::name(rustix::process::getuid().as_raw()))
    );
    let records = stand.records().await;
    assert_eq!(records.len(), 3);
    assert!(
        records
            .iter()
            .all(|record| record.verdict == Verdict::Allowed && record.policy_hash.len() == 64)
    );
}

#[tokio::test]
async fn a_session_is_under_its_own_team_and_repository_only() {
    let stand = Stand::new().await;
    stand.open("run-2", "data");
    stand.write("teams/data.yaml", &ceiling("a.test"));
    stand.standing.poll().await.unwrap();
    assert!(allows(&stand.session(), "b.test"));
    let other = stand.sessions.by_id("run-2").unwrap();
    assert!(!allows(&other, "b.test"));
    stand.write(
        "repositories/acme/site.yaml",
        &ceiling("b.test").replace("id: ceiling", "id: site"),
    );
    stand.standing.poll().await.unwrap();
    assert!(!allows(&stand.session(), "a.test") && !allows(&other, "a.test"));
}

#[tokio::test]
async fn a_broken_file_keeps_the_version_before_and_says_so_everywhere() {
    let stand = Stand::new().await;
    stand.write("organisation.yaml", &ceiling("a.test"));
    stand.standing.poll().await.unwrap();
    let hash = stand.session().policy_hash();
    stand.write("organisation.yaml", BROKEN);
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.session().policy_hash(), hash);
    assert!(!allows(&stand.session(), "b.test"));
    assert_eq!(stand.number("organisation"), 1);
    let said = stand.broken("organisation");
    assert!(
        said.contains("organisation.yaml:2") && said.contains("rulez"),
        "{said}"
    );
    let records = stand.records().await;
    assert_eq!(records[0].verdict, Verdict::Denied);
    assert!(records[0].reason.contains("rulez"), "{}", records[0].reason);
    let metrics = stand.metrics.render(&stand.standing.view(), 1, None).unwrap();
    for line in [
        "sallyport_policy_broken{policy=\"organisation\"} 1",
        "sallyport_policy_reloads_total{outcome=\"refused\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.records().await.len(), records.len(), "said once");
    stand.write("organisation.yaml", &ceiling("a.test, b.test"));
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.broken("organisation"), "");
    assert!(allows(&stand.session(), "b.test"));
}

#[tokio::test]
async fn a_policy_under_which_a_run_could_not_go_on_is_refused_until_that_run_is_gone() {
    let stand = Stand::new().await;
    let clashing = ceiling("a.test").replace("id: ceiling", "id: run-a");
    stand.write("organisation.yaml", &clashing);
    stand.standing.poll().await.unwrap();
    assert!(allows(&stand.session(), "b.test"), "nothing changed");
    let said = stand.broken("organisation");
    assert!(said.contains("`run-1` could not go on"), "{said}");
    let error = stand.publish("organisation", &clashing).await.unwrap_err();
    assert!(
        matches!(&error, StandingError::Broken(problems) if !problems.is_empty()),
        "{error}"
    );
    stand.sessions.delete("run-1").unwrap();
    stand.standing.poll().await.unwrap();
    assert_eq!(
        (
            stand.number("organisation"),
            stand.broken("organisation").as_str()
        ),
        (1, "")
    );
}

#[tokio::test]
async fn what_changes_together_is_taken_together_and_what_is_broken_for_long_holds_nothing_up() {
    let stand = Stand::new().await;
    stand.write("organisation.yaml", &ceiling("a.test"));
    stand.write("teams/web.yaml", BROKEN);
    stand.standing.poll().await.unwrap();
    let said = stand.broken("organisation");
    assert!(said.contains("`team/web` changed with it"), "{said}");
    assert!(allows(&stand.session(), "b.test"));
    stand.write("organisation.yaml", &ceiling("a.test, c.test"));
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.number("organisation"), 1);
    assert!(!allows(&stand.session(), "b.test"));
    assert!(stand.broken("team/web").contains("rulez"));
}

#[tokio::test]
async fn a_publication_is_in_force_and_on_disk_and_no_news_to_the_watcher() {
    let stand = Stand::new().await;
    let version = stand.publish("team/web", &ceiling("a.test")).await.unwrap();
    assert_eq!(
        (version.number, version.author.as_str(), version.note.as_str()),
        (1, "ada", "because")
    );
    assert_eq!(
        std::fs::read_to_string(stand.path("teams/web.yaml")).unwrap(),
        ceiling("a.test")
    );
    stand.standing.reload().await.unwrap();
    assert_eq!(stand.number("team/web"), 1);
    assert!(!allows(&stand.session(), "b.test"));
    assert_eq!(
        stand.publish("team/web", &ceiling("a.test")).await.unwrap(),
        version,
        "the same again is no new version"
    );
    let error = stand.publish("team/web", BROKEN).await.unwrap_err();
    assert!(error.to_string().contains("teams/web.yaml"), "{error}");
    assert_eq!(
        std::fs::read_to_string(stand.path("teams/web.yaml")).unwrap(),
        ceiling("a.test")
    );
    let records = stand.records().await;
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.user.as_str(), record.verdict))
        .collect();
    assert_eq!(told, [("ada", Verdict::Denied), ("ada", Verdict::Allowed)]);
}

#[tokio::test]
async fn a_rollback_is_a_new_version_and_the_file_follows() {
    let stand = Stand::new().await;
    stand.write("organisation.yaml", &ceiling("a.test"));
    stand.standing.poll().await.unwrap();
    stand.write("organisation.yaml", &ceiling("b.test"));
    stand.standing.poll().await.unwrap();
    let version = stand.roll_back("organisation", 1).await.unwrap();
    assert_eq!(
        (version.number, version.author.as_str(), version.note.as_str()),
        (3, "eve", "rollback to 1")
    );
    assert!(allows(&stand.session(), "a.test") && !allows(&stand.session(), "b.test"));
    assert_eq!(
        std::fs::read_to_string(stand.path("organisation.yaml")).unwrap(),
        ceiling("a.test")
    );
    let versions = stand.standing.versions(key("organisation")).await.unwrap();
    let numbers: Vec<_> = versions.iter().map(|version| version.number).collect();
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(versions[0].hash, versions[2].hash);
    let old = stand.standing.version(key("organisation"), 2).await.unwrap();
    assert_eq!(old.texts, [text("organisation.yaml", &ceiling("b.test"))]);
    stand.write("organisation.yaml", &ceiling("b.test"));
    stand.standing.poll().await.unwrap();
    assert_eq!(
        stand.number("organisation"),
        4,
        "a later change of the file counts"
    );
    assert!(stand.roll_back("organisation", 9).await.is_err());
}

#[tokio::test]
async fn a_file_that_could_not_be_written_is_not_taken_for_a_change() {
    let stand = Stand::new().await;
    stand.publish("organisation", &ceiling("a.test")).await.unwrap();
    stand.publish("organisation", &ceiling("b.test")).await.unwrap();
    // A folder in the file's way: writing fails for root too.
    let file = stand.path("organisation.yaml");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    std::fs::write(file.join("x"), "").unwrap();
    stand.roll_back("organisation", 1).await.unwrap();
    stand.standing.reload().await.unwrap();
    assert!(allows(&stand.session(), "a.test"));
    assert!(stand.shown("organisation").differs);
    assert_eq!(stand.number("organisation"), 3);
}

#[tokio::test]
async fn a_file_that_is_gone_ends_nothing_and_a_withdrawal_does() {
    let stand = Stand::new().await;
    stand.publish("organisation", &ceiling("a.test")).await.unwrap();
    std::fs::remove_file(stand.path("organisation.yaml")).unwrap();
    stand.standing.reload().await.unwrap();
    assert!(!allows(&stand.session(), "b.test"));
    assert!(stand.broken("organisation").contains("gone"));
    let withdrawal = || Withdrawal {
        author: "ada".to_owned(),
    };
    let version = stand
        .standing
        .withdraw(key("organisation"), withdrawal())
        .await
        .unwrap();
    assert!(version.withdrawn && version.number == 2);
    assert!(allows(&stand.session(), "b.test"));
    assert!(
        stand
            .standing
            .withdraw(key("organisation"), withdrawal())
            .await
            .is_err()
    );
    let stand = stand.restart().await;
    assert!(allows(&stand.session(), "b.test"));
    stand.roll_back("organisation", 1).await.unwrap();
    assert!(!allows(&stand.session(), "b.test"));
}

#[tokio::test]
async fn after_a_restart_the_same_is_in_force_whatever_became_of_the_file() {
    let stand = Stand::new().await;
    stand.publish("organisation", &ceiling("a.test")).await.unwrap();
    let (hash, shown) = (stand.session().policy_hash(), stand.shown("organisation"));
    let stand = stand.restart().await;
    assert_eq!(
        (stand.session().policy_hash(), stand.shown("organisation")),
        (hash.clone(), shown)
    );
    stand.write("organisation.yaml", BROKEN);
    let stand = stand.restart().await;
    assert_eq!(stand.session().policy_hash(), hash);
    assert!(stand.broken("organisation").contains("rulez"));
}

#[tokio::test]
async fn with_no_version_to_fall_back_to_nothing_passes_after_a_start_until_the_file_is_mended() {
    let stand = Stand::new().await;
    stand.open("run-2", "data");
    stand.write("teams/web.yaml", BROKEN);
    let stand = stand.restart().await;
    assert!(!allows(&stand.session(), "a.test"));
    assert!(allows(&stand.sessions.by_id("run-2").unwrap(), "a.test"));
    assert_eq!(stand.standing.view().closed, ["run-1"]);
    let view = stand.sessions.view("run-1", "").unwrap();
    assert!(
        view.policy_hash.is_empty() && view.broken[0].file == "teams/web.yaml",
        "{view:?}"
    );
    assert!(matches!(
        stand.try_open("run-3", "web", RUN),
        Err(SessionError::Policy { .. })
    ));
    stand.write("teams/web.yaml", &ceiling("a.test"));
    stand.standing.poll().await.unwrap();
    assert!(allows(&stand.session(), "a.test"));
    assert_eq!(stand.standing.view().closed, Vec::<String>::new());
    stand.open("run-3", "web");
}

#[tokio::test]
async fn what_lies_outside_the_folder_is_not_read() {
    let stand = Stand::new().await;
    write(
        stand.folder.path(),
        "../secret.yaml",
        "version: 1\nsets: {s: [c.test]}\n",
    );
    let including = |name: &str| format!("include: [\"{name}\"]\n{}", ceiling("a.test"));
    std::os::unix::fs::symlink("../secret.yaml", stand.path("link.yaml")).unwrap();
    for (name, word) in [
        ("../secret.yaml", "outside"),
        ("/etc/passwd", "outside"),
        ("./link.yaml", "leads out"),
    ] {
        stand.write("organisation.yaml", &including(name));
        stand.standing.poll().await.unwrap();
        let said = stand.broken("organisation");
        assert!(said.contains(word), "{name}: {said}");
    }
    stand.write("shared/sets.yaml", "version: 1\nsets: {s: [c.test]}\n");
    stand.write("organisation.yaml", &including("./shared/sets.yaml"));
    stand.write("org.yml", "");
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.broken("organisation"), "");
    assert_eq!(stand.standing.view().strays, ["link.yaml", "org.yml"]);
    stand.write("shared/sets.yaml", "version: 1\nsets: {s: [d.test]}\n");
    stand.standing.poll().await.unwrap();
    assert_eq!(stand.number("organisation"), 2, "what is included counts");
}

#[tokio::test]
async fn a_publication_with_files_of_another_policy_is_refused() {
    let stand = Stand::new().await;
    let including = |hosts: &str| format!("include: [\"./shared/sets.yaml\"]\n{}", ceiling(hosts));
    stand.write("shared/sets.yaml", "version: 1\nsets: {s: [c.test]}\n");
    stand.write("organisation.yaml", &including("a.test"));
    stand.standing.poll().await.unwrap();
    let publication = |set: &str| Publication {
        texts: vec![
            text(
                "p/teams/web.yaml",
                &including("a.test")
                    .replace("./shared", "../shared")
                    .replace("id: ceiling", "id: web"),
            ),
            text(
                "p/shared/sets.yaml",
                &format!("version: 1\nsets: {{s: [{set}]}}\n"),
            ),
        ],
        author: "ada".to_owned(),
        note: String::new(),
    };
    let error = stand
        .standing
        .publish(key("team/web"), publication("d.test"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`organisation`"), "{error}");
    stand
        .standing
        .publish(key("team/web"), publication("c.test"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_runs_policy_is_checked_below_what_stands_before_there_is_a_session() {
    let stand = Stand::new().await;
    let who = Who::default();
    let inherits = [text("run.yaml", "version: 1\nname: run\ndefault: inherit\n")];
    assert!(
        !stand.sessions.check(&who, &inherits).is_empty(),
        "nothing is above"
    );
    stand.publish("organisation", &ceiling("a.test")).await.unwrap();
    assert_eq!(stand.sessions.check(&who, &inherits), []);
    let clash = [text("run.yaml", &ceiling("a.test"))];
    let problems = stand.sessions.check(&who, &clash);
    assert!(
        problems.iter().any(|problem| problem.file == "run.yaml"),
        "{problems:?}"
    );
}
