//! Deciding: every rule that names the host is weighed; deny beats ask beats allow, and a layer only narrows the one above.
use crate::decision::Numbers;
use crate::document::DefaultPart;
use crate::layer::Layers;
use crate::leaks::Leaks;
use crate::policy::LayerPlan;
use crate::rule::Rule;
use crate::weighing::{Mode, Question, Standing, Weighed};
use crate::wording;
use crate::{Decision, Moment, Overlay, Permit, Policy, Protocol, Reason, Refusal, Remedy, Request, Who};
use smallvec::SmallVec;

/// What all layers say together.
struct Verdict {
    /// From the uppermost layer down.
    standing: SmallVec<[Standing; 4]>,
    /// The layers that let pass, or may.
    deciding: Layers,
    /// One of them lets pass TLS unread and no more.
    only_tls: bool,
    /// One of them does not know yet.
    unsure: bool,
    /// The rule of the lowest layer that lets pass by one.
    first: Option<u32>,
}

impl Policy {
    /// Decides. Total: every request has an answer, and what no rule names gets the default. An answer that rests on rules
    /// alone is made without allocating.
    pub fn decide(&self, request: &Request, who: &Who, overlay: &Overlay, now: jiff::Timestamp) -> Decision {
        let question = Question {
            request,
            who,
            overlay,
            now,
            without: &[],
        };
        self.answer(question)
    }

    pub(crate) fn answer(&self, question: Question<'_>) -> Decision {
        self.answer_from(&self.weigh(question), question)
    }

    fn answer_from(&self, weighed: &Weighed<'_>, question: Question<'_>) -> Decision {
        let verdict = self.combine(weighed, question.request);
        self.conclude(weighed, &verdict, question)
    }

    fn weigh<'q>(&self, question: Question<'q>) -> Weighed<'q> {
        let mut weighed = Weighed::default();
        let each_counts = !question.overlay.grants.is_empty() || !question.without.is_empty();
        let Request { destination, moment } = question.request;
        self.index.each(&destination.host, moment, each_counts, |number| {
            if let Some(rule) = self.rule(number)
                && !question.without.contains(&number)
            {
                let fit = rule.fit_here(question.request, question.who, question.now);
                weighed.add(number, rule, fit, question);
            }
        });
        weighed
    }

    /// From the ceiling down: what a layer refuses stays refused, except where it says itself that a layer below may allow it.
    fn combine(&self, weighed: &Weighed<'_>, request: &Request) -> Verdict {
        let mut verdict = Verdict {
            standing: SmallVec::new(),
            deciding: Layers::default(),
            only_tls: false,
            unsure: false,
            first: None,
        };
        for plan in &self.layers {
            verdict.unsure |= weighed.said(plan.layer).look;
            verdict.narrow(plan, weighed, request);
        }
        verdict
    }

    fn conclude(&self, weighed: &Weighed<'_>, verdict: &Verdict, question: Question<'_>) -> Decision {
        let request = question.request;
        if let Some(standing) = verdict.hardest(Mode::Enforced) {
            let refusal = self.refusal(standing, verdict, weighed, question);
            return match standing.asks {
                true => Decision::Ask(refusal),
                false => Decision::Deny(refusal),
            };
        }
        let observed = verdict.hardest(Mode::Observed);
        if verdict.unsure || (observed.is_some() && request.moment == Moment::Connect) {
            return Decision::Inspect;
        }
        let mut permit = self.permit(weighed, verdict, question);
        if observed.is_some() {
            permit.carries = false;
            permit.deciding = Layers::default();
        }
        if let Some(standing) = observed.or_else(|| verdict.hardest(Mode::Told)) {
            permit.observed = Some(Box::new(self.refusal(standing, verdict, weighed, question)));
        }
        Decision::Allow(permit)
    }

    fn permit(&self, weighed: &Weighed<'_>, verdict: &Verdict, question: Question<'_>) -> Permit {
        let request = question.request;
        let (lifted, grant) = weighed.lifted.first().copied().unzip();
        Permit {
            destination: request.destination.clone(),
            protocol: match &request.moment {
                Moment::Http(_) => Protocol::Http,
                Moment::Connect if verdict.only_tls => Protocol::Tls,
                Moment::Connect | Moment::Opaque => Protocol::Tcp,
                Moment::Ssh(_) => Protocol::Ssh,
                Moment::Postgres(_) => Protocol::Postgres,
            },
            rules: self.rules.clone(),
            bindings: self.credentials.clone(),
            lent: self.lent(question),
            first: lifted.or(verdict.first),
            telling: Numbers::from_slice(&weighed.telling),
            carries: match &request.moment {
                Moment::Http(http) => http.tls,
                Moment::Ssh(_) | Moment::Postgres(_) => true,
                Moment::Connect | Moment::Opaque => false,
            },
            leaks: self.leaks(weighed),
            deciding: verdict.deciding,
            grants: used_up(weighed),
            lifted: grant.map(|grant| Box::new(grant.clone())),
            observed: None,
        }
    }

    /// What allowing rules and all layers say of secrets.
    fn leaks(&self, weighed: &Weighed<'_>) -> Leaks {
        let rules = weighed.telling.iter().filter_map(|number| self.rule(*number));
        let said = rules.map(|rule| rule.leaks);
        let plans = self.layers.iter().map(|plan| plan.leaks);
        said.chain(plans).fold(Leaks::default(), Leaks::and)
    }

    fn refusal(
        &self,
        standing: &Standing,
        verdict: &Verdict,
        weighed: &Weighed<'_>,
        question: Question<'_>,
    ) -> Refusal {
        let request = question.request;
        let named = standing
            .rule
            .and_then(|(number, fit)| Some((self.rule(number)?, fit)));
        let Some((rule, fit)) = named else {
            let near = weighed
                .said(standing.layer)
                .near
                .and_then(|number| self.rule(number));
            let near = near.map(|rule| (rule, rule.fit(request, question.who, question.now)));
            let layer = (self.layers.len() > 1).then_some(standing.layer);
            return Refusal {
                reason: Reason {
                    rule: "default".into(),
                    text: wording::unnamed(request, near, layer),
                },
                remedy: Remedy::None,
                hint: None,
            };
        };
        Refusal {
            reason: Reason {
                rule: rule.id.clone(),
                text: wording::refused(rule, fit, request),
            },
            remedy: remedy(rule, standing, verdict, request),
            hint: rule.hint.clone(),
        }
    }

    pub(crate) fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }
}

/// Each once, also where it lifts a preset's rule in several layers.
fn used_up(weighed: &Weighed<'_>) -> Vec<String> {
    let mut ids: Vec<String> = Vec::with_capacity(weighed.lifted.len());
    for (_, grant) in &weighed.lifted {
        if !ids.contains(&grant.id) {
            ids.push(grant.id.clone());
        }
    }
    ids
}

/// Asking helps only where a grant would lift this very refusal, and others can be lifted too.
fn remedy(rule: &Rule, standing: &Standing, verdict: &Verdict, request: &Request) -> Remedy {
    let beyond_help = |other: &Standing| other.mode == Mode::Enforced && other.ease == 0;
    let unread = request.moment == Moment::Opaque && rule.protocol != Some(Protocol::Tcp);
    match standing.ease {
        _ if unread || verdict.standing.iter().any(beyond_help) => Remedy::None,
        0 => Remedy::None,
        1 => Remedy::AskPerson,
        _ => Remedy::RequestAccess,
    }
}

impl Verdict {
    /// Puts the next layer under those above.
    fn narrow(&mut self, plan: &LayerPlan, weighed: &Weighed<'_>, request: &Request) {
        let layer = plan.layer;
        let said = weighed.said(layer);
        let enforces = !plan.observe || wording::is_special(&request.destination.host);
        let mode = |own: Mode| match own {
            Mode::Enforced if !enforces => Mode::Observed,
            own => own,
        };
        let own = || weighed.refusals.iter().filter(move |own| own.layer == layer);
        let refuses = own().any(|own| own.mode == Mode::Enforced);
        let liftable = own().all(|own| own.mode != Mode::Enforced || own.ease > 0);
        let mut below = Layers::from_iter(crate::Layer::ALL);
        let explicit = if refuses {
            liftable && enforces
        } else {
            said.passes() || said.hope
        };
        if explicit {
            // What the layers above leave to this one is now its own affair, and that of those to whom both leave it.
            let mut cut = below;
            self.standing.retain(|above| {
                let left = above.widen.contains(layer);
                if left {
                    cut = cut.and(above.widen);
                }
                !left
            });
            below = cut;
        }
        self.standing.extend(own().map(|own| Standing {
            widen: own.widen.and(below),
            mode: mode(own.mode),
            ..*own
        }));
        if refuses {
            return;
        }
        if said.passes() || said.hope {
            self.pass(layer, weighed);
            return;
        }
        let by_default = match plan.default {
            DefaultPart::Inherit => return,
            DefaultPart::Allow => !wording::is_special(&request.destination.host),
            DefaultPart::Deny => false,
        };
        match request.moment {
            Moment::Connect if by_default => {
                self.deciding.insert(layer);
                self.unsure = true;
            }
            Moment::Http(_) if by_default => self.deciding.insert(layer),
            _ => self.standing.push(Standing {
                rule: None,
                layer,
                asks: false,
                ease: 0,
                widen: plan.reach.or(said.left),
                mode: mode(Mode::Enforced),
            }),
        }
    }

    /// A rule of this layer lets pass, or may.
    fn pass(&mut self, layer: crate::Layer, weighed: &Weighed<'_>) {
        let said = weighed.said(layer);
        self.deciding.insert(layer);
        self.only_tls |= said.allow.is_some() && !said.beyond_tls;
        self.unsure |= !said.passes();
        self.first = said.allow.or(self.first);
    }

    /// The refusal to tell: of the uppermost layer, the one that stands longest, since lifting an easier one would help nobody.
    fn hardest(&self, mode: Mode) -> Option<&Standing> {
        self.standing
            .iter()
            .filter(|standing| standing.mode == mode)
            .min_by_key(|it| (it.asks, it.layer, it.ease, it.rule.map(|(number, _)| number)))
    }
}

#[cfg(test)]
mod tests;
