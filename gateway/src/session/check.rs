//! What a session may be made of, and what is recorded of a wish for access.
use super::Session;
use super::registry::SessionError;
use crate::control::types::{AccessRequest, AuditRecord, SessionSpec, Verdict};
use sallyport_policy::{Grant, GrantRefused, Host};

/// An id stands in Basic authentication, paths and logs: 1 to 128 letters, digits, `.`, `_` and `-`.
pub(super) fn check_id(id: &str) -> Result<(), SessionError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=128).contains(&id.len()) && id.bytes().all(fine) {
        return Ok(());
    }
    Err(SessionError::Malformed(format!(
        "`{}` is not a session's id: 1 to 128 letters, digits, `.`, `_` and `-`",
        shown(id)
    )))
}

/// Names in canonical form, certificates that are certificates.
pub(super) fn checked(mut spec: SessionSpec) -> Result<SessionSpec, SessionError> {
    let hosts = std::mem::take(&mut spec.hosts);
    for (name, address) in hosts {
        match Host::parse(&name) {
            Ok(Host::Name(name)) => drop(spec.hosts.insert(name.to_string(), address)),
            Ok(Host::Address(_)) => {
                return Err(SessionError::Malformed(format!(
                    "`{}` in `hosts` is an address, not a name",
                    shown(&name)
                )));
            }
            Err(fault) => return Err(SessionError::Malformed(format!("in `hosts`: {fault}"))),
        }
    }
    let mut pem = spec.upstream_roots_pem.as_bytes();
    let certificates: Result<Vec<_>, _> = rustls_pemfile::certs(&mut pem).collect();
    let usable = certificates
        .map_err(|error| error.to_string())
        .and_then(|certificates| {
            let mut roots = rustls::RootCertStore::empty();
            certificates
                .iter()
                .try_for_each(|one| roots.add(one.clone()))
                .map_err(|error| error.to_string())?;
            if roots.is_empty() && !spec.upstream_roots_pem.trim().is_empty() {
                return Err("there is no certificate in it".to_owned());
            }
            Ok(())
        });
    usable.map_err(|why| SessionError::Malformed(format!("`upstream_roots_pem` cannot be used: {why}")))?;
    Ok(spec)
}

/// 256 random bits.
pub(super) fn random_token() -> Result<String, SessionError> {
    use base64::Engine;
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| SessionError::Failed("the system gives no random bytes".to_owned()))?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

pub(super) fn shown(text: &str) -> String {
    text.chars().take(128).flat_map(char::escape_debug).collect()
}

pub(super) fn access_record(
    session: &Session,
    request: &AccessRequest,
    answer: &Result<Grant, GrantRefused>,
) -> AuditRecord {
    let wanted = &request.wanted;
    let said = match request.why.as_str() {
        "" => String::new(),
        why => format!("; the agent wrote: {why}"),
    };
    let lent = wanted
        .credential
        .as_ref()
        .map_or(String::new(), |name| format!("credential `{}`: ", shown(name)));
    let (verdict, rule, reason) = match answer {
        Ok(grant) => (
            Verdict::Granted,
            grant.rule.clone(),
            format!(
                "{lent}granted by `{}` until {} (grant {}){said}",
                grant.by, grant.expires_at, grant.id
            ),
        ),
        Err(refused) => {
            let rule = match refused {
                GrantRefused::AlreadyAllowed { rule }
                | GrantRefused::NeedsPerson { rule, .. }
                | GrantRefused::NotGrantable { rule } => rule.clone(),
                _ => String::new(),
            };
            (Verdict::Denied, rule, format!("{lent}{refused}{said}"))
        }
    };
    AuditRecord {
        session: session.id.clone(),
        user: session.who().user.clone(),
        host: wanted.host.clone(),
        port: wanted.port,
        method: wanted.method.clone(),
        path: wanted.path.clone(),
        rule,
        reason,
        policy_hash: session.policy_hash(),
        ending: "complete".to_owned(),
        ..AuditRecord::of("access", verdict)
    }
}
