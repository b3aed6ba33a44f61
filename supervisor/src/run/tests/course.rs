//! The course of a run and its end.
use super::*;
use crate::run::flow::{INFER_ROUNDS, ROUND_MS};

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
