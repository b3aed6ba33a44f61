//! Tests of the channel against a scripted peer: cuts, restarts, and answers that make no sense.
use super::{Connect, ConnectError, ShimClient};
use crate::machine::{AgentRequest, ExecCall, MachineError, OutputPiece, Shim};
use async_trait::async_trait;
use bytes::Bytes;
use sallyport_shim::wire::channel::{Channel, FrameReader, write_frame};
use sallyport_shim::wire::{ExecEnd, FromShim, Stream, ToShim, VERSION};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};

/// Hands out one end of a new socket pair for each connection, until the sender is dropped.
struct Pairs(Mutex<mpsc::Receiver<UnixStream>>);

#[async_trait]
impl Connect for Pairs {
    async fn connect(&self) -> Result<UnixStream, ConnectError> {
        self.0.lock().await.recv().await.ok_or(ConnectError::Gone)
    }
}

fn client() -> (Arc<ShimClient>, mpsc::Sender<UnixStream>) {
    let (give, take) = mpsc::channel(8);
    (ShimClient::start("m1", Pairs(Mutex::new(take))), give)
}

fn call(id: &str) -> ExecCall {
    ExecCall {
        id: id.to_owned(),
        argv: vec!["true".to_owned()],
        cwd: "/".to_owned(),
        env: BTreeMap::new(),
        timeout_ms: 60_000,
    }
}

/// Plays a shim on one connection until `until` says that it has seen enough, then cuts it.
async fn play(
    give: &mpsc::Sender<UnixStream>,
    channel: &Channel<FromShim>,
    boot: &str,
    mut on: impl FnMut(ToShim) -> bool,
) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    give.send(theirs).await.unwrap();
    let (read, mut write) = ours.into_split();
    let mut reader = FrameReader::new(read);
    let first = reader.next::<ToShim>().await.unwrap();
    let hello = FromShim::Hello {
        version: VERSION,
        boot: boot.to_owned(),
        running: Vec::new(),
    };
    write_frame(&mut write, &channel.hello(hello)).await.unwrap();
    let (enough, mut cut) = mpsc::channel(1);
    let run = channel.run(
        &mut reader,
        write,
        first.head.acknowledged,
        |message: ToShim, _| {
            if on(message) {
                enough.try_send(()).unwrap();
            }
        },
    );
    tokio::select! {
        _ = run => {}
        _ = cut.recv() => {}
    }
}

fn output(text: &'static str) -> (FromShim, Bytes) {
    (
        FromShim::Output {
            id: "c".to_owned(),
            stream: Stream::Out,
        },
        Bytes::from_static(text.as_bytes()),
    )
}

async fn collect(mut from: mpsc::Receiver<OutputPiece>) -> String {
    let mut all = Vec::new();
    while let Some(piece) = from.recv().await {
        all.extend_from_slice(&piece.bytes);
    }
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn a_cut_between_start_and_end_loses_and_doubles_nothing() {
    let (client, give) = client();
    let (to, from) = mpsc::channel(64);
    let own = Arc::clone(&client);
    let exec = tokio::spawn(async move { own.exec(&call("c"), to).await });
    let text = tokio::spawn(collect(from));
    let channel = Channel::default();
    let mut asked = 0;
    play(&give, &channel, "b1", |message| {
        asked += usize::from(matches!(message, ToShim::Exec { .. }));
        channel.send(
            FromShim::Started {
                id: "c".to_owned(),
                known: false,
            },
            Bytes::new(),
        );
        let (message, body) = output("one ");
        channel.send(message, body);
        true
    })
    .await;
    let (message, body) = output("two");
    channel.send(message, body);
    let end = ExecEnd::Code { code: 3 };
    channel.send(
        FromShim::Exited {
            id: "c".to_owned(),
            end,
            full_output: None,
        },
        Bytes::new(),
    );
    let second = play(&give, &channel, "b1", |message| {
        asked += usize::from(matches!(message, ToShim::Exec { .. }));
        false
    });
    let outcome = tokio::select! {
        outcome = exec => outcome.unwrap().unwrap(),
        () = second => panic!("the connection ended first"),
    };
    assert_eq!(outcome.end, ExecEnd::Code { code: 3 });
    assert_eq!(text.await.unwrap(), "one two");
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_restarted_shim_means_that_its_commands_are_lost_and_it_is_set_up_again() {
    let (client, give) = client();
    let own = Arc::clone(&client);
    let setup = tokio::spawn(async move { own.setup("pem", &BTreeMap::new()).await });
    let first = Channel::default();
    let peer = play(&give, &first, "b1", |message| {
        assert!(matches!(message, ToShim::Setup { .. }));
        first.send(
            FromShim::Ready {
                warnings: vec!["w".to_owned()],
            },
            Bytes::new(),
        );
        false
    });
    tokio::select! {
        warnings = setup => assert_eq!(warnings.unwrap().unwrap(), ["w"]),
        () = peer => panic!("the connection ended first"),
    }
    let (to, _from) = mpsc::channel(64);
    let own = Arc::clone(&client);
    let exec = tokio::spawn(async move { own.exec(&call("c"), to).await });
    play(&give, &first, "b1", |message| {
        matches!(message, ToShim::Exec { .. })
    })
    .await;
    let second = Channel::default();
    play(&give, &second, "b2", |message| {
        matches!(message, ToShim::Setup { .. })
    })
    .await;
    assert_eq!(exec.await.unwrap().unwrap().end, ExecEnd::Lost);
}

#[tokio::test]
async fn when_the_machine_is_gone_every_call_ends() {
    let (client, give) = client();
    let own = Arc::clone(&client);
    let (to, _from) = mpsc::channel(1);
    let exec = tokio::spawn(async move { own.exec(&call("c"), to).await });
    tokio::task::yield_now().await;
    drop(give);
    assert!(matches!(exec.await.unwrap(), Err(MachineError::Gone(id)) if id == "m1"));
    assert_eq!(client.next_request().await, None);
    assert!(matches!(
        client.read_file("/x", 0, 1).await,
        Err(MachineError::Gone(_))
    ));
}

#[tokio::test]
async fn a_machine_that_sends_without_end_is_cut_off() {
    let (client, give) = client();
    let (to, from) = mpsc::channel(64);
    let text = tokio::spawn(collect(from));
    let own = Arc::clone(&client);
    let exec = tokio::spawn(async move { own.exec(&call("c"), to).await });
    let channel = Channel::default();
    let run = play(&give, &channel, "b1", |_| {
        channel.send(
            FromShim::Started {
                id: "c".to_owned(),
                known: false,
            },
            Bytes::new(),
        );
        for _ in 0..3000 {
            let output = FromShim::Output {
                id: "c".to_owned(),
                stream: Stream::Out,
            };
            channel.send(output, Bytes::from(vec![b'x'; 1000]));
        }
        let end = ExecEnd::Code { code: 0 };
        channel.send(
            FromShim::Exited {
                id: "c".to_owned(),
                end,
                full_output: None,
            },
            Bytes::new(),
        );
        false
    });
    tokio::select! {
        outcome = exec => assert_eq!(outcome.unwrap().unwrap().end, ExecEnd::Code { code: 0 }),
        () = run => panic!("the connection ended first"),
    }
    let text = text.await.unwrap();
    assert!(text.len() < (1 << 20) + 100);
    assert!(text.ends_with("cut here]\n"));
}

#[tokio::test]
async fn a_request_of_the_agent_is_heard_and_answered() {
    let (client, give) = client();
    let channel = Channel::default();
    let request = FromShim::Request {
        id: "r1".to_owned(),
        host: "docs.rs".to_owned(),
        port: 443,
        method: None,
        path: None,
        credential: Some("docs-token".to_owned()),
        why: "docs".to_owned(),
    };
    channel.send(request, Bytes::new());
    let mut answered = None;
    let peer = play(&give, &channel, "b1", |message| {
        if let ToShim::Answer { granted, .. } = message {
            answered = Some(granted);
        }
        answered.is_some()
    });
    let agent = async {
        let request = client.next_request().await.unwrap();
        let AgentRequest::Access { id, wanted, .. } = request else {
            panic!("{request:?}")
        };
        assert_eq!((id.as_str(), wanted.host.as_str()), ("r1", "docs.rs"));
        assert_eq!(wanted.credential.as_deref(), Some("docs-token"));
        client.answer("r1", true, "for an hour").await.unwrap();
    };
    tokio::join!(peer, agent);
    assert_eq!(answered, Some(true));
}
