//! What presets stand for: "the default registries of python" are requests that the preset of that name allows.
use super::need::{Scheme, Site};
use crate::document::Document;
use crate::{Decision, Destination, Moment, Overlay, Policy, PolicyText, Request, Who};

/// One preset.
#[derive(Debug)]
pub(super) struct Preset {
    /// Without `preset:`.
    pub(super) name: String,
    /// Requests that it allows, its plainest first.
    pub(super) samples: Vec<Request>,
    /// Absent where it cannot be compiled by itself.
    policy: Option<Policy>,
}

/// Reads presets, the shipped ones last; the first of a name wins.
pub(super) fn read(texts: &[PolicyText], now: jiff::Timestamp) -> Vec<Preset> {
    let mut presets: Vec<Preset> = Vec::new();
    let shipped: Vec<PolicyText> = crate::presets::presets()
        .map(|preset| PolicyText {
            name: format!("preset:{}", preset.name),
            text: preset.text.to_owned(),
        })
        .collect();
    for text in texts.iter().chain(&shipped) {
        if let Some(name) = text.name.strip_prefix("preset:")
            && presets.iter().all(|preset| preset.name != name)
        {
            presets.push(Preset::new(name, text, now));
        }
    }
    presets
}

impl Preset {
    fn new(name: &str, text: &PolicyText, now: jiff::Timestamp) -> Self {
        // What is wrong with it is told when the policy that includes it is compiled.
        let document = Document::read(text, &mut Vec::new());
        let roots = sites(&document).into_iter().filter_map(|site| site.request());
        let tested = document
            .tests
            .iter()
            .filter(|test| test.expect.value == "allow" && !test.connect)
            .filter_map(|test| Request::parse(&test.request.value).ok());
        let mut preset = Self {
            name: name.to_owned(),
            samples: Vec::new(),
            policy: Policy::compile(std::slice::from_ref(text)).ok(),
        };
        preset.samples = roots
            .chain(tested)
            .filter(|request| preset.allows(request, now))
            .collect();
        preset
    }

    /// Whether including it would allow this.
    pub(super) fn allows(&self, request: &Request, now: jiff::Timestamp) -> bool {
        self.policy.as_ref().is_some_and(|policy| {
            matches!(
                policy.decide(request, &Who::default(), &Overlay::default(), now),
                Decision::Allow(_)
            )
        })
    }

    /// Whether one of its samples is there.
    pub(super) fn has(&self, site: &Site) -> bool {
        let destination = site.destination();
        self.samples
            .iter()
            .any(|request| Some(&request.destination) == destination.as_ref())
    }
}

/// The sites of its allowing rules and of its sets.
fn sites(document: &Document) -> Vec<Site> {
    let mut found = Vec::new();
    let mut add = |host: &str, port: u16| {
        // Any name under a domain stands for all of them.
        let host = match host.strip_prefix("*.") {
            Some(domain) => format!("www.{domain}"),
            None => host.to_owned(),
        };
        let scheme = if port == 80 { Scheme::Http } else { Scheme::Https };
        let site = Site { host, port, scheme };
        if !found.contains(&site) {
            found.push(site);
        }
    };
    for rule in &document.rules {
        let first = rule.to.ports.as_deref().and_then(|ports| ports.first());
        let port = first.map_or(Scheme::Https.usual_port(), |range| range.0);
        for entry in rule.to.hosts.iter().flatten() {
            match document.sets.iter().find(|set| set.name.value == entry.value) {
                Some(set) => set.entries.iter().for_each(|host| add(&host.value, port)),
                None => add(&entry.value, port),
            }
        }
    }
    found
}

impl Site {
    /// A GET of its root.
    fn request(&self) -> Option<Request> {
        Request::parse(&format!("GET {self}/")).ok()
    }
}

/// A request of a preset in words.
pub(super) fn told(request: &Request) -> String {
    let Destination { host, port } = &request.destination;
    let Moment::Http(http) = &request.moment else {
        return request.destination.to_string();
    };
    let scheme = if http.tls { Scheme::Https } else { Scheme::Http };
    let site = Site {
        host: host.to_string(),
        port: *port,
        scheme,
    };
    format!("{} {site}{}", http.method, http.path.as_str())
}
