//! AWS Secrets Manager and the parameters of AWS Systems Manager, read with the gateway's own keys.
//!
//! Reference: <https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html> and
//! <https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html>.
use super::own::{Named, Own};
use super::pattern::Pattern;
use super::provider::{Fault, Fetched, Lease, Provider, Wanted};
use super::web::{self, Faults, Reply, Web, Wiped};
use crate::secret::Value;
use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, HOST};
use reqwest::{RequestBuilder, StatusCode};
use sallyport_policy::{Source, Who};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use url::Url;
use zeroize::Zeroizing;

const JSON: &str = "application/x-amz-json-1.1";
/// Under which a fault of the whole section is told.
const ACCOUNT: &str = "aws";

/// The section `aws` of `sources.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    region: String,
    access_key_id: Named,
    secret_access_key: Named,
    session_token: Option<Named>,
    /// Another address than AWS's own, for both services.
    endpoint: Option<String>,
    /// PEM file of the authorities that its certificate is checked with; without it, those of the system.
    ca: Option<PathBuf>,
    /// What policies may name, by name or ARN: `agents/model`, or `agents/*` for all below; `${FACT}` stands for one of the run's.
    allow: Vec<String>,
}

/// One account in one region.
#[derive(Debug)]
pub(super) struct Aws {
    settings: Settings,
    allow: Vec<Pattern>,
    own: Arc<Own>,
    web: Web,
    faults: Faults,
}

/// One call.
struct Call {
    service: &'static str,
    target: &'static str,
    body: Json,
}

impl Settings {
    /// The gateway's own secrets in it.
    pub(super) fn named(&self) -> Vec<Named> {
        let keys = [&self.access_key_id, &self.secret_access_key];
        keys.into_iter().chain(&self.session_token).cloned().collect()
    }
}

impl Aws {
    /// Checks the settings; an error says what is wrong with them.
    pub(super) fn new(settings: Settings, own: Arc<Own>) -> Result<Self, String> {
        if settings.allow.is_empty() {
            return Err(
                "`allow` is empty, so that no policy could name anything: list what policies may name, for example `agents/*`".to_owned(),
            );
        }
        let region = &settings.region;
        if region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!("`region`: `{}` is no region", region.escape_debug()));
        }
        if let Some(text) = &settings.endpoint {
            web::address("endpoint", text)?;
        }
        let ca = own.pem(settings.ca.as_deref())?;
        let allow = settings.allow.iter().map(|text| Pattern::read(bare(text)));
        Ok(Self {
            allow: allow.collect::<Result<_, _>>()?,
            web: Web::new("AWS".to_owned(), ca.as_deref())?,
            faults: Faults::default(),
            settings,
            own,
        })
    }

    async fn credentials(&self) -> Result<Credentials, Fault> {
        let (own, all) = (self.own.clone(), self.settings.named());
        let read = tokio::task::spawn_blocking(move || {
            let read = |named: &Named| -> Result<String, String> {
                let text = String::from_utf8(own.read(named)?.bytes().to_vec());
                text.map_err(|_| "it is no text".to_owned())
            };
            let mut texts = all.iter().map(read);
            let mut next = || texts.next().transpose();
            Ok::<_, String>((next()?, next()?, next()?))
        });
        let read = read
            .await
            .map_err(|error| error.to_string())
            .and_then(|read| read);
        let (id, secret, token) =
            read.map_err(|why| Fault::lasting(format!("the gateway's keys for AWS cannot be read: {why}")))?;
        Ok(Credentials::new(
            id.unwrap_or_default(),
            secret.unwrap_or_default(),
            token,
            None,
            "sallyport",
        ))
    }

    fn url(&self, service: &str) -> Result<Url, Fault> {
        let region = &self.settings.region;
        let own = format!("https://{service}.{region}.amazonaws.com/");
        let text = self.settings.endpoint.as_deref().unwrap_or(&own);
        Url::parse(text).map_err(|_| Fault::lasting("`endpoint` is no address"))
    }

    /// A signed request. Its body names what is wanted and holds no value.
    fn request(&self, call: &Call, credentials: &Credentials) -> Result<RequestBuilder, Fault> {
        let unsigned = |error: &dyn std::fmt::Display| {
            Fault::lasting(format!("the request to AWS cannot be signed: {error}"))
        };
        let (url, body) = (self.url(call.service)?, call.body.to_string());
        let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let headers = [
            (HOST.as_str(), host),
            (CONTENT_TYPE.as_str(), JSON),
            ("x-amz-target", call.target),
        ];
        let identity = credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.settings.region)
            .name(call.service)
            .time(SystemTime::from(self.web.now()))
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| unsigned(&error))?;
        let bytes = SignableBody::Bytes(body.as_bytes());
        let signable = SignableRequest::new("POST", url.as_str(), headers.into_iter(), bytes)
            .map_err(|error| unsigned(&error))?;
        let (instructions, _) = sign(signable, &params.into())
            .map_err(|error| unsigned(&error))?
            .into_parts();
        let mut request = self.web.http().post(url.clone());
        for (name, value) in headers.into_iter().chain(instructions.headers()) {
            request = request.header(name, value);
        }
        Ok(request.body(body))
    }

    /// Asks; once more by AWS's clock, where that is another.
    async fn ask(&self, call: Call) -> Result<Reply, Fault> {
        let credentials = self.credentials().await?;
        let ahead = || self.web.now().duration_since(jiff::Timestamp::now()).as_secs();
        let before = ahead();
        let mut reply = self.web.send(self.request(&call, &credentials)?).await?;
        if !reply.status.is_success() && ahead().abs_diff(before) > 1 {
            reply = self.web.send(self.request(&call, &credentials)?).await?;
        }
        match reply.status {
            StatusCode::OK => Ok(reply),
            status => Err(self.refused(status, &reply)),
        }
    }

    /// By the name of the error; messages may quote what was asked for.
    fn refused(&self, status: StatusCode, reply: &Reply) -> Fault {
        let kind = reply.json.0["__type"].as_str().unwrap_or_default();
        let kind = kind.rsplit('#').next().unwrap_or_default();
        match kind {
            "ResourceNotFoundException" | "ParameterNotFound" => {
                Fault::lasting("AWS has nothing by this name")
            }
            "ThrottlingException" => Fault::passing("AWS is asked too often at the moment"),
            kind => self.web.refused(status, kind),
        }
    }

    async fn read(&self, from: &Source) -> Result<Fetched, Fault> {
        let fields = match from {
            Source::AwsSecret { name, .. } => {
                let mut reply = self
                    .ask(Call {
                        service: "secretsmanager",
                        target: "secretsmanager.GetSecretValue",
                        body: json!({"SecretId": name}),
                    })
                    .await?;
                fields(&mut reply.json).ok_or_else(|| self.web.lacks("SecretString"))?
            }
            Source::AwsParameter(name) => {
                let reply = self
                    .ask(Call {
                        service: "ssm",
                        target: "AmazonSSM.GetParameter",
                        body: json!({"Name": name, "WithDecryption": true}),
                    })
                    .await?;
                let value = reply.json.0["Parameter"]["Value"].as_str();
                let value = value.ok_or_else(|| self.web.lacks("Parameter.Value"))?;
                BTreeMap::from([(String::new(), Value::new(value.as_bytes().to_vec()))])
            }
            _ => return Err(Fault::lasting("it is not in AWS")),
        };
        Ok(Fetched {
            fields,
            lease: None,
            valid_for: None,
            parent: None,
        })
    }
}

/// The whole secret under the empty name, and where it is a JSON object each text in it under its own.
fn fields(reply: &mut Wiped) -> Option<BTreeMap<String, Value>> {
    if let Some(binary) = reply.0["SecretBinary"].as_str() {
        let bytes = STANDARD.decode(binary).ok()?;
        return Some(BTreeMap::from([(String::new(), Value::new(bytes))]));
    }
    let whole = Zeroizing::new(reply.0["SecretString"].as_str()?.to_owned());
    let inside = Wiped(serde_json::from_str(&whole).unwrap_or_default());
    let texts = inside.0.as_object().into_iter().flatten();
    let texts =
        texts.filter_map(|(name, json)| Some((name.clone(), Value::new(json.as_str()?.as_bytes().to_vec()))));
    let whole = (String::new(), Value::new(whole.as_bytes().to_vec()));
    Some(texts.chain([whole]).collect())
}

/// Names of parameters begin with a slash where they have several parts.
fn bare(name: &str) -> &str {
    name.strip_prefix('/').unwrap_or(name)
}

#[async_trait]
impl Provider for Aws {
    fn admits(&self, from: &Source, who: &Who) -> Result<(), String> {
        let (Source::AwsSecret { name, .. } | Source::AwsParameter(name)) = from else {
            return Err("it is not in AWS".to_owned());
        };
        match self.allow.iter().any(|pattern| pattern.admits(bare(name), who)) {
            true => Ok(()),
            false => Err(format!(
                "the operator does not let this run's policy name `{name}` in AWS; `aws.allow` in `sources.yaml` lists what it may"
            )),
        }
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<Fetched, Fault> {
        let done = self.read(&wanted.from).await;
        // What one name lacks says nothing of the account.
        if !matches!(&done, Err(fault) if !fault.passing) {
            self.faults.note(ACCOUNT, &done);
        }
        done
    }

    async fn renew(&self, _lease: &Lease) -> Result<Duration, Fault> {
        Err(Fault::lasting("what is read from AWS has no lease"))
    }

    async fn revoke(&self, _lease: &str) -> Result<(), Fault> {
        Ok(())
    }

    fn fault(&self) -> Option<String> {
        self.faults.told("account")
    }
}

#[cfg(test)]
mod tests;
