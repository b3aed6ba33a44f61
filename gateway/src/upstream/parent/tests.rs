//! What goes through a parent proxy, and how its configuration is read.
use super::*;

fn parent(direct: &[&str], resolves: bool) -> Parent {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SecretStore::open(folder.path()).unwrap());
    let spec = ParentSpec {
        direct: direct.iter().map(|text| Direct::read(text).unwrap()).collect(),
        resolves,
        ..ParentSpec::read("http://proxy.test:3128").unwrap()
    };
    Parent::new(spec, &store)
}

#[test]
fn a_proxy_is_read_from_its_url() {
    let spec = ParentSpec::read("https://ada%40corp@proxy.test:3128").unwrap();
    assert_eq!(
        (spec.tls, spec.port, spec.user.as_deref()),
        (true, 3128, Some("ada@corp"))
    );
    assert_eq!(spec.host, Host::parse("proxy.test").unwrap());
    for (url, why) in [
        ("http://ada:secret@proxy.test:3128", "--upstream-proxy-secret"),
        ("http://proxy.test", "no port"),
        ("socks5://proxy.test:1080", "scheme"),
        ("proxy.test:3128", "scheme"),
        ("http://proxy.test:3128/path", "path"),
        ("http://a%3Ab@proxy.test:3128", "user"),
    ] {
        let error = ParentSpec::read(url).unwrap_err();
        assert!(
            error.contains(why) && !error.contains("secret@"),
            "{url}: {error}"
        );
    }
}

#[test]
fn exceptions_name_hosts_domains_and_ranges() {
    let parent = parent(
        &["own.test", "*.corp.test", ".lab.test", "10.0.0.0/8", "::2"],
        false,
    );
    let outside: IpAddr = "192.0.2.1".parse().unwrap();
    for (host, address, through) in [
        ("other.test", "192.0.2.1", true),
        ("own.test", "192.0.2.1", false),
        ("x.own.test", "192.0.2.1", true),
        ("git.corp.test", "192.0.2.1", false),
        ("corp.test", "192.0.2.1", true),
        ("evilcorp.test", "192.0.2.1", true),
        ("a.lab.test", "192.0.2.1", false),
        ("other.test", "10.1.2.3", false),
        ("other.test", "::2", false),
        ("other.test", "127.0.0.1", false),
    ] {
        let taken = parent.takes(&Host::parse(host).unwrap(), address.parse().unwrap());
        assert_eq!(taken, through, "{host} {address}");
    }
    assert!(parent.takes(&Host::Address(outside), outside));
    assert!(Direct::read("*.192.0.2.1").is_err() && Direct::read("a b").is_err());
}

#[test]
fn a_proxy_that_looks_up_is_never_asked_for_local_names() {
    let parent = parent(&["own.test", "intranet"], true);
    assert!(parent.looks_up("other.test").unwrap());
    assert!(!parent.looks_up("own.test").unwrap() && !parent.looks_up("intranet").unwrap());
    for name in [
        "printer",
        "metadata.google.internal",
        "a.localhost",
        "nas.local",
        "1.0.0.127.in-addr.arpa",
    ] {
        let error = parent.looks_up(name).unwrap_err();
        assert!(error.to_string().contains("local name"), "{name}: {error}");
    }
}

#[test]
fn only_a_whole_status_line_is_read() {
    assert_eq!(
        status_line("HTTP/1.1 200 Connection established"),
        Some((200, "Connection established"))
    );
    assert_eq!(status_line("HTTP/1.0 403"), Some((403, "")));
    for line in [
        "",
        "HTTP/1.",
        "HTTP/1.1",
        "HTTP/1.1 20x OK",
        "HTTP/1.1 2000 OK",
        "SSH-2.0-x",
        "HTTP/2 200",
    ] {
        assert_eq!(status_line(line), None, "{line}");
    }
}
