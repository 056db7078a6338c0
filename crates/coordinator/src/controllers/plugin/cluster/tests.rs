use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use http::StatusCode;
use kube::Config;
use tokio::net::TcpListener;

use super::*;

/// An API server with two pods of the job, whose kubelet answers with this log.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
async fn cluster(log: String) -> Cluster {
    let pod = |name: &str, time: &str| json!({"metadata": {"name": name, "creationTimestamp": time}});
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {},
        "items": [pod("new", "2026-01-02T00:00:00Z"), pod("old", "2026-01-01T00:00:00Z")]});
    let router = Router::new().fallback(async move |request: Request| {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        match path {
            "/api/v1/namespaces/n/pods" if query.contains("job-name%3Dmigrate-01234567") => {
                pods.to_string().into_response()
            }
            "/api/v1/namespaces/n/pods/new/log" if query.contains("tailLines=10") => log.into_response(),
            other => panic!("nobody asks {other}?{query}"),
        }
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Cluster::new(&Client::try_from(Config::new(url.parse().unwrap())).unwrap(), None)
}

#[tokio::test]
async fn a_version_that_is_none_is_served_by_nobody() {
    let cluster = cluster(String::new()).await;
    for version in ["", "v1 \u{e9}%", "v1/../v1", "v1/namespaces"] {
        let found = cluster.kind("", version, "ConfigMap").await.unwrap();
        assert!(found.is_none(), "{version}");
    }
}

#[tokio::test]
async fn the_end_of_the_log_of_the_newest_pod_is_one_short_line() {
    let job = ObjectId {
        group: "batch".to_owned(),
        kind: "Job".to_owned(),
        namespace: "n".to_owned(),
        name: "migrate-01234567".to_owned(),
    };
    let tail = cluster("first\n\n  cannot connect\n".to_owned())
        .await
        .log_tail(&job)
        .await;
    assert_eq!(tail.as_deref(), Some("first | cannot connect"));
    let tail = cluster(format!("{}end", "é".repeat(10_000)))
        .await
        .log_tail(&job)
        .await
        .unwrap();
    assert!(tail.ends_with("éend") && tail.len() <= TAIL_BYTES, "{tail}");
    assert_eq!(cluster(String::new()).await.log_tail(&job).await, None);
}

/// An API server with a widget of the definition `widgets.ours.example.com` that has an owner, and the answer to a
/// request for the owner.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
async fn with_owner(answer: Option<Value>) -> Cluster {
    let definition = json!({"metadata": {"name": "widgets.ours.example.com"},
        "spec": {"group": "ours.example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}});
    let list = |items: Value| json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).to_string();
    let definitions = list(json!([definition]));
    let owner = json!({"apiVersion": "theirs.example.com/v1", "kind": "Owner", "name": "owner", "uid": "u"});
    let widgets = list(json!([{"metadata": {"name": "w", "namespace": "n", "ownerReferences": [owner]}}]));
    let owners = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "theirs.example.com/v1", "resources":
        [{"name": "owners", "singularName": "owner", "namespaced": true, "kind": "Owner", "verbs": ["get", "list", "delete"]}]});
    let router = Router::new().fallback(async move |request: Request| match request.uri().path() {
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => definitions.into_response(),
        "/apis/ours.example.com/v1/widgets" => widgets.into_response(),
        "/apis/theirs.example.com/v1" => owners.to_string().into_response(),
        "/apis/theirs.example.com/v1/namespaces/n/owners/owner" => match answer {
            Some(answer) => (StatusCode::NOT_FOUND, answer.to_string()).into_response(),
            None => (StatusCode::NOT_FOUND, "404 page not found").into_response(),
        },
        other => panic!("nobody asks {other}"),
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Cluster::new(&Client::try_from(Config::new(url.parse().unwrap())).unwrap(), None)
}

#[tokio::test]
async fn an_owner_is_gone_only_if_the_api_server_says_so_of_the_owner_itself() {
    let definition = ObjectId {
        group: "apiextensions.k8s.io".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        namespace: String::new(),
        name: "widgets.ours.example.com".to_owned(),
    };
    let absent = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "message": "owners.theirs.example.com \"owner\" not found", "reason": "NotFound",
        "details": {"name": "owner", "group": "theirs.example.com", "kind": "owners"}});
    let gone = with_owner(Some(absent)).await;
    assert_eq!(gone.instance(&definition, "p").await.unwrap(), None);
    // The version in which the owner is named is not served any more.
    let unserved = with_owner(None).await;
    let found = unserved.instance(&definition, "p").await.unwrap();
    assert_eq!(found.as_deref(), Some("Widget n/w"));
}
