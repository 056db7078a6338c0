//! SIGKILL while 200 writers write: what was acknowledged is there, what was not is there whole or not at all, and what
//! the audit, the stream and the lists say is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;

use crate::ledger::Ledger;
use crate::world::{Answer, Ask, Land, On, Place, SOON, Server, content};

const WRITERS: usize = 200;
/// The number of further acknowledgements before each of the kills.
const BEFORE: [usize; 2] = [500, 1_300];
/// A machine that does ten things at once takes longer than the two seconds that are promised.
const RESTART: Duration = Duration::from_mins(1);

/// A request that was sent and not answered.
#[derive(Clone, Debug)]
enum Open {
    Label { key: String },
    Value { id: String, value: String },
    Delete { id: String },
    Node { key: String },
}

/// The answers that one writer received.
#[derive(Debug, Default)]
struct Told {
    /// The values of each label, one after the other; None when it was deleted.
    labels: BTreeMap<String, Vec<Option<String>>>,
    /// The node of each Idempotency-Key.
    nodes: BTreeMap<String, String>,
    open: Option<Open>,
}

/// The answer, unless there is none, or one that leaves open what became of the request: 503. All writers are one
/// caller, which may have too many requests in progress on a slow disk. Such a request did nothing, and is sent again.
async fn answer_of<F: Future<Output = reqwest::Result<Answer>>>(send: impl Fn() -> F) -> Option<Answer> {
    loop {
        match send().await.ok()? {
            answer if answer.status == StatusCode::TOO_MANY_REQUESTS => {}
            answer if answer.status == StatusCode::SERVICE_UNAVAILABLE => return None,
            answer => return Some(answer),
        }
    }
}

/// One writer, until nobody answers any more.
async fn write(server: Arc<Server>, land: Land, name: String, acknowledged: Arc<AtomicUsize>) -> Told {
    let mut told = Told::default();
    for turn in 0_usize.. {
        if turn_of(
            &server,
            &land,
            &format!("{name}-{turn}"),
            turn,
            &mut told,
            &acknowledged,
        )
        .await
        .is_none()
        {
            break;
        }
    }
    told
}

async fn turn_of(
    server: &Server,
    land: &Land,
    name: &str,
    turn: usize,
    told: &mut Told,
    acknowledged: &AtomicUsize,
) -> Option<()> {
    let key = format!("cluster.containership.io/{name}");
    told.open = Some(Open::Label { key: key.clone() });
    let body = json!({"key": key, "value": "0"});
    let create = || server.send(&land.token, Method::POST, &land.labels, Ask::body(&body));
    let made = answer_of(create).await?.is(201);
    let id = made.field("id");
    told.labels.insert(id.clone(), vec![Some("0".to_owned())]);
    acknowledged.fetch_add(1, Ordering::Relaxed);

    told.open = Some(Open::Value {
        id: id.clone(),
        value: "1".to_owned(),
    });
    let path = format!("{}/{id}", land.labels);
    let body = json!({"value": "1"});
    let change = || server.send(&land.token, Method::PATCH, &path, Ask::body(&body));
    answer_of(change).await?.is(200);
    told.labels.get_mut(&id).unwrap().push(Some("1".to_owned()));
    acknowledged.fetch_add(1, Ordering::Relaxed);

    told.open = Some(Open::Node { key: key.clone() });
    let node = answer_of(|| make_node(server, land, &key)).await?.is(201).field("id");
    told.nodes.insert(key, node);
    acknowledged.fetch_add(1, Ordering::Relaxed);

    if turn.is_multiple_of(2) {
        told.open = Some(Open::Delete { id: id.clone() });
        let delete = || server.send(&land.token, Method::DELETE, &path, Ask::default());
        answer_of(delete).await?.is(204);
        told.labels.get_mut(&id).unwrap().push(None);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    told.open = None;
    Some(())
}

async fn make_node(server: &Server, land: &Land, key: &str) -> reqwest::Result<Answer> {
    let ask = Ask {
        body: Some(&json!({})),
        idempotency_key: Some(key),
    };
    server.send(&land.token, Method::POST, &land.nodes, ask).await
}

async fn kills(on: On) {
    let place = Place::new(on).await;
    place.init().await;
    let mut server = Arc::new(place.serve().await);
    let land = Land::make(&server).await;
    let mut all: Vec<Told> = Vec::new();
    for (round, wanted) in BEFORE.into_iter().enumerate() {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let writers = (0..WRITERS).map(|writer| {
            let name = format!("r{round}-w{writer}");
            tokio::spawn(write(
                Arc::clone(&server),
                land.clone(),
                name,
                Arc::clone(&acknowledged),
            ))
        });
        let writers: Vec<_> = writers.collect();
        eventually("enough acknowledgements", SOON, async || {
            let found = acknowledged.load(Ordering::Relaxed);
            if found < wanted { Err(found) } else { Ok(()) }
        })
        .await;
        server.process.kill();
        let begin = Instant::now();
        server = Arc::new(place.serve().await);
        let took = begin.elapsed();
        println!(
            "{on:?}: {} acknowledged, ready {took:?} after SIGKILL",
            acknowledged.load(Ordering::Relaxed)
        );
        assert!(took < RESTART, "{took:?}");
        let told = join_all(writers).await.into_iter().map(Result::unwrap);
        all.extend(told);
        // Their keys count still.
        for told in &mut all {
            ask_again(&server, &land, told).await;
        }
        let ledger = Ledger::read(&content(&place.backup(&format!("copy-{round}")).await));
        labels_are_as_told(&ledger, &all);
        nodes_are_as_told(&ledger, &all);
        agree(&server, &land, &ledger).await;
    }
}

/// A request whose answer got lost is sent once more, one that was answered too.
async fn ask_again(server: &Server, land: &Land, told: &mut Told) {
    if let Some(Open::Node { key }) = &told.open {
        let id = make_node(server, land, key).await.unwrap().is(201).field("id");
        told.nodes.insert(key.clone(), id);
        told.open = None;
    }
    if let Some((key, id)) = told.nodes.iter().next_back() {
        let again = make_node(server, land, key).await.unwrap().is(201);
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert_eq!(again.field("id"), *id);
    }
}

/// Each label has the audit rows of what its writer was told, and at most one more: of what was on its way.
fn labels_are_as_told(ledger: &Ledger, all: &[Told]) {
    let mut found = ledger.of_kind("labels");
    for told in all {
        for (id, values) in &told.labels {
            let changes = found
                .remove(id)
                .unwrap_or_else(|| panic!("{id} was acknowledged: {values:?}"));
            let value = |after: &Value| after["value"].as_str().map(str::to_owned);
            let stored: Vec<_> = changes.iter().map(|change| value(&change.after)).collect();
            let mut with_open = values.clone();
            match &told.open {
                Some(Open::Value { id: open, value }) if open == id => with_open.push(Some(value.clone())),
                Some(Open::Delete { id: open }) if open == id => with_open.push(None),
                _ => {}
            }
            assert!(
                stored == *values || stored == with_open,
                "{id}: {stored:?}, told {told:?}"
            );
        }
    }
    // The rest was created without a response: it was under way, whole.
    let open = |told: &Told| match &told.open {
        Some(Open::Label { key }) => Some(key.clone()),
        _ => None,
    };
    let on_their_way: BTreeSet<_> = all.iter().filter_map(open).collect();
    for (id, changes) in found {
        let [made] = changes.as_slice() else {
            panic!("{id}: {changes:?}")
        };
        let key = made.after["key"].as_str().unwrap();
        assert!(on_their_way.contains(key) && made.after["value"] == "0", "{made:?}");
    }
}

/// One node for each key, whether its first answer came or not.
fn nodes_are_as_told(ledger: &Ledger, all: &[Told]) {
    let told: BTreeSet<&String> = all.iter().flat_map(|told| told.nodes.values()).collect();
    let keys = all.iter().map(|told| told.nodes.len()).sum::<usize>();
    assert_eq!(told.len(), keys, "two keys have one node");
    let found = ledger.of_kind("nodes");
    assert_eq!(found.keys().collect::<BTreeSet<_>>(), told);
    assert!(found.values().all(|changes| changes.len() == 1), "{found:?}");
}

/// Lists, audit and stream, as a client sees them, say what the copy says.
async fn agree(server: &Server, land: &Land, ledger: &Ledger) {
    for (path, kind) in [(&land.labels, "labels"), (&land.nodes, "nodes")] {
        let list = server.get(&land.api_key, path).await.is(200).json();
        let listed: BTreeSet<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap())
            .collect();
        let stored = ledger.objects.keys().filter(|(stored, _)| stored == kind);
        assert_eq!(listed, stored.map(|(_, id)| id.as_str()).collect());
        for item in list.as_array().unwrap().iter().filter(|_| kind == "labels") {
            let key = (kind.to_owned(), item["id"].as_str().unwrap().to_owned());
            assert_eq!(item["value"], ledger.objects[&key]["value"]);
        }
    }
    let mut audited = Vec::new();
    let mut path = format!("{}/audit?limit=1000", land.organization);
    loop {
        let rows = server.get(&land.token, &path).await.is(200).json();
        let numbers = rows.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap());
        let before = audited.len();
        audited.extend(numbers);
        if audited.len() == before {
            break;
        }
        path = format!(
            "{}/audit?limit=1000&before={}",
            land.organization,
            audited.last().unwrap()
        );
    }
    audited.reverse();
    let own = ledger.changes.iter().filter(|change| !change.organization.is_empty());
    let numbers: Vec<i64> = own.map(|change| change.number).collect();
    assert_eq!(audited, numbers, "the organization's audit is all that there is of it");

    let events = format!("{}/events", land.cluster);
    let (now, name, _) = server.first_event(&land.api_key, &events, None).await;
    assert_eq!(name, "hello");
    let (epoch, latest) = now.rsplit_once('-').unwrap();
    assert_eq!(latest.parse::<i64>().unwrap(), *numbers.last().unwrap());
    let (id, name, data) = server
        .first_event(&land.api_key, &events, Some(&format!("{epoch}-0")))
        .await;
    assert_eq!(name, "change");
    let cluster = land.cluster.rsplit('/').next().unwrap();
    let concerning = ledger
        .changes
        .iter()
        .filter(|change| change.cluster.is_empty() || change.cluster == cluster);
    assert_eq!(
        id,
        format!(
            "{epoch}-{}",
            concerning.max_by_key(|change| change.number).unwrap().number
        )
    );
    for kind in ["labels", "nodes", "node-pools", "clusters", "users"] {
        assert!(
            data["kinds"].as_array().unwrap().contains(&json!(kind)),
            "no {kind} in {data}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_that_was_acknowledged_on_sqlite() {
    kills(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_that_was_acknowledged_on_postgresql() {
    kills(On::Postgres).await;
}
