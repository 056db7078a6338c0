//! fake-gcs-server, the Google Cloud Storage that others have written, with the small rest that a reader of objects
//! needs and that it lacks.
//!
//! A reader talks to a front of ours. Objects, their versions and listings are the server's; the front answers 304
//! where Cloud Storage does, names the missing object in XML, and records each request and its response. A
//! listing has one page, however long it is: the server's XML API knows no others.
//!
//! It takes any credentials.

mod front;

use std::net::Ipv4Addr;
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_RSA_SHA256};
use reqwest::Method;
use serde_json::json;
use url::Url;

use crate::assets;
use crate::fake_cloud::Port;
use crate::process::{Process, Program};
use crate::server::Server;
use front::Front;
pub use front::RecordedRequest;

/// A running fake-gcs-server. It ends when this is dropped.
#[derive(Debug)]
pub struct FakeGcsServer {
    front: Arc<Front>,
    port: Port,
}

impl FakeGcsServer {
    /// Starts one without a bucket, and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, with the line that installs it; when it does not come up, with its log.
    pub async fn start() -> Self {
        let program = |port: u16| {
            Program::new(assets::fake_gcs_server())
                .args(["-backend", "memory", "-scheme", "http", "-log-level", "warn"])
                // It tells buckets from its own name by the public host.
                .args(["-host", "127.0.0.1", "-public-host", "127.0.0.1"])
                .args(["-port", &port.to_string()])
        };
        let server = Server::start(
            Ipv4Addr::LOCALHOST,
            "fake-gcs-server",
            "/_internal/healthcheck",
            program,
        )
        .await;
        let front = Arc::new(Front::of(server));
        let port = front::open(&front).await;
        Self { front, port }
    }

    /// Returns its address, for the client of a reader.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// The process; what it held is lost when it ends.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.front.server.process
    }

    /// Makes an empty bucket.
    pub async fn create_bucket(&self, bucket: &str) {
        let url = self.url(&["storage", "v1", "b"]);
        self.call(Method::POST, url, json!({"name": bucket}).to_string()).await;
    }

    /// Writes an object.
    pub async fn put_object(&self, bucket: &str, key: &str, content: impl Into<Vec<u8>>) {
        let mut url = self.url(&["upload", "storage", "v1", "b", bucket, "o"]);
        url.query_pairs_mut()
            .append_pair("uploadType", "media")
            .append_pair("name", key);
        self.call(Method::POST, url, content).await;
    }

    /// Deletes an object.
    pub async fn delete_object(&self, bucket: &str, key: &str) {
        let url = self.url(&["storage", "v1", "b", bucket, "o", key]);
        self.call(Method::DELETE, url, Vec::new()).await;
    }

    /// Returns the requests of readers since the last call, in the order in which it was answered.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        self.front.take_requests()
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url: Url = self.front.server.endpoint.parse().expect("an address");
        url.path_segments_mut().expect("a base").extend(path);
        url
    }

    async fn call(&self, method: Method, url: Url, body: impl Into<Vec<u8>>) {
        let request = self.front.server.http.request(method.clone(), url.clone());
        let answer = request.body(body.into()).send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{method} {url}: {error}"));
        let status = answer.status();
        assert!(
            status.is_success(),
            "{method} {url}: {status}\n{:?}",
            answer.text().await
        );
    }
}

impl Drop for FakeGcsServer {
    /// A request that is being answered may outlive this value, and the process with it.
    fn drop(&mut self) {
        self.process().kill();
    }
}

/// A file of credentials as Google gives it out for a service account, with a key of its own. Its tokens are signed
/// with that key, without asking anybody, and name it by `key_id`.
#[must_use]
pub fn service_account_file(key_id: &str) -> String {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let file = json!({
        "type": "service_account",
        "project_id": "our-project",
        "private_key_id": key_id,
        "private_key": key.serialize_pem(),
        "client_email": "kops-controller@our-project.iam.gserviceaccount.com",
        "client_id": "123456789012345678901",
    });
    file.to_string()
}
