//! Tokens of Amazon's registries (ECR), which are good for twelve hours.
//!
//! Errors contain words from a fixed set, never what AWS says.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ecr::config::Credentials;
use aws_sdk_ecr::error::{ProvideErrorMetadata, SdkError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tidewaiter_api::values::SecretText;
use tidewaiter_kit::CloudCalls;

use super::address::ServerAddress;
use super::credential::EcrLogin;

const API: &str = "ecr:GetAuthorizationToken";
const CONNECT: Duration = Duration::from_secs(3);
const CALL: Duration = Duration::from_secs(10);

/// A token and where it is good.
#[derive(Clone, Debug)]
pub(super) struct EcrToken {
    pub(super) username: String,
    pub(super) password: SecretText,
    /// `https://ACCOUNT.dkr.ecr.REGION.amazonaws.com`
    pub(super) endpoint: String,
    pub(super) expires: Timestamp,
}

/// The reason why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EcrError {
    #[error("ECR has had too many requests")]
    Throttled,
    #[error("ECR refuses the key ({0})")]
    Refused(&'static str),
    #[error("ECR gives no token ({0})")]
    Unavailable(&'static str),
}

/// The codes with which AWS refuses a key. Source: "Common errors" of Amazon ECR.
const REFUSALS: [&str; 10] = [
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// Requests a token from ECR, once.
pub(super) async fn token(login: &EcrLogin, calls: &CloudCalls) -> Result<EcrToken, EcrError> {
    let asked = ask(login).await;
    let outcome = match &asked {
        Ok(_) => "ok",
        Err(EcrError::Throttled) => "throttled",
        Err(EcrError::Refused(_)) => "credentials",
        Err(EcrError::Unavailable(_)) => "failed",
    };
    calls.count(API, outcome);
    asked
}

async fn ask(login: &EcrLogin) -> Result<EcrToken, EcrError> {
    let token = login.session_token.as_ref().map(|token| token.expose().to_owned());
    let key = Credentials::new(
        login.access_key_id.expose(),
        login.secret_access_key.expose(),
        token,
        None,
        "tidewaiter",
    );
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_timeout(CALL);
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(login.region.clone()))
        .credentials_provider(key)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts.build())
        .load()
        .await;
    let response = aws_sdk_ecr::Client::new(&config).get_authorization_token().send().await;
    let response = response.map_err(|error| failure(&error))?;
    let data = response.authorization_data().first();
    let parsed = data.and_then(|data| {
        let decoded = STANDARD.decode(data.authorization_token()?).ok()?;
        let (username, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
        let endpoint = data.proxy_endpoint()?;
        ServerAddress::parse(endpoint).ok()?;
        Some(EcrToken {
            username: username.to_owned(),
            password: password.to_owned().into(),
            endpoint: endpoint.to_owned(),
            expires: Timestamp::from_second(data.expires_at()?.secs()).ok()?,
        })
    });
    parsed.ok_or(EcrError::Unavailable("its response has no token"))
}

fn failure<E: ProvideErrorMetadata>(error: &SdkError<E, aws_sdk_ecr::config::http::HttpResponse>) -> EcrError {
    let SdkError::ServiceError(service) = error else {
        return EcrError::Unavailable(match error {
            SdkError::TimeoutError(_) => "it does not answer in time",
            SdkError::DispatchFailure(_) => "it cannot be reached",
            _ => "the request failed",
        });
    };
    let code = service.err().code().unwrap_or_default();
    if code.starts_with("Throttl") || code == "TooManyRequestsException" || service.raw().status().as_u16() == 429 {
        return EcrError::Throttled;
    }
    match REFUSALS.iter().find(|known| **known == code) {
        Some(known) => EcrError::Refused(known),
        None => EcrError::Unavailable("an error that is not about the key"),
    }
}
