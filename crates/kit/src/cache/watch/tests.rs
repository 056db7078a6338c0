use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::BoxError;

use crate::cache::{Cache, Change};
use crate::client::by_hand::{self, Answer};
use crate::leader::Leadership;
use crate::tasks::{TaskEnded, Tasks};
use crate::testing::{TokioClock, beside, kit_on, settle};
use crate::{Clock as _, Kit, SystemClock, Trigger};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The fault with which the next request of a kind is answered, once.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Status(u16),
    /// 200 and a page that is none.
    Html,
    /// 429, with a header that says after how many seconds to retry.
    Later(u32),
    /// The connection breaks.
    Broken,
}

#[derive(Default)]
struct Server {
    nodes: Vec<Value>,
    version: u64,
    lists: VecDeque<Fault>,
    watches: VecDeque<Fault>,
    /// The fault of every request.
    always: Option<Fault>,
    /// The query of each request, and the time since the start.
    asked: Vec<(Duration, String)>,
    watching: Vec<UnboundedSender<Bytes>>,
}

/// A line of a watch, with the type before the object, as an API server writes it.
fn event(what: &str, object: &Value) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

impl Server {
    fn apply(&mut self, name: &str) {
        self.version += 1;
        let node = node(name, self.version);
        self.nodes.retain(|other| other["metadata"]["name"] != name);
        self.nodes.push(node.clone());
        self.tell("MODIFIED", &node);
    }

    /// Gone without an event.
    fn lose(&mut self, name: &str) {
        self.version += 1;
        self.nodes.retain(|other| other["metadata"]["name"] != name);
    }

    fn tell(&mut self, what: &str, object: &Value) {
        let line = event(what, object);
        self.watching
            .retain(|watch| watch.unbounded_send(line.clone().into()).is_ok());
    }

    /// Resets the connection of each watch.
    fn cut(&mut self) {
        for watch in self.watching.drain(..) {
            watch.unbounded_send(Bytes::new()).unwrap();
        }
    }

    fn asked(&self, what: &str) -> usize {
        self.asked.iter().filter(|(_, query)| query.contains(what)).count()
    }

    /// As an API server: pages of `limit`, the continue token being where the next page begins.
    fn page(&self, query: &str) -> Value {
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let limit = value("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let from: usize = value("continue").map_or(0, |from| from.parse().unwrap());
        let items: Vec<&Value> = self.nodes.iter().skip(from).take(limit).collect();
        let rest = from + items.len() < self.nodes.len();
        let next = if rest {
            (from + items.len()).to_string()
        } else {
            String::new()
        };
        let metadata = json!({"resourceVersion": self.version.to_string(), "continue": next});
        json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items})
    }
}

fn node(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"})
}

fn whole(code: u16, body: String) -> Answer {
    let body = Full::new(Bytes::from(body)).map_err(Into::into).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn handle(server: &Mutex<Server>, clock: &TokioClock, request: &Request<Bytes>) -> Result<Answer, BoxError> {
    let mut server = server.lock().unwrap();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let watch = query.contains("watch=true");
    server.asked.push((clock.elapsed(), query.clone()));
    let fault = if watch {
        server.watches.pop_front()
    } else {
        server.lists.pop_front()
    };
    match fault.or(server.always) {
        Some(Fault::Status(code)) => Ok(whole(code, status(code).to_string())),
        Some(Fault::Html) => Ok(whole(200, "<html>Welcome</html>".to_owned())),
        Some(Fault::Later(seconds)) => {
            let mut answer = whole(429, "Too many requests, please try again later.\n".to_owned());
            answer.headers_mut().insert("Retry-After", seconds.into());
            Ok(answer)
        }
        Some(Fault::Broken) => Err("connection refused".into()),
        None if watch => {
            let (sender, lines) = unbounded();
            server.watching.push(sender);
            // An empty line is a connection that is reset.
            let frames = lines.map(|line: Bytes| {
                let reset = line.is_empty().then(|| BoxError::from("connection reset by peer"));
                reset.map_or(Ok(Frame::data(line)), Err)
            });
            Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
        }
        None => Ok(whole(200, server.page(&query).to_string())),
    }
}

struct World {
    server: Arc<Mutex<Server>>,
    cache: Cache<Node>,
    told: Arc<Mutex<Vec<String>>>,
    kit: Kit,
    shutdown: CancellationToken,
    process: JoinHandle<Result<(), TaskEnded>>,
}

/// A cache of the Nodes of an API server in memory.
fn world(prepare: impl FnOnce(&mut Server)) -> World {
    let server = Arc::new(Mutex::new(Server::default()));
    prepare(&mut server.lock().unwrap());
    let clock = TokioClock::new();
    let kit = kit_on(Arc::new(clock.clone()));
    let state = Arc::clone(&server);
    let answer = move |request| std::future::ready(handle(&state, &clock, &request));
    let client = by_hand::client(answer, &Leadership::new(Arc::clone(&kit.clock)), &kit);
    let told = Arc::new(Mutex::new(Vec::new()));
    let subscriber = Arc::clone(&told);
    let mut tasks = Tasks::new(Arc::clone(&kit.clock));
    let cache = Cache::<Node>::all(client).start(&mut tasks, &kit);
    cache.notify(Trigger::calls(move |change: &Change<'_, Node>| {
        let word = if change.after.is_some() { "+" } else { "-" };
        subscriber
            .lock()
            .unwrap()
            .push(format!("{word}{}", change.object().name_any()));
    }));
    let shutdown = tasks.shutdown_token();
    let process = beside(tasks.run_until(std::future::pending()));
    World {
        server,
        cache,
        told,
        kit,
        shutdown,
        process,
    }
}

impl World {
    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    fn told(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap());
        told.sort_unstable();
        told
    }

    fn ready(&self) -> bool {
        self.kit.checks.report().0
    }

    fn errors(&self) -> u64 {
        self.kit.metrics.watch_errors.with_label_values(&["Node"]).get()
    }
}

async fn pass(time: Duration) {
    SystemClock.sleep(time).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn lists_in_pages_and_then_watches() {
    let world = world(|server| (0..250).for_each(|n| server.apply(&format!("n{n:03}"))));
    assert!(!world.ready());
    let (_, report) = world.kit.checks.report();
    assert!(
        report.contains("[-]cache/node failed: the first list is not complete"),
        "{report}"
    );
    world.cache.synced().await.unwrap();
    settle().await;
    assert!(world.ready());
    assert_eq!((world.cache.len(), world.told().len()), (250, 250));
    assert_eq!(world.server().asked("limit=50"), 5);
    assert_eq!(world.server().asked("watch=true"), 1);
    world.server().apply("n007");
    settle().await;
    assert_eq!(world.told(), ["+n007"]);
    assert_eq!(world.errors(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_closed_goes_on_where_it_was() {
    let world = world(|server| server.apply("a"));
    pass(20 * SECOND).await;
    world.told();
    for turn in 0..5 {
        world.server().watching.clear();
        world.server().apply(&format!("missed{turn}"));
        pass(20 * SECOND).await;
    }
    let server = world.server();
    assert_eq!(server.asked("limit=50"), 1, "{:?}", server.asked);
    assert!(
        server.asked.last().unwrap().1.ends_with("resourceVersion=1"),
        "{:?}",
        server.asked
    );
    drop(server);
    assert!(!world.process.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_stream_that_is_gone_is_found_again_by_a_list() {
    let gone = event("ERROR", &status(410));
    let odd = event("ERROR", &status(400));
    let junk = event("MODIFIED", &json!({"metadata": {"name": 7}}));
    for event in [Some(gone), Some(odd), Some(junk), None] {
        let world = world(|server| ["a", "b"].iter().for_each(|name| server.apply(name)));
        pass(5 * SECOND).await;
        world.told();
        {
            let mut server = world.server();
            server.lose("a");
            server.apply("c");
            let watching = std::mem::take(&mut server.watching);
            match &event {
                Some(event) => watching
                    .iter()
                    .for_each(|watch| watch.unbounded_send(event.clone().into()).unwrap()),
                // The server says so when the watch is begun, and would for ever.
                None => server.watches.extend([Fault::Status(410); 3]),
            }
        }
        pass(10 * SECOND).await;
        assert_eq!(world.cache.len(), 2, "{event:?}");
        assert!(world.told().iter().any(|told| told == "-a"), "{event:?}");
        assert!(
            world.errors() >= 1 && world.server().asked("limit=50") >= 2,
            "{event:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_at_a_bounded_rate_and_then_caught_up_with() {
    for fault in [
        Fault::Broken,
        Fault::Status(503),
        Fault::Status(500),
        Fault::Html,
        Fault::Status(403),
    ] {
        for synced in [true, false] {
            let world = world(|server| {
                server.apply("a");
                server.always = (!synced).then_some(fault);
            });
            pass(5 * SECOND).await;
            let before = {
                let mut server = world.server();
                server.always = Some(fault);
                server.watching.clear();
                server.asked.len()
            };
            pass(30 * SECOND).await;
            let trouble = world.cache.trouble().unwrap();
            assert!(
                world.kit.clock.monotonic() > trouble.since_monotonic + 25 * SECOND && !trouble.error.is_empty(),
                "{fault:?}: {trouble:?}"
            );
            {
                let mut server = world.server();
                let asked = server.asked.len() - before;
                assert!((4..=12).contains(&asked), "{fault:?}: {asked} requests in 30 s");
                server.always = None;
                server.apply("b");
                // Changes meanwhile are in the list, or in the stream from its resourceVersion.
                server.watches.push_back(Fault::Status(410));
            }
            pass(10 * SECOND).await;
            assert_eq!(world.cache.len(), 2, "{fault:?}");
            assert!(world.ready() && !world.process.is_finished());
            assert!(world.errors() >= 4 && world.cache.trouble().is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_through_which_nothing_comes_is_begun_again_after_a_minute() {
    let world = world(|server| server.apply("a"));
    pass(5 * SECOND).await;
    world.told();
    // The connection stays open, but its other end is gone.
    let silent = std::mem::take(&mut world.server().watching);
    world.server().apply("lost");
    pass(55 * SECOND).await;
    assert_eq!(world.server().asked("watch=true"), 1);
    pass(10 * SECOND).await;
    let asked = world.server().asked.clone();
    let watches: Vec<_> = asked.iter().filter(|(_, query)| query.contains("watch=true")).collect();
    assert_eq!(watches.len(), 2, "{asked:?}");
    assert!(
        watches.iter().all(|(_, query)| query.contains("timeoutSeconds=60")),
        "{asked:?}"
    );
    world.server().apply("b");
    settle().await;
    assert_eq!(world.told(), ["+b"]);
    assert_eq!((world.errors(), world.server().asked("limit=50")), (0, 1));
    drop(silent);
}

/// A proxy in between may reset every connection within a minute.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_and_goes_on_again_and_again_is_not_stale() {
    let world = world(|server| server.apply("a"));
    pass(5 * SECOND).await;
    for cut in 1..=12 {
        world.server().cut();
        pass(30 * SECOND).await;
        assert!(world.ready(), "after {cut}");
        assert_eq!(world.server().asked("watch=true"), 1 + cut);
    }
    assert_eq!((world.errors(), world.server().asked("limit=50")), (12, 1));
    world.server().apply("b");
    settle().await;
    assert_eq!(world.cache.len(), 2);
}

/// One that is accepted and cut at once shows nothing.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_at_once_is_stale() {
    let world = world(|server| server.apply("a"));
    pass(5 * SECOND).await;
    for _ in 0..500 {
        world.server().cut();
        pass(SECOND / 2).await;
    }
    assert!(!world.ready());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_when_to_retry_is_not_asked_before() {
    let world = world(|server| {
        server.apply("a");
        server.lists.push_back(Fault::Later(20));
    });
    pass(19 * SECOND).await;
    assert_eq!(world.server().asked.len(), 1);
    pass(2 * SECOND).await;
    assert!(world.cache.is_synced());
    {
        let mut server = world.server();
        server.watches.push_back(Fault::Later(20));
        server.watching.clear();
    }
    settle().await;
    assert_eq!(world.server().asked("watch=true"), 2);
    pass(19 * SECOND).await;
    assert_eq!(world.server().asked("watch=true"), 2);
    pass(2 * SECOND).await;
    assert_eq!(world.server().asked("watch=true"), 3);
    assert_eq!(world.server().asked("limit=50"), 2);
}

#[tokio::test(start_paused = true)]
async fn refusals_without_end_lead_to_a_list_at_last() {
    let world = world(|server| server.apply("a"));
    pass(5 * SECOND).await;
    {
        let mut server = world.server();
        server.watches.extend([Fault::Status(500); 6]);
        server.watching.clear();
    }
    pass(60 * SECOND).await;
    assert_eq!(world.server().asked("limit=50"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_serves_a_watch_is_not_listed_without_end() {
    let world = world(|server| {
        server.apply("a");
        server.watches.extend([Fault::Status(410); 1000]);
    });
    pass(60 * SECOND).await;
    let lists = world.server().asked("limit=50");
    assert!((5..=16).contains(&lists), "{lists} lists in a minute");
}

#[tokio::test(start_paused = true)]
async fn stops_when_told() {
    let world = world(|server| server.always = Some(Fault::Broken));
    pass(10 * SECOND).await;
    world.shutdown.cancel();
    settle().await;
    assert!(world.process.is_finished());
    world.process.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_have_is_named_with_the_remedy() {
    let world = world(|server| server.lists.push_back(Fault::Status(404)));
    settle().await;
    assert_eq!(
        world.cache.trouble().unwrap().error,
        "the API server does not know nodes (v1): it is no Kubernetes API server, or a proxy is in front of it: correct the server in the kubeconfig"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_blocks_no_other() {
    let bad = |version: u64| json!({"metadata": {"name": "bad", "uid": "bad", "resourceVersion": version.to_string(), "labels": 7}});
    let world = world(|server| {
        server.apply("a");
        server.nodes.push(bad(2));
        server.apply("b");
    });
    world.cache.synced().await.unwrap();
    settle().await;
    assert_eq!(
        (world.told(), world.errors()),
        (vec!["+a".to_owned(), "+b".to_owned()], 0)
    );
    let undecodable = world.kit.metrics.undecodable.with_label_values(&["Node"]);
    assert_eq!(undecodable.get(), 1);

    world.server().apply("bad");
    world.server().apply("c");
    settle().await;
    assert_eq!(
        (world.told(), undecodable.get()),
        (vec!["+bad".to_owned(), "+c".to_owned()], 0)
    );
    let good = world.cache.get(&crate::Key::new("bad")).unwrap();

    // It becomes bad while it is watched: its last good version stays, and the watch goes on.
    world.server().tell("MODIFIED", &bad(9));
    world.server().apply("a");
    settle().await;
    assert_eq!(
        (world.told(), undecodable.get(), world.errors()),
        (vec!["+a".to_owned()], 1, 0)
    );
    assert_eq!(world.cache.get(&crate::Key::new("bad")), Some(good));

    // One that was made again under the name is another: nothing of the old one is kept.
    let mut other = bad(10);
    other["metadata"]["uid"] = json!("other");
    world.server().tell("MODIFIED", &other);
    settle().await;
    assert_eq!(world.told(), ["-bad"]);
    world.server().tell("DELETED", &bad(11));
    settle().await;
    assert_eq!((world.told(), undecodable.get()), (vec![], 0));
}
