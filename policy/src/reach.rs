//! Whether a host may be reached at all: the question of whoever looks a name up before it is known at which port.
use crate::{Decision, Destination, Host, Moment, Overlay, Policy, Refusal, Request, Who};

/// The port whose refusal is told where every port is refused.
const USUAL: u16 = 443;

impl Policy {
    /// The refusal of a host that can be reached at no port, whatever comes; none where something may pass at some port.
    ///
    /// Exact: ports that no rule and no grant tells apart get the same answer, so that one of each such range is decided,
    /// as a connection would be.
    pub fn refuses_host(
        &self,
        host: &Host,
        who: &Who,
        overlay: &Overlay,
        now: jiff::Timestamp,
    ) -> Option<Refusal> {
        let mut told = None;
        for port in self.telling_ports(host, overlay) {
            let request = Request {
                destination: Destination {
                    host: host.clone(),
                    port,
                },
                moment: Moment::Connect,
            };
            match self.decide(&request, who, overlay, now) {
                Decision::Deny(refusal) => told = told.or(Some(refusal)),
                Decision::Allow(_) | Decision::Inspect | Decision::Ask(_) => return None,
            }
        }
        told
    }

    /// The usual port, then one of each range of ports that the rules for this host and the grants tell apart.
    fn telling_ports(&self, host: &Host, overlay: &Overlay) -> Vec<u16> {
        let mut ports = vec![1];
        let mut add =
            |low: u16, high: u16| ports.extend([Some(low), high.checked_add(1)].into_iter().flatten());
        for number in self.index.candidates(host) {
            if let Some(rule) = self.rule(number) {
                rule.ports.iter().for_each(|(low, high)| add(*low, *high));
            }
        }
        let lifting = overlay.grants.iter().filter(|grant| grant.credential.is_none());
        lifting.for_each(|grant| add(grant.port, grant.port));
        ports.retain(|port| *port != 0 && *port != USUAL);
        ports.sort_unstable();
        ports.dedup();
        ports.insert(0, USUAL);
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grant, Layer, LayerTexts, PolicyText};
    use proptest::prelude::*;

    fn compile(text: &str) -> Policy {
        Policy::compile(&[PolicyText {
            name: "p.yaml".into(),
            text: text.into(),
        }])
        .unwrap()
    }

    fn refused(policy: &Policy, host: &str, overlay: &Overlay) -> Option<String> {
        let host = Host::parse(host).unwrap();
        policy
            .refuses_host(&host, &Who::default(), overlay, jiff::Timestamp::UNIX_EPOCH)
            .map(|refusal| refusal.reason.rule)
    }

    fn grant(rule: &str, host: &str, port: u16) -> Overlay {
        let grant = Grant {
            credential: None,
            id: "g".into(),
            rule: rule.into(),
            host: host.into(),
            port,
            methods: Vec::new(),
            path: None,
            uses: None,
            expires_at: jiff::Timestamp::MAX,
            by: "policy".into(),
        };
        Overlay { grants: vec![grant] }
    }

    #[test]
    fn a_host_that_some_rule_may_allow_at_some_port_is_not_refused() {
        let policy = compile(
            "version: 1\nname: p\nrules:\n  - {id: web, to: {host: a.test, methods: [GET]}, effect: allow}\n  - {id: db, to: {host: b.test, \
             port: 5432, protocol: postgres}, effect: allow}\n  - {id: ask, to: {host: c.test}, effect: ask}\n  - {id: no, to: {host: \
             d.test}, effect: deny}\n  - {id: most, to: {host: e.test, port: \"1-442\"}, effect: deny}\n  - {id: rest, to: {host: e.test, \
             port: \"443-65535\"}, effect: deny}\n  - {id: all, to: {host: [d.test, e.test]}, effect: allow}\n  - {id: raw, to: {host: \
             f.test, port: 65535, protocol: tcp}, effect: allow}\n",
        );
        let nothing = Overlay::default();
        for (host, right) in [
            ("a.test", None),
            ("b.test", None),
            ("c.test", None),
            ("d.test", Some("no")),
            ("e.test", Some("rest")),
            ("f.test", None),
            ("g.test", Some("default")),
            ("x.a.test", Some("default")),
        ] {
            assert_eq!(refused(&policy, host, &nothing).as_deref(), right, "{host}");
        }
    }

    #[test]
    fn defaults_observation_layers_and_grants_count() {
        let nothing = Overlay::default();
        let open = compile(
            "version: 1\nname: p\ndefault: allow\nrules:\n  - {id: no, to: {host: a.test}, effect: deny}\n",
        );
        assert_eq!(refused(&open, "b.test", &nothing), None);
        assert_eq!(refused(&open, "a.test", &nothing).as_deref(), Some("no"));
        let watched = compile("version: 1\nname: p\nmode: observe\n");
        assert_eq!(refused(&watched, "a.test", &nothing), None);
        let closed = compile(
            "version: 1\nname: p\nrules:\n  - {id: later, to: {host: a.test, port: 8443}, effect: deny, grantable: {by: rule, expires: 1h}}\n",
        );
        assert!(refused(&closed, "a.test", &nothing).is_some());
        assert_eq!(refused(&closed, "a.test", &grant("later", "a.test", 8443)), None);
        assert!(refused(&closed, "a.test", &grant("later", "a.test", 8444)).is_some());
        let layer = |layer, text: &str| LayerTexts {
            layer,
            texts: vec![PolicyText {
                name: "l.yaml".into(),
                text: text.into(),
            }],
        };
        let all = "version: 1\nname: r\nrules:\n  - {id: all, to: {host: \"*.test\"}, effect: allow}\n";
        let ceiling = "version: 1\nname: c\nrules:\n  - {id: few, to: {host: a.test}, effect: allow}\n";
        let both =
            Policy::compile_layers(&[layer(Layer::Organisation, ceiling), layer(Layer::Run, all)]).unwrap();
        assert_eq!(refused(&both, "a.test", &nothing), None);
        assert!(refused(&both, "b.test", &nothing).is_some());
    }

    proptest! {
        /// Against every port, one by one.
        #[test]
        fn it_is_what_deciding_each_port_gives(
            rules in proptest::collection::vec((0u16..30, 0u16..30, any::<bool>()), 0..5),
            open: bool,
        ) {
            let mut text = format!("version: 1\nname: p\ndefault: {}\nrules:\n", if open { "allow" } else { "deny" });
            for (number, (start, length, allow)) in rules.iter().enumerate() {
                let (low, high) = (start + 430, start + 430 + length);
                let effect = if *allow { "allow" } else { "deny" };
                text.push_str(&format!("  - {{id: r{number}, to: {{host: a.test, port: \"{low}-{high}\"}}, effect: {effect}}}\n"));
            }
            if rules.is_empty() { text = text.replace("rules:\n", ""); }
            let policy = compile(&text);
            let (host, who, nothing) = (Host::parse("a.test").unwrap(), Who::default(), Overlay::default());
            let denied = |port| {
                let destination = Destination { host: host.clone(), port };
                let request = Request { destination, moment: Moment::Connect };
                matches!(policy.decide(&request, &who, &nothing, jiff::Timestamp::UNIX_EPOCH), Decision::Deny(_))
            };
            let right = (1..=600).chain([65_535]).all(denied);
            prop_assert_eq!(refused(&policy, "a.test", &nothing).is_some(), right);
        }
    }
}
