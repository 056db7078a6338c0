//! Connects to EC2 and Auto Scaling: the region, and clients whose calls have timeouts and limited responses.
//!
//! A response is no larger than [`MAX_BODY`], and complete. The SDK reads a body of any size into memory, and its XML
//! parser takes a document that ends early for one with fewer elements: a truncated list of instances would mean that
//! the rest does not exist.

use std::error::Error;

use aws_config::imds;
use aws_config::{Region, SdkConfig};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::{Builder, ConnectorBuilder};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;
use tidewaiter_api::values::quoted;
use url::Url;

use crate::client_settings::ClientSettings;

const REGION_PATH: &str = "/latest/meta-data/placement/region";

/// The maximum size of a response's body in bytes. All instances of 100 Auto Scaling groups, the largest response, take
/// 25 MB in a cluster of 50,000.
const MAX_BODY: usize = 64 << 20;

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

/// The SDK's default HTTP client, with a limit on the size of a response's body.
#[must_use]
pub fn http_client() -> SharedHttpClient {
    let unlimited = Builder::new().build_with_connector_fn(|settings, components| {
        let mut connector = ConnectorBuilder::default().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        connector.build()
    });
    SharedHttpClient::new(LimitedClient(unlimited))
}

#[derive(Debug)]
struct LimitedClient(SharedHttpClient);

impl HttpClient for LimitedClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(LimitedConnector(self.0.http_connector(settings, components)))
    }
}

#[derive(Debug)]
struct LimitedConnector(SharedHttpConnector);

impl HttpConnector for LimitedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let response = self.0.call(request);
        let limited = |body| SdkBody::from_body_1_x(Limited::new(body, MAX_BODY));
        HttpConnectorFuture::new(async move { Ok(response.await?.map(limited)) })
    }
}

/// Fails a call whose response ends before its XML document does.
#[derive(Debug)]
struct Completeness;

/// The response is not a complete XML document.
#[derive(Debug, thiserror::Error)]
#[error("the response is not a complete XML document")]
struct Incomplete;

impl Intercept for Completeness {
    fn name(&self) -> &'static str {
        "Completeness"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // A call that has failed already fails for its own reason.
        let complete = || context.response().body().bytes().is_some_and(is_complete);
        if context.output_or_error().is_ok() && !complete() {
            return Err(Incomplete.into());
        }
        Ok(())
    }
}

/// Returns true if the document ends with the end of its root element.
fn is_complete(document: &[u8]) -> bool {
    let Ok(document) = std::str::from_utf8(document) else {
        return false;
    };
    let mut root = document.trim();
    if let Some((_, rest)) = root.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")) {
        root = rest.trim_start();
    }
    let Some(element) = root.strip_prefix('<') else {
        return false;
    };
    let name = element
        .split(|c: char| c.is_whitespace() || matches!(c, '/' | '>'))
        .next();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return false;
    };
    let end = element.strip_suffix('>').map(str::trim_end);
    let end = end.and_then(|before| before.strip_suffix(name));
    end.is_some_and(|before| before.ends_with("</"))
        || element
            .split_once('>')
            .is_some_and(|(tag, rest)| tag.ends_with('/') && rest.is_empty())
}

/// Returns the reason why the response of a failed call is unusable, if it is too large or incomplete.
pub(crate) fn unusable_response<'a>(mut causes: impl Iterator<Item = &'a (dyn Error + 'static)>) -> Option<String> {
    causes.find_map(|cause| {
        if cause.is::<http_body_util::LengthLimitError>() {
            Some(format!("the response is larger than {} MiB", MAX_BODY >> 20))
        } else {
            cause.is::<Incomplete>().then(|| Incomplete.to_string())
        }
    })
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

    #[test]
    fn a_document_is_complete_when_its_root_element_has_ended() {
        let document =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response xmlns=\"http://ec2\"><a>1</a><b/></Response>\n";
        assert!(is_complete(document.as_bytes()));
        for end in 0..document.trim_end().len() {
            assert!(!is_complete(&document.as_bytes()[..end]), "{}", &document[..end]);
        }
        for complete in ["<a></a>", "<a />", "<a/>", "<a><a></a></a >"] {
            assert!(is_complete(complete.as_bytes()), "{complete}");
        }
        for broken in ["", "<", "<>", "</a>", "text", "<a><b/>", "<a></b>", "<ab></b>", "{}"] {
            assert!(!is_complete(broken.as_bytes()), "{broken}");
        }
    }
}
