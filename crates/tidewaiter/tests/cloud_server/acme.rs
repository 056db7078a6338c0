//! Certificates by ACME, from the server that Let's Encrypt tests clients with.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use reqwest::{Certificate, Client};
use serde_json::json;
use tidewaiter_testkit::{Process, Program, assets, eventually, free_port, issuer};

use crate::world::{On, Place, SOON, Server, content};

/// The host of the public URL.
const HOST: &str = "cloud.example.org";

/// The provider, whose DNS knows this machine by every name.
struct Provider {
    management: String,
    http: Client,
    _processes: [Process; 2],
}

impl Provider {
    /// The settings of a server that orders its certificate from it; they belong to a provider that may not run.
    fn settings(place: &Place, directory: u16, challenges: u16) {
        let authority = issuer::certificate(place.scratch.path());
        let file = place.secret_file("provider.crt", &authority);
        let acme = json!({
            "directory": format!("https://127.0.0.1:{directory}/dir"),
            "email": "operator@example.org",
            "caFile": file,
        });
        place.add_setting("acme", &acme.to_string());
        place.add_setting("acmeAddress", &format!("127.0.0.1:{challenges}"));
    }

    async fn start(place: &Place, directory: u16, challenges: u16) -> Self {
        let (management, dns) = (free_port(), format!("127.0.0.1:{}", free_port()));
        let at = |name: &str| place.scratch.path().join(name);
        let settings = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{directory}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": at("tls.crt"),
            "privateKey": at("tls.key"),
            "httpPort": challenges,
            "tlsPort": free_port(),
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "", "validityPeriod": 7_776_000}},
        }});
        let settings = place.secret_file("pebble.json", &settings.to_string());
        let pebble = Program::new(assets::pebble("pebble"))
            .name("pebble")
            .arg("-config")
            .arg(settings)
            .args(["-dnsserver", &dns])
            .env("PEBBLE_VA_NOSLEEP", "1");
        let resolver = Program::new(assets::pebble("pebble-challtestsrv"))
            .name("pebble-dns")
            .args(["-dnsserver", &dns, "-defaultIPv6", ""])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-management", &format!("127.0.0.1:{}", free_port())]);
        let processes = [resolver, pebble].map(|program| Process::start(&place.scratch, program));
        let authority = Certificate::from_pem(&fs::read(at("ca.crt")).unwrap()).unwrap();
        let http = Client::builder()
            .user_agent("test")
            .no_proxy()
            .tls_certs_only([authority]);
        let provider = Self {
            management: format!("https://127.0.0.1:{management}"),
            http: http.build().unwrap(),
            _processes: processes,
        };
        eventually("the provider to answer", SOON, async || {
            let answer = provider
                .http
                .get(format!("https://127.0.0.1:{directory}/dir"))
                .send()
                .await;
            answer.and_then(reqwest::Response::error_for_status).map(drop)
        })
        .await;
        provider
    }

    /// A client that trusts the provider's certificates, and finds the server by its name.
    async fn client(&self, place: &Place) -> Client {
        let root = self
            .http
            .get(format!("{}/roots/0", self.management))
            .send()
            .await
            .unwrap();
        let root = Certificate::from_pem(&root.bytes().await.unwrap()).unwrap();
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), place.port);
        let http = Client::builder()
            .user_agent("test")
            .no_proxy()
            .tls_certs_only([root])
            .resolve(HOST, address);
        http.build().unwrap()
    }
}

/// Waits until the server is ready for clients who trust the provider.
async fn ready(place: &Place, server: &Server, http: &Client) {
    let url = format!("https://{HOST}:{}/readyz", place.port);
    eventually("the server to have a certificate", SOON, async || {
        assert!(server.process.is_running(), "{}", server.process.log_tail());
        let answer = http.get(&url).send().await;
        answer.and_then(reqwest::Response::error_for_status).map(drop)
    })
    .await;
}

fn files(place: &Place) -> [PathBuf; 2] {
    ["account.json", "certificate.pem"].map(|name| place.data.join("acme").join(name))
}

#[tokio::test]
async fn a_certificate_is_ordered_once_and_again_when_clients_would_refuse_it() {
    let place = Place::new(On::Sqlite).await;
    let (directory, challenges) = (free_port(), free_port());
    Provider::settings(&place, directory, challenges);
    place.init().await;

    // Without the provider, the server starts, and says what it lacks.
    let server = place.start();
    eventually("the check of the certificate to fail", SOON, async || {
        let answer = server.http.get(format!("{}/readyz", server.admin)).send().await;
        let report = answer
            .map_err(|error| error.to_string())?
            .text()
            .await
            .unwrap_or_default();
        let is_named = report.contains("[-]certificate failed: no certificate was read yet");
        if is_named { Ok(()) } else { Err(report) }
    })
    .await;
    eventually("the log to have the reason", SOON, async || {
        let log = server.process.log();
        if log.contains("cannot order a certificate") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    server.process.stop(SOON).await;

    let provider = Provider::start(&place, directory, challenges).await;
    let http = provider.client(&place).await;
    let server = place.start();
    ready(&place, &server, &http).await;
    for file in files(&place) {
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{}", file.display());
    }
    let before = files(&place).map(|file| content(&file));
    server.process.stop(SOON).await;

    // A restart orders nothing.
    let server = place.start();
    ready(&place, &server, &http).await;
    assert_eq!(files(&place).map(|file| content(&file)), before);
    server.process.stop(SOON).await;

    // The account stays, and the certificate is replaced.
    let other = rcgen::generate_simple_self_signed(["other.example.org".to_owned()]).unwrap();
    let other = other.cert.pem() + &other.signing_key.serialize_pem();
    fs::write(&files(&place)[1], other).unwrap();
    let server = place.start();
    ready(&place, &server, &http).await;
    assert_eq!(content(&files(&place)[0]), before[0]);
    assert_ne!(content(&files(&place)[1]), before[1]);
}
