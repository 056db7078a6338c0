use std::fs;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Mutex;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures::future::{Either, select};
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use tidewaiter_kit::ManualClock;
use tidewaiter_testkit::fake_gcs_server::service_account_file;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const FILE: &str = "instancegroup/nodes-a";

async fn read(store: &StateStore) -> Result<Read, StoreError> {
    store.read(FILE, None).await
}

fn text(read: &Read) -> &str {
    match read {
        Read::Found { bytes, .. } => std::str::from_utf8(bytes).unwrap(),
        Read::NotModified => panic!("not modified"),
    }
}

/// Answers each connection with the next response, and repeats the last one; records the heads of the requests.
struct Server {
    listener: TcpListener,
    answers: Mutex<Vec<Vec<u8>>>,
    requests: Mutex<Vec<String>>,
}

impl Server {
    async fn new(answers: &[&str]) -> Self {
        Self {
            listener: TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap(),
            answers: Mutex::new(answers.iter().rev().map(|answer| answer.as_bytes().to_vec()).collect()),
            requests: Mutex::default(),
        }
    }

    fn options(&self) -> StoreOptions {
        let endpoint = format!("http://{}", self.listener.local_addr().unwrap());
        let credentials = Credentials::new("AKIDTEST", "the-secret", Some("the-token".to_owned()), None, "test");
        StoreOptions {
            endpoint: Some(endpoint.parse().unwrap()),
            aws_credentials: Some(SharedCredentialsProvider::new(credentials)),
            ..StoreOptions::default()
        }
    }

    fn open(&self, url: &str) -> StateStore {
        StateStore::open(&url.parse().unwrap(), self.options()).unwrap()
    }

    /// Runs `test` while serving.
    async fn during<T>(&self, test: impl Future<Output = T>) -> T {
        let serve = async {
            loop {
                let (connection, _) = self.listener.accept().await.unwrap();
                self.answer(connection).await;
            }
        };
        match select(pin!(test), pin!(serve)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => unreachable!(),
        }
    }

    async fn answer(&self, mut connection: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match connection.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        self.requests.lock().unwrap().push(String::from_utf8(head).unwrap());
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 {
                answers.pop().unwrap()
            } else {
                answers[0].clone()
            }
        };
        let _ = connection.write_all(&answer).await;
        let _ = connection.shutdown().await;
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

const FRESH: &str = "ETag: \"v1\"\r\nLast-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\n";

#[tokio::test]
async fn a_folder_is_a_store_with_versions() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/c.example.com", folder.path().display());
    let store = StateStore::open(&url.parse().unwrap(), StoreOptions::default()).unwrap();
    assert_eq!(
        read(&store).await.unwrap_err().outcome(),
        "missing",
        "the folder is not even there"
    );
    fs::create_dir_all(folder.path().join("c.example.com/instancegroup")).unwrap();
    assert_eq!(read(&store).await.unwrap_err().outcome(), "missing");
    let path = folder.path().join("c.example.com").join(FILE);
    put(&path, "a: 1\n");
    let first = read(&store).await.unwrap();
    assert_eq!(text(&first), "a: 1\n");
    let Read::Found { etag, .. } = first else {
        panic!("not modified")
    };
    assert_eq!(store.read(FILE, etag.as_ref()).await, Ok(Read::NotModified));
    put(&path, "a: 1, changed\n");
    assert_eq!(text(&store.read(FILE, etag.as_ref()).await.unwrap()), "a: 1, changed\n");
    put(&path, &"x".repeat(MAX_FILE_BYTES));
    assert_eq!(text(&read(&store).await.unwrap()).len(), MAX_FILE_BYTES);
    put(&path, &"x".repeat(MAX_FILE_BYTES + 1));
    assert_eq!(read(&store).await, Err(StoreError::TooLarge { file: FILE.to_owned() }));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(
        read(&store).await.unwrap_err().to_string(),
        "instancegroup/nodes-a: is a folder, must be a file"
    );
}

#[tokio::test]
async fn what_is_no_file_is_named_and_reported_and_never_opened() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/c.example.com", folder.path().display());
    let store = StateStore::open(&url.parse().unwrap(), StoreOptions::default()).unwrap();
    let groups = folder.path().join("c.example.com/instancegroup");
    fs::create_dir_all(groups.join("nodes-a")).unwrap();
    put(&groups.join("nodes-a/inner"), "a: 1\n");
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        groups.join("nodes-b"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    );
    pipe.unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(groups.join("nodes-c")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", groups.join("nodes-d")).unwrap();
    std::os::unix::fs::symlink("/nowhere", groups.join("nodes-e")).unwrap();
    let names = store.list("instancegroup").await.unwrap();
    assert_eq!(names, ["nodes-a", "nodes-b", "nodes-c", "nodes-d", "nodes-e"]);
    for (name, found) in [
        ("nodes-a", "is a folder, must be a file"),
        ("nodes-b", "is a named pipe, must be a file"),
        ("nodes-c", "is a socket, must be a file"),
        ("nodes-d", "is a device, must be a file"),
        ("nodes-e", "is missing from the state store"),
    ] {
        let file = format!("instancegroup/{name}");
        // A pipe that was opened would block until the time limit.
        let read = tokio::time::timeout(Duration::from_mins(1), store.read(&file, None)).await;
        let error = read.expect("it returns at once").unwrap_err().to_string();
        assert!(error.starts_with(&format!("{file}: {found}")), "{error}");
    }
}

#[tokio::test]
async fn the_files_right_in_a_folder_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/c.example.com", folder.path().display());
    let store = StateStore::open(&url.parse().unwrap(), StoreOptions::default()).unwrap();
    let list = async || store.list("instancegroup").await.unwrap();
    assert_eq!(list().await, [""; 0], "the folder is not even there");
    let groups = folder.path().join("c.example.com/instancegroup");
    fs::create_dir_all(groups.join("deeper")).unwrap();
    assert_eq!(list().await, ["deeper"]);
    for name in ["nodes-b", "nodes-a", "deeper/nodes-c", "../instancegroups"] {
        put(&groups.join(name), "a: 1\n");
    }
    assert_eq!(
        list().await,
        ["deeper", "nodes-a", "nodes-b"],
        "a folder is named, because it is no group"
    );
    fs::remove_dir_all(&groups).unwrap();
    put(&groups, "a: 1\n");
    let error = store.list("instancegroup").await.unwrap_err().to_string();
    assert!(error.contains("Not a directory"), "{error}");
}

#[tokio::test]
async fn more_names_than_any_cluster_has_are_no_folder() {
    let store = InMemory::new();
    let put = async |number: usize| {
        let object = Path::from(format!("c/instancegroup/{number}"));
        store.put(&object, "x".into()).await.unwrap();
    };
    for number in 0..MAX_NAMES {
        put(number).await;
    }
    let below = Path::from("c/instancegroup");
    assert_eq!(names_below(&store, &below).await.unwrap().unwrap().len(), MAX_NAMES);
    put(MAX_NAMES).await;
    assert_eq!(names_below(&store, &below).await.unwrap(), None);
}

#[expect(clippy::disallowed_methods, reason = "nobody reads while a test writes")]
fn put(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[tokio::test]
async fn s3_is_asked_in_the_path_with_credentials_and_the_known_version() {
    let server = Server::new(&[
        &answer("200 OK", FRESH, "a: 1\n"),
        "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n",
    ])
    .await;
    let store = server.open("s3://state.example.com/c.example.com");
    server
        .during(async {
            let found = read(&store).await.unwrap();
            assert_eq!(text(&found), "a: 1\n");
            let Read::Found { etag, .. } = found else {
                panic!("not modified")
            };
            assert_eq!(store.read(FILE, etag.as_ref()).await, Ok(Read::NotModified));
        })
        .await;
    let requests: Vec<String> = server.requests().iter().map(|head| head.to_lowercase()).collect();
    for request in &requests {
        assert!(
            request.starts_with("get /state.example.com/c.example.com/instancegroup/nodes-a http/1.1"),
            "{request}"
        );
        assert!(
            request.contains("akidtest/") && request.contains("x-amz-security-token: the-token"),
            "{request}"
        );
        assert!(!request.contains("the-secret"));
    }
    assert!(!requests[0].contains("if-none-match"));
    assert!(requests[1].contains("if-none-match: \"v1\""));
}

#[tokio::test]
async fn gcs_is_asked_at_its_endpoint_without_a_signature_when_anonymous() {
    let server = Server::new(&[&answer("200 OK", FRESH, "a: 1\n")]).await;
    let options = StoreOptions {
        anonymous: true,
        ..server.options()
    };
    let store = StateStore::open(&"gs://state/c.example.com".parse().unwrap(), options).unwrap();
    server
        .during(async { assert_eq!(text(&read(&store).await.unwrap()), "a: 1\n") })
        .await;
    let request = server.requests()[0].to_lowercase();
    let path = request.replace("%2f", "/").replace("%2e", ".").replace("%2d", "-");
    assert!(
        path.starts_with("get /state/c.example.com/instancegroup/nodes-a "),
        "{request}"
    );
    assert!(!request.contains("authorization:"), "{request}");
}

/// It is cached until it expires, although it may be revoked.
#[tokio::test]
async fn a_token_that_google_cloud_storage_rejects_is_replaced_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials.json");
    put(&path, &service_account_file("key-1"));
    let rejected = answer("401 Unauthorized", "", "");
    let server = Server::new(&[&rejected, &answer("200 OK", FRESH, "a: 1\n"), &rejected]).await;
    let clock = ManualClock::default();
    let options = StoreOptions {
        google_credentials: Some(path.clone()),
        clock: clock.shared(),
        ..server.options()
    };
    let store = StateStore::open(&"gs://state/c.example.com".parse().unwrap(), options).unwrap();
    let is_denied = async || assert_eq!(read(&store).await.unwrap_err().outcome(), "denied");
    let reads = async {
        put(&path, &service_account_file("key-2"));
        assert_eq!(text(&read(&store).await.unwrap()), "a: 1\n");
        put(&path, &service_account_file("key-3"));
        is_denied().await;
        is_denied().await;
        clock.advance(Duration::from_secs(10));
        is_denied().await;
    };
    server.during(reads).await;
    let requests = server.requests();
    // The head of a token names the key.
    let heads = requests.iter().map(|request| {
        let (_, token) = request.split_once("Bearer ").unwrap();
        token.split('.').next().unwrap()
    });
    let mut keys: Vec<(&str, usize)> = Vec::new();
    for head in heads {
        match keys.last_mut() {
            Some((last, count)) if *last == head => *count += 1,
            _ => keys.push((head, 1)),
        }
    }
    let counts: Vec<usize> = keys.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 4, 1], "{keys:?}");
}

#[tokio::test]
async fn what_a_store_answers_is_one_of_four_troubles_in_one_stable_line() {
    let xml = |code: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>Told so</Message><RequestId>R</RequestId></Error>"
        )
    };
    for (status, body, said) in [
        (
            "404 Not Found",
            xml("NoSuchKey"),
            "instancegroup/nodes-a: is missing from the state store (NoSuchKey: Told so)",
        ),
        (
            "404 Not Found",
            xml("NoSuchBucket"),
            "instancegroup/nodes-a: is missing from the state store (NoSuchBucket: Told so)",
        ),
        (
            "403 Forbidden",
            xml("AccessDenied"),
            "instancegroup/nodes-a: the state store denies access (AccessDenied: Told so; without the permission s3:ListBucket, S3 also reports a missing file this way)",
        ),
        (
            "503 Slow Down",
            xml("SlowDown"),
            "instancegroup/nodes-a: the state store does not return the file (SlowDown: Told so)",
        ),
        (
            "502 Bad Gateway",
            "<html>id 7</html>".to_owned(),
            "instancegroup/nodes-a: the state store does not return the file (Server returned non-2xx status code: 502 Bad Gateway)",
        ),
        (
            "301 Moved Permanently",
            xml("PermanentRedirect"),
            "instancegroup/nodes-a: the state store does not return the file (the bucket is in another region)",
        ),
    ] {
        let server = Server::new(&[&answer(status, "", &body)]).await;
        let store = server.open("s3://state/c");
        let error = server.during(read(&store)).await.unwrap_err();
        assert_eq!(error.to_string(), said);
        assert!(server.requests().len() <= 3, "{} requests", server.requests().len());
    }
}

/// An empty list would mean that every group is gone.
#[tokio::test]
async fn a_page_that_is_not_a_list_is_not_an_empty_one() {
    let list = "<?xml version='1.0'?>\n<ListBucketResult><Name>state</Name></ListBucketResult>\n";
    for (body, expected) in [
        (list, None),
        ("<html><body>log in</body></html>", Some("not a list of S3")),
        ("<Page></Page>", Some("not a list of S3")),
        ("", Some("not a list of S3")),
        (&list[..list.len() - 8], Some("not a list of S3")),
    ] {
        for scheme in ["s3", "gs"] {
            let server = Server::new(&[&answer("200 OK", "", body)]).await;
            let options = StoreOptions {
                anonymous: true,
                ..server.options()
            };
            let store = StateStore::open(&format!("{scheme}://state/c").parse().unwrap(), options).unwrap();
            let listed = server.during(store.list("instancegroup")).await;
            match (listed, expected) {
                (Ok(names), None) => assert_eq!(names, [""; 0]),
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                other => panic!("{scheme} {body:?}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::new(&[&answer("200 OK", FRESH, "a: forged\n")]).await;
    let elsewhere = format!("Location: http://{}/x\r\n", other.listener.local_addr().unwrap());
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        for scheme in ["s3", "gs"] {
            let server = Server::new(&[&answer(status, &elsewhere, "")]).await;
            let options = StoreOptions {
                anonymous: true,
                ..server.options()
            };
            let store = StateStore::open(&format!("{scheme}://state/c").parse().unwrap(), options).unwrap();
            let error = other.during(server.during(read(&store))).await.unwrap_err().to_string();
            let expected = "instancegroup/nodes-a: the state store does not return the file (it redirects to another \
                            address, which is not followed)";
            assert_eq!(error, expected, "{status}");
        }
    }
    assert_eq!(other.requests(), [""; 0]);
}

#[tokio::test]
async fn what_google_cloud_answers_is_one_of_the_same_four() {
    let xml = |code: &str| format!("<?xml version='1.0'?><Error><Code>{code}</Code><Message>Told so</Message></Error>");
    for (status, body, said) in [
        (
            "404 Not Found",
            xml("NoSuchKey"),
            "is missing from the state store (NoSuchKey: Told so)",
        ),
        (
            "404 Not Found",
            xml("NoSuchBucket"),
            "is missing from the state store (NoSuchBucket: Told so)",
        ),
        (
            "403 Forbidden",
            xml("AccessDenied"),
            "the state store denies access (AccessDenied: Told so)",
        ),
        (
            "401 Unauthorized",
            xml("AuthenticationRequired"),
            "the state store denies access (AuthenticationRequired: Told so)",
        ),
        (
            "503 Service Unavailable",
            xml("ServiceUnavailable"),
            "the state store does not return the file (ServiceUnavailable: Told so)",
        ),
        (
            "200 OK",
            "<html>Sign in</html>".to_owned(),
            "the state store does not return the file (ETag Header missing from response)",
        ),
    ] {
        let server = Server::new(&[&answer(
            status,
            "Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\n",
            &body,
        )])
        .await;
        let options = StoreOptions {
            anonymous: true,
            ..server.options()
        };
        let store = StateStore::open(&"gs://state/c".parse().unwrap(), options).unwrap();
        let error = server.during(read(&store)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("instancegroup/nodes-a: {said}"));
        assert!(server.requests().len() <= 3, "{} requests", server.requests().len());
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_no_file() {
    let cut =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n{FRESH}\r\nspec:\n  role: Node\n");
    let server = Server::new(&[&cut]).await;
    let store = server.open("s3://state/c");
    let error = server.during(read(&store)).await.unwrap_err();
    assert_eq!(error.outcome(), "unavailable", "{error}");
}

#[tokio::test]
async fn bytes_that_are_fewer_than_announced_are_no_file_whoever_gives_them() {
    let store = InMemory::new();
    store.put(&FILE.into(), "spec:\n  role: Node\n".into()).await.unwrap();
    let whole = store.get(&FILE.into()).await.unwrap();
    assert!(matches!(body(whole).await, Ok(Some(_))));
    let mut cut = store.get(&FILE.into()).await.unwrap();
    cut.meta.size = 100;
    let error = body(cut).await.unwrap_err();
    assert!(
        error.to_string().contains("the body ended after 19 of 100 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n{FRESH}\r\n");
    let server = Server::new(&[&head]).await;
    let store = server.open("s3://state/c");
    assert_eq!(server.during(read(&store)).await.unwrap_err().outcome(), "too_large");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn garbage_and_nobody_listening_are_an_outage() {
    let server = Server::new(&["\u{0}\u{1}garbage\r\n\r\n"]).await;
    let store = server.open("s3://state/c");
    assert_eq!(server.during(read(&store)).await.unwrap_err().outcome(), "unavailable");
    drop(server);
    let error = read(&store).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert_eq!(read(&store).await.unwrap_err().to_string(), error, "stable");
}

#[tokio::test]
async fn plain_http_is_for_an_endpoint_that_says_so() {
    let options = |endpoint: &str| StoreOptions {
        endpoint: Some(endpoint.parse().unwrap()),
        ..StoreOptions::default()
    };
    let url = "s3://state/c".parse().unwrap();
    let error = StateStore::open(&url, options("ftp://127.0.0.1/")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state store's endpoint ftp://127.0.0.1/ must be http://HOST or https://HOST"
    );
    assert!(StateStore::open(&url, options("https://127.0.0.1")).is_ok());
}

#[tokio::test]
async fn no_debug_output_shows_a_secret() {
    let server = Server::new(&[""]).await;
    let store = server.open("s3://state/c");
    let shown = format!("{store:?} {:?}", server.options());
    assert!(!shown.contains("the-secret") && !shown.contains("the-token"), "{shown}");
}
