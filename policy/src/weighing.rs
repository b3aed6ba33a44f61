//! Weighing: what each layer's rules make of one request, in a small state of fixed size.
use crate::document::{Effect, TermsPart};
use crate::layer::Layers;
use crate::rule::{Fit, Rule};
use crate::{Grant, Layer, Moment, Overlay, Protocol, Request, Who};
use smallvec::SmallVec;

/// What is asked, in one piece.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) request: &'a Request,
    pub(crate) who: &'a Who,
    pub(crate) overlay: &'a Overlay,
    pub(crate) now: jiff::Timestamp,
    /// Rules that are to be left out, by number; for the question what would be without them.
    pub(crate) without: &'a [u32],
}

/// All that the rules say. Adding a rule twice, or rules in another order, changes nothing.
#[derive(Default)]
pub(crate) struct Weighed<'q> {
    said: [Said; Layer::ALL.len()],
    /// One for each kind of refusal in each layer: the first rule.
    pub(crate) refusals: SmallVec<[Standing; 4]>,
    /// Allowing or lifted rules that say more than that, in the policy's order.
    pub(crate) telling: SmallVec<[u32; 8]>,
    /// In the policy's order.
    pub(crate) lifted: Vec<(u32, &'q Grant)>,
}

/// What the rules of one layer say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    /// The first rule that allows.
    pub(crate) allow: Option<u32>,
    /// One that allows lets pass more than TLS unread.
    pub(crate) beyond_tls: bool,
    /// A grant lifts a refusal.
    pub(crate) lifted: bool,
    /// Something may allow once more is known.
    pub(crate) hope: bool,
    /// Something must be seen before anything may pass.
    pub(crate) look: bool,
    /// The layers below that may allow what a rule refuses that does not know yet.
    pub(crate) left: Layers,
    /// The first rule that allows something on this host, but not this.
    pub(crate) near: Option<u32>,
}

impl Said {
    /// Whether something here lets this pass.
    pub(crate) fn passes(&self) -> bool {
        self.allow.is_some() || self.lifted
    }
}

/// A refusal that stands unless a layer below may do more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The rule, with how it fits; none where no rule names the request.
    pub(crate) rule: Option<(u32, Fit)>,
    pub(crate) layer: Layer,
    /// A person's yes is all that is missing.
    pub(crate) asks: bool,
    /// 0: no grant lifts it; 1: a person's does; 2: the policy's own.
    pub(crate) ease: u8,
    pub(crate) widen: Layers,
    pub(crate) mode: Mode,
}

/// What becomes of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It refuses.
    Enforced,
    /// The layer lets pass what it refuses, and tells.
    Observed,
    /// The rule does not decide; what it would have refused is told.
    Told,
}

impl<'q> Weighed<'q> {
    pub(crate) fn said(&self, layer: Layer) -> &Said {
        &self.said[layer as usize]
    }

    /// Adds what a rule that names the host makes of the request.
    pub(crate) fn add(&mut self, number: u32, rule: &Rule, fit: Fit, question: Question<'q>) {
        let at_connect = question.request.moment == Moment::Connect;
        let said = &mut self.said[rule.layer as usize];
        match (rule.effect, fit) {
            (Effect::Allow, Fit::Miss(_)) => first(&mut said.near, number),
            (_, Fit::Miss(_)) => {}
            (Effect::Allow, Fit::Later) => {
                said.hope = true;
                said.look = true;
            }
            (Effect::Allow, _) => {
                first(&mut said.allow, number);
                said.beyond_tls |= rule.protocol != Some(Protocol::Tls);
                self.tell(number, rule);
            }
            (_, Fit::Later) if rule.observe => {}
            (_, fit) if rule.observe => self.refuse(number, rule, fit, Mode::Told),
            (effect, Fit::Later) => {
                said.look = true;
                said.left = said.left.or(rule.widen.iter().copied().collect());
                said.hope |= effect == Effect::Ask || (at_connect && granted(rule, question).is_some());
            }
            // Whether a person is needed can be told more readably once the request is there.
            (Effect::Ask, Fit::Full) if at_connect => {
                said.hope = true;
                said.look = true;
            }
            _ => self.refuse_unless_granted(number, rule, fit, question),
        }
    }

    fn refuse_unless_granted(&mut self, number: u32, rule: &Rule, fit: Fit, question: Question<'q>) {
        let grant = (fit == Fit::Full).then(|| granted(rule, question)).flatten();
        let said = &mut self.said[rule.layer as usize];
        match (grant, &question.request.moment) {
            (None, _) => self.refuse(number, rule, fit, Mode::Enforced),
            (Some(_), Moment::Connect) => {
                said.hope = true;
                said.look = true;
            }
            (Some(_), Moment::Opaque) if rule.protocol != Some(Protocol::Tcp) => {
                self.refuse(number, rule, fit, Mode::Enforced)
            }
            (Some(grant), _) => {
                said.lifted = true;
                self.tell(number, rule);
                if let Err(at) = self.lifted.binary_search_by_key(&number, |(number, _)| *number) {
                    self.lifted.insert(at, (number, grant));
                }
            }
        }
    }

    fn refuse(&mut self, number: u32, rule: &Rule, fit: Fit, mode: Mode) {
        let new = Standing {
            rule: Some((number, fit)),
            layer: rule.layer,
            asks: rule.effect == Effect::Ask && fit == Fit::Full,
            ease: match rule.terms {
                Some(TermsPart { by_rule, .. }) if fit == Fit::Full => 1 + u8::from(by_rule),
                _ => 0,
            },
            widen: rule.widen.iter().copied().collect(),
            mode,
        };
        let kind = |it: &Standing| (it.layer, it.asks, it.ease, it.widen, it.mode);
        match self.refusals.iter_mut().find(|old| kind(old) == kind(&new)) {
            Some(old) if old.rule.is_some_and(|(first, _)| number < first) => *old = new,
            Some(_) => {}
            None => self.refusals.push(new),
        }
    }

    /// Notes a rule whose permission says more than that something may pass.
    fn tell(&mut self, number: u32, rule: &Rule) {
        let silent = rule.uses.is_empty() && rule.limits.is_none() && rule.private.is_empty();
        if silent && rule.leaks.is_silent() {
            return;
        }
        if let Err(at) = self.telling.binary_search(&number) {
            self.telling.insert(at, number);
        }
    }
}

fn first(slot: &mut Option<u32>, number: u32) {
    *slot = Some(slot.map_or(number, |earlier| earlier.min(number)));
}

/// The grant that lifts this rule's refusal of this request.
pub(crate) fn granted<'q>(rule: &Rule, question: Question<'q>) -> Option<&'q Grant> {
    let destination = &question.request.destination;
    if let crate::Host::Address(address) = destination.host
        && rule.closed_address(address).is_some()
    {
        return None;
    }
    question.overlay.grants.iter().find(|grant| {
        grant.credential.is_none()
            && grant.rule == rule.id
            && grant.is_live(question.now)
            && grant.covers(question.request)
    })
}
