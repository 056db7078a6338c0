//! The errors of the API, and their messages.

use std::time::Duration;

use tidewaiter_identity::hetzner::api;
use tidewaiter_testkit::fake_hetzner::TOKEN;
use tidewaiter_testkit::{Scripted, TokenBucket};

use crate::ask::reasons;
use crate::setup::{Provider, fake, fleet, ours};
use crate::told::{Row, rows, told};

fn trouble() -> Vec<Row> {
    let own = [
        (Scripted::Throttled, "throttled", ""),
        (Scripted::error(429, "something_new"), "throttled", ""),
        (Scripted::error(503, "rate_limit_exceeded"), "throttled", ""),
        (Scripted::raw(429, "<html>slow down"), "throttled", ""),
        (Scripted::Denied, "denied", "403 forbidden"),
        (Scripted::Unauthenticated, "no_credentials", "401 unauthorized"),
        (Scripted::Failed, "failed", "500 server_error"),
        (Scripted::error(503, "unavailable"), "failed", "503 unavailable"),
        (Scripted::error(400, "invalid_input"), "failed", "400 invalid_input"),
        (
            Scripted::raw(302, ""),
            "unusable",
            "status 302, not a response of Hetzner Cloud",
        ),
        (
            Scripted::raw(200, "{}"),
            "unusable",
            "status 200, not a response of Hetzner Cloud",
        ),
        (
            Scripted::raw(200, &" ".repeat((8 << 20) + 1)),
            "unusable",
            "the response is larger than 8 MiB",
        ),
    ];
    rows("Hetzner Cloud", own)
}

#[tokio::test]
async fn what_keeps_each_call_from_answering() {
    let few = vec![ours()];
    let many = fleet(30);
    let all: Vec<_> = few.iter().chain(&many).cloned().collect();
    let (fake, provider) = fake(&all).await;
    for (api, asked) in [(api::GET, &few), (api::LIST, &many)] {
        for (answer, outcome, detail) in trouble() {
            let before = provider.calls.counted(api, outcome);
            fake.script([answer.clone()]);
            for result in provider.ask(asked).await {
                let refusal = result.unwrap_err();
                assert_eq!(
                    refusal.to_string(),
                    format!("{api}{}", told(outcome, &detail)),
                    "{answer:?}"
                );
                assert!(refusal.is_transient() && !refusal.is_forgery(), "{refusal:?}");
            }
            assert_eq!(provider.calls.counted(api, outcome), before + 1, "{answer:?}");
        }
        assert!(provider.ask(asked).await.iter().all(Result::is_ok), "and is well again");
    }
}

/// A server that is not there, and an endpoint that is not the API's, are told apart.
#[tokio::test]
async fn not_found_is_only_what_the_api_says_of_a_server() {
    let (fake, provider) = fake(&[]).await;
    assert_eq!(provider.ask_one(&ours()).await.unwrap_err().reason(), "NotFound");
    fake.script([Scripted::error(404, "not_found")]);
    let refusal = provider.ask(&fleet(20)).await.remove(0).unwrap_err();
    assert_eq!(refusal.to_string(), "hcloud:servers.list: the cloud failed (not found)");
}

#[tokio::test]
async fn an_answer_about_another_server_is_unusable() {
    let (fake, provider) = fake(&[]).await;
    let another = fleet(1).remove(0);
    fake.script([Scripted::json(&serde_json::json!({"server": another.json()}))]);
    assert_eq!(provider.ask_one(&ours()).await.unwrap_err().reason(), "Unavailable");
}

#[tokio::test]
async fn a_token_that_is_not_taken() {
    let (fake, _) = fake(&[ours()]).await;
    let provider = Provider::with("another-token", &fake.endpoint());
    let refusal = provider.ask_one(&ours()).await.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "hcloud:servers.get: no valid credentials (401 unauthorized)"
    );
    assert!(refusal.remedy().ends_with("in HCLOUD_TOKEN."), "{}", refusal.remedy());
}

#[tokio::test]
async fn no_secret_is_ever_told() {
    let (fake, provider) = fake(&[]).await;
    for status in [400, 401, 403, 404, 500] {
        fake.script([Scripted::Error {
            status,
            code: "some_code",
            message: format!("https://x.example/?token={TOKEN}"),
        }]);
        let refusal = provider.ask_one(&ours()).await.unwrap_err();
        for text in [refusal.to_string(), format!("{refusal:?}"), refusal.remedy().to_owned()] {
            assert!(!text.contains(TOKEN) && !text.contains("http"), "{text}");
        }
    }
}

/// A call comes back every 12 s, and a listing takes two: before that no call is made, which would get nothing.
#[tokio::test]
async fn an_exhausted_quota_is_waited_for() {
    let all = fleet(60);
    let (fake, provider) = fake(&all).await;
    fake.throttle(Some(TokenBucket {
        capacity: 3.0,
        refill: 1.0 / 12.0,
    }));
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
    assert_eq!(reasons(&provider.ask(&all).await), ["Throttled"; 60]);
    fake.throttle(None);
    fake.clear_calls();
    for seconds in [0, 20] {
        provider.clock.advance(Duration::from_secs(seconds));
        assert_eq!(reasons(&provider.ask(&all).await), ["Throttled"; 60]);
    }
    assert_eq!(fake.calls().len(), 0);
    provider.clock.advance(Duration::from_secs(6));
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn the_token_bucket_throttles() {
    let all = fleet(60);
    let (fake, provider) = fake(&all).await;
    fake.throttle(Some(TokenBucket {
        capacity: 3.0,
        refill: 0.0,
    }));
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
    assert_eq!(reasons(&provider.ask(&all).await), ["Throttled"; 60]);
    // It never comes back, so the API names no time at which it does.
    fake.throttle(Some(TokenBucket::HETZNER));
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
}
