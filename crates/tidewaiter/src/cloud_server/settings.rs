//! The settings of the cloud's server: a file, the environment, flags; each overrides the previous ones. None is a
//! secret.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use ipnet::IpNet;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::store::{Retention, StorageLimits};
use tidewaiter_cloud::server::{
    AcmeSettings, CertificateSource, LimitSettings, LocalAuthority, ServerParts, SignInSettings, TokenLifetimes,
    TrustedProxies,
};
use tidewaiter_kit::role::address;
use tidewaiter_kit::telemetry::LogSettings;
use url::Url;

use super::acme::AcmeSection;
use crate::settings::{endpoint, seconds, whole_count, whole_seconds};

/// All settings of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ServerSettings {
    /// The directory of the database and the keys, unless they are set separately. For one process.
    pub(super) data: PathBuf,
    /// The URL of the database, `sqlite:///FOLDER/FILE` or `postgres://USER@HOST/DATABASE`; by default `cloud.db` in
    /// `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    /// The file with the password of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    database_password_file: Option<PathBuf>,
    /// The directory of the signing keys; by default `keys` in `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<PathBuf>,
    /// The file of the sealing keys; by default `sealing-keys` in `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealing_keys: Option<PathBuf>,
    /// The files of the keys that sign the scripts of upgrades: secret keys of minisign without a password.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    script_keys: Vec<PathBuf>,
    /// The listen address.
    #[serde(deserialize_with = "address")]
    address: SocketAddr,
    /// The listen address of `/healthz` and `/readyz`, in plain HTTP, for probes.
    #[serde(deserialize_with = "address")]
    pub(super) health_address: SocketAddr,
    /// The listen address of `/metrics`, `/healthz` and `/readyz` with its report, in plain HTTP, for operators.
    #[serde(deserialize_with = "address")]
    pub(super) admin_address: SocketAddr,
    /// The URL for clients, and the issuer of tokens; by default from `address`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    public_url: Option<Url>,
    /// The file of the TLS certificate, read every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_certificate: Option<PathBuf>,
    /// The file of the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    /// The certificate of the host of `publicUrl` comes from a provider by ACME. A mapping, `{}` for Let's Encrypt.
    #[serde(skip_serializing_if = "Option::is_none")]
    acme: Option<AcmeSection>,
    /// The listen address on which the provider checks the host (`http-01`); it connects to port 80 of the host.
    #[serde(deserialize_with = "address")]
    acme_address: SocketAddr,
    /// The maximum rate of requests per caller; a burst may be ten times as large.
    #[serde(deserialize_with = "whole_count")]
    requests_per_second: NonZeroU32,
    /// The maximum number of concurrent requests.
    #[serde(deserialize_with = "whole_count")]
    requests_at_once: NonZeroU32,
    /// The maximum number of change streams of one caller; a coordinator has one.
    #[serde(deserialize_with = "whole_count")]
    streams_per_caller: NonZeroU32,
    /// The number of days for which changes stay in the audit log.
    #[serde(deserialize_with = "whole_count")]
    audit_days: NonZeroU32,
    /// The number of days for which the changes that clusters report stay in the audit log.
    #[serde(deserialize_with = "whole_count")]
    report_days: NonZeroU32,
    /// The maximum number of objects in an organization, of tokens those of one user, by kind, where it differs from
    /// the default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    quotas: BTreeMap<String, u32>,
    /// The storage of an organization, a cluster and a caller, in MiB.
    #[serde(rename = "storageMiB")]
    storage: StorageLimits,
    /// The addresses and networks of the proxies whose `Forwarded` or `X-Forwarded-For` header names the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trusted_proxies: Vec<String>,
    /// The connections of trusted proxies begin with a header of the PROXY protocol, version 1 or 2.
    proxy_protocol: bool,
    /// The maximum number of open connections; each watcher holds one.
    #[serde(deserialize_with = "whole_count")]
    connections: NonZeroU32,
    /// The lifetime of a login token.
    #[serde(deserialize_with = "whole_seconds")]
    login_seconds: NonZeroU32,
    /// The lifetime of a cluster's token.
    #[serde(deserialize_with = "whole_seconds")]
    cluster_token_seconds: NonZeroU32,
    /// The lifetime of a token for a kube-apiserver, which does not learn of revocations.
    #[serde(deserialize_with = "whole_seconds")]
    kubernetes_token_seconds: NonZeroU32,
    /// How people sign in besides passwords.
    sign_in: SignInSettings,
    /// The log settings.
    pub(super) log: LogSettings,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            data: PathBuf::from("/var/lib/tidewaiter"),
            database: None,
            database_password_file: None,
            keys: None,
            sealing_keys: None,
            script_keys: Vec::new(),
            address: (Ipv4Addr::LOCALHOST, 3990).into(),
            // 3986 is the controller's port.
            health_address: (Ipv4Addr::LOCALHOST, 3985).into(),
            // 3984 is the admin port of other roles.
            admin_address: (Ipv4Addr::LOCALHOST, 3983).into(),
            public_url: None,
            tls_certificate: None,
            tls_key: None,
            acme: None,
            acme_address: (Ipv4Addr::UNSPECIFIED, 80).into(),
            requests_per_second: seconds(100),
            requests_at_once: seconds(256),
            streams_per_caller: seconds(32),
            audit_days: seconds(400),
            report_days: seconds(30),
            quotas: BTreeMap::new(),
            storage: StorageLimits::default(),
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            connections: seconds(20_000),
            login_seconds: seconds(12 * 60 * 60),
            cluster_token_seconds: seconds(60 * 60),
            kubernetes_token_seconds: seconds(10 * 60),
            sign_in: SignInSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl ServerSettings {
    /// Checks settings that depend on each other. Reads no secret.
    pub(super) fn check(&self) -> Result<()> {
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            bail!("tlsCertificate and tlsKey belong together: set both or neither");
        }
        if self.tls_certificate.is_some() && self.acme.is_some() {
            bail!("tlsCertificate and acme are set: set only one of them");
        }
        if self.proxy_protocol && self.trusted_proxies.is_empty() {
            bail!("proxyProtocol is true, but trustedProxies is not set: set it to the proxies that send the header");
        }
        self.database_url(None)?;
        self.proxies()?;
        self.acme()?;
        self.quotas()?;
        self.sign_in.check()?;
        Ok(())
    }

    fn acme(&self) -> Result<Option<AcmeSettings>> {
        let settings = |acme: &AcmeSection| {
            let folder = self.data.join("acme");
            acme.settings(self.public_url.as_ref(), self.acme_address, folder)
        };
        self.acme.as_ref().map(settings).transpose()
    }

    /// The authority that `init` makes; it need not exist.
    pub(super) fn local_authority(&self) -> LocalAuthority {
        LocalAuthority::new(&self.data)
    }

    /// Returns true if the certificate of the local authority is not needed: another one is set, or a proxy has it.
    pub(super) fn has_other_certificate(&self) -> bool {
        self.tls_certificate.is_some() || self.acme.is_some() || !self.trusted_proxies.is_empty()
    }

    /// Returns true if the server serves with a certificate of the local authority, whose missing files are made again.
    pub(super) fn is_local(&self) -> bool {
        !self.has_other_certificate() && self.local_authority().exists()
    }

    /// The names, besides those of this machine, in the certificate that `init` makes. `None` if it makes none: with a
    /// public URL, it does so only for `hosts`.
    pub(super) fn local_hosts(&self, hosts: &[String]) -> Option<Vec<String>> {
        if self.has_other_certificate() || (self.public_url.is_some() && hosts.is_empty()) {
            return None;
        }
        let ip = self.address.ip();
        let public = match &self.public_url {
            Some(url) => url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned()),
            None => (!ip.is_loopback()).then(|| ip.to_string()),
        };
        Some(hosts.iter().cloned().chain(public).collect())
    }

    /// The files of the certificate and of its key, and their source.
    fn certificate(&self) -> Result<(Option<(PathBuf, PathBuf)>, CertificateSource)> {
        let (file, source) = if let Some(acme) = self.acme()? {
            (acme.certificate(), CertificateSource::Acme(acme))
        } else if self.is_local() {
            let local = self.local_authority();
            (local.certificate(), CertificateSource::Local(local))
        } else {
            let files = self.tls_certificate.clone().zip(self.tls_key.clone());
            return Ok((files, CertificateSource::Files));
        };
        Ok((Some((file.clone(), file)), source))
    }

    fn quotas(&self) -> Result<BTreeMap<Kind, i64>> {
        let quota = |(word, most): (&String, &u32)| {
            let kind = Kind::of(word).with_context(|| {
                let words: Vec<_> = Kind::ALL.iter().map(|kind| kind.word()).collect();
                format!("quotas has the key {word}, must have kinds: {}", words.join(", "))
            })?;
            Ok((kind, i64::from(*most)))
        };
        self.quotas.iter().map(quota).collect()
    }

    fn proxies(&self) -> Result<TrustedProxies> {
        let network = |(place, text): (usize, &String)| {
            let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
            let network = text.parse().ok().or_else(address);
            network.with_context(|| {
                format!("trustedProxies[{place}] is {text}, must be an address or a network such as 10.0.0.0/8")
            })
        };
        let networks: Result<_> = self.trusted_proxies.iter().enumerate().map(network).collect();
        Ok(TrustedProxies(networks?))
    }

    /// The URL of the database, with the password from its file.
    pub(super) fn database(&self) -> Result<Url> {
        let read = |path: &PathBuf| {
            let password = crate::text_file::read(path);
            password.with_context(|| format!("databasePasswordFile is {}: it cannot be read", path.display()))
        };
        let password = self.database_password_file.as_ref().map(read).transpose()?;
        self.database_url(password.as_deref())
    }

    /// The URL of the database with this password. Fails where a password file is set and the URL cannot have a
    /// password.
    fn database_url(&self, password: Option<&str>) -> Result<Url> {
        let text = match &self.database {
            Some(database) => database.clone(),
            None => self.database_in_data()?,
        };
        let wanted = "must be sqlite:///FOLDER/FILE or postgres://USER@HOST/DATABASE";
        let mut url: Url = text.parse().map_err(|_| anyhow!("database is not a URL: {wanted}"))?;
        if url.password().is_some() || url.query_pairs().any(|(name, _)| name == "password") {
            bail!(
                "database contains a password, which could appear in logs and in the process list; put it into a file and set databasePasswordFile to that file"
            );
        }
        if !["sqlite", "postgres", "postgresql"].contains(&url.scheme()) {
            bail!("database is {url}: {wanted}");
        }
        if self.database_password_file.is_some() {
            let set = url.set_password(password.map(|password| password.trim_end_matches(['\r', '\n'])));
            set.map_err(|()| anyhow!("databasePasswordFile is set, and database is {text}, which has no user"))?;
        }
        Ok(url)
    }

    /// The URL of the database in the data directory, whose name may have any characters.
    fn database_in_data(&self) -> Result<String> {
        let file = std::path::absolute(self.data.join("cloud.db")).context("data")?;
        let url =
            Url::from_file_path(&file).map_err(|()| anyhow!("data is {}: must be a path", self.data.display()))?;
        Ok(format!("sqlite://{}", url.path()))
    }

    pub(super) fn keys(&self) -> PathBuf {
        self.keys.clone().unwrap_or_else(|| self.data.join("keys"))
    }

    pub(super) fn sealing_keys(&self) -> PathBuf {
        self.sealing_keys
            .clone()
            .unwrap_or_else(|| self.data.join("sealing-keys"))
    }

    /// The public URL; by default derived from the listen address.
    pub(super) fn public_url(&self) -> Result<Url> {
        if let Some(url) = &self.public_url {
            return Ok(url.clone());
        }
        let ip = self.address.ip();
        if ip.is_unspecified() {
            bail!(
                "address is {}, which is no address that clients can use: set publicUrl to the URL for clients, such as https://cloud.example.com",
                self.address
            );
        }
        let is_local = self.is_local();
        let scheme = if self.tls_certificate.is_some() || is_local {
            "https"
        } else {
            "http"
        };
        let url = if is_local && ip.is_loopback() {
            format!("https://localhost:{}", self.address.port())
        } else {
            format!("{scheme}://{}", self.address)
        };
        url.parse().context("address")
    }

    /// The dependencies of the server.
    pub(super) fn parts(&self) -> Result<ServerParts> {
        let life = |seconds: NonZeroU32| SignedDuration::from_secs(seconds.get().into());
        let days = |days: NonZeroU32| SignedDuration::from_hours(i64::from(days.get()) * 24);
        let count = |number: NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        let (tls, certificate) = self.certificate()?;
        Ok(ServerParts {
            database: self.database()?,
            address: self.address,
            tls,
            certificate,
            proxy_protocol: self.proxy_protocol,
            issuer: self.public_url()?,
            keys: self.keys(),
            sealing: self.sealing_keys(),
            script_keys: self.script_keys.clone(),
            limits: LimitSettings {
                requests_a_second: self.requests_per_second,
                requests_at_once: count(self.requests_at_once),
                streams: count(self.streams_per_caller),
                proxies: self.proxies()?,
            },
            quotas: self.quotas()?,
            audit: Retention {
                changes: days(self.audit_days),
                reports: days(self.report_days),
            },
            storage: self.storage,
            connections: count(self.connections),
            lives: TokenLifetimes {
                login: life(self.login_seconds),
                cluster: life(self.cluster_token_seconds),
                kubernetes: life(self.kubernetes_token_seconds),
            },
            sign_in: self.sign_in.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_public_url_the_certificate_is_for_the_address() {
        for (address, hosts) in [
            ("127.0.0.1:3990", &[][..]),
            ("192.0.2.1:3990", &["192.0.2.1"]),
            ("[2001:db8::1]:3990", &["2001:db8::1"]),
        ] {
            let settings = ServerSettings {
                address: address.parse().unwrap(),
                ..ServerSettings::default()
            };
            assert_eq!(settings.local_hosts(&[]).unwrap(), hosts);
        }
    }

    #[test]
    fn each_setting_has_a_variable() {
        crate::settings::tests::each_has_a_variable::<ServerSettings>();
    }
}
