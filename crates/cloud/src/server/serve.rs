//! Starts the server: the database, the keys, the certificate, the listener, and the tasks that they need.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus::IntGauge;
use rustls::ServerConfig;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::serve::{BindError, Certificate, Options, TlsError, bind, serve_with};
use tidewaiter_kit::{Chain, Kit, Tasks};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};
use url::Url;

use super::acme::{Acme, AcmeSettings, challenges};
use super::auth::authenticator::Authenticator;
use super::auth::guesses::Guesses;
use super::auth::webauthn::relying_party;
use super::http::limits::Limits;
use super::http::list_cache::ListCache;
use super::http::metrics::Requests;
use super::http::response_budget::ResponseBudget;
use super::keys::script_keys::{ScriptKeyError, ScriptKeys};
use super::keys::sealing::{Sealer, SealingError};
use super::keys::signing::{KeyRing, SigningError};
use super::keys::token::Tokens;
use super::local_authority::LocalAuthorityError;
use super::oidc::{Oidc, OidcError};
use super::openapi::{Served, document};
use super::reseal::{heads, reseal};
use super::router::router;
use super::routes::ENDPOINTS;
use super::settings::{CertificateSource, ServerParts};
use super::state::{AppState, NO_SIGNING_KEY, ServerState};
use super::store::{Opened, Quotas, Storage, StorageMetrics, Store, StoreError};
use crate::models::Kind;

/// The interval at which the keys and the certificate are reloaded from their files; SIGHUP reloads them at once.
const RELOAD: Duration = Duration::from_mins(1);
/// A connection whose first request does not arrive in this time is closed.
const FIRST: Duration = Duration::from_secs(10);
/// A connection without a further request is closed after this time; clients that poll every 30 seconds keep theirs.
const IDLE: Duration = Duration::from_secs(75);
/// The time for requests in progress to complete after the shutdown began.
pub const DRAIN: Duration = Duration::from_secs(10);

/// The description, as JSON and as HTML: constant while the program runs.
static DESCRIPTION: LazyLock<[Served; 2]> = LazyLock::new(|| {
    let document = document(&ENDPOINTS);
    [Served::json(&document), Served::page(&document)]
});

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database has no organization. A lost one that is served would look as if all objects had been deleted.
    #[error(
        "the database has no organization: for a new cloud, run tidewaiter cloud init; if there was one, restore a backup with tidewaiter cloud restore"
    )]
    Empty,
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error(transparent)]
    Sealing(#[from] SealingError),
    #[error(transparent)]
    ScriptKey(#[from] ScriptKeyError),
    #[error(transparent)]
    SignIn(#[from] OidcError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    LocalAuthority(#[from] LocalAuthorityError),
    #[error("TLS cannot be set up")]
    Protocol(#[from] rustls::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Tokens would be sent in plain text over the network.
    #[error(
        "address is {0}, which is reachable from other hosts, but there is no certificate: set tlsCertificate and tlsKey, or acme; or listen on 127.0.0.1; or set trustedProxies to the proxy that has the certificate"
    )]
    Plain(SocketAddr),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

/// Starts all tasks, and returns the address that the server listens on.
///
/// # Errors
/// If the database, the keys, the certificate or the address is unusable: then nothing is served.
pub async fn start(parts: ServerParts, tasks: &mut Tasks, kit: &Kit) -> Result<SocketAddr, ServeError> {
    if parts.is_open() && parts.limits.proxies.0.is_empty() {
        return Err(ServeError::Plain(parts.address));
    }
    let certificate = certificate(&parts, kit)?
        .map(|current| ServerCertificate::new(current, parts.certificate_host(), kit))
        .transpose()?;
    let tls = certificate
        .as_ref()
        .map(|certificate| Arc::clone(&certificate.current).config());
    let tls = tls.transpose()?;
    let tokens = Tokens::new(issuer(&parts.issuer), KeyRing::load(&parts.keys)?);
    let sealer = Sealer::load(&parts.sealing)?;
    let script_keys = ScriptKeys::load(&parts.script_keys)?;
    let oidc = Oidc::new(&parts.sign_in, &parts.issuer, &kit.clock)?;
    let requests = Requests::new(&kit.metrics)?;
    let hangups = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let Opened {
        store,
        mut writer,
        mut maintenance,
    } = Store::open(&parts.database, kit.clock.clone()).await?;
    if store.ids(Kind::Organization).await?.is_empty() {
        return Err(ServeError::Empty);
    }
    sealer.check(&heads(&store).await?, None)?;
    writer.quotas = Arc::new(Quotas {
        limits: parts.quotas.clone(),
        refused: Some(requests.over_quota.clone()),
    });
    let storage = Storage::new(parts.storage, Some(StorageMetrics::new(&kit.metrics)?));
    writer.storage = Arc::new(storage);
    maintenance.storage = Arc::clone(&writer.storage);
    maintenance.retention = parts.audit;
    let listener = bind("address", parts.address).await?;
    let address = listener.local_addr().unwrap_or(parts.address);
    let shutdown = tasks.shutdown_token();
    if let (CertificateSource::Acme(settings), Some(certificate)) = (&parts.certificate, &certificate) {
        start_acme(settings, &parts.issuer, certificate, tasks, kit).await?;
    }
    let checked = store.clone();
    kit.checks.register("database", move || checked.check());
    let keys = store.ids(Kind::ApiKey).await?;
    let app = Arc::new(ServerState {
        authenticator: Authenticator::new(store.clone(), kit.clock.clone(), tokens, keys),
        store,
        sealer: ArcSwap::from_pointee(sealer),
        script_keys: ArcSwap::from_pointee(script_keys),
        limits: Limits::new(parts.limits.clone()),
        guesses: Guesses::default(),
        user_codes: Guesses::default(),
        oidc,
        webauthn: relying_party(&parts.issuer),
        clock: kit.clock.clone(),
        shutdown: shutdown.clone(),
        lists: ListCache::new(requests.lists.clone()),
        budget: ResponseBudget::new(kit.clock.clone()),
        description: &DESCRIPTION,
        requests,
        parts,
    });
    let signing = app.clone();
    kit.checks.register("signing keys", move || {
        let none = signing.authenticator.tokens.load().ring().is_empty();
        if none { Err(NO_SIGNING_KEY.to_owned()) } else { Ok(()) }
    });
    tasks.spawn("cloud/writer", writer.run(shutdown.clone()));
    tasks.spawn("cloud/keeper", maintenance.run(shutdown.clone()));
    tasks.spawn("cloud/files", reload_on(app.clone(), certificate, hangups));
    let router = router(app.clone(), kit.clone());
    let served = serve_with(listener, router, options(&app, tls), kit.clock.clone(), shutdown);
    tasks.spawn("cloud/http", served);
    info!(%address, issuer = %app.parts.issuer, "serving the cloud");
    Ok(address)
}

fn options(app: &ServerState, tls: Option<Arc<ServerConfig>>) -> Options {
    let proxies = if app.parts.proxy_protocol {
        app.limits.proxies.0.clone()
    } else {
        Vec::new()
    };
    Options {
        connections: app.parts.connections,
        first: FIRST,
        head: IDLE,
        life: None,
        tls,
        drain: DRAIN,
        proxies,
        ..Options::default()
    }
}

/// The certificate that `parts` names, which clients accept for the public URL.
fn certificate(parts: &ServerParts, kit: &Kit) -> Result<Option<Arc<Certificate>>, ServeError> {
    let Some((chain, key)) = &parts.tls else {
        return Ok(None);
    };
    let (host, now) = (parts.certificate_host(), kit.clock.now());
    match &parts.certificate {
        // It may not exist yet, and is replaced if clients do not accept it.
        CertificateSource::Acme(_) => return Ok(Some(Certificate::awaited(chain, key))),
        CertificateSource::Local(authority) => authority.renew(host, now)?,
        CertificateSource::Files => {}
    }
    let certificate = Certificate::load(chain, key)?;
    certificate.check(host, now)?;
    Ok(Some(certificate))
}

/// The certificate in use, and what operators see of it.
struct ServerCertificate {
    current: Arc<Certificate>,
    expires: IntGauge,
}

impl ServerCertificate {
    /// The certificate, which must be for `host`.
    fn new(current: Arc<Certificate>, host: Option<&str>, kit: &Kit) -> Result<Self, MetricsError> {
        let expires = kit.metrics.gauge(
            "tidewaiter_cloud_certificate_expires_seconds",
            "Time at which the server's certificate expires, in seconds since 1970; 0 without a certificate.",
        )?;
        let (checked, host, clock) = (Arc::clone(&current), host.map(str::to_owned), kit.clock.clone());
        kit.checks.register("certificate", move || {
            let checked = checked.check(host.as_deref(), clock.now());
            checked.map_err(|error| error.to_string())
        });
        let certificate = Self { current, expires };
        certificate.observe();
        Ok(certificate)
    }

    fn observe(&self) {
        let validity = self.current.validity();
        self.expires
            .set(validity.map_or(0, |validity| validity.until.as_second()));
    }

    /// Reloads the files. The local authority renews them before, and ACME has a task of its own for it.
    fn reload(&self, app: &ServerState) {
        let (host, now) = (app.parts.certificate_host(), app.clock.now());
        let reload = || self.current.reload_checked(host, now).map_err(ServeError::from);
        let reloaded = match &app.parts.certificate {
            CertificateSource::Acme(_) => Ok(()),
            CertificateSource::Local(authority) => authority
                .renew(host, now)
                .map_err(ServeError::from)
                .and_then(|()| reload()),
            CertificateSource::Files => reload(),
        };
        if let Err(error) = reloaded {
            error!(error = %Chain(&error), "cannot reload the certificate");
        }
        self.observe();
    }
}

/// Starts the task that orders the certificate, and the port on which it answers challenges.
async fn start_acme(
    settings: &AcmeSettings,
    issuer: &Url,
    certificate: &ServerCertificate,
    tasks: &mut Tasks,
    kit: &Kit,
) -> Result<(), ServeError> {
    let listener = bind("acmeAddress", settings.address).await?;
    let (router, shutdown) = (challenges(settings), tasks.shutdown_token());
    let served = serve_with(listener, router, Options::default(), kit.clock.clone(), shutdown);
    tasks.spawn("cloud/acme-http", served);
    let acme = Acme {
        settings: settings.clone(),
        host: issuer.host_str().unwrap_or_default().to_owned(),
        certificate: Arc::clone(&certificate.current),
        clock: kit.clock.clone(),
    };
    tasks.spawn("cloud/acme", acme.run(tasks.shutdown_token()));
    Ok(())
}

/// The issuer in tokens: without a trailing slash, because verifiers compare strings.
pub(super) fn issuer(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Reloads the files periodically and on SIGHUP. If a file cannot be read, its last version stays in use, and so do
/// sealing keys if the file lacks one that is in use. A key that signs is dropped with its file, because it may have
/// been stolen. Sealing keys are not: without them, the data that they encrypt would be lost.
async fn reload_on(
    app: AppState,
    certificate: Option<ServerCertificate>,
    mut hangups: Signal,
) -> Result<(), Infallible> {
    // The key of the last logged completion.
    let mut told = None;
    loop {
        tokio::select! {
            () = app.clock.sleep(RELOAD) => {}
            _ = hangups.recv() => info!("reloading the key files and the certificate"),
            () = app.shutdown.cancelled() => return Ok(()),
        }
        reload_signing(&app);
        if let Err(error) = reload_sealing(&app).await {
            error!(error = %Chain(&error), "cannot reload the sealing keys");
        }
        app.script_keys.store(Arc::new(app.script_keys.load().reload()));
        if let Some(certificate) = &certificate {
            certificate.reload(&app);
        }
        let first = app.sealer.load().first();
        match reseal(&app).await {
            Ok(0) if told == Some(first) => {}
            Ok(count) => {
                info!(key = %first, count, "all credentials are encrypted with the first key; older keys can be removed from the file");
                told = Some(first);
            }
            Err(error) => {
                error!(error = %Chain(&error), "cannot encrypt all credentials with the first key");
                told = None;
            }
        }
    }
}

async fn reload_sealing(app: &ServerState) -> Result<(), ServeError> {
    let sealer = Sealer::load(&app.parts.sealing)?;
    sealer.check(&heads(&app.store).await?, Some(&app.sealer.load()))?;
    app.sealer.store(Arc::new(sealer));
    Ok(())
}

fn reload_signing(app: &ServerState) {
    let tokens = app.authenticator.tokens.load();
    match tokens.ring().reload(&app.parts.keys) {
        Ok((ring, errors)) => {
            for error in errors {
                error!(error = %Chain(&error), "cannot reload a signing key");
            }
            if ring.is_empty() {
                error!("tokens are neither signed nor accepted: {NO_SIGNING_KEY}");
            }
            app.authenticator
                .tokens
                .store(Arc::new(Tokens::new(tokens.issuer(), ring)));
        }
        Err(error) => error!(error = %Chain(&error), "cannot reload the signing keys"),
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::clock::ManualClock;

    use super::super::local_authority::LocalAuthority;
    use super::*;

    #[test]
    fn a_server_is_ready_while_clients_accept_its_certificate() {
        let now = "2026-07-01T12:00:00Z".parse().unwrap();
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        local.create(&[], now).unwrap();
        let path = local.certificate();
        let current = Certificate::load(&path, &path).unwrap();
        for (host, days, wanted) in [
            ("localhost", 0, "[+]certificate ok"),
            ("localhost", -1, "not valid yet"),
            ("localhost", 400, "renew it"),
            ("example.com", 0, "it is not for example.com"),
        ] {
            let clock = ManualClock::new(now);
            clock.jump(days * 24 * 60 * 60);
            let kit = Kit::new(clock.shared()).unwrap();
            ServerCertificate::new(Arc::clone(&current), Some(host), &kit).unwrap();
            let (_, report) = kit.checks.report();
            assert!(report.contains(wanted), "{report}");
        }
    }
}
