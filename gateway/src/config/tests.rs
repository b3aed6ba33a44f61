//! What arguments mean.
use super::*;

fn resolve(arguments: &[&str]) -> Result<Config, ConfigError> {
    Arguments::try_parse_from([&["sallyport-gateway"], arguments].concat())
        .unwrap()
        .resolve()
}

#[test]
fn what_is_not_said_is_found_in_the_state_folder() {
    let config = resolve(&["serve", "--state", "/s"]).unwrap();
    let Command::Serve(serve) = config.command else {
        panic!("serves")
    };
    assert_eq!(serve.control, PathBuf::from("/s/gateway.sock"));
    assert_eq!(serve.handover, PathBuf::from("/s/handover.sock"));
    assert!(serve.proxy.ip().is_loopback());
    assert_eq!(serve.tunnel, None);
}

#[test]
fn the_state_folder_may_stand_before_the_command() {
    let config = resolve(&["--state", "/s", "secret", "set", "forge"]).unwrap();
    assert_eq!(config.state, PathBuf::from("/s"));
    assert!(matches!(config.command, Command::Secret(SecretCommand::Set { name }) if name == "forge"));
}

#[test]
fn a_name_server_needs_no_port() {
    let config = resolve(&[
        "serve",
        "--state",
        "/s",
        "--dns",
        "192.0.2.1",
        "--dns",
        "[::1]:5353",
    ])
    .unwrap();
    let Command::Serve(serve) = config.command else {
        panic!("serves")
    };
    assert_eq!(
        serve.dns,
        [
            NameServer::read("192.0.2.1:53").unwrap(),
            NameServer::read("[::1]:5353").unwrap()
        ]
    );
    assert!(Arguments::try_parse_from(["g", "serve", "--state", "/s", "--dns", "example.com"]).is_err());
}

#[test]
fn further_ways_in_are_read() {
    let config = resolve(&[
        "serve",
        "--state",
        "/s",
        "--proxy-socket",
        "/p",
        "--proxy-socket-mode",
        "660",
        "--proxy-protocol-from",
        "10.0.0.0/8",
        "--proxy-protocol-from",
        "::1",
        "--listen",
        "dns:127.0.0.1:53=ci",
    ])
    .unwrap();
    let Command::Serve(serve) = config.command else {
        panic!("serves")
    };
    assert_eq!(serve.wanted.socket, Some((PathBuf::from("/p"), 0o660)));
    assert_eq!(
        (serve.wanted.balancers.len(), serve.wanted.listeners.len()),
        (2, 1)
    );
    for wrong in [["--proxy-protocol-from", "a.test"], ["--listen", "53"]] {
        let arguments = [["g", "serve"], wrong].concat();
        assert!(Arguments::try_parse_from(arguments).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_missing_authority_file_is_named() {
    let error = resolve(&["serve", "--state", "/s", "--upstream-ca", "/nowhere/ca.pem"]).unwrap_err();
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
