//! The cloud in the cluster, on PostgreSQL outside of it, installed as docs/cloud.md says.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{Certificate, Method};
use serde_json::{Value, json};
use url::Url;

use super::{REPOSITORY, SOON, Site, shown};
use crate::assets::repository;
use crate::{Postgres, Process, Program, RealNode, eventually};

/// Its namespace.
pub const NAMESPACE: &str = "tidewaiter-cloud";
/// Of its owner.
pub const EMAIL: &str = "olivia@example.com";
/// Of its owner.
pub const PASSWORD: &str = "correct horse battery staple";

/// The credentials and addresses of it for the coordinator and a client.
#[derive(Debug)]
pub struct Cloud {
    /// Of its Service.
    pub address: String,
    /// The certificate of the authority, as PEM.
    pub authority: String,
    organization: String,
    cluster: String,
    api_key: String,
    token: String,
    _postgres: Postgres,
}

impl Cloud {
    /// `init`, the Secrets, and `helm install`; and a cluster in it.
    pub async fn install(site: &Site) -> Self {
        let IpAddr::V4(gateway) = site.control_plane.address().ip() else {
            panic!("nodes have IPv4");
        };
        let (postgres, authority) = Postgres::start_on(gateway).await;
        let database: Url = postgres.url(&postgres.create_database().await).parse().unwrap();
        init(site, &database, &authority).await;
        secrets(site).await;
        let values = values(&database);
        let install = format!("install cloud deploy/chart --namespace {NAMESPACE}");
        site.helm(&install, &values).await;
        let address = site.service(NAMESPACE, "tidewaiter-cloud").await;
        let authority = certificate(site, &address).await;
        site.rolled_out(NAMESPACE, "deployment/tidewaiter-cloud").await;
        let mut cloud = Self {
            address,
            authority,
            organization: String::new(),
            cluster: String::new(),
            api_key: String::new(),
            token: String::new(),
            _postgres: postgres,
        };
        cloud.attach(&site.nodes[0]).await;
        cloud
    }

    /// The owner logs in and creates a cluster.
    async fn attach(&mut self, from: &RealNode) {
        let login = json!({"email": EMAIL, "password": PASSWORD});
        let login = self.must(from, Method::POST, "/v3/login/password", login).await;
        self.token = text(&login, "token");
        let organizations = self.must(from, Method::GET, "/v3/organizations", Value::Null).await;
        self.organization = text(&organizations[0], "id");
        let clusters = format!("/v3/organizations/{}/clusters", self.organization);
        let made = self.must(from, Method::POST, &clusters, json!({"name": "prod"})).await;
        self.cluster = text(&made, "id");
        self.api_key = text(&made, "api_key");
    }

    /// The values of a coordinator of this cluster.
    pub fn coordinator_values(&self) -> Value {
        json!({
            "enabled": true,
            "settings": {"cloud": {
                "apiBaseUrl": format!("https://{}", self.address),
                "caFile": "/etc/tidewaiter/cloud/ca.crt",
                "organizationId": self.organization,
                "clusterId": self.cluster,
            }},
        })
    }

    /// The Secret that it waits for.
    pub async fn create_key(&self, site: &Site) {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "tidewaiter-coordinator-cloud", "namespace": "containership-core"},
            "stringData": {"api-key": self.api_key, "ca.crt": self.authority},
        });
        site.kubectl_with("create -f -", &secret.to_string()).await;
    }

    /// Sets a label of the cluster in the cloud.
    pub async fn set_label(&self, from: &RealNode, key: &str) {
        let body = json!({"key": format!("cluster.containership.io/{key}"), "value": "yes"});
        self.must(from, Method::POST, "^/labels", body).await;
    }

    /// Sends a request until it succeeds. In `path`, `^` is the cluster.
    pub async fn must(&self, from: &RealNode, method: Method, path: &str, body: Value) -> Value {
        let cluster = format!("/v3/organizations/{}/clusters/{}", self.organization, self.cluster);
        let path = path.replace('^', &cluster);
        eventually(format!("{method} {path} to succeed"), SOON, async || {
            let (base, token, authority) = (self.address.clone(), self.token.clone(), self.authority.clone());
            let (method, path, body) = (method.clone(), path.clone(), body.clone());
            let answer = from.on_its_network(move || async move {
                let mut request = client(&authority).request(method, format!("https://{base}{path}"));
                if !token.is_empty() {
                    request = request.header("authorization", format!("JWT {token}"));
                }
                if !body.is_null() {
                    request = request.json(&body);
                }
                let answer = request.send().await.map_err(shown)?;
                let (status, text) = (answer.status(), answer.text().await.map_err(shown)?);
                // The effect remains although the response was lost.
                if status.is_success() || status == 409 {
                    Ok(serde_json::from_str(&text).unwrap_or_default())
                } else {
                    Err(format!("{status} {text}"))
                }
            });
            answer.await
        })
        .await
    }
}

/// Trusts this authority alone.
#[must_use]
pub fn client(authority: &str) -> reqwest::Client {
    let authority = Certificate::from_pem(authority.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([authority]).no_proxy();
    let client = client
        .pool_max_idle_per_host(0)
        .timeout(std::time::Duration::from_secs(10));
    client.build().unwrap()
}

/// The URL of the database without its password; the authority of its certificate is in this file.
fn verified(database: &Url, authority: &str) -> String {
    let mut url = database.clone();
    url.set_password(None).unwrap();
    format!("{url}?sslmode=verify-full&sslrootcert={authority}")
}

async fn init(site: &Site, database: &Url, authority: &str) {
    let authority = site.file("ca.crt", authority).display().to_string();
    let password = site.file("database-password", database.password().unwrap());
    let program = Program::new(site.images.binary())
        .args(["cloud", "init", "--organization", "Acme", "--email", EMAIL, "--data"])
        .arg(site.scratch.path().join("cloud"))
        .args(["--database", &verified(database, &authority)])
        .env("TIDEWAITER_DATABASE_PASSWORD_FILE", password)
        .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD);
    let init = Process::start(&site.scratch, program.name("init"));
    let status = init.exited(SOON).await;
    assert!(status.success(), "{}", init.log());
}

/// The commands of docs/cloud.md, and the notes of the chart for a namespace of the release.
async fn secrets(site: &Site) {
    let page = std::fs::read_to_string(repository().join("docs/cloud.md")).unwrap();
    let folder = site.scratch.path().display();
    for name in ["keys", "sealing", "database"] {
        let start = format!("kubectl -n {NAMESPACE} create secret generic tidewaiter-cloud-{name} ");
        if name == "keys" {
            site.kubectl(&format!("create namespace {NAMESPACE} --save-config"))
                .await;
            site.kubectl(&format!(
                "label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"
            ))
            .await;
        }
        let command = page.lines().map(str::trim).find(|line| line.starts_with(&start));
        let command = command.unwrap_or_else(|| panic!("docs/cloud.md has no command {start}"));
        let command = command
            .strip_prefix("kubectl ")
            .unwrap()
            .replace("./", &format!("{folder}/"));
        let more = if name == "database" {
            format!(" --from-file={folder}/ca.crt")
        } else {
            String::new()
        };
        site.kubectl(&format!("{command}{more}")).await;
    }
}

fn values(database: &Url) -> Value {
    json!({
        "image": {"repository": REPOSITORY},
        "cloud": {
            "enabled": true,
            "settings": {
                "publicUrl": "https://cloud.example.com",
                "database": verified(database, "/etc/tidewaiter/database/ca.crt"),
            },
        },
    })
}

/// A certificate for the address of the Service, for there is no DNS, in the Secret for which the pods wait. Returns
/// that of its authority.
async fn certificate(site: &Site, address: &str) -> String {
    let address: Ipv4Addr = address.parse().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(["cloud.example.com".to_owned(), address.to_string()]).unwrap();
    let certificate = names.signed_by(&key, &authority).unwrap();
    let certificate = site.file("tls.crt", &certificate.pem());
    let key = site.file("tls.key", &key.serialize_pem());
    let files = format!("--cert={} --key={}", certificate.display(), key.display());
    site.kubectl(&format!(
        "-n {NAMESPACE} create secret tls tidewaiter-cloud-tls {files}"
    ))
    .await;
    authority.pem()
}

fn text(value: &Value, field: &str) -> String {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}
