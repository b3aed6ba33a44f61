//! One call of Vault's API, by `vaultrs`: what goes there and comes back is kept out of logs, whatever the libraries would say.
use super::answer::Answer;
use super::settings::Checked;
use crate::secret::Value;
use crate::secret::live::provider::Fault;
use crate::secret::live::web::{trusting, wipe};
use rustify::clients::reqwest::Client as Rest;
use rustify::endpoint::{Endpoint, MiddleWare};
use rustify::enums::{RequestMethod, RequestType, ResponseType};
use rustify::errors::ClientError;
use serde_json::Value as Json;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use vaultrs::api::EndpointMiddleware;
use vaultrs::client::{VaultClient, VaultClientSettings};
use zeroize::{Zeroize, Zeroizing};

/// For the connection to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// Difference of clocks that is worth a warning.
const SKEW: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);
/// Letters of Vault's own words that are passed on to the operator.
const WORDS: usize = 300;

/// A request.
pub(super) struct Call {
    method: RequestMethod,
    path: String,
    body: Option<Zeroizing<Vec<u8>>>,
}

impl Call {
    pub(super) fn read(path: &str) -> Self {
        Self {
            method: RequestMethod::GET,
            path: path.to_owned(),
            body: None,
        }
    }

    pub(super) fn write(path: &str, parameters: Json) -> Self {
        let mut parameters = parameters;
        let body = Zeroizing::new(parameters.to_string().into_bytes());
        wipe(&mut parameters);
        Self {
            method: RequestMethod::POST,
            path: path.to_owned(),
            body: Some(body),
        }
    }
}

impl Endpoint for Call {
    type Response = Json;
    const REQUEST_BODY_TYPE: RequestType = RequestType::JSON;
    const RESPONSE_BODY_TYPE: ResponseType = ResponseType::JSON;

    fn path(&self) -> String {
        self.path.clone()
    }

    fn method(&self) -> RequestMethod {
        self.method.clone()
    }

    fn body(&self) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.body.as_ref().map(|body| body.to_vec()))
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) struct Refused {
    /// HTTP status, where there was any answer.
    pub(super) status: Option<u16>,
    /// Sentence for operator and agent, without Vault's own words.
    sentence: String,
    /// Vault's own words.
    words: String,
}

impl Refused {
    /// Whether what was to be given back is not there any more.
    pub(super) fn says_gone(&self) -> bool {
        self.status == Some(404) || self.status == Some(400) && self.words.contains("not found")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        let Refused {
            status,
            sentence,
            words,
        } = refused;
        if !words.is_empty() {
            tracing::warn!(status, words, "{sentence}");
        }
        match status {
            Some(400..=411 | 413..=428) => Self::lasting(sentence),
            _ => Self::passing(sentence),
        }
    }
}

/// Makes calls.
pub(super) struct Caller {
    http: reqwest::Client,
    skew_told: AtomicBool,
    settings: VaultClientSettings,
}

impl Caller {
    pub(super) fn new(settings: &Checked) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(trusting(settings.ca.as_deref())?)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| error.to_string())?;
        let settings = VaultClientSettings {
            address: settings.address.clone(),
            ca_certs: Vec::new(),
            identity: None,
            timeout: None,
            token: String::new(),
            verify: true,
            version: 1,
            wrapping: false,
            namespace: settings.namespace.clone(),
            proxy: None,
        };
        Ok(Self {
            http,
            skew_told: AtomicBool::new(false),
            settings,
        })
    }

    /// A client of `vaultrs` that speaks with this token.
    pub(super) fn client(&self, token: Option<&Value>) -> Result<VaultClient, Refused> {
        let token = token.map_or(b"".as_slice(), Value::bytes);
        let token = std::str::from_utf8(token)
            .ok()
            .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| Refused {
                status: Some(400),
                sentence: "the token for Vault is none: it has characters that no token has".to_owned(),
                words: String::new(),
            })?;
        Ok(VaultClient {
            http: Rest::new(self.settings.address.as_str(), self.http.clone()),
            middle: EndpointMiddleware {
                token: token.to_owned(),
                version: format!("v{}", self.settings.version),
                wrap: None,
                namespace: self.settings.namespace.clone(),
            },
            settings: self.settings.clone(),
        })
    }

    /// Says once that the clocks differ.
    fn compare_clocks(&self, ahead: jiff::SignedDuration) {
        if ahead.abs() > SKEW && !self.skew_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                seconds = ahead.as_secs(),
                "Vault's clock and the gateway's differ: leases are counted from when they were asked for, whatever the clocks say, but \
                 certificates may not be valid yet, or no more"
            );
        }
    }

    /// One call with a token, or without.
    pub(super) async fn ask(&self, call: &Call, token: Option<&Value>) -> Result<Answer, Refused> {
        let mut client = self.client(token)?;
        let began = jiff::Timestamp::now();
        let asking = async {
            let mut request = call.request(self.settings.address.as_str())?;
            MiddleWare::request(&client.middle, call, &mut request)?;
            rustify::client::Client::execute(&client.http, request).await
        };
        let answered = asking.with_subscriber(NoSubscriber::default()).await;
        client.middle.token.zeroize();
        let mut response = answered.map_err(|error| refused(&call.path, error))?;
        let date = response.headers().get(http::header::DATE).cloned();
        let read = Answer::read(response.body(), date.as_ref(), began);
        response.body_mut().zeroize();
        if let Ok(answer) = &read {
            self.compare_clocks(answer.ahead(began));
        }
        read.map_err(|what| Refused {
            status: None,
            sentence: format!("Vault's answer at `{}` cannot be read", shown(&call.path)),
            words: what,
        })
    }
}

/// What `vaultrs` says, in our words.
pub(super) fn told(what: &str, error: vaultrs::error::ClientError) -> Refused {
    use vaultrs::error::ClientError as Vaultrs;
    match error {
        Vaultrs::RestClientError { source } => refused(what, source),
        Vaultrs::APIError { code, errors } => of_status(what, code, errors.join("; ")),
        other => Refused {
            status: None,
            sentence: format!("Vault's answer at `{}` cannot be read", shown(what)),
            words: other.to_string(),
        },
    }
}

fn refused(path: &str, error: ClientError) -> Refused {
    match error {
        ClientError::ServerResponseError { code, content } => {
            of_status(path, code, content.unwrap_or_default())
        }
        ClientError::RequestError { source, .. } => {
            let chain: Vec<_> = source.chain().skip(1).map(ToString::to_string).collect();
            Refused {
                status: None,
                sentence: "Vault cannot be reached".to_owned(),
                words: words(&chain.join(": ")),
            }
        }
        other => Refused {
            status: None,
            sentence: "Vault cannot be asked".to_owned(),
            words: words(&other.to_string()),
        },
    }
}

/// Status codes: <https://openbao.org/api-docs/#http-status-codes>.
fn of_status(path: &str, code: u16, content: String) -> Refused {
    let at = shown(path);
    let sentence = match code {
        400 => format!("Vault refuses what is asked of it at `{at}` (status 400)"),
        403 => format!(
            "Vault does not let the gateway have `{at}` (permission denied); the policy of the gateway's token there lacks it, or the \
             token is none any more"
        ),
        404 => format!("Vault has nothing at `{at}`"),
        429 => "Vault is asked too often at the moment (status 429)".to_owned(),
        503 => "Vault is sealed, or not the active one (status 503)".to_owned(),
        300..400 => format!("Vault is not the active one, and sends elsewhere (status {code})"),
        _ => format!("Vault failed at `{at}` (status {code})"),
    };
    Refused {
        status: Some(code),
        sentence,
        words: words(&content),
    }
}

fn words(text: &str) -> String {
    text.chars().take(WORDS).flat_map(char::escape_debug).collect()
}

/// The path as people know it.
fn shown(path: &str) -> String {
    path.trim_start_matches('/').replacen("/data/", "/", 1)
}
