//! The certificate of a server, reloaded when its files change, so that a renewed one needs no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

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
}

/// A certificate with its files.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: ArcSwap<CertifiedKey>,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// If they are unusable.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(read(certificate, key)?),
            chain: certificate.to_owned(),
            key: key.to_owned(),
        }))
    }

    /// Reloads both files. The certificate in use is kept if they are unusable, for example because only one of them is
    /// new.
    ///
    /// # Errors
    /// If they are unusable.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(read(&self.chain, &self.key)?));
        Ok(())
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
        Some(self.current.load_full())
    }
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
