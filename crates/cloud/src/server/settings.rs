//! The settings of a server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use jiff::SignedDuration;
use url::Url;

use super::acme::AcmeSettings;
use super::http::limits::LimitSettings;
use super::local_authority::LocalAuthority;
use super::oidc::SignInSettings;
use super::store::{Retention, StorageLimits};
use crate::models::Kind;

/// The parts of a server.
#[derive(Clone, Debug)]
pub struct ServerParts {
    pub database: Url,
    pub address: SocketAddr,
    /// The files of the certificate and of its key; `None` for plain HTTP, which is permitted only on loopback and to
    /// trusted proxies.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The source of these files.
    pub certificate: CertificateSource,
    /// True if the connections of trusted proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The public URL; the issuer of tokens.
    pub issuer: Url,
    /// The directory of the signing keys.
    pub keys: PathBuf,
    /// The file of the sealing keys.
    pub sealing: PathBuf,
    /// The files of the keys that sign the scripts of upgrades: secret keys of minisign without a password.
    pub script_keys: Vec<PathBuf>,
    pub limits: LimitSettings,
    /// The quotas that differ from [`Facts::quota`](crate::models::Facts::quota).
    pub quotas: BTreeMap<Kind, i64>,
    /// The time for which changes stay in the audit log.
    pub audit: Retention,
    /// The bytes that are stored of each organization, cluster and caller.
    pub storage: StorageLimits,
    /// The maximum number of open connections, including streams.
    pub connections: usize,
    pub lives: TokenLifetimes,
    pub sign_in: SignInSettings,
}

impl ServerParts {
    /// Returns true if other hosts reach the port, which has no TLS.
    pub(super) fn is_open(&self) -> bool {
        self.tls.is_none() && !self.address.ip().to_canonical().is_loopback()
    }

    /// The host that the certificate must have; `None` if a proxy ends TLS, which may know the server by another name.
    pub(super) fn certificate_host(&self) -> Option<&str> {
        let ends_tls = !self.limits.proxies.0.is_empty() && !self.proxy_protocol;
        self.issuer.host_str().filter(|_| !ends_tls)
    }
}

/// The source of the server's certificate.
#[derive(Clone, Debug, Default)]
pub enum CertificateSource {
    /// Somebody else renews it.
    #[default]
    Files,
    /// The authority that `init` made.
    Local(LocalAuthority),
    Acme(AcmeSettings),
}

/// The lifetimes of tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenLifetimes {
    /// A user's token, from a login.
    pub login: SignedDuration,
    /// A cluster's token.
    pub cluster: SignedDuration,
    /// A user's token for a kube-apiserver, which is not notified of a revocation.
    pub kubernetes: SignedDuration,
}

impl Default for TokenLifetimes {
    fn default() -> Self {
        Self {
            login: SignedDuration::from_hours(12),
            cluster: SignedDuration::from_hours(1),
            kubernetes: SignedDuration::from_mins(10),
        }
    }
}
