//! The loop as conversations: what happens, what is to be done.
use super::*;
use crate::machine::MachineRecord;
use crate::model::types::Usage;
use crate::runs::{Environment, ModelChoice, RunRequest};
use sallyport_shim::wire::BlockedNotice;
use serde_json::json;
use std::collections::BTreeMap;

fn request() -> RunRequest {
    RunRequest {
        title: "t".into(),
        task: "mend it".into(),
        who: sallyport_policy::Who {
            user: "ada".into(),
            ..Default::default()
        },
        policies: Vec::new(),
        model: ModelChoice::Scripted { turns: "[]".into() },
        environment: Environment::default(),
        step_limit: Some(5),
    }
}

struct Play {
    state: State,
    commands: Vec<Command>,
}

impl Play {
    fn new() -> Self {
        let (state, commands) = begin("run-1", &request());
        Self { state, commands }
    }

    /// Up to the first question to the model.
    fn ready() -> Self {
        let mut play = Self::new();
        let placeholders = BTreeMap::from([("TOKEN".to_owned(), "ph".to_owned())]);
        play.on(Event::SessionReady {
            ca_pem: "ca".into(),
            placeholders,
            warnings: Vec::new(),
        });
        play.machine(1);
        play
    }

    fn machine(&mut self, generation: u32) {
        let record = MachineRecord {
            id: "m".into(),
            driver: "fake".into(),
            facts: json!(generation),
        };
        self.on(Event::MachineReady { generation, record });
        self.on(Event::MachineSetUp {
            generation,
            warnings: Vec::new(),
        });
    }

    fn on(&mut self, event: Event) -> &mut Self {
        assert!(
            expects(&self.state, &event),
            "{event:?} is not expected in {:?}",
            self.state.phase
        );
        self.commands = decide(&mut self.state, &event);
        if let Some(request) = self.asked() {
            assert_eq!(prompt::fault(&request.messages), None);
        }
        self
    }

    fn answer(&mut self, calls: &[(&str, serde_json::Value)]) -> &mut Self {
        let calls = calls.iter().map(|(tool, input)| ToolCall {
            id: "same".into(),
            tool: (*tool).into(),
            input: input.clone(),
        });
        let answer = Answer {
            text: "hm".into(),
            calls: calls.collect(),
            ..Answer::default()
        };
        let step = self.state.step;
        self.on(Event::Inferred {
            step,
            attempt: 1,
            answer,
            wasted: Usage::default(),
        })
    }

    fn result(&mut self, index: u32, text: &str) -> &mut Self {
        let step = self.state.step;
        self.on(Event::ToolFinished {
            step,
            index,
            text: text.into(),
            ok: true,
        })
    }

    fn asked(&self) -> Option<&crate::model::types::ModelRequest> {
        self.commands.iter().find_map(|command| match command {
            Command::Infer { request, .. } => Some(request),
            _ => None,
        })
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.commands
            .iter()
            .map(Command::kind)
            .filter(|kind| *kind != "say")
            .collect()
    }

    fn latest(&self) -> String {
        serde_json::to_string(self.asked().expect("the model is asked").messages.last().unwrap()).unwrap()
    }
}

fn bash(command: &str) -> (&'static str, serde_json::Value) {
    ("bash", json!({"command": command}))
}

fn refused(audit: u64) -> Event {
    let notice = BlockedNotice {
        id: format!("d-{audit}"),
        unix_ms: 1,
        what: "GET https://other.test/".into(),
        rule: "default".into(),
        reason: "no rule".into(),
        remedy: "call `request_access`".into(),
    };
    Event::Refused { audit, notice }
}

#[test]
fn a_run_opens_its_session_makes_a_machine_and_asks_the_model() {
    let mut play = Play::new();
    assert_eq!(play.kinds(), ["open-session"]);
    play.on(Event::SessionReady {
        ca_pem: "ca".into(),
        placeholders: BTreeMap::new(),
        warnings: Vec::new(),
    });
    assert_eq!(play.kinds(), ["create-machine"]);
    play.machine(1);
    assert_eq!(play.kinds(), ["infer"]);
    assert!(play.latest().contains("mend it"));
}

#[test]
fn the_machine_gets_placeholders_and_the_environments_variables() {
    let mut play = Play::new();
    play.state.request.environment.env.insert("A".into(), "b".into());
    let placeholders = BTreeMap::from([("TOKEN".to_owned(), "ph".to_owned())]);
    play.on(Event::SessionReady {
        ca_pem: "ca".into(),
        placeholders,
        warnings: Vec::new(),
    });
    let record = MachineRecord {
        id: "m".into(),
        driver: "fake".into(),
        facts: json!(1),
    };
    play.on(Event::MachineReady {
        generation: 1,
        record,
    });
    let Some(Command::SetupMachine { env, .. }) = play.commands.first() else {
        panic!("{:?}", play.commands)
    };
    assert_eq!(env["TOKEN"], "ph");
    assert_eq!(env["A"], "b");
    assert_eq!(env["HOME"], "/home/agent");
}

#[test]
fn parallel_calls_run_one_after_another_and_each_has_one_result() {
    let mut play = Play::ready();
    play.answer(&[bash("a"), bash("b"), bash("c")]);
    assert_eq!(play.kinds(), ["run-tool"]);
    play.result(0, "A");
    assert_eq!(play.kinds(), ["run-tool"]);
    play.result(1, "B").result(2, "C");
    assert_eq!(play.kinds(), ["infer"]);
    let latest = play.latest();
    assert!(
        latest.find("\"A\"") < latest.find("\"B\"") && latest.find("\"B\"") < latest.find("\"C\""),
        "{latest}"
    );
}

#[test]
fn a_result_that_comes_twice_or_for_another_call_is_dropped() {
    let mut play = Play::ready();
    play.answer(&[bash("a"), bash("b")]).result(0, "A");
    let before = play.state.clone();
    for index in [0, 2] {
        let twice = Event::ToolFinished {
            step: 1,
            index,
            text: "again".into(),
            ok: true,
        };
        assert!(!expects(&play.state, &twice));
        assert!(decide(&mut play.state, &twice).is_empty());
    }
    assert_eq!(play.state, before);
}

#[test]
fn a_machine_lost_in_a_call_gives_honest_results_and_a_new_machine() {
    let mut play = Play::ready();
    play.answer(&[bash("a"), bash("b"), bash("c")]).result(0, "A");
    play.on(Event::MachineLost {
        generation: 1,
        why: "killed".into(),
    });
    assert_eq!(play.kinds(), ["cancel", "create-machine"]);
    play.machine(2);
    let latest = play.latest();
    for part in [
        "\"A\"",
        "interrupted",
        "may have had effects",
        "not run",
        "You have a new one",
    ] {
        assert!(latest.contains(part), "{part} is missing in {latest}");
    }
}

#[test]
fn a_machine_lost_while_the_model_thinks_runs_none_of_its_calls() {
    let mut play = Play::ready();
    play.on(Event::MachineLost {
        generation: 1,
        why: "killed".into(),
    });
    play.answer(&[bash("a")]);
    assert_eq!(play.kinds(), ["create-machine"]);
    play.machine(2);
    assert!(play.latest().contains("not run"));
}

#[test]
fn machines_that_keep_dying_end_the_run() {
    let mut play = Play::ready();
    for generation in 1..=MACHINES {
        play.answer(&[bash("a")]);
        play.on(Event::MachineLost {
            generation,
            why: "killed".into(),
        });
        if generation < MACHINES {
            play.machine(generation + 1);
        }
    }
    assert_eq!(play.kinds(), ["cancel", "cancel", "close-all"]);
    assert!(matches!(
        play.state.phase,
        Phase::Closing {
            outcome: Outcome::Failed,
            ..
        }
    ));
}

#[test]
fn a_refusal_reaches_the_next_question_once() {
    let mut play = Play::ready();
    play.answer(&[bash("curl")]);
    play.on(refused(7));
    assert_eq!(play.kinds(), ["notify"]);
    assert!(!expects(&play.state, &refused(7)));
    play.result(0, "403");
    assert!(play.latest().contains("d-7") && play.latest().contains("request_access"));
    play.answer(&[bash("x")]).result(0, "ok");
    assert!(!play.latest().contains("d-7"));
}

#[test]
fn access_is_asked_for_and_the_answer_is_the_calls_result() {
    let mut play = Play::ready();
    play.answer(&[("request_access", json!({"host": "other.test", "why": "docs"}))]);
    let Some(Command::RequestAccess {
        asker, wanted, why, ..
    }) = play.commands.last().cloned()
    else {
        panic!("{:?}", play.commands)
    };
    assert_eq!((wanted.host.as_str(), wanted.port), ("other.test", 443));
    play.on(Event::AccessAnswered {
        asker,
        wanted,
        why,
        granted: true,
        text: "granted until noon".into(),
    });
    assert!(play.latest().contains("granted until noon"));
}

#[test]
fn the_command_line_may_ask_while_a_tool_runs() {
    let mut play = Play::ready();
    play.answer(&[bash("sallyport-shim request-access h")]);
    let wanted = sallyport_policy::Wanted {
        host: "h".into(),
        port: 443,
        method: None,
        path: None,
    };
    play.on(Event::AccessAsked {
        id: "q1".into(),
        wanted: wanted.clone(),
        why: "w".into(),
    });
    assert_eq!(play.kinds(), ["request-access"]);
    let asker = Asker::CommandLine { id: "q1".into() };
    play.on(Event::AccessAnswered {
        asker,
        wanted,
        why: "w".into(),
        granted: false,
        text: "no".into(),
    });
    assert!(play.kinds().is_empty());
    play.result(0, "no");
    assert_eq!(play.kinds(), ["infer"]);
}

#[test]
fn wrong_input_and_unknown_tools_are_told_to_the_model() {
    let mut play = Play::ready();
    play.answer(&[
        ("bash", json!({"cmd": "x"})),
        ("fly", json!({})),
        ("bash", json!("x")),
    ]);
    assert_eq!(play.kinds(), ["infer"]);
    assert!(
        play.latest().contains("cmd") && play.latest().contains("no tool `fly`"),
        "{}",
        play.latest()
    );
}

#[test]
fn done_ends_the_run_after_the_calls_beside_it() {
    let mut play = Play::ready();
    play.answer(&[
        ("done", json!({"summary": "mended", "success": true})),
        bash("late"),
    ]);
    assert_eq!(play.kinds(), ["run-tool"]);
    play.result(1, "x");
    assert_eq!(play.kinds(), ["cancel", "close-all"]);
    play.on(Event::Closed { notes: Vec::new() });
    assert_eq!(play.kinds(), ["end"]);
    assert!(matches!(
        play.state.shown(),
        crate::runs::RunState::Ended {
            outcome: Outcome::Done,
            ..
        }
    ));
    assert!(!expects(&play.state, &refused(9)));
}

#[test]
fn a_persons_message_is_not_lost_when_the_agent_is_just_done() {
    let mut play = Play::ready();
    play.on(Event::PersonSaid {
        user: "bob".into(),
        text: "also the docs".into(),
    });
    play.answer(&[("done", json!({"summary": "mended", "success": true}))]);
    assert!(play.latest().contains("also the docs"));
}

#[test]
fn stopping_gives_every_call_a_result_and_closes() {
    let mut play = Play::ready();
    play.answer(&[bash("a"), bash("b")]);
    play.on(Event::StopAsked { user: "bob".into() });
    let results = play.commands.iter().filter(|command| {
        matches!(
            command,
            Command::Say {
                what: What::Result { .. },
                ..
            }
        )
    });
    assert_eq!(results.count(), 2);
    assert_eq!(play.kinds(), ["cancel", "close-all"]);
    assert!(!expects(&play.state, &Event::StopAsked { user: "bob".into() }));
}

#[test]
fn a_model_that_is_away_is_asked_again_and_at_last_given_up() {
    let mut play = Play::ready();
    for round in 1..INFER_ROUNDS {
        let why = "529".to_owned();
        play.on(Event::InferFailed {
            step: 1,
            attempt: round,
            why,
            passing: true,
            wasted: Usage::default(),
        });
        let Some(Command::Timer { id, ms }) = play.commands.last().cloned() else {
            panic!("{:?}", play.commands)
        };
        assert_eq!(ms, ROUND_MS << (round - 1));
        play.on(Event::TimerFired { id });
        assert_eq!(play.kinds(), ["infer"]);
    }
    let why = "529".to_owned();
    play.on(Event::InferFailed {
        step: 1,
        attempt: 9,
        why,
        passing: true,
        wasted: Usage::default(),
    });
    assert_eq!(play.kinds(), ["cancel", "close-all"]);
}

#[test]
fn entries_about_a_failed_attempt_do_not_belong_to_it() {
    let mut play = Play::ready();
    let why = "529".to_owned();
    play.on(Event::InferFailed {
        step: 1,
        attempt: 1,
        why,
        passing: true,
        wasted: Usage::default(),
    });
    let Some(Command::Say { step, .. }) = play.commands.first() else {
        panic!("{:?}", play.commands)
    };
    assert_eq!(*step, 0, "a rewind of step 1 must not take the note away");
}

#[test]
fn a_model_that_calls_nothing_is_asked_to_and_then_given_up() {
    let mut play = Play::ready();
    play.answer(&[]);
    assert!(play.latest().contains("called no tool"));
    play.answer(&[]).answer(&[]);
    assert_eq!(play.kinds(), ["cancel", "close-all"]);
}

#[test]
fn an_empty_answer_leaves_a_well_formed_history() {
    let mut play = Play::ready();
    let answer = Answer::default();
    play.on(Event::Inferred {
        step: 1,
        attempt: 1,
        answer,
        wasted: Usage::default(),
    });
    assert_eq!(play.kinds(), ["infer"]);
}

#[test]
fn the_step_limit_ends_the_run() {
    let mut play = Play::ready();
    for _ in 0..4 {
        play.answer(&[bash("a")]).result(0, "x");
    }
    play.answer(&[bash("a")]).result(0, "x");
    assert_eq!(play.kinds(), ["cancel", "close-all"]);
}

#[test]
fn old_long_results_are_left_out_of_the_question_and_new_ones_kept() {
    let mut play = Play::ready();
    play.answer(&[bash("a")]).result(0, &"old ".repeat(80_000));
    play.answer(&[bash("b")]).result(0, &"new ".repeat(80_000));
    let text = serde_json::to_string(play.asked().unwrap()).unwrap();
    assert!(text.contains("new new") && !text.contains("old old") && text.contains("left out"));
    assert!(text.len() < 450_000, "{}", text.len());
}

#[test]
fn the_same_events_give_the_same_commands_byte_for_byte() {
    let events = {
        let mut play = Play::ready();
        play.answer(&[bash("a")]);
        vec![
            refused(1),
            Event::ToolFinished {
                step: 1,
                index: 0,
                text: "x".into(),
                ok: true,
            },
        ]
    };
    let run = || {
        let mut play = Play::ready();
        play.answer(&[bash("a")]);
        events
            .iter()
            .flat_map(|event| decide(&mut play.state, event))
            .map(|command| command.mark().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
    assert!(!run().is_empty());
}
