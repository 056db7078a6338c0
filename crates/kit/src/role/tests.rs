use std::convert::Infallible;
use std::future::{pending, ready};
use std::net::Ipv4Addr;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

use super::*;
use crate::Chain;

#[derive(Debug, thiserror::Error)]
#[error("the disk is full")]
struct Full;

fn spec(health_address: SocketAddr) -> ProcessSpec {
    ProcessSpec {
        name: "test",
        log: LogSettings::default(),
        health_address,
        environment: Vec::new(),
        warnings: Vec::new(),
        threads: None,
        grace: Duration::ZERO,
    }
}

/// An address that nobody listens on.
async fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap()
}

async fn get(address: SocketAddr, path: &str) -> (StatusCode, String) {
    let client = HttpClient::builder(TokioExecutor::new()).build_http::<Body>();
    let request = Request::get(format!("http://{address}{path}")).body(Body::empty());
    let response: Response<_> = client.request(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_process_serves_health_until_a_task_ends() {
    let address = free().await;
    let result = run_process(spec(address), pending(), async |process| {
        process.kit.checks.register("cache/node", || Err("empty".to_owned()));
        process.tasks.spawn("prober", async move {
            assert_eq!(get(address, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
            let (status, report) = get(address, "/readyz").await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(report.contains("[-]cache/node failed: empty\n"), "{report}");
            Err(Full)
        });
        // Also while it starts.
        assert_eq!(get(address, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
        let (status, report) = get(address, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(report.starts_with("[-]start failed: it is not complete\n"), "{report}");
        Ok::<(), Full>(())
    });
    let error = result.await.unwrap_err();
    assert!(matches!(error, RoleError::Running(_)), "{error:?}");
    assert_eq!(Chain(&error).to_string(), "the task prober failed: the disk is full");
}

#[tokio::test]
async fn a_process_that_cannot_start_says_why() {
    let error = run_process(spec(free().await), pending(), async |process| {
        process.tasks.spawn("idle", pending::<Result<(), Infallible>>());
        Err(Full)
    });
    let error = error.await.unwrap_err();
    assert!(matches!(error, RoleError::Configuration(_)), "{error:?}");
    assert_eq!(Chain(&error).to_string(), "the disk is full");

    // No machine has this address.
    let address = SocketAddr::from(([192, 0, 2, 1], 3986));
    let mut started = false;
    let error = run_process(spec(address), pending(), async |_| {
        started = true;
        Ok::<(), Full>(())
    });
    let error = error.await.unwrap_err();
    assert!(matches!(error, RoleError::Configuration(_)), "{error:?}");
    let expected = format!("healthAddress is {address}: cannot listen there");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(!started);
}

#[tokio::test]
async fn a_signal_ends_a_start_that_waits() {
    let stopped = run_process(spec(free().await), ready("SIGTERM"), async |_| {
        pending::<Result<(), Full>>().await
    });
    stopped.await.unwrap();
}

#[tokio::test]
async fn only_a_role_with_a_lease_is_elected() {
    let kit = crate::Kit::new(crate::SystemClock::shared()).unwrap();
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let lease = LeaseName {
        namespace: "kube-system".to_owned(),
        name: "leader".to_owned(),
    };
    for (lease, elected) in [(None, false), (Some(lease), true)] {
        let mut tasks = Tasks::new(kit.clock.clone());
        let (elector, role) = role("test", lease, &config, &kit, &mut tasks).await.unwrap();
        assert_eq!(elector.is_some(), elected);
        assert_eq!(role.context.leadership.is_leader(), !elected);
    }
}
