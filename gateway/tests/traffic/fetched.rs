//! Values of AWS's services, as a session gets and uses them: moto checks the gateway's signatures.
use crate::bao::keeper;
use crate::origin::{Origin, Roots, full};
use crate::python::moto;
use crate::stand::Stand;
use http::Response;
use sallyport_gateway::limits::Limits;
use sallyport_gateway::secret::Value;

const SECRET: &str = "sk-Ab3dEf6hIj9lMn0pQr2tUv4xYz5bCd7f";

const POLICY: &str = r#"
version: 1
credentials:
  model: {from: {aws-secret: agents/model, field: key}, hosts: [allowed.test], in: [bearer]}
  whole: {from: {aws-parameter: /agents/whole}, hosts: [allowed.test], in: ["header:x-key"]}
  none: {from: {aws-secret: agents/none}, hosts: [allowed.test], in: ["header:x-none"]}
  foreign: {from: {aws-secret: others/model}, hosts: [allowed.test], in: ["header:x-other"]}
  own: {from: {store: aws-key}, hosts: [allowed.test], in: ["header:x-own"]}
rules:
  - {id: all, to: {host: [allowed.test, 127.0.0.0/8], port: PORT, methods: [GET], private: true}, use: [model, whole, none, foreign, own], effect: allow}
"#;

#[tokio::test]
async fn secrets_and_parameters_of_aws_are_read_with_the_gateways_own_keys_and_used_like_all_others() {
    let moto = moto(Some(SECRET)).await;
    let told = &moto.told;
    let roots = Roots::new();
    let origin = Origin::http(&roots, &["http/1.1"], |request| async move {
        let sent = |name: &str| request.headers().get(name).cloned();
        assert_eq!(sent("authorization").unwrap(), format!("Bearer {SECRET}"));
        assert_eq!(sent("x-key").unwrap(), SECRET.chars().rev().collect::<String>());
        Response::new(full("taken".to_owned()))
    })
    .await;
    let yaml = format!(
        "aws: {{region: us-east-1, access-key-id: {{store: aws-id}}, secret-access-key: {{store: aws-key}}, endpoint: \"http://127.0.0.1:{}\", allow: [agents/*]}}",
        told["port"]
    );
    let stand = Stand::with_fetching(&roots, origin.port, Limits::default(), |folder, store, limits| {
        for (name, key) in [("aws-id", "AccessKeyId"), ("aws-key", "SecretAccessKey")] {
            let key = told["keys"][key].as_str().unwrap();
            store.set(name, Value::new(key.as_bytes().to_vec())).unwrap();
        }
        Some(keeper(folder, store, limits, &yaml))
    })
    .await;
    stand.put(POLICY);
    stand.sessions.settled("run-1").await;
    let view = stand.sessions.view("run-1", "").unwrap();
    let placeholder = |name: &str| {
        let found = view.credentials.iter().find(|one| one.name == name);
        let found = found.unwrap_or_else(|| panic!("{:?}", view.warnings));
        found.placeholder.clone()
    };
    let warned = |parts: [&str; 2]| {
        let fits = |text: &String| parts.iter().all(|part| text.contains(part));
        assert!(view.warnings.iter().any(fits), "{parts:?}: {:?}", view.warnings);
    };
    warned(["`none`", "AWS has nothing by this name"]);
    warned(["`foreign`", "aws.allow"]);
    warned(["`own`", "no policy may name it"]);

    let at = stand.at("allowed.test");
    let (model, whole) = (placeholder("model"), placeholder("whole"));
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {model}\r\nX-Key: {whole}\r\n\r\n"
    );
    let answer = stand.raw("allowed.test", &request).await;
    assert!(answer.ends_with("taken"), "{answer}");
}
