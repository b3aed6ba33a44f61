//! The keeper with a shell in the gateway's place, which tells its process id in a file: a fake that serves nothing.
use super::*;
use crate::gateway::GatewayError;
use crate::machine::Attachment;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sallyport_gateway::control::types::{
    AccessAnswer, AccessRequest, AuditQuery, AuditRecord, Health, PolicyCheck, SessionSpec, SessionView,
};
use std::path::Path;

struct FileDoor(PathBuf);

fn away() -> GatewayError {
    GatewayError::Unreachable {
        socket: "fake".to_owned(),
        why: "away".to_owned(),
    }
}

#[async_trait]
impl Door for FileDoor {
    async fn health(&self) -> Result<Health, GatewayError> {
        let pid: u32 = std::fs::read_to_string(&self.0)
            .map_err(|_| away())?
            .trim()
            .parse()
            .map_err(|_| away())?;
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| away())?;
        if state.contains(") Z ") {
            return Err(away());
        }
        Ok(Health {
            version: "1".to_owned(),
            pid,
            proxy: String::new(),
        })
    }
    async fn check_policy(
        &self,
        _check: &PolicyCheck,
    ) -> Result<Vec<sallyport_policy::Problem>, GatewayError> {
        Err(away())
    }
    async fn put_session(&self, _id: &str, _spec: &SessionSpec) -> Result<SessionView, GatewayError> {
        Err(away())
    }
    async fn session(&self, _id: &str) -> Result<SessionView, GatewayError> {
        Err(away())
    }
    async fn delete_session(&self, _id: &str) -> Result<(), GatewayError> {
        Err(away())
    }
    async fn access(&self, _id: &str, _request: &AccessRequest) -> Result<AccessAnswer, GatewayError> {
        Err(away())
    }
    async fn hand_over(&self, _session: &str, _attachment: Attachment) -> Result<(), GatewayError> {
        Err(away())
    }
    async fn events(
        &self,
        _after: u64,
    ) -> Result<BoxStream<'static, Result<AuditRecord, GatewayError>>, GatewayError> {
        Err(away())
    }
    async fn audit(&self, _query: &AuditQuery) -> Result<Vec<AuditRecord>, GatewayError> {
        Err(away())
    }
}

fn launch(folder: &Path, script: &str) -> (Launch, Arc<FileDoor>) {
    let launch = Launch {
        program: "/bin/sh".into(),
        arguments: vec![
            "-c".into(),
            script
                .replace("PID", &folder.join("pid").display().to_string())
                .into(),
        ],
        log: folder.join("gateway.log"),
        stamp: folder.join("gateway.stamp"),
    };
    (launch, Arc::new(FileDoor(folder.join("pid"))))
}

const SERVE: &str = "echo $$ > PID; exec sleep 600";

async fn pid_other_than(door: &FileDoor, old: u32) -> u32 {
    loop {
        match door.health().await {
            Ok(health) if health.pid != old => return health.pid,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_gateway_that_dies_is_started_anew_and_an_orderly_stop_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, door) = launch(folder.path(), SERVE);
    let keeper = Keeper::start(launch, door.clone()).await.unwrap();
    let first = door.health().await.unwrap().pid;
    kill(first);
    let again = tokio::time::timeout(Duration::from_secs(20), pid_other_than(&door, first))
        .await
        .unwrap();
    keeper.stop().await;
    assert!(door.health().await.is_err(), "process {again} is still there");
}

#[tokio::test]
async fn a_gateway_left_behind_is_adopted_and_another_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (first, door) = launch(folder.path(), SERVE);
    let keeper = Keeper::start(first.clone(), door.clone()).await.unwrap();
    let pid = door.health().await.unwrap().pid;
    // As after `kill -9` of the supervisor: nobody keeps it any more.
    keeper.task.abort();
    let keeper = Keeper::start(first, door.clone()).await.unwrap();
    assert_eq!(door.health().await.unwrap().pid, pid);
    keeper.task.abort();
    let (other, _) = launch(folder.path(), "echo $$ > PID; : other; exec sleep 600");
    let keeper = Keeper::start(other, door.clone()).await.unwrap();
    assert_ne!(door.health().await.unwrap().pid, pid);
    keeper.stop().await;
}

#[tokio::test]
async fn a_gateway_that_ends_at_once_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, door) = launch(folder.path(), "echo the port is taken; exit 1");
    let error = Keeper::start(launch, door).await.unwrap_err().to_string();
    assert!(
        error.contains("ended at once") && error.contains("the port is taken"),
        "{error}"
    );
    let (mut missing, door) = super::tests::launch(folder.path(), "");
    missing.program = "/no/such/gateway".into();
    let error = Keeper::start(missing, door).await.unwrap_err().to_string();
    assert!(error.contains("/no/such/gateway"), "{error}");
}
