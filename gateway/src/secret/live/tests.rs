//! The keeper with a provider that tells what it was asked for. Time is virtual: it jumps whenever everybody waits.
use super::*;
use crate::secret::Value;
use async_trait::async_trait;
use sallyport_policy::{Credential, Policy, PolicyText, Source, Who};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Leases last 10 s and at most 25 s; while `down` is set nothing works.
#[derive(Debug, Default)]
struct Scripted {
    calls: Mutex<Vec<String>>,
    down: Mutex<Option<Fault>>,
    made: Mutex<BTreeMap<String, Instant>>,
    parent: Option<watch::Receiver<Parent>>,
    /// How long a fetch takes.
    slow: Mutex<Duration>,
    /// In place of the first span, and of what a renewal gives.
    spans: (Option<Duration>, Option<Duration>),
}

const SPAN: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(25);

impl Scripted {
    fn note(&self, call: String) -> Result<(), Fault> {
        self.calls.lock().unwrap().push(call);
        self.down.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn calls(&self, of: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.starts_with(of)).count()
    }

    fn set_down(&self, fault: Option<Fault>) {
        *self.down.lock().unwrap() = fault;
    }

    fn set_slow(&self, slow: Duration) {
        *self.slow.lock().unwrap() = slow;
    }
}

#[async_trait]
impl Provider for Scripted {
    fn admits(&self, from: &Source, _: &Who) -> Result<(), String> {
        match from {
            Source::Vault { path, .. } if path == "db/creds/agents" => Ok(()),
            _ => Err("the operator lets policies name `db/creds/agents` alone".to_owned()),
        }
    }

    async fn fetch(&self, _: &Wanted) -> Result<Fetched, Fault> {
        self.note("fetch".to_owned())?;
        let slow = *self.slow.lock().unwrap();
        if !slow.is_zero() {
            sleep(slow).await;
        }
        let span = self.spans.0.unwrap_or(SPAN);
        let mut made = self.made.lock().unwrap();
        let id = format!("db/creds/agents/{}", made.len());
        made.insert(id.clone(), Instant::now());
        let value = |text: &str| Value::new(format!("{text}-{}-Ab3dEf6hIj9l", made.len()).into_bytes());
        Ok(Fetched {
            fields: BTreeMap::from([
                ("username".to_owned(), value("user")),
                ("password".to_owned(), value("pass")),
            ]),
            lease: Some(Lease {
                id,
                renewable: true,
                span,
            }),
            valid_for: Some(span),
            parent: self.parent.clone(),
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Duration, Fault> {
        self.note(format!("renew {}", lease.id))?;
        let age = self.made.lock().unwrap()[&lease.id].elapsed();
        let granted = SPAN.min(LONGEST.saturating_sub(age));
        Ok(self.spans.1.unwrap_or(granted))
    }

    async fn revoke(&self, lease: &str) -> Result<(), Fault> {
        self.note(format!("revoke {lease}"))
    }

    fn fault(&self) -> Option<String> {
        self.down.lock().unwrap().as_ref().map(ToString::to_string)
    }
}

fn credentials() -> Vec<Credential> {
    let text = "version: 1\nname: test\ncredentials:\n  user:\n    from: {vault: db/creds/agents, field: username}\n    hosts: [a.test]\n    in: [password]\n  pass:\n    from: {vault: db/creds/agents, field: password}\n    hosts: [a.test]\n    in: [password]\n";
    let policy = Policy::compile(&[PolicyText {
        name: "policy.yaml".into(),
        text: text.into(),
    }]);
    policy.unwrap().credentials().to_vec()
}

fn source(field: &str) -> Source {
    Source::Vault {
        path: "db/creds/agents".into(),
        field: field.into(),
    }
}

fn keeper(folder: &Path, provider: &Arc<Scripted>) -> Arc<Keeper> {
    let mut providers = Providers::default();
    providers.put("vault", provider.clone());
    Keeper::open(folder, providers, Terms::default()).unwrap()
}

async fn want(keeper: &Arc<Keeper>) {
    keeper.want("run-1", &Arc::default(), &credentials());
    keeper.settled("run-1").await;
}

fn given(keeper: &Keeper, field: &str) -> Result<String, Unread> {
    let given = keeper.give("run-1", &Who::default(), &source(field))?;
    Ok(String::from_utf8(given.value.bytes().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn two_credentials_of_one_path_share_a_lease_that_is_given_back_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    let keeper = keeper(folder.path(), &provider);
    want(&keeper).await;
    assert_eq!(given(&keeper, "username").unwrap(), "user-1-Ab3dEf6hIj9l");
    assert_eq!(given(&keeper, "password").unwrap(), "pass-1-Ab3dEf6hIj9l");
    assert!(matches!(given(&keeper, "other"), Err(Unread::Missing(why)) if why.contains("username")));
    assert_eq!(provider.calls("fetch"), 1);
    keeper.end("run-1");
    keeper.close().await;
    assert_eq!(provider.calls("revoke db/creds/agents/0"), 1);
    assert_eq!(keeper.leases().all().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_and_replaced_before_it_can_be_renewed_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    let keeper = keeper(folder.path(), &provider);
    want(&keeper).await;
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        let value = given(&keeper, "password").unwrap();
        let number: usize = value.split('-').nth(1).unwrap().parse().unwrap();
        let age = provider.made.lock().unwrap()[&format!("db/creds/agents/{}", number - 1)].elapsed();
        assert!(age < LONGEST, "{value} is used after its end");
    }
    let (fetched, renewed) = (provider.calls("fetch"), provider.calls("renew"));
    assert!((3..=6).contains(&fetched), "fetched {fetched} times in a minute");
    assert!(renewed >= fetched, "renewed {renewed} times");
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_a_value_is_used_to_its_end_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    let keeper = keeper(folder.path(), &provider);
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    keeper.on_change(move |change| hears.lock().unwrap().extend(change.told));
    want(&keeper).await;
    provider.set_down(Some(Fault::passing("`vault` is sealed")));
    sleep(Duration::from_secs(9)).await;
    let still = keeper
        .give("run-1", &Who::default(), &source("password"))
        .unwrap();
    assert_eq!(still.trouble.as_deref(), Some("`vault` is sealed"));
    sleep(Duration::from_secs(2)).await;
    let gone = given(&keeper, "password").unwrap_err();
    assert!(
        matches!(&gone, Unread::Unavailable { sentence, .. } if sentence == "`vault` is sealed"),
        "{gone:?}"
    );
    assert!(
        still.until.is_over(),
        "who holds the value still sees that its time is over"
    );
    provider.set_down(None);
    sleep(Duration::from_secs(40)).await;
    assert!(given(&keeper, "password").is_ok());
    let told: Vec<_> = told
        .lock()
        .unwrap()
        .iter()
        .map(|told: &Told| (told.good, told.sentence.clone()))
        .collect();
    let said = |good: bool, part: &str| told.iter().any(|(is, text)| *is == good && text.contains(part));
    assert!(
        said(false, "sealed") && said(false, "is over") && said(true, "gives values again"),
        "{told:?}"
    );
    assert!(
        told.len() < 6,
        "one event for each change, not for each try: {told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_waits_for_a_slow_source_for_a_while_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    let keeper = keeper(folder.path(), &provider);
    provider.set_down(Some(Fault::lasting("`vault` says: permission denied")));
    let began = Instant::now();
    want(&keeper).await;
    assert!(began.elapsed() <= Terms::default().wait);
    assert!(matches!(
        given(&keeper, "password"),
        Err(Unread::Unavailable { .. })
    ));
    assert_eq!(keeper.faults(), ["`vault` says: permission denied"]);
    let elsewhere = Source::Vault {
        path: "db/creds/admin".into(),
        field: "password".into(),
    };
    let refused = keeper.give("run-1", &Who::default(), &elsewhere).unwrap_err();
    assert!(matches!(refused, Unread::NotAllowed(why) if why.contains("db/creds/agents")));
}

#[tokio::test(start_paused = true)]
async fn what_hangs_on_a_token_is_replaced_before_the_token_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (life, parent) = watch::channel(Parent {
        ends: Some(Instant::now() + SPAN),
        last: false,
    });
    let provider = Arc::new(Scripted {
        parent: Some(parent),
        ..Scripted::default()
    });
    let keeper = keeper(folder.path(), &provider);
    want(&keeper).await;
    life.send_modify(|life| life.last = true);
    sleep(SPAN * 3 / 4).await;
    assert!(provider.calls("fetch") >= 2, "another was made in time");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_crash_left_behind_is_given_back_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let leases = leases::Leases::open(folder.path()).unwrap();
    let owner = leases::Owner {
        kind: "vault".into(),
        session: "gone".into(),
    };
    leases.add("db/creds/agents/left", owner).await.unwrap();
    drop(leases);
    let provider = Arc::new(Scripted::default());
    provider.set_down(Some(Fault::passing("`vault` is not up yet")));
    let keeper = keeper(folder.path(), &provider);
    sleep(Duration::from_secs(3)).await;
    provider.set_down(None);
    keeper.close().await;
    assert!(provider.calls("revoke db/creds/agents/left") > 1);
    assert_eq!(keeper.leases().all().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_when_nobody_waits_any_longer_is_given_back() {
    // All tests count from one beginning, which must not lie where this one's clock has moved to.
    Until::movable().set(Some(Instant::now()));
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    provider.set_slow(Terms::default().call + Duration::from_secs(5));
    let keeper = keeper(folder.path(), &provider);
    want(&keeper).await;
    assert_eq!(provider.calls("fetch"), 1);
    provider.set_slow(Duration::ZERO);
    // The second fetch gives the first lease, since it is answered before the first one.
    sleep(Duration::from_secs(15)).await;
    assert_eq!(provider.calls("fetch"), 2);
    assert_eq!(given(&keeper, "password").unwrap(), "pass-1-Ab3dEf6hIj9l");
    assert_eq!(provider.made.lock().unwrap().len(), 2);
    assert_eq!(provider.calls("revoke"), 1);
    assert_eq!(provider.calls("revoke db/creds/agents/1"), 1);
    let ids: Vec<_> = keeper
        .leases()
        .all()
        .unwrap()
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, ["db/creds/agents/0"]);
    keeper.close().await;
    assert_eq!(keeper.leases().all().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_could_not_be_given_back_for_long_is_swept_later() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Arc::new(Scripted::default());
    let keeper = keeper(folder.path(), &provider);
    want(&keeper).await;
    provider.set_down(Some(Fault::passing("`vault` is sealed")));
    keeper.end("run-1");
    // All tries of the session's end are over by then.
    sleep(Duration::from_secs(20 * 60)).await;
    assert!(provider.calls("revoke db/creds/agents/0") > terms::REVOCATIONS);
    assert_eq!(keeper.leases().all().unwrap().len(), 1);
    provider.set_down(None);
    sleep(terms::SWEEP * 2).await;
    assert_eq!(keeper.leases().all().unwrap(), []);
    let calls = provider.calls("revoke");
    want(&keeper).await;
    sleep(terms::SWEEP).await;
    assert_eq!(
        provider.calls("revoke"),
        calls,
        "what a session holds is not swept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_span_without_measure_gives_a_value_that_can_be_used() {
    let endless = Some(Duration::from_secs(u64::MAX));
    for spans in [(endless, None), (None, endless)] {
        let folder = tempfile::tempdir().unwrap();
        let provider = Arc::new(Scripted {
            spans,
            ..Scripted::default()
        });
        let keeper = keeper(folder.path(), &provider);
        want(&keeper).await;
        sleep(SPAN).await;
        let given = keeper
            .give("run-1", &Who::default(), &source("password"))
            .unwrap();
        let left = given.until.moment().unwrap().duration_since(Instant::now());
        assert!(left > LONGEST && left <= terms::LONGEST, "{left:?}");
        assert_eq!(provider.calls("fetch"), 1);
        keeper.close().await;
    }
    assert!(terms::about_half(Duration::MAX) < terms::LONGEST);
}
