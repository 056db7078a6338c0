//! The trust of an API server in the tokens of a cloud: the cloud's certificate, and the file that names it as an
//! issuer.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::control_plane::write_private;

/// Makes an authority (`ca.crt`), and a certificate of 127.0.0.1 with its key (`tls.crt`, `tls.key`), in the folder;
/// returns the authority as PEM.
///
/// # Panics
/// When a file cannot be written.
#[must_use]
pub fn certificate(folder: &Path) -> String {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // With the same name as the certificate, curl takes that for self-signed.
    params.distinguished_name.push(DnType::CommonName, "tidewaiter-testkit");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    write_private(&folder.join("ca.crt"), &authority.pem());
    write_private(&folder.join("tls.crt"), &certificate.pem());
    write_private(&folder.join("tls.key"), &key.serialize_pem());
    authority.pem()
}

/// The `AuthenticationConfiguration` of an API server that trusts the tokens for the cluster `cluster` of the issuer at
/// `url`, whose authority is `authority`. docs/cloud.md has the same for operators.
#[must_use]
pub fn authentication(url: &str, authority: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": url,
                "certificateAuthority": authority,
                "audiences": [format!("https://containership.io/clusters/{cluster}")],
            },
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
            },
        }],
    })
}
