//! The certificate of a server that has none: `init` makes an authority of its own, and a certificate of it for
//! `localhost`, so that no password is sent in plain text from the first login on.
//!
//! Invariants: the server's certificate is none of an authority (CA:FALSE), is valid for 397 days at most, which is what
//! browsers accept, and is renewed by `serve`. The keys are readable only by their owner. An authority that has made a
//! certificate is never replaced, because people trust it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tidewaiter_kit::serve::Certificate;

use super::keys::secret_file::{SecretFileError, create_folder, read, replace};

/// The life of the authority's certificate.
const AUTHORITY_LIFE: Duration = Duration::from_hours(24 * 3650);
/// The life of the server's certificate.
const LIFE: Duration = Duration::from_hours(24 * 396);
/// Clocks that are behind ours accept a new certificate.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// The names with which this machine reaches itself.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LocalAuthorityError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("cannot make a certificate for {names}")]
    Certificate { names: String, source: rcgen::Error },
}

/// The folder of an authority, and of the certificate that it made for this server.
#[derive(Clone, Debug)]
pub struct LocalAuthority {
    folder: PathBuf,
}

impl LocalAuthority {
    /// The authority in the data directory of a server; it need not exist.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            folder: data.join("tls"),
        }
    }

    /// The file of the authority's certificate, which clients trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The file of the server's certificate and of its key.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// Creates the authority, and a certificate for this machine and `hosts`. Does nothing if they exist.
    ///
    /// # Errors
    /// If a file cannot be written, or a host is no name.
    pub fn create(&self, hosts: &[String], now: Timestamp) -> Result<(), LocalAuthorityError> {
        if self.certificate().exists() {
            return Ok(());
        }
        create_folder(&self.folder)?;
        let failed = failed(self.folder.display().to_string());
        let key = KeyPair::generate().map_err(&failed)?;
        let authority = CertifiedIssuer::self_signed(authority_params(now), key).map_err(&failed)?;
        replace(&self.key(), &authority.key().serialize_pem())?;
        replace(&self.authority(), &authority.pem())?;
        let names: Vec<_> = OWN_NAMES.into_iter().map(str::to_owned).chain(hosts.to_vec()).collect();
        replace(&self.names(), &names.join("\n"))?;
        self.issue(now)
    }

    /// Replaces the server's certificate after two thirds of its life, or if it is unusable.
    pub(super) fn renew(&self, now: Timestamp) -> Result<(), LocalAuthorityError> {
        let path = self.certificate();
        let validity = Certificate::awaited(&path, &path).validity();
        if validity.is_none_or(|validity| validity.is_renewal_due(now)) {
            self.issue(now)?;
        }
        Ok(())
    }

    fn issue(&self, now: Timestamp) -> Result<(), LocalAuthorityError> {
        let names = read(&self.names())?;
        let names: Vec<_> = names.lines().map(str::to_owned).collect();
        let key = read(&self.key())?;
        let failed = failed(names.join(", "));
        let authority = KeyPair::from_pem(&key).map_err(&failed)?;
        let authority = Issuer::new(authority_params(now), authority);
        let mut params = CertificateParams::new(names).map_err(&failed)?;
        valid(&mut params, now, LIFE);
        params.distinguished_name.push(DnType::CommonName, "tidewaiter cloud");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(&failed)?;
        let certificate = params.signed_by(&key, &authority).map_err(&failed)?;
        // One file, so that no reader sees a certificate with another one's key.
        replace(&self.certificate(), &(certificate.pem() + &key.serialize_pem()))?;
        Ok(())
    }

    fn key(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    /// The file of the names in the certificate, one in a line.
    fn names(&self) -> PathBuf {
        self.folder.join("names")
    }
}

/// The same for each certificate that the authority makes: they name it as their issuer.
fn authority_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    valid(&mut params, now, AUTHORITY_LIFE);
    params
        .distinguished_name
        .push(DnType::CommonName, "Tidewaiter local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn valid(params: &mut CertificateParams, now: Timestamp, life: Duration) {
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SKEW);
    params.not_after = date_time_ymd(1970, 1, 1) + now + life;
}

fn failed(names: String) -> impl Fn(rcgen::Error) -> LocalAuthorityError {
    move |source| LocalAuthorityError::Certificate {
        names: names.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_client_accepts_the_certificate_for_this_machine_and_the_given_hosts() {
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        local.create(&["cloud.lan".to_owned()], now).unwrap();
        let path = local.certificate();
        let certificate = Certificate::load(&path, &path).unwrap();
        for host in ["localhost", "127.0.0.1", "[::1]", "cloud.lan"] {
            certificate.check(Some(host), now).unwrap();
        }
        certificate.check(Some("example.com"), now).unwrap_err();
        let validity = certificate.validity().unwrap();
        assert!(validity.until.duration_since(validity.from) <= SignedDuration::from_hours(24 * 397));
        for file in ["ca.key", "server.pem"] {
            let mode = data.path().join("tls").join(file).metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn the_certificate_is_renewed_and_the_authority_stays() {
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        local.create(&[], now).unwrap();
        let files = || [local.authority(), local.key(), local.certificate()].map(|path| read(&path).unwrap());
        let before = files();
        local.create(&["other".to_owned()], now).unwrap();
        local.renew(now + SignedDuration::from_hours(24 * 200)).unwrap();
        assert_eq!(files(), before);
        let later = now + SignedDuration::from_hours(24 * 300);
        local.renew(later).unwrap();
        let after = files();
        assert_eq!(after[..2], before[..2]);
        assert_ne!(after[2], before[2]);
        let path = local.certificate();
        let renewed = Certificate::load(&path, &path).unwrap();
        renewed
            .check(Some("localhost"), now + SignedDuration::from_hours(24 * 600))
            .unwrap();
    }
}
