//! The HTTP client of a state store: as `object_store` makes it by default, except that it follows no redirect, and
//! that a list must be one.
//!
//! `object_store` takes any XML for an empty list, for example the page of a proxy. All definitions would seem to be
//! gone.

use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use http::Method;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;

pub(super) const USER_AGENT: &str = concat!("tidewaiter/", env!("CARGO_PKG_VERSION"));
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(3);
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(8);

/// The limit of one page of a list, which has at most 1,000 names of at most 1,024 bytes.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Makes the clients.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Also asked for when the credentials come from the metadata server, which speaks HTTP.
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            // The announced length is that of the object.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(USER_AGENT)
            .https_only(allow_http.as_deref() != Some("true"))
            .connect_timeout(CONNECT_LIMIT)
            .timeout(REQUEST_LIMIT)
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "state",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Checked(HttpClient::new(client))))
    }
}

/// Refuses a page of a list that is not one.
#[derive(Debug)]
struct Checked(HttpClient);

#[derive(Debug, thiserror::Error)]
enum NotAList {
    #[error("the response to a list is not a list of S3")]
    Other,
    #[error("a page of a list is larger than 16 MiB")]
    TooLarge,
}

#[async_trait]
impl HttpService for Checked {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_list =
            request.method() == Method::GET && request.uri().query().is_some_and(|query| query.contains("list-type="));
        let response = self.0.execute(request).await?;
        if !is_list || !response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let mut page = Vec::new();
        let mut rest = body.bytes_stream();
        while let Some(bytes) = rest.try_next().await? {
            page.extend_from_slice(&bytes);
            if page.len() > MAX_PAGE_BYTES {
                return Err(HttpError::new(HttpErrorKind::Decode, NotAList::TooLarge));
            }
        }
        if !is_page(&page) {
            return Err(HttpError::new(HttpErrorKind::Decode, NotAList::Other));
        }
        Ok(HttpResponse::from_parts(parts, page.into()))
    }
}

/// Returns true if it has the root element of `ListObjectsV2`, to its end.
fn is_page(page: &[u8]) -> bool {
    let text = String::from_utf8_lossy(page);
    text.contains("<ListBucketResult") && text.trim_end().ends_with("</ListBucketResult>")
}
