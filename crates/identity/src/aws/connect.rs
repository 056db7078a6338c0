//! Connects to EC2 and Auto Scaling: the region, and clients whose calls have timeouts.

use std::error::Error;

use aws_config::imds;
use aws_config::{Region, SdkConfig};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use tidewaiter_api::values::quoted;
use url::Url;

use super::response::{Completeness, http_client};
use crate::client_settings::ClientSettings;

const REGION_PATH: &str = "/latest/meta-data/placement/region";

/// The region is not known.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The text is not a valid region and must not become part of a host name.
    #[error("the region {shown} is not valid: must be lower-case letters, digits and '-', for example us-east-1")]
    Invalid {
        /// The text, safe to show.
        shown: String,
    },
    /// The instance metadata service does not return a region.
    #[error("the region is not set, and the instance metadata service does not provide it: set AWS_REGION")]
    NoMetadata(#[source] Box<dyn Error + Send + Sync>),
}

/// The configured region, or else the one that the instance metadata service returns. `metadata` overrides the address
/// of that service.
///
/// # Errors
/// If there is no region, or an invalid one.
pub async fn region(set: Option<&str>, metadata: Option<&Url>) -> Result<Region, RegionError> {
    match set {
        Some(region) => checked(region),
        None => checked(&from_metadata(metadata).await.map_err(RegionError::NoMetadata)?),
    }
}

async fn from_metadata(endpoint: Option<&Url>) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut client = imds::Client::builder().max_attempts(2);
    if let Some(endpoint) = endpoint {
        client = client.endpoint(endpoint.as_str())?;
    }
    let region = client.build().get(REGION_PATH).await?;
    Ok(region.as_ref().trim().to_owned())
}

fn checked(region: &str) -> Result<Region, RegionError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=32).contains(&region.len()) && region.bytes().all(allowed) {
        Ok(Region::new(region.to_owned()))
    } else {
        Err(RegionError::Invalid { shown: quoted(region) })
    }
}

/// A client for [`Ec2`](super::Ec2) and [`AutoScaling`](super::AutoScaling). It does not retry: the caller does.
/// `shared` provides the credentials, the region, and the HTTP client if it has [one](http_client).
#[must_use]
pub fn client(shared: &SdkConfig, settings: &ClientSettings) -> Client {
    let mut config = aws_sdk_ec2::config::Builder::from(shared)
        .http_client(shared.http_client().unwrap_or_else(http_client))
        .interceptor(Completeness)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(settings));
    if let Some(endpoint) = &settings.endpoint {
        config = config.endpoint_url(endpoint.as_str());
    }
    Client::from_conf(config.build())
}

/// As [`client`], for the API of [`AutoScaling`](super::AutoScaling).
#[must_use]
pub fn groups_client(shared: &SdkConfig, settings: &ClientSettings) -> aws_sdk_autoscaling::Client {
    let mut config = aws_sdk_autoscaling::config::Builder::from(shared)
        .http_client(shared.http_client().unwrap_or_else(http_client))
        .interceptor(Completeness)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(settings));
    if let Some(endpoint) = &settings.endpoint {
        config = config.endpoint_url(endpoint.as_str());
    }
    aws_sdk_autoscaling::Client::from_conf(config.build())
}

fn timeouts(settings: &ClientSettings) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(settings.connect)
        .operation_timeout(settings.call)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_region_that_is_set_asks_nobody_and_is_checked() {
        assert_eq!(region(Some("eu-west-1"), None).await.unwrap().as_ref(), "eu-west-1");
        for bad in [
            "",
            "us-east-1.evil.example",
            "US-EAST-1",
            "us east",
            "us-east-1\n",
            &"x".repeat(33),
        ] {
            let error = region(Some(bad), None).await.unwrap_err();
            assert!(matches!(error, RegionError::Invalid { .. }), "{error}");
        }
    }
}
