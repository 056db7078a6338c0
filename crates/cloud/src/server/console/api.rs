//! The API of this server, as a page uses it: in the same process, with the token of the signed-in person.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH, LINK};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tidewaiter_kit::Chain;
use tidewaiter_kit::serve::Peer;
use tower::ServiceExt as _;
use tracing::error;

use crate::client::Path;
use crate::models::{CHANGE_HEADER, InvalidField};
use crate::server::Error;
use crate::server::http::call::OfPage;
use crate::server::http::errors::busy;
use crate::server::refusal::Refusal;
use crate::server::store::StoreError;

/// The maximum size of all responses that a page reads, in bytes.
const MAX_READ: usize = 8 * 1024 * 1024;

/// The status of a page that reads more, and of a response of the API that is too large.
pub(super) const TOO_LARGE: StatusCode = StatusCode::INSUFFICIENT_STORAGE;

/// The number of items of a list that are read at a time.
const LIST_PAGE: u32 = 1_000;

/// The headers by which the API learns the address of the browser behind a proxy, and its host.
const PASSED: [HeaderName; 4] = [
    HOST,
    http::header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// The API for one page, with the browser's address and token.
pub(super) struct Api {
    router: Router,
    peer: Option<Peer>,
    headers: HeaderMap,
    /// The bytes of all responses that were read.
    read_bytes: AtomicUsize,
}

/// A successful response.
pub(super) struct Answer {
    /// Null without a body.
    pub(super) value: Value,
    /// The version of the object, for `If-Match`.
    pub(super) etag: Option<String>,
    /// The cursor of the next page of a list.
    pub(super) after: Option<String>,
    /// The number of the change that was made.
    pub(super) change: Option<u64>,
}

impl Answer {
    /// The items of a list.
    pub(super) fn items(&self) -> &[Value] {
        self.value.as_array().map(Vec::as_slice).unwrap_or_default()
    }
}

/// A refusal of the API, for the person who asked.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// The reason and the remedy.
    pub(super) message: String,
    /// The field of the form that is invalid; empty if none is.
    pub(super) field: String,
}

impl Api {
    /// The API for the browser that sent `request`, without a token.
    pub(super) fn new(router: &Router, peer: Option<Peer>, sent: &HeaderMap) -> Self {
        let mut headers = HeaderMap::new();
        for name in PASSED {
            for value in sent.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        Self {
            router: router.clone(),
            peer,
            headers,
            read_bytes: AtomicUsize::new(0),
        }
    }

    /// The API with the token of a session.
    #[must_use]
    pub(super) fn with_token(mut self, token: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(&format!("JWT {token}")) {
            value.set_sensitive(true);
            self.headers.insert(AUTHORIZATION, value);
        }
        self
    }

    /// The same API, whose responses do not count for the page: as many bytes again are read of it.
    #[must_use]
    pub(super) fn uncounted(&self) -> Self {
        Self {
            router: self.router.clone(),
            peer: self.peer,
            headers: self.headers.clone(),
            read_bytes: AtomicUsize::new(0),
        }
    }

    pub(super) async fn get(&self, path: Path) -> Result<Answer, Problem> {
        self.send(Method::GET, path, None, None).await
    }

    /// Reads a list, page by page.
    pub(super) async fn all(&self, path: Path) -> Result<Vec<Value>, Problem> {
        let mut items = Vec::new();
        let mut after = None;
        loop {
            let page = path.clone().query("limit", LIST_PAGE);
            let answer = self.get(match &after {
                Some(after) => page.query("after", after),
                None => page,
            });
            let answer = answer.await?;
            if let Value::Array(mut page) = answer.value {
                items.append(&mut page);
            }
            after = answer.after;
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    /// Sends a change. With `if_match`, it is refused if the object is no longer of that version.
    pub(super) async fn send(
        &self,
        method: Method,
        path: Path,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, Problem> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let response = self.response(method, &path, body, if_match).await;
        let (parts, body) = response.into_parts();
        let bytes = self.read(body).await?;
        if !parts.status.is_success() {
            return Err(Problem::of(parts.status, &bytes));
        }
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        Ok(Answer {
            value: serde_json::from_slice(&bytes).unwrap_or_default(),
            etag: header(ETAG).map(str::to_owned),
            after: header(LINK).and_then(cursor),
            change: header(HeaderName::from_static(CHANGE_HEADER)).and_then(|number| number.parse().ok()),
        })
    }

    /// The whole body of a response, which counts for the page.
    async fn read(&self, mut body: Body) -> Result<Bytes, Problem> {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| busy("a response of this server ended early"))?;
            let data = frame.into_data().unwrap_or_default();
            if self.read_bytes.fetch_add(data.len(), Ordering::Relaxed) + data.len() > MAX_READ {
                let message = "what the page shows is larger than 8 MiB: use the command line, tidewaiter cloud get";
                return Err(Refusal::new(TOO_LARGE, message).into());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    /// The response as it is, for a stream.
    pub(super) async fn response(&self, method: Method, path: &Path, body: String, if_match: Option<&str>) -> Response {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.uri().parse().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        if let Some(value) = if_match.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request.headers_mut().insert(IF_MATCH, value);
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(OfPage);
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }
}

impl Problem {
    /// A refusal of the console itself.
    pub(super) fn forbidden(message: &str) -> Self {
        Refusal::forbidden(message).into()
    }

    /// A response of the API that is not as it should be.
    pub(super) fn internal(error: &InvalidField) -> Self {
        let message = format!("a response of this server cannot be shown: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message).into()
    }

    fn of(status: StatusCode, body: &Bytes) -> Self {
        let failure = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let text = |pointer: &str| failure.pointer(pointer).and_then(Value::as_str);
        let message = text("/message").unwrap_or("the request was refused");
        Self {
            status,
            message: message.to_owned(),
            field: text("/field").unwrap_or_default().to_owned(),
        }
    }
}

/// The object; `None` only if it does not exist.
pub(super) fn if_found<T>(read: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match read {
        Err(problem) if problem.status == StatusCode::NOT_FOUND => Ok(None),
        read => read.map(Some),
    }
}

impl From<Error> for Problem {
    /// The log has the details of what the person cannot correct.
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            error => {
                error!(error = %Chain(&error), "a page failed");
                busy("the server cannot do this now").into()
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self {
            status: refusal.status,
            message: refusal.message,
            field: refusal.field.unwrap_or_default(),
        }
    }
}

/// The value of `after` in the location of the next page; of the audit log, that of `before`.
fn cursor(link: &str) -> Option<String> {
    let (_, query) = link.strip_prefix('<')?.split_once('>')?.0.split_once('?')?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(name, _)| name == "after" || name == "before")
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn a_page_reads_a_limited_number_of_bytes_in_all() {
        let half = format!("[\"{}\"]", "x".repeat(MAX_READ / 2 - 4));
        let router = Router::new().route("/v3/users", get(move || async move { half }));
        let api = Api::new(&router, None, &HeaderMap::new());
        for _ in 0..2 {
            api.get(Path::new(["users"])).await.unwrap();
        }
        let refused = api.get(Path::new(["users"])).await.err().unwrap();
        assert_eq!(refused.status, TOO_LARGE);
        assert!(refused.message.contains("tidewaiter cloud get"), "{}", refused.message);
    }

    #[test]
    fn only_what_does_not_exist_is_absent() {
        let refused = |status| Err::<(), _>(Problem::from(Refusal::new(status, "refused")));
        assert_eq!(if_found(refused(StatusCode::NOT_FOUND)).unwrap(), None);
        for status in [StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, TOO_LARGE] {
            assert_eq!(if_found(refused(status)).unwrap_err().status, status);
        }
    }
}
