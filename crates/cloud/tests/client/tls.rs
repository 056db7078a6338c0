//! TLS: whose certificates are trusted.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tidewaiter_cloud::client::{Client, ClientError};
use tidewaiter_kit::chain::Untrusted;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::clock::Hurried;
use crate::world::{LIMIT, Reply, Server, labels, ok, settings};

/// An authority and a server with a certificate of it, for the given name.
async fn secure(name: &str) -> (String, Server) {
    secure_as(name, IsCa::NoCa).await
}

/// The same with a certificate that says whether it is that of an authority.
async fn secure_as(name: &str, is_ca: IsCa) -> (String, Server) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new([name.to_owned()]).unwrap();
    leaf.is_ca = is_ca;
    let leaf = leaf.signed_by(&key, &authority).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
    let answer = ok("[]");
    let server = Server::start_with(Some(TlsAcceptor::from(Arc::new(config))), move |_, _| {
        Reply::Bytes(answer.clone().into_bytes())
    })
    .await;
    (authority.pem(), server)
}

async fn asked(port: u16, ca: Option<&str>) -> Result<usize, (ClientError, String)> {
    let mut settings = settings(&format!("https://localhost:{port}"));
    settings.ca = ca.map(|pem| pem.as_bytes().to_vec());
    labels(&Client::new(&settings, Hurried::new(LIMIT).shared()).unwrap()).await
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let (ca, server) = secure("localhost").await;
    let (other, _) = secure("localhost").await;
    assert_eq!(asked(server.port, Some(&ca)).await.unwrap(), 0);
    let both = format!("{other}{ca}");
    assert_eq!(asked(server.port, Some(&both)).await.unwrap(), 0, "a bundle");
    for ca in [None, Some(other.as_str())] {
        let (error, said) = asked(server.port, ca).await.unwrap_err();
        assert!(
            matches!(error, ClientError::Unavailable { .. }) && said.contains("invalid peer certificate"),
            "{said}"
        );
    }
    assert_eq!(
        server.seen().len(),
        2,
        "nothing was sent to a server that is not trusted"
    );
}

#[tokio::test]
async fn plain_http_to_a_port_with_tls_names_the_remedy() {
    let (_, server) = secure("127.0.0.1").await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let (error, said) = labels(&client).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unavailable { .. }) && said.contains("use https://"),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused() {
    let (ca, server) = secure("cloud.example.com").await;
    let (error, said) = asked(server.port, Some(&ca)).await.unwrap_err();
    assert!(said.contains("not valid for name"), "{said}");
    assert_eq!(error.untrusted(), Some(Untrusted::Issuer));
}

#[tokio::test]
async fn the_certificate_of_an_authority_is_no_certificate_of_a_server() {
    let (ca, server) = secure_as("localhost", IsCa::Ca(BasicConstraints::Unconstrained)).await;
    let (error, said) = asked(server.port, Some(&ca)).await.unwrap_err();
    assert_eq!(error.untrusted(), Some(Untrusted::Authority), "{said}");
}
