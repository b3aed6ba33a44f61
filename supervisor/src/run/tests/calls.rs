//! Calls, machines and refusals.
use super::*;
use crate::run::flow::MACHINES;

#[test]
fn a_run_opens_its_session_makes_a_machine_and_asks_the_model() {
    let mut play = Play::new();
    assert_eq!(play.kinds(), ["open-session"]);
    play.on(Event::SessionReady {
        ca_pem: "ca".into(),
        ssh_host_key: String::new(),
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
    const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nph\n-----END OPENSSH PRIVATE KEY-----";
    let mut play = Play::new();
    play.state.request.environment.env.insert("A".into(), "b".into());
    let placeholders = BTreeMap::from([
        ("TOKEN".to_owned(), "ph".to_owned()),
        ("DEPLOY_KEY".to_owned(), KEY.to_owned()),
    ]);
    play.on(Event::SessionReady {
        ca_pem: "ca".into(),
        ssh_host_key: "* ssh-ed25519 KEY".into(),
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
    let Some(Command::SetupMachine { env, files, .. }) = play.commands.first() else {
        panic!("{:?}", play.commands)
    };
    assert_eq!(env["TOKEN"], "ph");
    assert_eq!(env["A"], "b");
    assert_eq!(env["HOME"], "/home/agent");
    assert_eq!(files["/etc/ssh/ssh_known_hosts"], "* ssh-ed25519 KEY\n");
    assert_eq!(files["/etc/ssh/sallyport/DEPLOY_KEY"], format!("{KEY}\n"));
    assert_eq!(
        files["/etc/ssh/ssh_config.d/sallyport.conf"],
        "IdentityFile /etc/ssh/sallyport/DEPLOY_KEY\n"
    );
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
        credential: None,
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
