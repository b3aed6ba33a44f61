//! Grants that come to a session: from a person, or by what its policy itself may grant; each recorded before it is answered.
use super::Session;
use super::check::{access_record, shown};
use super::registry::{SessionError, Sessions};
use crate::control::types::{AccessAnswer, AccessRequest};
use sallyport_policy::{Grant, GrantRefused, Host, Wanted};

/// Grants that one session may have at a time.
const MOST_GRANTS: usize = 500;

impl Sessions {
    /// Adds a grant that a person gave; recorded before it is answered.
    pub async fn grant(&self, id: &str, grant: Grant) -> Result<Grant, SessionError> {
        let session = self.by_id(id).ok_or_else(|| SessionError::Unknown(shown(id)))?;
        if grant.expires_at <= jiff::Timestamp::now() {
            return Err(SessionError::Malformed(format!(
                "the grant has expired already, at {}",
                grant.expires_at
            )));
        }
        if grant.uses == Some(0) {
            return Err(SessionError::Malformed("the grant has no uses".to_owned()));
        }
        if let Err(fault) = Host::parse(&grant.host) {
            return Err(SessionError::Malformed(fault.to_string()));
        }
        if session.grants().len() >= MOST_GRANTS {
            return Err(SessionError::Malformed(format!(
                "the session has {MOST_GRANTS} grants already"
            )));
        }
        let grant = session.add_grant(grant)?;
        let wanted = Wanted {
            credential: grant.credential.clone(),
            host: grant.host.clone(),
            port: grant.port,
            method: None,
            path: grant.path.clone(),
        };
        let request = AccessRequest {
            wanted,
            why: String::new(),
        };
        self.record(&session, &request, &Ok(grant.clone())).await?;
        Ok(grant)
    }

    /// Answers an agent's wish by what the policy itself may grant; recorded before it is answered.
    pub async fn access(&self, id: &str, request: &AccessRequest) -> Result<AccessAnswer, SessionError> {
        let session = self.by_id(id).ok_or_else(|| SessionError::Unknown(shown(id)))?;
        let now = jiff::Timestamp::now();
        let answer = {
            let live = session.live.load();
            match &live.policy {
                Ok(policy) => policy.grant(&request.wanted, &live.who, now),
                Err(_) => Err(GrantRefused::Malformed {
                    why: "the policy of this run cannot be used".to_owned(),
                }),
            }
        };
        let answer = match answer {
            Ok(_) if session.grants().len() >= MOST_GRANTS => Err(GrantRefused::Malformed {
                why: format!("this run has {MOST_GRANTS} grants already"),
            }),
            Ok(grant) => Ok(session.add_grant(grant)?),
            Err(refused) => Err(refused),
        };
        self.record(&session, request, &answer).await?;
        Ok(match answer {
            Ok(grant) => AccessAnswer::Granted { grant },
            Err(reason) => AccessAnswer::Refused { reason },
        })
    }

    /// Records what came of a wish; a grant that cannot be recorded is taken back.
    async fn record(
        &self,
        session: &Session,
        request: &AccessRequest,
        answer: &Result<Grant, GrantRefused>,
    ) -> Result<(), SessionError> {
        let Err(error) = self.sink().write(access_record(session, request, answer)).await else {
            return Ok(());
        };
        if let Ok(grant) = answer {
            session.remove_grant(&grant.id)?;
        }
        Err(error.into())
    }
}
