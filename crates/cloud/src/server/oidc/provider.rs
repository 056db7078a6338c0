//! One provider: its discovery document and keys, the request that begins a sign-in, and the ID token that ends it.
//!
//! The document and the keys are cached for an hour, and read again when a token is signed by an unknown key, at most
//! once a minute. A failure is cached for some seconds, so that a provider that is away delays only the first of many.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
    CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreRevocableToken,
    CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AsyncHttpClient as _, AuthType, AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken,
    DiscoveryError, EmptyExtraTokenFields, EndpointNotSet, EndpointSet, HttpRequest, IdTokenFields, IssuerUrl,
    JsonWebKeySet, JsonWebKeySetUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl,
    RequestTokenError, Scope, StandardErrorResponse, StandardTokenResponse, TokenResponse as _, TokenUrl,
};
use serde::Deserialize;
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

/// The discovery document (OpenID Connect Discovery 1.0), with what is read of it: other fields may have values that
/// the library does not know.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: AuthUrl,
    token_endpoint: TokenUrl,
    jwks_uri: JsonWebKeySetUrl,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// RFC 9207.
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The document of a provider, and its keys.
struct Metadata {
    document: Document,
    keys: CoreJsonWebKeySet,
}

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
type OidcClient<Authorization, Token> = Client<
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
    Authorization,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    Token,
    EndpointNotSet,
>;

/// A sign-in failed at the provider, or its answer is not accepted.
#[derive(Debug, thiserror::Error)]
enum ProviderError {
    #[error("the document of the provider cannot be read")]
    Document(#[from] HttpError),
    #[error("the response to the request for the document is {0}")]
    Status(StatusCode),
    #[error("the document of the provider is malformed")]
    MalformedDocument(#[from] serde_json::Error),
    #[error("the document is of the issuer {0}")]
    DocumentOfOther(String),
    #[error("the keys of the provider cannot be read")]
    Keys(#[source] Box<DiscoveryError<HttpError>>),
    #[error("the address of the issuer is malformed")]
    Issuer(#[from] url::ParseError),
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
        let metadata = if let Some(metadata) = self.cached() {
            metadata
        } else {
            let _permit = self.waiting.try_acquire().map_err(|_| ProviderError::Busy)?;
            self.metadata(FRESH).await?
        };
        let client = self.client(&metadata, redirect)?;
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
        let promised = metadata.document.authorization_response_iss_parameter_supported;
        match callback.issuer {
            Some(issuer) if issuer != self.settings.issuer => return Err(ProviderError::OtherIssuer),
            None if promised => return Err(ProviderError::OtherIssuer),
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
        match check.person(token, &metadata.keys) {
            Err(error) if error.is_unknown_key() => {
                let metadata = self.metadata(ROTATION).await?;
                Ok(check.person(token, &metadata.keys)?)
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
        let client = self.client(metadata, redirect)?.set_client_secret(secret);
        let client = client.set_auth_type(metadata.auth_type());
        let request = client.exchange_code(AuthorizationCode::new(callback.code.to_owned()));
        let request = request.set_pkce_verifier(PkceCodeVerifier::new(callback.verifier.clone()));
        Ok(request.request_async(&self.http).await?)
    }

    fn client(
        &self,
        metadata: &Metadata,
        redirect: &Url,
    ) -> Result<OidcClient<EndpointSet, EndpointSet>, ProviderError> {
        let id = ClientId::new(self.settings.client_id.clone());
        let issuer = IssuerUrl::new(self.settings.issuer.clone())?;
        let client = OidcClient::<EndpointNotSet, EndpointNotSet>::new(id, issuer, metadata.keys.clone())
            .set_auth_uri(metadata.document.authorization_endpoint.clone())
            .set_token_uri(metadata.document.token_endpoint.clone());
        Ok(client.set_redirect_uri(RedirectUrl::from_url(redirect.clone())))
    }

    /// The document and the keys, if they are fresh and no task reads them: nothing waits for the provider.
    fn cached(&self) -> Option<Arc<Metadata>> {
        let cached = self.discovered.try_lock().ok()?;
        let Discovered { at, metadata } = cached.as_ref()?;
        let is_fresh = self.clock.monotonic().saturating_sub(*at) < FRESH;
        metadata.clone().filter(|_| is_fresh)
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
        let read = self.read().await.map(Arc::new);
        *cached = Some(Discovered {
            at: self.clock.monotonic(),
            metadata: read.as_ref().ok().cloned(),
        });
        read
    }

    async fn read(&self) -> Result<Metadata, ProviderError> {
        let issuer = self.settings.issuer.trim_end_matches('/');
        let mut request = HttpRequest::new(Vec::new());
        *request.uri_mut() = format!("{issuer}/.well-known/openid-configuration")
            .parse()
            .unwrap_or_default();
        let response = self.http.call(request).await?;
        if response.status() != StatusCode::OK {
            return Err(ProviderError::Status(response.status()));
        }
        let document: Document = serde_json::from_slice(response.body())?;
        if document.issuer != self.settings.issuer {
            return Err(ProviderError::DocumentOfOther(quoted(&document.issuer)));
        }
        let keys = JsonWebKeySet::fetch_async(&document.jwks_uri, &self.http).await;
        let keys = keys.map_err(|error| ProviderError::Keys(Box::new(error)))?;
        Ok(Metadata { document, keys })
    }

    /// What the person is told; the log has the reason.
    fn refusal(&self, error: &ProviderError) -> Refusal {
        let ProviderSettings { name, title, .. } = &self.settings;
        warn!(provider = name, error = %Chain(error), "a sign-in was refused");
        match error {
            ProviderError::Document(_)
            | ProviderError::Status(_)
            | ProviderError::MalformedDocument(_)
            | ProviderError::DocumentOfOther(_)
            | ProviderError::Keys(_)
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

impl Metadata {
    /// How the client proves who it is: as the document says, else by HTTP Basic, the default.
    fn auth_type(&self) -> AuthType {
        let methods = self.document.token_endpoint_auth_methods_supported.as_ref();
        let takes = |name: &str| methods.is_none_or(|methods| methods.iter().any(|method| method == name));
        if takes("client_secret_basic") || !takes("client_secret_post") {
            AuthType::BasicAuth
        } else {
            AuthType::RequestBody
        }
    }
}

#[cfg(test)]
mod tests;
