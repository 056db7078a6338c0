//! The stream of changes, on a clock that the test moves.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use tidewaiter_cloud::client::Wake;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::ManualClock;
use tidewaiter_testkit::eventually;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::world::{LABEL, LIMIT, LONG, Reply, Server, cluster, failure, labels, ok, whole};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const INTERVAL: Duration = Duration::from_secs(30);

type Wakes = Pin<Box<dyn Stream<Item = Wake> + Send>>;

/// The answer to one connection: a stream that the test writes, bytes, or nothing.
enum Connection {
    Live(UnboundedReceiver<String>),
    Bytes(String),
    Silence,
}

/// A connection, and what writes into it.
fn live() -> (UnboundedSender<String>, Connection) {
    let (sender, receiver) = unbounded_channel();
    sender.send(HEAD.to_owned()).unwrap();
    (sender, Connection::Live(receiver))
}

fn bytes(answer: String) -> Connection {
    Connection::Bytes(answer)
}

/// A client that watches a server which answers with `connections`, then with silence.
async fn watching(connections: Vec<Connection>) -> (Server, ManualClock, Wakes) {
    reporting(connections, |_| ()).await
}

/// A client as in [`watching`], which reports to `connected` whether it is connected.
async fn reporting(
    connections: Vec<Connection>,
    connected: impl Fn(bool) + Send + 'static,
) -> (Server, ManualClock, Wakes) {
    let connections = Mutex::new(connections.into_iter());
    let server = Server::start(move |_, _| match connections.lock().unwrap().next() {
        Some(Connection::Live(receiver)) => Reply::Live(receiver),
        Some(Connection::Bytes(answer)) => Reply::Bytes(answer.into_bytes()),
        Some(Connection::Silence) | None => Reply::Silence,
    })
    .await;
    let clock = ManualClock::default();
    let wakes = server.client(clock.shared()).watch(cluster(), connected).boxed();
    (server, clock, wakes)
}

fn event(kind: &str, id: &str, data: &str) -> String {
    format!("event: {kind}\nid: {id}\ndata: {data}\n\n")
}

fn kinds(kinds: &[Kind]) -> Wake {
    Wake::Changed(kinds.iter().copied().collect::<BTreeSet<_>>())
}

/// Moves the clock in small steps until there is a wake: says it, and how long that took. All of the test runs in one
/// thread, so what was sent has been read after these turns.
async fn next(wakes: &mut Wakes, clock: &ManualClock) -> (Wake, Duration) {
    const STEP: Duration = Duration::from_millis(500);
    for steps in 0..2_400 {
        if let Some(wake) = turns(wakes).await {
            return (wake, STEP * steps);
        }
        clock.advance(STEP);
    }
    panic!("no wake in twenty minutes");
}

/// Lets everything run that can run on a clock that stands still.
async fn turns(wakes: &mut Wakes) -> Option<Wake> {
    for _ in 0..200 {
        if let Some(wake) = wakes.next().now_or_never() {
            return wake;
        }
        tokio::task::yield_now().await;
    }
    None
}

/// The next wake without the clock moving.
async fn now(wakes: &mut Wakes) -> Wake {
    tokio::time::timeout(LONG, wakes.next()).await.unwrap().unwrap()
}

/// That the stream says nothing when the clock has moved on by `time`.
async fn quiet(wakes: &mut Wakes, clock: &ManualClock, time: Duration) {
    clock.advance(time);
    assert_eq!(turns(wakes).await, None);
}

#[tokio::test]
async fn changes_wake_for_their_kinds_after_a_first_wake_for_everything() {
    let (sender, connection) = live();
    let (server, _clock, mut wakes) = watching(vec![connection]).await;
    sender.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    sender
        .send(event("change", "e-2", r#"{"kinds":["users","node-pools"]}"#))
        .unwrap();
    assert_eq!(now(&mut wakes).await, kinds(&[Kind::User, Kind::NodePool]));
    // What is newer than this client is none of its business; what cannot be read may be anything.
    sender.send(event("change", "e-3", r#"{"kinds":["moons"]}"#)).unwrap();
    sender.send(event("weather", "e-3", "rain")).unwrap();
    sender
        .send(event("change", "e-4", r#"{"kinds":["moons","roles"]}"#))
        .unwrap();
    assert_eq!(now(&mut wakes).await, kinds(&[Kind::Role]));
    for data in ["", "[]", "{}", r#"{"kinds":[7]}"#, r#"{"kinds":["#] {
        sender.send(event("change", "e-5", data)).unwrap();
        if !data.is_empty() {
            assert_eq!(now(&mut wakes).await, Wake::Everything, "{data}");
        }
    }
    sender.send(event("reset", "f-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    let seen = server.seen();
    assert!(
        seen.len() == 1 && seen[0].line().ends_with("/events HTTP/1.1"),
        "{seen:?}"
    );
    assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
    assert_eq!(seen[0].header("last-event-id"), None);
}

#[tokio::test]
async fn a_broken_connection_goes_on_from_its_cursor() {
    let (first, one) = live();
    let (second, two) = live();
    let (server, clock, mut wakes) = watching(vec![one, two]).await;
    first.send(event("hello", "e-7", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    drop(first);
    second.send(event("change", "e-8", r#"{"kinds":["labels"]}"#)).unwrap();
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(
        wake,
        kinds(&[Kind::ClusterLabel]),
        "nothing else: the cursor misses nothing"
    );
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    assert_eq!(server.seen()[1].header("last-event-id"), Some("e-7"));
}

#[tokio::test]
async fn it_reports_whether_it_is_connected() {
    let (first, one) = live();
    let (second, two) = live();
    let reports: Arc<Mutex<Vec<bool>>> = Arc::default();
    let shared = Arc::clone(&reports);
    let (_server, clock, mut wakes) = reporting(vec![one, two], move |open| shared.lock().unwrap().push(open)).await;
    assert_eq!(reports.lock().unwrap().pop(), None);
    first.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    assert_eq!(*reports.lock().unwrap(), [true]);
    drop(first);
    second.send(event("reset", "f-1", "{}")).unwrap();
    assert_eq!(next(&mut wakes, &clock).await.0, Wake::Everything);
    assert_eq!(*reports.lock().unwrap(), [true, false, true]);
}

#[tokio::test]
async fn a_cursor_that_is_not_known_any_more_wakes_for_everything() {
    for kind in ["reset", "hello"] {
        let (first, one) = live();
        let (second, two) = live();
        let (server, clock, mut wakes) = watching(vec![one, two]).await;
        first.send(event("hello", "e-7", "{}")).unwrap();
        assert_eq!(now(&mut wakes).await, Wake::Everything);
        drop(first);
        second.send(event(kind, "f-1", "{}")).unwrap();
        assert_eq!(next(&mut wakes, &clock).await.0, Wake::Everything, "{kind}");
        drop(second);
        assert!(wakes.next().now_or_never().is_none());
        clock.advance(Duration::from_secs(3));
        let seen = eventually("a third connection", LONG, async || {
            assert_eq!(wakes.next().now_or_never(), None);
            clock.advance(Duration::from_millis(100));
            Some(server.seen()).filter(|seen| seen.len() == 3).ok_or("none")
        })
        .await;
        assert_eq!(seen[2].header("last-event-id"), Some("f-1"));
    }
}

#[tokio::test]
async fn a_gap_without_a_cursor_wakes_for_everything() {
    let (first, one) = live();
    let (second, two) = live();
    let (server, clock, mut wakes) = watching(vec![one, two]).await;
    first
        .send("event: change\ndata: {\"kinds\":[\"users\"]}\n\n".to_owned())
        .unwrap();
    assert_eq!(
        now(&mut wakes).await,
        Wake::Everything,
        "what came before it is not known"
    );
    first
        .send("event: change\ndata: {\"kinds\":[\"users\"]}\n\n".to_owned())
        .unwrap();
    assert_eq!(now(&mut wakes).await, kinds(&[Kind::User]));
    drop(first);
    second
        .send("event: change\ndata: {\"kinds\":[\"users\"]}\n\n".to_owned())
        .unwrap();
    assert_eq!(next(&mut wakes, &clock).await.0, Wake::Everything);
    assert_eq!(server.seen()[1].header("last-event-id"), None);
}

#[tokio::test]
async fn heartbeats_keep_a_stream_alive_and_silence_ends_it() {
    let (first, one) = live();
    let (server, clock, mut wakes) = watching(vec![one]).await;
    first.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    for _ in 0..10 {
        quiet(&mut wakes, &clock, Duration::from_secs(30)).await;
        first.send(":\n\n".to_owned()).unwrap();
        quiet(&mut wakes, &clock, Duration::ZERO).await;
    }
    assert_eq!(server.seen().len(), 1, "ten minutes on one connection, without a poll");
    clock.advance(Duration::from_secs(45));
    eventually("another connection", LONG, async || {
        assert!(!matches!(wakes.next().now_or_never(), Some(Some(Wake::Changed(_)))));
        clock.advance(Duration::from_millis(100));
        if server.seen().len() == 2 { Ok(()) } else { Err("none") }
    })
    .await;
    assert_eq!(server.seen()[1].header("last-event-id"), Some("e-1"));
}

#[tokio::test]
async fn a_stream_that_names_its_heartbeat_is_dead_after_two_that_are_missing() {
    let (first, receiver) = unbounded_channel();
    let head = HEAD.replace("\r\n\r\n", "\r\ntidewaiter-heartbeat: 5\r\n\r\n");
    first.send(head).unwrap();
    let (second, two) = live();
    let (server, clock, mut wakes) = watching(vec![Connection::Live(receiver), Connection::Silence, two]).await;
    first.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    for _ in 0..10 {
        quiet(&mut wakes, &clock, Duration::from_secs(6)).await;
        first.send(":\n\n".to_owned()).unwrap();
        quiet(&mut wakes, &clock, Duration::ZERO).await;
    }
    // The next connection is silent, too: what changed meanwhile is listed without it.
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(wake, Wake::Everything);
    assert!(waited <= Duration::from_secs(16), "{waited:?}");
    second.send(event("change", "e-2", r#"{"kinds":["users"]}"#)).unwrap();
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(wake, kinds(&[Kind::User]));
    assert!(waited <= Duration::from_secs(16), "{waited:?}");
    assert_eq!(server.seen()[2].header("last-event-id"), Some("e-1"));
}

#[tokio::test]
async fn without_a_stream_everything_is_due_each_interval() {
    for answer in [
        failure("503 Service Unavailable", ""),
        ok("[]"),
        whole("302 Found", "location: /x\r\n", ""),
    ] {
        let answers = (0..50).map(|_| bytes(answer.clone())).collect();
        let (server, clock, mut wakes) = watching(answers).await;
        assert_eq!(now(&mut wakes).await, Wake::Everything, "at once");
        for _ in 0..4 {
            let (wake, waited) = next(&mut wakes, &clock).await;
            assert_eq!(wake, Wake::Everything);
            let about = INTERVAL.mul_f64(0.9)..=INTERVAL.mul_f64(1.1) + Duration::from_secs(1);
            assert!(about.contains(&waited), "{waited:?}");
        }
        assert!(server.seen().len() > 2, "it is tried again");
    }
}

#[tokio::test]
async fn a_stream_that_is_lost_and_refused_is_polled_soon_and_then_each_interval() {
    let (first, one) = live();
    let refused = || bytes(failure("503 Service Unavailable", ""));
    let (_server, clock, mut wakes) = watching([one].into_iter().chain((0..50).map(|_| refused())).collect()).await;
    first.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    drop(first);
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(wake, Wake::Everything);
    assert!(waited <= Duration::from_secs(7), "{waited:?}");
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(wake, Wake::Everything);
    assert!(waited >= INTERVAL.mul_f64(0.9), "{waited:?}");
}

#[tokio::test]
async fn a_server_that_has_no_stream_is_polled_and_asked_again_after_ten_minutes() {
    for status in ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"] {
        let (sender, two) = live();
        let (server, clock, mut wakes) = watching(vec![bytes(whole(status, "", "")), two]).await;
        assert_eq!(now(&mut wakes).await, Wake::Everything, "{status}");
        let mut waited = Duration::ZERO;
        while waited < Duration::from_mins(9) {
            let (wake, after) = next(&mut wakes, &clock).await;
            assert_eq!(wake, Wake::Everything);
            waited += after;
        }
        assert_eq!(server.seen().len(), 1, "{status}");
        sender.send(event("hello", "e-1", "{}")).unwrap();
        sender.send(event("change", "e-2", r#"{"kinds":["users"]}"#)).unwrap();
        while next(&mut wakes, &clock).await.0 != kinds(&[Kind::User]) {}
        assert_eq!(server.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_connection_that_hangs_does_not_hold_up_the_polls() {
    let (sender, two) = live();
    let (server, clock, mut wakes) = watching(vec![bytes(String::new())]).await;
    drop((sender, two));
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    // From here on the server says nothing, so each connection ends by its limit.
    for _ in 0..3 {
        let (wake, waited) = next(&mut wakes, &clock).await;
        assert_eq!(wake, Wake::Everything);
        assert!(waited <= INTERVAL.mul_f64(1.1) + Duration::from_secs(1), "{waited:?}");
    }
    assert!(server.seen().len() >= 3, "limit {LIMIT:?}");
}

#[tokio::test]
async fn a_server_that_accepts_and_sends_nothing_does_not_hold_up_the_polls() {
    let (senders, connections): (Vec<_>, Vec<_>) = (0..20).map(|_| live()).unzip();
    let (server, clock, mut wakes) = watching(connections).await;
    let (wake, waited) = next(&mut wakes, &clock).await;
    assert_eq!(wake, Wake::Everything);
    // Only then is the first connection known to be silent.
    assert!(waited <= Duration::from_secs(46), "{waited:?}");
    for _ in 0..8 {
        let (wake, waited) = next(&mut wakes, &clock).await;
        assert_eq!(wake, Wake::Everything);
        assert!(waited <= INTERVAL.mul_f64(1.1) + Duration::from_secs(1), "{waited:?}");
    }
    assert!(server.seen().len() >= 3, "it is tried again");
    drop(senders);
}

#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is() {
    let answer = failure("429 Too Many Requests", "retry-after: 120\r\n");
    let (server, clock, mut wakes) = watching(vec![bytes(answer)]).await;
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(80) {
        waited += next(&mut wakes, &clock).await.1;
    }
    assert_eq!(server.seen().len(), 1);
}

/// A stream that ended long ago and is refused since, beside lists that succeed.
async fn refused_for_minutes(
    answer: String,
    again: Connection,
) -> (Server, tidewaiter_cloud::client::Client, ManualClock, Wakes) {
    let (sender, one) = live();
    let mut refusals: Vec<Connection> = (0..6).map(|_| bytes(answer.clone())).collect();
    refusals.insert(0, one);
    refusals.push(again);
    let connections = Mutex::new(refusals.into_iter());
    let server = Server::start(move |_, seen| {
        if !seen.line().contains("/events ") {
            return Reply::Bytes(ok(&format!("[{LABEL}]")).into_bytes());
        }
        match connections.lock().unwrap().next() {
            Some(Connection::Live(receiver)) => Reply::Live(receiver),
            Some(Connection::Bytes(answer)) => Reply::Bytes(answer.into_bytes()),
            Some(Connection::Silence) => Reply::Silence,
            None => Reply::Bytes(answer.clone().into_bytes()),
        }
    })
    .await;
    let clock = ManualClock::default();
    let client = server.client(clock.shared());
    let mut wakes = client.watch(cluster(), |_| ()).boxed();
    sender.send(event("hello", "e-1", "{}")).unwrap();
    assert_eq!(now(&mut wakes).await, Wake::Everything);
    drop(sender);
    // One connection that was alive, and six that were refused: the next delay is up to a minute.
    eventually("six refusals", LONG, async || {
        drop(turns(&mut wakes).await);
        clock.advance(Duration::from_secs(10));
        let seen = server.seen().len();
        if seen == 7 { Ok(()) } else { Err(seen) }
    })
    .await;
    while turns(&mut wakes).await.is_some() {}
    (server, client, clock, wakes)
}

#[tokio::test]
async fn the_first_list_after_an_outage_opens_the_stream_at_once() {
    let (sender, again) = live();
    let refusal = failure("503 Service Unavailable", "");
    let (_server, client, _clock, mut wakes) = refused_for_minutes(refusal, again).await;
    labels(&client).await.unwrap();
    sender.send(event("change", "e-2", r#"{"kinds":["labels"]}"#)).unwrap();
    assert_eq!(now(&mut wakes).await, kinds(&[Kind::ClusterLabel]));
}

#[tokio::test]
async fn lists_that_succeed_do_not_drive_a_stream_that_fails_for_ever() {
    for status in ["500 Internal Server Error", "503 Service Unavailable"] {
        let refusal = failure(status, "");
        let (server, client, _clock, mut wakes) = refused_for_minutes(refusal.clone(), bytes(refusal)).await;
        let streams = || {
            server
                .seen()
                .iter()
                .filter(|seen| seen.line().contains("/events "))
                .count()
        };
        let before = streams();
        for _ in 0..10 {
            labels(&client).await.unwrap();
            drop(turns(&mut wakes).await);
        }
        assert_eq!(streams() - before, 1, "{status}");
    }
}

/// A server that has no stream answers everything else.
#[tokio::test]
async fn a_pause_that_the_server_asks_for_ends_once_when_it_answers_another_request() {
    for (status, headers, connections_in_all) in [
        ("429 Too Many Requests", "retry-after: 240\r\n", 2),
        ("404 Not Found", "", 1),
    ] {
        let refusal = failure(status, headers);
        let connections = Mutex::new(vec![bytes(refusal)].into_iter());
        let server = Server::start(move |_, seen| {
            if !seen.line().contains("/events ") {
                return Reply::Bytes(ok(&format!("[{LABEL}]")).into_bytes());
            }
            match connections.lock().unwrap().next() {
                Some(Connection::Bytes(answer)) => Reply::Bytes(answer.into_bytes()),
                _ => Reply::Bytes(failure("429 Too Many Requests", "retry-after: 240\r\n").into_bytes()),
            }
        })
        .await;
        let clock = ManualClock::default();
        let client = server.client(clock.shared());
        let mut wakes = client.watch(cluster(), |_| ()).boxed();
        assert_eq!(now(&mut wakes).await, Wake::Everything);
        for _ in 0..5 {
            labels(&client).await.unwrap();
            drop(turns(&mut wakes).await);
        }
        assert_eq!(
            server
                .seen()
                .iter()
                .filter(|seen| seen.line().contains("/events "))
                .count(),
            connections_in_all,
            "{status}"
        );
    }
}
