//! Lines of the log are read as they were written, by this version and those before it.
use super::*;

const HTTP: &str = r#"{"sequence":7,"id":"d-7","at":"2026-05-01T10:00:00.5Z","session":"run-1","user":"ada","kind":"http","host":"api.test","port":443,"method":"GET","path":"/a","verdict":"allowed","rule":"read","reason":"rule `read` allows it","refusal":null,"policy_hash":"ff","status":200,"bytes_out":0,"bytes_in":1,"duration_ms":2,"credentials_used":["token"],"credentials_redacted":[],"ending":"complete","tls":true,"grants":["g-1"],"chain":""}"#;

fn request(line: &str) -> Recorded<'_> {
    match Line::read(line) {
        Ok(Line::Request(recorded)) => *recorded,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_read_without_copying_its_texts() {
    let recorded = request(HTTP);
    assert_eq!(recorded.subject(), "GET https://api.test/a");
    assert_eq!(
        (recorded.grants, recorded.outcome, recorded.stopped),
        (1, Outcome::Allowed, false)
    );
    assert!(matches!(recorded.rule, Cow::Borrowed("read")));
    assert!(matches!(recorded.credentials[..], [Cow::Borrowed("token")]));
}

#[test]
fn a_log_in_is_read_with_its_database_and_its_role() {
    let line = HTTP.replace(r#""kind":"http""#, r#""kind":"postgres""#).replace(
        r#""method":"GET","path":"/a""#,
        r#""method":"LOGIN","path":"/shop%2Fa/agent""#,
    );
    let recorded = request(&line);
    assert_eq!(recorded.subject(), "postgres agent@api.test:443/shop%2Fa");
    let cancel = line.replace("LOGIN", "CANCEL");
    assert_eq!(Line::read(&cancel), Ok(Line::Other));
}

#[test]
fn a_command_over_ssh_is_read_with_its_user_and_gits_repository() {
    let command = |login: &str, method: &str, path: &str| {
        let asked = format!(r#""method":"{method}","path":"{path}",{login}"verdict""#);
        HTTP.replace(r#""kind":"http""#, r#""kind":"ssh""#)
            .replace(r#""method":"GET","path":"/a","verdict""#, &asked)
    };
    let user = r#""login":"git","#;
    for (method, path, subject) in [
        ("exec", "uptime", "ssh git@api.test:443"),
        ("shell", "", "ssh git@api.test:443"),
        ("subsystem", "sftp", "ssh git@api.test:443"),
        (
            "exec",
            "git-upload-pack '/acme/web.git'",
            "ssh git@api.test:443 git-upload-pack /acme/web.git",
        ),
        (
            "exec",
            "git-receive-pack 'acme/web'",
            "ssh git@api.test:443 git-receive-pack acme/web",
        ),
        ("exec", "git-upload-pack 'acme/web'; id", "ssh git@api.test:443"),
    ] {
        assert_eq!(request(&command(user, method, path)).subject(), subject, "{path}");
    }
    let other = |line: &str| assert_eq!(Line::read(line), Ok(Line::Other), "{line}");
    other(&command(user, "forward", "127.0.0.1:80"));
    other(&command(user, "exec", "git-upload-pack 'acme/…"));
    // Earlier versions did not write down who logged in.
    other(&command("", "exec", "uptime"));
}

#[test]
fn records_of_earlier_versions_are_read() {
    let old = HTTP.replace(r#""tls":true,"grants":["g-1"],"#, "");
    let recorded = request(&old);
    assert!(matches!(recorded.shape, Shape::Http { tls: None, .. }));
    assert_eq!(
        (recorded.grants, recorded.subject()),
        (0, "GET api.test/a".to_owned())
    );
}

#[test]
fn whose_a_session_is_comes_from_its_own_record() {
    let line = HTTP
        .replace(r#""kind":"http""#, r#""kind":"session""#)
        .replace(r#""chain""#, r#""who":{"run":"run-1","team":"web"},"chain""#);
    let Ok(Line::Session { session, who }) = Line::read(&line) else {
        panic!("{:?}", Line::read(&line))
    };
    assert_eq!((&*session, who.team.as_str()), ("run-1", "web"));
}

#[test]
fn what_stopped_a_request_after_the_policys_yes_is_no_denial_of_the_policy() {
    let denied = HTTP.replace(r#""allowed""#, r#""denied""#);
    assert_eq!(
        (request(&denied).outcome, request(&denied).stopped),
        (Outcome::Allowed, true)
    );
    let refused = denied.replace(
        r#""refusal":null"#,
        r#""refusal":{"reason":{"rule":"read","text":""},"remedy":{"kind":"none"},"hint":null}"#,
    );
    assert_eq!(
        (request(&refused).outcome, request(&refused).stopped),
        (Outcome::Denied, false)
    );
    let bound = refused.replace(
        "rule `read` allows it",
        "rule `read` lets 2 requests in 1 s pass; try again in 1 s",
    );
    assert_eq!(
        (request(&bound).outcome, request(&bound).stopped),
        (Outcome::Allowed, true)
    );
    let failed = HTTP.replace(r#""allowed""#, r#""upstream-failed""#);
    assert_eq!(request(&failed).outcome, Outcome::Allowed);
    let unasked = denied.replace(r#""rule":"read""#, r#""rule":"""#);
    assert_eq!(request(&unasked).outcome, Outcome::Denied);
}

#[test]
fn what_no_policy_decided_is_something_else_and_what_is_no_record_is_told() {
    for (from, to) in [
        (r#""policy_hash":"ff""#, r#""policy_hash":"""#),
        (r#""verdict":"allowed""#, r#""verdict":"malformed""#),
        (r#""kind":"http""#, r#""kind":"access""#),
        (r#""path":"/a""#, r#""path":null"#),
    ] {
        assert_eq!(Line::read(&HTTP.replace(from, to)), Ok(Line::Other), "{to}");
    }
    for text in [
        "",
        "{}",
        "no record",
        &HTTP[..HTTP.len() - 5],
        &HTTP.replace("api.test", "a b"),
    ] {
        assert!(Line::read(text).is_err(), "{text}");
    }
}

#[test]
fn a_path_that_was_cut_is_not_taken_for_a_whole_one() {
    let cut = HTTP.replace("\"/a\"", "\"/aaaa…\"");
    assert!(matches!(request(&cut).shape, Shape::Http { path: None, .. }));
    assert_eq!(request(&cut).subject(), "GET https://api.test/…");
}
