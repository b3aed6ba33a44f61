//! What may be granted to an agent that asks: by the policy itself, or by a person.
use crate::document::{DefaultPart, Effect, GrantScope, TermsPart};
use crate::layer::Layers;
use crate::rule::Rule;
use crate::{CanonicalPath, Destination, Grant, GrantRefused, Host, Policy, Wanted, Who};

/// How much of what is wanted a rule speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    None,
    Part,
    Whole,
}

/// What is wanted, read and in canonical form.
struct Asked<'a> {
    destination: Destination,
    method: Option<&'a str>,
    path: Option<CanonicalPath>,
}

impl Policy {
    /// What the policy itself grants to an agent that asks: a `grantable: {by: rule}` part, narrowed to what was asked.
    /// The id is empty: who stores the grant gives it one.
    pub fn grant(&self, wanted: &Wanted, who: &Who, now: jiff::Timestamp) -> Result<Grant, GrantRefused> {
        if wanted.credential.is_some() {
            return self.lend(wanted, who, now, None);
        }
        let asked = read(wanted)?;
        let (rule, terms) = self.refusing(&asked, who, now)?;
        if !terms.by_rule {
            return Err(GrantRefused::NeedsPerson {
                rule: rule.id.clone(),
                approvers: terms.approvers.clone(),
            });
        }
        make(rule, terms, &asked, now, "policy")
    }

    /// What a person's yes means: the grant for an `ask` rule or `grantable: {by: person}`, on the terms of that rule.
    /// `by` is that person. The id is empty. Where no person is needed, the answer is as of [`Policy::grant`].
    pub fn grant_by_person(
        &self,
        wanted: &Wanted,
        who: &Who,
        now: jiff::Timestamp,
        by: &str,
    ) -> Result<Grant, GrantRefused> {
        if wanted.credential.is_some() {
            return self.lend(wanted, who, now, Some(by));
        }
        let asked = read(wanted)?;
        let (rule, terms) = self.refusing(&asked, who, now)?;
        make(
            rule,
            terms,
            &asked,
            now,
            if terms.by_rule { "policy" } else { by },
        )
    }

    /// Who may agree to lift the rule of this id, as `team:NAME` or `user:NAME`; none means whoever may approve at all. To check
    /// it is the caller's business.
    pub fn approvers(&self, rule: &str) -> &[String] {
        let rule = self.rules.iter().find(|own| own.id == rule);
        rule.and_then(|rule| rule.terms.as_ref())
            .map_or(&[], |terms| &terms.approvers)
    }

    /// The rule whose refusal stands in the way and may be lifted, with its terms: that of the uppermost layer that refuses.
    fn refusing(
        &self,
        asked: &Asked<'_>,
        who: &Who,
        now: jiff::Timestamp,
    ) -> Result<(&Rule, &TermsPart), GrantRefused> {
        let mut spoken: Vec<(&Rule, Reach)> = Vec::new();
        for number in self.index.candidates(&asked.destination.host) {
            let Some(rule) = self.rule(number) else {
                continue;
            };
            match reach(rule, asked, who) {
                Reach::None => {}
                _ if !rule.is_in_force(now) || (rule.observe && rule.effect != Effect::Allow) => {}
                reach => spoken.push((rule, reach)),
            }
        }
        let special = crate::wording::is_special(&asked.destination.host);
        let mut standing: Vec<Refused<'_>> = Vec::new();
        let mut allowed = "default";
        for plan in &self.layers {
            let own: Vec<(&Rule, Reach)> = spoken
                .iter()
                .filter(|(rule, _)| rule.layer == plan.layer)
                .copied()
                .collect();
            let allow = own.iter().find(|(rule, _)| rule.effect == Effect::Allow);
            let rule = refusing_rule(&own);
            let enforces = !plan.observe || special;
            if rule.map_or(allow.is_some(), |rule| enforces && rule.terms.is_some()) {
                standing.retain(|above| !above.widen.contains(plan.layer));
            }
            match (rule, allow) {
                _ if !enforces => {}
                (Some(rule), _) => standing.push(Refused {
                    rule: Some(rule),
                    widen: rule.widen.iter().copied().collect(),
                }),
                (None, Some((rule, _))) => allowed = &rule.id,
                (None, None) if plan.default == DefaultPart::Inherit => {}
                (None, None) if plan.default == DefaultPart::Allow && !special => {}
                (None, None) => standing.push(Refused {
                    rule: None,
                    widen: plan.reach,
                }),
            }
        }
        let Some(first) = standing.first() else {
            return Err(GrantRefused::AlreadyAllowed {
                rule: allowed.to_owned(),
            });
        };
        // A grant for one refusal helps only where the others can be lifted too.
        match standing.iter().find(|refused| refused.terms().is_none()) {
            Some(fixed) => Err(GrantRefused::NotGrantable {
                rule: fixed.rule.map_or("default", |rule| &rule.id).to_owned(),
            }),
            None => first.terms().ok_or_else(|| GrantRefused::NotGrantable {
                rule: "default".to_owned(),
            }),
        }
    }
}

/// A refusal of one layer.
struct Refused<'p> {
    /// None where no rule names what is wanted.
    rule: Option<&'p Rule>,
    /// The layers below that may allow it all the same.
    widen: Layers,
}

impl<'p> Refused<'p> {
    fn terms(&self) -> Option<(&'p Rule, &'p TermsPart)> {
        let rule = self.rule?;
        Some((rule, rule.terms.as_ref()?))
    }
}

/// The rule of one layer whose refusal must be lifted first. What is denied as a whole needs its hardest refusal lifted; a
/// narrower one stands only for its part.
fn refusing_rule<'p>(own: &[(&'p Rule, Reach)]) -> Option<&'p Rule> {
    let of = |effect: Effect| own.iter().filter(move |(rule, _)| rule.effect == effect);
    let whole = of(Effect::Deny)
        .filter(|(_, reach)| *reach == Reach::Whole)
        .map(|(rule, _)| *rule);
    let part = of(Effect::Deny)
        .filter(|(rule, reach)| *reach == Reach::Part && rule.terms.is_some())
        .map(|(rule, _)| *rule);
    let hardest = |rule: &&Rule| {
        rule.terms
            .as_ref()
            .map_or(0, |terms| if terms.by_rule { 2 } else { 1 })
    };
    whole
        .min_by_key(hardest)
        .or_else(|| part.max_by_key(hardest))
        .or_else(|| of(Effect::Ask).map(|(rule, _)| *rule).next())
}

fn read(wanted: &Wanted) -> Result<Asked<'_>, GrantRefused> {
    let malformed = |why: String| GrantRefused::Malformed { why };
    let host = Host::parse(&wanted.host).map_err(|fault| malformed(fault.to_string()))?;
    if wanted.port == 0 {
        return Err(malformed("port 0 is not a port".into()));
    }
    if let Some(method) = &wanted.method
        && (method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-'))
    {
        return Err(malformed(format!(
            "`{}` is not a method; write it in capitals",
            crate::host::shown(method)
        )));
    }
    let path = wanted
        .path
        .as_deref()
        .map(read_path)
        .transpose()
        .map_err(malformed)?;
    Ok(Asked {
        destination: Destination {
            host,
            port: wanted.port,
        },
        method: wanted.method.as_deref(),
        path,
    })
}

/// One path, not a pattern: an agent asks for what it needs.
fn read_path(raw: &str) -> Result<CanonicalPath, String> {
    let raw = raw.split(['?', '#']).next().unwrap_or_default();
    let path = CanonicalPath::parse(raw).map_err(|fault| fault.to_string())?;
    if let Some(reason) = path.ambiguity() {
        return Err(format!(
            "the path can be read in more than one way: {reason}; ask without a path"
        ));
    }
    if path.as_str().contains('*') {
        return Err("the path has a `*`; ask for one path, or without a path".into());
    }
    Ok(path)
}

fn reach(rule: &Rule, asked: &Asked<'_>, who: &Who) -> Reach {
    if rule.misses_place(&asked.destination, who).is_some() {
        return Reach::None;
    }
    // Who asks names host, port, method and path: what else a rule looks at may turn out either way.
    let mut whole = !rule.looks_further();
    if !rule.methods.is_empty() {
        match asked.method {
            Some(method) if rule.methods.iter().any(|own| own == method) => {}
            Some(_) => return Reach::None,
            None => whole = false,
        }
    }
    if !rule.paths.is_empty() {
        match &asked.path {
            Some(path) if rule.paths.iter().any(|own| own.matches(path)) => {}
            Some(_) => return Reach::None,
            None => whole = false,
        }
    }
    if whole { Reach::Whole } else { Reach::Part }
}

fn make(
    rule: &Rule,
    terms: &TermsPart,
    asked: &Asked<'_>,
    now: jiff::Timestamp,
    by: &str,
) -> Result<Grant, GrantRefused> {
    if let Host::Address(address) = asked.destination.host
        && rule.closed_address(address).is_some()
    {
        return Err(GrantRefused::NotGrantable {
            rule: rule.id.clone(),
        });
    }
    if terms.scope == GrantScope::Request && (asked.method.is_none() || asked.path.is_none()) {
        return Err(GrantRefused::Malformed {
            why: format!(
                "rule `{}` is lifted for single requests only; name a method and a path",
                rule.id
            ),
        });
    }
    let expires_at = now
        .checked_add(terms.expires)
        .map_err(|_| GrantRefused::Malformed {
            why: "the grant would end beyond the calendar".into(),
        })?;
    Ok(Grant {
        id: String::new(),
        rule: rule.id.clone(),
        credential: None,
        host: asked.destination.host.to_string(),
        port: asked.destination.port,
        methods: asked.method.map(str::to_owned).into_iter().collect(),
        path: asked.path.as_ref().map(|path| path.as_str().to_owned()),
        uses: terms.uses,
        expires_at,
        by: by.to_owned(),
    })
}
