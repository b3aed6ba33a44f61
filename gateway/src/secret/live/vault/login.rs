//! The gateway's own token: got by a log-in, renewed, and replaced by another log-in before its end.
use super::call::{Call, Caller, told};
use super::settings::{AppRole, Auth, Checked};
use crate::secret::Value;
use crate::secret::live::own::{Named, Own};
use crate::secret::live::provider::{Fault, Parent};
use crate::secret::live::terms::{Terms, about_half, bounded};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use vaultrs::api::AuthInfo;

/// A renewal that gives less than this part of the first span is the last.
const SHORTENED: f32 = 0.9;
/// Between two renewals at least.
const LEAST: Duration = Duration::from_millis(100);

/// One token.
pub(super) struct Login {
    token: Option<Value>,
    life: watch::Sender<Parent>,
}

impl Login {
    pub(super) fn token(&self) -> Option<&Value> {
        self.token.as_ref()
    }

    /// What hangs on it ends with it.
    pub(super) fn parent(&self) -> watch::Receiver<Parent> {
        self.life.subscribe()
    }
}

/// The token of today, or why there is none.
type Now = Result<Arc<Login>, Fault>;

/// Logs in, and stays so, until it is dropped.
pub(super) struct Logins {
    now: watch::Receiver<Option<Now>>,
    doubt: Arc<Notify>,
    _life: DropGuard,
}

/// What a log-in needs.
struct Door {
    settings: Arc<Checked>,
    caller: Arc<Caller>,
    own: Arc<Own>,
    terms: Terms,
    /// The secret id that was in a wrapping token, which can be opened once.
    unwrapped: Mutex<Option<(Value, Arc<Value>)>>,
}

/// How long a token lasts.
#[derive(Clone, Copy)]
struct Span {
    whole: Duration,
    ends: Instant,
    renewable: bool,
}

impl Logins {
    /// Begins; inside a tokio runtime.
    pub(super) fn start(
        settings: Arc<Checked>,
        caller: Arc<Caller>,
        (own, terms): (Arc<Own>, Terms),
    ) -> Self {
        let (show, now) = watch::channel(None);
        let doubt = Arc::new(Notify::new());
        let life = CancellationToken::new();
        let door = Door {
            settings,
            caller,
            own,
            terms,
            unwrapped: Mutex::new(None),
        };
        let (doubted, ended) = (doubt.clone(), life.clone());
        tokio::spawn(async move { ended.run_until_cancelled(door.live(show, &doubted)).await });
        Self {
            now,
            doubt,
            _life: life.drop_guard(),
        }
    }

    /// The token of today; waits for the first log-in to come to an end.
    pub(super) async fn now(&self) -> Now {
        let mut now = self.now.clone();
        let now = now.wait_for(Option::is_some).await;
        match now.as_deref() {
            Ok(Some(now)) => now.clone(),
            _ => Err(Fault::passing("the gateway is not logged in to Vault")),
        }
    }

    /// Vault refused the token: it is looked at.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Why nobody gets anything, for operators.
    pub(super) fn fault(&self) -> Option<String> {
        match &*self.now.borrow() {
            Some(Err(fault)) => Some(format!("no secrets from Vault: {fault}")),
            _ => None,
        }
    }
}

impl Door {
    /// Logs in again and again; never ends.
    async fn live(self, show: watch::Sender<Option<Now>>, doubted: &Notify) {
        let mut waits = self.terms.waits();
        let mut before: Option<(Arc<Login>, Instant)> = None;
        loop {
            match self.log_in().await {
                Ok((token, span)) => {
                    waits = self.terms.waits();
                    let life = watch::Sender::new(Parent {
                        ends: span.map(|span| span.ends),
                        last: false,
                    });
                    let login = Arc::new(Login { token, life });
                    show.send_replace(Some(Ok(login.clone())));
                    if let Some((before, _)) = before.take() {
                        // What hangs on it is made anew under this one.
                        before.life.send_modify(|life| life.last = true);
                    }
                    tracing::info!("logged in to Vault");
                    let ends = self.stay(&login, span, doubted).await;
                    before = Some((login, ends));
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the log-in to Vault failed");
                    let next = Instant::now() + waits.next().unwrap_or(self.terms.retry.1);
                    // A token that lasts still serves.
                    match before
                        .as_ref()
                        .map(|(_, ends)| *ends)
                        .filter(|ends| *ends > Instant::now())
                    {
                        Some(ends) if ends > next => sleep_until(next).await,
                        ends => {
                            sleep_until(ends.unwrap_or_else(Instant::now)).await;
                            show.send_replace(Some(Err(fault)));
                            sleep_until(next).await;
                        }
                    }
                }
            }
        }
    }

    /// Renews a token until another log-in is due; gives the token's end.
    async fn stay(&self, login: &Login, span: Option<Span>, doubted: &Notify) -> Instant {
        let Some(mut span) = span else {
            // It has no end; it may be revoked.
            loop {
                doubted.notified().await;
                if self.is_refused(login).await {
                    return Instant::now();
                }
            }
        };
        let mut waits = self.terms.waits();
        let mut due = soon(span.ends);
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                () = doubted.notified() => {
                    if self.is_refused(login).await {
                        login.life.send_modify(|life| life.ends = Some(Instant::now()));
                        return Instant::now();
                    }
                    continue;
                }
            }
            if !span.renewable {
                if let Auth::Token(_) = self.settings.auth {
                    tracing::warn!(
                        "the token for Vault ends soon and cannot be renewed; put another one in its place"
                    );
                    sleep_until(span.ends).await;
                }
                return span.ends;
            }
            let began = Instant::now();
            match self.renew(login).await {
                Ok(granted) => {
                    span.ends = began + granted;
                    span.renewable = granted >= span.whole.mul_f32(SHORTENED);
                    login.life.send_modify(|life| life.ends = Some(span.ends));
                    waits = self.terms.waits();
                    due = soon(span.ends);
                }
                Err(fault) if fault.passing && Instant::now() < span.ends => {
                    tracing::warn!(%fault, "the token for Vault was not renewed yet");
                    let next = Instant::now() + waits.next().unwrap_or(self.terms.retry.1);
                    due = next.min(span.ends);
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the token for Vault cannot be renewed; it is logged in anew");
                    return span.ends;
                }
            }
        }
    }

    async fn renew(&self, login: &Login) -> Result<Duration, Fault> {
        let call = Call::write("auth/token/renew-self", json!({}));
        let asked = timeout(self.terms.call, self.caller.ask(&call, login.token())).await;
        let answer = asked.map_err(|_| Fault::passing("Vault does not answer"))??;
        Ok(bounded(answer.token_for()))
    }

    /// Whether Vault knows the token no more.
    async fn is_refused(&self, login: &Login) -> bool {
        let call = Call::read("auth/token/lookup-self");
        let asked = timeout(self.terms.call, self.caller.ask(&call, login.token())).await;
        matches!(asked, Ok(Err(refused)) if refused.status == Some(403))
    }

    async fn log_in(&self) -> Result<(Option<Value>, Option<Span>), Fault> {
        let limit = self.terms.call;
        let done = timeout(limit, self.try_to()).await;
        done.unwrap_or_else(|_| Err(Fault::passing(format!("Vault did not answer within {limit:?}"))))
    }

    async fn try_to(&self) -> Result<(Option<Value>, Option<Span>), Fault> {
        let began = Instant::now();
        let granted = match &self.settings.auth {
            Auth::Token(named) => return self.own_token(named, began).await,
            Auth::Approle(role) => {
                let secret_id = self.secret_id(role).await?;
                let client = self.caller.client(None)?;
                let logging_in =
                    vaultrs::auth::approle::login(&client, &role.mount, &role.role_id, text(&secret_id)?);
                logging_in.with_subscriber(NoSubscriber::default()).await
            }
            Auth::Kubernetes(account) => {
                let (client, jwt) = (self.caller.client(None)?, self.read(&account.jwt).await?);
                let logging_in =
                    vaultrs::auth::kubernetes::login(&client, &account.mount, &account.role, text(&jwt)?);
                logging_in.with_subscriber(NoSubscriber::default()).await
            }
            Auth::Jwt(own) => {
                let (client, jwt) = (self.caller.client(None)?, self.read(&own.jwt).await?);
                let role = Some(own.role.clone());
                let logging_in = vaultrs::auth::oidc::login(&client, &own.mount, text(&jwt)?, role);
                logging_in.with_subscriber(NoSubscriber::default()).await
            }
        };
        let granted = granted.map_err(|error| told("the log-in", error))?;
        Ok(taken(granted, began))
    }

    /// A token that the operator made; how long it lasts is looked up.
    async fn own_token(&self, named: &Named, began: Instant) -> Result<(Option<Value>, Option<Span>), Fault> {
        let token = self.read(named).await?;
        let answer = self
            .caller
            .ask(&Call::read("auth/token/lookup-self"), Some(&token))
            .await?;
        let seconds = answer.number("ttl").unwrap_or_default();
        let span = spanned(seconds, answer.holds("renewable"), began);
        Ok((Some(token), span))
    }

    /// The AppRole's secret id, out of its wrapping where it is wrapped.
    async fn secret_id(&self, role: &AppRole) -> Result<Arc<Value>, Fault> {
        let read = self.read(&role.secret_id).await?;
        if !role.wrapped {
            return Ok(Arc::new(read));
        }
        if let Some(known) = self.opened(&read) {
            return Ok(known);
        }
        let wrapping = Call::write("sys/wrapping/lookup", json!({"token": text(&read)?}));
        let looked = self.caller.ask(&wrapping, None).await.map_err(|refused| {
            let sentence = "the wrapped secret id for Vault cannot be opened: it was opened already, perhaps by somebody else, or is too old; \
                            the operator makes another";
            match refused.status {
                Some(400 | 403 | 404) => Fault::lasting(sentence),
                _ => refused.into(),
            }
        })?;
        let made_at = looked.text("creation_path").unwrap_or_default();
        if made_at
            != format!(
                "auth/{}/role/{}",
                role.mount,
                made_at.rsplit('/').nth(1).unwrap_or_default()
            ) + "/secret-id"
        {
            return Err(Fault::lasting(
                "what is wrapped for the log-in to Vault is no secret id of the AppRole; somebody may have put it there",
            ));
        }
        let opened = self
            .caller
            .ask(&Call::write("sys/wrapping/unwrap", json!({})), Some(&read))
            .await?;
        let inner = opened
            .text("secret_id")
            .ok_or_else(|| Fault::lasting("there is no secret id in the wrapping for Vault"))?;
        let inner = Arc::new(Value::new(inner.as_bytes().to_vec()));
        *self.unwrapped.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, inner.clone()));
        Ok(inner)
    }

    fn opened(&self, wrapping: &Value) -> Option<Arc<Value>> {
        let known = self.unwrapped.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, inner) = known.as_ref().filter(|(outer, _)| outer.is_same(wrapping))?;
        Some(inner.clone())
    }

    async fn read(&self, named: &Named) -> Result<Value, Fault> {
        let (own, named) = (self.own.clone(), named.clone());
        let read = tokio::task::spawn_blocking(move || own.read(&named)).await;
        let read = read.map_err(|error| Fault::passing(error.to_string()))?;
        read.map_err(|why| Fault::lasting(format!("the log-in to Vault: {why}")))
    }
}

fn text(value: &Value) -> Result<&str, Fault> {
    std::str::from_utf8(value.bytes())
        .map_err(|_| Fault::lasting("what the gateway logs in to Vault with is no text"))
}

fn taken(granted: AuthInfo, began: Instant) -> (Option<Value>, Option<Span>) {
    let span = spanned(granted.lease_duration, granted.renewable, began);
    (Some(Value::new(granted.client_token.into_bytes())), span)
}

/// None where there is no end.
fn spanned(seconds: u64, renewable: bool, began: Instant) -> Option<Span> {
    let whole = bounded(Duration::from_secs(seconds));
    (seconds > 0).then(|| Span {
        whole,
        ends: began + whole,
        renewable,
    })
}

fn soon(ends: Instant) -> Instant {
    let now = Instant::now();
    now + about_half(ends.saturating_duration_since(now)).max(LEAST)
}
