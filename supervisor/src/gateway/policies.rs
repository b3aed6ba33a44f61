//! The gateway's calls about standing policies.
use super::GatewayError;
use super::client::{Client, json, parse};
use async_trait::async_trait;
use http::Method;
use sallyport_gateway::control::types::{
    PolicyEdition, PolicyKey, PolicyVersion, Publication, Rollback, StandingPolicies, Withdrawal,
};

/// The calls; a trait so that pages and API can be tested without a gateway.
#[async_trait]
pub trait Policies: Send + Sync {
    /// All, with what is in force and what is broken.
    async fn policies(&self) -> Result<StandingPolicies, GatewayError>;
    /// Has the gateway look at its files now.
    async fn reload_policies(&self) -> Result<StandingPolicies, GatewayError>;
    /// Versions of one, newest first.
    async fn policy_versions(&self, key: &PolicyKey) -> Result<Vec<PolicyVersion>, GatewayError>;
    /// One version with its texts.
    async fn policy_version(&self, key: &PolicyKey, number: u64) -> Result<PolicyEdition, GatewayError>;
    /// Puts texts in force.
    async fn publish_policy(
        &self,
        key: &PolicyKey,
        publication: &Publication,
    ) -> Result<PolicyVersion, GatewayError>;
    /// Puts an old version in force again.
    async fn roll_back_policy(
        &self,
        key: &PolicyKey,
        rollback: &Rollback,
    ) -> Result<PolicyVersion, GatewayError>;
    /// Ends a policy.
    async fn withdraw_policy(
        &self,
        key: &PolicyKey,
        withdrawal: &Withdrawal,
    ) -> Result<PolicyVersion, GatewayError>;
}

/// A key's characters need no escapes in a path.
fn path(key: &PolicyKey, rest: &str) -> String {
    format!("/v1/policies/{key}{rest}")
}

#[async_trait]
impl Policies for Client {
    async fn policies(&self) -> Result<StandingPolicies, GatewayError> {
        self.get("/v1/policies").await
    }

    async fn reload_policies(&self) -> Result<StandingPolicies, GatewayError> {
        parse(&self.call(Method::POST, "/v1/policies/reload", None).await?)
    }

    async fn policy_versions(&self, key: &PolicyKey) -> Result<Vec<PolicyVersion>, GatewayError> {
        self.get(&path(key, "/versions")).await
    }

    async fn policy_version(&self, key: &PolicyKey, number: u64) -> Result<PolicyEdition, GatewayError> {
        self.get(&path(key, &format!("/versions/{number}"))).await
    }

    async fn publish_policy(
        &self,
        key: &PolicyKey,
        publication: &Publication,
    ) -> Result<PolicyVersion, GatewayError> {
        let body = Some(json(publication)?);
        parse(&self.call(Method::PUT, &path(key, ""), body).await?)
    }

    async fn roll_back_policy(
        &self,
        key: &PolicyKey,
        rollback: &Rollback,
    ) -> Result<PolicyVersion, GatewayError> {
        let body = Some(json(rollback)?);
        parse(&self.call(Method::POST, &path(key, "/rollback"), body).await?)
    }

    async fn withdraw_policy(
        &self,
        key: &PolicyKey,
        withdrawal: &Withdrawal,
    ) -> Result<PolicyVersion, GatewayError> {
        let body = Some(json(withdrawal)?);
        parse(&self.call(Method::POST, &path(key, "/withdraw"), body).await?)
    }
}
