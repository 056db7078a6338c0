//! S3, as moto has it.

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use tidewaiter_kops::StoreOptions;
use tidewaiter_testkit::moto::{Moto, REGION};

use crate::suite::{self, BUCKET, Server};

impl Server for Moto {
    const SCHEME: &str = "s3";

    async fn start() -> Self {
        Self::start().await
    }

    fn options(&self) -> StoreOptions {
        let credentials = Credentials::new("AKIDMOTO", "moto-secret", None, None, "test");
        StoreOptions {
            endpoint: Some(self.endpoint().parse().unwrap()),
            region: Some(REGION.to_owned()),
            aws_credentials: Some(SharedCredentialsProvider::new(credentials)),
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
async fn a_store_on_s3_reads_and_revalidates() {
    suite::a_store_reads_and_revalidates::<Moto>().await;
}

#[tokio::test]
async fn definitions_on_s3_follow_what_is_good_and_outlive_the_rest() {
    suite::definitions_follow_what_is_good_and_outlive_the_rest::<Moto>().await;
}
