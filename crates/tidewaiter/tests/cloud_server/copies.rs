//! A copy that is made while others write is one moment's, and another database that is filled from it serves that
//! moment.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use tidewaiter_testkit::{Program, eventually};

use crate::ledger::{Ledger, fold};
use crate::world::{Answer, Ask, Land, On, Place, SOON, Server, content};

const WRITERS: usize = 50;
const BEFORE: usize = 300;

async fn write(server: Arc<Server>, land: Land, writer: usize, stop: Arc<AtomicBool>, acknowledged: Arc<AtomicUsize>) {
    for turn in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if turn_of(&server, &land, writer, turn).await.is_some() {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A turn of a writer. None when the machine is so busy that the server refuses one of its writes.
async fn turn_of(server: &Server, land: &Land, writer: usize, turn: usize) -> Option<()> {
    let body = json!({"key": format!("cluster.containership.io/w{writer}-{turn}"), "value": "0"});
    let id = unless_busy(server.post(&land.token, &land.labels, &body).await)?
        .is(201)
        .field("id");
    let path = format!("{}/{id}", land.labels);
    let body = json!({"value": "1"});
    let changed = server.send(&land.token, Method::PATCH, &path, Ask::body(&body)).await;
    unless_busy(changed.unwrap())?.is(200);
    if turn.is_multiple_of(2) {
        let deleted = server.send(&land.token, Method::DELETE, &path, Ask::default()).await;
        unless_busy(deleted.unwrap())?.is(204);
    }
    Some(())
}

fn unless_busy(answer: Answer) -> Option<Answer> {
    (answer.status != 429 && answer.status != 503).then_some(answer)
}

#[tokio::test]
async fn a_copy_is_restored_where_nothing_is_and_served_with_its_keys() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let copy = place.backup("copy").await;
    let new = Place::new(On::Sqlite).await;
    let (code, said) = new.run(&["restore", &copy.display().to_string()]).await;
    assert_eq!(code, 0, "{said}");
    let missing = new.data.join("keys").display().to_string();
    assert!(
        said.contains("A backup contains no keys") && said.contains(&missing),
        "{said}"
    );
    // Other keys would not decrypt it, so none are made.
    for command in ["serve", "init"] {
        let program = if command == "serve" {
            new.program(&["serve"])
        } else {
            new.init_program()
        };
        let (code, said) = new.run_program(program).await;
        assert!(
            code != 0 && said.contains("the keys that belong to it"),
            "{command:?}: {said}"
        );
        assert!(!new.data.join("keys").exists() && !new.data.join("sealing-keys").exists());
    }
    let mode = std::fs::metadata(&new.data).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let parts = ["keys", "sealing-keys"].map(|part| place.data.join(part));
    let cp = Program::new("/bin/cp").arg("-a").args(parts).arg(&new.data);
    let (code, said) = new.run_program(cp).await;
    assert_eq!(code, 0, "{said}");
    let restored = new.serve().await;
    restored.get(&land.api_key, &land.labels).await.is(200);
}

async fn copied(from: On, to: On) {
    let place = Place::new(from).await;
    place.init().await;
    let server = Arc::new(place.serve().await);
    let land = Land::make(&server).await;
    let registry = json!({"description": "ours", "provider": "private", "serveraddress": "registry.example.org", "credentials": {"username": "u", "password": "hunter2"}});
    let registries = format!("{}/registries", land.organization);
    server.post(&land.token, &registries, &registry).await.is(201);
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers = (0..WRITERS).map(|writer| {
        let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        tokio::spawn(write(Arc::clone(&server), land.clone(), writer, stop, acknowledged))
    });
    let writers: Vec<_> = writers.collect();
    let more = async |than: usize| {
        eventually("the writers to go on", SOON, async || {
            let found = acknowledged.load(Ordering::Relaxed);
            if found < than { Err(found) } else { Ok(found) }
        })
        .await
    };
    let before = more(BEFORE).await;
    let copy = place.backup("copy").await;
    more(acknowledged.load(Ordering::Relaxed) + WRITERS).await;
    stop.store(true, Ordering::Relaxed);
    join_all(writers).await.into_iter().for_each(|writer| writer.unwrap());

    // The final report of the server about its state when it had as many changes as the copy has.
    let (copied, whole) = (
        Ledger::read(&content(&copy)),
        Ledger::read(&content(&place.backup("in-the-end").await)),
    );
    let (number, all) = (copied.changes.len(), whole.changes.len());
    assert!(
        before <= number && number < all,
        "the copy was made meanwhile: {before}, {number}, {all}"
    );
    assert_eq!(fold(&whole.changes[..number]), copied.objects);

    let other = place.beside(to).await;
    let (code, said) = other.run(&["restore", &copy.display().to_string()]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = other.run(&["restore", &copy.display().to_string()]).await;
    assert!(code == 1 && said.contains("not empty"), "{said}");
    assert_eq!(Ledger::read(&content(&other.backup("again").await)).lines, copied.lines);
    let restored = other.serve().await;
    // Tokens and keys are valid there too, and what was sealed opens.
    let list = restored.get(&land.api_key, &land.labels).await.is(200).json();
    let labels = copied.objects.keys().filter(|(kind, _)| kind == "labels").count();
    assert_eq!(list.as_array().unwrap().len(), labels);
    let registry = restored.get(&land.token, &registries).await.is(200).json();
    assert_eq!(registry[0]["credentials"]["password"], "hunter2");
    // It is another database: numbers of the first one mean nothing.
    let events = format!("{}/events", land.cluster);
    let (cursor, ..) = server.first_event(&land.api_key, &events, None).await;
    let (_, name, _) = restored.first_event(&land.api_key, &events, Some(&cursor)).await;
    assert_eq!(name, "reset");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_busy_sqlite_fills_a_postgresql() {
    copied(On::Sqlite, On::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_busy_postgresql_fills_a_sqlite() {
    copied(On::Postgres, On::Sqlite).await;
}

#[tokio::test]
async fn half_a_copy_fills_nothing() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let copy = content(&place.backup("copy").await);
    let lines: Vec<&str> = copy.lines().collect();
    let half = place.secret_file("half", &format!("{}\n", lines[..lines.len() - 1].join("\n")));
    let other = place.beside(On::Sqlite).await;
    let (code, said) = other.run(&["restore", &half.display().to_string()]).await;
    assert!(code == 1 && said.contains("is incomplete"), "{said}");
    let changed = place.secret_file("changed", &copy.replace("Acme", "Acne"));
    let (code, said) = other.run(&["restore", &changed.display().to_string()]).await;
    assert!(code == 1 && said.contains("damaged"), "{said}");
    let whole = place.scratch.path().join("copy").display().to_string();
    let (code, said) = other.run(&["restore", &whole]).await;
    assert_eq!(code, 0, "{said}");
}
