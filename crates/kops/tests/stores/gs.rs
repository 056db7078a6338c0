//! Google Cloud Storage, as fake-gcs-server has it, and the credentials that requests bring there.

use std::path::PathBuf;

use tidewaiter_kops::store::{OpenError, Read, ReadFile as _};
use tidewaiter_kops::{StateStore, StoreOptions};
use tidewaiter_testkit::fake_gcs_server::{FakeGcsServer, service_account_file};

use crate::suite::{self, BUCKET, FILE, NODES, Server, object, open};

impl Server for FakeGcsServer {
    const SCHEME: &str = "gs";

    async fn start() -> Self {
        Self::start().await
    }

    fn options(&self) -> StoreOptions {
        StoreOptions {
            endpoint: Some(self.endpoint().parse().unwrap()),
            anonymous: true,
            ..StoreOptions::default()
        }
    }

    async fn create_bucket(&self) {
        self.create_bucket(BUCKET).await;
    }

    async fn put(&self, object: &str, content: &str) {
        self.put_object(BUCKET, object, content).await;
    }

    async fn delete(&self, object: &str) {
        self.delete_object(BUCKET, object).await;
    }
}

#[tokio::test]
async fn a_store_on_google_cloud_reads_and_revalidates() {
    suite::a_store_reads_and_revalidates::<FakeGcsServer>().await;
}

#[tokio::test]
async fn definitions_on_google_cloud_follow_what_is_good_and_outlive_the_rest() {
    suite::definitions_follow_what_is_good_and_outlive_the_rest::<FakeGcsServer>().await;
}

/// Opens a store with this file of credentials.
fn with_file(server: &FakeGcsServer, path: PathBuf) -> Result<StateStore, OpenError> {
    let options = StoreOptions {
        anonymous: false,
        google_credentials: Some(path),
        ..server.options()
    };
    open(server, options)
}

#[tokio::test]
async fn requests_bring_a_token_that_the_file_of_credentials_signs_and_an_unchanged_file_is_not_sent_again() {
    let server = FakeGcsServer::start().await;
    server.create_bucket(BUCKET).await;
    server.put_object(BUCKET, &object(FILE), NODES).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials.json");
    write(&path, &service_account_file("key-of-the-file"));
    let store = with_file(&server, path.clone()).unwrap();
    let Ok(Read::Found { etag, .. }) = store.read(FILE, None).await else {
        panic!("no file")
    };
    assert_eq!(store.read(FILE, etag.as_ref()).await, Ok(Read::NotModified));
    assert_eq!(store.list("instancegroup").await.unwrap(), ["nodes-a"]);
    let asked = server.take_requests();
    let statuses: Vec<u16> = asked.iter().map(|asked| asked.status).collect();
    assert_eq!(statuses, [200, 304, 200]);
    // {"typ":"JWT","alg":"RS256","kid":"key-of-the-file"}
    let head = "Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsImtpZCI6ImtleS1vZi10aGUtZmlsZSJ9.";
    for asked in asked {
        assert!(
            asked
                .authorization
                .as_ref()
                .is_some_and(|token| token.starts_with(head)),
            "{asked:?}"
        );
    }

    write(&path, r#"{"type": "service_account"}"#);
    for path in [path, folder.path().join("missing.json")] {
        let error = with_file(&server, path).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the state store gs://state.example.com/cluster.example.com cannot be opened"
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "nobody reads while a test writes")]
fn write(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
}
