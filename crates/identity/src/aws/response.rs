//! Limits what a response of AWS may be: no larger than [`MAX_BODY`], and complete.
//!
//! The SDK reads a body of any size into memory, and its XML parser takes a document that ends early for one with fewer
//! elements: a truncated list of instances would mean that the rest does not exist.

use std::error::Error;

use aws_sdk_ec2::config::interceptors::AfterDeserializationInterceptorContextRef;
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

/// The maximum size of a response's body in bytes. All instances of 100 Auto Scaling groups, the largest response, take
/// 25 MB in a cluster of 50,000.
const MAX_BODY: usize = 64 << 20;

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
pub(super) struct Completeness;

/// The response is not a complete XML document.
#[derive(Debug, thiserror::Error)]
#[error("the response is not a complete XML document")]
pub(super) struct Incomplete;

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

/// Returns the limit that makes the response of a failed call unusable, if one does.
pub(super) fn limit<'a>(mut causes: impl Iterator<Item = &'a (dyn Error + 'static)>) -> Option<String> {
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
    use super::is_complete;

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
