use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::Uri;
use serde_json::{Value, json};
use tidewaiter_kit::ManualClock;
use tokio::net::TcpListener;

use super::*;

/// Answers the requests for the document, which are counted, and for the keys.
async fn answer(State((issuer, reads)): State<(String, Arc<AtomicUsize>)>, uri: Uri) -> Json<Value> {
    if uri.path() == "/keys" {
        return Json(json!({ "keys": [] }));
    }
    reads.fetch_add(1, Ordering::SeqCst);
    // As of a real one: an algorithm that the library does not know.
    let algorithms = json!(["RS256", "Ed25519"]);
    Json(
        json!({"issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
        "jwks_uri": format!("{issuer}/keys"), "token_endpoint": format!("{issuer}/token"),
        "token_endpoint_auth_signing_alg_values_supported": algorithms}),
    )
}

fn provider(issuer: &str, clock: &ManualClock) -> Provider {
    let settings =
        json!({"name": "corp", "title": "Corp", "issuer": issuer, "clientId": "a", "clientSecretFile": "/none"});
    Provider::new(serde_json::from_value(settings).unwrap(), clock.shared()).unwrap()
}

#[tokio::test]
async fn the_document_is_read_each_hour_and_for_an_unknown_key_each_minute() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let reads = Arc::<AtomicUsize>::default();
    let state = (issuer.clone(), Arc::clone(&reads));
    let router = Router::new().fallback(get(answer)).with_state(state);
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let provider = provider(&issuer, &clock);
    let test = async {
        for (passed, max_age, wanted) in [
            (Duration::ZERO, FRESH, 1),
            (Duration::ZERO, ROTATION, 1),
            (ROTATION, FRESH, 1),
            (Duration::ZERO, ROTATION, 2),
            (FRESH, FRESH, 3),
        ] {
            clock.advance(passed);
            provider.metadata(max_age).await.unwrap();
            assert_eq!(reads.load(Ordering::SeqCst), wanted, "{passed:?} {max_age:?}");
        }
        // A sign-in begins with the fresh document although all places are taken.
        let _all = provider
            .waiting
            .try_acquire_many(u32::try_from(WAITING).unwrap())
            .unwrap();
        let redirect: Url = "http://127.0.0.1/".parse().unwrap();
        assert!(provider.begun(&redirect).await.is_ok());
        clock.advance(FRESH);
        assert!(matches!(provider.begun(&redirect).await, Err(ProviderError::Busy)));
    };
    tokio::select! {
        served = axum::serve(listener, router).into_future() => served.unwrap(),
        () = test => {}
    }
}

#[tokio::test]
async fn a_failure_is_cached_for_some_seconds() {
    // Nobody listens where somebody did.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let provider = provider(&issuer, &clock);
    let read = async || provider.metadata(FRESH).await.map(drop);
    assert!(matches!(read().await, Err(ProviderError::Document(_))));
    assert!(matches!(read().await, Err(ProviderError::FailedBefore)));
    clock.advance(FAILED);
    assert!(matches!(read().await, Err(ProviderError::Document(_))));
}
