use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use super::*;

const OURS: Ownership = Ownership {
    key: "example.com/managed",
    value: "true",
};

fn account(name: &str, more: &Value) -> ServiceAccount {
    let mut metadata = json!({"name": name, "namespace": "n"});
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn ours(name: &str) -> Arc<ServiceAccount> {
    Arc::new(account(name, &json!({"labels": {OURS.key: OURS.value}})))
}

fn names<'a>(objects: impl IntoIterator<Item = &'a ServiceAccount>) -> Vec<&'a str> {
    objects
        .into_iter()
        .map(|it| it.metadata.name.as_deref().unwrap())
        .collect()
}

fn compared(desired: &[&str], actual: &[Arc<ServiceAccount>]) -> Changes<ServiceAccount> {
    let desired = desired.iter().map(|name| account(name, &json!({}))).collect();
    compare(desired, actual, |object| OURS.owns(object))
}

#[test]
fn what_is_missing_edited_unwanted_and_foreign() {
    let foreign = Arc::new(account("foreign", &json!({})));
    let ending = |name| {
        Arc::new(account(
            name,
            &json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {OURS.key: OURS.value}}),
        ))
    };
    let actual = [
        ours("kept"),
        ours("unwanted"),
        foreign,
        Arc::new(account("others", &json!({}))),
        ending("ending"),
        ending("ending-unwanted"),
    ];
    let changes = compared(&["kept", "new", "foreign", "ending"], &actual);
    assert_eq!(names(&changes.create), ["new"]);
    assert_eq!(names(changes.update.iter().map(|(desired, _)| desired)), ["kept"]);
    assert_eq!(names(changes.delete.iter().map(|it| &**it)), ["unwanted"]);
    assert_eq!(changes.foreign, [Key::namespaced("n", "foreign")]);
}

mod ensured {
    use std::sync::Mutex;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::{BodyExt as _, Full};

    use super::*;
    use crate::client::by_hand;
    use crate::leader::Leadership;
    use crate::testing::kit;

    struct World {
        writer: Writer,
        requests: Arc<Mutex<Vec<String>>>,
    }

    /// Writes to the object `bad` fail with 422, to `newer` with 409, to `busy` with 429; the others succeed.
    fn world() -> World {
        let (kit, _) = kit();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let answer = move |request: http::Request<Bytes>| {
            let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
            log.lock().unwrap().push(format!("{} {name}", request.method()));
            let (code, details) = match &*name {
                _ if request.method() == http::Method::GET => (404, Value::Null),
                "bad" => (422, Value::Null),
                "newer" => (409, Value::Null),
                "busy" => (429, json!({"retryAfterSeconds": 7})),
                _ => (200, Value::Null),
            };
            let body = if code == 200 {
                json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": "9"}})
            } else {
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": "No", "message": "no", "details": details})
            };
            let body = Full::new(Bytes::from(body.to_string()))
                .map_err(Into::into)
                .boxed_unsync();
            std::future::ready(Ok(Response::builder().status(code).body(body).unwrap()))
        };
        let client = by_hand::client(answer, &Leadership::always(Arc::clone(&kit.clock)), &kit);
        World {
            writer: Writer::new(client, "test", Arc::clone(&kit.clock)),
            requests,
        }
    }

    impl World {
        async fn ensure(&self, desired: &[&str], actual: &[Arc<ServiceAccount>]) -> Result<(), ChildrenError> {
            let changes = compared(desired, actual);
            execute(&self.writer, changes, |meta| OURS.marks(meta), || true, |_, _| {}).await
        }

        fn requests(&self) -> Vec<String> {
            let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
            requests.retain(|request| !request.starts_with("GET "));
            requests.sort_unstable();
            requests
        }
    }

    #[tokio::test]
    async fn one_failed_write_does_not_stop_the_others() {
        let world = world();
        let seen = [ours("unwanted"), ours("edited")];
        let error = world.ensure(&["bad", "new", "edited"], &seen).await.unwrap_err();
        assert_eq!((error.class(), error.retry()), ("rejected", Retry::Slow));
        assert_eq!(error.notice().unwrap().reason, "WriteRejected");
        assert_eq!(
            world.requests(),
            ["DELETE unwanted", "PATCH bad", "PATCH edited", "PATCH new"]
        );
    }

    #[tokio::test]
    async fn a_foreign_object_is_reported_and_left_alone() {
        let (world, taken) = (world(), Arc::new(account("taken", &json!({}))));
        let error = world.ensure(&["taken", "new"], &[taken]).await.unwrap_err();
        assert_eq!((error.class(), error.retry()), ("foreign", Retry::Slow));
        assert!(error.is_refusal());
        assert!(
            error
                .notice()
                .unwrap()
                .note
                .starts_with("ServiceAccount n/taken exists and is not managed")
        );
        assert_eq!(world.requests(), ["PATCH new"]);
    }

    #[tokio::test]
    async fn a_conflict_does_not_override_the_time_that_the_server_named() {
        let (world, mut failed) = (world(), Vec::new());
        for name in ["bad", "newer", "busy"] {
            let (desired, cached) = (account(name, &json!({})), ours(name));
            let written = world.writer.apply(&desired, Some(&*cached)).await;
            failed.push(written.unwrap_err());
        }
        let error = ChildrenError {
            kind: "ServiceAccount".to_owned(),
            failed,
            foreign: Vec::new(),
        };
        assert_eq!(error.retry(), Retry::BackoffAfter(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn no_write_begins_once_it_is_to_stop() {
        let world = world();
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let changes = compared(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let done = std::cell::Cell::new(0);
        let go_on = || done.get() < 3;
        execute(&world.writer, changes, |_| true, go_on, |_, _| done.set(done.get() + 1))
            .await
            .unwrap();
        assert!((3..3 + CONCURRENCY).contains(&done.get()), "{}", done.get());
        assert_eq!(world.requests().len(), done.get());
    }

    #[tokio::test]
    async fn a_foreign_object_is_told_of_beside_a_failed_write() {
        let (world, taken) = (world(), Arc::new(account("taken", &json!({}))));
        let error = world.ensure(&["taken", "bad"], &[taken]).await.unwrap_err();
        assert_eq!((error.class(), error.is_refusal()), ("rejected", false));
        assert_eq!(error.notice().unwrap().reason, "ForeignObject");
        let said = error.to_string();
        assert!(
            said.contains("1 of the writes failed") && said.contains("n/taken exists"),
            "{said}"
        );
    }
}
