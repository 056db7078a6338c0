//! The certificate of a server that has none: `init` makes an authority of its own, and a certificate of it for
//! `localhost`, so that no password is sent in plain text from the first login on.
//!
//! Invariants: the server's certificate is none of an authority (CA:FALSE), is valid for 397 days at most, which is
//! what browsers accept, and is renewed by `serve`. The keys are readable only by their owner. Clients accept only
//! certificates for the names that the authority was made for (RFC 5280, section 4.2.1.10): a thief of its key can
//! pretend to be no other site. It is never replaced, because people trust it, unless its certificate was deleted.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
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
    #[error(
        "those who trust {authority} refuse its certificate for {names}: correct publicUrl, set tlsCertificate or \
         acme, or delete {authority}, so that the next start makes another authority, which they have to trust anew"
    )]
    Refused {
        authority: String,
        names: String,
        source: rustls::Error,
    },
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

    /// Returns true if `init` has begun to make the authority: what is missing of it is made by `serve`.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.names().exists()
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

    /// Creates the authority, and a certificate for this machine and `hosts`. Does nothing if the authority exists.
    ///
    /// # Errors
    /// If a file cannot be written, or a host is no name.
    pub fn create(&self, hosts: &[String], now: Timestamp) -> Result<(), LocalAuthorityError> {
        if self.authority().exists() {
            return Ok(());
        }
        create_folder(&self.folder)?;
        let hosts = hosts.iter().map(|host| absolute(host));
        let names: Vec<_> = OWN_NAMES.into_iter().chain(hosts).map(str::to_owned).collect();
        self.make(&names, now)
    }

    /// Makes the authority for these names, and the server's certificate.
    fn make(&self, names: &[String], now: Timestamp) -> Result<(), LocalAuthorityError> {
        let failed = failed(self.folder.display().to_string());
        let key = KeyPair::generate().map_err(&failed)?;
        let mut params = authority_params(now);
        params.name_constraints = Some(only(names));
        let authority = CertifiedIssuer::self_signed(params, key).map_err(&failed)?;
        replace(&self.names(), &names.join("\n"))?;
        replace(&self.key(), &authority.key().serialize_pem())?;
        // The last file that a certificate needs: the authority exists with it.
        replace(&self.authority(), &authority.pem())?;
        self.issue(names, now)
    }

    /// Replaces the server's certificate after two thirds of its life, or if it is missing or unusable for `host`.
    /// Makes the authority again, for its names and `host`, if its own certificate is missing.
    pub(super) fn renew(&self, host: Option<&str>, now: Timestamp) -> Result<(), LocalAuthorityError> {
        let path = self.certificate();
        let certificate = Certificate::awaited(&path, &path);
        let is_due = certificate
            .validity()
            .is_none_or(|validity| validity.is_renewal_due(now));
        let has_authority = self.authority().exists();
        if has_authority && !is_due && certificate.check(host, now).is_ok() {
            return Ok(());
        }
        let mut names: Vec<_> = read(&self.names())?.lines().map(str::to_owned).collect();
        if let Some(host) = host.map(|host| absolute(host.trim_matches(['[', ']'])))
            && !names.iter().any(|name| name == host)
        {
            names.push(host.to_owned());
        }
        if has_authority {
            self.issue(&names, now)
        } else {
            self.make(&names, now)
        }
    }

    /// Issues the server's certificate for these names, if clients accept it.
    fn issue(&self, names: &[String], now: Timestamp) -> Result<(), LocalAuthorityError> {
        let key = read(&self.key())?;
        let failed = failed(names.join(", "));
        let authority = KeyPair::from_pem(&key).map_err(&failed)?;
        let authority = Issuer::new(authority_params(now), authority);
        let mut params = CertificateParams::new(names.to_vec()).map_err(&failed)?;
        valid(&mut params, now, LIFE);
        params.distinguished_name.push(DnType::CommonName, "tidewaiter cloud");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(&failed)?;
        let certificate = params.signed_by(&key, &authority).map_err(&failed)?;
        let accepted = self.verify(certificate.der(), now);
        accepted.map_err(|source| LocalAuthorityError::Refused {
            authority: self.authority().display().to_string(),
            names: names.join(", "),
            source,
        })?;
        replace(&self.names(), &names.join("\n"))?;
        // One file, so that no reader sees a certificate with another one's key.
        replace(&self.certificate(), &(certificate.pem() + &key.serialize_pem()))?;
        Ok(())
    }

    /// Verifies the certificate as a client does that trusts the authority.
    fn verify(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<(), rustls::Error> {
        let authority = CertificateDer::from_pem_file(self.authority());
        let authority = authority.map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut trusted = RootCertStore::empty();
        trusted.add(authority)?;
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let now = UnixTime::since_unix_epoch(since_1970(now));
        verify_server_cert_signed_by_trust_anchor(&certificate, &trusted, &[], now, algorithms.all)
    }

    fn key(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    /// The file of the names in the certificate, one in a line.
    fn names(&self) -> PathBuf {
        self.folder.join("names")
    }
}

/// The name or address, if a certificate can have it.
///
/// # Errors
/// If it is neither.
pub fn certificate_name(text: &str) -> Result<String, &'static str> {
    let name = ServerName::try_from(text);
    name.map(|_| text.to_owned())
        .map_err(|_| "must be a host name or an IP address")
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
    // Constraints of names do not bind certificates of clients and of e-mail.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

/// A name without the dot that may end it, which no certificate has.
fn absolute(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Permits these names and addresses alone, and the names below them.
fn only(names: &[String]) -> NameConstraints {
    let subtree = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, bits))
        }
        Err(_) => GeneralSubtree::DnsName(name.clone()),
    };
    NameConstraints {
        permitted_subtrees: names.iter().map(subtree).collect(),
        excluded_subtrees: Vec::new(),
    }
}

fn since_1970(now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default())
}

fn valid(params: &mut CertificateParams, now: Timestamp, life: Duration) {
    let now = since_1970(now);
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
        local.renew(None, now + SignedDuration::from_hours(24 * 200)).unwrap();
        assert_eq!(files(), before);
        let later = now + SignedDuration::from_hours(24 * 300);
        local.renew(None, later).unwrap();
        let after = files();
        assert_eq!(after[..2], before[..2]);
        assert_ne!(after[2], before[2]);
        let path = local.certificate();
        let renewed = Certificate::load(&path, &path).unwrap();
        renewed
            .check(Some("localhost"), now + SignedDuration::from_hours(24 * 600))
            .unwrap();
        // A missing one is issued again, and one whose validity has not begun.
        std::fs::remove_file(&path).unwrap();
        local.create(&[], now).unwrap();
        for begin in [later, now] {
            local.renew(None, begin).unwrap();
            let issued = Certificate::load(&path, &path).unwrap();
            issued.check(Some("localhost"), begin).unwrap();
        }
        assert_eq!(files()[..2], before[..2]);
    }

    #[test]
    fn a_stolen_key_of_the_authority_makes_no_certificate_for_another_name() {
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        let hosts = ["cloud.lan", "192.0.2.1", "2001:db8::1"];
        local.create(&hosts.map(str::to_owned), now).unwrap();
        for name in OWN_NAMES.into_iter().chain(hosts).chain(["x.cloud.lan"]) {
            local.issue(&[name.to_owned()], now).unwrap();
        }
        for name in [
            "google.com",
            "lan",
            "mycloud.lan",
            "192.0.2.2",
            "127.0.0.2",
            "10.0.0.1",
            "::2",
            "2001:db8::2",
        ] {
            let refused = local.issue(&[name.to_owned(), "localhost".to_owned()], now);
            let Err(LocalAuthorityError::Refused { source, .. }) = &refused else {
                panic!("{name}: {refused:?}");
            };
            assert!(
                source.to_string().contains("NameConstraintViolation"),
                "{name}: {source}"
            );
        }
    }

    #[test]
    fn a_new_public_url_needs_another_authority_which_is_made_if_this_one_is_deleted() {
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        local.create(&["cloud.lan.".to_owned()], now).unwrap();
        let files = || [local.authority(), local.names(), local.certificate()].map(|path| read(&path).unwrap());
        let before = files();
        for host in ["cloud.example.com", "[2001:db8::1]"] {
            let refused = local.renew(Some(host), now).unwrap_err().to_string();
            for words in [host.trim_matches(['[', ']']), "correct publicUrl", "or delete "] {
                assert!(refused.contains(words), "{words}: {refused}");
            }
            assert_eq!(files(), before);
        }
        std::fs::remove_file(local.authority()).unwrap();
        assert!(local.exists());
        local.renew(Some("cloud.example.com."), now).unwrap();
        let path = local.certificate();
        let certificate = Certificate::load(&path, &path).unwrap();
        for host in ["cloud.example.com", "cloud.lan", "localhost"] {
            certificate.check(Some(host), now).unwrap();
        }
        local.renew(Some("google.com"), now).unwrap_err();
    }

    #[test]
    fn an_authority_of_an_earlier_build_issues_for_a_new_public_url() {
        let data = tempfile::tempdir().unwrap();
        let local = LocalAuthority::new(data.path());
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        local.create(&["cloud.lan".to_owned()], now).unwrap();
        let key = KeyPair::from_pem(&read(&local.key()).unwrap()).unwrap();
        let unconstrained = CertifiedIssuer::self_signed(authority_params(now), key).unwrap();
        replace(&local.authority(), &unconstrained.pem()).unwrap();
        let path = local.certificate();
        for host in ["cloud.example.com", "[2001:db8::1]", "localhost"] {
            local.renew(Some(host), now).unwrap();
            let certificate = Certificate::load(&path, &path).unwrap();
            for host in [host, "cloud.lan"] {
                certificate.check(Some(host), now).unwrap();
            }
        }
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_refused() {
        for (name, is_accepted) in [
            ("cloud.lan", true),
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("cloud lan", false),
            ("https://cloud.lan", false),
            ("", false),
        ] {
            assert_eq!(certificate_name(name).is_ok(), is_accepted, "{name}");
        }
    }
}
