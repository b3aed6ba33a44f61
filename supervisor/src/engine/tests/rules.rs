//! One run for a key, one engine for a directory, one code for a journal.
use super::lives::{WAITS, outcome, waiting};
use super::*;
use crate::runs::{Outcome, RunsError};

#[tokio::test]
async fn one_key_is_one_run_also_at_once_and_another_request_is_a_conflict() {
    let world = World::new().await;
    let engine = world.engine().await;
    let key = || Some("k".to_owned());
    let starts = (0..20).map(|_| engine.start(request(WAITS), key()));
    let runs: Vec<String> = futures_util::future::join_all(starts)
        .await
        .into_iter()
        .map(|run| run.unwrap().id)
        .collect();
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    assert_eq!(engine.list().await.unwrap().len(), 1);
    let mut other = request(WAITS);
    other.task = "something else".into();
    match engine.start(other, key()).await {
        Err(RunsError::Conflict { sent, known }) => assert_ne!(sent, known),
        unexpected => panic!("{unexpected:?}"),
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn a_wrong_request_is_refused_with_the_way_out_and_leaves_nothing() {
    let world = World::new().await;
    let engine = world.engine().await;
    let wrong = |change: fn(&mut RunRequest)| {
        let mut request = request(WAITS);
        change(&mut request);
        request
    };
    for (request, part) in [
        (wrong(|request| request.title.clear()), "title"),
        (wrong(|request| request.task.clear()), "task"),
        (wrong(|request| request.step_limit = Some(0)), "step limit"),
        (wrong(|request| request.policies.clear()), "policy"),
        (
            wrong(|request| request.policies[0].text = "version: 9".into()),
            "policy",
        ),
        (
            wrong(|request| request.model = ModelChoice::Scripted { turns: "[".into() }),
            "turns",
        ),
        (
            wrong(|request| {
                request.model = ModelChoice::Anthropic {
                    model: "m".into(),
                    base_url: None,
                }
            }),
            "ANTHROPIC_API_KEY",
        ),
        (
            wrong(|request| {
                request.model = ModelChoice::Openai {
                    model: "m".into(),
                    base_url: Some("ftp://x".into()),
                }
            }),
            "http",
        ),
    ] {
        let fault = engine.start(request, None).await.unwrap_err().to_string();
        assert!(fault.contains(part), "{fault}");
    }
    assert!(engine.list().await.unwrap().is_empty());
    assert!(matches!(engine.get("nobody").await, Err(RunsError::Unknown(_))));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_journal_of_other_code_is_held_with_the_first_difference_and_others_go_on() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (held, machine) = waiting(&world, &engine).await;
    let (other, other_machine) = waiting(&world, &engine).await;
    engine.shutdown().await;
    {
        let mut kept = world.journal.kept.lock().unwrap();
        let records = kept.records.get_mut(&held).unwrap();
        let record = records
            .iter_mut()
            .find(|record| !record.commands.is_empty() && record.sequence == 3)
            .unwrap();
        record.commands[0].hash.replace_range(0..1, "z");
    }
    let engine = world.engine().await;
    let RunState::Held { why } = engine.get(&held).await.unwrap().state else {
        panic!("not held")
    };
    assert!(why.contains("version mismatch: at record 3 command 0"), "{why}");
    assert!(!machine.inner().gone, "what the run has is kept");
    other_machine.release();
    assert_eq!(outcome(&to_end(&engine, &other).await), Outcome::Done);
    assert!(
        matches!(engine.say(&held, "bob", "hi").await, Err(RunsError::Invalid(text)) if text.contains("held"))
    );
    engine.stop(&held, "bob").await.unwrap();
    assert_eq!(outcome(&to_end(&engine, &held).await), Outcome::Stopped);
    assert!(world.driver.machine(&held).is_none());
    engine.shutdown().await;
    let engine = world.engine().await;
    assert!(matches!(
        engine.get(&held).await.unwrap().state,
        RunState::Ended { .. }
    ));
    engine.shutdown().await;
}

#[test]
fn every_change_of_code_is_noticed_at_the_first_command_that_differs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let records = runtime.block_on(async {
        let world = World::new().await;
        let engine = world.engine().await;
        let (run, machine) = waiting(&world, &engine).await;
        machine.release();
        to_end(&engine, &run).await;
        engine.shutdown().await;
        records(&world, &run)
    });
    for length in 1..=records.len() {
        replay::replay(&records[..length]).expect("a journal may end anywhere");
    }
    assert!(records.iter().any(is_tool_result));
    let altered = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = records.clone();
        change(&mut records);
        replay::replay(&records).unwrap_err().to_string()
    };
    let renamed = altered(&|records| records[0].commands[1].kind = "open-door".into());
    assert!(
        renamed.contains("record 1 command 1") && renamed.contains("open-door"),
        "{renamed}"
    );
    let swapped = altered(&|records| records[0].commands.swap(0, 1));
    assert!(swapped.contains("record 1 command 0"), "{swapped}");
    let added = altered(&|records| {
        records[1].commands.pop();
    });
    assert!(added.contains("nothing"), "{added}");
    let format = altered(&|records| records[2].format = 9);
    assert!(format.contains("format 9"), "{format}");
    assert!(
        altered(&|records| {
            let twice = records[3].clone();
            records.insert(4, twice);
        })
        .contains("version mismatch")
    );
}

#[tokio::test]
async fn a_second_supervisor_is_refused_with_the_firsts_process_id() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let door = FakeDoor::new();
    let parts = || Parts {
        state_dir: folder.path().join("state"),
        door: Arc::clone(&door) as Arc<dyn Door>,
        driver: FakeDriver::new(Arc::clone(&door)),
        models: ModelConfig::default(),
    };
    let first = Engine::open(parts()).await.unwrap();
    let fault = Engine::open(parts()).await.err().unwrap().to_string();
    assert!(
        fault.contains(&format!("process {}", std::process::id())) && fault.contains("state"),
        "{fault}"
    );
    let run = first.start(request(WAITS), None).await.unwrap().id;
    until_state(&first, &run, |state| matches!(state, RunState::Running { .. })).await;
    first.shutdown().await;
}
