//! Certificates by ACME (RFC 8555), with the challenge `http-01`.
//!
//! Invariants: the certificate in use stays in use until a new one is complete. Account, answers to challenges and the
//! certificate are files, so that a restart orders nothing, and a replica with the same folder serves what another one
//! ordered. The address for challenges serves nothing else.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as PathParameter, State};
use axum::routing::get;
use http::StatusCode;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, Problem, RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tidewaiter_kit::backoff::{Backoff, jittered};
use tidewaiter_kit::clock::{Elapsed, timeout};
use tidewaiter_kit::serve::{Certificate, TlsError};
use tidewaiter_kit::{Chain, SharedClock};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use url::Url;

use super::keys::secret_file::{SecretFileError, create_folder, read, remove, replace};

/// The time between two looks at the certificate.
const LOOK: Duration = Duration::from_mins(1);
/// The time limit of an order.
const ORDER_TIMEOUT: Duration = Duration::from_mins(5);
/// The wait after a failure. Let's Encrypt permits five failed validations of a name in an hour.
const BACKOFF: Backoff = Backoff::new(Duration::from_mins(2), Duration::from_hours(6));

/// The settings of ACME.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// The URL of the provider's directory.
    pub directory: Url,
    /// The address to which the provider writes.
    pub email: Option<String>,
    /// The authority of the directory's own certificate, if it is not a public one.
    pub ca: Option<PathBuf>,
    /// The address on which challenges are answered.
    pub address: SocketAddr,
    /// The folder of the account and the certificate.
    pub folder: PathBuf,
}

impl AcmeSettings {
    /// The file of the certificate and its key.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    fn answers(&self) -> PathBuf {
        self.folder.join("challenges")
    }
}

/// An order failed.
#[derive(Debug, thiserror::Error)]
enum AcmeError {
    #[error(transparent)]
    Protocol(#[from] instant_acme::Error),
    #[error("the provider refused the order: {0}")]
    Refused(Problem),
    #[error("the provider refused the order, which is {0:?}, without a reason")]
    Unexplained(OrderStatus),
    #[error("the authorization is {0:?}")]
    Authorization(AuthorizationStatus),
    #[error("the provider does not offer the challenge http-01")]
    NoChallenge,
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("the account cannot be stored")]
    Account(#[from] serde_json::Error),
    #[error("the order is not complete")]
    Timeout(#[from] Elapsed),
    #[error(transparent)]
    Certificate(#[from] TlsError),
    #[error("the new certificate is due for renewal already: correct the clock")]
    Due,
}

/// The account, with the directory to which it belongs.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: Url,
    credentials: AccountCredentials,
}

/// Orders the certificate of a server, and renews it.
pub(super) struct Acme {
    pub(super) settings: AcmeSettings,
    /// The host of the public URL.
    pub(super) host: String,
    pub(super) certificate: Arc<Certificate>,
    pub(super) clock: SharedClock,
}

impl Acme {
    pub(super) async fn run(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        let mut failures = 0;
        loop {
            let pass = async {
                let wait = self.pass(&mut failures).await;
                self.clock.sleep(wait).await;
            };
            if shutdown.run_until_cancelled(pass).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Orders a certificate if it is due. Returns the time until the next look.
    async fn pass(&self, failures: &mut u32) -> Duration {
        // Another replica may have renewed it.
        if self.settings.certificate().exists()
            && let Err(error) = self.reload()
        {
            error!(error = %Chain(&error), "cannot reload the certificate");
        }
        if !self.is_due() {
            *failures = 0;
            return jittered(LOOK, 0.5);
        }
        let ordered = timeout(&*self.clock, ORDER_TIMEOUT, self.order()).await;
        let ordered = ordered.map_err(AcmeError::from).flatten();
        match ordered.and_then(|()| self.accept()) {
            Ok(()) => {
                info!(host = %self.host, "the certificate is new");
                *failures = 0;
                LOOK
            }
            Err(error) => {
                *failures = failures.saturating_add(1);
                let wait = BACKOFF.delay(*failures);
                error!(error = %Chain(&error), host = %self.host, ?wait, "cannot order a certificate");
                wait
            }
        }
    }

    fn reload(&self) -> Result<(), TlsError> {
        self.certificate.reload_checked(Some(&self.host), self.clock.now())
    }

    /// Takes the certificate that was ordered. If another order would follow at once, this one has failed.
    fn accept(&self) -> Result<(), AcmeError> {
        self.reload()?;
        if self.is_due() { Err(AcmeError::Due) } else { Ok(()) }
    }

    fn is_due(&self) -> bool {
        let now = self.clock.now();
        let validity = self.certificate.validity();
        validity.is_none_or(|validity| validity.is_renewal_due(now))
            || self.certificate.check(Some(&self.host), now).is_err()
    }

    async fn order(&self) -> Result<(), AcmeError> {
        create_folder(&self.settings.answers())?;
        let account = self.account().await?;
        let names = [Identifier::Dns(self.host.clone())];
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut answers = Vec::new();
        let ready = self.authorize(&mut order, &mut answers).await;
        for answer in answers {
            remove(&answer)?;
        }
        ready?;
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&RetryPolicy::default()).await?;
        replace(&self.settings.certificate(), &format!("{chain}\n{key}"))?;
        Ok(())
    }

    /// Answers the challenges of the order, each in a file of `answers`, until it is ready.
    async fn authorize(&self, order: &mut Order, answers: &mut Vec<PathBuf>) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                status => return Err(AcmeError::Authorization(status)),
            }
            let challenge = authorization.challenge(ChallengeType::Http01);
            let mut challenge = challenge.ok_or(AcmeError::NoChallenge)?;
            if let Some(answer) = answer(&self.settings.answers(), &challenge.token) {
                replace(&answer, challenge.key_authorization().as_str())?;
                answers.push(answer);
            }
            challenge.set_ready().await?;
        }
        match order.poll_ready(&RetryPolicy::default()).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(status) => Err(reason(order)
                .await
                .map_or(AcmeError::Unexplained(status), AcmeError::Refused)),
            // The problem of the order does not say what happened at the host.
            Err(error) => Err(reason(order).await.map_or(error.into(), AcmeError::Refused)),
        }
    }

    /// The account in its file, or a new one.
    async fn account(&self) -> Result<Account, AcmeError> {
        let path = self.settings.folder.join("account.json");
        let stored = match read(&path) {
            Ok(text) => serde_json::from_str::<StoredAccount>(&text).ok(),
            Err(error) if error.is_gone() => None,
            Err(error) => return Err(error.into()),
        };
        let builder = match &self.settings.ca {
            Some(ca) => Account::builder_with_root(ca)?,
            None => Account::builder()?,
        };
        if let Some(stored) = stored.filter(|stored| stored.directory == self.settings.directory) {
            return Ok(builder.from_credentials(stored.credentials).await?);
        }
        let contact = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<_> = contact.iter().map(String::as_str).collect();
        let account = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.clone();
        let (account, credentials) = builder.create(&account, directory.to_string(), None).await?;
        let stored = StoredAccount { directory, credentials };
        replace(&path, &serde_json::to_string(&stored)?)?;
        Ok(account)
    }
}

/// The reason for which a challenge failed.
async fn reason(order: &mut Order) -> Option<Problem> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Some(problem);
        }
    }
    None
}

/// The file of the answer to a challenge; `None` if the token has a character that no token has (RFC 8555, 8.3).
fn answer(folder: &Path, token: &str) -> Option<PathBuf> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_valid = !token.is_empty() && token.len() <= 128 && token.bytes().all(is_token);
    is_valid.then(|| folder.join(token))
}

/// Serves the answers to challenges.
pub(super) fn challenges(settings: &AcmeSettings) -> Router {
    let folder: Arc<Path> = settings.answers().into();
    Router::new()
        .route("/.well-known/acme-challenge/{token}", get(challenge))
        .with_state(folder)
}

async fn challenge(
    State(folder): State<Arc<Path>>,
    PathParameter(token): PathParameter<String>,
) -> Result<String, StatusCode> {
    let path = answer(&folder, &token).ok_or(StatusCode::NOT_FOUND)?;
    tokio::fs::read_to_string(path)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tidewaiter_kit::clock::ManualClock;
    use tower::ServiceExt as _;

    use super::*;

    fn settings(folder: &Path) -> AcmeSettings {
        AcmeSettings {
            directory: "https://acme.example.com/directory".parse().unwrap(),
            email: None,
            ca: None,
            address: ([127, 0, 0, 1], 0).into(),
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn an_order_has_failed_if_its_certificate_is_not_as_it_must_be() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let path = settings.certificate();
        let acme = Acme {
            certificate: Certificate::awaited(&path, &path),
            settings,
            host: "cloud.example.com".to_owned(),
            clock: ManualClock::new("2026-07-01T00:00:00Z".parse().unwrap()).shared(),
        };
        for (host, begin, wanted) in [
            ("example.com", 2026, "it is not for cloud.example.com"),
            ("cloud.example.com", 2020, "correct the clock"),
            ("cloud.example.com", 2026, ""),
        ] {
            let mut params = CertificateParams::new([host.to_owned()]).unwrap();
            params.not_before = date_time_ymd(begin, 1, 1);
            params.not_after = date_time_ymd(2027, 1, 1);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
            replace(&path, &pem).unwrap();
            let reason = acme.accept().err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(reason.is_empty(), wanted.is_empty(), "{reason}");
            assert!(reason.contains(wanted), "{reason}");
        }
    }

    #[tokio::test]
    async fn only_answers_to_challenges_are_served() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        create_folder(&settings.answers()).unwrap();
        replace(&settings.answers().join("a-token_1"), "a-token_1.thumbprint").unwrap();
        replace(&folder.path().join("account.json"), "{}").unwrap();
        for (token, status) in [
            ("a-token_1", 200),
            ("a-token_2", 404),
            ("..%2Faccount.json", 404),
            ("%2Fetc%2Fpasswd", 404),
            ("..", 404),
        ] {
            let request = Request::get(format!("/.well-known/acme-challenge/{token}"));
            let request = request.body(Body::empty()).unwrap();
            let response = challenges(&settings).oneshot(request).await.unwrap();
            assert_eq!(response.status(), status, "{token}");
        }
    }
}
