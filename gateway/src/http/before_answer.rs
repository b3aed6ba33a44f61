//! What the upstream says before its answer (1xx, RFC 9110 section 15.2), handed on while the answer is waited for.
use super::forward;
use super::pace::Pace;
use crate::secret::SessionSecrets;
use http::request::Parts;
use http::{Request, StatusCode};
use std::sync::Arc;
use tokio::sync::watch;

/// Hands on what the upstream says before its answer: `100` opens the body's gate, others go to the client.
pub fn hand_on(
    parts: &mut Parts,
    secrets: Arc<SessionSecrets>,
    open: Option<watch::Sender<bool>>,
    pace: Option<Arc<Pace>>,
) {
    let mut carrier = Request::new(());
    hyper::ext::on_informational(&mut carrier, move |said| match (said.status(), &open, &pace) {
        (StatusCode::CONTINUE, Some(open), _) => {
            open.send_replace(true);
        }
        (status, _, Some(pace)) => {
            let mut headers = said.headers().clone();
            forward::strip_answer(&mut headers);
            secrets.redact_headers(&mut headers);
            pace.send_interim(status, &headers);
        }
        _ => {}
    });
    parts.extensions.extend(std::mem::take(carrier.extensions_mut()));
}
