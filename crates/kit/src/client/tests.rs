#![expect(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body as AnswerBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::channel::mpsc::unbounded;
use futures::future::{BoxFuture, join_all};
use futures::{AsyncBufReadExt as _, FutureExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, WatchParams};
use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::Leadership;
use crate::clock::{Clock, SharedClock, SimulatedClock};
use crate::testing::{beside, kit, kit_on, serve, settle};

/// Answers every request with the status in its path's last segment, or a Node.
async fn by_name(State(seen): State<Arc<AtomicUsize>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if to_bytes(body, usize::MAX).await.is_err() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    seen.fetch_add(1, Ordering::SeqCst);
    let name = parts.uri.path().rsplit('/').next().unwrap_or_default();
    match name.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
        Some(code) if !code.is_success() => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()});
            (code, axum::Json(status)).into_response()
        }
        _ => axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})).into_response(),
    }
}

async fn server() -> (Config, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    (
        serve(Router::new().fallback(by_name).with_state(Arc::clone(&seen))).await,
        seen,
    )
}

async fn patch(client: &Client, name: &str) -> Result<Node, kube::Error> {
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    Api::<Node>::all(client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
}

fn counted(kit: &Kit, verb: &str, outcome: &str) -> u64 {
    kit.metrics.writes.with_label_values(&[verb, "nodes", outcome]).get()
}

#[tokio::test]
async fn a_standby_reads_and_does_not_write() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::new(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let nodes = Api::<Node>::all(client.clone());

    nodes.get("a").await.unwrap();
    let error = patch(&client, "a").await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(is_fenced(
        &nodes.delete("a", &DeleteParams::default()).await.unwrap_err()
    ));

    assert_eq!(seen.load(Ordering::SeqCst), 1, "only the read was sent");
    assert_eq!(
        (counted(&kit, "patch", "fenced"), counted(&kit, "delete", "fenced")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_write_without_a_body_is_fenced_too() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::never(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let delete = http::Request::delete("/api/v1/nodes/a").body(Vec::new()).unwrap();
    assert!(is_fenced(&client.request_text(delete).await.unwrap_err()));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_token_file_is_read_as_kubectl_does() {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let mut config = serve(Router::new().fallback(async move |request: Request| {
        let token = request.headers().get("authorization").cloned();
        seen.lock().unwrap().extend(token);
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}))
    }))
    .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |token: &str| {
        file.as_file().set_len(0).unwrap();
        file.as_file().write_all_at(token.as_bytes(), 0).unwrap();
    };
    write("first\n");
    config.auth_info.token = Some("inline".to_owned().into());
    config.auth_info.token_file = Some(file.path().display().to_string());
    let (kit, clock) = kit();
    let client = fenced(&config, &Leadership::never(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let nodes = Api::<Node>::all(client);
    nodes.get("a").await.unwrap();
    write(" second \r\n");
    nodes.get("a").await.unwrap();
    clock.advance(Duration::from_mins(1));
    nodes.get("a").await.unwrap();
    file.close().unwrap();
    clock.advance(Duration::from_mins(1));
    nodes.get("a").await.unwrap();
    assert_eq!(
        *tokens.lock().unwrap(),
        ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]
    );
}

#[test]
fn a_certificate_of_an_old_version_has_a_remedy() {
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    let said = |cause: &str| failed(&config, kube::Error::Service(cause.into())).to_string();
    assert!(said("Other(OtherError(UnsupportedCertVersion))").contains("version 3 of X.509"));
    assert!(!said("UnknownIssuer").contains("X.509"));
}

#[test]
fn a_token_file_that_cannot_be_used_is_an_error_unless_there_is_an_inline_token() {
    let (kit, _) = kit();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(b" \n", 0).unwrap();
    let take = |path: &str, token: Option<&str>| {
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info.token_file = Some(path.to_owned());
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let taken = TokenFile::take(&mut config, &kit.clock);
        taken.map(|file| file.unwrap().header().to_str().unwrap().to_owned())
    };
    for path in [file.path().to_str().unwrap(), "/nowhere"] {
        assert_eq!(take(path, Some("inline")).unwrap(), "Bearer inline");
        for token in [None, Some("")] {
            assert!(matches!(take(path, token), Err(kube::Error::Auth(_))), "{path}");
        }
    }
}

#[tokio::test]
async fn a_client_that_impersonates_says_whom_and_is_fenced() {
    let users = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&users);
    let config = serve(Router::new().fallback(async move |request: Request| {
        let user = request.headers().get("impersonate-user").cloned();
        seen.lock().unwrap().push(user);
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}))
    }))
    .await;
    let (kit, _) = kit();
    let own = fenced(&config, &Leadership::never(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let client = impersonate(&own, "monitoring", "metrics");
    Api::<Node>::all(client.clone()).get("a").await.unwrap();
    assert!(is_fenced(&patch(&client, "a").await.unwrap_err()));
    let invalid = impersonate(&own, "monitoring", "metrics\r\nImpersonate-Group: system:masters");
    Api::<Node>::all(invalid).get("a").await.unwrap_err();
    let users = users.lock().unwrap();
    assert_eq!(
        *users,
        [Some("system:serviceaccount:monitoring:metrics".parse().unwrap())],
        "one read, and no write"
    );
}

#[tokio::test]
async fn counts_each_outcome() {
    let (config, _) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    for (name, outcome) in [
        ("a", "ok"),
        ("409", "conflict"),
        ("422", "rejected"),
        ("403", "rejected"),
        ("503", "error"),
    ] {
        let before = counted(&kit, "patch", outcome);
        let result = patch(&client, name).await;
        assert_eq!(result.is_ok(), outcome == "ok", "{result:?}");
        assert!(!result.is_err_and(|error| is_fenced(&error)));
        assert_eq!(counted(&kit, "patch", outcome), before + 1, "{name}");
    }
}

/// As API priority and fairness refuses: the time is in the header alone.
#[tokio::test]
async fn an_error_says_after_which_time_to_retry() {
    let throttled = async |_: Request| -> Response {
        let text = "Too many requests, please try again later.\n";
        (StatusCode::TOO_MANY_REQUESTS, [("Retry-After", "7")], text).into_response()
    };
    let config = serve(Router::new().fallback(throttled)).await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let watch = nodes.watch(&WatchParams::default(), "1").await;
    for error in [
        nodes.get("a").await.unwrap_err(),
        patch(&client, "a").await.unwrap_err(),
        watch.err().unwrap(),
    ] {
        assert_eq!(retry_after(&error), Some(Duration::from_secs(7)), "{error:?}");
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 429),
            "{error:?}"
        );
    }
    assert_eq!(counted(&kit, "patch", "rejected"), 1);
}

#[tokio::test]
async fn an_api_server_without_a_connection_is_named() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = Config::new(format!("{closed}/").parse().unwrap());
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let error = patch(&client, "a").await.unwrap_err();
    let said = Chain(&error).to_string();
    let named = format!("the request failed: cannot connect to the API server {closed} (check that it runs");
    assert!(said.starts_with(&named) && said.contains("kubeconfig"), "{said}");
}

#[tokio::test]
async fn an_api_server_without_tls_is_named() {
    let (mut config, _) = server().await;
    let url = config.cluster_url.to_string().replace("http://", "https://");
    config.cluster_url = url.parse().unwrap();
    // No authority is read.
    config.accept_invalid_certs = true;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let error = patch(&client, "a").await.unwrap_err();
    let said = Chain(&error).to_string();
    assert!(said.contains("it answers without TLS: correct the port"), "{said}");
}

#[tokio::test]
async fn the_outcome_of_a_write_without_an_answer_is_unknown() {
    let router = Router::new().fallback(async |_: Request| -> Response { std::future::pending().await });
    let config = serve(router).await;
    let (kit, clock) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit)
        .await
        .unwrap();
    let (result, ()) = futures::join!(patch(&client, "a"), async {
        clock.sleeping(1).await;
        clock.advance(WRITE_TIMEOUT);
    });
    let error = result.unwrap_err();
    assert!(!is_fenced(&error), "{error:?}");
    assert_eq!(counted(&kit, "patch", "unknown"), 1);

    let dropped = beside(async move { patch(&client, "a").await });
    clock.sleeping(1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(counted(&kit, "patch", "unknown"), 2, "the caller went away");
}

/// Leads when it is asked for the first time, and is past its deadline when it is asked again.
#[derive(Debug)]
struct StoppedAfterFirstReading(AtomicU32);

impl Clock for StoppedAfterFirstReading {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(100 * u64::from(self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn a_process_stopped_between_call_and_send_writes_nothing() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let clock: SharedClock = Arc::new(StoppedAfterFirstReading(AtomicU32::new(0)));
    let leadership = Leadership::new(clock);
    leadership.lead_until(Duration::from_secs(50));
    let client = fenced(&config, &leadership, &kit).await.unwrap();

    let error = patch(&client, "a").await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "no whole request arrived");
    assert_eq!(counted(&kit, "patch", "fenced"), 1);
}

#[tokio::test]
async fn writes_that_wait_for_their_turn_are_fenced_too() {
    let release = Arc::new(Notify::new());
    let arrived = Arc::new(AtomicUsize::new(0));
    let (gate, count) = (Arc::clone(&release), Arc::clone(&arrived));
    let router = Router::new().fallback(async move |request: Request| {
        count.fetch_add(1, Ordering::SeqCst);
        gate.notified().await;
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}))
    });
    let config = serve(router).await;
    let (kit, _) = kit();
    let leadership = Leadership::always(Arc::clone(&kit.clock));
    let client = fenced(&config, &leadership, &kit).await.unwrap();

    let writes = join_all((0..MOST_IN_FLIGHT + 8).map(|n| {
        let client = client.clone();
        async move { patch(&client, &format!("n{n}")).await }
    }));
    let (results, ()) = futures::join!(writes, async {
        while arrived.load(Ordering::SeqCst) < MOST_IN_FLIGHT {
            tokio::task::yield_now().await;
        }
        leadership.resign();
        release.notify_waiters();
    });
    let refused = results
        .iter()
        .filter(|result| result.as_ref().is_err_and(is_fenced))
        .count();
    assert_eq!(
        (results.iter().filter(|result| result.is_ok()).count(), refused),
        (MOST_IN_FLIGHT, 8)
    );
    assert_eq!(arrived.load(Ordering::SeqCst), MOST_IN_FLIGHT);
}

#[tokio::test]
async fn resigning_waits_for_the_writes_that_were_sent() {
    let release = Arc::new(Notify::new());
    let arrived = Arc::new(Notify::new());
    let (gate, here) = (Arc::clone(&release), Arc::clone(&arrived));
    let router = Router::new().fallback(async move |_: Request| {
        here.notify_one();
        gate.notified().await;
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}))
    });
    let config = serve(router).await;
    let (kit, _) = kit();
    let leadership = Leadership::always(Arc::clone(&kit.clock));
    let client = fenced(&config, &leadership, &kit).await.unwrap();
    let write = beside(async move { patch(&client, "a").await });
    arrived.notified().await;

    leadership.resign();
    let mut written = leadership.written().boxed();
    assert!(futures::poll!(&mut written).is_pending());
    // A notification before the handler waits is kept for it.
    release.notify_one();
    write.await.unwrap().unwrap();
    written.await;
    assert!(!leadership.abandoned_since(Duration::ZERO));
}

#[tokio::test]
async fn a_write_that_is_dropped_before_its_answer_is_abandoned() {
    let arrived = Arc::new(Notify::new());
    let here = Arc::clone(&arrived);
    let router = Router::new().fallback(async move |_: Request| {
        here.notify_one();
        std::future::pending::<()>().await;
    });
    let config = serve(router).await;
    let (kit, _) = kit();
    let leadership = Leadership::always(Arc::clone(&kit.clock));
    let client = fenced(&config, &leadership, &kit).await.unwrap();
    let write = beside(async move { patch(&client, "a").await });
    arrived.notified().await;
    assert!(!leadership.abandoned_since(Duration::ZERO));
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    assert!(leadership.abandoned_since(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_asked_for_without_end() {
    let (config, seen) = {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let router = Router::new().fallback(async move |_: Request| {
            count.fetch_add(1, Ordering::SeqCst);
            AnswerBody::empty()
        });
        (serve(router).await, seen)
    };
    let clock = SimulatedClock::shared();
    let kit = kit_on(Arc::clone(&clock));
    let client = fenced(&config, &Leadership::always(Arc::clone(&clock)), &kit)
        .await
        .unwrap();
    let nodes = Api::<Node>::all(client);
    let start = clock.monotonic();
    let mut version = 0;
    while clock.monotonic() - start < Duration::from_secs(30) {
        version += 1;
        let mut events = nodes
            .watch(&WatchParams::default(), &version.to_string())
            .await
            .unwrap()
            .boxed();
        assert!(events.next().await.is_none());
    }
    let seen = seen.load(Ordering::SeqCst);
    assert!((5..=14).contains(&seen), "{seen} requests in 30 s");
}

/// An API server in memory that never answers requests about what is called `hang`, and counts those under way.
#[derive(Clone, Default)]
struct Hanging(Arc<AtomicUsize>);

impl Hanging {
    fn clients(&self, kit: &Kit) -> Clients {
        let under_way = Arc::clone(&self.0);
        let answer = move |request: http::Request<Bytes>| {
            let under_way = Arc::clone(&under_way);
            async move {
                if request.uri().path().ends_with("hang") {
                    under_way.fetch_add(1, Ordering::SeqCst);
                    return std::future::pending().await;
                }
                Ok(by_hand::json(
                    &json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}),
                ))
            }
        };
        by_hand::clients(answer, &Leadership::always(Arc::clone(&kit.clock)), kit)
    }

    fn under_way(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn hang(client: &Client, requests: usize) {
    for _ in 0..requests {
        let client = client.clone();
        beside(async move { patch(&client, "hang").await });
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_request_includes_the_wait_for_its_permit() {
    let kit = kit_on(SimulatedClock::shared());
    let server = Hanging::default();
    let client = server.clients(&kit).for_controller("busy", 1);
    hang(&client, 1);
    kit.clock.sleep(Duration::from_secs(30)).await;
    // Gets the permit after 10 s, and no answer: 30 s are left.
    let start = kit.clock.monotonic();
    let error = patch(&client, "hang").await.unwrap_err();
    assert_eq!(kit.clock.monotonic() - start, WRITE_TIMEOUT, "{error:?}");
    assert_eq!(server.under_way(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_permit_fails_unsent_and_says_so() {
    let kit = kit_on(SimulatedClock::shared());
    let server = Hanging::default();
    let client = server.clients(&kit).for_controller("busy", 1);
    hang(&client, 1);
    settle().await;
    let start = kit.clock.monotonic();
    let error = patch(&client, "a").await.unwrap_err();
    assert_eq!(kit.clock.monotonic() - start, PERMIT_TIMEOUT);
    assert!(
        Chain(&error)
            .to_string()
            .ends_with("not sent: none of the 1 request permits of busy became free within 15s"),
        "{}",
        Chain(&error)
    );
    let counts =
        ["ok", "conflict", "rejected", "error", "unknown", "fenced"].map(|outcome| counted(&kit, "patch", outcome));
    assert_eq!(counts, [0; 6], "what was not sent is no write");
}

#[tokio::test(start_paused = true)]
async fn one_controller_cannot_take_the_permits_of_another() {
    let kit = kit_on(SimulatedClock::shared());
    let server = Hanging::default();
    let clients = server.clients(&kit);
    hang(&clients.for_controller("greedy", 1_000), 1_000);
    settle().await;
    assert_eq!(server.under_way(), MOST_IN_FLIGHT);
    let start = kit.clock.monotonic();
    patch(&clients.for_controller("modest", 1), "a").await.unwrap();
    assert_eq!(kit.clock.monotonic(), start);
}

#[tokio::test(start_paused = true)]
async fn all_controllers_together_stay_within_the_limit_of_the_process() {
    let kit = kit_on(SimulatedClock::shared());
    let server = Hanging::default();
    let clients = server.clients(&kit);
    for _ in 0..3 {
        hang(&clients.for_controller("greedy", MOST_IN_FLIGHT), 100);
    }
    settle().await;
    assert_eq!(server.under_way(), IN_FLIGHT);
}

#[tokio::test(start_paused = true)]
async fn events_and_writes_do_not_wait_for_each_other() {
    for events_first in [true, false] {
        let kit = kit_on(SimulatedClock::shared());
        let server = Hanging::default();
        let clients = server.clients(&kit);
        let controllers = ["a", "b"].map(|name| clients.for_controller(name, IN_FLIGHT / 2));
        let events = clients.for_events();
        let start = kit.clock.monotonic();
        if events_first {
            hang(&events, 1_000);
            settle().await;
            assert_eq!(server.under_way(), EVENTS_IN_FLIGHT);
            let writes = controllers
                .iter()
                .flat_map(|client| (0..IN_FLIGHT / 2).map(|_| patch(client, "a")));
            assert!(join_all(writes).await.iter().all(Result::is_ok));
        } else {
            for client in &controllers {
                hang(client, 1_000);
            }
            settle().await;
            assert_eq!(server.under_way(), IN_FLIGHT);
            patch(&events, "a").await.unwrap();
        }
        assert_eq!(kit.clock.monotonic(), start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_is_followed_for_as_long_as_it_lasts() {
    let kit = kit_on(SimulatedClock::shared());
    let (lines, body) = unbounded::<Bytes>();
    let body = Mutex::new(Some(body));
    let answer = move |_: http::Request<Bytes>| {
        let lines = body.lock().unwrap().take().unwrap();
        let body = StreamBody::new(lines.map(|line| Ok::<_, BoxError>(Frame::data(line)))).boxed_unsync();
        std::future::ready(Ok(http::Response::new(body)))
    };
    let answer = Arc::new(answer);
    let client = by_hand::client(
        move |request| answer(request),
        &Leadership::never(Arc::clone(&kit.clock)),
        &kit,
    );
    let params = LogParams {
        follow: true,
        ..LogParams::default()
    };
    lines.unbounded_send("one\n".into()).unwrap();
    let log = Api::<Pod>::default_namespaced(client)
        .log_stream("a", &params)
        .await
        .unwrap();
    let mut log = log.lines();
    assert_eq!(log.next().await.unwrap().unwrap(), "one");
    kit.clock.sleep(Duration::from_hours(1)).await;
    lines.unbounded_send("two\n".into()).unwrap();
    drop(lines);
    assert_eq!(log.next().await.unwrap().unwrap(), "two");
    assert!(log.next().await.is_none());
}
