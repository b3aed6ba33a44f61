//! What is kept of answers to log-ins, and what passes.
use super::*;
use crate::secret::testing;

const JWT: &str =
    "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjE4MDAwMDAwMDB9.Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8UvWxAb3dEf6hIj";

fn parts() -> [AnswerPart; 4] {
    [
        AnswerPart::Json("/token".into()),
        AnswerPart::Json("/deep/access_token".into()),
        AnswerPart::Header("x-session".into()),
        AnswerPart::Form("refresh_token".into()),
    ]
}

fn of(parts: &[AnswerPart], body: &str) -> Result<Vec<String>, CannotKeep> {
    let mut headers = HeaderMap::new();
    headers.insert("x-session", "of-the-header".parse().unwrap());
    let all = captured("token", parts, (StatusCode::OK, &headers), body.as_bytes())?;
    Ok(all
        .iter()
        .map(|one| String::from_utf8_lossy(one.value.bytes()).into_owned())
        .collect())
}

#[test]
fn values_are_found_where_the_credential_says() {
    let [token, deep, header, form] = parts();
    let body = r#"{"token": "of-the-body", "deep": {"access_token": "deep\u002fdown"}, "expires_in": 300}"#;
    assert_eq!(
        of(&[token.clone(), deep], body).unwrap(),
        ["of-the-body", "deep/down"]
    );
    assert_eq!(of(&[header], "").unwrap(), ["of-the-header"]);
    assert_eq!(
        of(&[form], "scope=a&refresh_token=of+the%2fform").unwrap(),
        ["of the/form"]
    );
    assert_eq!(
        of(
            std::slice::from_ref(&token),
            "{\"error\": \"x\", \"token\": null}"
        )
        .unwrap(),
        [""; 0]
    );
    for (body, why) in [
        ("<html>", "no JSON"),
        ("{\"token\": 7}", "no string"),
        ("{\"token\": \"short\"}", "5 bytes"),
    ] {
        let fault = of(std::slice::from_ref(&token), body).unwrap_err().to_string();
        assert!(
            fault.contains(why) && fault.contains("`token`") && !fault.contains("short"),
            "{fault}"
        );
    }
}

#[test]
fn a_body_in_another_form_than_the_credential_tells_of_is_no_way_around_it() {
    let [json, _, _, form] = parts();
    let mut headers = HeaderMap::new();
    for (part, said, body, why) in [
        (
            &form,
            "application/json",
            "{\"refresh_token\":\"of-the-body\"}",
            "is JSON",
        ),
        (
            &form,
            "application/xml",
            "<refresh_token>of-the-body</refresh_token>",
            "is no form",
        ),
        (
            &json,
            "application/x-www-form-urlencoded",
            "token=of-the-body",
            "is no JSON",
        ),
    ] {
        headers.insert(CONTENT_TYPE, said.parse().unwrap());
        let parts = std::slice::from_ref(part);
        let of = |status| captured("token", parts, (status, &headers), body.as_bytes());
        let fault = of(StatusCode::OK).unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
        assert!(of(StatusCode::BAD_REQUEST).unwrap().is_empty());
        let both = [json.clone(), form.clone()];
        let taken = captured("token", &both, (StatusCode::OK, &headers), body.as_bytes());
        assert_eq!(taken.is_ok(), said != "application/xml");
    }
}

fn holding(values: &[&str]) -> SessionSecrets {
    let base = Binding {
        placeholders: Vec::new(),
        places: vec![sallyport_policy::Place::Bearer],
        value: None,
        ..testing::bound("token", testing::SECRET)
    };
    let captured = values.iter().map(|value| Captured {
        credential: "token".into(),
        value: Value::new(value.as_bytes().to_vec()),
    });
    let secrets = SessionSecrets::new(vec![base]).unwrap();
    secrets.with_captured(captured.collect()).unwrap()
}

#[test]
fn a_web_token_keeps_what_it_says_and_loses_its_signature() {
    let secrets = holding(&[JWT]);
    let text = &secrets.bindings()[1].placeholders[0];
    let (claims, signature) = JWT.rsplit_once('.').unwrap();
    assert!(
        text.starts_with(&format!("{claims}.")) && !text.contains(signature),
        "{text}"
    );
    assert_eq!(text.len(), JWT.len());
    // Who has the placeholder needs the signature alone.
    let mut out = bytes::BytesMut::new();
    let mut redactor = secrets.redactor().unwrap();
    redactor.push(format!("{{\"signature\":\"{signature}\"}}").as_bytes(), &mut out);
    redactor.finish(&mut out);
    let minted = text.rsplit_once('.').unwrap().1;
    assert_eq!(out, format!("{{\"signature\":\"{minted}\"}}"));
    assert!(!is_token("a.b.c") && !is_token("www.example.test"));
}

#[test]
fn one_value_has_one_placeholder_and_the_oldest_goes_first() {
    let values: Vec<String> = (0..MOST + 3)
        .map(|number| format!("token-number-{number:04}"))
        .collect();
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let secrets = holding(&texts);
    let used = |binding: &&Binding| binding.value.is_some() && !binding.places.is_empty();
    assert_eq!(secrets.bindings.iter().filter(used).count(), MOST);
    // What is not put in any more is still no secret to tell.
    let is_known = |value: &str| !secrets.redactor().unwrap().passes(value.as_bytes());
    assert!(values.iter().all(|value| is_known(value)));
    assert_eq!(secrets.placeholders_of("token").len(), MOST);
    let twice = holding(&[texts[0], texts[0]]);
    assert_eq!(twice.captured_as("token").count(), 1);
}
