//! A proxy between a reader and the server, which adds the features of Cloud Storage's XML API that the server does not
//! have.

use std::io;
use std::sync::Arc;

use http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::fake_cloud::{Body, Port, response};
use crate::server::Server;

const XML: &str = "application/xml; charset=UTF-8";

/// The headers of the server's answer that are passed on.
const HEADERS: [&str; 4] = ["content-type", "etag", "last-modified", "x-goog-generation"];

/// One request of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The requested path, escaped as it was sent: a bucket, or an object of one.
    pub path: String,
    /// The credentials that it brought, as they stood in the header.
    pub authorization: Option<String>,
    /// The status of the answer.
    pub status: u16,
}

#[derive(Debug)]
pub(super) struct Front {
    pub(super) server: Server,
    requests: Mutex<Vec<RecordedRequest>>,
}

/// Serves on a port of its own.
pub(super) async fn open(front: &Arc<Front>) -> Port {
    let front = Arc::clone(front);
    Port::open(move |request| {
        let front = Arc::clone(&front);
        async move { front.take(request).await }
    })
    .await
}

impl Front {
    pub(super) fn of(server: Server) -> Self {
        Self {
            server,
            requests: Mutex::default(),
        }
    }

    pub(super) fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.requests.lock())
    }

    async fn take(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let answer = self.answer(&request).await.map_err(io::Error::other)?;
        let authorization = request.headers().get(AUTHORIZATION);
        let request = RecordedRequest {
            path: request.uri().path().to_owned(),
            authorization: authorization.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            status: answer.status().as_u16(),
        };
        self.requests.lock().push(request);
        Ok(answer)
    }

    async fn answer(&self, request: &Request<Incoming>) -> reqwest::Result<Response<Body>> {
        if request.method() != Method::GET {
            return Ok(refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "Only readers come here.",
            ));
        }
        let answer = self.get(&request.uri().to_string()).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if !status.is_success() {
            return self.missing(request.uri().path(), status).await;
        }
        let unchanged = headers.get(ETAG).is_some() && headers.get(ETAG) == request.headers().get(IF_NONE_MATCH);
        Ok(if unchanged {
            with_headers(StatusCode::NOT_MODIFIED, &headers, String::new())
        } else {
            with_headers(StatusCode::OK, &headers, answer.text().await?)
        })
    }

    /// The server answers 404 or 500 without XML, and does not say which of the two is missing.
    async fn missing(&self, path: &str, status: StatusCode) -> reqwest::Result<Response<Body>> {
        let bucket = path.split('/').nth(1).unwrap_or_default();
        let bucket = self.get(&format!("/storage/v1/b/{bucket}")).await?;
        Ok(match (bucket.status(), status) {
            (StatusCode::NOT_FOUND, _) => {
                let words = "The specified bucket does not exist.";
                refusal(StatusCode::NOT_FOUND, "NoSuchBucket", words)
            }
            (_, StatusCode::NOT_FOUND) => refusal(status, "NoSuchKey", "The specified key does not exist."),
            _ => refusal(
                status,
                "InternalError",
                "We encountered an internal error. Please try again.",
            ),
        })
    }

    async fn get(&self, path_and_query: &str) -> reqwest::Result<reqwest::Response> {
        let url = format!("{}{path_and_query}", self.server.endpoint);
        self.server.http.get(url).send().await
    }
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let body =
        format!("<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
    response(status, XML, body)
}

fn with_headers(status: StatusCode, headers: &HeaderMap, body: String) -> Response<Body> {
    let mut answer = response(status, XML, body);
    for name in HEADERS {
        if let Some(value) = headers.get(name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}
