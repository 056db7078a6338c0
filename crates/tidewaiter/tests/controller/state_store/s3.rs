//! As much of S3 as a reader of objects sees, with faults: what moto does not do.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, Response, Uri, header};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server on a port of its own. Dropped, it is gone.
pub struct S3 {
    endpoint: String,
    bucket: Arc<Bucket>,
    serving: JoinHandle<()>,
}

/// The answer to every request.
#[derive(Clone, Copy)]
pub enum Answer {
    /// The file.
    Files,
    /// This status and body.
    Text(u16, &'static str),
    /// A body that ends before the length that it announced.
    BreakOff,
}

struct Bucket {
    folder: PathBuf,
    state: Mutex<Served>,
}

struct Served {
    answer: Answer,
    /// Files that were sent, and requests that were answered with 304.
    counts: (usize, usize),
    /// The access key and region with which requests were signed, as `KEY in REGION`.
    signers: BTreeSet<String>,
}

impl Answer {
    pub fn denied() -> Self {
        Self::Text(
            403,
            "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
        )
    }

    pub fn missing() -> Self {
        Self::Text(
            404,
            "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>",
        )
    }

    pub fn unavailable() -> Self {
        Self::Text(
            503,
            "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
        )
    }
}

impl S3 {
    /// Serves the files of a folder under whatever bucket and prefix.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server of its own, which ends with its value"
    )]
    pub async fn start(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Mutex::new(Served {
            answer: Answer::Files,
            counts: (0, 0),
            signers: BTreeSet::new(),
        });
        let bucket = Arc::new(Bucket { folder, state });
        let router = Router::new().fallback(get).with_state(Arc::clone(&bucket));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            endpoint,
            bucket,
            serving,
        }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// From now on every request gets this.
    pub fn answer(&self, answer: Answer) {
        self.bucket.state.lock().unwrap().answer = answer;
    }

    /// Returns the signers of the requests, as `KEY in REGION`.
    pub fn signers(&self) -> Vec<String> {
        self.bucket.state.lock().unwrap().signers.iter().cloned().collect()
    }

    /// The files that were sent and the 304s since this was asked last.
    pub fn take_counts(&self) -> (usize, usize) {
        std::mem::take(&mut self.bucket.state.lock().unwrap().counts)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn get(State(bucket): State<Arc<Bucket>>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    let answer = {
        let mut state = bucket.state.lock().unwrap();
        state.signers.extend(signer(&headers));
        state.answer
    };
    match answer {
        Answer::Files => bucket.file(uri.path(), &headers),
        Answer::Text(status, text) => respond(status, text.to_owned(), text.len()),
        Answer::BreakOff => {
            let first = futures::stream::iter([Ok("apiVersion: "), Err(std::io::Error::other("broken off"))]);
            let mut response = respond(200, String::new(), 1000);
            *response.body_mut() = Body::from_stream(first);
            response
        }
    }
}

/// From `AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/s3/aws4_request, …`.
fn signer(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let mut scope = header.split_once("Credential=")?.1.split('/');
    let (key, _date, region) = (scope.next()?, scope.next()?, scope.next()?);
    Some(format!("{key} in {region}"))
}

impl Bucket {
    /// `/BUCKET/CLUSTER/FILE`
    fn file(&self, path: &str, headers: &HeaderMap) -> Response<Body> {
        let file = path.splitn(4, '/').nth(3).unwrap_or_default();
        let Ok(text) = std::fs::read_to_string(self.folder.join(file)) else {
            let Answer::Text(status, text) = Answer::missing() else {
                unreachable!()
            };
            return respond(status, text.to_owned(), text.len());
        };
        let tag = tag(&text);
        let unchanged = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known == tag.as_str());
        let mut state = self.state.lock().unwrap();
        if unchanged {
            state.counts.1 += 1;
            respond(304, String::new(), 0)
        } else {
            state.counts.0 += 1;
            let length = text.len();
            let mut response = respond(200, text, length);
            response.headers_mut().insert(header::ETAG, tag.parse().unwrap());
            response
        }
    }
}

fn tag(text: &str) -> String {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    format!(
        "\"{:x}\"",
        BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
    )
}

fn respond(status: u16, body: String, length: usize) -> Response<Body> {
    Response::builder()
        .status(status)
        .header(header::LAST_MODIFIED, "Mon, 12 Jan 2026 09:21:08 GMT")
        .header(header::ETAG, tag(&body))
        .header(header::CONTENT_LENGTH, length)
        .body(Body::from(body))
        .unwrap()
}
