//! The control API's call for the certificate by which a remote machine's tunnel is known.
use super::handlers::{Answer, Failure, off_thread, read, view};
use super::serve::Control;
use super::types::{CertificateRequest, MachineCertificate};
use crate::session::certificate::Certificate;
use crate::tls::machine::{GATEWAY_NAME, RequestFault, Tunnels};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;

impl From<RequestFault> for Failure {
    fn from(fault: RequestFault) -> Self {
        let (status, title) = match fault {
            RequestFault::Request(_) => (StatusCode::UNPROCESSABLE_ENTITY, "the call makes no sense"),
            RequestFault::Crypto(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed"),
        };
        Self::new(status, title, fault)
    }
}

/// Signs for the key of a request, and makes the certificate good for the session.
pub(super) async fn issue(
    State(control): State<Control>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<MachineCertificate>> {
    let request: CertificateRequest = read(body)?;
    let Some(Tunnels { address, authority }) = control.tunnel.clone() else {
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "there are no tunnels",
            "this gateway accepts no tunnels; start it with `--tunnel ADDRESS:PORT`",
        ));
    };
    off_thread(move || {
        // Before anything is signed: an id that is none must not stand in a certificate.
        view(&control, &id)?;
        let issued = authority.issue(&id, &request.csr)?;
        let certificate = Certificate {
            fingerprint: issued.fingerprint,
            expires_at: issued.expires_at,
        };
        control.sessions.certify(&id, certificate)?;
        Ok(Json(MachineCertificate {
            certificate_pem: issued.pem,
            authority_pem: authority.certificate_pem().to_owned(),
            name: GATEWAY_NAME.to_owned(),
            expires_at: issued.expires_at,
            address: address.to_string(),
        }))
    })
    .await
}
