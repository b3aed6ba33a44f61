//! Needs held against a policy: each is met, refused, or a person must agree.
use super::finding::{Finding, Outcome};
use super::need::{Need, NeedKind, Needs, Scheme, Site};
use super::presets::{self, Preset};
use super::report::Report;
use super::suggest;
use crate::document::Effect;
use crate::{
    CanonicalPath, Decision, Destination, GitAccess, GitRequest, HttpRequest, Moment, Overlay, Policy,
    PolicyText, Request, SshRequest, Who,
};

/// What needs are held against.
#[derive(Debug, Clone, Copy)]
pub struct Against<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Whose run it will be.
    pub who: &'a Who,
    /// When.
    pub now: jiff::Timestamp,
    /// Texts of presets that are not shipped, or take a shipped one's place. Presets say where an ecosystem's default
    /// registries are; the first of a name wins, and texts with other names are passed over.
    pub presets: &'a [PolicyText],
}

/// Holds needs against a policy.
pub fn compare(needs: &Needs, against: Against<'_>) -> Report {
    let judge = Judge {
        against,
        presets: presets::read(against.presets, against.now),
    };
    let mut findings: Vec<Finding> = needs
        .needs
        .iter()
        .map(|need| Finding {
            need: need.clone(),
            outcome: judge.outcome(need),
        })
        .collect();
    findings.sort_by_key(|finding| match &finding.outcome {
        Outcome::Met { .. } => (3, finding.need.certainty),
        Outcome::Ask { .. } => (2, finding.need.certainty),
        _ => (1, finding.need.certainty),
    });
    Report {
        suggestion: suggest::suggest(&findings, &judge.presets, against.now),
        findings,
        notes: needs.notes.clone(),
        policy_hash: against.policy.hash().to_owned(),
    }
}

struct Judge<'a> {
    against: Against<'a>,
    presets: Vec<Preset>,
}

impl Judge<'_> {
    fn outcome(&self, need: &Need) -> Outcome {
        match &need.kind {
            NeedKind::Host { site, method, paths } => {
                let answers = paths.iter().map(|path| self.http(site, method, path, None));
                let outcome = worst(answers);
                // npm asks the registry that it is configured with instead of the default one that a lock file names.
                let replaced = outcome.is_gap() && need.ecosystem == "npm" && self.is_default(site, "npm");
                match replaced {
                    true => Some(self.registries("npm"))
                        .filter(|it| !it.is_gap())
                        .unwrap_or(outcome),
                    false => outcome,
                }
            }
            NeedKind::Git {
                site,
                repository,
                access,
            } => self.git(site, repository, *access),
            NeedKind::Registries => self.registries(&need.ecosystem),
            NeedKind::Credential { variable, site } => self.credential(variable.as_deref(), site.as_ref()),
        }
    }

    fn http(&self, site: &Site, method: &str, path: &str, query: Option<&str>) -> Outcome {
        let (Some(destination), Ok(path)) = (site.destination(), CanonicalPath::parse(path)) else {
            return Outcome::Unknown;
        };
        let told = match query {
            Some(query) => format!("{method} {site}{}?{query}", path.as_str()),
            None => format!("{method} {site}{}", path.as_str()),
        };
        let tls = site.scheme == Scheme::Https;
        let moment = Moment::Http(HttpRequest::new(method, path, query.map(str::to_owned), tls));
        self.decide(destination, moment, told)
    }

    fn decide(&self, destination: Destination, moment: Moment, told: String) -> Outcome {
        let request = Request { destination, moment };
        let Against { policy, who, now, .. } = self.against;
        match policy.decide(&request, who, &Overlay::default(), now) {
            Decision::Allow(permit) => Outcome::Met {
                by: permit.rule().to_owned(),
            },
            Decision::Ask(refusal) => Outcome::Ask {
                request: told,
                refusal,
            },
            Decision::Deny(refusal) => Outcome::Refused {
                request: told,
                refusal,
            },
            Decision::Inspect => Outcome::Unknown,
        }
    }

    /// The requests of a fetch or a push (gitprotocol-http).
    fn git(&self, site: &Site, repository: &str, access: GitAccess) -> Outcome {
        let service = match access {
            GitAccess::Read => "git-upload-pack",
            GitAccess::Write => "git-receive-pack",
        };
        if site.scheme != Scheme::Ssh {
            let query = format!("service={service}");
            return worst(
                [
                    self.http(site, "GET", &format!("/{repository}/info/refs"), Some(&query)),
                    self.http(site, "POST", &format!("/{repository}/{service}"), None),
                ]
                .into_iter(),
            );
        }
        let Some(destination) = site.destination() else {
            return Outcome::Unknown;
        };
        let git = GitRequest {
            repository: repository.strip_suffix(".git").unwrap_or(repository).to_owned(),
            access,
            pushed: None,
        };
        let ssh = SshRequest {
            user: "git".to_owned(),
            git: Some(git),
        };
        self.decide(destination, Moment::Ssh(ssh), format!("ssh {site}/{repository}"))
    }

    fn preset(&self, name: &str) -> Option<&Preset> {
        self.presets.iter().find(|preset| preset.name == name)
    }

    /// Whether this is where the ecosystem's packages come from unless something else is configured.
    fn is_default(&self, site: &Site, ecosystem: &str) -> bool {
        self.preset(ecosystem).is_some_and(|preset| preset.has(site))
    }

    /// One host that may be read from is enough: mirrors stand for each other. The machine's own registries serve python and npm.
    fn registries(&self, ecosystem: &str) -> Outcome {
        let of_machine = matches!(ecosystem, "python" | "npm")
            .then(|| self.preset("registries"))
            .flatten();
        let presets = self.preset(ecosystem).into_iter().chain(of_machine);
        let mut first = None;
        for request in presets.flat_map(|preset| &preset.samples) {
            let told = super::presets::told(request);
            match self.decide(request.destination.clone(), request.moment.clone(), told) {
                Outcome::Met { by } => return Outcome::Met { by },
                other => first = first.or(Some(other)),
            }
        }
        first.unwrap_or(Outcome::Unknown)
    }

    fn credential(&self, variable: Option<&str>, site: Option<&Site>) -> Outcome {
        let policy = self.against.policy;
        let destination = site.and_then(Site::destination);
        let fits = |credential: &crate::Credential| match (&credential.env, variable, &destination) {
            (Some(env), Some(variable), _) if env == variable => true,
            (_, None, None) => false,
            (_, _, destination) => destination.as_ref().is_some_and(|it| credential.admits(it)),
        };
        let mut unused = None;
        for (number, credential) in policy.credentials().iter().enumerate().filter(|(_, it)| fits(it)) {
            let goes = policy.rules.iter().any(|rule| {
                let there = destination.as_ref().is_none_or(|to| {
                    rule.hosts.iter().any(|host| host.matches(&to.host)) && credential.admits(to)
                });
                rule.effect == Effect::Allow && rule.uses.contains(&number) && there
            });
            let credential = credential.name.clone();
            if goes {
                return Outcome::Met { by: credential };
            }
            unused = unused.or(Some(credential));
        }
        unused.map_or(Outcome::NoCredential, |credential| Outcome::Unused { credential })
    }
}

/// The answer that stops the work, if there is one.
fn worst(answers: impl Iterator<Item = Outcome>) -> Outcome {
    let rank = |outcome: &Outcome| match outcome {
        Outcome::Met { .. } => 0,
        Outcome::Ask { .. } => 1,
        _ => 2,
    };
    let mut worst: Option<Outcome> = None;
    for answer in answers {
        if worst.as_ref().is_none_or(|so_far| rank(&answer) > rank(so_far)) {
            worst = Some(answer);
        }
    }
    worst.unwrap_or(Outcome::Unknown)
}
