//! One thing that is fetched for one session: its values now, and its life from the first fetch to the last lease given back.
use super::ground::{Ground, Told};
use super::provider::{Fault, Fetched, Lease, Parent, Wanted, kind, shown};
use super::state::{Given, State, Trouble, Unread};
use super::terms::{REVOCATIONS, about_half};
use super::until::Until;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Between two calls for one thing at least, where nothing went wrong.
const LEAST: Duration = Duration::from_millis(250);
/// A renewal that gives less than this part of what was asked for comes near the end of what can be had.
const SHORTENED: f32 = 0.9;

/// One thing.
pub(super) struct Item {
    pub(super) wanted: Wanted,
    kind: &'static str,
    state: Mutex<State>,
    /// Until when the values may be used.
    until: Until,
    /// Whether the first try has come to an end, and who listens has heard of it.
    settled: watch::Sender<bool>,
    ended: CancellationToken,
}

/// How long what was fetched lasts.
struct Term {
    lease: Option<Lease>,
    /// When what was granted is over.
    ends: Option<Instant>,
    parent: Option<watch::Receiver<Parent>>,
}

impl Item {
    /// One that has nothing yet; with what the one before it had, where it takes another's place.
    pub(super) fn new(wanted: Wanted, before: Option<&Item>) -> Self {
        let (mut state, until) = (State::default(), Until::movable());
        if let Some(before) = before {
            let mut had = before.state();
            state.values.clone_from(&had.values);
            state.leases = std::mem::take(&mut had.leases);
            until.set(before.until.moment());
        }
        Self {
            kind: kind(&wanted.from).unwrap_or_default(),
            wanted,
            state: Mutex::new(state),
            until,
            settled: watch::Sender::new(false),
            ended: CancellationToken::new(),
        }
    }

    /// The value of a field, where there is one now.
    pub(super) fn give(&self, field: &str) -> Result<Given, Unread> {
        let state = self.state();
        let over = self.until.is_over();
        if !over && let Some(value) = state.values.get(field) {
            return Ok(Given {
                value: value.clone(),
                until: self.until.clone(),
                trouble: state.trouble.as_ref().map(|trouble| trouble.sentence.clone()),
            });
        }
        let source = shown(&self.wanted.from);
        if !over && !state.values.is_empty() {
            let fields: Vec<_> = state.values.keys().map(String::as_str).collect();
            return Err(Unread::Missing(format!(
                "{source} has no field `{field}` that is a text; it has `{}`",
                fields.join("`, `")
            )));
        }
        match &state.trouble {
            Some(trouble) => Err(Unread::Unavailable {
                sentence: trouble.sentence.clone(),
                again: trouble.again.saturating_duration_since(Instant::now()),
            }),
            None if over => Err(Unread::Unavailable {
                sentence: format!("the time of {source} is over, and it is being fetched anew"),
                again: Duration::from_secs(1),
            }),
            None => Err(Unread::Pending),
        }
    }

    /// Whether the first try has come to an end.
    pub(super) fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// Nobody waits any longer: what has not come is in trouble.
    pub(super) fn is_late(&self, wait: Duration) -> bool {
        let mut state = self.state();
        let late = !*self.settled.borrow() && state.trouble.is_none() && state.values.is_empty();
        if late {
            state.trouble = Some(Trouble {
                sentence: format!(
                    "{} has not answered within {wait:?}; it is waited for",
                    shown(&self.wanted.from)
                ),
                again: Instant::now() + Duration::from_secs(1),
            });
        }
        late
    }

    /// Ends its life: its leases are given back.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Fetches, keeps fresh, and gives everything back when it is ended. A call to the source is never broken off, since its lease would be lost.
    pub(super) async fn live(self: Arc<Self>, ground: Arc<Ground>) {
        while let Some(term) = self.obtain(&ground).await {
            if !self.hold(term, &ground).await {
                break;
            }
        }
        let leases = std::mem::take(&mut self.state().leases);
        let revoking = leases
            .iter()
            .map(|(id, _)| ground.revoke(self.kind, id, REVOCATIONS));
        futures_util::future::join_all(revoking).await;
    }

    /// Fetches, and tries again until it is there; none where it is ended before.
    async fn obtain(&self, ground: &Arc<Ground>) -> Option<Term> {
        let mut waits = ground.terms.waits();
        loop {
            let began = Instant::now();
            match ground.fetch(&self.wanted).await {
                Ok(fetched) => {
                    let term = self.take(fetched, began, ground).await;
                    return (!self.ended.is_cancelled()).then_some(term);
                }
                Err(fault) => {
                    let again = Instant::now() + waits.next().unwrap_or(ground.terms.retry.1);
                    self.trouble(&fault, again, ground).await;
                    if let Woken::Ended = self.wait(again, None, ground).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Takes up what was fetched.
    async fn take(&self, fetched: Fetched, began: Instant, ground: &Ground) -> Term {
        let now = Instant::now();
        let valid_for = match (fetched.valid_for, self.wanted.ttl) {
            (Some(granted), Some(ttl)) => Some(granted.min(ttl)),
            (granted, ttl) => granted.or(ttl),
        };
        let ends = valid_for.map(|span| began + span);
        let (changed, better, gone) = {
            let mut state = self.state();
            let gone: Vec<String> = state
                .leases
                .extract_if(.., |(_, ends)| ends.is_some_and(|ends| ends < now))
                .map(|(id, _)| id)
                .collect();
            if let Some(lease) = &fetched.lease {
                state.leases.push((lease.id.clone(), ends));
            }
            let better = state.trouble.take().is_some();
            let changed = state.replace(fetched.fields);
            (changed, better, gone)
        };
        self.until
            .set(earliest(ends, parent_ends(fetched.parent.as_ref())));
        for lease in gone {
            ground.forget(&lease).await;
        }
        if changed || better || !*self.settled.borrow() {
            let told = better.then(|| Told {
                good: true,
                sentence: format!("{} gives values again", shown(&self.wanted.from)),
            });
            ground.changed(&self.wanted.session, told).await;
        }
        self.settled.send_replace(true);
        Term {
            lease: fetched.lease,
            ends,
            parent: fetched.parent,
        }
    }

    /// Holds what is there until it must be fetched anew: true. False where it is ended before.
    async fn hold(&self, mut term: Term, ground: &Ground) -> bool {
        let mut waits = ground.terms.waits();
        // Where a renewal failed, the moment of the next try.
        let (mut again, mut planned) = (None, None);
        loop {
            let parent = term.parent.as_ref().map(|parent| *parent.borrow());
            let parent = parent.unwrap_or_default();
            let ends = earliest(term.ends, parent.ends);
            self.until.set(ends);
            let renewable = term
                .lease
                .as_ref()
                .filter(|lease| lease.renewable && !parent.last);
            // The parent may itself be made to last longer meanwhile.
            let ours = if parent.last { ends } else { term.ends };
            // A parent that is renewed changes nothing of what was planned.
            let due = match planned.filter(|(known, _)| *known == ours) {
                Some((_, due)) => due,
                None => due(ours, ground.terms.look),
            };
            planned = Some((ours, due));
            let until = again.unwrap_or(due);
            match self.wait(until, term.parent.as_mut(), ground).await {
                Woken::Ended => return false,
                Woken::Parent => continue,
                Woken::Due => {}
            }
            let Some(lease) = renewable.cloned() else {
                return true;
            };
            let began = Instant::now();
            match ground.renew(self.kind, &lease).await {
                Ok(granted) => {
                    again = None;
                    self.renewed(&mut term, (lease, granted), began, ground).await;
                }
                Err(fault) if fault.passing && ends.is_none_or(|ends| ends > Instant::now()) => {
                    let next = Instant::now() + waits.next().unwrap_or(ground.terms.retry.1);
                    let next = ends.map_or(next, |ends| next.min(ends));
                    self.trouble(&fault, next, ground).await;
                    again = Some(next);
                }
                Err(fault) => {
                    self.trouble(&fault, Instant::now(), ground).await;
                    return !self.ended.is_cancelled();
                }
            }
        }
    }

    /// Notes a renewal. One that gives much less than was asked for is the last: what it gave is replaced before it ends.
    async fn renewed(
        &self,
        term: &mut Term,
        (lease, granted): (Lease, Duration),
        began: Instant,
        ground: &Ground,
    ) {
        let ends = began + granted;
        let whole = granted >= lease.span.mul_f32(SHORTENED);
        term.ends = Some(ends);
        let better = {
            let mut state = self.state();
            if let Some(known) = state.leases.iter_mut().find(|(id, _)| *id == lease.id) {
                known.1 = Some(ends);
            }
            state.trouble.take().is_some()
        };
        term.lease = Some(Lease {
            renewable: whole,
            ..lease
        });
        if better {
            let told = Told {
                good: true,
                sentence: format!("the lease of {} is renewed again", shown(&self.wanted.from)),
            };
            ground.changed(&self.wanted.session, Some(told)).await;
        }
    }

    /// Notes what is wrong; tells it when it is another thing than before.
    async fn trouble(&self, fault: &Fault, again: Instant, ground: &Ground) {
        let sentence = fault.to_string();
        let known = {
            let mut state = self.state();
            let known = state
                .trouble
                .as_ref()
                .is_some_and(|known| known.sentence == sentence);
            state.trouble = Some(Trouble {
                sentence: sentence.clone(),
                again,
            });
            known
        };
        if !known {
            ground
                .changed(
                    &self.wanted.session,
                    Some(Told {
                        good: false,
                        sentence,
                    }),
                )
                .await;
        }
        self.settled.send_replace(true);
    }

    /// Waits, unless the parent's life changes first or all is ended. Tells on the way when the values' time is over.
    async fn wait(
        &self,
        until: Instant,
        mut parent: Option<&mut watch::Receiver<Parent>>,
        ground: &Ground,
    ) -> Woken {
        loop {
            self.tell_of_its_end(ground).await;
            let now = Instant::now();
            let over = self.until.moment().filter(|over| *over > now && *over <= until);
            tokio::select! {
                () = self.ended.cancelled() => return Woken::Ended,
                () = moved(parent.as_deref_mut()) => return Woken::Parent,
                () = sleep_until(over.unwrap_or(until)) => {}
            }
            if over.is_none() {
                return Woken::Due;
            }
        }
    }

    /// Says once that the values' time is over.
    async fn tell_of_its_end(&self, ground: &Ground) {
        let over = self.until.is_over();
        if std::mem::replace(&mut self.state().over, over) || !over {
            return;
        }
        let told = Told {
            good: false,
            sentence: format!(
                "the time of {} is over, and its source gives no other: it is not used any more",
                shown(&self.wanted.from)
            ),
        };
        ground.changed(&self.wanted.session, Some(told)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a wait has ended.
enum Woken {
    Ended,
    Parent,
    Due,
}

/// Ends when the parent's life is another than it was; never without a parent, or with one that is gone.
async fn moved(parent: Option<&mut watch::Receiver<Parent>>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    if parent.changed().await.is_err() {
        std::future::pending().await
    }
}

/// When what ends then is renewed or replaced; what has no end is looked at about each `look`.
fn due(ends: Option<Instant>, look: Duration) -> Instant {
    let now = Instant::now();
    match ends {
        Some(ends) => now + about_half(ends.saturating_duration_since(now)).max(LEAST),
        None => now + about_half(look.saturating_mul(2)),
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

fn parent_ends(parent: Option<&watch::Receiver<Parent>>) -> Option<Instant> {
    parent.and_then(|parent| parent.borrow().ends)
}
