//! The places of a placeholder in an outgoing head, one by one.
use super::*;
use crate::secret::places::VALUE;
use crate::secret::{Value, placeholder};
use base64::engine::general_purpose::STANDARD;
use http::Request;
use percent_encoding::percent_encode;
use sallyport_policy::{
    CanonicalPath, Decision, Destination, Host, HttpRequest, Moment, Overlay, Policy, PolicyText, Who,
};
use std::sync::Arc;

const SECRET: &str = "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";
const POLICY: &str = r#"
version: 1
name: test
credentials:
  forge: {from: {store: forge}, hosts: [allowed.test], in: [bearer, basic]}
  maps: {from: {store: maps}, hosts: [allowed.test], in: ["query:key", "header:x-api-key"]}
rules:
  - id: all
    to: {host: [allowed.test, other.test]}
    use: [forge, maps]
    effect: allow
  - id: without
    to: {host: without.test}
    effect: allow
"#;

struct Stand {
    secrets: SessionSecrets,
    policy: Policy,
    forge: String,
    maps: String,
}

fn stand_for(secret: &str) -> Stand {
    let text = PolicyText {
        name: "test.yaml".into(),
        text: POLICY.into(),
    };
    let policy = Policy::compile(&[text]).unwrap();
    let bindings: Vec<Binding> = policy
        .credentials()
        .iter()
        .map(|credential| {
            let text = if credential.name == "forge" {
                secret
            } else {
                "AIzaSy+Ab3dEf6hIj9lMn0pQr2tUv4x"
            };
            let value = Value::new(text.as_bytes().to_vec());
            Binding {
                name: credential.name.clone(),
                places: credential.places.clone(),
                placeholders: vec![placeholder::mint(&value).unwrap().unwrap().text],
                value: Some(Arc::new(value)),
                ..Binding::default()
            }
        })
        .collect();
    let placeholder = |name: &str| {
        bindings
            .iter()
            .find(|binding| binding.name == name)
            .unwrap()
            .placeholders[0]
            .clone()
    };
    let (forge, maps) = (placeholder("forge"), placeholder("maps"));
    Stand {
        secrets: SessionSecrets::new(bindings).unwrap(),
        policy,
        forge,
        maps,
    }
}

fn stand() -> Stand {
    stand_for(SECRET)
}

impl Stand {
    fn send(
        &self,
        host: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<(http::request::Parts, Outbound), Leak> {
        self.send_by(true, host, target, headers)
    }

    fn send_by(
        &self,
        tls: bool,
        host: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<(http::request::Parts, Outbound), Leak> {
        let question = sallyport_policy::Request {
            destination: Destination {
                host: Host::parse(host).unwrap(),
                port: 443,
            },
            moment: Moment::Http(HttpRequest {
                method: "GET".into(),
                path: CanonicalPath::parse("/").unwrap(),
                query: None,
                tls,
                headers: Vec::new(),
                pushed: None,
            }),
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let Decision::Allow(permit) =
            self.policy
                .decide(&question, &Who::default(), &Overlay::default(), now)
        else {
            panic!("{host} is allowed")
        };
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let outbound = self.secrets.outbound(&permit, tls, &mut head)?;
        Ok((head, outbound))
    }

    fn header(&self, name: &str, value: &str) -> Result<(String, Outbound), Leak> {
        let (head, outbound) = self.send("allowed.test", "/", &[(name, value)])?;
        Ok((head.headers[name].to_str().unwrap().to_owned(), outbound))
    }
}

#[test]
fn a_bearer_becomes_the_value_and_is_never_shown() {
    let stand = stand();
    for scheme in ["Bearer ", "bearer ", "token ", "Bearer  "] {
        let (value, outbound) = stand
            .header("authorization", &format!("{scheme}{}", stand.forge))
            .unwrap();
        assert_eq!(value, format!("{scheme}{SECRET}"));
        assert_eq!(outbound.used, ["forge"]);
    }
    let bearer = format!("Bearer {}", stand.forge);
    let (head, outbound) = stand
        .send("allowed.test", "/", &[("authorization", &bearer)])
        .unwrap();
    assert!(!format!("{head:?} {outbound:?}").contains("Ab3dEf6h"));
}

#[test]
fn basic_is_decoded_replaced_in_user_or_password_and_encoded() {
    for secret in [
        SECRET,
        "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7",
        "ghp_Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7fg",
    ] {
        let stand = stand_for(secret);
        let ph = &stand.forge;
        for (pair, wanted) in [
            (format!("x-access-token:{ph}"), format!("x-access-token:{secret}")),
            (format!("{ph}:"), format!("{secret}:")),
            (format!("{ph}:x-oauth-basic"), format!("{secret}:x-oauth-basic")),
            (ph.clone(), secret.to_owned()),
            (format!("üser:{ph}"), format!("üser:{secret}")),
        ] {
            for scheme in ["Basic ", "basic ", "Basic  "] {
                let coded = STANDARD.encode(&pair);
                for coded in [coded.clone(), coded.trim_end_matches('=').to_owned()] {
                    let (value, outbound) = stand
                        .header("authorization", &format!("{scheme}{coded}"))
                        .unwrap();
                    let sent = value.split(' ').next_back().unwrap();
                    assert_eq!(STANDARD.decode(sent).unwrap(), wanted.as_bytes());
                    assert_eq!(outbound.used, ["forge"]);
                }
            }
        }
    }
}

#[test]
fn malformed_basic_goes_unchanged_and_a_pair_without_placeholder_too() {
    let stand = stand();
    for value in [
        "Basic !!!",
        "Basic",
        "Basic ",
        "Basic YWRhOnNlY3JldA==",
        "Digest username=\"x\"",
    ] {
        assert_eq!(
            stand.header("authorization", value).unwrap(),
            (value.to_owned(), Outbound::default())
        );
    }
}

#[test]
fn an_inexact_or_double_placeholder_in_authorization_is_refused() {
    let stand = stand();
    let ph = &stand.forge;
    let basic = |pair: String| format!("Basic {}", STANDARD.encode(pair));
    for value in [
        format!("Bearer {ph} {ph}"),
        format!("Bearer {ph}x"),
        format!("Bearer \"{ph}\""),
        ph.clone(),
        format!("Custom {ph}"),
        basic(format!("user:a{ph}")),
        basic(format!("user:x:{ph}")),
        basic(format!("{ph}:{ph}")),
        format!("Bearer {}", stand.maps),
        basic(format!("user:{}", stand.maps)),
    ] {
        let leak = stand.header("authorization", &value).unwrap_err();
        assert!(
            leak.sentence.contains("header `authorization`") || leak.sentence.contains("both"),
            "{leak}"
        );
        assert!(!leak.sentence.contains(ph.as_str()), "{leak}");
    }
    let bearer = format!("Bearer {ph}");
    let twice = [
        ("authorization", bearer.as_str()),
        ("authorization", "Bearer other"),
    ];
    assert!(stand.send("allowed.test", "/", &twice).is_err());
}

#[test]
fn a_credentials_place_of_another_host_or_kind_is_refused_with_place_and_name() {
    let stand = stand();
    let bearer = format!("Bearer {}", stand.forge);
    for host in ["other.test", "without.test"] {
        let leak = stand.send(host, "/", &[("authorization", &bearer)]).unwrap_err();
        assert_eq!(leak.credential, "forge");
        assert!(
            leak.sentence.contains("`forge`") && leak.sentence.contains("`authorization`"),
            "{leak}"
        );
    }
    let cookie = format!("session={}", stand.forge);
    for name in [
        "cookie",
        "proxy-authorization",
        "x-auth-token",
        "private-token",
        "x-api-key",
        "api-key",
    ] {
        let leak = stand.header(name, &cookie).unwrap_err();
        assert!(leak.sentence.contains(name), "{leak}");
    }
    for parameter in [
        "access_token",
        "api_key",
        "token",
        "private_token",
        "X-Amz-Signature",
    ] {
        let target = format!("/x?a=1&{parameter}={}", stand.forge);
        let leak = stand.send("allowed.test", &target, &[]).unwrap_err();
        assert!(
            leak.sentence.contains(&format!("query parameter `{parameter}`")),
            "{leak}"
        );
    }
}

#[test]
fn elsewhere_in_the_head_a_placeholder_is_a_worthless_string_and_is_noted() {
    let stand = stand();
    for name in ["x-data", "user-agent", "referer"] {
        let (value, outbound) = stand.header(name, &format!("see {}", stand.forge)).unwrap();
        assert!(value.contains(&stand.forge));
        assert!(
            outbound.used.is_empty() && outbound.notes[0].contains(name),
            "{outbound:?}"
        );
    }
    let target = format!("/{}?q={}", stand.forge, stand.forge);
    let (head, outbound) = stand.send("other.test", &target, &[]).unwrap();
    assert_eq!(head.uri, target.as_str());
    assert_eq!(outbound.notes.len(), 2);
}

#[test]
fn a_query_parameter_is_replaced_encoded_and_the_others_keep_their_bytes() {
    let stand = stand();
    let encoded = percent_encode(stand.maps.as_bytes(), VALUE).to_string();
    for value in [stand.maps.replace('+', "%2B"), encoded] {
        let target = format!("/maps?a=%7e+b&key={value}&z");
        let (head, outbound) = stand.send("allowed.test", &target, &[]).unwrap();
        assert_eq!(head.uri, "/maps?a=%7e+b&key=AIzaSy%2BAb3dEf6hIj9lMn0pQr2tUv4x&z");
        assert_eq!(outbound.used, ["maps"]);
    }
    let value = stand.maps.replace('+', "%2B");
    assert!(
        stand
            .send("allowed.test", &format!("/?key={value}&key={value}"), &[])
            .is_err()
    );
    assert!(
        stand
            .send("allowed.test", &format!("/?key=x{value}"), &[])
            .is_err()
    );
    assert!(stand.send("other.test", &format!("/?key={value}"), &[]).is_err());
}

#[test]
fn a_named_header_is_replaced_once() {
    let stand = stand();
    let (value, _) = stand.header("x-api-key", &stand.maps).unwrap();
    assert_eq!(value, "AIzaSy+Ab3dEf6hIj9lMn0pQr2tUv4x");
    assert!(
        stand
            .header("x-api-key", &format!("{0} {0}", stand.maps))
            .is_err()
    );
    assert!(
        stand
            .header("x-api-key", &format!("{} {}", stand.maps, stand.forge))
            .is_err()
    );
    let twice = [
        ("x-api-key", stand.maps.as_str()),
        ("x-api-key", stand.maps.as_str()),
    ];
    assert!(stand.send("allowed.test", "/", &twice).is_err());
}

#[test]
fn two_credentials_may_go_in_one_request() {
    let stand = stand();
    let bearer = format!("Bearer {}", stand.forge);
    let headers = [
        ("authorization", bearer.as_str()),
        ("x-api-key", stand.maps.as_str()),
    ];
    let (_, mut outbound) = stand.send("allowed.test", "/", &headers).unwrap();
    outbound.used.sort();
    assert_eq!(outbound.used, ["forge", "maps"]);
}

#[test]
fn plain_http_never_gets_a_value() {
    let stand = stand();
    let bearer = format!("Bearer {}", stand.forge);
    let leak = stand
        .send_by(false, "allowed.test", "/", &[("authorization", &bearer)])
        .unwrap_err();
    assert!(leak.sentence.contains("https only"), "{leak}");
}

#[test]
fn a_real_value_is_refused_wherever_it_stands_and_not_repeated() {
    let stand = stand();
    let basic = format!("Basic {}", STANDARD.encode(format!("user:{SECRET}")));
    let mixed = format!("/x?q=%67{}", &SECRET[1..]);
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("/", &[("authorization", &format!("Bearer {SECRET}"))]),
        ("/", &[("authorization", &basic)]),
        ("/", &[("x-data", &STANDARD.encode(format!("ab{SECRET}c")))]),
        (&format!("/{SECRET}"), &[]),
        (&mixed, &[]),
        ("/", &[("cookie", &hex)]),
    ];
    for (target, headers) in cases {
        let leak = stand.send("allowed.test", target, headers).unwrap_err();
        assert_eq!(leak.credential, "forge", "{target} {headers:?}");
        assert!(!leak.sentence.contains("Ab3dEf6h"), "{leak}");
    }
}
