use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ServiceAccount;

use super::*;
use crate::cache::Feed;
use crate::client::by_hand;
use crate::leader::Leadership;
use crate::retry::ReconcileError as _;
use crate::testing::kit;

type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A writer whose requests are answered from a script, last first, with a status and an object's metadata.
fn writer(mut answers: Vec<(u16, Value)>) -> (Writer, Requests) {
    let (kit, _) = kit();
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    answers.reverse();
    let answers = Arc::new(Mutex::new(answers));
    let answer = move |request: http::Request<Bytes>| {
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        log.lock()
            .unwrap()
            .push((request.method().to_string(), request.uri().to_string(), body));
        let (code, body) = answers.lock().unwrap().pop().unwrap();
        let body = Full::new(Bytes::from(body.to_string()))
            .map_err(Into::into)
            .boxed_unsync();
        std::future::ready(Ok(Response::builder().status(code).body(body).unwrap()))
    };
    let client = by_hand::client(answer, &Leadership::always(Arc::clone(&kit.clock)), &kit);
    (Writer::new(client, "test", Arc::clone(&kit.clock)), requests)
}

fn account(version: Option<&str>) -> ServiceAccount {
    serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": version}}))
        .unwrap()
}

fn object(version: &str, manager: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": version,
        "managedFields": [{"manager": manager, "operation": "Apply"}]}})
}

fn absent() -> (u16, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"});
    (404, status)
}

fn conflict() -> (u16, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "no"});
    (409, status)
}

#[tokio::test]
async fn a_patch_rests_on_the_uid_and_the_version_that_were_observed() {
    let (writer, requests) = writer(vec![(200, object("8", "x"))]);
    let seen = account(Some("7"));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    writer.patch::<ServiceAccount>(&seen.metadata, patch).await.unwrap();
    let (method, uri, body) = requests.lock().unwrap()[0].clone();
    assert_eq!(method, "PATCH");
    assert_eq!(
        uri,
        "/api/v1/namespaces/n/serviceaccounts/s?&fieldManager=tidewaiter%2Ftest&fieldValidation=Strict"
    );
    assert_eq!(
        body,
        json!({"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}})
    );
}

#[tokio::test]
async fn what_was_written_is_awaited_until_the_cache_shows_it() {
    let (writer, _) = writer(vec![
        (201, object("7", "x")),
        (200, object("8", "x")),
        (200, json!({"kind": "Status"})),
    ]);
    let key = Key::namespaced("n", "s");
    let awaits = |version: Option<&str>| {
        let shown = account(version).metadata;
        writer.awaits::<ServiceAccount>(&key, version.map(|_| &shown))
    };
    writer.create(&account(None)).await.unwrap();
    assert!(awaits(None));
    writer.replace(&account(Some("7"))).await.unwrap();
    assert!(awaits(None) && awaits(Some("7")) && !awaits(Some("8")));
    writer
        .delete::<ServiceAccount>(&account(Some("8")).metadata)
        .await
        .unwrap();
    assert!(awaits(Some("8")) && !awaits(None));
}

#[tokio::test]
async fn an_object_deleted_after_the_response_is_not_awaited_whenever_the_watch_shows_its_creation() {
    for watch_is_first in [false, true] {
        let (writer, _) = writer(vec![(201, object("7", "x"))]);
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<ServiceAccount>::new(&kit);
        writer.follow(&cache);
        feed.list([]);
        let awaits = || writer.awaits::<ServiceAccount>(&Key::namespaced("n", "s"), None);
        if watch_is_first {
            feed.put(account(Some("7")));
        }
        writer.create(&account(None)).await.unwrap();
        assert_eq!(awaits(), !watch_is_first);
        feed.put(account(Some("7")));
        feed.delete(account(Some("7")));
        assert!(!awaits(), "it may be created at once");
    }
}

#[tokio::test]
async fn what_the_watch_shows_before_the_response_is_forgotten() {
    let (writer, _) = writer(vec![(200, object("8", "x")), (200, json!({"kind": "Status"}))]);
    let (kit, _) = kit();
    let (mut feed, cache) = Feed::<ServiceAccount>::new(&kit);
    writer.follow(&cache);
    feed.list([account(Some("8"))]);
    let key = Key::namespaced("n", "s");
    let awaits = |version: &str| writer.awaits::<ServiceAccount>(&key, Some(&account(Some(version)).metadata));
    writer.replace(&account(Some("7"))).await.unwrap();
    assert!(!awaits("7"), "the cache is past it");
    let deleted = account(Some("8"));
    feed.delete(deleted.clone());
    writer.delete::<ServiceAccount>(&deleted.metadata).await.unwrap();
    assert!(!awaits("8"), "the cache is past it");
}

/// Or a pass that the machine stops between its read and its check would send the write once more, for a 409.
#[tokio::test]
async fn an_object_that_was_read_before_the_cache_showed_our_write_is_stale() {
    let (writer, _) = writer(vec![(201, object("7", "x")), (200, object("8", "x"))]);
    let (kit, _) = kit();
    let (mut feed, cache) = Feed::<ServiceAccount>::new(&kit);
    writer.follow(&cache);
    feed.list([]);
    let key = Key::namespaced("n", "s");
    let is_stale =
        |read: Option<&Arc<ServiceAccount>>| writer.is_stale::<ServiceAccount>(&key, read.map(|read| &read.metadata));
    let absent = cache.get(&key);
    assert!(!is_stale(absent.as_ref()));
    writer.create(&account(None)).await.unwrap();
    assert!(is_stale(absent.as_ref()), "the cache is behind");
    feed.put(account(Some("7")));
    let created = cache.get(&key);
    assert!(is_stale(absent.as_ref()), "the pass is behind");
    assert!(!is_stale(created.as_ref()));
    writer.replace(&account(Some("7"))).await.unwrap();
    feed.put(account(Some("8")));
    let awaits = writer.awaits::<ServiceAccount>(&key, created.as_ref().map(|read| &read.metadata));
    assert!(!awaits, "the write is forgotten");
    assert!(is_stale(created.as_ref()), "the pass is behind");
    assert!(!is_stale(cache.get(&key).as_ref()));
}

#[tokio::test]
async fn a_deletion_of_an_object_that_is_gone_is_no_error() {
    let (writer, _) = writer(vec![absent(), (200, json!({"kind": "Status"})), conflict()]);
    let meta = account(Some("7")).metadata;
    assert!(!writer.delete::<ServiceAccount>(&meta).await.unwrap());
    assert!(writer.delete::<ServiceAccount>(&meta).await.unwrap());
    let error = writer.delete::<ServiceAccount>(&meta).await.unwrap_err();
    assert!(error.is_conflict());
}

#[tokio::test]
async fn a_new_object_overwrites_nothing_of_one_that_exists_all_the_same() {
    let (writer, requests) = writer(vec![conflict(), (200, object("8", "tidewaiter/test"))]);
    let error = writer.apply_new(&account(None), |_| true).await.unwrap_err();
    assert!(error.is_conflict());
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    let methods: Vec<_> = requests.iter().map(|(method, ..)| &**method).collect();
    assert_eq!(methods, ["PATCH", "GET"]);
    let (_, uri, body) = &requests[0];
    assert!(!uri.contains("force"), "{uri}");
    assert_eq!(body["metadata"]["resourceVersion"], NO_VERSION);
}

#[tokio::test]
async fn an_object_of_somebody_else_is_reported_and_is_no_obstacle_to_a_finalizer() {
    let (writer, requests) = writer(vec![
        conflict(),
        (200, object("8", "somebody")),
        (200, object("8", "somebody")),
    ]);
    let error = writer.apply_new(&account(None), |_| false).await.unwrap_err();
    assert!(error.is_foreign() && error.is_refusal() && !error.is_conflict());
    assert_eq!(error.notice().unwrap().reason, "ForeignObject");
    requests.lock().unwrap().clear();
    let meta = account(None).metadata;
    let gone = writer.is_gone::<ServiceAccount>(&meta, |_| false).await.unwrap();
    assert!(gone, "ours is gone");
    assert!(requests.lock().unwrap().iter().all(|(method, ..)| method == "GET"));
}

#[tokio::test]
async fn an_apply_is_for_the_object_that_was_observed() {
    let (writer, requests) = writer(vec![(200, object("8", "tidewaiter/test"))]);
    let mut desired = account(None);
    desired.metadata.uid = None;
    writer.apply(&desired, Some(&account(Some("7")))).await.unwrap();
    assert_eq!(requests.lock().unwrap()[0].2["metadata"]["uid"], "u");
}

#[tokio::test]
async fn a_version_that_is_not_the_observed_one_is_a_conflict() {
    let (writer, _) = writer(vec![
        (200, object("7", "x")),
        (200, object("8", "x")),
        (404, json!({"code": 404})),
    ]);
    let seen = account(None).metadata;
    writer.confirm::<ServiceAccount>(&seen, Some("7")).await.unwrap();
    assert!(
        writer
            .confirm::<ServiceAccount>(&seen, Some("7"))
            .await
            .unwrap_err()
            .is_conflict()
    );
    let (writer, _) = self::writer(vec![absent()]);
    writer.confirm::<ServiceAccount>(&seen, None).await.unwrap();
}

#[tokio::test]
async fn a_finalizer_comes_beside_the_others_and_goes_alone() {
    let ours = crate::Finalizer("example.com/ours");
    let with = |finalizers: Value| {
        let mut object = object("7", "x");
        object["metadata"]["finalizers"] = finalizers;
        (200, object)
    };
    let both = || json!(["example.com/theirs", "example.com/ours"]);
    let (writer, requests) = writer(vec![
        with(both()),
        (200, object("8", "x")),
        absent(),
        with(both()),
        with(json!(["example.com/theirs"])),
    ]);
    let mut seen = account(Some("7")).metadata;
    seen.finalizers = Some(vec!["example.com/theirs".to_owned()]);
    ours.ensure::<ServiceAccount>(&writer, &seen).await.unwrap();
    let added = requests.lock().unwrap()[0].2["metadata"].clone();
    assert_eq!(
        (&added["finalizers"], &added["resourceVersion"]),
        (&both(), &json!("7")),
        "a stale observation takes no finalizer of others away"
    );
    seen.finalizers = Some(vec!["example.com/theirs".to_owned(), "example.com/ours".to_owned()]);
    ours.ensure::<ServiceAccount>(&writer, &seen).await.unwrap();
    assert_eq!(requests.lock().unwrap().len(), 1, "it is there already");

    let other = account(None).metadata;
    for gone in [false, true] {
        assert_eq!(writer.is_gone::<ServiceAccount>(&other, |_| true).await.unwrap(), gone);
    }
    ours.release::<ServiceAccount>(&writer, &seen).await.unwrap();
    let released = requests.lock().unwrap().pop().unwrap().2;
    assert_eq!(released["metadata"]["finalizers"], json!(["example.com/theirs"]));
    assert_eq!(
        released["metadata"]["resourceVersion"], "7",
        "a stale observation releases nothing"
    );
}
