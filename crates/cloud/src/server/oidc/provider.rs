//! One provider: its discovery document and keys, the request that begins a sign-in, and the ID token that ends it.
//!
//! The document and the keys are cached for an hour, and read again when a token is signed by an unknown key, at most
//! once a minute. A failure is cached for some seconds, so that a provider that is away delays only the first of many.

use std::sync::Arc;
use std::time::Duration;

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClientAuthMethod,
    CoreErrorResponseType, CoreGenderClaim, CoreGrantType, CoreJsonWebKey, CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm, CoreJwsSigningAlgorithm, CoreResponseMode, CoreResponseType, CoreRevocableToken,
    CoreRevocationErrorResponse, CoreSubjectIdentifierType, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalProviderMetadata, AuthType, AuthorizationCode, Client, ClientId, ClientSecret, ConfigurationError,
    CsrfToken, DiscoveryError, EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, IdTokenFields,
    IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier, ProviderMetadata, RedirectUrl,
    RequestTokenError, Scope, StandardErrorResponse, StandardTokenResponse, TokenResponse as _,
};
use serde::{Deserialize, Serialize};
use tidewaiter_api::values::quoted;
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;
use url::Url;

use super::http::{ClientError, Http, HttpError};
use super::settings::ProviderSettings;
use super::token::{OtherClaims, Person, TokenCheck, TokenError};
use crate::server::http::errors::busy;
use crate::server::keys::secret_file::{self, SecretFileError};
use crate::server::refusal::Refusal;

/// The time for which the document and the keys are cached.
const FRESH: Duration = Duration::from_hours(1);
/// The time after which an unknown key lets them be read again.
const ROTATION: Duration = Duration::from_mins(1);
/// The time for which a failure is cached.
const FAILED: Duration = Duration::from_secs(5);
/// The maximum number of sign-ins that wait for one provider.
const WAITING: usize = 32;

/// The field of RFC 9207 in the discovery document.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OtherMetadata {
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for OtherMetadata {}

type Metadata = ProviderMetadata<
    OtherMetadata,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;
type Tokens = StandardTokenResponse<
    IdTokenFields<
        OtherClaims,
        EmptyExtraTokenFields,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    >,
    CoreTokenType,
>;
type Failure = StandardErrorResponse<CoreErrorResponseType>;
type OidcClient = Client<
    OtherClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    Failure,
    Tokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// A sign-in failed at the provider, or its answer is not accepted.
#[derive(Debug, thiserror::Error)]
enum ProviderError {
    #[error("the document or the keys of the provider cannot be read")]
    Discovery(#[source] Box<DiscoveryError<HttpError>>),
    #[error("the document or the keys of the provider could not be read a moment ago")]
    FailedBefore,
    #[error("too many sign-ins wait for the provider")]
    Busy,
    #[error("the code cannot be exchanged")]
    Exchange(#[source] HttpError),
    #[error("the provider refused the code: {0}")]
    Refused(String),
    #[error("the response to the code is malformed")]
    Malformed,
    #[error(transparent)]
    Endpoint(#[from] ConfigurationError),
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error("the response has no ID token")]
    NoToken,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the response is of another issuer (iss)")]
    OtherIssuer,
}

impl From<RequestTokenError<HttpError, Failure>> for ProviderError {
    /// Without the details of a malformed response, which may have a token in them.
    fn from(error: RequestTokenError<HttpError, Failure>) -> Self {
        match error {
            RequestTokenError::Request(error) => Self::Exchange(error),
            RequestTokenError::ServerResponse(failure) => Self::Refused(quoted(failure.error().as_ref())),
            RequestTokenError::Parse(..) | RequestTokenError::Other(_) => Self::Malformed,
        }
    }
}

/// A begun sign-in: the address of the provider, and what the server keeps until the person returns.
pub(crate) struct Begun {
    pub(crate) url: Url,
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
}

/// What the person brings back from the provider, and what was kept.
pub(crate) struct Callback<'a> {
    pub(crate) code: &'a str,
    /// The issuer that the response names (RFC 9207).
    pub(crate) issuer: Option<&'a str>,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
}

/// The result of reading the document and the keys, and when.
struct Discovered {
    at: Duration,
    metadata: Option<Arc<Metadata>>,
}

/// A provider of the settings.
pub(crate) struct Provider {
    pub(crate) settings: ProviderSettings,
    http: Http,
    clock: SharedClock,
    discovered: Mutex<Option<Discovered>>,
    waiting: Semaphore,
}

impl Provider {
    pub(super) fn new(settings: ProviderSettings, clock: SharedClock) -> Result<Self, ClientError> {
        Ok(Self {
            http: Http::new(settings.ca_file.as_deref(), clock.clone())?,
            settings,
            clock,
            discovered: Mutex::default(),
            waiting: Semaphore::new(WAITING),
        })
    }

    /// Begins a sign-in that returns to `redirect`.
    pub(crate) async fn begin(&self, redirect: &Url) -> Result<Begun, Refusal> {
        self.begun(redirect).await.map_err(|error| self.refusal(&error))
    }

    async fn begun(&self, redirect: &Url) -> Result<Begun, ProviderError> {
        let _permit = self.waiting.try_acquire().map_err(|_| ProviderError::Busy)?;
        let metadata = self.metadata(FRESH).await?;
        let client = OidcClient::from_provider_metadata(Metadata::clone(&metadata), self.client_id(), None);
        let client = client.set_redirect_uri(RedirectUrl::from_url(redirect.clone()));
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        // The library adds it.
        let scopes = self.settings.scopes.iter().filter(|scope| *scope != "openid");
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let (url, state, nonce) = client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(scopes.cloned().map(Scope::new))
            .set_pkce_challenge(challenge)
            .url();
        Ok(Begun {
            url,
            state: state.into_secret(),
            nonce: nonce.into_secret(),
            verifier: verifier.into_secret(),
        })
    }

    /// Ends a sign-in that was begun with the same `redirect`.
    pub(crate) async fn finish(&self, redirect: &Url, callback: Callback<'_>) -> Result<Person, Refusal> {
        let finished = self.finished(redirect, callback).await;
        finished.map_err(|error| self.refusal(&error))
    }

    async fn finished(&self, redirect: &Url, callback: Callback<'_>) -> Result<Person, ProviderError> {
        let _permit = self.waiting.try_acquire().map_err(|_| ProviderError::Busy)?;
        let metadata = self.metadata(FRESH).await?;
        let additional = metadata.additional_metadata();
        match callback.issuer {
            Some(issuer) if issuer != self.settings.issuer => return Err(ProviderError::OtherIssuer),
            None if additional.authorization_response_iss_parameter_supported => {
                return Err(ProviderError::OtherIssuer);
            }
            _ => {}
        }
        let tokens = self.exchange(&metadata, redirect, &callback).await?;
        let token = tokens.id_token().ok_or(ProviderError::NoToken)?;
        let check = TokenCheck {
            settings: &self.settings,
            access_token: tokens.access_token(),
            nonce: Nonce::new(callback.nonce),
            now: self.clock.now(),
        };
        match check.person(token, metadata.jwks()) {
            Err(error) if error.is_unknown_key() => {
                let metadata = self.metadata(ROTATION).await?;
                Ok(check.person(token, metadata.jwks())?)
            }
            checked => Ok(checked?),
        }
    }

    async fn exchange(
        &self,
        metadata: &Metadata,
        redirect: &Url,
        callback: &Callback<'_>,
    ) -> Result<Tokens, ProviderError> {
        let secret = secret_file::read(&self.settings.client_secret_file)?;
        let secret = ClientSecret::new(secret.trim_end_matches(['\r', '\n']).to_owned());
        let client = OidcClient::from_provider_metadata(metadata.clone(), self.client_id(), Some(secret))
            .set_redirect_uri(RedirectUrl::from_url(redirect.clone()))
            .set_auth_type(auth_type(metadata));
        let request = client.exchange_code(AuthorizationCode::new(callback.code.to_owned()))?;
        let request = request.set_pkce_verifier(PkceCodeVerifier::new(callback.verifier.clone()));
        Ok(request.request_async(&self.http).await?)
    }

    fn client_id(&self) -> ClientId {
        ClientId::new(self.settings.client_id.clone())
    }

    /// The document and the keys, not older than `max_age`. One task reads them at a time, and the others wait for it.
    async fn metadata(&self, max_age: Duration) -> Result<Arc<Metadata>, ProviderError> {
        let mut cached = self.discovered.lock().await;
        if let Some(Discovered { at, metadata }) = &*cached {
            let age = self.clock.monotonic().saturating_sub(*at);
            match metadata {
                Some(metadata) if age < max_age => return Ok(Arc::clone(metadata)),
                None if age < FAILED => return Err(ProviderError::FailedBefore),
                _ => {}
            }
        }
        let read = match IssuerUrl::new(self.settings.issuer.clone()) {
            Ok(issuer) => Metadata::discover_async(issuer, &self.http).await,
            Err(error) => Err(DiscoveryError::UrlParse(error)),
        };
        let read = read.map(Arc::new);
        *cached = Some(Discovered {
            at: self.clock.monotonic(),
            metadata: read.as_ref().ok().cloned(),
        });
        read.map_err(|error| ProviderError::Discovery(Box::new(error)))
    }

    /// What the person is told; the log has the reason.
    fn refusal(&self, error: &ProviderError) -> Refusal {
        let ProviderSettings { name, title, .. } = &self.settings;
        warn!(provider = name, error = %Chain(error), "a sign-in was refused");
        match error {
            ProviderError::Discovery(_)
            | ProviderError::FailedBefore
            | ProviderError::Busy
            | ProviderError::Exchange(_) => busy(&format!("{title} does not answer")),
            ProviderError::Token(TokenError::Claim { wanted, .. }) => Refusal::forbidden(format!(
                "your account at {title} is not one of {wanted}: sign in there with another account"
            )),
            ProviderError::Token(TokenError::GroupsElsewhere) => Refusal::forbidden(format!(
                "{title} names too many groups of yours: ask its admin to send only those that this application needs"
            )),
            _ => Refusal::forbidden(format!(
                "the response of {title} was not accepted: begin again; the server's log has the reason"
            )),
        }
    }
}

/// How the client proves who it is: as the document says, else by HTTP Basic, the default.
fn auth_type(metadata: &Metadata) -> AuthType {
    let methods = metadata.token_endpoint_auth_methods_supported();
    let takes = |method| methods.is_none_or(|methods| methods.contains(&method));
    if takes(CoreClientAuthMethod::ClientSecretBasic) || !takes(CoreClientAuthMethod::ClientSecretPost) {
        AuthType::BasicAuth
    } else {
        AuthType::RequestBody
    }
}
