//! The requests that are retried, when, and those that never are.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tidewaiter_cloud::client::{Client, ClientError, ETag, Fetched, Listing, Path, Request};
use tidewaiter_cloud::models::ClusterLabel;
use tidewaiter_kit::ManualClock;

use crate::clock::Hurried;
use crate::world::{LIMIT, Reply, Server, cluster, failure, labels, ok, settings, whole};

/// Answers `faults` one after the other, then an empty list.
async fn then_well(faults: Vec<String>) -> Server {
    Server::start(move |number, _| Reply::Bytes(faults.get(number).cloned().unwrap_or_else(|| ok("[]")).into_bytes()))
        .await
}

fn seconds(range: std::ops::RangeInclusive<f64>, waited: Duration) -> bool {
    range.contains(&waited.as_secs_f64())
}

#[tokio::test]
async fn what_may_work_later_is_repeated_with_growing_waits() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[".to_owned();
    let server = then_well(vec![failure("503 Service Unavailable", ""), String::new(), cut]).await;
    let clock = Hurried::new(LIMIT);
    assert_eq!(labels(&server.client(clock.shared())).await.unwrap(), 0);
    let slept = clock.slept();
    assert_eq!((server.seen().len(), slept.len()), (4, 3));
    for (waited, most) in slept.into_iter().zip([0.5, 1.0, 2.0]) {
        assert!(seconds(most / 2.0..=most, waited), "{waited:?}");
    }
}

#[tokio::test]
async fn a_server_that_says_when_is_left_alone_until_then() {
    for (header, least) in [
        ("retry-after: 20\r\n", 20.0),
        ("retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 37.0),
        // A date that has passed, and what is no time at all, say nothing.
        ("retry-after: Sun, 06 Nov 1994 08:48:00 GMT\r\n", 0.0),
        ("retry-after: soon\r\n", 0.0),
    ] {
        let server = then_well(vec![failure("429 Too Many Requests", header)]).await;
        let clock = Hurried::new(LIMIT);
        assert_eq!(labels(&server.client(clock.shared())).await.unwrap(), 0);
        let slept = clock.slept();
        assert!(
            slept.len() == 1 && seconds(least..=least + 0.5, slept[0]),
            "{header}: {slept:?}"
        );
    }
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_begun_and_the_caller_is_told_of_it() {
    let server = then_well(vec![failure("503 Service Unavailable", "retry-after: 86400\r\n")]).await;
    let clock = Hurried::new(LIMIT);
    let (error, _) = labels(&server.client(clock.shared())).await.unwrap_err();
    let ClientError::Unavailable { retry_after, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(retry_after, Some(Duration::from_mins(5)), "it is bounded");
    assert!(clock.slept().is_empty());
}

#[tokio::test]
async fn it_gives_up_at_its_deadline() {
    let server = Server::always(failure("500 Internal Server Error", "")).await;
    let clock = Hurried::new(LIMIT);
    labels(&server.client(clock.shared())).await.unwrap_err();
    let slept: Duration = clock.slept().iter().sum();
    assert!(seconds(70.0..=90.0, slept), "{slept:?}");
}

#[tokio::test]
async fn an_attempt_without_an_answer_ends() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let mut settings = server.settings();
    settings.deadline = LIMIT;
    let clock = ManualClock::default();
    let client = Client::new(&settings, clock.shared()).unwrap();
    let (outcome, ()) = futures::join!(labels(&client), async {
        server.requests(1).await;
        clock.sleeping(1).await;
        clock.advance(LIMIT);
    });
    let (error, said) = outcome.unwrap_err();
    assert!(
        matches!(error, ClientError::Unavailable { .. }) && said.contains("no answer within 7s"),
        "{said}"
    );
}

#[tokio::test]
async fn a_read_on_a_connection_that_hangs_is_sent_once_more_on_another() {
    const HEDGE: Duration = Duration::from_secs(2);
    let server = Server::start(|number, _| match number {
        0 => Reply::Silence,
        _ => Reply::Bytes(ok("[]").into_bytes()),
    })
    .await;
    let mut settings = server.settings();
    settings.hedge_after = HEDGE;
    let clock = ManualClock::default();
    let client = Client::new(&settings, clock.shared()).unwrap();
    let (count, ()) = futures::join!(labels(&client), async {
        server.requests(1).await;
        clock.sleeping(2).await;
        clock.advance(HEDGE);
    });
    assert_eq!((count.unwrap(), server.seen().len()), (0, 2));
}

/// The reads of a slow cloud are sent once more one after the other: each waits for the second response of the one
/// before it.
#[tokio::test]
async fn one_read_at_a_time_is_sent_once_more() {
    const HEDGE: Duration = Duration::from_secs(2);
    let (sent, under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((sent, under_way, most));
    let seen = Arc::clone(&counts);
    let cloud = move |_| {
        let counts = Arc::clone(&counts);
        async move {
            let (sent, under_way, most) = &*counts;
            if sent.fetch_add(1, SeqCst) < 3 {
                std::future::pending::<()>().await;
            }
            most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            under_way.fetch_sub(1, SeqCst);
            Ok(http::Response::new("[]").into())
        }
    };
    let mut settings = settings("http://127.0.0.1:1");
    settings.hedge_after = HEDGE;
    let clock = ManualClock::default();
    let client = Client::new(&settings, clock.shared()).unwrap().over(cloud);
    let (a, b, c, ()) = futures::join!(labels(&client), labels(&client), labels(&client), async {
        clock.sleeping(6).await;
        clock.advance(HEDGE);
    });
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [0, 0, 0]);
    let (sent, _, most) = &*seen;
    assert_eq!((sent.load(SeqCst), most.load(SeqCst)), (6, 1));
}

#[tokio::test]
async fn a_write_is_not_sent_again_while_its_response_may_come() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let mut settings = server.settings();
    settings.hedge_after = Duration::from_secs(2);
    settings.deadline = LIMIT;
    let clock = ManualClock::default();
    let client = Client::new(&settings, clock.shared()).unwrap();
    let put = Request::new(Method::PUT, cluster().path()).json(json!({}));
    let (outcome, ()) = futures::join!(client.request(&put), async {
        server.requests(1).await;
        clock.sleeping(1).await;
        clock.advance(LIMIT);
    });
    outcome.unwrap_err();
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unavailable() {
    let closed = tidewaiter_testkit::free_port();
    let client = Client::new(
        &settings(&format!("http://127.0.0.1:{closed}")),
        Hurried::new(LIMIT).shared(),
    )
    .unwrap();
    let (error, said) = labels(&client).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unavailable { .. }) && said.contains("cannot connect"),
        "{said}"
    );
}

#[tokio::test]
async fn what_the_server_has_judged_is_not_repeated() {
    for status in [
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "409 Conflict",
        "422 Unprocessable Entity",
        "501 Not Implemented",
    ] {
        let server = then_well(vec![failure(status, "")]).await;
        labels(&server.client(Hurried::new(LIMIT).shared())).await.unwrap_err();
        assert_eq!(server.seen().len(), 1, "{status}");
    }
    for page in [ok("<html>"), whole("404 Not Found", "", "<html>")] {
        let server = then_well(vec![page]).await;
        labels(&server.client(Hurried::new(LIMIT).shared())).await.unwrap_err();
        assert_eq!(server.seen().len(), 1, "a page is not repeated");
    }
}

#[tokio::test]
async fn a_post_is_repeated_under_one_key_and_one_that_must_not_be_is_sent_once() {
    let server = then_well(vec![String::new(), failure("503 Service Unavailable", "")]).await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let mut post = Request::new(Method::POST, Path::new(["account", "tokens"])).json(json!({"name": "a"}));
    client.request(&post).await.unwrap();
    client.request(&post).await.unwrap();
    let keys: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys.len(), 4);
    assert!(
        keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3],
        "{keys:?}"
    );

    let server = then_well(vec![failure("503 Service Unavailable", "")]).await;
    post.once = true;
    server
        .client(Hurried::new(LIMIT).shared())
        .request(&post)
        .await
        .unwrap_err();
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].header("idempotency-key"), None);
}

#[tokio::test]
async fn a_write_says_what_it_was_made_from() {
    let server = Server::always(ok("[]")).await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let found: Listing<ClusterLabel> = client.list(cluster().labels(), None).await.unwrap();
    let Fetched::Complete { etag, .. } = found else {
        panic!("nothing was known");
    };
    let mut put = Request::new(Method::PUT, cluster().path()).json(json!({}));
    put.if_match = etag;
    client.request(&put).await.unwrap();
    assert_eq!(server.seen()[1].header("if-match"), Some("\"7\""));
    assert_eq!(server.seen()[1].header("idempotency-key"), None);
    let _: Option<ETag> = put.if_match;
}
