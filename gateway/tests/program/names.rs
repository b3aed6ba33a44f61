//! Names over a restart of the program.
use crate::running::{Running, spec};

/// The address that the gateway gives for a name, asked over HTTPS's own path in plain HTTP.
fn look_up(gateway: &Running, login: &str, name: &str) -> std::net::Ipv4Addr {
    use hickory_proto::op::{Message, Query};
    use hickory_proto::rr::{Name, RData, RecordType};
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let query = query.to_vec().unwrap();
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: g\r\nContent-Type: application/dns-message\r\nConnection: close\r\nContent-Length: {}",
        query.len()
    );
    let answer = gateway.proxied(&head, login, &query);
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let answer = Message::from_vec(&answer[body..]).unwrap();
    match answer.answers[0].data {
        RData::A(address) => address.0,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_stands_for_its_name_after_a_kill_too_and_an_unknown_one_is_refused_at_once() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let mut first = Running::start(state, &[]);
    assert_eq!(first.call("PUT", "/v1/sessions/r", &spec()).0, 200);
    let (_, view) = first.call("GET", "/v1/sessions/r", "");
    let view: serde_json::Value = serde_json::from_str(&view).unwrap();
    let login = {
        use base64::Engine;
        let pair = format!("r:{}", view["proxy_token"].as_str().unwrap());
        base64::engine::general_purpose::STANDARD.encode(pair)
    };
    let names = ["first.test.", "second.test.", "third.test."];
    let before = names.map(|name| look_up(&first, &login, name));
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = Running::start(state, &[]);
    // As a machine's connection that a packet filter led here: what was dialled is the address.
    let refusal = |address: std::net::Ipv4Addr, host: &str| {
        let head = format!("CONNECT {address}:80 HTTP/1.1\r\nHost: {address}:80");
        let inside = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        String::from_utf8(second.proxied(&head, &login, inside.as_bytes())).unwrap()
    };
    for (name, address) in names.iter().zip(before) {
        let name = name.trim_end_matches('.');
        let answer = refusal(address, name);
        assert!(
            answer.contains("HTTP/1.1 403 ")
                && answer.contains(&format!("no rule allows `GET http://{name}/`")),
            "{answer}"
        );
    }
    let unknown = refusal("198.18.255.1".parse().unwrap(), "198.18.255.1");
    assert!(
        unknown.contains("HTTP/1.1 403 ") && unknown.contains("`198.18.255.1` is a benchmark address"),
        "{unknown}"
    );
    // Asked in another order, each name has what it had.
    let after = [2, 1, 0].map(|at| look_up(&second, &login, names[at]));
    assert_eq!(after, [before[2], before[1], before[0]]);
    assert!(state.join("names/r.names").exists());
    assert_eq!(second.call("DELETE", "/v1/sessions/r", "").0, 204);
    assert!(!state.join("names/r.names").exists());
}
