use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
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
