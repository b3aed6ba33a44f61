//! A crash at every append: the run ends the same, each effect happens once, each result is said once.
use super::*;

const SCRIPT: &str = "
- say: I look around in this place.
  tools:
    - bash: {command: echo one}
    - bash: {command: refuse other.test}
    - write_file: {path: /b, content: two}
- expect: [exit code 22]
  tools: [{request_access: {host: other.test, why: docs}}]
- expect: [granted by policy]
  tools: [{read_file: {path: /b}}]
- expect: [two]
  tools: [{done: {summary: all is well, success: true}}]
";

/// One run, killed once; gives the view, what the machine did, and whether the kill came.
async fn one(cut: Option<(usize, bool)>) -> (Vec<What>, Vec<u32>, bool) {
    let world = World::new().await;
    let process = CancellationToken::new();
    if let Some((left, keeps)) = cut {
        *world.journal.cut.lock().unwrap() = Some(Cut {
            left,
            keeps,
            process: process.clone(),
        });
    }
    let mut engine = world.engine_until(process.clone()).await;
    let key = || Some("key".to_owned());
    let watcher = EffectWatcher::new(&world);
    let mut run = engine.start(request(SCRIPT), key()).await.ok().map(|run| run.id);
    if let Some(run) = &run {
        tokio::select! {
            () = process.cancelled() => {}
            _ = to_end(&engine, run) => {}
        }
    }
    let killed = process.is_cancelled();
    if killed {
        engine.shutdown().await;
        *world.journal.cut.lock().unwrap() = None;
        engine = world.engine().await;
        let again = engine.start(request(SCRIPT), key()).await.unwrap().id;
        assert!(run.is_none_or(|run| run == again), "one key, one run");
        run = Some(again);
    }
    let run = run.unwrap();
    let entries = to_end(&engine, &run).await;
    assert!(entries.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    let state = engine.get(&run).await.unwrap();
    assert!(matches!(state.state, RunState::Ended { .. }), "{state:?}");
    engine.shutdown().await;
    assert!(world.driver.ids().is_empty(), "no machine is left");
    assert!(world.door.inner().sessions.is_empty(), "no session is left");
    replay::replay(&records(&world, &run)).unwrap();
    (view(&entries), watcher.effects(&run).await, killed)
}

/// Keeps the machine's counts, which go with the machine.
struct EffectWatcher(tokio::task::JoinHandle<Arc<crate::testing::FakeMachine>>);

impl EffectWatcher {
    fn new(world: &World) -> Self {
        let driver = Arc::clone(&world.driver);
        Self(tokio::spawn(async move {
            loop {
                if let Some(machine) = driver.ids().first().and_then(|id| driver.machine(id)) {
                    return machine;
                }
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }))
    }

    /// Of each command in the order of its id, how often it had its effect.
    async fn effects(self, run: &str) -> Vec<u32> {
        let machine = self.0.await.unwrap();
        let inner = machine.inner();
        let expected = [format!("{run}-1-0"), format!("{run}-1-1")];
        assert_eq!(
            inner.effects.keys().cloned().collect::<Vec<_>>(),
            expected,
            "the ids are stable"
        );
        inner.effects.values().copied().collect()
    }
}

fn without_refusals(view: &[What]) -> Vec<What> {
    view.iter()
        .filter(|what| !matches!(what, What::Refused { .. }))
        .cloned()
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_every_append_changes_nothing_that_people_or_the_machine_see() {
    let (expected, effects, _) = one(None).await;
    assert_eq!(effects, [1, 1]);
    assert!(
        matches!(expected.last(), Some(What::Ended { text, .. }) if text == "all is well"),
        "{expected:?}"
    );
    let mut kills = 0;
    for keeps in [false, true] {
        for left in 0.. {
            let (view, effects, killed) = one(Some((left, keeps))).await;
            assert_eq!(effects, [1, 1], "killed at append {left}, kept: {keeps}");
            assert_eq!(
                without_refusals(&view),
                without_refusals(&expected),
                "killed at append {left}, kept: {keeps}"
            );
            let refusals = view
                .iter()
                .filter(|what| matches!(what, What::Refused { .. }))
                .count();
            assert_eq!(refusals, 1, "killed at append {left}, kept: {keeps}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 20, "{kills}");
}
