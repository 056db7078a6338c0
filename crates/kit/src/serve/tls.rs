//! The certificate of a server, reloaded when its files change, so that a renewed one needs no restart.
//!
//! [`Certificate::check`] asks the verifier of our own clients, so that a server refuses at its start what each client
//! would refuse later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore, ServerConfig};

use crate::chain::{Untrusted, untrusted};

/// The certificate is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or invalid.
    #[error("{path} contains no {wanted} in PEM format")]
    File {
        /// The file.
        path: String,
        /// The expected contents.
        wanted: &'static str,
        /// The error of the parser.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The two do not match, or have an unsupported type.
    #[error("the certificate {certificate} cannot be used with the key {key}")]
    Pair {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
        /// The error of the TLS library.
        #[source]
        source: rustls::Error,
    },
    /// No certificate has been read so far.
    #[error("no certificate was read yet; the log has the reason")]
    Missing,
    /// Clients refuse the certificate.
    #[error("clients refuse the certificate {certificate}: {reason}")]
    Refused {
        /// The file of the certificate.
        certificate: String,
        /// The reason and the remedy.
        reason: String,
    },
}

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: Timestamp,
    /// The last second.
    pub until: Timestamp,
}

impl Validity {
    /// Returns true if two thirds of the time are over: the time to renew it, which leaves a third for retries. Also
    /// before the time, which a clock that was ahead has set.
    #[must_use]
    pub fn is_renewal_due(&self, now: Timestamp) -> bool {
        let (from, until) = (self.from.as_second(), self.until.as_second());
        !(from..from + (until - from) / 3 * 2).contains(&now.as_second())
    }
}

/// A certificate with its files.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    /// None until the first one exists: then no handshake succeeds.
    current: ArcSwapOption<CertifiedKey>,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// If they are unusable.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwapOption::from_pointee(read(certificate, key)?),
            chain: certificate.to_owned(),
            key: key.to_owned(),
        }))
    }

    /// A certificate that may not exist yet: the next [`reload`](Self::reload) reads it.
    #[must_use]
    pub fn awaited(certificate: &Path, key: &Path) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwapOption::from_pointee(read(certificate, key).ok()),
            chain: certificate.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Reloads both files. The certificate in use is kept if they are unusable, for example because only one of them is
    /// new.
    ///
    /// # Errors
    /// If they are unusable.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Some(Arc::new(read(&self.chain, &self.key)?)));
        Ok(())
    }

    /// Reloads both files, as [`reload`](Self::reload). The certificate in use is also kept if clients, who accept it,
    /// would refuse the new one.
    ///
    /// # Errors
    /// If they are unusable, or clients would refuse the new certificate for `host`.
    pub fn reload_checked(&self, host: Option<&str>, now: Timestamp) -> Result<(), TlsError> {
        let new = read(&self.chain, &self.key)?;
        let checked = self.check_key(&new, host, now);
        if checked.is_ok() || self.check(host, now).is_err() {
            self.current.store(Some(Arc::new(new)));
        }
        checked
    }

    /// The time in which the certificate in use is valid; `None` without a certificate.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        let current = self.current.load_full()?;
        let certificate = ParsedCertificate::try_from(current.cert.first()?).ok()?;
        // The verifier names each end if the time is beyond it.
        let at = |seconds| refusal(&certificate, UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        let not_before = match at(0) {
            Some(CertificateError::NotValidYetContext { not_before, .. }) => not_before,
            _ => UnixTime::since_unix_epoch(Duration::ZERO),
        };
        let CertificateError::ExpiredContext { not_after, .. } = at(u64::MAX)? else {
            return None;
        };
        let second = |time: UnixTime| Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok();
        Some(Validity {
            from: second(not_before)?,
            until: second(not_after)?,
        })
    }

    /// Checks that clients, who trust its issuer, accept the certificate in use for `host`: a name or an address, with
    /// or without brackets. Without a host, any name is accepted.
    ///
    /// # Errors
    /// [`TlsError::Refused`] with the remedy; [`TlsError::Missing`].
    pub fn check(&self, host: Option<&str>, now: Timestamp) -> Result<(), TlsError> {
        let current = self.current.load_full().ok_or(TlsError::Missing)?;
        self.check_key(&current, host, now)
    }

    fn check_key(&self, key: &CertifiedKey, host: Option<&str>, now: Timestamp) -> Result<(), TlsError> {
        let certificate = key.cert.first();
        match certificate.and_then(|certificate| problem(certificate, host, now)) {
            None => Ok(()),
            Some(reason) => Err(TlsError::Refused {
                certificate: self.chain.display().to_string(),
                reason,
            }),
        }
    }

    /// The TLS configuration of a server with this certificate.
    ///
    /// # Errors
    /// If the library supports no version of the protocol, which would be a build error.
    pub fn config(self: Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self);
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// The reason for which a client refuses the certificate at this time, although it trusts the issuer.
fn refusal(certificate: &ParsedCertificate<'_>, time: UnixTime) -> Option<CertificateError> {
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    // What does not depend on the issuer is checked before the issuer, of whom nothing is known here.
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(certificate, &nobody, &[], time, algorithms.all) {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) | Ok(()) => None,
        Err(rustls::Error::InvalidCertificate(error)) => Some(error),
        Err(_) => Some(CertificateError::BadEncoding),
    }
}

/// The reason for which clients refuse the certificate, with the remedy.
fn problem(certificate: &CertificateDer<'_>, host: Option<&str>, now: Timestamp) -> Option<String> {
    let parsed = match ParsedCertificate::try_from(certificate) {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("{error}: use another one")),
    };
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    if let Some(error) = refusal(&parsed, UnixTime::since_unix_epoch(now)) {
        let error = rustls::Error::InvalidCertificate(error);
        return Some(match untrusted(&error) {
            Some(Untrusted::Authority) => {
                "it is the certificate of an authority (CA:TRUE): use one that the authority signs, or a \
                 self-signed one with CA:FALSE"
                    .to_owned()
            }
            Some(Untrusted::Time) => format!("{error}: renew it, or correct the clock"),
            _ => format!("{error}: use another one"),
        });
    }
    let host = host?.trim_matches(['[', ']']);
    let is_for_host = ServerName::try_from(host).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
    (!is_for_host).then(|| {
        format!("it is not for {host}: use one that has this name as a subject alternative name, or correct publicUrl")
    })
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let failed = |path: &Path, wanted| {
        let path = path.display().to_string();
        move |source| TlsError::File { path, wanted, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(failed(certificate, "certificate"))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(failed(key, "private key"))?;
    CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|source| TlsError::Pair {
        certificate: certificate.display().to_string(),
        key: key.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// A self-signed certificate for `localhost` and 127.0.0.1, valid in 2026, and its folder.
    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> (tempfile::TempDir, Arc<Certificate>) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.is_ca = IsCa::ExplicitNoCa;
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.pem");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), pem.as_bytes()).unwrap();
        let certificate = Certificate::load(&path, &path).unwrap();
        (folder, certificate)
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_clients_would_refuse_is_refused_with_the_remedy() {
        let (summer, year_after) = (at("2026-07-01T00:00:00Z"), at("2027-07-01T00:00:00Z"));
        let (_folder, good) = certificate(|_| {});
        for host in [None, Some("localhost"), Some("127.0.0.1")] {
            good.check(host, summer).unwrap();
        }
        let (_folder, authority) = certificate(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        for (certificate, host, now, words) in [
            (&good, "cloud.example.com", summer, "it is not for cloud.example.com"),
            (&good, "[::1]", summer, "it is not for ::1"),
            (&good, "localhost", year_after, "renew it"),
            (&good, "localhost", at("2025-07-01T00:00:00Z"), "correct the clock"),
            (&authority, "localhost", summer, "CA:FALSE"),
        ] {
            let error = certificate.check(Some(host), now).unwrap_err().to_string();
            assert!(error.contains("tls.pem: ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn it_is_renewed_after_two_thirds_of_its_life() {
        let (_folder, certificate) = certificate(|_| {});
        let validity = certificate.validity().unwrap();
        assert_eq!(validity.from, at("2026-01-01T00:00:00Z"));
        assert_eq!(validity.until, at("2027-01-01T00:00:00Z"));
        assert!(!validity.is_renewal_due(at("2026-08-31T00:00:00Z")));
        assert!(validity.is_renewal_due(at("2026-09-02T00:00:00Z")));
        // The clock was ahead.
        assert!(validity.is_renewal_due(at("2025-12-31T00:00:00Z")));
    }

    #[test]
    fn one_that_is_valid_since_1970_has_a_validity() {
        let (_folder, certificate) = certificate(|params| params.not_before = date_time_ymd(1970, 1, 1));
        let validity = certificate.validity().unwrap();
        assert_eq!(validity.from, Timestamp::UNIX_EPOCH);
        assert_eq!(validity.until, at("2027-01-01T00:00:00Z"));
    }

    #[test]
    fn a_new_one_that_clients_would_refuse_replaces_only_one_that_they_refuse() {
        let (folder, certificate_in_use) = certificate(|_| {});
        let (expired, _) = certificate(|params| params.not_after = date_time_ymd(2026, 2, 1));
        let file = |folder: &tempfile::TempDir| folder.path().join("tls.pem");
        std::fs::rename(file(&expired), file(&folder)).unwrap();
        let summer = at("2026-07-01T00:00:00Z");
        let reload = |now| certificate_in_use.reload_checked(Some("localhost"), now);
        assert!(reload(summer).unwrap_err().to_string().contains("renew it"));
        certificate_in_use.check(Some("localhost"), summer).unwrap();
        reload(at("2027-07-01T00:00:00Z")).unwrap_err();
        assert_eq!(certificate_in_use.validity().unwrap().until, at("2026-02-01T00:00:00Z"));
        reload(at("2026-01-15T00:00:00Z")).unwrap();
    }

    #[test]
    fn one_that_does_not_exist_yet_is_read_when_it_does() {
        let (folder, _) = certificate(|_| {});
        let (path, later) = (folder.path().join("tls.pem"), folder.path().join("later.pem"));
        let certificate = Certificate::awaited(&later, &later);
        assert!(certificate.validity().is_none() && certificate.reload().is_err());
        certificate.check(None, at("2026-07-01T00:00:00Z")).unwrap_err();
        std::fs::rename(path, later).unwrap();
        certificate.reload().unwrap();
        assert!(certificate.validity().is_some());
    }
}
