//! Tests of attaching: a restarted gateway gets the listeners again, and a machine's end ends it.
use super::{Attach, keep_attached};
use crate::machine::{Attachment, MachineError};
use crate::testing::FakeDoor;
use async_trait::async_trait;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Default)]
struct Network {
    gone: AtomicBool,
}

#[async_trait]
impl Attach for Network {
    async fn attach(&self) -> Result<Attachment, MachineError> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(MachineError::Gone("m1".to_owned()));
        }
        Ok(Attachment {
            redirect: Vec::new(),
            dns: Vec::new(),
        })
    }
}

/// Lets the paused clock run until the listeners were handed over that many times.
async fn handed_over(door: &FakeDoor, times: usize) {
    let enough = async {
        while door.inner().hand_overs.len() < times {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), enough)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restarted_gateway_gets_the_listeners_again_and_the_same_one_only_once() {
    let (door, network) = (FakeDoor::new(), Network::default());
    let story = async {
        handed_over(&door, 1).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(door.inner().hand_overs, ["run-1"]);
        door.inner().reachable = false;
        tokio::time::sleep(Duration::from_secs(10)).await;
        door.restart();
        door.inner().reachable = true;
        handed_over(&door, 2).await;
    };
    tokio::select! {
        () = story => {}
        ended = keep_attached(&*door, "run-1", &network) => panic!("{ended}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_machine_is_gone() {
    let (door, network) = (FakeDoor::new(), Network::default());
    let story = async {
        handed_over(&door, 1).await;
        network.gone.store(true, Ordering::SeqCst);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = story => {}
        ended = keep_attached(&*door, "run-1", &network) => assert!(matches!(ended, MachineError::Gone(_))),
    }
}
