//! Many servers at once: pages, and what a listing leaves out.

use serde_json::{Value, json};
use tidewaiter_testkit::Scripted;
use tidewaiter_testkit::fake_hetzner::{FakeServer, server};

use crate::ask::{reason, reasons};
use crate::setup::{CLUSTER, fake, fleet, pages};

/// A page with these servers.
fn page(servers: &[&FakeServer], next: Option<u32>) -> Scripted {
    let servers: Vec<Value> = servers.iter().map(|server| server.json()).collect();
    Scripted::json(&json!({"servers": servers, "meta": {"pagination": {"next_page": next}}}))
}

#[tokio::test]
async fn only_the_clusters_servers_are_listed() {
    let all = fleet(120);
    let (fake, provider) = fake(&all).await;
    fake.launch((1..=200).map(|id| server(id, &format!("theirs-{id}")).kops("other.example.com", "nodes")));
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
    let calls = fake.calls();
    assert_eq!(pages(&calls), [50, 50, 20]);
    let selector = Some(format!("kops.k8s.io/cluster={CLUSTER}"));
    assert!(calls.iter().all(|call| call.filter == selector), "{calls:?}");
}

#[tokio::test]
async fn a_few_that_the_listing_leaves_out_are_asked_for_one_by_one() {
    let mut all = fleet(60);
    all[7] = all[7].clone().label("kops.k8s.io/cluster", "other.example.com");
    all[8] = all[8].clone().without_label("kops.k8s.io/cluster");
    let (fake, provider) = fake(&all).await;
    let results = provider.ask(&all).await;
    for (place, result) in results.iter().enumerate() {
        let expected = if matches!(place, 7 | 8) { "ForeignProject" } else { "ok" };
        assert_eq!(reason(result), expected, "{:?}", all[place]);
    }
    assert!(results[7].as_ref().unwrap_err().is_forgery());
    let calls = fake.calls();
    assert_eq!((pages(&calls), calls.len()), (vec![50, 8], 4));
}

#[tokio::test]
async fn many_that_the_listing_leaves_out_are_looked_for_in_the_whole_project() {
    let mut all = fleet(60);
    for server in &mut all[..20] {
        *server = server.clone().without_label("kops.k8s.io/cluster");
    }
    let (fake, provider) = fake(&all).await;
    // And some that are not there at all.
    let mut asked = all.clone();
    asked.extend((1..=5).map(|id| server(id, "no-such")));
    let results = provider.ask(&asked).await;
    assert_eq!(reasons(&results)[..20], ["ForeignProject"; 20]);
    assert_eq!(reasons(&results)[20..60], ["ok"; 40]);
    assert_eq!(reasons(&results)[60..], ["NotFound"; 5]);
    let calls = fake.calls();
    assert_eq!((pages(&calls), calls.len()), (vec![40, 50, 10], 3));
}

#[tokio::test]
async fn whatever_kubelets_claim_a_query_ends_in_a_bounded_number_of_calls() {
    let all = fleet(60);
    let (fake, provider) = fake(&all).await;
    let made_up: Vec<_> = (1..=900).map(|id| server(id, "no-such")).collect();
    let asked: Vec<_> = all.iter().chain(&made_up).cloned().collect();
    let results = provider.ask(&asked).await;
    assert!(results[..60].iter().all(Result::is_ok));
    assert_eq!(reasons(&results)[60..], ["NotFound"; 900]);
    assert_eq!(fake.calls().len(), 4);
}

#[tokio::test]
async fn one_that_slips_between_two_pages_is_found_all_the_same() {
    let all = fleet(20);
    let (fake, provider) = fake(&all).await;
    // A server of the first page was deleted while it was read, so the first of the second came to stand on it.
    let first: Vec<_> = all[..9].iter().collect();
    let second: Vec<_> = all[10..].iter().collect();
    fake.script([page(&first, Some(2)), page(&second, None)]);
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
    assert_eq!(fake.calls().last().unwrap().names, [all[9].id().to_string()]);
}

#[tokio::test]
async fn what_a_listing_repeats_or_adds() {
    let all = fleet(12);
    let (fake, provider) = fake(&all).await;
    let masters = all[3].clone().kops(CLUSTER, "masters");
    let stranger = server(1, "stranger");
    let mut rows: Vec<_> = all.iter().collect();
    rows.extend([&masters, &stranger]);
    for _ in 0..2 {
        rows.reverse();
        fake.script([page(&rows, None)]);
        for (place, result) in provider.ask(&all).await.iter().enumerate() {
            let expected = if place == 3 { "Unavailable" } else { "ok" };
            assert_eq!(reason(result), expected, "{:?}", all[place]);
        }
    }
}

/// Whatever is named as the next page: a page that brings no server with a higher id ends it.
#[tokio::test]
async fn pages_are_not_read_for_ever() {
    let all = fleet(12);
    let rows: Vec<_> = all.iter().collect();
    for (what, rows, next, calls) in [
        ("empty pages", &rows[..0], 1, 1),
        ("the same servers on each page", &rows[..], 1, 2),
        ("a page is left out", &rows[..], 2, 1),
        ("the same page", &rows[..], 0, 1),
    ] {
        let (fake, provider) = fake(&all).await;
        fake.script((1..1000).map(|number| page(rows, Some(number + next))));
        assert_eq!(reasons(&provider.ask(&all).await), ["Unavailable"; 12], "{what}");
        assert_eq!(fake.calls().len(), calls, "{what}");
    }
}

#[tokio::test]
async fn a_malformed_row_concerns_its_own_server_only() {
    let all = fleet(12);
    let (fake, provider) = fake(&all).await;
    let mut rows: Vec<_> = all.iter().map(FakeServer::json).collect();
    rows[3]["labels"] = json!(7);
    rows.push(json!({"id": "no number"}));
    rows.push(json!("no server"));
    let pagination = json!({"pagination": {"next_page": null}});
    fake.script([Scripted::json(&json!({"servers": rows, "meta": pagination}))]);
    for (place, result) in provider.ask(&all).await.iter().enumerate() {
        let expected = if place == 3 { "Unavailable" } else { "ok" };
        assert_eq!(reason(result), expected, "{:?}", all[place]);
    }
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn a_listing_that_breaks_off_between_pages_says_nothing() {
    let all = fleet(60);
    let (fake, provider) = fake(&all).await;
    let first: Vec<_> = all[..50].iter().collect();
    for (broken, expected) in [(Scripted::Failed, "Unavailable"), (Scripted::Throttled, "Throttled")] {
        fake.script([page(&first, Some(2)), broken]);
        assert_eq!(reasons(&provider.ask(&all).await), [expected; 60]);
    }
}
