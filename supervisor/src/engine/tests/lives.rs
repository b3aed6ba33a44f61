//! What may happen in a run's life besides a kill.
use super::*;
use crate::machine::AgentRequest;
use crate::runs::{Outcome, RunsError};

pub(super) const WAITS: &str = "
- tools: [{bash: {command: wait}}, {bash: {command: echo late}}]
- tools: [{done: {summary: done, success: true}}]
";

pub(super) async fn waiting(world: &World, engine: &Engine) -> (String, Arc<crate::testing::FakeMachine>) {
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

pub(super) fn outcome(entries: &[Entry]) -> Outcome {
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
    assert_eq!(world.door.inner().hand_overs.first(), Some(&run));
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
    assert_eq!(world.door.inner().ended, std::slice::from_ref(&run));
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
    assert_eq!(world.driver.ids(), std::slice::from_ref(&run));
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
        credential: None,
        host: "h".into(),
        port: 443,
        method: None,
        path: None,
    };
    let told = machine.inner().credentials.clone();
    assert_eq!(
        told[0].placeholder,
        format!("ph-{run}"),
        "told when it was set up"
    );
    machine.inner().credentials.clear();
    machine.ask(AgentRequest::Credentials);
    machine.until(|inner| inner.credentials == told).await;
    machine.ask(AgentRequest::Access {
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
