//! An API server to which no connection can be made: which one it is, and what to correct.

use http::Uri;
use hyper_util::client::legacy;
use tower::BoxError;

use crate::chain::{Untrusted, is_other_protocol, untrusted};

/// No connection can be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the API server {server} ({remedy})")]
struct Unreachable {
    server: String,
    remedy: &'static str,
    #[source]
    source: legacy::Error,
}

/// The error, with the server if there is no connection to it.
pub(super) fn named(error: legacy::Error, server: &Uri) -> BoxError {
    if !error.is_connect() {
        return error.into();
    }
    let remedy = match untrusted(&error) {
        Some(Untrusted::Time) => {
            "its certificate has expired or is not valid yet: renew it, or correct the clock of this machine"
        }
        Some(Untrusted::Authority) => {
            "its certificate is that of a certificate authority (CA:TRUE): let the authority issue one with CA:FALSE for the server"
        }
        Some(Untrusted::Issuer) => {
            "another authority issued its certificate, or for another name: correct certificate-authority and server of the cluster in the kubeconfig"
        }
        None if is_other_protocol(&error) => {
            "it answers without TLS: correct the port of the server in the kubeconfig, or its https://"
        }
        None => {
            "check that it runs and that the network permits the connection, and server and proxy-url of the cluster in the kubeconfig"
        }
    };
    let server = server.to_string();
    Unreachable {
        server: server.trim_end_matches('/').to_owned(),
        remedy,
        source: error,
    }
    .into()
}
