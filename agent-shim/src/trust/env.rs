//! The variables by which each client finds the authority, as the clients' own manuals name them. Pure.
use std::collections::BTreeMap;

/// Where the gateway's authority alone lies.
pub const CA_FILE: &str = "/etc/ssl/gw/ca.pem";
/// Where the system's roots and the gateway's authority lie together.
pub const BUNDLE_FILE: &str = "/etc/ssl/gw/bundle.pem";

/// Variables whose value is the bundle: these replace the client's own roots.
const BUNDLE_VARIABLES: &[&str] = &[
    "AWS_CA_BUNDLE",
    "BUNDLE_SSL_CA_CERT",
    "CARGO_HTTP_CAINFO",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HEX_CACERTS_PATH",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "NPM_CONFIG_CAFILE",
    "PERL_LWP_SSL_CA_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "YARN_HTTPS_CA_FILE_PATH",
];

/// Variables whose value is the authority alone: these add to the client's own roots.
const ADDED_VARIABLES: &[&str] = &["DENO_CERT", "NODE_EXTRA_CA_CERTS"];

/// Switches that make a client use the system's store.
const SWITCHES: &[(&str, &str)] = &[
    (
        "JAVA_TOOL_OPTIONS",
        "-Djavax.net.ssl.trustStore=/etc/ssl/gw/truststore.jks",
    ),
    ("UV_NATIVE_TLS", "1"),
    ("UV_SYSTEM_CERTS", "1"),
];
/// Variables that lead around the gateway or to another one; a machine has none of them.
const PROXIES: &[&str] = &["ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];

/// Variables of the shim's own environment that commands get too; all others stay outside.
const INHERITED: &[&str] = &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"];

/// What makes every client trust the gateway.
pub fn trust_variables() -> BTreeMap<String, String> {
    let bundle = BUNDLE_VARIABLES.iter().map(|name| (*name, BUNDLE_FILE));
    let added = ADDED_VARIABLES.iter().map(|name| (*name, CA_FILE));
    let all = bundle.chain(added).chain(SWITCHES.iter().copied());
    all.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What a command gets of the shim's own environment: no proxy, no foreign authority, no secret of the host.
pub fn inherited(own: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    own.filter(|(name, _)| INHERITED.contains(&name.as_str()) || name.starts_with("LC_"))
        .collect()
}

/// A script for `/etc/profile.d` which exports `variables`, so that a login shell without any has them too.
pub fn profile_script(variables: &BTreeMap<String, String>) -> String {
    let mut script =
        String::from("# Written by sallyport-shim: trust in the gateway, and this machine's variables.\n");
    for name in PROXIES.iter().filter(|name| !variables.contains_key(**name)) {
        script.push_str(&format!("unset {name} {}\n", name.to_ascii_lowercase()));
    }
    for (name, value) in variables.iter().filter(|(name, _)| is_shell_name(name)) {
        script.push_str(&format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
    }
    script
}

fn is_shell_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::{inherited, profile_script, trust_variables};
    use std::collections::BTreeMap;

    #[test]
    fn proxies_authorities_and_secrets_of_the_host_are_not_inherited() {
        let own = [
            ("PATH", "/bin"),
            ("https_proxy", "x"),
            ("SSL_CERT_FILE", "x"),
            ("TOKEN", "x"),
            ("LC_ALL", "C"),
        ];
        let kept = inherited(own.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(
            kept.keys().map(String::as_str).collect::<Vec<_>>(),
            ["LC_ALL", "PATH"]
        );
    }

    #[test]
    fn a_value_with_quotes_stays_one_word_and_a_bad_name_is_left_out() {
        let variables = BTreeMap::from([
            ("A".to_owned(), "it's $(x)".to_owned()),
            ("B;rm".to_owned(), "1".to_owned()),
        ]);
        let script = profile_script(&variables);
        assert!(script.contains(r"export A='it'\''s $(x)'"));
        assert!(!script.contains("rm"));
    }

    #[test]
    fn node_gets_the_authority_alone_and_pip_the_bundle() {
        let variables = trust_variables();
        assert_eq!(variables["NODE_EXTRA_CA_CERTS"], super::CA_FILE);
        assert_eq!(variables["PIP_CERT"], super::BUNDLE_FILE);
    }
}
