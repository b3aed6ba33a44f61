//! What a good provider is asked, and what it answers.
use super::*;

#[tokio::test]
async fn a_whole_answer_is_streamed_and_put_together() {
    for dialect in BOTH {
        let provider = of(&whole(dialect));
        let (answer, shown) = ask(dialect, &provider).await;
        let answer = answer.unwrap();
        assert_eq!(shown, "Let me lüük", "{dialect:?}");
        assert_eq!(answer.text, shown);
        assert_eq!(answer.calls.len(), 2);
        assert_eq!(answer.calls[0].input, json!({"command": "ls"}));
        assert_eq!(
            (answer.calls[1].tool.as_str(), &answer.calls[1].input),
            ("done", &json!({}))
        );
        assert_eq!(
            answer.usage,
            Usage {
                input_tokens: 15,
                output_tokens: 20
            }
        );
    }
}

#[tokio::test]
async fn any_split_of_the_bytes_gives_the_same_answer() {
    for dialect in BOTH {
        let bytes = whole(dialect).concat();
        let pieces: Vec<String> = bytes.chars().map(String::from).collect();
        let (answer, _) = ask(dialect, &of(&pieces)).await;
        assert_eq!(answer.unwrap().calls.len(), 2, "{dialect:?}");
    }
}

#[tokio::test]
async fn the_question_is_well_formed_in_both_dialects_and_carries_the_key() {
    for dialect in BOTH {
        let provider = of(&whole(dialect));
        ask(dialect, &provider).await.0.unwrap();
        let asked = provider.asked.lock().unwrap();
        let (headers, body) = &asked[0];
        assert_eq!(body["stream"], true);
        assert_eq!(body["model"], "m-1");
        let messages = body["messages"].as_array().unwrap();
        let roles: Vec<&str> = messages
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        match dialect {
            Dialect::Anthropic => {
                assert_eq!(headers["x-api-key"], KEY);
                assert!(headers.contains_key("anthropic-version"));
                assert_eq!(roles, ["user", "assistant", "user"]);
                assert_eq!(messages[1]["content"][2]["type"], "tool_use");
                let results = messages[2]["content"].as_array().unwrap();
                assert_eq!(results[0]["tool_use_id"], "a");
                assert_eq!(results[1]["is_error"], true);
                assert_eq!(results[2]["text"], "news");
            }
            Dialect::Openai => {
                assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
                assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
                assert_eq!(messages[2]["tool_calls"][1]["id"], "b");
                assert_eq!(messages[3]["tool_call_id"], "a");
                assert_eq!(
                    messages[2]["tool_calls"][0]["function"]["arguments"],
                    "{\"command\":\"ls\"}"
                );
            }
        }
    }
}

#[test]
fn the_key_goes_to_the_configured_endpoint_only_and_is_never_shown() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = ModelConfig {
        openai: Provider {
            base_url: "https://api.openai.com/v1".into(),
            key: Some(SecretString::from(KEY)),
        },
        ..ModelConfig::default()
    };
    assert!(!format!("{config:?}").contains(KEY));
    let models = Models::new(config).unwrap();
    let caller = |base: Option<&str>| models.caller(&models.config.openai, base, "OPENAI_API_KEY");
    let signed = |base: Option<&str>| {
        let caller = caller(base).unwrap();
        let request = caller
            .signed(caller.client.get(&caller.base), "authorization", "Bearer ")
            .unwrap();
        request.build().unwrap().headers().contains_key("authorization")
    };
    assert!(signed(None));
    assert!(signed(Some("https://api.openai.com/v1/")));
    assert!(!signed(Some("https://evil.test/v1")));
    assert!(!format!("{:?}", caller(None).unwrap()).contains(KEY));
    let plain = Provider {
        base_url: "http://models.test".into(),
        key: Some(SecretString::from(KEY)),
    };
    let fault = models
        .caller(&plain, None, "OPENAI_API_KEY")
        .unwrap_err()
        .to_string();
    assert!(fault.contains("not encrypted"), "{fault}");
}
