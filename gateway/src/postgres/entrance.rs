//! The agent's log-in at the gateway: its password must be a placeholder, which chooses the credential that goes on.
use super::message::{authentication, message};
use super::scram::{Exchange, Fresh, MECHANISM};
use super::stop::Stop;
use super::wire;
use crate::secret::log_in::{LogIn, Password};
use crate::stream::Stream;
use aws_lc_rs::rand;

/// `AuthenticationSASL`, `AuthenticationSASLContinue`, `AuthenticationSASLFinal`.
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// What goes upstream.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Name of the credential.
    pub(super) name: String,
    /// Its value.
    pub(super) password: Password,
}

/// Has the client prove by SCRAM-SHA-256 that it holds a placeholder of one of these. `AuthenticationOk` is not said yet.
pub(super) async fn admit(client: &mut Stream, log_ins: Vec<LogIn>) -> Result<Chosen, Stop> {
    let lost = |error: std::io::Error| Stop::client(&error);
    let offer = [MECHANISM.as_bytes(), b"\0\0"].concat();
    wire::write(client, &authentication(SASL, &offer))
        .await
        .map_err(lost)?;
    let first = answer(client).await?;
    let client_first = initial(&first)?;
    let exchange = Exchange::begin(client_first, &fresh()?)?;
    let challenge = authentication(SASL_CONTINUE, exchange.server_first().as_bytes());
    wire::write(client, &challenge).await.map_err(lost)?;
    let last = answer(client).await?;
    let candidates: Vec<(usize, &str)> = log_ins
        .iter()
        .enumerate()
        .flat_map(|(at, log_in)| log_in.placeholders.iter().map(move |text| (at, text.as_str())))
        .collect();
    let proved = exchange.verify(&last, candidates.iter().map(|(_, text)| *text))?;
    let proved = proved.ok_or(Stop::Password)?;
    let chosen = candidates.get(proved.candidate).map(|(at, _)| *at);
    let chosen = chosen
        .and_then(|at| log_ins.into_iter().nth(at))
        .ok_or(Stop::Password)?;
    let password = chosen.password.map_err(Stop::Unbound)?;
    let last = authentication(SASL_FINAL, proved.server_final.as_bytes());
    wire::write(client, &last).await.map_err(lost)?;
    Ok(Chosen {
        name: chosen.name,
        password,
    })
}

/// The body of a `SASLInitialResponse` or `SASLResponse`.
async fn answer(client: &mut Stream) -> Result<Vec<u8>, Stop> {
    match wire::read(client).await.map_err(|error| Stop::client(&error))? {
        (b'p', body) => Ok(body),
        (b'X', _) => Err(Stop::Gone),
        (kind, _) => Err(Stop::Client(format!(
            "a message of kind {:?} came where a password is due",
            char::from(kind)
        ))),
    }
}

/// Mechanism and first message out of a `SASLInitialResponse`.
fn initial(body: &[u8]) -> Result<&[u8], Stop> {
    let wrong = || Stop::Client(format!("the log-in must use {MECHANISM}"));
    let rest = body
        .strip_prefix(MECHANISM.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"\0"))
        .ok_or_else(wrong)?;
    let (length, data) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    match u32::from_be_bytes(*length) as usize == data.len() {
        true => Ok(data),
        false => Err(wrong()),
    }
}

fn fresh() -> Result<Fresh, Stop> {
    let mut fresh = Fresh {
        salt: [0; 16],
        nonce: [0; 18],
    };
    let filled = rand::fill(&mut fresh.salt).and_then(|()| rand::fill(&mut fresh.nonce));
    filled.map_err(|_| Stop::Broken("the system gives no random bytes".to_owned()))?;
    Ok(fresh)
}

/// `AuthenticationOk`.
pub(super) fn admitted() -> Vec<u8> {
    message(b'R', &[0; 4]).to_vec()
}
