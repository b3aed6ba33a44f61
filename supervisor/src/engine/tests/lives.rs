//! What may happen in a run's life besides a kill.
use super::*;
use crate::machine::AgentRequest;
use crate::runs::{Outcome, RunsError};

const WAITS: &str = "
- tools: [{bash: {command: wait}}, {bash: {command: echo late}}]
- tools: [{done: {summary: done, success: true}}]
";

async fn waiting(world: &World, engine: &Engine) -> (String, Arc<crate::testing::FakeMachine>) {
    let run = engine.start(request(WAITS), None).await.unwrap().id;
    until_state(
        engine,
        &run,
        |state| matches!(state, RunState::Running { doing } if doing.contains("bash")),
    )
    .await;
    let machine = world.driver.machine(&run).unwrap();
    machine.until(|inner| !inner.effects.is_empty()).await;
    (run, machine)
}

fn outcome(entries: &[Entry]) -> Outcome {
    match &entries.last().unwrap().what {
        What::Ended { outcome, .. } => *outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_machine_gets_trust_placeholders_files_and_is_attached() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    {
        let inner = machine.inner();
        assert_eq!(inner.env["TOKEN"], format!("ph-{run}"));
        assert_eq!(inner.files["/a"], b"text");
    }
    assert_eq!(world.door.inner().hand_overs, [run.clone()]);
    machine.release();
    assert_eq!(outcome(&to_end(&engine, &run).await), Outcome::Done);
    engine.shutdown().await;
}

#[tokio::test]
async fn stop_cancels_the_command_and_removes_session_and_machine() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    engine.stop(&run, "bob").await.unwrap();
    let entries = to_end(&engine, &run).await;
    assert_eq!(outcome(&entries), Outcome::Stopped);
    let results = entries
        .iter()
        .filter(|entry| matches!(entry.what, What::Result { ok: false, .. }))
        .count();
    assert_eq!(results, 2, "each call has its result");
    assert_eq!(machine.inner().cancelled, [format!("{run}-1-0")]);
    assert!(!machine.inner().effects.contains_key(&format!("{run}-1-1")));
    assert!(world.driver.ids().is_empty());
    assert_eq!(world.door.inner().ended, [run.clone()]);
    assert!(matches!(engine.stop(&run, "bob").await, Err(RunsError::Ended(_))));
    assert!(matches!(
        engine.say(&run, "bob", "hi").await,
        Err(RunsError::Ended(_))
    ));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_graceful_stop_leaves_the_command_running_and_the_next_engine_goes_on() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    engine.shutdown().await;
    assert!(machine.inner().cancelled.is_empty());
    assert_eq!(world.driver.ids(), [run.clone()]);
    let engine = world.engine().await;
    machine.release();
    assert_eq!(outcome(&to_end(&engine, &run).await), Outcome::Done);
    assert!(machine.inner().effects.values().all(|count| *count == 1));
    engine.shutdown().await;
}

#[tokio::test]
async fn a_machine_that_dies_is_replaced_and_the_agent_is_told() {
    let script = "
- tools: [{bash: {command: die}}, {bash: {command: echo late}}]
- expect: [interrupted, not run, You have a new one]
  tools: [{bash: {command: echo again}}]
- tools: [{done: {summary: done, success: true}}]
";
    let world = World::new().await;
    let engine = world.engine().await;
    let run = engine.start(request(script), None).await.unwrap().id;
    let entries = to_end(&engine, &run).await;
    assert_eq!(outcome(&entries), Outcome::Done, "{entries:#?}");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_machine_that_died_while_the_supervisor_was_away_is_replaced() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    engine.shutdown().await;
    machine.die();
    let engine = world.engine().await;
    let entries = to_end(&engine, &run).await;
    assert_eq!(outcome(&entries), Outcome::Done);
    let interrupted = |what: &What| matches!(what, What::Result { text, ok: false, .. } if text.contains("may have had effects"));
    assert!(view(&entries).iter().any(interrupted), "{entries:#?}");
    engine.shutdown().await;
}

#[tokio::test]
async fn the_command_line_in_the_machine_gets_its_answer() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    let wanted = sallyport_policy::Wanted {
        host: "h".into(),
        port: 443,
        method: None,
        path: None,
    };
    machine.ask(AgentRequest {
        id: "q".into(),
        wanted,
        why: "docs".into(),
    });
    machine.until(|inner| !inner.answers.is_empty()).await;
    assert!(machine.inner().answers[0].1);
    assert_eq!(world.door.inner().asked[0].why, "docs");
    machine.release();
    let entries = to_end(&engine, &run).await;
    assert!(
        view(&entries)
            .iter()
            .any(|what| matches!(what, What::Access { granted: true, .. }))
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn a_refusal_reaches_a_running_tool_and_the_next_step() {
    let world = World::new().await;
    let engine = world.engine().await;
    let script = "
- tools: [{bash: {command: wait}}]
- expect: [other.test, decision-1, request_access]
  tools: [{done: {summary: done, success: true}}]
";
    let run = engine.start(request(script), None).await.unwrap().id;
    until_state(
        &engine,
        &run,
        |state| matches!(state, RunState::Running { doing } if doing.contains("bash")),
    )
    .await;
    let machine = world.driver.machine(&run).unwrap();
    world.door.refuse(&run, "other.test");
    machine.until(|inner| !inner.notices.is_empty()).await;
    machine.release();
    assert_eq!(outcome(&to_end(&engine, &run).await), Outcome::Done);
    assert_eq!(engine.get(&run).await.unwrap().refusals, 1);
    engine.shutdown().await;
}

#[tokio::test]
async fn a_restarted_gateway_gets_session_and_listeners_again() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (run, machine) = waiting(&world, &engine).await;
    world.door.inner().sessions.clear();
    world.door.restart();
    let again = async {
        while world.door.inner().hand_overs.len() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again)
        .await
        .unwrap();
    assert!(world.door.inner().sessions.contains_key(&run));
    machine.release();
    to_end(&engine, &run).await;
    engine.shutdown().await;
}

#[tokio::test]
async fn a_gateway_that_is_away_ends_the_run_with_a_clear_sentence() {
    let world = World::new().await;
    world.door.inner().reachable = false;
    let engine = world.engine().await;
    let run = engine.start(request(WAITS), None).await.unwrap().id;
    let entries = to_end(&engine, &run).await;
    let Some(What::Ended {
        outcome: Outcome::Failed,
        text,
    }) = entries.last().map(|entry| &entry.what)
    else {
        panic!()
    };
    assert!(text.contains("gateway cannot be reached"), "{text}");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_script_that_does_not_fit_ends_the_run_with_what_was_missed() {
    let world = World::new().await;
    let engine = world.engine().await;
    let script = "[{tools: [{bash: {command: fail}}]}, {expect: [never], say: x}]";
    let run = engine.start(request(script), None).await.unwrap().id;
    let entries = to_end(&engine, &run).await;
    let Some(What::Ended {
        outcome: Outcome::Failed,
        text,
    }) = entries.last().map(|entry| &entry.what)
    else {
        panic!()
    };
    assert!(
        text.contains("expects `never`") && text.contains("exit code 1"),
        "{text}"
    );
    engine.shutdown().await;
}

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
