//! Signing in with OpenID Connect: the providers of the settings, and what they say of a person.
//!
//! A person is the issuer and the subject of an ID token, never an e-mail address. A provider is asked for the first
//! time when somebody signs in with it, so that one that is away hinders neither the start of the server nor other ways
//! to sign in.

mod http;
mod provider;
mod settings;
mod token;

use std::time::Duration;

use moka::future::Cache;
use tidewaiter_kit::SharedClock;
use url::Url;

pub use self::http::ClientError;
pub(super) use provider::{Callback, Provider};
pub use settings::{InvalidProvider, ProviderSettings, ProvisionSettings, SignInSettings};
pub(super) use token::Person;

use super::keys::secret_file::{self, SecretFileError};

/// The time for which a person has to return from the provider.
pub(super) const LIFE: Duration = Duration::from_mins(10);
/// Old entries are dropped beyond this number.
const STATES: u64 = 100_000;

/// The sign-in providers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error(transparent)]
    Invalid(#[from] InvalidProvider),
    #[error("signIn.providers: clientSecretFile of {provider}")]
    Secret { provider: String, source: SecretFileError },
    #[error("signIn.providers: caFile of {provider}")]
    Client { provider: String, source: ClientError },
}

/// The sign-in providers of the server.
pub(super) struct Oidc {
    pub(super) providers: Vec<Provider>,
    /// The states of sign-ins that have come back, each until it has expired: none comes back twice.
    returned: Cache<String, ()>,
    /// Where providers send a person back to.
    pub(super) redirect: Url,
}

impl Oidc {
    /// The providers of `settings`, for the server with the public URL `issuer`. No provider is asked.
    pub(super) fn new(settings: &SignInSettings, issuer: &Url, clock: &SharedClock) -> Result<Self, OidcError> {
        settings.check()?;
        let mut providers = Vec::new();
        for settings in &settings.providers {
            let provider = || settings.name.clone();
            let failed = |source| OidcError::Secret {
                provider: provider(),
                source,
            };
            secret_file::read(&settings.client_secret_file).map_err(failed)?;
            let opened = Provider::new(settings.clone(), clock.clone()).map_err(|source| OidcError::Client {
                provider: provider(),
                source,
            })?;
            providers.push(opened);
        }
        let mut redirect = issuer.clone();
        redirect.set_path("/sign-in/callback");
        Ok(Self {
            providers,
            returned: Cache::builder().max_capacity(STATES).time_to_live(LIFE).build(),
            redirect,
        })
    }

    /// The provider with this name.
    pub(super) fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.settings.name == name)
    }

    /// Returns true if a member of `organization` can sign in as a person of `issuer`.
    pub(super) fn is_offered(&self, issuer: &str, organization: &str) -> bool {
        self.providers.iter().any(|Provider { settings, .. }| {
            let only = settings.organization.as_deref();
            settings.issuer == issuer && only.is_none_or(|only| only == organization)
        })
    }

    /// Returns true the first time that the sign-in with this state comes back.
    pub(super) async fn returns_first(&self, state: &str) -> bool {
        self.returned.entry(state.to_owned()).or_insert(()).await.is_fresh()
    }
}
