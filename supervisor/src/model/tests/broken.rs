//! Silence, half streams, errors: each a failure that says what happened, none a shorter answer.
use super::*;

#[tokio::test]
async fn silence_before_and_within_the_answer_is_noticed_with_its_own_limit() {
    for dialect in BOTH {
        let mut silent = Server::stream(&[]);
        silent.hangs = true;
        let (why, ..) = passing(ask(dialect, &silent).await.0);
        assert!(
            why.contains("before its answer began") && why.contains("0.6"),
            "{why}"
        );
        let mut stops = of(&whole(dialect)[..3]);
        stops.hangs = true;
        let (why, ..) = passing(ask(dialect, &stops).await.0);
        assert!(
            why.contains("in the middle of its answer") && why.contains("0.3"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_accepts_and_says_nothing_is_noticed() {
    for dialect in BOTH {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (deltas, _pieces) = mpsc::channel(10);
        let (why, ..) = passing(model(dialect, &base).infer(&request(), deltas).await);
        assert!(why.contains("said nothing for 0.6 s"), "{why}");
        drop(listener);
        let (deltas, _pieces) = mpsc::channel(10);
        let (why, ..) = passing(model(dialect, &base).infer(&request(), deltas).await);
        assert!(why.contains("refused"), "{why}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_never_a_shorter_answer() {
    for dialect in BOTH {
        let events = whole(dialect);
        for length in 0..events.len() {
            let (why, _, usage) = passing(ask(dialect, &of(&events[..length])).await.0);
            assert!(why.contains("not whole"), "{length}: {why}");
            if dialect == Dialect::Anthropic && length > 0 {
                assert_eq!(usage.input_tokens, 15, "what a dead attempt cost is counted");
            }
        }
    }
}

#[tokio::test]
async fn a_call_with_cut_input_is_a_failure_even_with_a_stop_reason() {
    for dialect in BOTH {
        let events: Vec<String> = whole(dialect)
            .into_iter()
            .filter(|event| !event.contains("and\\\": "))
            .collect();
        assert_eq!(events.len(), whole(dialect).len() - 1);
        let (why, ..) = passing(ask(dialect, &of(&events)).await.0);
        assert!(why.contains("call of `bash` is not whole"), "{why}");
    }
}

#[tokio::test]
async fn an_answer_cut_at_its_length_keeps_its_text_and_no_call() {
    for dialect in BOTH {
        let events: Vec<String> = whole(dialect)
            .into_iter()
            .filter(|event| !event.contains("and\\\": "))
            .map(|event| match dialect {
                Dialect::Anthropic => {
                    event.replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"")
                }
                Dialect::Openai => {
                    event.replace("\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"length\"")
                }
            })
            .collect();
        let answer = ask(dialect, &of(&events)).await.0.unwrap();
        assert!(
            answer.cut && answer.calls.is_empty() && answer.text == "Let me lüük",
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn passing_errors_are_told_from_final_ones_and_retry_after_is_heard() {
    let words = r#"{"error": {"type": "x", "message": "the words of the provider sk-very-secret"}}"#;
    for dialect in BOTH {
        for (status, headers, wait) in [
            (429, &[("retry-after", "7")][..], Some(Duration::from_secs(7))),
            (529, &[][..], None),
            (500, &[][..], None),
            (
                503,
                &[("retry-after", "999999")][..],
                Some(Duration::from_secs(600)),
            ),
        ] {
            let (why, asked, _) = passing(ask(dialect, &Server::error(status, headers, words)).await.0);
            assert!(
                why.contains(&status.to_string()) && why.contains("the words of the provider"),
                "{why}"
            );
            assert!(!why.contains(KEY), "{why}");
            assert_eq!(asked, wait);
        }
        let html = Server::error(
            500,
            &[("content-type", "text/html")],
            "<html>\u{1b}[31moops</html>",
        );
        let (why, ..) = passing(ask(dialect, &html).await.0);
        assert!(why.contains("oops") && !why.contains('\u{1b}'), "{why}");
        for (status, part) in [
            (400, "the words"),
            (401, "key"),
            (404, "the words"),
            (307, "redirects"),
        ] {
            let answer = ask(dialect, &Server::error(status, &[], words)).await.0;
            let Err(ModelError::Final(why)) = answer else {
                panic!("{answer:?}")
            };
            assert!(why.contains(part) && !why.contains(KEY), "{why}");
        }
        let page = Server::error(200, &[("content-type", "text/html")], "<html>log in</html>");
        let (why, ..) = passing(ask(dialect, &page).await.0);
        assert!(why.contains("text/html"), "{why}");
    }
}

#[tokio::test]
async fn an_error_event_within_a_stream_is_a_failure() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let wrong = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}});
    for dialect in BOTH {
        for at in [0, 3] {
            let mut events = whole(dialect);
            events.insert(at, event(&overloaded));
            let (why, ..) = passing(ask(dialect, &of(&events)).await.0);
            assert!(why.contains("Overloaded") || why.contains("overloaded"), "{why}");
        }
    }
    let answer = ask(Dialect::Anthropic, &of(&[event(&wrong)])).await.0;
    assert!(matches!(answer, Err(ModelError::Final(_))), "{answer:?}");
    let answer = ask(
        Dialect::Openai,
        &of(&[event(&json!({"error": {"message": "server had an error"}}))]),
    )
    .await
    .0;
    assert!(passing(answer).0.contains("server had an error"));
}

#[tokio::test]
async fn nonsense_is_a_failure_and_no_panic() {
    for dialect in BOTH {
        for chunk in [
            "data: {\n\n",
            "data: []\n\n",
            "event: x\ndata: 7\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":9,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
        ] {
            passing(ask(dialect, &Server::stream(&[chunk])).await.0);
        }
    }
    let pieces =
        json!({"choices": [{"delta": {"tool_calls": [{"index": 99, "function": {"arguments": "x"}}]}}]});
    passing(ask(Dialect::Openai, &of(&[event(&pieces)])).await.0);
}
